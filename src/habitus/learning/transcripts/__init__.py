"""Readers of transcripts: what other agents (and we) did, as turns of events for the detectors.

    for transcript in transcripts.read(path):
        for turn in transcript.turns: …

Files are read line by line, every text is redacted, and what could not be read is counted, never raised.
`pieces` gives long transcripts a part at a time, so that a file of any size fits into memory.
"""

from __future__ import annotations

from habitus.learning.transcripts.formats.registry import FORMATS, format_of, pieces, read
from habitus.learning.transcripts.model import SkillUse, Transcript, TranscriptTurn

__all__ = ["FORMATS", "SkillUse", "Transcript", "TranscriptTurn", "format_of", "pieces", "read"]
