"""A program at a terminal of its own: type, wait for what it shows, press Ctrl-C for real."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CTRL_C, CTRL_D, ENTER, ALT_ENTER, TAB = "\x03", "\x04", "\r", "\x1b\r", "\t"
_DRAWING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])")


@dataclass(kw_only=True, slots=True)
class PseudoTerminal:
    process: subprocess.Popen[bytes]
    controller: int
    shown: str = ""  # everything so far, without what only draws
    raw: bytes = field(default=b"")
    _seen: int = 0

    def type(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def wait_for(self, text: str, seconds: float = 300) -> str:
        """Read until `text` has been shown after what was waited for last; what came up to it."""
        until = time.monotonic() + seconds
        while text not in self.shown[self._seen :]:
            assert self._read(until - time.monotonic()), f"no {text!r} in:\n{self.shown[self._seen :]}"
        at = self.shown.index(text, self._seen) + len(text)
        came, self._seen = self.shown[self._seen : at], at
        return came

    def ended(self, seconds: float = 300) -> int:
        """The exit code, once it has one."""
        until = time.monotonic() + seconds
        while self._read(until - time.monotonic()):
            pass
        return self.process.wait()

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.controller], [], [], max(seconds, 0))
        if not ready:
            return False
        try:
            piece = os.read(self.controller, 65536)
        except OSError:  # the other side has closed
            return False
        self.raw += piece
        self.shown = _DRAWING.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def at_a_terminal(
    command: list[str], *, env: Mapping[str, str], cwd: Path, columns: int = 80, rows: int = 40
) -> Iterator[PseudoTerminal]:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def take_the_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
        cwd=cwd,
        env={**env, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
        preexec_fn=take_the_terminal,  # so that Ctrl-C is a signal for it
    )
    os.close(terminal)
    try:
        yield PseudoTerminal(process=process, controller=controller)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
