"""The composition root: from settings to a working Habitus, the one place that names concrete classes."""

from habitus.app.content import high_findings
from habitus.app.habitus import DATABASE, Habitus, read_settings

__all__ = ["DATABASE", "Habitus", "high_findings", "read_settings"]
