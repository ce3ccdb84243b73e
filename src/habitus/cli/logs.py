"""Log lines for a person who asks: `--verbose`, or HABITUS_LOG=info, debug or a file; secrets are not in them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from habitus.cli import output
from habitus.errors import StorageFailed
from habitus.redact import Redactor
from habitus.sandbox.credentials.vault import open_redactor

_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


@contextmanager
def listening(home: Path, *, is_verbose: bool) -> Iterator[None]:
    """What is logged inside is shown on standard error, or written to the file that HABITUS_LOG names."""
    wanted = os.environ.get("HABITUS_LOG", "") or ("info" if is_verbose else "")
    if not wanted:
        yield
        return
    root = logging.getLogger()
    before, handlers = root.level, _handlers(wanted, open_redactor(home, os.environ))
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(_LEVELS.get(wanted.lower(), logging.INFO))
    try:
        yield
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


def _handlers(wanted: str, redactor: Redactor) -> list[logging.Handler]:
    shown = logging.StreamHandler()
    if wanted.lower() in _LEVELS:
        shown.setFormatter(_Redacted("%(levelname)s %(name)s: %(message)s", redactor))
        return [shown]
    file = Path(wanted).expanduser()
    try:
        file.touch(mode=0o600)
        written = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        said = f"HABITUS_LOG: can't write {file}: {error.strerror}."
        raise StorageFailed(said, mend="Give info, debug or a file that can be written.") from None
    written.setFormatter(_Redacted("%(asctime)s %(levelname)s %(name)s: %(message)s", redactor))
    shown.setFormatter(output.OneLine())  # what would be said without a file is said all the same
    shown.setLevel(logging.WARNING)
    return [written, shown]


class _Redacted(logging.Formatter):
    def __init__(self, pattern: str, redactor: Redactor) -> None:
        super().__init__(pattern)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(output.clean(super().format(record))).text
