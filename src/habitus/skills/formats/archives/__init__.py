"""Unpacking an archive that nobody vouches for: every refusal has its reason, and a bomb costs nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from habitus.files import disk_errors
from habitus.skills.formats.archives import tars, zips
from habitus.skills.formats.archives.members import DEFAULT, ArchiveLimits, Member, check_members, write

__all__ = ["DEFAULT", "ArchiveLimits", "is_archive", "stem", "unpack"]

_ZIP = (".zip", ".skill")
_TAR = (".tar.gz", ".tgz")


def is_archive(path: Path) -> bool:
    """By its name, or by its first bytes."""
    return path.is_file() and (path.name.lower().endswith(_ZIP + _TAR) or zips.is_zip(path) or tars.is_packed(path))


def stem(path: Path) -> str:
    """The name of a file without what says how it is packed."""
    packed = next((suffix for suffix in _TAR if path.name.lower().endswith(suffix)), path.suffix)
    return path.name[: -len(packed)] if packed else path.name


@contextmanager
def unpack(path: Path, *, name: str = "archive", limits: ArchiveLimits = DEFAULT) -> Iterator[Path]:
    """A directory called `name` with what the archive holds, for as long as the block lasts. Raises `CantTake` with
    the rule it breaks.

    Everything the archive says of itself is checked before the first of its files is written, and none of it is
    believed: sizes are counted again on the way out."""
    with _members(path, limits) as members, tempfile.TemporaryDirectory(prefix="habitus-") as place:
        files = check_members(members, limits)
        top = Path(place) / name
        with disk_errors(top):
            top.mkdir()
            write(files, top, limits)
        yield top


def _members(path: Path, limits: ArchiveLimits) -> AbstractContextManager[Iterable[Member]]:
    is_tar = path.name.lower().endswith(_TAR) or (tars.is_packed(path) and not path.name.lower().endswith(_ZIP))
    return tars.members(path, limits) if is_tar else zips.members(path, limits)
