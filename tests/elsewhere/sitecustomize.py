"""A machine without the isolation of Linux, for every Python that has this folder on PYTHONPATH, and its children."""

from __future__ import annotations

import os
import platform
import sys

SYSTEM = "Darwin"


def _hide(event: str, args: tuple[object, ...]) -> None:
    is_path = event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], (str, bytes))
    if is_path and os.fsdecode(str(args[0])).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", args[0])


platform.system = lambda: SYSTEM
sys.addaudithook(_hide)
