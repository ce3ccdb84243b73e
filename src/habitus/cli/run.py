"""`habitus run`, for `make run`: the tour, and at a terminal then the web page of the tour's home to look at."""

from __future__ import annotations

import asyncio
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from habitus.app import Habitus
from habitus.cli import output
from habitus.cli.tour import play_tour, say_what_next
from habitus.cli.up import Place, serve

_CTRL_C = "\x03"


def run() -> None:
    """Play the tour; at a terminal, stay up with the page of its home until 'q' or Ctrl-C."""
    with play_tour(None) as habitus:
        if sys.stdin.isatty() and sys.stdout.isatty():
            output.say()
            output.say("What the tour made is on a page to look at; 'q' ends it.", style="bold")
            asyncio.run(_stay(habitus))
    say_what_next()


async def _stay(habitus: Habitus) -> None:
    with _key_by_key():
        asyncio.get_running_loop().add_reader(sys.stdin, _ended_by_key)
        await serve(habitus, habitus.settings.home, Place(host="127.0.0.1", port=0), output.say)


def _ended_by_key() -> None:
    if sys.stdin.read(1) in ("q", "Q", _CTRL_C, ""):
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _key_by_key() -> Iterator[None]:
    """The terminal gives each key at once, and is afterwards as it was; Ctrl-C is a key too, or it would end `make`."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    now = termios.tcgetattr(sys.stdin)
    now[6][termios.VINTR] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
