"""Mends what transport and chat did to model-written Python, and refuses what cannot be known.

Clean Python passes byte for byte; truncated code is never turned into something that merely parses.
"""

from habitus.tools.code_repair.repair import Repaired, repair
from habitus.tools.code_repair.source import CodeRefused, Defect

__all__ = ["CodeRefused", "Defect", "Repaired", "repair"]
