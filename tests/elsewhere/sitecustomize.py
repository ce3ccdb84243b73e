"""A machine without the isolation of Linux, for every Python that has this folder on PYTHONPATH, and its children."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

_stat = os.stat


def _is_hidden(path: object) -> bool:
    is_path = isinstance(path, (str, bytes, os.PathLike))
    return is_path and os.fsdecode(path).startswith(("/proc/", "/sys/"))  # type: ignore[arg-type]  # it is a path


def _hide(event: str, args: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and _is_hidden(args[0]):
        raise FileNotFoundError(2, "No such file or directory", args[0])


def _stat_visible(path: Any, **given: Any) -> os.stat_result:
    if _is_hidden(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    return _stat(path, **given)


platform.system = lambda: "Darwin"
os.stat = _stat_visible  # no audit event tells of it
sys.addaudithook(_hide)
