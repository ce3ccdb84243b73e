"""Calls with their results, paired from the events of a turn, and shell lines parsed into simple commands with their
directory, variables and runner.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import takewhile

from habitus.events import AgentEvent, ToolCallRecord, get_text_detail
from habitus.learning.detectors.error_signatures import ErrorCause, classify_error

CUT_MARK = "…"  # how a shortened text ends


@dataclass(frozen=True, kw_only=True)
class SessionCall(ToolCallRecord):
    turn: str = ""
    project: str = ""

    @property
    def command(self) -> str:
        """The command line of a shell."""
        return get_text_detail(self.call_event, "command")

    @property
    def call_started_at(self) -> str:
        return get_text_detail(self.call_event, "at")

    @property
    def ended_at(self) -> str:
        return get_text_detail(self.result_event, "at")

    @property
    def failure_like_line(self) -> str:
        """A line of a successful result that reads like a failure."""
        return get_text_detail(self.result_event, "doubt")

    @cached_property
    def cwd(self) -> str:
        """The working directory, relative to the project if it is inside."""
        given = (place for key in _WHERE if isinstance(place := self.unshortened_arguments.get(key), str))
        return make_relative_directory(self.project, next(given, get_text_detail(self.call_event, "cwd")))

    @cached_property
    def unshortened_arguments(self) -> Mapping[str, object]:
        """The arguments that the summary holds unshortened."""
        return _parse_argument_summary(self.arguments_summary)

    @property
    def has_worked(self) -> bool:
        return self.success is True and not self.failure_like_line

    @property
    def has_reached_work(self) -> bool:
        """Whether it ran as far as the work itself: it succeeded, or a test or the compiler rejected the code."""
        return self.has_worked or (self.success is False and classify_error(self.error).cause is ErrorCause.WORK)

    @cached_property
    def commands(self) -> tuple[ShellCommand, ...]:
        """The commands of a shell line, each with its directory."""
        if self.command.endswith(CUT_MARK):
            return ()
        found = parse_shell_commands(self.command)
        return (
            tuple(replace(each, place=_join_directory(self.cwd, each.place)) for each in found) if self.cwd else found
        )

    @cached_property
    def failing_command(self) -> ShellCommand | None:
        """The command of the line that the error is about."""
        about = classify_error(self.error)
        found = [each for each in self.commands if each.program not in ("echo", "sleep", "true")]
        if about.cause is ErrorCause.PROGRAM:
            program = get_program_name(about.subject)
            for each in found:
                if any(get_program_name(word) == program for word in each.runner_and_program_words):
                    return each
        for each in found:
            if each.program in self.error and re.search(
                rf"(?m)^(?:\w+: )?{re.escape(each.program)}\b.{{0,20}}:", self.error
            ):
                return each
        return found[-1] if found else None

    @cached_property
    def is_read_only(self) -> bool:
        """Whether it changes nothing, as far as can be told."""
        if not self.command:
            return self.name.rpartition("__")[2].lower().replace("_", "").startswith(_LOOKING_TOOLS)
        return (
            bool(self.commands) and all(map(is_read_only_command, self.commands)) and not _WRITES.search(self.command)
        )

    @cached_property
    def is_edit(self) -> bool:
        """Whether it edits the work itself, which is no general remedy."""
        if not self.command:
            return self.name.lower().replace("_", "").startswith(_EDITING_TOOLS)
        return bool(_WRITES.search(self.command)) or any(_is_edit_command(each.words) for each in self.commands)


_LOOKING_TOOLS = (
    *("read", "grep", "glob", "ls", "list", "search", "find", "view", "websearch", "webfetch", "todo", "task", "get"),
    *("bashoutput", "skill", "recall", "think", "updateplan", "exitplan", "askuser"),
)
_EDITING_TOOLS = (
    *("edit", "write", "multiedit", "notebookedit", "applypatch", "replace", "patch", "strreplace", "create"),
)


def make_word_set(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_LOOKING = make_word_set(
    "ls cat head tail less grep egrep rg ag find fd which type whereis pwd echo printf wc tree file stat du df env",
    "free nproc uptime pgrep pidof sinfo squeue sacct nvidia-smi",
    "printenv date whoami id uname ps sleep true false test [ [[ man sort uniq cut awk jq diff cmp hostname ss lsof",
)
_LOOKING_PARTS = {
    "git": make_word_set("status diff log show branch remote rev-parse ls-files blame describe config tag"),
    "pip": make_word_set("list show freeze index check"),
    "npm": make_word_set("ls list view outdated"),
    "docker": make_word_set("ps images logs inspect version info"),
    "uv": make_word_set("tree version"),
    "kubectl": make_word_set("get describe logs"),
    "sed": make_word_set("-n"),
    "ssh-add": make_word_set("-l -L"),
}
_LOOKING_FLAGS = make_word_set("--help --version -V --dry-run --list --collect-only --co --check --show")
_WRITES = re.compile(r"(?<![<>&\d=-])(?:[12]?>{1,2})(?!&|\s*/dev/null)\s*[\w./~$\"']")


def is_read_only_command(command: ShellCommand) -> bool:
    if command.program in _LOOKING:
        return True
    if any(word in ("--help", "--version", "help") for word in command.args):
        return True
    return bool(command.args) and command.args[0] in _LOOKING_PARTS.get(command.program, ())


def list_read_only_flags(command: ShellCommand) -> set[str]:
    """Return its flags that only ask; `-h` and `-n` mean something else if a value follows them."""
    found = _LOOKING_FLAGS & set(command.args)
    for word, then in zip(command.args, (*command.args[1:], "--"), strict=False):
        if word in ("-h", "-n") and (is_flag(then) or command.program in ("make", "git", "rsync")):
            found |= {word}
    return set(found)


def _is_edit_command(words: tuple[str, ...]) -> bool:
    match words:
        case ("sed" | "perl", *rest):
            return any(word.startswith("-i") or "i" in word[1:3] for word in rest if is_flag(word))
        case ("tee" | "patch" | "ed", *_):
            return True
        case ("git", "apply" | "checkout" | "stash" | "reset" | "restore" | "revert" | "merge" | "rebase", *_):
            return True
    return False


def _join_directory(cwd: str, place: str) -> str:
    joined = posixpath.normpath(posixpath.join(cwd or ".", place or "."))
    return "" if joined == "." else joined


_KEY = re.compile(r"(?:, )?([\w.-]+)=")


@lru_cache(maxsize=1024)
def _parse_argument_summary(summary: str) -> Mapping[str, object]:
    """Return the arguments that a summary holds unshortened."""
    found: dict[str, object] = {}
    decoder, position = json.JSONDecoder(), 0
    while key := _KEY.match(summary, position):
        try:
            found[key[1]], position = decoder.raw_decode(summary, key.end())
        except (ValueError, RecursionError):
            break
    return found


def pair_calls_with_results(
    events: Iterable[AgentEvent], *, turn: str = "", project: str = ""
) -> Iterator[SessionCall]:
    """Yield the calls that returned, in the order in which they did."""
    seen = list(events)
    order = {id(event): number for number, event in enumerate(seen)}
    made = SessionCall.list_from_events(seen, turn=turn, project=project)
    done = [call for call in made if call.call_event and call.result_event]
    for call in sorted(done, key=lambda call: order[id(call.result_event)]):
        yield replace(call, success=False, error=call.failure_like_line) if _is_failure_hidden_by_pipe(call) else call


def _is_failure_hidden_by_pipe(call: SessionCall) -> bool:
    """Return whether a pipe hid a missing program: the output is only the shell's message about it."""
    about = (
        classify_error(call.failure_like_line)
        if call.failure_like_line and call.success and "|" in call.command
        else None
    )
    if about is None or about.cause is not ErrorCause.PROGRAM:
        return False
    return any(
        get_program_name(word) == get_program_name(about.subject)
        for each in call.commands
        for word in each.runner_and_program_words
    )


_WHERE = ("workdir", "cwd", "working_directory", "dir")


@lru_cache(maxsize=256)
def make_relative_directory(project: str, place: str) -> str:
    """Return a directory relative to the project, so that two checkouts look the same."""
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


LONGEST = 160  # characters; a longer command is a piece of work, not a habit
_ODD = re.compile(r"\$\(|`|\[redacted|\n|[<>]|…")  # computed, secret, or cut
_GUARDS = make_word_set(
    "sudo doas --force -f --force-with-lease --no-verify --insecure -k --no-check-certificate --hard --privileged",
    "--break-system-packages --allow-root --no-sandbox --skip-checks --disable-warnings --trusted-host --no-gpg-sign",
    "777 -rf -fr --no-strict --yolo --unsafe-perm --allow-unauthenticated --nodeps -lock --no-lock",
)


class RemedyChangeKind(StrEnum):
    """How the call that worked differs from the one that failed."""

    INSTEAD = "instead"  # another program, or the same through a runner
    PLACE = "place"
    VARIABLE = "variable"
    FLAGS = "flags"
    NAME = "name"  # another subcommand, script or path
    ARGUMENT = "argument"  # of a tool that is not a shell
    FIRST = "first"  # the same call, after a preparation


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """The call that failed and the one that worked, in the words that matter."""

    change: RemedyChangeKind
    cause: ErrorCause
    about: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    tool: str = ""  # for calls that are not a shell's
    says: str = ""  # words of the error, if its cause says too little
    # Options of both calls, with their values: they are told, and decide nothing.
    shared_options: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_short_and_safe_to_quote(self) -> bool:
        """Whether it is short and plain, and has no URL that the failed call did not have."""
        if len(quote_for_shell((*self.wrong, *self.right))) > LONGEST:
            return False
        return not any(_ODD.search(word) or ("://" in word and word not in self.wrong) for word in self.right)

    @property
    def bypasses_guard(self) -> bool:
        added = set(self.right) - set(self.wrong) - _list_harmless_short_flags(self.right)
        return any(
            word.partition("=")[0] in _GUARDS or "dangerous" in word or "StrictHostKey" in word for word in added
        )


def _list_harmless_short_flags(words: tuple[str, ...]) -> set[str]:
    """`-f` with a file after it does not force anything, and `-k` does only in some programs."""
    pairs = zip(words, (*words[1:], "-"), strict=False)
    names_file = {word for word, then in pairs if word == "-f" and re.search(r"[./]", then) and "rm" not in words}
    return names_file | ({"-k"} if not {"curl", "wget"} & set(words) else set())


_TOKEN = re.compile(
    r"[ \t]*(?:\\\n[ \t]*)*(?:"
    r"(?P<join>&&|\|\||;;?|\|&?|\n|&(?!>)|[()]|[{}](?=\s|$))"
    r"|(?P<redirect>(?:&|\d+)?(?:<<<?-?|[<>]{1,2})(?:&\d|&-)?)"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\((?:[^()]|\([^()]*\))*\)|[^\s'\"\\|&;<>()])+))",
    re.DOTALL,
)
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n.*?\n[ \t]*\2(?=\s|$)", re.DOTALL)
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
_HAS_VALUE = make_word_set(
    "--extra --group --with --python -p --package --env-file -n --name --directory --project -w --workdir",
    "--workspace --filter -u --user -e --env",
)
_PLACES = frozenset(("docker compose exec", "docker-compose exec", "docker compose run", "docker exec", "direnv exec"))


# What they change holds for the commands after them on the line, and in most agents for no later call.
_STATE_COMMANDS = (
    "source",
    ".",
    "set -a",
    "module",
    "conda activate",
    "mamba activate",
    "nvm use",
    "sdk use",
    "ulimit",
    "umask",
)


def changes_shell_state(words: tuple[str, ...]) -> bool:
    """Return whether a command only changes the shell that runs it."""
    return words[0] in _STATE_COMMANDS or " ".join(words[:2]) in _STATE_COMMANDS


SUBCOMMAND = re.compile(r"[a-z][\w:-]*(?:\.\w{1,4})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellCommand:
    """One simple command. `words` are as written, without quotes; the program is at index `at`."""

    words: tuple[str, ...]
    at: int = 0
    env: tuple[str, ...] = ()
    place: str = ""  # the directory that a `cd` before it leads to
    before: tuple[tuple[str, ...], ...] = ()  # commands before it on the line that must succeed
    is_last: bool = True  # nothing follows that hides its exit status (a pipe does, but shows its output)

    @property
    def program(self) -> str:
        """The program name, whatever runs it and wherever it is: `.venv/bin/python3.11` is `python`."""
        return get_program_name(self.words[self.at])

    @property
    def runner_and_program_words(self) -> tuple[str, ...]:
        """The program and its runner, as written."""
        return self.words[: self.at + 1]

    @property
    def args(self) -> tuple[str, ...]:
        return self.words[self.at + 1 :]

    @property
    def non_flag_args(self) -> tuple[str, ...]:
        """The arguments that are not flags."""
        return tuple(word for word in self.args if not is_flag(word))

    @property
    def program_and_subcommand_words(self) -> tuple[str, ...]:
        """The program and its subcommands, without varying arguments."""
        return (*self.runner_and_program_words, *takewhile(SUBCOMMAND.fullmatch, self.args[:2]))


def is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1


@lru_cache(maxsize=4096)
def get_program_name(word: str) -> str:
    return _VERSION.sub("", word.rpartition("/")[2]) or word


def quote_for_shell(words: Sequence[str]) -> str:
    """Return the words quoted for a shell."""
    return " ".join(f"'{word}'" if re.search(r"\s", word) and word != "&&" else word for word in words)


@lru_cache(maxsize=4096)
def parse_shell_commands(line: str) -> tuple[ShellCommand, ...]:
    """Return the commands of a line that do something; `cd` and `export` become part of those after them."""
    found: list[ShellCommand] = []
    place = ""
    env: tuple[str, ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    for words, join, follows in _split_shell_line(line):
        words = _strip_shell_keywords(words)
        assigned, words = _split_env_assignments(words) if words else ((), ())
        words = _strip_wrappers(words)
        # `set -a` is what makes `. .env` reach the programs after it.
        if not words or (words[0] in _CONTROL_COMMANDS and words[:2] != ("set", "-a")):
            env = (*env, *assigned)
            continue
        if words[0] == "cd" and len(words) > 1:
            place = _join_directory(place, words[1])
            continue
        if words[0] == "export":
            env = (*env, *(word for word in words[1:] if _ASSIGNMENT.match(word)))
            continue
        if join == "|" and found:  # a filter of another command's output
            continue
        if join not in ("", "&&"):
            before = tuple(step for step in before if changes_shell_state(step))
        command = ShellCommand(
            words=words,
            at=find_program_index(words),
            env=(*env, *assigned),
            place=place,
            before=before,
            is_last=not follows,
        )
        found.append(command)
        # What only looks is no step towards the goal: `ls && make` is `make` again.
        before = before if is_read_only_command(command) else (*before, words)
    return tuple(found)


def _split_shell_line(line: str) -> Iterator[tuple[tuple[str, ...], str, bool]]:
    """Yield words, the operator before them, and whether something follows that hides their exit status."""
    line = _HERE_DOCUMENT.sub(r"\3", line)
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


def _split_env_assignments(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if words[0] == "env":
        words = tuple(words[1:])
    count = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[:count], words[count:]


_CONTROL_COMMANDS = make_word_set("break continue wait set exit trap shift return")


def _strip_shell_keywords(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of a loop or a condition; empty if it has none."""
    while words and words[0] in ("do", "then", "else", "if", "elif", "while", "until", "!"):
        words = words[1:]
    return () if words[:1] in (("for",), ("done",), ("fi",), ("case",), ("esac",)) else words


def _strip_wrappers(words: tuple[str, ...]) -> tuple[str, ...]:
    while words and words[0] in _TRANSPARENT and len(words) > 1:
        values = _TRANSPARENT[words[0]]
        rest = list(words[1:])
        while rest and is_flag(rest[0]):
            values += rest.pop(0) in ("-n", "-k", "-s")
        words = tuple(rest[values:])
    return words


def find_program_index(words: tuple[str, ...]) -> int:
    """Return the index of the program among the words of a command, after what runs it."""
    at = 0
    while runner := _find_runner(words[at:]):
        after = at + len(runner)
        while after < len(words) and is_flag(words[after]):
            after += 2 if words[after] in _HAS_VALUE and "=" not in words[after] else 1
        after += " ".join(runner) in _PLACES
        if after >= len(words):
            break
        at = after
    return at


def _find_runner(words: Sequence[str]) -> tuple[str, ...]:
    if len(words) < 2:
        return ()
    spelled = (get_program_name(words[0]), *words[1:3])
    return next((runner for runner in _RUNNERS if spelled[: len(runner)] == runner), ())
