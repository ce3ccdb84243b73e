"""Files given to code, carried to another machine: by their hashes only what differs, and each whole or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from habitus.files import checked_path
from habitus.sandbox.model import MIB

Manifest = Mapping[str, str]  # path below the folder → its hash, with an `x` behind that of a program


class Carried:
    """A folder at either end of the line. Every method waits for a disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}  # path → what it was when it was read, and its hash

    def manifest(self) -> Manifest:
        """Every file with its hash; one that was not touched since is not read again."""
        known, self._hashes = self._hashes, {}
        for path, found in self._files():
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)
            before = known.get(path)
            with suppress(FileNotFoundError):  # replaced a moment ago: the next look has what came instead
                self._hashes[path] = before if before and before[0] == stamp else (stamp, self._hash(path, found))
        return {path: digest for path, (_, digest) in self._hashes.items()}

    def missing(self, wanted: Manifest) -> list[str]:
        """Remove what is wanted no more; what has to come because it is not there, or is another."""
        there = self.manifest()
        for path in there.keys() - wanted.keys():
            (self._folder / path).unlink(missing_ok=True)
        return [path for path, digest in wanted.items() if there.get(path) != digest]

    def chunks(self, path: str) -> Iterator[bytes]:
        with (self._folder / path).open("rb") as source:
            while data := source.read(MIB // 4):
                yield data

    def arriving(self, path: str, digest: str) -> Arriving:
        return Arriving(self._folder / checked_path(path), digest)

    def _hash(self, path: str, found: os.stat_result) -> str:
        read = hashlib.sha256()
        for data in self.chunks(path):
            read.update(data)
        return read.hexdigest() + ("x" if found.st_mode & stat.S_IXUSR else "")

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """What lies there; what is still being put together has a name that begins with a dot."""
        for here, below, names in os.walk(self._folder):
            below[:] = [name for name in below if not name.startswith(".")]
            for path in (Path(here, name) for name in names if not name.startswith(".")):
                with suppress(FileNotFoundError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield path.relative_to(self._folder).as_posix(), found


class Arriving:
    """One file on its way in: it takes its place when all of it is there, and is what was sent."""

    def __init__(self, target: Path, digest: str) -> None:
        self._target = target
        self._digest = digest
        self._half = target.with_name(f".{os.getpid()}-{target.name}"[:200])
        self._read = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._half.unlink(missing_ok=True)
        self._file = os.open(self._half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        self._read.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        os.fchmod(self._file, 0o500 if self._digest.endswith("x") else 0o400)
        os.close(self._file)
        if self._read.hexdigest() == self._digest.removesuffix("x"):
            self._half.rename(self._target)
        else:
            self._half.unlink()  # it was changed while it was sent: it comes with the next cell
