"""Log lines for who asks: `--verbose`, or HABITUS_LOG=info, debug, json, a file or json:FILE; without secrets."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from habitus.cli import output
from habitus.errors import StorageFailed
from habitus.redact import Redactor
from habitus.sandbox.credentials.vault import open_redactor
from habitus.tracing import belongs_to

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
    kind, _, place = wanted.partition(":")
    is_json = kind.lower() == "json"
    if wanted.lower() in _LEVELS or (is_json and not place):
        shown.setFormatter(_Json(redactor) if is_json else _Redacted("%(levelname)s %(name)s: %(message)s", redactor))
        return [shown]
    file = Path(place if is_json else wanted).expanduser()
    try:
        file.touch(mode=0o600)
        written = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        said = f"HABITUS_LOG: can't write {file}: {error.strerror}."
        raise StorageFailed(said, mend="Give info, debug, json or a file that can be written.") from None
    written.setFormatter(
        _Json(redactor) if is_json else _Redacted("%(asctime)s %(levelname)s %(name)s: %(message)s", redactor)
    )
    shown.setFormatter(output.OneLine())  # what would be said without a file is said all the same
    shown.setLevel(logging.WARNING)
    return [written, shown]


class _Redacted(logging.Formatter):
    def __init__(self, pattern: str, redactor: Redactor) -> None:
        super().__init__(pattern)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(output.clean(super().format(record))).text


class _Json(_Redacted):
    """One object a line, with the turn, session or job that it belongs to."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(message)s", redactor)

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": super().format(record),
            **belongs_to(),
        }
        return json.dumps(told, ensure_ascii=False)
