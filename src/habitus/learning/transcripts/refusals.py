"""Results that look like failures and are none: somebody refused or stopped the call, or a search found nothing.

Agents write these down in fields where they have them, and in fixed words where they have none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

_SPOKEN = re.compile(
    r"(?:<tool_use_error>|error:|\s)*(?:"
    r"the user doesn'?t want to (?:proceed with this tool use|take this action)"
    r"|user rejected tool use|the user rejected permission to use this specific tool call"
    r"|permission (?:to use|for this)|claude requested permissions|this command requires approval"
    r"|\w+:\w+ hook error|[\w ]{0,40}blocked by pretooluse hook"
    r"|\[request interrupted by user"
    r"|[\w ]{0,40}\b(?:rejected|aborted|cancelled|declined) by (?:the )?user|user (?:rejected|cancelled) mcp"
    r"|<turn_aborted>|tool execution aborted"
    r")",
    re.IGNORECASE,
)
_DENIAL_FIELDS = ("toolDenialKind", "tool_denial_kind", "denialKind")
_STATUSES = frozenset({"cancelled", "canceled", "declined", "denied", "rejected", "aborted"})


def was_refused(*fields: Mapping[str, object], texts: Iterable[str]) -> bool:
    """Whether a person, a rule or a hook kept the call from running or stopped it; it says nothing about the tool."""
    for given in fields:
        status = given.get("status")
        is_denied = any(given.get(key) for key in _DENIAL_FIELDS) or given.get("interrupted") is True
        if is_denied or (isinstance(status, str) and status.lower() in _STATUSES):
            return True
    return any(_SPOKEN.match(text.replace("’", "'")) for text in texts)


_LOOK = frozenset(
    [
        "grep",
        "egrep",
        "fgrep",
        "zgrep",
        "rg",
        "ag",
        "ack",
        "pgrep",
        "find",
        "fd",
        "test",
        "[",
        "[[",
        "which",
        "type",
        "command",
        "diff",
        "cmp",
    ]
)
_COMPARE = frozenset(("diff", "cmp"))
_BEFORE_A_COMMAND = re.compile(r"\s*(?:[A-Za-z_]\w*=\S*\s+|(?:sudo|time|env|xargs|git)\s+|[({!]\s*)*")


def found_nothing(args: object, code: int, output: str) -> bool:
    """Whether a command that looks for something ended with 1 and said nothing; a comparison may say what differs."""
    if code != 1:
        return False
    programs = {_program(part) for part in _could_have_ended(_command(args))}
    return bool(programs & (_COMPARE if output else _LOOK))


def _command(args: object) -> str:
    """The shell's text in the arguments of a call, whatever the agent calls the argument."""
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except (ValueError, RecursionError):
            return args if isinstance(args, str) else ""
    if not isinstance(args, Mapping):
        return ""
    given = args.get("command") or args.get("cmd") or args.get("script") or ""
    if isinstance(given, list):
        is_shell = len(given) == 3 and str(given[1]) in ("-c", "-lc")
        return str(given[2]) if is_shell else " ".join(map(str, given))
    return str(given)


def _could_have_ended(command: str) -> list[str]:
    """The parts whose exit code the whole may have: the last one, and those before it that `&&` joins to it."""
    last = re.split(r";|\n|\|\|", command.strip().rstrip(";"))[-1]
    return [part.rpartition("|")[2] for part in last.split("&&")]


def _program(part: str) -> str:
    rest = _BEFORE_A_COMMAND.sub("", part, count=1).split()
    return rest[0].rpartition("/")[2] if rest else ""
