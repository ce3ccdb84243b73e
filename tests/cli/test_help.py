"""Every help page: an example that is real, `-h`, and switches without a value."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from habitus.cli.lazy_commands import LazyCommand
from habitus.cli.main import app
from tests.cli.conftest import Direct

REPOSITORY = Path(__file__).parents[2]
# These also name commands of earlier releases, and commands with placeholders for their options.
_NOT_TYPED = ("CHANGELOG.md", "requirements.md", "reference")
_ROOT: Any = typer.main.get_command(app)


def _pages(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    default = getattr(command, "default", None)  # of a group: its page is this command's
    yield words, default.load() if default else command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _pages(below.load() if isinstance(below, LazyCommand) else below, (*words, name))


@pytest.mark.full
@pytest.mark.req("CL-01")
def test_every_page_has_an_example_that_the_command_takes() -> None:
    pages = [page for page in _pages(_ROOT) if page[0]]  # the first page lists the commands instead
    for words, command in pages:
        _check_example(words, command)


def _check_example(words: tuple[str, ...], command: Any) -> None:
    _, _, example = str(command.epilog).partition("Example: ")
    program, *given = shlex.split(example)
    assert (program, tuple(given[: len(words)])) == ("habitus", words)
    at, context = _ROOT, _ROOT.make_context("habitus", [])
    while name := next(iter(given), ""):
        below = getattr(at, "commands", {}).get(name)
        if below is None:
            break
        at, given = below, given[1:]
        # A group with a command of its own, such as `undo`, takes words that name no command below it.
        is_leaf = next(iter(given), "") not in getattr(at, "commands", {}) and getattr(at, "default", at) is not None
        context = at.make_context(name, list(given), context)
        if is_leaf:
            return
    assert not given, f"{example} is no command"


@pytest.mark.req("CL-01")
@pytest.mark.parametrize("words", [(), ("skills",), ("skills", "list"), ("config", "set")], ids=" ".join)
def test_h_is_help_and_a_switch_has_no_value(direct: Direct, words: tuple[str, ...]) -> None:
    wide = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}
    short, long = direct.ok(*words, "-h", env=wide), direct.ok(*words, "--help", env=wide)
    assert short == long
    assert ("Example: habitus" in short) == bool(words)
    assert "bool" not in short.lower()
    assert "--no-json" not in short


@pytest.mark.req("CL-01", "OP-07")
def test_every_command_in_a_recipe_is_complete() -> None:
    found = dict(_recipe_commands())
    assert {"compose.yaml worker", "kubernetes.yaml worker", "Dockerfile", "habitus.service"} <= found.keys()
    assert {place: said for place, words in found.items() if (said := _refusal(words))} == {}


def _recipe_commands() -> Iterator[tuple[str, list[str]]]:
    """The arguments of `habitus` in the files that start it, by file and part."""
    folder = REPOSITORY / "examples" / "operations"
    for part in yaml.safe_load_all((folder / "kubernetes.yaml").read_text()):
        for container in part.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            yield f"kubernetes.yaml {container['name']}", container["args"]
    for name, service in yaml.safe_load((folder / "compose.yaml").read_text())["services"].items():
        if "command" in service:
            yield f"compose.yaml {name}", service["command"]
    (words,) = re.findall(r"^CMD (.*)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    yield "Dockerfile", json.loads(words)
    (line,) = re.findall(r"^ExecStart=\S+/habitus (.*)", (folder / "habitus.service").read_text(), re.MULTILINE)
    yield "habitus.service", shlex.split(line)


@pytest.mark.req("CL-01")
def test_every_command_in_the_documents_exists_with_its_options(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABITUS_HOME", str(home))  # some options do their work while they are parsed
    texts = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.*")]
    found = {
        f"{file.relative_to(REPOSITORY)}: {line}": said
        for file in texts
        if not any(part in _NOT_TYPED for part in file.parts)
        for line in re.findall(r"(?:^|[$>|(] ?|`)habitus (\S[^`\n]*)", file.read_text(encoding="utf-8"), re.MULTILINE)
        if not line.startswith("import ") and (said := _refusal(_cut_words(line), can_be_incomplete=True))
    }
    assert found == {}


def _cut_words(line: str) -> list[str]:
    """The words of the first command of a line, up to a placeholder."""
    lexer = shlex.shlex(line.replace("2>&1", ""), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for word in lexer:
            if word[0] in "|&;<>()[…#":
                break
            words.append(word)
    except ValueError:
        # The argument goes on in the next line.
        return words
    return words


def _refusal(words: list[str], *, can_be_incomplete: bool = False) -> str:
    """What the parser says against the words; nothing if it takes them."""
    command, rest, name, context = _ROOT, words, "habitus", None
    try:
        while True:
            context = command.make_context(name, list(rest), context)
            rest = [*context._protected_args, *context.args] if hasattr(context.command, "resolve_command") else []
            if not rest:
                return ""
            name, command, rest = context.command.resolve_command(context, rest)
    except typer.Exit:
        return ""
    except typer.TyperException as error:
        is_value = type(error).__name__ in ("MissingParameter", "BadParameter", "BadOptionUsage")
        return "" if is_value and can_be_incomplete else error.format_message()
