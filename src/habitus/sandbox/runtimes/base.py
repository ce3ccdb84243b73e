"""The interface between scratchpads and the machine that runs their processes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from habitus.errors import Invalid
from habitus.sandbox.child import Message, OutputCapture

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class WorkerProcess(Protocol):
    """One running worker (`inside/worker.py`). Methods that wait raise `ProcessGone` once its process has ended."""

    @property
    def is_alive(self) -> bool: ...

    def redirect_output(self, out: OutputCapture | None, err: OutputCapture | None) -> None:
        """Send its output to these captures from now on; None between cells."""

    async def send(self, message: Message) -> None: ...

    async def receive(self) -> Message: ...

    def deliver_printed_output(self) -> None:
        """Deliver the output printed before the last received message."""

    async def interrupt(self) -> None:
        """Interrupt it, as Ctrl-C does."""

    async def update_given_files_and_report_failures(self) -> str:
        """Bring the given files up to date for the code; return a sentence about those that failed."""

    async def copy_newly_made_files(self, place: Path) -> tuple[str, ...]:
        """Copy the files made since the last call into `place` and return their paths."""

    async def close(self) -> str:
        """End it with everything it started; return the reason if it had already ended."""


class ScratchpadRuntime(Protocol):
    """Runs scratchpads: each name has a virtual environment, a folder of files and at most one worker."""

    async def start_worker(self, name: str) -> WorkerProcess: ...

    async def install_scratchpad_packages(self, name: str, requirements: Sequence[str]) -> str: ...

    async def delete_scratchpad(self, name: str) -> None: ...

    async def list_stored_scratchpad_names(self) -> list[str]: ...

    async def close(self) -> None: ...


def check_scratchpad_name(name: str) -> str:
    """Return the name if it is a safe folder name, else raise `Invalid`."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"'{name[:80]}' can't be the name of a scratchpad.",
            hint="Use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    return name
