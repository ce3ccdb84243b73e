"""Readers of transcripts: turns of events from the sessions of other agents and our own.

    for transcript in transcripts.read_transcripts(path):
        for turn in transcript.turns: …

Files are read line by line, every text is redacted, and unreadable parts are counted instead of raised. `read_pieces`
returns long transcripts in parts, so a file of any size fits into memory.
"""

from __future__ import annotations

from habitus.learning.transcripts.formats.registry import FORMATS, detect_format, read_pieces, read_transcripts
from habitus.learning.transcripts.model import SkillUse, Transcript, TranscriptTurn

__all__ = ["FORMATS", "SkillUse", "Transcript", "TranscriptTurn", "detect_format", "read_pieces", "read_transcripts"]
