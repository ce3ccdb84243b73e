"""A small JSON file that only its owner reads: changed by one process at a time, there whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from habitus.errors import StorageFailed


class PrivateJson:
    """An object of names and values; every look sees what another process has written."""

    def __init__(self, path: Path, *, mend: str = "Mend it, or move it away.") -> None:
        self.path = path
        self._mend = mend

    def read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise StorageFailed(f"{self.path} can't be read: {error}.", mend=self._mend) from None
        if not isinstance(found, dict):
            raise StorageFailed(f"{self.path} can't be read: it is no object.", mend=self._mend)
        return found

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """What it holds, to be changed in place. An error inside leaves the file as it was."""
        try:
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(f"Can't write {self.path}: {error.strerror}.", mend="Check its directory.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            kept = self.read()
            before = json.dumps(kept)
            yield kept
            if json.dumps(kept) != before:
                self._write(kept)
        finally:
            os.close(descriptor)

    def _write(self, kept: dict[str, Any]) -> None:
        written = self.path.with_suffix(".new")
        try:
            with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(kept, file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            written.replace(self.path)
        except OSError as error:
            raise StorageFailed(
                f"Can't write {self.path}: {error.strerror}.", mend="Check its directory; nothing was changed."
            ) from None
