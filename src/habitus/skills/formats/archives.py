"""Safe unpacking of untrusted archives: every refusal names its reason, and archive bombs are rejected early.

From a tar.gz only regular files and directories are taken, stricter than tarfile's `data` filter. In a zip, the
central directory itself can be the bomb.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

from habitus.files import translate_disk_errors
from habitus.skills import auto_executed
from habitus.skills.formats import disk
from habitus.skills.formats.base import UnreadableEntryError

_ZIP_ENDS = (".zip", ".skill")
_TAR_ENDS = (".tar.gz", ".tgz")
ArchiveT = TypeVar("ArchiveT", tarfile.TarFile, zipfile.ZipFile)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """The limits of an archive of skills."""

    members: int = 50_000
    files: int = disk.MAX_FILES  # per skill, or outside any skill
    total: int = 256 * 1024 * 1024  # bytes of all files, unpacked
    file: int = 64 * 1024 * 1024  # bytes of one file, unpacked
    ratio: int = 200  # unpacked to packed, per file; of the whole if files are packed together
    ratio_from: int = 1024 * 1024  # smaller files may have any ratio
    contents: int = 16 * 1024 * 1024  # bytes of headers or central directory

    def make_too_many_members_error(self, members: str) -> UnreadableEntryError:
        """Return the error for an archive with too many members."""
        return UnreadableEntryError(f"It has {members} members; at most {self.members:,} are read.")

    def make_too_large_archive_error(self) -> UnreadableEntryError:
        """Return the error for an archive that is too large unpacked."""
        return UnreadableEntryError(f"It has more than {self.total:,} bytes unpacked.")

    def make_compression_ratio_error(self, what: str) -> UnreadableEntryError:
        """Return the error for a suspicious compression ratio."""
        return UnreadableEntryError(f"{what} is packed more than {self.ratio} to 1, as in a bomb.")


DEFAULT_LIMITS = ArchiveLimits()


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, by its name or first bytes."""
    return path.is_file() and (path.name.lower().endswith(_ZIP_ENDS + _TAR_ENDS) or is_zip(path) or is_gzip(path))


def strip_archive_suffix(path: Path) -> str:
    """Return the file name without its archive suffix."""
    packed = next((suffix for suffix in _TAR_ENDS if path.name.lower().endswith(suffix)), path.suffix)
    return path.name[: -len(packed)] if packed else path.name


@contextmanager
def unpack_archive_to_temporary_folder(
    path: Path, *, name: str = "archive", limits: ArchiveLimits = DEFAULT_LIMITS
) -> Iterator[Path]:
    """Yield a temporary directory called `name` with the archive's files; raise `UnreadableEntryError` if it breaks a
    rule.

    All declarations of the archive are checked before the first file is written, and none is believed: sizes are
    counted again while unpacking.
    """
    with _open_tar_or_zip_members(path, limits) as members, tempfile.TemporaryDirectory(prefix="habitus-") as place:
        files = list_checked_members(members, limits)
        top = Path(place) / name
        with translate_disk_errors(top):
            top.mkdir()
            write_members(files, top, limits)
        yield top


def _open_tar_or_zip_members(path: Path, limits: ArchiveLimits) -> AbstractContextManager[Iterable[ArchiveMember]]:
    is_tar = path.name.lower().endswith(_TAR_ENDS) or (is_gzip(path) and not path.name.lower().endswith(_ZIP_ENDS))
    return open_tar_members(path, limits) if is_tar else open_zip_members(path, limits)


def _open_archive_or_refuse(kind: str, open_archive: Callable[[], ArchiveT]) -> ArchiveT:
    try:
        return open_archive()
    except ARCHIVE_ERRORS as error:
        raise UnreadableEntryError(f"It is not a {kind} archive that can be read: {error}.") from None


# Windows opens these names as devices, in any folder and with any extension.
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)[ ]*(\..*)?")
_DRIVE = re.compile(r"[A-Za-z]:")
_READ_SIZE = 64 * 1024
# Each of these files makes its folder a skill.
_SKILL_MARKERS = frozenset({"SKILL.md", "skill.md", "skill.toml", "declarative.md"})
# Exceptions that reading a damaged archive raises.
ARCHIVE_ERRORS = (
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
class ArchiveMember:
    """A regular file or directory as the archive declares it."""

    name: str
    size: int
    is_directory: bool
    is_executable: bool
    open: Callable[[], AbstractContextManager[IO[bytes]]]


def list_checked_members(members: Iterable[ArchiveMember], limits: ArchiveLimits) -> list[tuple[str, ArchiveMember]]:
    """Return (path, member) of every file after checking all rules.

    Of each version control folder one file is kept, empty, so a reader can report the folder.
    """
    members = list(members)
    # Too many files are refused by name alone, before the costlier checks of each path.
    _refuse_too_many_files(
        [one for one in members if not one.is_directory and not _is_ignored_member(one.name)], limits
    )
    seen: dict[str, str] = {}
    files: list[tuple[str, ArchiveMember]] = []
    control: set[str] = set()
    total = 0
    for member in members:
        path = _check_and_normalize_member_path(member.name)
        # Case-insensitive and normalising file systems would write two such names to one file.
        folded = unicodedata.normalize("NFKC", path).casefold()
        if folded in seen:
            clash = (
                "twice"
                if seen[folded] == path
                else f"beside {quote_member_name(seen[folded])}, which some systems can't tell apart"
            )
            raise UnreadableEntryError(f"It holds {quote_member_name(path)} {clash}.")
        seen[folded] = path
        if member.size > limits.file:
            raise UnreadableEntryError(
                f"{quote_member_name(path)} has {member.size:,} bytes unpacked; at most {limits.file:,} are read."
            )
        total += member.size
        if total > limits.total:
            raise limits.make_too_large_archive_error()
        if member.is_directory:
            continue
        if not _is_ignored_member(path):
            files.append((path, member))
        elif (folder := _find_enclosing_version_control_folder(path)) and folder not in control:
            control.add(folder)
            files.append((path, replace(member, size=0, is_executable=False, open=io.BytesIO)))
    # A path that is both a file and a directory would fail halfway through writing.
    directories = {str(parent).casefold() for path, _ in files for parent in Path(path).parents}
    for path, _ in files:
        if path.casefold() in directories:
            raise UnreadableEntryError(f"{quote_member_name(path)} is a file and a directory at once.")
    return files


def _refuse_too_many_files(files: Sequence[ArchiveMember], limits: ArchiveLimits) -> None:
    """Raise if a skill, or the rest of the archive, has too many files; an empty main file makes no skill."""
    places = [(*file.name.rpartition("/"), file.size) for file in files]
    skills = {folder for folder, _, name, size in places if name in _SKILL_MARKERS and size}
    count = Counter(_find_innermost_enclosing_skill_folder(folder, skills) for folder, *_ in places)
    for folder, number in count.items():
        if number > limits.files:
            where = "There are" if folder is None else f"{quote_member_name(folder)} has" if folder else "It has"
            beside = " that belong to no skill" if folder is None else ""
            raise UnreadableEntryError(f"{where} {number:,} files{beside}; at most {limits.files:,} are read.")


def _find_innermost_enclosing_skill_folder(folder: str, skills: Collection[str]) -> str | None:
    """Return the innermost skill folder that contains a folder, or None."""
    while folder not in skills:
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return folder


def _check_and_normalize_member_path(name: str) -> str:
    parts = name.rstrip("/").split("/")
    problems = {
        "has a NUL in its name": "\0" in name,
        "has control characters in its name": any(unicodedata.category(char) in ("Cc", "Cs") for char in name),
        "names a drive": _DRIVE.match(name),
        "has an absolute path": name.startswith(("/", "\\")),
        "has a backslash in its name": "\\" in name,
        "leads out of the archive": ".." in parts,
        "has an empty part in its path": not {"", "."}.isdisjoint(parts),
        "has the name of a device": any(map(_DEVICE.fullmatch, parts)),
        "has too long a name": len(name.encode("utf-8", "replace")) > 2_000
        or any(len(part.encode("utf-8", "replace")) > 255 for part in parts),
    }
    _refuse_first_problem(name, problems, "The member ")
    return "/".join(parts)


def _refuse_first_problem(name: str, problems: Mapping[str, object], prefix: str = "") -> None:
    """Raise for the first of the problems that a member has."""
    if problem := next((problem for problem, is_so in problems.items() if is_so), ""):
        raise UnreadableEntryError(f"{prefix}{quote_member_name(name)} {problem}.")


def _is_ignored_member(path: str) -> bool:
    return path.startswith("__MACOSX/") or any(disk.is_name_ignored_by_import(part) for part in path.split("/"))


def _find_enclosing_version_control_folder(path: str) -> str:
    """Return the version control folder that a file is in; empty if it is in none, or in a skipped folder."""
    parts = path.split("/")
    first = next((at for at, part in enumerate(parts) if disk.is_name_ignored_by_import(part)), None)
    is_read = (
        first is not None
        and auto_executed.is_vcs_file_or_folder_name(parts[first])
        and not path.startswith("__MACOSX/")
    )
    return "/".join(parts[: first + 1]) if first is not None and is_read else ""


def write_members(files: Iterable[tuple[str, ArchiveMember]], top: Path, limits: ArchiveLimits) -> None:
    """Write the members, counting their real sizes against the limits."""
    total = 0
    for path, member in files:
        target = top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        try:
            # Mode "x" fails if the file exists, so no member can overwrite another.
            with member.open() as source, target.open("xb") as out:
                while piece := source.read(_READ_SIZE):
                    size, total = size + len(piece), total + len(piece)
                    if size > limits.file or total > limits.total:
                        raise UnreadableEntryError(f"{quote_member_name(path)} is larger than the archive says.")
                    out.write(piece)
        except ARCHIVE_ERRORS as error:
            raise UnreadableEntryError(f"{quote_member_name(path)} can't be unpacked: {error}.") from None
        if size != member.size:
            raise UnreadableEntryError(
                f"{quote_member_name(path)} has {size:,} bytes, not the {member.size:,} the archive says."
            )
        if member.is_executable:
            target.chmod(0o755)


def quote_member_name(name: str) -> str:
    """Return a member's name in quotes, escaped and shortened."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


_GZIP_MAGIC = b"\x1f\x8b"
# Extension headers hold long names; tarfile reads them into memory whole.
_MAX_EXTENSION_BYTES = 1024 * 1024
_EXTENSION_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def is_gzip(path: Path) -> bool:
    """Whether the file starts like gzip."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


@contextmanager
def open_tar_members(path: Path, limits: ArchiveLimits) -> Iterator[Iterable[ArchiveMember]]:
    """Open a tar.gz and yield its members."""
    with path.open("rb") as file, tempfile.TemporaryFile(prefix="habitus-") as plain:
        _decompress_gzip(file, plain, limits)
        with _open_archive_or_refuse("tar", lambda: _CheckedTarFile(fileobj=plain)) as archive:
            yield _read_tar_members(archive, limits)


def _decompress_gzip(file: BinaryIO, plain: IO[bytes], limits: ArchiveLimits) -> None:
    # Members are read from the plain file later, because seeking in a gzip stream is slow.
    """Decompress into a temporary file within the limits."""
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            while piece := packed.read(_READ_SIZE):
                size += len(piece)
                # Check the ratio while decompressing: a bomb must not reach the disk.
                if size > limits.ratio_from and size > limits.ratio * file.tell():
                    raise limits.make_compression_ratio_error("It")
                if size > limits.total + limits.contents:
                    raise limits.make_too_large_archive_error()
                plain.write(piece)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnreadableEntryError(f"It is not a gzip file that can be read: {error}.") from None
    plain.seek(0)


class _CheckedTarHeader(tarfile.TarInfo):
    """A tar header with checks that tarfile lacks."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _CheckedTarHeader:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError:
            # tarfile treats a damaged header as the end of the archive and would silently drop the rest.
            if buf.strip(b"\0"):
                raise UnreadableEntryError("It is not a tar archive, or it is damaged.") from None
            raise
        # tarfile would allocate as much memory as an extension header claims.
        if header.size < 0 or (header.type in _EXTENSION_TYPES and header.size > _MAX_EXTENSION_BYTES):
            raise UnreadableEntryError(f"A header in it says that {header.size:,} bytes follow.")
        return header


class _CheckedTarFile(tarfile.TarFile):
    """A tar file that reads checked headers."""

    tarinfo = _CheckedTarHeader


def _read_tar_members(archive: tarfile.TarFile, limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    try:
        for number, header in enumerate(archive, 1):
            if number > limits.members:
                raise limits.make_too_many_members_error(f"more than {limits.members:,}")
            if header.name not in (".", "./"):
                yield _make_tar_member(archive, header)
    except (*ARCHIVE_ERRORS, OSError) as error:
        raise UnreadableEntryError(f"It can't be read to its end: {error}.") from None


def _make_tar_member(archive: tarfile.TarFile, header: tarfile.TarInfo) -> ArchiveMember:
    name = header.name.removeprefix("./")
    problems = {
        "is a link": header.issym() or header.islnk(),
        "is stored with holes in it": header.issparse(),
        "is a device, a socket or a pipe": not (header.isreg() or header.isdir()),
        f"says that it has {header.size:,} bytes": header.size < 0,
    }
    _refuse_first_problem(name, problems)
    return ArchiveMember(
        name=name,
        size=0 if header.isdir() else header.size,
        is_directory=header.isdir(),
        is_executable=bool(header.mode & 0o100),
        open=partial(_open_tar_member, archive, header),
    )


def _open_tar_member(archive: tarfile.TarFile, header: tarfile.TarInfo) -> AbstractContextManager[IO[bytes]]:
    content = archive.extractfile(header)
    assert content is not None, header.name  # only called for regular files
    return content


_END, _END_SIZE = b"PK\x05\x06", 22
_LOCATOR_64, _LOCATOR_64_SIZE = b"PK\x06\x07", 20
_MAX_COMMENT_BYTES = 65_535
_COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def is_zip(path: Path) -> bool:
    """Whether the file starts like a zip archive."""
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", _END)


@contextmanager
def open_zip_members(path: Path, limits: ArchiveLimits) -> Iterator[Iterable[ArchiveMember]]:
    """Open a zip archive and yield its members."""
    with path.open("rb") as file:
        _check_zip_end_record(file, limits)
        with _open_archive_or_refuse("zip", lambda: zipfile.ZipFile(file)) as archive:
            found = archive.infolist()
            if len(found) > limits.members:
                raise limits.make_too_many_members_error(f"{len(found):,}")
            yield [_make_zip_member(archive, info, limits) for info in found]


def _check_zip_end_record(file: BinaryIO, limits: ArchiveLimits) -> None:
    """Check the end record before zipfile reads the central directory."""
    size = file.seek(0, os.SEEK_END)
    start = max(size - _END_SIZE - _MAX_COMMENT_BYTES - _LOCATOR_64_SIZE, 0)
    file.seek(start)
    tail = file.read()
    file.seek(0)
    # The end record is followed only by a comment, so search backwards from the end.
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise UnreadableEntryError("It is not a zip archive, or it is cut off.")
    members, contents = struct.unpack_from("<HI", tail, at + 10)
    if _LOCATOR_64 in tail[max(at - _LOCATOR_64_SIZE, 0) : at] or contents == 0xFFFFFFFF:
        raise UnreadableEntryError("It is in the form for archives above 4 GB; skills are smaller.")
    if members > limits.members:
        raise limits.make_too_many_members_error(f"{members:,}")
    if contents > limits.contents:
        raise UnreadableEntryError(
            f"Its table of contents has {contents:,} bytes; at most {limits.contents:,} are read."
        )


def _make_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limits: ArchiveLimits) -> ArchiveMember:
    # zipfile cuts `filename` at a NUL; the original name shows it.
    name = info.orig_filename
    mode = info.external_attr >> 16
    _check_zip_member(info, name, stat.S_IFMT(mode))
    if info.file_size > limits.ratio_from and info.file_size > limits.ratio * max(info.compress_size, 1):
        raise limits.make_compression_ratio_error(quote_member_name(name))
    return ArchiveMember(
        name=name,
        size=info.file_size,
        # `is_dir` fails on an empty name.
        is_directory=info.filename.endswith("/"),
        is_executable=bool(mode & stat.S_IXUSR),
        open=partial(archive.open, info),
    )


def _check_zip_member(info: zipfile.ZipInfo, name: str, kind: int) -> None:
    problems = {
        "lies before the beginning of the archive, which is cut off": info.header_offset < 0,
        "is a link": kind == stat.S_IFLNK,
        "is a device, a socket or a pipe": kind not in (0, stat.S_IFREG, stat.S_IFDIR),
        "is encrypted": info.flag_bits & 0x1,
        f"is packed in a way that is not read here (method {info.compress_type})": info.compress_type
        not in _COMPRESSION_METHODS,
    }
    _refuse_first_problem(name, problems)
