"""Tracks whether a turn read anything that neither the person nor this session wrote.

A lesson from a turn that did not needs no screening of its words: nobody else could have put them there. When in doubt,
a turn has read something: a tool that isn't ours, the network, a program's output, or a file of unknown origin, as in a
cloned repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from habitus.memory.model import SCRATCHPAD_TOPIC

_OWN_TOOLS = frozenset({SCRATCHPAD_TOPIC, "memorize", "report_outcome", "why"})
_REACHES_OUT = re.compile(
    r"\b(?:requests|httpx|aiohttp|urllib\w*|http\.client|socket|ftplib|imaplib|poplib|smtplib|subprocess|websockets?|paramiko|"
    r"sqlite3|sqlalchemy|psycopg\w*|boto3|playwright|selenium|mcp|os\.(?:system|popen|listdir|walk|scandir|environ)|importlib|"
    r"get_skill|call_tool|glob|iterdir|rglob|stdin|input\()|^\s*[!%]",
    re.MULTILINE,
)
_TEXT = r"\(\s*(?:[rb]{0,2}[\"']([^\"'\n]{1,300})[\"'])?"
_WRITES = (
    re.compile(rf"\bopen{_TEXT}[^)\n]*,\s*(?:mode\s*=\s*)?[\"'][wax]"),
    re.compile(rf"\.(?:to_\w+|save\w*){_TEXT}"),
    re.compile(rf"\bPath{_TEXT}\)\.write_(?:text|bytes)"),
)
_READS = (
    re.compile(rf"(?:\bopen|\.(?:read_\w+|loadtxt|genfromtxt|open)|\bload(?:_\w+)?){_TEXT}"),
    re.compile(rf"\bPath{_TEXT}\)\.(?:read|open)"),
)


@dataclass
class OutsideContentTracker:
    """Watches the calls and cells of one session; `end_turn_and_check_free_of_outside_content` closes a turn."""

    _written: set[str] = field(default_factory=set)  # files that cells of this session wrote
    _has_foreign_call: bool = False
    _has_foreign_cell: bool = False  # for good: what a cell has read stays in the variables of its scratchpad

    def record_called_tool(self, tool: str) -> None:
        self._has_foreign_call |= tool not in _OWN_TOOLS

    def record_cell_reads_and_writes(self, code: str) -> None:
        self._written |= {path for pattern in _WRITES for path in pattern.findall(code)} - {""}
        read = {path for pattern in _READS for path in pattern.findall(code)}
        self._has_foreign_cell |= _REACHES_OUT.search(code) is not None or not read <= self._written

    def end_turn_and_check_free_of_outside_content(self, *, has_files: bool) -> bool:
        """Return whether the turn that ends here read nothing from outside; the next one starts afresh."""
        has_call, self._has_foreign_call = self._has_foreign_call, False
        return not (has_call or has_files or self._has_foreign_cell)
