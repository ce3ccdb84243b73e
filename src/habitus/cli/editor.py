"""A text in the person's own editor; what they wrote is never thrown away, whatever happens."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from habitus.errors import StorageFailed, UserError


@contextmanager
def edit_in_editor(command: str, before: bytes, name: str, *, instead: str) -> Iterator[bytes]:
    """The text as the person left it. An error in the block keeps it in a file and says where.

    `instead` tells somebody without a terminal what to do.
    """
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"There is no terminal for an editor; {instead}.")
    folder = Path(tempfile.mkdtemp(prefix="habitus-edit-"))
    copy = folder / name
    copy.write_bytes(before)
    try:
        subprocess.run([*shlex.split(command), str(copy)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise StorageFailed(
            f"The editor '{command}' did not finish: {error}.", mend=f"Your text is in {copy}."
        ) from None
    try:
        yield copy.read_bytes()
    except UserError as error:
        raise type(error)(error.message, mend=f"{error.mend} Your text is kept in {copy}.".strip()) from None
    copy.unlink()
    folder.rmdir()
