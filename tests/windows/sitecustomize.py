"""What Windows lacks is missing for every Python that has this folder on PYTHONPATH, and its children.

Habitus takes its own branches for Windows; the console, the file system and the libraries stay those of Linux.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import fcntl
import hashlib  # noqa: F401  # loaded before it could see another system
import importlib.machinery
import os
import platform
import secrets  # noqa: F401
import struct
import subprocess
import sys
import tempfile  # noqa: F401
import types
from pathlib import Path
from typing import Any

_LACKING_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
_LACKING = (
    "chown", "fchmod", "fork", "fwalk", "getegid", "geteuid", "getgid", "getuid", "killpg", "mkfifo", "posix_spawn",
    "pwrite", "setsid", "sync", "sysconf", "uname", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH",
)  # fmt: skip
# These branch on the system when they are loaded.
_OURS = {"habitus.operating_system", "habitus.hosts.hook"}
_import, _open, _popen = builtins.__import__, os.open, subprocess.Popen.__init__


def _is_ours(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("habitus")


def _import_as_there(name: str, *given: Any, **named: Any) -> Any:
    if name in _LACKING_MODULES and _is_ours(sys._getframe(1)):
        raise ImportError(f"No module named {name!r} on Windows")
    if name == "os" and _is_ours(sys._getframe(1)):
        return _there
    return _import(name, *given, **named)


class _LackingOs(types.ModuleType):
    """`os` as Habitus sees it."""

    supports_dir_fd: frozenset[object] = frozenset()

    def __getattr__(self, name: str) -> Any:
        if name in _LACKING:
            raise AttributeError(f"module 'os' has no attribute {name!r}")
        return getattr(os, name)

    @staticmethod
    def open(path: Any, flags: int, mode: int = 0o777) -> int:
        """Open a file; Windows opens no folder."""
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return _open(path, flags, mode)


def _lock_bytes(descriptor: int, mode: int, count: int) -> None:
    kind = fcntl.F_WRLCK
    region = struct.pack("hhqqi4x", kind, os.SEEK_CUR, 0, count, 0)
    with contextlib.suppress(BlockingIOError):
        fcntl.fcntl(descriptor, 37, region)  # F_OFD_SETLK: the lock belongs to the descriptor, as on Windows
        return
    raise PermissionError(13, "Permission denied")


class _Kernel:
    """The calls of kernel32 that we make."""

    @staticmethod
    def OpenProcess(access: int, inherit: bool, pid: int) -> int:
        try:
            os.kill(pid, 0)
        except OSError:
            return 0
        return pid

    @staticmethod
    def GetProcessTimes(process: int, created: Any, ended: Any, in_kernel: Any, in_user: Any) -> int:
        created._obj.value = 1 + process
        return 1

    @staticmethod
    def CloseHandle(process: int) -> int:
        return 1


def _start(self: Any, *given: Any, creationflags: int = 0, **named: Any) -> None:
    _popen(self, *given, start_new_session=named.pop("start_new_session", False) or bool(creationflags), **named)


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        before, sys.platform = sys.platform, "win32" if self.name in _OURS else sys.platform
        try:
            super().exec_module(module)
        finally:
            sys.platform = before


class _Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        spec = super().find_spec(name, path, target) if name.startswith("habitus") else None
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


def _hide_kernel_files(event: str, args: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", args[0])


def _refuse_handler(*given: object) -> None:
    raise NotImplementedError


_there = _LackingOs("os")
sys.modules["msvcrt"] = types.SimpleNamespace(  # type: ignore[assignment]  # read as a module
    locking=_lock_bytes, LK_NBLCK=2, kbhit=lambda: False, getwch=lambda: ""
)
sys.modules["nt"] = _there
ctypes.windll = types.SimpleNamespace(kernel32=_Kernel)  # type: ignore[attr-defined]
subprocess.DETACHED_PROCESS, subprocess.CREATE_NEW_PROCESS_GROUP = 8, 512  # type: ignore[attr-defined]
subprocess.Popen.__init__ = _start  # type: ignore[method-assign]
os.getlogin = lambda: "somebody"
platform.system = lambda: "Windows"
sys.addaudithook(_hide_kernel_files)
asyncio.SelectorEventLoop.add_signal_handler = _refuse_handler  # type: ignore[assignment, method-assign]
builtins.__import__ = _import_as_there
sys.meta_path.insert(0, _Finder)
