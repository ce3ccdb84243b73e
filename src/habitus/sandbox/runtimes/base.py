"""The seam between scratchpads and the place where their processes run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from habitus.errors import Invalid
from habitus.sandbox.child import Capture, Message

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class WorkerProcess(Protocol):
    """One running worker (`inside/worker.py`). Everything that waits raises `Gone` when it is no more."""

    @property
    def is_alive(self) -> bool: ...

    def listen(self, out: Capture | None, err: Capture | None) -> None:
        """Where what it prints goes from now on; nowhere between cells."""

    async def send(self, message: Message) -> None: ...

    async def receive(self) -> Message: ...

    def settle(self) -> None:
        """Deliver what was printed before the last message that was received."""

    async def interrupt(self) -> None:
        """Interrupt, as Ctrl-C does."""

    async def give(self) -> str:
        """Have what code is given where it finds it, as it is now; what did not get there, in words."""

    async def keep_made(self, place: Path) -> tuple[str, ...]:
        """Copy what it has made for a person to open since this was last asked; the paths in the place."""

    async def close(self) -> str:
        """End it with everything it started; why it had ended, if it had already."""


class Runtime(Protocol):
    """Where scratchpads live: each name has a virtual environment, a folder of files, and at most one worker."""

    async def start(self, name: str) -> WorkerProcess: ...

    async def install(self, name: str, requirements: Sequence[str]) -> str: ...

    async def remove(self, name: str) -> None: ...

    async def names(self) -> list[str]: ...

    async def close(self) -> None: ...


def check_name(name: str) -> str:
    """A name that is also a safe folder name."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"'{name[:80]}' can't be the name of a scratchpad.",
            mend="Use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    return name
