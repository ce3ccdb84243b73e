"""Calls with what came of them, paired from the events of a turn, and what kind of work a call is."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache

from habitus.events import CallRecord, Event, text_in
from habitus.learning.remedies.commands import Command, commands, is_flag, plain, shell_text, word_set
from habitus.learning.remedies.troubles import Cause, trouble

CUT = "…"  # how a shortened text ends


@dataclass(frozen=True, kw_only=True)
class Call(CallRecord):
    turn: str = ""
    project: str = ""

    @property
    def command(self) -> str:
        """A shell's text."""
        return text_in(self.call_event, "command")

    @property
    def began(self) -> str:
        return text_in(self.call_event, "at")

    @property
    def ended_at(self) -> str:
        return text_in(self.result_event, "at")

    @property
    def doubt(self) -> str:
        """A line of a success that reads like a failure."""
        return text_in(self.result_event, "doubt")

    @cached_property
    def cwd(self) -> str:
        """Relative to the project where it lies in it."""
        given = (place for key in _WHERE if isinstance(place := self.whole.get(key), str))
        return within(self.project, next(given, text_in(self.call_event, "cwd")))

    @cached_property
    def whole(self) -> Mapping[str, object]:
        """The arguments that the summary still holds whole."""
        return _arguments(self.summary)

    @property
    def has_worked(self) -> bool:
        return self.success is True and not self.doubt

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """What the shell runs, each with the directory it runs in."""
        if self.command.endswith(CUT):
            return ()
        found = commands(self.command)
        return tuple(replace(each, place=_place(self.cwd, each.place)) for each in found)

    @cached_property
    def only_looks(self) -> bool:
        """Whether it changes nothing, as far as one can see."""
        if not self.command:
            return self.name.rpartition("__")[2].lower().replace("_", "").startswith(_LOOKING_TOOLS)
        return bool(self.commands) and all(map(_only_looks, self.commands)) and not _WRITES.search(self.command)

    @cached_property
    def edits(self) -> bool:
        """Whether it changes the work itself, which is no general remedy for anything."""
        if not self.command:
            return self.name.lower().replace("_", "").startswith(_EDITING_TOOLS)
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
    "free nproc uptime",
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
_LOOKING_FLAGS = word_set("--help --version -V --dry-run --list --collect-only --co --check --show")
_WRITES = re.compile(r"(?<![<>&\d=-])(?:[12]?>{1,2})(?!&|\s*/dev/null)\s*[\w./~$\"']")


def _only_looks(command: Command) -> bool:
    if command.program in _LOOKING:
        return True
    if any(word in ("--help", "--version", "help") for word in command.args):
        return True
    return bool(command.args) and command.args[0] in _LOOKING_PARTS.get(command.program, ())


def looking_flags(command: Command) -> set[str]:
    """Its flags that only ask; `-h` and `-n` have other meanings where a value follows them."""
    found = _LOOKING_FLAGS & set(command.args)
    for word, then in zip(command.args, (*command.args[1:], "--"), strict=False):
        if word in ("-h", "-n") and (is_flag(then) or command.program in ("make", "git", "rsync")):
            found |= {word}
    return set(found)


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
    """Those that came back, in the order in which they did."""
    seen = list(events)
    order = {id(event): number for number, event in enumerate(seen)}
    done = [call for call in Call.read(seen) if call.call_event and call.result_event]
    for call in sorted(done, key=lambda call: order[id(call.result_event)]):
        made = replace(call, turn=turn, project=project)
        yield replace(made, success=False, error=made.doubt) if _was_hidden(made) else made


def _was_hidden(call: Call) -> bool:
    """Whether a pipe hid that there is no such program: its output is only the shell's word on it."""
    about = trouble(call.doubt) if call.doubt and call.success and "|" in call.command else None
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


LONGEST = 160  # characters of a remedy; what is longer is no habit but a piece of work
_ODD = re.compile(r"\$\(|`|\[redacted|\n|[<>]|…")  # computed, secret, or cut
_GUARDS = word_set(
    "sudo doas --force -f --force-with-lease --no-verify --insecure -k --no-check-certificate --hard --privileged",
    "--break-system-packages --allow-root --no-sandbox --skip-checks --disable-warnings --trusted-host --no-gpg-sign",
    "777 -rf -fr --no-strict --yolo --unsafe-perm --allow-unauthenticated --nodeps -lock --no-lock",
)


class Change(StrEnum):
    """How what worked differs from what failed."""

    INSTEAD = "instead"  # another program, or the same through something else
    PLACE = "place"
    VARIABLE = "variable"
    FLAGS = "flags"
    NAME = "name"  # another word: a subcommand, a script, a path
    ARGUMENT = "argument"  # of a tool that is no shell
    FIRST = "first"  # the same, after another call


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What failed and what worked, in the words that matter for it."""

    change: Change
    cause: Cause
    about: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    tool: str = ""  # of a call that is no shell's

    @property
    def can_be_quoted(self) -> bool:
        """Short, plain, and with no address that only what worked has: that is fetched from elsewhere."""
        if len(shell_text((*self.wrong, *self.right))) > LONGEST:
            return False
        return not any(_ODD.search(word) or ("://" in word and word not in self.wrong) for word in self.right)

    @property
    def goes_round_a_guard(self) -> bool:
        added = set(self.right) - set(self.wrong)
        return any(
            word.partition("=")[0] in _GUARDS or "dangerous" in word or "StrictHostKey" in word for word in added
        )
