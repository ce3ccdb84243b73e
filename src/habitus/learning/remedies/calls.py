"""Calls with what came of them, paired from the events of a turn, and shell lines taken apart into simple commands,
each with where, under which variables and through what it runs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import takewhile

from habitus.events import AgentEvent, CallRecord, get_text_detail
from habitus.learning.detectors.error_signatures import ErrorCause, classify_error

CUT = "…"  # how a shortened text ends


@dataclass(frozen=True, kw_only=True)
class Call(CallRecord):
    turn: str = ""
    project: str = ""

    @property
    def command(self) -> str:
        """A shell's text."""
        return get_text_detail(self.call_event, "command")

    @property
    def began(self) -> str:
        return get_text_detail(self.call_event, "at")

    @property
    def ended_at(self) -> str:
        return get_text_detail(self.result_event, "at")

    @property
    def doubt(self) -> str:
        """A line of a success that reads like a failure."""
        return get_text_detail(self.result_event, "doubt")

    @cached_property
    def cwd(self) -> str:
        """Relative to the project where it lies in it."""
        given = (place for key in _WHERE if isinstance(place := self.whole.get(key), str))
        return within(self.project, next(given, get_text_detail(self.call_event, "cwd")))

    @cached_property
    def whole(self) -> Mapping[str, object]:
        """The arguments that the summary still holds whole."""
        return _arguments(self.summary)

    @property
    def has_worked(self) -> bool:
        return self.success is True and not self.doubt

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        """The commands of a shell line, each with the directory it runs in."""
        if self.command.endswith(CUT):
            return ()
        found = commands(self.command)
        return tuple(replace(each, place=_place(self.cwd, each.place)) for each in found) if self.cwd else found

    @cached_property
    def focus(self) -> Command | None:
        """The command of its line that its error is about."""
        about = classify_error(self.error)
        found = [each for each in self.commands if each.program not in ("echo", "sleep", "true")]
        if about.cause is ErrorCause.PROGRAM:
            program = plain(about.subject)
            for each in found:
                if any(plain(word) == program for word in each.head):
                    return each
        for each in found:
            if each.program in self.error and re.search(
                rf"(?m)^(?:\w+: )?{re.escape(each.program)}\b.{{0,20}}:", self.error
            ):
                return each
        return found[-1] if found else None

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
    *("edit", "write", "multiedit", "notebookedit", "applypatch", "replace", "patch", "strreplace", "create"),
)


def word_set(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


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


def calls(events: Iterable[AgentEvent], *, turn: str = "", project: str = "") -> Iterator[Call]:
    """Those that came back, in the order in which they did."""
    seen = list(events)
    order = {id(event): number for number, event in enumerate(seen)}
    made = Call.from_events(seen, turn=turn, project=project)
    done = [call for call in made if call.call_event and call.result_event]
    for call in sorted(done, key=lambda call: order[id(call.result_event)]):
        yield replace(call, success=False, error=call.doubt) if _was_hidden(call) else call


def _was_hidden(call: Call) -> bool:
    """Whether a pipe hid that there is no such program: its output is only the shell's word on it."""
    about = classify_error(call.doubt) if call.doubt and call.success and "|" in call.command else None
    if about is None or about.cause is not ErrorCause.PROGRAM:
        return False
    return any(plain(word) == plain(about.subject) for each in call.commands for word in each.head)


_WHERE = ("workdir", "cwd", "working_directory", "dir")


@lru_cache(maxsize=256)
def within(project: str, place: str) -> str:
    """A directory as seen from the project, so that two copies of it look the same."""
    if not project or not place.startswith("/"):
        return place
    inside = posixpath.relpath(place, project)
    return place if inside.startswith("..") else ("" if inside == "." else inside)


def parse_iso_timestamp(at: str) -> datetime | None:
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
    ARGUMENT = "argument"  # of a tool that is not a shell
    FIRST = "first"  # the same, after another call


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A remedy: the call that failed and the one that worked, in the words that matter."""

    change: Change
    cause: ErrorCause
    about: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    tool: str = ""  # of a call that is not a shell's

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


_TOKEN = re.compile(
    r"[ \t]*(?:\\\n[ \t]*)*(?:"
    r"(?P<join>&&|\|\||;;?|\|&?|\n|&(?!>)|[()]|[{}](?=\s|$))"
    r"|(?P<redirect>(?:&|\d+)?(?:<<<?-?|[<>]{1,2})(?:&\d|&-)?)"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\((?:[^()]|\([^()]*\))*\)|[^\s'\"\\|&;<>()])+))",
    re.DOTALL,
)
_QUOTES = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_VERSION = re.compile(r"(?<=[a-z])[\d.]+$")
# What changes nothing about a command but how long it may take or who waits for it.
_TRANSPARENT = {"time": 0, "nice": 0, "nohup": 0, "command": 0, "exec": 0, "builtin": 0, "stdbuf": 0, "timeout": 1}
# Programs that run another one: what comes after their words is the program.
_RUNNERS = tuple(
    tuple(words.split())
    for words in (
        *("uv run", "uvx", "poetry run", "pipenv run", "pdm run", "hatch run", "rye run", "pipx run", "conda run"),
        *("npx", "bunx", "pnpm exec", "pnpm dlx", "yarn exec", "yarn dlx", "npm exec", "bundle exec", "mise exec"),
        *("docker compose exec", "docker-compose exec", "docker compose run", "docker exec", "direnv exec"),
        *("python -m", "sudo", "doas", "xvfb-run", "dotenv run", "op run", "nix develop -c", "cargo run --bin"),
    )
)
_HAS_VALUE = word_set(
    "--extra --group --with --python -p --package --env-file -n --name --directory --project -w --workdir",
    "--workspace --filter -u --user -e --env",
)
_PLACES = frozenset(("docker compose exec", "docker-compose exec", "docker compose run", "docker exec", "direnv exec"))


SUBCOMMAND = re.compile(r"[a-z][\w:-]*(?:\.\w{1,4})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One simple command. `words` are as they were written, without quotes; the program is at `at`."""

    words: tuple[str, ...]
    at: int = 0
    env: tuple[str, ...] = ()
    place: str = ""  # the directory that a `cd` before it leads to
    before: tuple[tuple[str, ...], ...] = ()  # what runs before it on the same line, and must work
    is_last: bool = True  # whether nothing follows that hides how it ended; a pipe does, but shows what it said

    @property
    def program(self) -> str:
        """The program, whatever runs it and wherever it lies: `.venv/bin/python3.11` is `python`."""
        return plain(self.words[self.at])

    @property
    def head(self) -> tuple[str, ...]:
        """The program and what it is run through, as written."""
        return self.words[: self.at + 1]

    @property
    def args(self) -> tuple[str, ...]:
        return self.words[self.at + 1 :]

    @property
    def targets(self) -> tuple[str, ...]:
        """Its targets: the arguments that are no flags."""
        return tuple(word for word in self.args if not is_flag(word))

    @property
    def base(self) -> tuple[str, ...]:
        """The program and its subcommands: what stays when the arguments vary."""
        return (*self.head, *takewhile(SUBCOMMAND.fullmatch, self.args[:2]))


def is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1


@lru_cache(maxsize=4096)
def plain(word: str) -> str:
    return _VERSION.sub("", word.rpartition("/")[2]) or word


def shell_text(words: Sequence[str]) -> str:
    """The words as a shell would take them again."""
    return " ".join(f"'{word}'" if re.search(r"\s", word) and word != "&&" else word for word in words)


@lru_cache(maxsize=4096)
def commands(line: str) -> tuple[Command, ...]:
    """The commands of a line that do something; `cd` and `export` become part of those after them."""
    found: list[Command] = []
    place = ""
    env: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    for words, join, follows in _simple(line):
        assigned, words = _split_env(words)
        words = _without_transparent(words)
        if not words:
            env = (*env, *assigned)
            continue
        if words[0] == "cd" and len(words) > 1:
            place = _place(place, words[1])
            continue
        if words[0] == "export":
            env = (*env, *(word for word in words[1:] if _ASSIGNMENT.match(word)))
            continue
        if join == "|" and found:  # what only looks at another's output
            continue
        if join not in ("", "&&"):
            before = ()
        command = Command(
            words=words, at=_program_at(words), env=(*env, *assigned), place=place, before=before, is_last=not follows
        )
        found.append(command)
        before = (*before, words)
    return tuple(found)


def _simple(line: str) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Words, what joins them to the words before, and whether something follows that hides how they ended."""
    runs: list[tuple[list[str], str]] = [([], "")]
    skips = False
    position = 0
    while found := _TOKEN.match(line, position):
        position = found.end()
        if join := found["join"]:
            if runs[-1][0]:
                runs.append(([], "|" if join == "|&" else join))
        elif redirect := found["redirect"]:
            if redirect.lstrip("0123456789").startswith("<<"):
                break  # a document follows, not commands
            skips = not redirect[-1].isdigit() and not redirect.endswith("-")
        elif skips:
            skips = False
        else:
            runs[-1][0].append(_unquote(found["word"]))
    runs = [run for run in runs if run[0]]
    for index, (words, join) in enumerate(runs):
        follows = any(later not in ("&&", "|") for _, later in runs[index + 1 :])
        yield tuple(words), join, follows


def _unquote(word: str) -> str:
    return _QUOTES.sub(lambda found: next((part for part in found.groups() if part is not None), ""), word)


def _split_env(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if words[0] == "env":
        words = tuple(words[1:])
    count = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[:count], words[count:]


def _without_transparent(words: tuple[str, ...]) -> tuple[str, ...]:
    while words and words[0] in _TRANSPARENT and len(words) > 1:
        values = _TRANSPARENT[words[0]]
        rest = list(words[1:])
        while rest and is_flag(rest[0]):
            values += rest.pop(0) in ("-n", "-k", "-s")
        words = tuple(rest[values:])
    return words


def _program_at(words: tuple[str, ...]) -> int:
    at = 0
    while runner := _runner(words[at:]):
        after = at + len(runner)
        while after < len(words) and is_flag(words[after]):
            after += 2 if words[after] in _HAS_VALUE and "=" not in words[after] else 1
        after += " ".join(runner) in _PLACES
        if after >= len(words):
            break
        at = after
    return at


def _runner(words: Sequence[str]) -> tuple[str, ...]:
    if len(words) < 2:
        return ()
    spelled = (plain(words[0]), *words[1:3])
    return next((runner for runner in _RUNNERS if spelled[: len(runner)] == runner), ())
