"""Repairs the damage that transport and chat do to model-written Python, and refuses to guess.

Valid Python passes byte for byte; truncated code is never turned into something that merely parses.
"""

from habitus.tools.code_repair.repair import RepairedCode, repair_code
from habitus.tools.code_repair.source import CodeDefectKind, CodeRefused

__all__ = ["CodeDefectKind", "CodeRefused", "RepairedCode", "repair_code"]
