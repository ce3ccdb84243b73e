"""Every help page: an example that is real, `-h`, and switches without a value."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from habitus.cli.lazy_commands import LazyCommand
from habitus.cli.main import app
from tests.cli.conftest import Direct

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
