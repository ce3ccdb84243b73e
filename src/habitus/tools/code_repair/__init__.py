"""Repairs the damage that transport and chat do to model-written Python, and refuses to guess.

Valid Python passes byte for byte; truncated code is never turned into something that merely parses.
"""

from habitus.tools.code_repair.repair import Repaired, repair
from habitus.tools.code_repair.source import CodeRefused, Defect

__all__ = ["CodeRefused", "Defect", "Repaired", "repair"]
