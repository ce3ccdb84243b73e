"""Lockfiles: our own `habitus-lock.json`, and those of `npx skills`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from habitus.errors import Invalid, StorageFailed
from habitus.files import write_atomically
from habitus.locks import hold_lock
from habitus.redact.named_secrets import is_secret_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LockEntryT = TypeVar("LockEntryT", bound="DataclassInstance")

LOCK_FILE = "habitus-lock.json"
_QUERY_PARAMETER = re.compile(r"(?<=[?&#])(?P<name>[\w.-]{1,64})=[^&#\s]*&?")
_LOGIN = re.compile(r"^(?P<scheme>\w[\w+.-]*://)?(?P<login>[^/\s]*)@")
# The former name of our file, which another tool uses now.
OLD_LOCK_FILE = "skills-lock.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedSkill:
    """One added skill: the requested address, the fetched commit, and the hash of its files."""

    address: str
    commit: str
    origin: str
    tree_hash: str
    added_on: str
    digest: str = ""  # according to the index of its site


def read_lockfile(path: Path) -> dict[str, LockedSkill]:
    """Read our lockfile, with credentials removed from addresses; empty if there is none."""
    locked = read_lock_entries(path, LockedSkill)
    return {name: replace(entry, address=remove_credentials(entry.address)) for name, entry in locked.items()}


def find_locked_origin(path: Path, name: str) -> str:
    """Return where a skill was added from, as text; empty if the lockfile doesn't list it."""
    known = read_lockfile(path).get(name)
    if known is None:
        return ""
    return known.address if "://" in known.address else known.origin


def read_lock_entries(path: Path, kind: type[LockEntryT]) -> dict[str, LockEntryT]:
    """Return the entries of a lockfile by name; raise `Invalid` if it can't be parsed."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): kind(**entry) for name, entry in data["skills"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid(f"{path} can't be read.", hint="Restore it from version control, or remove it.") from None
    except OSError as error:
        raise StorageFailed(f"Can't read {path}: {error.strerror}.", hint="Check its permissions.") from None


def write_lockfile(path: Path, locked: Mapping[str, LockEntryT]) -> None:
    """Replace the file atomically: a reader sees the old or the new one."""
    text = json.dumps({"version": 1, "skills": {name: asdict(locked[name]) for name in sorted(locked)}}, indent=2)
    write_atomically(path, f"{text}\n".encode())


def remove_credentials(address: str) -> str:
    """Return an address without credentials, safe to store and show."""
    address = _QUERY_PARAMETER.sub(lambda hit: "" if is_secret_name(hit["name"]) else hit[0], address).rstrip("?&")
    hit = _LOGIN.match(address)
    # A token may stand in place of the user name, so both go; `git@` grants nothing.
    if hit is None or (hit["login"] == "git" or (hit["scheme"] == "ssh://" and ":" not in hit["login"])):
        return address
    return (hit["scheme"] or "") + address[hit.end() :]


PROJECT_FILE, PROJECT_VERSION, GLOBAL_VERSION = "skills-lock.json", 1, 3

NpxLockEntry = dict[str, Any]

_RETRY_SECONDS = 1.0  # how long a file may be half written
# The order of the Unicode collation, which JavaScript's localeCompare uses.
_COLLATION_ORDER = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"
_SKIPPED = (".git", "node_modules")


@dataclass(frozen=True, kw_only=True, slots=True)
class NpxLockfile:
    """A lockfile of `npx skills`: its path, and the version it must have."""

    path: Path
    version: int

    @property
    def is_project(self) -> bool:
        """Whether it is a project's lockfile rather than the user's."""
        return self.version == PROJECT_VERSION

    def read_entries(self) -> dict[str, NpxLockEntry]:
        """Return all entries by name, with all fields; empty if there is no file."""
        return _copy_entries(self._read_contents()[1])

    def update_entries(self, change: Callable[[dict[str, NpxLockEntry]], None]) -> None:
        """Update entries; everything else in the file stays."""
        with hold_lock(self.path.parent):
            # `npx skills` doesn't take our lock, so read and retry until no other program wrote in between.
            while True:
                old, contents = self._read_contents()
                skills = _copy_entries(contents)
                change(skills)
                kept = {name: skills[name] for name in sorted(skills)} if self.is_project else skills
                written = json.dumps({**contents, "skills": kept}, indent=2, ensure_ascii=False)
                after = (written + "\n" * self.is_project).encode()
                if after == old:
                    return
                try:
                    write_atomically(
                        self.path, after, mode=None if old else 0o644, check=partial(self._require_unchanged, old)
                    )
                except _LockfileChangedError:
                    continue
                return

    def _require_unchanged(self, before: bytes) -> None:
        if self._read_bytes() != before:
            raise _LockfileChangedError

    def _read_contents(self) -> tuple[bytes, dict[str, Any]]:
        """Read and parse the file, retrying while another program is writing it."""
        until = time.monotonic() + _RETRY_SECONDS
        while True:
            found = self._read_bytes()
            try:
                return found, self._parse_contents(found)
            except Invalid:
                # A file that ends in '}' is complete, so waiting would not make it valid.
                if time.monotonic() >= until or found.rstrip().endswith(b"}"):
                    raise
                time.sleep(0.01)

    def _read_bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StorageFailed(f"Can't read {self.path}: {error.strerror}.", hint="Check its permissions.") from None

    def _parse_contents(self, found: bytes) -> dict[str, Any]:
        if not found and not self.path.exists():
            return {"version": self.version, "skills": {}}
        try:
            contents = json.loads(found)
            version, skills = contents["version"], contents["skills"]
            is_whole = all(isinstance(entry, dict) for entry in skills.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_whole, version = False, self.version
        if not is_whole:
            raise Invalid(f"{self.path} can't be read.", hint="Restore it from version control, or remove it.")
        if version != self.version:
            what = f"{self.path} has version {version!r}; version {self.version} is known here."
            raise Invalid(what, hint="Use 'npx skills' for what it lists.")
        return dict(contents)


class _LockfileChangedError(Exception):
    """Raised when another program wrote the file between reading and writing."""


def _copy_entries(contents: Mapping[str, Any]) -> dict[str, NpxLockEntry]:
    return {name: dict(entry) for name, entry in contents["skills"].items()}


def get_global_npx_lockfile(user_home: Path, environ: Mapping[str, str]) -> NpxLockfile:
    """Return the lockfile of skills installed for the user."""
    state = environ.get("XDG_STATE_HOME")
    folder = Path(state) / "skills" if state else user_home / ".agents"
    return NpxLockfile(path=folder / ".skill-lock.json", version=GLOBAL_VERSION)


def get_project_npx_lockfile(folder: Path) -> NpxLockfile:
    """Return the lockfile of a project folder."""
    return NpxLockfile(path=folder / PROJECT_FILE, version=PROJECT_VERSION)


def get_fetch_address(entry: NpxLockEntry, folder: Path) -> str:
    """Return the address to fetch a skill from, as `skills add` accepts it; empty if it comes with a package."""
    if entry.get("sourceType") == "node_modules":
        return ""
    if entry.get("sourceType") == "github":
        return str(entry.get("source", ""))  # OWNER/REPO
    address = str(entry.get("sourceBaseUrl") or entry.get("sourceUrl") or entry.get("source") or "")
    if entry.get("sourceType") == "well-known":
        # Some versions write the address of the skill's file instead of its site's.
        address = address.partition("/.well-known/")[0]
    return str((folder / address).resolve()) if entry.get("sourceType") == "local" else remove_credentials(address)


def build_npx_source_fields(repository: str, branch: str, folder: Path) -> NpxLockEntry:
    """Return the fields that name a repository, folder or site, as `npx skills` writes them."""
    at = urlsplit(repository)
    if at.scheme in ("http", "https") and at.hostname == "github.com":
        named: NpxLockEntry = {"source": at.path.strip("/").removesuffix(".git")}
        kind = "github"
    elif "://" in repository or "@" in repository:
        named = {"source": repository, "sourceUrl": repository}
        kind = "gitlab" if at.hostname == "gitlab.com" else "git"
    else:
        relative = Path(os.path.relpath(repository, folder)).as_posix()
        named = {"source": relative if relative == "." or relative.startswith("..") else f"./{relative}"}
        kind = "local"
    return {**named, **({"ref": branch} if branch else {}), "sourceType": kind}


def compute_npx_hash(folder: Path) -> str:
    """Return the hash that `npx skills` stores: SHA-256 over path and content of each file, without links."""
    digest = hashlib.sha256()
    # The hash depends on the order, which is that of JavaScript's localeCompare.
    for path in sorted(_list_files(folder, folder), key=_make_collation_key):
        digest.update(path.encode("utf-8", "surrogateescape"))
        digest.update((folder / path).read_bytes())
    return digest.hexdigest()


def _list_files(top: Path, folder: Path) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIPPED:
                yield from _list_files(top, Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path).relative_to(top).as_posix()


def _make_collation_key(path: str) -> tuple[list[tuple[int, str]], list[str], list[bool]]:
    """Sort by letters, then accents, then small before capital; exact for ASCII, approximate for other letters."""
    parts = [char for char in unicodedata.normalize("NFKD", path) if char >= " "]
    letters = [char for char in parts if not unicodedata.combining(char)]
    primary = [(_COLLATION_ORDER.find(char) if char in _COLLATION_ORDER else 99, char.casefold()) for char in letters]
    return primary, [char for char in parts if unicodedata.combining(char)], [char.isupper() for char in letters]


def compute_git_tree_hash(folder: Path) -> str:
    """Return git's tree hash of a folder, which the global lockfile stores for GitHub sources."""
    rows = []
    for entry in os.scandir(folder):
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.name == ".git":
            continue
        if entry.is_symlink():
            rows.append((entry.name, "120000", _compute_git_blob_hash(os.fsencode(Path(entry.path).readlink()))))
        elif entry.is_dir():
            rows.append((f"{entry.name}/", "40000", compute_git_tree_hash(Path(entry.path))))
        else:
            kind = "100755" if mode & stat.S_IXUSR else "100644"
            rows.append((entry.name, kind, _compute_git_blob_hash(Path(entry.path).read_bytes())))
    # Git sorts directories as if their names ended in a slash.
    rows.sort(key=lambda row: os.fsencode(row[0]))
    tree = b"".join(
        f"{mode} ".encode() + os.fsencode(name.rstrip("/")) + b"\0" + bytes.fromhex(id) for name, mode, id in rows
    )
    return hashlib.sha1(b"tree %d\0" % len(tree) + tree, usedforsecurity=False).hexdigest()


def _compute_git_blob_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
