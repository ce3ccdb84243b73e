"""A small JSON file that only its owner reads: changed by one process at a time, there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from habitus.errors import StorageFailed
from habitus.files import write_whole
from habitus.locks import lock


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
        with lock(self.path.with_suffix(".lock")):
            kept = self.read()
            before = json.dumps(kept)
            yield kept
            if json.dumps(kept) != before:
                write_whole(self.path, json.dumps(kept, indent=2).encode(), mode=0o600)
