"""Shell lines taken apart into simple commands, each with where, under which variables and through what it runs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache


def word_set(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


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
        """What runs, whatever runs it and wherever it lies: `.venv/bin/python3.11` is `python`."""
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
        """What it works on: the arguments that are no flags."""
        return tuple(word for word in self.args if not is_flag(word))


def is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1


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
            place = posixpath.normpath(posixpath.join(place, words[1]))
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
