"""Results that look like failures and are none: somebody refused or stopped the call, or a search found nothing.

Agents write these down in fields where they have them, and in fixed words where they have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from habitus.events import shell_text

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


_BY_PERSON = frozenset({"user-rejected", "interrupted"})
_PERSON = re.compile(
    r"(?:<tool_use_error>|error:|\s)*(?:the user doesn'?t want to|user rejected|the user rejected"
    r"|[\w ]{0,40}\b(?:rejected|declined) by (?:the )?user|user (?:rejected|cancelled) mcp)",
    re.IGNORECASE,
)
_THEIR_WORDS = re.compile(r"the user said:\s*(.+)", re.IGNORECASE | re.DOTALL)


def said_no(*fields: Mapping[str, object], texts: Iterable[str]) -> tuple[bool, str]:
    """Whether it was a person who refused, and what they said with it; rules and hooks are nobody's word."""
    kinds = [str(given[key]) for given in fields for key in _DENIAL_FIELDS if given.get(key)]
    spoken = [text.replace("’", "'") for text in texts]
    is_person = any(kind in _BY_PERSON for kind in kinds) if kinds else any(map(_PERSON.match, spoken))
    words = next((found[1] for text in spoken if (found := _THEIR_WORDS.search(text))), "") if is_person else ""
    return is_person, words.removesuffix("</tool_use_error>").strip()


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
    programs = {_program(part) for part in _could_have_ended(shell_text(args))}
    return bool(programs & (_COMPARE if output else _LOOK))


def _could_have_ended(command: str) -> list[str]:
    """The parts whose exit code the whole may have: the last one, and those before it that `&&` joins to it."""
    last = re.split(r";|\n|\|\|", command.strip().rstrip(";"))[-1]
    return [part.rpartition("|")[2] for part in last.split("&&")]


def _program(part: str) -> str:
    rest = _BEFORE_A_COMMAND.sub("", part, count=1).split()
    return rest[0].rpartition("/")[2] if rest else ""
