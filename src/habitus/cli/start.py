"""Start of `habitus`: what can be answered before the commands are imported, which takes a while, is answered here: the
version, the greeting of a client on a pipe, and a listing that is kept."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.mcp.greeting import Greeting


def run() -> None:
    if sys.argv[1:] == ["--version"] and _print_version():
        return
    if "mcp" in sys.argv:
        greeting(*sys.argv[1:]).answer_early()
    if {("skills", "list"), ("skills", "show"), ("skills", "search")} & set(itertools.pairwise(sys.argv)):
        code: int | None = importlib.import_module("habitus.cli.cached_answers").answer(sys.argv[1:])
        if code is not None:
            sys.exit(code)
    importlib.import_module("habitus.cli.main").run()


def _print_version() -> bool:
    """Whether it could be printed; where not, the command says why."""
    from importlib.metadata import version

    try:
        sys.stdout.write(f"habitus {version('habitus')}\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        return False
    return True


@functools.cache
def greeting(*words: str) -> Greeting:
    """Of the client that this process was started for with these words."""
    early = importlib.import_module("habitus.mcp.greeting")  # for servers alone
    made: Greeting = early.Greeting(early.answers_file(words, os.environ))
    return made
