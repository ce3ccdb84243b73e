"""Reads code in the language it is written in."""

from __future__ import annotations

import re

from habitus.screening.code_context import CodeFinding, SkillCodeContext, get_command_pattern
from habitus.screening.hosts import HostClassifier
from habitus.screening.javascript_code import find_javascript_threats
from habitus.screening.python_code import find_python_threats
from habitus.screening.shell_code import find_shell_threats_and_output
from habitus.screening.unparsed_code import find_threats_without_parser

_PYTHON = re.compile(r"py\w{0,4}[\d.]*")
_JAVASCRIPT = re.compile(r"[mc]?[jt]sx?|javascript|typescript|node|deno|bun")
# Languages read with the parser of a related one, which misses some of their lines.
_HALF_PARSED = re.compile(r"[mc]?tsx?|typescript|ps1|psm1|powershell|bat|cmd")


def find_code_threats(code: str, language: str, hosts: HostClassifier) -> tuple[CodeFinding, ...]:
    """Return what code does that a person should know of."""
    return _find_threats_by_language(code, language, SkillCodeContext(hosts=hosts, read=_find_threats_by_language))


def _find_threats_by_language(code: str, language: str, context: SkillCodeContext) -> tuple[CodeFinding, ...]:
    if not code.strip():
        return ()
    if _PYTHON.fullmatch(language):
        return find_python_threats(code, context)
    if _JAVASCRIPT.fullmatch(language):
        found = find_javascript_threats(code, context)
    elif get_command_pattern("read_whole").fullmatch(language):
        found = find_shell_threats_and_output(code, context)[0]
    else:
        return find_threats_without_parser(code, context)
    if _HALF_PARSED.fullmatch(language):
        known = {(one.rule, one.line) for one in found}
        found += tuple(one for one in find_threats_without_parser(code, context) if (one.rule, one.line) not in known)
    return found
