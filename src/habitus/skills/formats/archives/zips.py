"""Members of a zip archive, of which the table of contents itself can be the bomb."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from habitus.skills.formats.archives.members import BROKEN, ArchiveLimits, Member, show_name
from habitus.skills.formats.base import CantTake

_END, _END_SIZE = b"PK\x05\x06", 22
_LOCATOR_64, _LOCATOR_64_SIZE = b"PK\x06\x07", 20
_LONGEST_COMMENT = 65_535
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", _END)


@contextmanager
def members(path: Path, limits: ArchiveLimits) -> Iterator[Iterable[Member]]:
    with path.open("rb") as file:
        _check_contents_size(file, limits)
        with _open_zip(file) as archive:
            found = archive.infolist()
            if len(found) > limits.members:
                raise limits.too_many(f"{len(found):,}")
            yield [_member(archive, info, limits) for info in found]


def _check_contents_size(file: BinaryIO, limits: ArchiveLimits) -> None:
    """Look at the end record first, before anything reads the table of contents."""
    size = file.seek(0, os.SEEK_END)
    start = max(size - _END_SIZE - _LONGEST_COMMENT - _LOCATOR_64_SIZE, 0)
    file.seek(start)
    tail = file.read()
    file.seek(0)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise CantTake("It is no zip archive, or it is cut off.")
    members, contents = struct.unpack_from("<HI", tail, at + 10)
    if _LOCATOR_64 in tail[max(at - _LOCATOR_64_SIZE, 0) : at] or contents == 0xFFFFFFFF:
        raise CantTake("It is in the form for archives above 4 GB; skills are smaller.")
    if members > limits.members:
        raise limits.too_many(f"{members:,}")
    if contents > limits.contents:
        raise CantTake(f"Its table of contents has {contents:,} bytes; at most {limits.contents:,} are read.")


@contextmanager
def _open_zip(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(file)
    except BROKEN as error:
        raise CantTake(f"It is no zip archive that can be read: {error}.") from None
    with archive:
        yield archive


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limits: ArchiveLimits) -> Member:
    # The name as it stands in the archive: zipfile itself cuts names at a NUL.
    name = info.orig_filename
    mode = info.external_attr >> 16
    _check_kind(info, name, stat.S_IFMT(mode))
    if info.file_size > limits.ratio_from and info.file_size > limits.ratio * max(info.compress_size, 1):
        raise limits.too_dense(show_name(name))
    return Member(
        name=name,
        size=info.file_size,
        is_directory=info.filename.endswith("/"),  # `is_dir` fails on a name that is empty
        is_executable=bool(mode & stat.S_IXUSR),
        open=partial(archive.open, info),
    )


def _check_kind(info: zipfile.ZipInfo, name: str, kind: int) -> None:
    if info.header_offset < 0:
        raise CantTake(f"{show_name(name)} lies before the beginning of the archive, which is cut off.")
    if kind == stat.S_IFLNK:
        raise CantTake(f"{show_name(name)} is a link.")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise CantTake(f"{show_name(name)} is a device, a socket or a pipe.")
    if info.flag_bits & 0x1:
        raise CantTake(f"{show_name(name)} is encrypted.")
    if info.compress_type not in _METHODS:
        raise CantTake(f"{show_name(name)} is packed in a way that is not read here (method {info.compress_type}).")
