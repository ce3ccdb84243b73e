"""Unpacking a zip archive that nobody vouches for: every refusal has its reason, and a bomb costs nothing."""

from __future__ import annotations

import os
import re
import stat
import struct
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from habitus.skills.formats import disk
from habitus.skills.formats.base import CantTake

SUFFIXES = (".zip", ".skill")

_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)[ ]*(\..*)?")
_DRIVE = re.compile(r"[A-Za-z]:")
_END, _END_SIZE = b"PK\x05\x06", 22
_LOCATOR_64, _LOCATOR_64_SIZE = b"PK\x06\x07", 20
_LONGEST_COMMENT = 65_535
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PIECE = 64 * 1024
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """What an archive of skills may come to."""

    members: int = 50_000
    total: int = 256 * 1024 * 1024  # bytes of all files, unpacked
    file: int = 64 * 1024 * 1024  # bytes of one file, unpacked
    ratio: int = 200  # unpacked to packed, of one file
    ratio_from: int = 1024 * 1024  # smaller files may be as dense as they like
    contents: int = 16 * 1024 * 1024  # bytes of the archive's own table of contents


DEFAULT = ArchiveLimits()


def is_archive(path: Path) -> bool:
    """By its name, or by its first bytes."""
    if not path.is_file():
        return False
    if path.suffix.lower() in SUFFIXES:
        return True
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


@contextmanager
def unpacked(path: Path, *, name: str = "archive", limits: ArchiveLimits = DEFAULT) -> Iterator[Path]:
    """A directory called `name` with what the archive holds, for as long as the block lasts. Raises `CantTake` with
    the rule it breaks.

    Everything the archive says of itself is checked before the first byte is written, and none of it is believed:
    sizes are counted again on the way out."""
    with path.open("rb") as file:
        _check_contents_size(file, limits)
        with _opened(file) as archive, tempfile.TemporaryDirectory(prefix="habitus-") as place:
            files = _checked(archive.infolist(), limits)
            top = Path(place) / name
            with disk.disk_errors(top):
                top.mkdir()
                _unpack(archive, files, top, limits)
            yield top


def _check_contents_size(file: BinaryIO, limits: ArchiveLimits) -> None:
    """Look at the end record first: the table of contents itself can be the bomb."""
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
        raise CantTake(f"It has {members:,} members; at most {limits.members:,} are read.")
    if contents > limits.contents:
        raise CantTake(f"Its table of contents has {contents:,} bytes; at most {limits.contents:,} are read.")


@contextmanager
def _opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN as error:
        raise CantTake(f"It is no zip archive that can be read: {error}.") from None
    with archive:
        yield archive


def _checked(members: list[zipfile.ZipInfo], limits: ArchiveLimits) -> list[tuple[str, zipfile.ZipInfo]]:
    """(path, member) of every file, after every rule has been kept."""
    if len(members) > limits.members:
        raise CantTake(f"It has {len(members):,} members; at most {limits.members:,} are read.")
    seen: dict[str, str] = {}
    files: list[tuple[str, zipfile.ZipInfo]] = []
    total = 0
    for member in members:
        path = _checked_path(member)
        _check_kind(member, path)
        folded = unicodedata.normalize("NFKC", path).casefold()
        if folded in seen:
            clash = (
                "twice"
                if seen[folded] == path
                else f"beside {_shown(seen[folded])}, which some systems can't tell apart"
            )
            raise CantTake(f"It holds {_shown(path)} {clash}.")
        seen[folded] = path
        total += member.file_size
        _check_size(member, path, total, limits)
        if not member.is_dir() and not _is_junk(path):
            files.append((path, member))
    directories = {str(parent).casefold() for path, _ in files for parent in Path(path).parents}
    for path, _ in files:
        if path.casefold() in directories:
            raise CantTake(f"{_shown(path)} is a file and a directory at once.")
    return files


def _checked_path(member: zipfile.ZipInfo) -> str:
    # The name as it stands in the archive: zipfile itself cuts names at a NUL.
    name = member.orig_filename
    if "\0" in name:
        raise CantTake(f"The member {_shown(name)} has a NUL in its name.")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise CantTake(f"The member {_shown(name)} has control characters in its name.")
    if _DRIVE.match(name):
        raise CantTake(f"The member {_shown(name)} names a drive.")
    if name.startswith(("/", "\\")):
        raise CantTake(f"The member {_shown(name)} has an absolute path.")
    if "\\" in name:
        raise CantTake(f"The member {_shown(name)} has a backslash in its name.")
    parts = name.rstrip("/").split("/")
    if ".." in parts:
        raise CantTake(f"The member {_shown(name)} leads out of the archive.")
    if any(part in ("", ".") for part in parts):
        raise CantTake(f"The member {_shown(name)} has an empty part in its path.")
    if any(_DEVICE.fullmatch(part) for part in parts):
        raise CantTake(f"The member {_shown(name)} has the name of a device.")
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 2_000:
        raise CantTake(f"The member {_shown(name)} has too long a name.")
    return "/".join(parts)


def _check_kind(member: zipfile.ZipInfo, path: str) -> None:
    mode = member.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if member.header_offset < 0:
        raise CantTake(f"{_shown(path)} lies before the beginning of the archive, which is cut off.")
    if kind == stat.S_IFLNK:
        raise CantTake(f"{_shown(path)} is a link.")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise CantTake(f"{_shown(path)} is a device, a socket or a pipe.")
    if member.flag_bits & 0x1:
        raise CantTake(f"{_shown(path)} is encrypted.")
    if member.compress_type not in _METHODS:
        raise CantTake(f"{_shown(path)} is packed in a way that is not read here (method {member.compress_type}).")


def _check_size(member: zipfile.ZipInfo, path: str, total: int, limits: ArchiveLimits) -> None:
    if member.file_size > limits.file:
        raise CantTake(f"{_shown(path)} has {member.file_size:,} bytes unpacked; at most {limits.file:,} are read.")
    if total > limits.total:
        raise CantTake(f"It comes to more than {limits.total:,} bytes unpacked.")
    if member.file_size > limits.ratio_from and member.file_size > limits.ratio * max(member.compress_size, 1):
        raise CantTake(f"{_shown(path)} is packed more than {limits.ratio} to 1, as in a bomb.")


def _is_junk(path: str) -> bool:
    return path.startswith("__MACOSX/") or any(disk.is_skipped(part) for part in path.split("/"))


def _unpack(
    archive: zipfile.ZipFile, files: list[tuple[str, zipfile.ZipInfo]], top: Path, limits: ArchiveLimits
) -> None:
    total = 0
    for path, member in files:
        target = top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        try:
            with archive.open(member) as source, target.open("xb") as out:
                while piece := source.read(_PIECE):
                    size, total = size + len(piece), total + len(piece)
                    if size > limits.file or total > limits.total:
                        raise CantTake(f"{_shown(path)} is larger than the archive says.")
                    out.write(piece)
        except _BROKEN as error:
            raise CantTake(f"{_shown(path)} can't be unpacked: {error}.") from None
        if size != member.file_size:
            raise CantTake(f"{_shown(path)} has {size:,} bytes, not the {member.file_size:,} the archive says.")
        if (member.external_attr >> 16) & stat.S_IXUSR:
            target.chmod(0o755)


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "...")
