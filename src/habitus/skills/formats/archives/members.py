"""Members of an archive of any kind: which names and sizes are taken, and how they become files."""

from __future__ import annotations

import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from habitus.skills.formats import disk
from habitus.skills.formats.base import CantTake

_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)[ ]*(\..*)?")
_DRIVE = re.compile(r"[A-Za-z]:")
_PIECE = 64 * 1024
_MAIN = frozenset({"SKILL.md", "skill.md", "skill.toml", "declarative.md"})  # each makes its folder a skill

# What reading a damaged archive raises.
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """What an archive of skills may come to."""

    members: int = 50_000
    files: int = disk.MAX_FILES  # of one skill, or beside them
    total: int = 256 * 1024 * 1024  # bytes of all files, unpacked
    file: int = 64 * 1024 * 1024  # bytes of one file, unpacked
    ratio: int = 200  # unpacked to packed, of one file; of the whole where files are packed together
    ratio_from: int = 1024 * 1024  # what is smaller may be as dense as it likes
    contents: int = 16 * 1024 * 1024  # bytes of what the archive says about its members

    def too_many(self, members: str) -> CantTake:
        return CantTake(f"It has {members} members; at most {self.members:,} are read.")

    def too_much(self) -> CantTake:
        return CantTake(f"It comes to more than {self.total:,} bytes unpacked.")

    def too_dense(self, what: str) -> CantTake:
        return CantTake(f"{what} is packed more than {self.ratio} to 1, as in a bomb.")


DEFAULT = ArchiveLimits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """What an archive says of one of its members, which is a regular file or a directory."""

    name: str
    size: int
    is_directory: bool
    is_executable: bool
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def check_members(members: Iterable[Member], limits: ArchiveLimits) -> list[tuple[str, Member]]:
    """(path, member) of every file, after every rule has been kept; they are counted first."""
    members = list(members)
    _refuse_too_many([one for one in members if not one.is_directory and not _is_junk(one.name)], limits)
    seen: dict[str, str] = {}
    files: list[tuple[str, Member]] = []
    total = 0
    for member in members:
        path = _checked_path(member.name)
        folded = unicodedata.normalize("NFKC", path).casefold()
        if folded in seen:
            clash = (
                "twice"
                if seen[folded] == path
                else f"beside {show_name(seen[folded])}, which some systems can't tell apart"
            )
            raise CantTake(f"It holds {show_name(path)} {clash}.")
        seen[folded] = path
        if member.size > limits.file:
            raise CantTake(f"{show_name(path)} has {member.size:,} bytes unpacked; at most {limits.file:,} are read.")
        total += member.size
        if total > limits.total:
            raise limits.too_much()
        if not member.is_directory and not _is_junk(path):
            files.append((path, member))
    directories = {str(parent).casefold() for path, _ in files for parent in Path(path).parents}
    for path, _ in files:
        if path.casefold() in directories:
            raise CantTake(f"{show_name(path)} is a file and a directory at once.")
    return files


def _refuse_too_many(files: Sequence[Member], limits: ArchiveLimits) -> None:
    """Count the files of each skill, and those beside them, by their names alone; an empty file makes no skill."""
    places = [(*file.name.rpartition("/"), file.size) for file in files]
    skills = {folder for folder, _, name, size in places if name in _MAIN and size}
    count = Counter(_innermost(folder, skills) for folder, *_ in places)
    for folder, number in count.items():
        if number > limits.files:
            where = "There are" if folder is None else f"{show_name(folder)} has" if folder else "It has"
            beside = " that belong to no skill" if folder is None else ""
            raise CantTake(f"{where} {number:,} files{beside}; at most {limits.files:,} are read.")


def _innermost(folder: str, skills: Collection[str]) -> str | None:
    """The folder of a skill that a folder is in."""
    while folder not in skills:
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return folder


def _checked_path(name: str) -> str:
    if "\0" in name:
        raise CantTake(f"The member {show_name(name)} has a NUL in its name.")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        raise CantTake(f"The member {show_name(name)} has control characters in its name.")
    if _DRIVE.match(name):
        raise CantTake(f"The member {show_name(name)} names a drive.")
    if name.startswith(("/", "\\")):
        raise CantTake(f"The member {show_name(name)} has an absolute path.")
    if "\\" in name:
        raise CantTake(f"The member {show_name(name)} has a backslash in its name.")
    parts = name.rstrip("/").split("/")
    if ".." in parts:
        raise CantTake(f"The member {show_name(name)} leads out of the archive.")
    if any(part in ("", ".") for part in parts):
        raise CantTake(f"The member {show_name(name)} has an empty part in its path.")
    if any(_DEVICE.fullmatch(part) for part in parts):
        raise CantTake(f"The member {show_name(name)} has the name of a device.")
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 2_000:
        raise CantTake(f"The member {show_name(name)} has too long a name.")
    return "/".join(parts)


def _is_junk(path: str) -> bool:
    return path.startswith("__MACOSX/") or any(disk.is_skipped(part) for part in path.split("/"))


def write(files: Iterable[tuple[str, Member]], top: Path, limits: ArchiveLimits) -> None:
    total = 0
    for path, member in files:
        target = top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        try:
            with member.open() as source, target.open("xb") as out:
                while piece := source.read(_PIECE):
                    size, total = size + len(piece), total + len(piece)
                    if size > limits.file or total > limits.total:
                        raise CantTake(f"{show_name(path)} is larger than the archive says.")
                    out.write(piece)
        except BROKEN as error:
            raise CantTake(f"{show_name(path)} can't be unpacked: {error}.") from None
        if size != member.size:
            raise CantTake(f"{show_name(path)} has {size:,} bytes, not the {member.size:,} the archive says.")
        if member.is_executable:
            target.chmod(0o755)


def show_name(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "...")
