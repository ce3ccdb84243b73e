"""Entry point of `habitus`.

Importing the commands takes a while, so `--version` and the first requests of an MCP client are answered before that.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.mcp.early_responder import EarlyResponder


def run() -> None:
    """Answer `--version` and a waiting MCP client at once, then run the command line."""
    if sys.argv[1:] == ["--version"] and _print_version():
        return
    if "mcp" in sys.argv:
        get_early_mcp_responder(*sys.argv[1:]).answer_early_requests()
    importlib.import_module("habitus.cli.main").run()


def _print_version() -> bool:
    """Print the version; return False if that fails, and the command reports why."""
    from importlib.metadata import version

    try:
        sys.stdout.write(f"habitus {version('habitus')}\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        return False
    return True


@functools.cache
def get_early_mcp_responder(*words: str) -> EarlyResponder:
    """Return the early responder for the MCP client that started this process with these arguments."""
    # Only MCP servers need it, so no other command imports it.
    early = importlib.import_module("habitus.mcp.early_responder")
    made: EarlyResponder = early.make_early_responder(words, os.environ)
    return made
