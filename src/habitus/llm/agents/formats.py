"""The small formats that the programs write and are set up by, read with patience."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read_objects(written: str) -> Iterator[dict[str, Any]]:
    """One object, or one on each line; whatever else a program says beside them is passed over."""
    for text in (written, *written.splitlines()):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
            if text is written:
                return


def as_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_count(used: Mapping[str, Any], key: str) -> int:
    value = used.get(key)
    return value if isinstance(value, int) else 0


def as_dollars(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def link(theirs: Path, own: Path, *names: str) -> None:
    own.mkdir(parents=True, exist_ok=True)
    for name in names:
        if theirs.is_dir():
            (own / name).symlink_to(theirs / name)


def read_json(path: Path) -> dict[str, Any]:
    try:
        return as_table(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def toml_value(value: object) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)} = {toml_value(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return json.dumps(value, default=str)
