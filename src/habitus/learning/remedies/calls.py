"""Calls with what came of them, paired from the events of a turn, and what kind of work a call is."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache

from habitus.events import Event, EventKind
from habitus.learning.remedies.commands import Command, commands, is_flag, plain, word_set
from habitus.learning.remedies.troubles import Cause, trouble

CUT = "…"  # how a shortened text ends


@dataclass(frozen=True, kw_only=True)
class Call:
    tool: str
    turn: str = ""
    summary: str = ""  # its arguments, shortened
    digest: str = ""
    command: str = ""  # a shell's text
    cwd: str = ""  # relative to the project where it lies in it
    success: bool | None = None  # none where it was refused, or nobody knows
    is_doubtful: bool = False  # a success that reads like a failure
    error: str = ""
    began: str = ""
    ended: str = ""

    @property
    def has_worked(self) -> bool:
        return self.success is True and not self.is_doubtful

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """What the shell runs, each with the directory it runs in."""
        if self.command.endswith(CUT):
            return ()
        found = commands(self.command)
        return tuple(replace(each, place=_place(self.cwd, each.place)) for each in found)

    @cached_property
    def arguments(self) -> Mapping[str, object]:
        return _arguments(self.summary)

    @cached_property
    def only_looks(self) -> bool:
        """Whether it changes nothing, as far as one can see."""
        if not self.command:
            return self.tool.rpartition("__")[2].lower().replace("_", "").startswith(_LOOKING_TOOLS)
        return bool(self.commands) and all(map(_only_looks, self.commands)) and not _WRITES.search(self.command)

    @cached_property
    def edits(self) -> bool:
        """Whether it changes the work itself, which is no general remedy for anything."""
        if not self.command:
            return self.tool.lower().replace("_", "").startswith(_EDITING_TOOLS)
        return bool(_WRITES.search(self.command)) or any(_edits(each.words) for each in self.commands)


_LOOKING_TOOLS = (
    *("read", "grep", "glob", "ls", "list", "search", "find", "view", "websearch", "webfetch", "todo", "task", "get"),
    *("bashoutput", "skill", "recall", "think", "updateplan", "exitplan", "askuser"),
)
_EDITING_TOOLS = (
    "edit",
    "write",
    "multiedit",
    "notebookedit",
    "applypatch",
    "replace",
    "patch",
    "strreplace",
    "create",
)
_LOOKING = word_set(
    "ls cat head tail less grep egrep rg ag find fd which type whereis pwd echo printf wc tree file stat du df env",
    "printenv date whoami id uname ps sleep true false test [ [[ man sort uniq cut awk jq diff cmp hostname ss lsof",
)
_LOOKING_PARTS = {
    "git": word_set("status diff log show branch remote rev-parse ls-files blame describe config tag"),
    "pip": word_set("list show freeze index check"),
    "npm": word_set("ls list view outdated"),
    "docker": word_set("ps images logs inspect version info"),
    "uv": word_set("tree version"),
    "kubectl": word_set("get describe logs"),
    "sed": word_set("-n"),
}
LOOKING_FLAGS = word_set("--help -h --version -V --dry-run --list --collect-only --co -n --check --show")
_WRITES = re.compile(r"(?<![<>&\d=-])(?:[12]?>{1,2})(?!&|\s*/dev/null)\s*[\w./~$\"']")


def _only_looks(command: Command) -> bool:
    if command.program in _LOOKING:
        return True
    if any(word in ("--help", "--version", "help") for word in command.args):
        return True
    return bool(command.args) and command.args[0] in _LOOKING_PARTS.get(command.program, ())


def _edits(words: tuple[str, ...]) -> bool:
    match words:
        case ("sed" | "perl", *rest):
            return any(word.startswith("-i") or "i" in word[1:3] for word in rest if is_flag(word))
        case ("tee" | "patch" | "ed", *_):
            return True
        case ("git", "apply" | "checkout" | "stash" | "reset" | "restore" | "revert" | "merge" | "rebase", *_):
            return True
    return False


def _place(cwd: str, place: str) -> str:
    joined = posixpath.normpath(posixpath.join(cwd or ".", place or "."))
    return "" if joined == "." else joined


_KEY = re.compile(r"(?:, )?([\w.-]+)=")


@lru_cache(maxsize=1024)
def _arguments(summary: str) -> Mapping[str, object]:
    """The arguments that a summary still holds whole."""
    found: dict[str, object] = {}
    decoder, position = json.JSONDecoder(), 0
    while key := _KEY.match(summary, position):
        try:
            found[key[1]], position = decoder.raw_decode(summary, key.end())
        except (ValueError, RecursionError):
            break
    return found


def calls(events: Iterable[Event], *, turn: str = "", project: str = "") -> Iterator[Call]:
    """In the order in which they came back; calls without an id match by name."""
    waiting: dict[str, Event] = {}
    for event in events:
        name = str(event.detail.get("name") or "unknown")
        key = str(event.detail.get("id") or name)
        if event.kind is EventKind.TOOL_CALL:
            waiting[key] = event
        elif event.kind is EventKind.TOOL_RESULT and (called := waiting.pop(key, None)):
            yield _call(called.detail, event.detail, turn, project)


def _call(called: Mapping[str, object], came: Mapping[str, object], turn: str, project: str) -> Call:
    def said(detail: Mapping[str, object], key: str) -> str:
        value = detail.get(key)
        return value if isinstance(value, str) else ""

    success, error = came.get("success"), came.get("error")
    given = said(called, "cwd")
    arguments = _arguments(said(called, "args_summary"))
    where = next((place for key in _WHERE if isinstance(place := arguments.get(key), str)), given)
    made = Call(
        tool=said(called, "name") or "unknown",
        turn=turn,
        summary=said(called, "args_summary"),
        digest=said(called, "args_digest"),
        command=said(called, "command"),
        cwd=within(project, where),
        success=success if isinstance(success, bool) else None,
        is_doubtful=bool(came.get("doubt")),
        error=error if isinstance(error, str) else json.dumps(error, default=str),
        began=said(called, "at"),
        ended=said(came, "at"),
    )
    return replace(made, success=False, error=doubt) if _was_hidden(made, doubt := said(came, "doubt")) else made


def _was_hidden(call: Call, doubt: str) -> bool:
    """Whether a pipe hid that there is no such program: its output is only the shell's word on it."""
    about = trouble(doubt) if doubt and call.success and "|" in call.command else None
    if about is None or about.cause is not Cause.PROGRAM:
        return False
    return any(plain(word) == plain(about.about) for each in call.commands for word in each.head)


_WHERE = ("workdir", "cwd", "working_directory", "dir")


def within(project: str, place: str) -> str:
    """A directory as seen from the project, so that two copies of it look the same."""
    if not project or not place.startswith("/"):
        return place
    inside = posixpath.relpath(place, project)
    return place if inside.startswith("..") else ("" if inside == "." else inside)


def moment(at: str) -> datetime | None:
    try:
        read = datetime.fromisoformat(at)
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
