"""Start of `habitus`: a client on a pipe is greeted before the commands are imported, which takes a while."""

from __future__ import annotations

import functools
import importlib
import os
import sys

from habitus.mcp.greeting import Greeting, answers_file


def run() -> None:
    if "mcp" in sys.argv:
        greeting(*sys.argv[1:]).answer_early()
    importlib.import_module("habitus.cli.main").run()


@functools.cache
def greeting(*words: str) -> Greeting:
    """Of the client that this process was started for with these words."""
    return Greeting(answers_file(words, os.environ))
