"""Skills that a site publishes: `/.well-known/agent-skills/index.json` lists them with the digest of each.

    {"$schema": …, "skills": [{"name": …, "type": "skill-md" | "archive", "description": …, "url": …, "digest": …}]}

Version 0.1 had no schema, lay in `/.well-known/skills/` and listed files without digests.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from habitus.errors import Invalid, NotFound
from habitus.skills import names
from habitus.skills.downloading import Download, Reach, download, refuse_elsewhere
from habitus.skills.formats import archives
from habitus.skills.formats.base import CantTake

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
PLACE = ".well-known/agent-skills"
INDEX = f"{PLACE}/index.json"
_OLD_INDEX = ".well-known/skills/index.json"
_LARGEST_INDEX = 4 << 20
_MOST_SKILLS = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """A skill of an index: what it is called, and where each of its files, or the archive of all, is."""

    name: str
    urls: Mapping[str, str]  # path in the skill → address; an archive has the empty path
    digest: str = ""


def read_index(address: str, reach: Reach) -> list[Offered] | None:
    """The skills that a site offers; none where it has no index."""
    base = address if address.endswith("/") else f"{address}/"
    for place in (INDEX, _OLD_INDEX):
        try:
            found = download(urljoin(base, place), reach, largest=_LARGEST_INDEX)
        except NotFound:
            continue
        offered = _parse_index(found, is_old=place == _OLD_INDEX)
        for url in [url for one in offered for url in one.urls.values()]:
            refuse_elsewhere(found.url, url, reach)
        return offered
    return None


def fetch(offered: Sequence[Offered], into: Path, reach: Reach) -> dict[str, str]:
    """Each skill as a folder of its name; name → digest of what was fetched."""
    digests: dict[str, str] = {}
    for one in offered:
        folder = into / one.name
        for path, url in one.urls.items():
            content = download(url, reach).content
            digest = digest_of(content)
            if one.digest and digest != one.digest:
                what = f"'{one.name}' is not what the index says: its digest differs."
                raise Invalid(what, mend="Tell whoever publishes it; nothing was taken.")
            if path:
                _put(folder, path, content)
            else:
                _unpack(folder, url, content)
            digests[one.name] = digest
    return digests


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def index_of(skills: Sequence[tuple[str, str, bytes | None, bytes]]) -> dict[str, bytes]:
    """A site of (name, description, archive or none, SKILL.md): path below its root → content."""
    files: dict[str, bytes] = {}
    rows: list[dict[str, str]] = []
    for name, description, archive, text in sorted(skills):
        path = f"{name}.tar.gz" if archive is not None else f"{name}/SKILL.md"
        content = text if archive is None else archive
        files[f"{PLACE}/{path}"] = content
        kind = "skill-md" if archive is None else "archive"
        rows.append({"name": name, "type": kind, "description": description, "url": path, "digest": digest_of(content)})
    index = json.dumps({"$schema": SCHEMA, "skills": rows}, indent=2, ensure_ascii=False)
    return {**files, INDEX: f"{index}\n".encode()}


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar archive, the same for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(files[path]), 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    return gzip.compress(plain.getvalue(), mtime=0)


def _parse_index(found: Download, *, is_old: bool) -> list[Offered]:
    try:
        said = json.loads(found.content)
        schema, rows = said.get("$schema"), said["skills"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid(f"The index at {found.url} can't be read.", mend="Tell whoever publishes it.") from None
    if schema not in (None, SCHEMA):
        raise Invalid(f"The index at {found.url} is of a version that is not known here.", mend="Update Habitus.")
    if not isinstance(rows, list) or len(rows) > _MOST_SKILLS:
        raise Invalid(f"The index at {found.url} lists no or too many skills.", mend="Tell whoever publishes it.")
    reader = _old_row if is_old or schema is None else _row
    return [reader(row, found.url) for row in rows]


def _row(row: Any, index: str) -> Offered:
    match row:
        case {"name": str(name), "type": "skill-md" | "archive" as kind, "url": str(url), "digest": str(digest)} if (
            _DIGEST.fullmatch(digest)
        ):
            path = "SKILL.md" if kind == "skill-md" else ""
            return Offered(name=names.check_name(name), urls={path: urljoin(index, url)}, digest=digest)
        case _:
            raise Invalid(f"The index at {index} has an entry that can't be read.", mend="Tell whoever publishes it.")


def _old_row(row: Any, index: str) -> Offered:
    match row:
        case {"name": str(name), "files": list(files)} if files and all(isinstance(file, str) for file in files):
            name = names.check_name(name)
            base = urljoin(index, f"{name}/")
            return Offered(name=name, urls={file: urljoin(base, file) for file in files})
        case _:
            raise Invalid(f"The index at {index} has an entry that can't be read.", mend="Tell whoever publishes it.")


def _put(folder: Path, path: str, content: bytes) -> None:
    place = (folder / path).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise Invalid(f"'{path}' would lie outside its skill.", mend="Tell whoever publishes it.")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def _unpack(folder: Path, url: str, content: bytes) -> None:
    """An archive with SKILL.md at its root."""
    packed = folder.with_name(f"{folder.name}{_ending(url)}")
    packed.write_bytes(content)
    try:
        with archives.unpack(packed, name=folder.name) as top:
            if not (top / "SKILL.md").is_file():
                raise CantTake("There is no SKILL.md at its root.")
            shutil.move(top, folder)
    except CantTake as problem:
        raise Invalid(f"The archive of '{folder.name}' can't be taken. {problem}", mend="") from None
    packed.unlink()


def _ending(url: str) -> str:
    path = urlsplit(url).path
    return ".zip" if path.endswith(".zip") else ".tar.gz"
