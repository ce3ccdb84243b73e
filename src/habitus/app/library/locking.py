"""Lockfiles for skills from elsewhere: ours in the home, and those of `npx skills`, globally and per project.

Both tools can update what the other one installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.app.home import Home
from habitus.errors import UserError
from habitus.files import disk_errors, tree_hash
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.layers.layer import AGENTS, USER, project_places, project_root
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.sources import lock
from habitus.skills.sources.lock import LockFile

# Importers and fetchers are only loaded by commands that use them.
if TYPE_CHECKING:
    from habitus.skills.formats.base import Incoming
    from habitus.skills.sources.fetching import Fetched
    from habitus.skills.sources.importing import Result

# The folder of a project that most agents read.
SHARED = Path(".agents", "skills")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracked:
    """A skill recorded in a lockfile: its layer here, and the address it is fetched from."""

    name: str
    layer: str
    address: str
    # The hash of its files as they were installed.
    hash: str
    branch: str = ""
    # Its name in the lockfile, which may not be in canonical form.
    key: str = ""
    # The lockfile of `npx skills`; None for ours.
    file: LockFile | None = None

    @property
    def source(self) -> tuple[str, str, str, LockFile | None]:
        """Return the key by which skills are fetched together and imported into one place."""
        return self.address, self.branch, self.layer, self.file


def tracked_skills(home: Home) -> tuple[list[Tracked], list[str]]:
    """Return every skill that can be updated, and a line for each one that can't."""
    own = lock.read(_own_file(home.settings))
    found = [Tracked(name=name, layer=USER, address=one.address, hash=one.tree_hash) for name, one in own.items()]
    unread: list[str] = []
    for file, layers in _files(home.settings):
        try:
            found += _tracked_in(home.skills, file, layers, unread)
        except UserError as error:
            unread.append(f"{error.message} {error.hint}")
    return found, unread


def origin_of(settings: Settings, item: Listed) -> str:
    """Describe where a skill came from according to the lockfiles; empty if none knows it."""
    try:
        if item.layer == USER:
            return lock.origin_of(_own_file(settings), item.name)
        for file, layers in _files(settings):
            for key, entry in file.read().items() if item.layer in layers else ():
                if names.canonical(key) == item.name:
                    source = str(entry.get("source", ""))
                    return f"{Path(source).name if Path(source).is_absolute() else source}, by 'npx skills'"
    except UserError:
        # A damaged lockfile is reported by `skills update`, not here.
        pass
    return ""


def _files(settings: Settings) -> Iterator[tuple[LockFile, Sequence[str]]]:
    """Yield the lockfiles of `npx skills` visible from here, with the layers their skills may be in."""
    yield lock.global_file(settings.user_home, os.environ), AGENTS
    places: dict[Path, list[str]] = {}
    for place in project_places(settings.cwd, settings.user_home):
        places.setdefault(place.root.parents[1], []).append(place.name)
    for folder, layers in places.items():
        yield lock.project_file(folder), layers


def _tracked_in(skills: Library, file: LockFile, layers: Sequence[str], unread: list[str]) -> Iterator[Tracked]:
    for key, entry in file.read().items():
        name = names.canonical(key)
        layer = next((one for one in layers if skills.layer(one).store.is_taken(name)), "")
        address = lock.address_of(entry, file.path.parent)
        if layer and address:
            digest = str(entry.get("computedHash" if file.is_project else "skillFolderHash", ""))
            branch = str(entry.get("ref") or "")
            yield Tracked(name=name, layer=layer, address=address, hash=digest, branch=branch, key=key, file=file)
        elif layer:
            unread.append(f"{name}@{layer} comes with the package {entry.get('source')}: npm updates it.")


def is_as_installed(skills: Library, one: Tracked) -> bool:
    """Whether a skill that `npx skills` installed is unchanged here."""
    folder = skills.layer(one.layer).store.directory(one.name)
    return folder is not None and _hash_like(one.hash, folder) == one.hash


def has_moved(one: Tracked, entry: Incoming, fetched: Fetched) -> bool:
    """Whether a skill has changed at its source since it was installed."""
    if one.file is None:
        return tree_hash(entry.tree) != one.hash
    place = _place(entry, fetched)
    return place is None or _hash_like(one.hash, place) != one.hash


def _hash_like(known: str, folder: Path) -> str:
    """Return a folder's hash of the same kind as the known one."""
    # Git's tree hashes have 40 digits, those of `npx skills` have 64.
    return lock.git_hash(folder) if len(known) == 40 else lock.computed_hash(folder)


def record(
    home: Home, group: Sequence[Tracked], results: Iterable[Result], entries: Iterable[Incoming], fetched: Fetched
) -> None:
    """Record the imported skills in the lockfile that tracks them."""
    file = group[0].file
    if file is None:
        record_own(home, results, entries, fetched)
        return
    by_name = {one.name: one for one in group}
    there = {entry.name: _place(entry, fetched) for entry in entries}
    now = home.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def change(skills: dict[str, lock.Entry]) -> None:
        for result in results:
            one = by_name.get(result.name)
            if one is None or one.key not in skills or not result.is_here_now:
                continue
            folder = there[result.name] or home.skills.layer(one.layer).store.directory(result.name)
            digest = _hash_like(one.hash, folder) if folder is not None else one.hash
            new = {"computedHash": digest} if file.is_project else {"skillFolderHash": digest, "updatedAt": now}
            if digest != one.hash:
                skills[one.key] |= {**new, **_digest_of(fetched, result.name)}

    file.change(change)


def record_own(home: Home, results: Iterable[Result], entries: Iterable[Incoming], fetched: Fetched) -> None:
    """Record added skills in the home's lockfile."""
    file, hashes = _own_file(home.settings), {entry.name: tree_hash(entry.tree) for entry in entries}
    locked = lock.read(file)
    for result in results:
        if result.is_refused or result.name not in hashes:
            continue
        entry = lock.Locked(
            address=fetched.address,
            commit=fetched.commit,
            origin=result.origin,
            tree_hash=hashes[result.name],
            added_on=home.clock().isoformat(timespec="seconds"),
            digest=fetched.digests.get(result.name, ""),
        )
        earlier = locked.get(result.name)
        # An unchanged entry keeps its date; otherwise every run would change the file.
        is_same = earlier is not None and replace(earlier, added_on=entry.added_on) == entry
        locked[result.name] = earlier if is_same and earlier is not None else entry
    lock.write(file, locked)


def record_in_project(
    skills: Library,
    file: LockFile,
    layer: str,
    results: Iterable[Result],
    entries: Iterable[Incoming],
    fetched: Fetched,
) -> None:
    """Record skills added to a project in its lockfile; not those from an archive, which `npx skills` can't fetch."""
    if fetched.path.is_file():
        return
    there = {entry.name: _place(entry, fetched) for entry in entries}
    source = lock.source_of(fetched.repository or fetched.address, fetched.branch, file.path.parent)
    if fetched.digests:
        source = {"source": fetched.path.name.removeprefix("www."), "sourceUrl": fetched.address}
        source["sourceType"] = "well-known"

    def change(noted: dict[str, lock.Entry]) -> None:
        for result in results:
            if not result.is_here_now or result.name not in there:
                continue
            place = there[result.name]
            folder = place or skills.layer(layer).store.directory(result.name)
            if folder is None:
                continue
            path = {} if place is None or source["sourceType"] == "local" else _path_of(place, fetched)
            digest = {"computedHash": lock.computed_hash(folder)}
            noted[result.name] = {**source, **path, **digest, **_digest_of(fetched, result.name)}

    file.change(change)


def place_in_project(settings: Settings) -> Path:
    """Return the folder whose `.agents/skills` receives a project's skills: the nearest with any, or the root."""
    top = project_root(settings.cwd)
    chain = [settings.cwd, *settings.cwd.parents]
    inside = chain[: chain.index(top) + 1]
    return next((one for one in inside if (one / SHARED).is_dir() or (one / lock.PROJECT_FILE).is_file()), top)


def _place(entry: Incoming, fetched: Fetched) -> Path | None:
    """Return the folder that a skill was read from; None if it came from an archive or a site."""
    if fetched.digests or fetched.path.is_file():
        return None
    folder = fetched.path / entry.origin.removeprefix(fetched.origin).lstrip("/")
    return folder if (folder / "SKILL.md").is_file() else None


def _path_of(folder: Path, fetched: Fetched) -> Mapping[str, str]:
    inside = Path(fetched.folder) / folder.relative_to(fetched.path) / "SKILL.md"
    return {"skillPath": inside.as_posix()}


def _digest_of(fetched: Fetched, name: str) -> Mapping[str, str]:
    return {"wellKnownDigest": fetched.digests[name]} if name in fetched.digests else {}


def _own_file(settings: Settings) -> Path:
    """Return the home's lockfile, renaming one that still has its old name."""
    file, old = settings.home / lock.FILE, settings.home / lock.OLD_FILE
    if old.is_file() and not file.exists():
        with disk_errors(file):
            old.rename(file)
    return file
