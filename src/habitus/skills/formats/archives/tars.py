"""Members of a tar archive packed with gzip: plain files and directories, stricter than tarfile's `data` filter."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from habitus.skills.formats.archives.members import BROKEN, ArchiveLimits, Member, show_name
from habitus.skills.formats.base import CantTake

_GZIP = b"\x1f\x8b"
_PIECE = 64 * 1024
_LONGEST_NOTE = 1024 * 1024  # bytes of one header that says more about a member, such as a long name
_NOTES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


@contextmanager
def members(path: Path, limits: ArchiveLimits) -> Iterator[Iterable[Member]]:
    with path.open("rb") as file, tempfile.TemporaryFile(prefix="habitus-") as plain:
        _unzip(file, plain, limits)
        with _open_tar(plain) as archive:
            yield _find_members(archive, limits)


def _unzip(file: BinaryIO, plain: IO[bytes], limits: ArchiveLimits) -> None:
    """Only bytes: what they mean is read from a plain file, so that going back in it costs nothing."""
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            while piece := packed.read(_PIECE):
                size += len(piece)
                if size > limits.ratio_from and size > limits.ratio * file.tell():
                    raise limits.too_dense("It")
                if size > limits.total + limits.contents:
                    raise limits.too_much()
                plain.write(piece)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise CantTake(f"It is no gzip file that can be read: {error}.") from None
    plain.seek(0)


@contextmanager
def _open_tar(plain: IO[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        archive = _Archive(fileobj=plain)
    except BROKEN as error:
        raise CantTake(f"It is no tar archive that can be read: {error}.") from None
    with archive:
        yield archive


class _Header(tarfile.TarInfo):
    """A header that is refused before tarfile believes it: tarfile takes a damaged one for the end of the archive,
    and reads whatever a note about a member says it has into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError:
            if buf.strip(b"\0"):
                raise CantTake("It is no tar archive, or it is damaged.") from None
            raise
        if header.size < 0 or (header.type in _NOTES and header.size > _LONGEST_NOTE):
            raise CantTake(f"A header in it says that {header.size:,} bytes follow.")
        return header


class _Archive(tarfile.TarFile):
    tarinfo = _Header


def _find_members(archive: tarfile.TarFile, limits: ArchiveLimits) -> Iterator[Member]:
    try:
        for number, header in enumerate(archive, 1):
            if number > limits.members:
                raise limits.too_many(f"more than {limits.members:,}")
            if header.name not in (".", "./"):
                yield _member(archive, header)
    except (*BROKEN, OSError) as error:
        raise CantTake(f"It can't be read to its end: {error}.") from None


def _member(archive: tarfile.TarFile, header: tarfile.TarInfo) -> Member:
    name = header.name.removeprefix("./")
    if header.issym() or header.islnk():
        raise CantTake(f"{show_name(name)} is a link.")
    if header.issparse():
        raise CantTake(f"{show_name(name)} is stored with holes in it.")
    if not (header.isreg() or header.isdir()):
        raise CantTake(f"{show_name(name)} is a device, a socket or a pipe.")
    if header.size < 0:
        raise CantTake(f"{show_name(name)} says that it has {header.size:,} bytes.")
    return Member(
        name=name,
        size=0 if header.isdir() else header.size,
        is_directory=header.isdir(),
        is_executable=bool(header.mode & 0o100),
        open=partial(_content, archive, header),
    )


def _content(archive: tarfile.TarFile, header: tarfile.TarInfo) -> AbstractContextManager[IO[bytes]]:
    content = archive.extractfile(header)
    assert content is not None, header.name  # only regular files are asked for
    return content
