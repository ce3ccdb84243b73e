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
from habitus.files import compute_tree_hash, translate_disk_errors
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.layers.layer import AGENT_LAYERS, USER_LAYER, find_project_root, find_project_skill_folders
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.sources import lockfiles

# Importers and fetchers are only loaded by commands that use them.
if TYPE_CHECKING:
    from habitus.skills.formats.base import IncomingSkill
    from habitus.skills.sources.fetching import FetchedSource
    from habitus.skills.sources.importing import ImportOutcome

# The folder of a project that most agents read.
SHARED_SKILLS_DIR = Path(".agents", "skills")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedSkill:
    """A skill recorded in a lockfile: its layer here, and the address it is fetched from."""

    name: str
    layer: str
    address: str
    # The hash of its files as they were installed.
    hash: str
    branch: str = ""
    # Its name in the lockfile, which may not be in canonical form.
    lock_key: str = ""
    # The lockfile of `npx skills`; None for ours.
    file: lockfiles.NpxLockfile | None = None

    @property
    def fetch_group_key(self) -> tuple[str, str, str, lockfiles.NpxLockfile | None]:
        """Return the key by which skills are fetched together and imported into one place."""
        return self.address, self.branch, self.layer, self.file


def list_updatable_tracked_skills(home: Home) -> tuple[list[TrackedSkill], list[str]]:
    """Return every skill that can be updated, and a line for each one that can't."""
    own = lockfiles.read_lockfile(_get_home_lock_file(home.settings))
    found = [
        TrackedSkill(name=name, layer=USER_LAYER, address=one.address, hash=one.tree_hash) for name, one in own.items()
    ]
    unread: list[str] = []
    for file, layers in _list_npx_lock_files(home.settings):
        try:
            found += _read_tracked_skills(home.skills, file, layers, unread)
        except UserError as error:
            unread.append(f"{error.message} {error.hint}")
    return found, unread


def describe_skill_origin_from_lockfiles(settings: Settings, item: ListedSkill) -> str:
    """Describe where a skill came from according to the lockfiles; empty if none knows it."""
    try:
        if item.layer == USER_LAYER:
            return lockfiles.find_locked_origin(_get_home_lock_file(settings), item.name)
        for file, layers in _list_npx_lock_files(settings):
            for key, entry in file.read_entries().items() if item.layer in layers else ():
                if names.canonicalize_name(key) == item.name:
                    source = str(entry.get("source", ""))
                    return f"{Path(source).name if Path(source).is_absolute() else source}, by 'npx skills'"
    except UserError:
        # A damaged lockfile is reported by `skills update`, not here.
        pass
    return ""


def _list_npx_lock_files(settings: Settings) -> Iterator[tuple[lockfiles.NpxLockfile, Sequence[str]]]:
    """Yield the lockfiles of `npx skills` visible from here, with the layers their skills may be in."""
    yield lockfiles.get_global_npx_lockfile(settings.user_home, os.environ), AGENT_LAYERS
    places: dict[Path, list[str]] = {}
    for place in find_project_skill_folders(settings.cwd, settings.user_home):
        places.setdefault(place.root.parents[1], []).append(place.name)
    for folder, layers in places.items():
        yield lockfiles.get_project_npx_lockfile(folder), layers


def _read_tracked_skills(
    skills: Library, file: lockfiles.NpxLockfile, layers: Sequence[str], unread: list[str]
) -> Iterator[TrackedSkill]:
    for key, entry in file.read_entries().items():
        name = names.canonicalize_name(key)
        layer = next((one for one in layers if skills.get_layer(one).store.is_name_taken(name)), "")
        address = lockfiles.get_fetch_address(entry, file.path.parent)
        if layer and address:
            digest = str(entry.get("computedHash" if file.is_project else "skillFolderHash", ""))
            branch = str(entry.get("ref") or "")
            yield TrackedSkill(
                name=name, layer=layer, address=address, hash=digest, branch=branch, lock_key=key, file=file
            )
        elif layer:
            unread.append(f"{name}@{layer} comes with the package {entry.get('source')}: npm updates it.")


def is_unmodified(skills: Library, one: TrackedSkill) -> bool:
    """Whether a skill that `npx skills` installed is unchanged here, as far as its lock tells; a site has no hash."""
    folder = skills.get_layer(one.layer).store.find_directory(one.name)
    return folder is not None and (not one.hash or _compute_folder_hash_of_same_kind(one.hash, folder) == one.hash)


def has_changed_upstream(one: TrackedSkill, entry: IncomingSkill, fetched: FetchedSource) -> bool:
    """Whether a skill has changed at its source since it was installed."""
    if one.file is None:
        return compute_tree_hash(entry.tree) != one.hash
    place = _find_source_folder(entry, fetched)
    return place is None or _compute_folder_hash_of_same_kind(one.hash, place) != one.hash


def _compute_folder_hash_of_same_kind(known: str, folder: Path) -> str:
    """Return a folder's hash of the same kind as the known one."""
    # Git's tree hashes have 40 digits, those of `npx skills` have 64.
    return lockfiles.compute_git_tree_hash(folder) if len(known) == 40 else lockfiles.compute_npx_hash(folder)


def update_lockfile_of_tracked_skills(
    home: Home,
    group: Sequence[TrackedSkill],
    results: Iterable[ImportOutcome],
    entries: Iterable[IncomingSkill],
    fetched: FetchedSource,
) -> None:
    """Record the imported skills in the lockfile that tracks them."""
    file = group[0].file
    if file is None:
        record_in_home_lockfile(home, results, entries, fetched)
        return
    by_name = {one.name: one for one in group}
    there = {entry.name: _find_source_folder(entry, fetched) for entry in entries}
    now = home.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def change(skills: dict[str, lockfiles.NpxLockEntry]) -> None:
        for result in results:
            one = by_name.get(result.name)
            if one is None or one.lock_key not in skills or not result.is_up_to_date:
                continue
            folder = there[result.name] or home.skills.get_layer(one.layer).store.find_directory(result.name)
            digest = _compute_folder_hash_of_same_kind(one.hash, folder) if folder is not None else one.hash
            new = {"computedHash": digest} if file.is_project else {"skillFolderHash": digest, "updatedAt": now}
            if digest != one.hash:
                skills[one.lock_key] |= {**new, **_build_lockfile_digest_field(fetched, result.name)}

    file.update_entries(change)


def record_in_home_lockfile(
    home: Home, results: Iterable[ImportOutcome], entries: Iterable[IncomingSkill], fetched: FetchedSource
) -> None:
    """Record added skills in the home's lockfile."""
    file, hashes = _get_home_lock_file(home.settings), {entry.name: compute_tree_hash(entry.tree) for entry in entries}
    locked = lockfiles.read_lockfile(file)
    for result in results:
        if result.is_refused or result.name not in hashes:
            continue
        entry = lockfiles.LockedSkill(
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
    lockfiles.write_lockfile(file, locked)


def record_in_project_lockfile(
    skills: Library,
    file: lockfiles.NpxLockfile,
    layer: str,
    results: Iterable[ImportOutcome],
    entries: Iterable[IncomingSkill],
    fetched: FetchedSource,
) -> None:
    """Record skills added to a project in its lockfile; not those from an archive, which `npx skills` can't fetch."""
    if fetched.path.is_file():
        return
    there = {entry.name: _find_source_folder(entry, fetched) for entry in entries}
    source = lockfiles.build_npx_source_fields(fetched.repository or fetched.address, fetched.branch, file.path.parent)
    if fetched.digests:
        source = {"source": fetched.path.name.removeprefix("www."), "sourceUrl": fetched.address}
        source["sourceType"] = "well-known"

    def change(noted: dict[str, lockfiles.NpxLockEntry]) -> None:
        for result in results:
            if not result.is_up_to_date or result.name not in there:
                continue
            place = there[result.name]
            folder = place or skills.get_layer(layer).store.find_directory(result.name)
            if folder is None:
                continue
            path = (
                {} if place is None or source["sourceType"] == "local" else _build_lockfile_path_field(place, fetched)
            )
            digest = {"computedHash": lockfiles.compute_npx_hash(folder)}
            noted[result.name] = {**source, **path, **digest, **_build_lockfile_digest_field(fetched, result.name)}

    file.update_entries(change)


def find_added_skills_folder(settings: Settings) -> Path:
    """Return the folder whose `.agents/skills` receives a project's skills: the nearest with any, or the root."""
    top = find_project_root(settings.cwd)
    chain = [settings.cwd, *settings.cwd.parents]
    inside = chain[: chain.index(top) + 1]
    return next(
        (one for one in inside if (one / SHARED_SKILLS_DIR).is_dir() or (one / lockfiles.PROJECT_FILE).is_file()), top
    )


def _find_source_folder(entry: IncomingSkill, fetched: FetchedSource) -> Path | None:
    """Return the folder that a skill was read from; None if it came from an archive or a site."""
    if fetched.digests or fetched.path.is_file():
        return None
    folder = fetched.path / entry.origin.removeprefix(fetched.origin).lstrip("/")
    return folder if (folder / "SKILL.md").is_file() else None


def _build_lockfile_path_field(folder: Path, fetched: FetchedSource) -> Mapping[str, str]:
    inside = Path(fetched.folder) / folder.relative_to(fetched.path) / "SKILL.md"
    return {"skillPath": inside.as_posix()}


def _build_lockfile_digest_field(fetched: FetchedSource, name: str) -> Mapping[str, str]:
    return {"wellKnownDigest": fetched.digests[name]} if name in fetched.digests else {}


def _get_home_lock_file(settings: Settings) -> Path:
    """Return the home's lockfile, renaming one that still has its old name."""
    file, old = settings.home / lockfiles.LOCK_FILE, settings.home / lockfiles.OLD_LOCK_FILE
    if old.is_file() and not file.exists():
        with translate_disk_errors(file):
            old.rename(file)
    return file
