"""Which Python runs inside, and the files it needs to start: they are all it may read besides what it was given."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from habitus.sandbox.machine import INSIDE, base_python
from habitus.sandbox.venvs import packages_of

_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64")
_DATA = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_SHARED_PREFIXES = (Path("/usr"), Path("/usr/local"))
CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/usr/share/ca-certificates")
_FOR_THE_NETWORK = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", *CERTIFICATES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A base Python and, when code needs packages, the virtual environment that holds them.

    It is always the base that is started, without packages: what they bring runs only once the door is locked.
    """

    executable: str
    prefix: Path
    venv: Path | None = None

    @property
    def packages(self) -> Path | None:
        return packages_of(self.venv) if self.venv else None

    def files(self, *, network: bool) -> list[Path]:
        """Everything to show read-only, existing paths only, each once."""
        wanted = [Path(path) for path in (*_LIBRARIES, *_DATA, *(_FOR_THE_NETWORK if network else ()))]
        if self.prefix in _SHARED_PREFIXES:
            wanted += [self.prefix / "lib", *_links_to(self.executable)]
        else:
            wanted.append(self.prefix)
        if self.venv:
            wanted += [self.venv, *_links_to(str(self.venv / "bin" / "python"))]
        wanted.append(INSIDE)
        return _outermost([path for path in wanted if path.exists()])


def this_interpreter(venv: Path | None = None) -> Interpreter:
    return Interpreter(executable=base_python(), prefix=Path(os.path.realpath(sys.base_prefix)), venv=venv)


def _links_to(executable: str) -> list[Path]:
    """The program and every link on the way to it: `venv/bin/python` → `/usr/bin/python3` → `/usr/bin/python3.11`."""
    chain = [Path(executable)]
    while chain[-1].is_symlink() and len(chain) < 40:
        chain.append(Path(os.path.normpath(chain[-1].parent / chain[-1].readlink())))
    return chain


def _outermost(paths: list[Path]) -> list[Path]:
    """Without what already lies below another of the paths."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(above) for above in kept if not above.is_symlink()):
            kept.append(path)
    return kept
