"""Every number that was measured rather than chosen."""

from __future__ import annotations

FIELD_WEIGHTS = {"name": 3.0, "cue": 4.0, "tags": 3.0, "description": 4.0, "body": 0.5}
FIELD_NORMS = {"name": 0.5, "cue": 0.1, "tags": 0.5, "description": 0.1, "body": 0.5}
FIELD_LENGTHS = {"name": 3.0, "cue": 20.0, "tags": 4.0, "description": 20.0, "body": 300.0}
SATURATION = 2.0
