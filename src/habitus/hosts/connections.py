"""Connections on disk: the entries written to each file, its contents before, and how to restore them byte for byte."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

from habitus.errors import Invalid, Refused, Stale, StorageFailed
from habitus.files import disk_errors, write_whole
from habitus.hosts import editing
from habitus.hosts.editing import Before, Entry, Format
from habitus.locks import lock

# In the home.
FOLDER = "connections"
_LARGEST = 64 << 20
# An agent may rewrite its file between our read and our write.
_TRIES = 20


class _Rewritten(Stale):
    """The file changed between reading and writing it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The entries that a file of an agent should contain; without any, ours are removed."""

    agent: str
    file: Path
    format: Format
    entries: tuple[Entry, ...] = ()
    versions: tuple[str, tuple[int, ...]] = ("", ())
    # A new file is readable only for the user.
    is_private: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The current and the planned content of a file; None if it does not exist."""

    wanted: Wanted
    now: bytes | None
    then: bytes | None
    # The content without any of our entries.
    clean: bytes | None
    was: Before

    @property
    def is_one(self) -> bool:
        """Whether the file would change."""
        return self.now != self.then

    @property
    def diff(self) -> str:
        """The unified diff, with values that are not ours hidden."""
        before, after = ((content or b"").decode("utf-8", "replace") for content in (self.now, self.then))
        name = str(self.wanted.file)
        now, then = before.splitlines(), after.splitlines()
        lines = unified_diff(now, then, name, name, "now", "then", lineterm="")
        # Unchanged lines may hold a key of another server, so their values are hidden.
        others = {line.strip().rstrip(",") for line in now} & {line.strip().rstrip(",") for line in then}
        return "\n".join(_without_value(line) if line[1:].strip().rstrip(",") in others else line for line in lines)


_VALUE = re.compile(r"""(^[ +-]\s*|[:=]\s*)("[^"]*"|'[^']*'|[^\s"'{}\[\],:=]+)(,?)$""")


def _without_value(line: str) -> str:
    """Hide the value of a line that is not ours, because it may be a key."""
    return _VALUE.sub(r'\1"…"\3', line)


class Connections:
    """Plans and applies the connections of one home.

    A record is written before its file, so a crash can be reverted.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def plan(self, wanted: Wanted) -> Change:
        """Plan a change: first our earlier entries are removed, then the requested ones are added."""
        now = _read(wanted.file)
        if not wanted.entries and self._others(wanted):
            return Change(wanted=wanted, now=now, then=now, clean=now, was=Before(replaced={}, missing=()))
        try:
            clean = self._undone(wanted.file, now)
            text = (clean or b"").decode()
            _check_version(editing.data(text, wanted.format), wanted.versions)
            was = editing.before(text, wanted.format, wanted.entries)
            then = editing.apply_entries(text, wanted.format, wanted.entries).encode() if wanted.entries else clean
        except UnicodeDecodeError:
            raise Invalid(f"{wanted.file} is not UTF-8.", hint="Nothing was changed.") from None
        except Invalid as error:
            raise Invalid(f"{wanted.file} can't be edited: {error.message}.", hint="Nothing was changed.") from None
        return Change(wanted=wanted, now=now, then=then, clean=clean, was=was)

    def carry_out(self, change: Change) -> None:
        """Apply the change to the present content of the file, which an agent may have rewritten since the plan."""
        file = change.wanted.file
        if not change.is_one:
            if not self.knows(file):
                return
            if change.wanted.entries:
                self._share(change.wanted)
            else:
                self._forget(change.wanted)
            return
        made = _missing_folders(file.parent) if change.wanted.entries else ()
        with lock_folder(file.parent):
            for left in reversed(range(_TRIES)):
                try:
                    self._write_change(change, made)
                    return
                except _Rewritten:
                    if not left:
                        raise

    def _write_change(self, planned: Change, made: Sequence[Path]) -> None:
        wanted, again = planned.wanted, self.plan(planned.wanted)
        if not again.is_one:
            # Another process has made the same change.
            return
        # The user has not seen these values in the diff.
        if again.was.replaced != planned.was.replaced:
            raise Stale(f"{wanted.file} was changed meanwhile.", hint="Nothing was done; look at the difference again.")
        _refuse_read_only(wanted.file)
        if wanted.entries:
            self._keep(again, made)
        _write(wanted.file, again.then, is_private=wanted.is_private, check=partial(_check_is, wanted.file, again.now))
        if not wanted.entries:
            self._forget(wanted)

    def knows(self, file: Path) -> bool:
        """Whether we have changed the file."""
        return self._record(file).exists()

    def is_connected(self, wanted: Wanted) -> bool:
        """Whether the agent has entries of ours in the file."""
        return self.knows(wanted.file) and wanted.agent in self._read_record(wanted.file)["agents"]

    def _others(self, wanted: Wanted) -> list[str]:
        """Return the other agents that use our entries in this file: several share one file with instructions."""
        agents = self._read_record(wanted.file)["agents"] if self.knows(wanted.file) else []
        return [one for one in agents if one != wanted.agent]

    def _share(self, wanted: Wanted, *, leaves: bool = False) -> None:
        agents = sorted({*self._others(wanted), *(() if leaves else (wanted.agent,))})
        self._write_record(wanted.file, {**self._read_record(wanted.file), "agents": agents})

    def backup(self, file: Path) -> Path:
        """Return the path of the backup from before the file was connected."""
        return self._record(file).with_suffix(".before")

    def _undone(self, file: Path, now: bytes | None) -> bytes | None:
        """Return the file without our entries.

        That is the backup if only we changed it, otherwise the present text without them.
        """
        if now is None or not self.knows(file):
            return now
        kept = self._read_record(file)
        if _digest(now) == kept["then"]:
            return None if kept["was_missing"] else self.backup(file).read_bytes()
        if _digest(now) == kept["clean"]:
            return now
        entries, format = [_entry(one) for one in kept["entries"]], Format(kept["format"])
        was = Before(
            replaced={tuple(path): value for path, value in kept["replaced"]},
            missing=tuple(tuple(path) for path in kept["missing"]),
        )
        return editing.taken_out(now.decode(), format, entries, was).encode()

    def _keep(self, change: Change, made: Sequence[Path]) -> None:
        wanted = change.wanted
        earlier = self._read_record(wanted.file) if self.knows(wanted.file) else {}
        kept = {
            "file": str(wanted.file),
            "agents": sorted({wanted.agent, *earlier.get("agents", ())}),
            "format": wanted.format.value,
            "was_missing": change.clean is None,
            "made_folders": earlier.get("made_folders") or [str(folder) for folder in made],
            "clean": _digest(change.clean or b""),
            "then": _digest(change.then or b""),
            "entries": [{"path": one.path, "value": one.value, "is_item": one.is_item} for one in wanted.entries],
            "replaced": [[path, value] for path, value in change.was.replaced.items()],
            "missing": change.was.missing,
        }
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self.backup(wanted.file), change.clean or b"")
        self._write_record(wanted.file, kept)

    def _write_record(self, file: Path, kept: dict[str, Any]) -> None:
        _write(self._record(file), (json.dumps(kept, indent=2) + "\n").encode())

    def _forget(self, wanted: Wanted) -> None:
        file, kept = wanted.file, self._read_record(wanted.file)
        if self._others(wanted):
            self._share(wanted, leaves=True)
            return
        self._record(file).unlink()
        self.backup(file).unlink(missing_ok=True)
        for folder in kept["made_folders"]:
            # Not empty: something else uses the folder by now.
            with suppress(OSError):
                Path(folder).rmdir()

    def _read_record(self, file: Path) -> dict[str, Any]:
        record = self._record(file)
        try:
            kept: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StorageFailed(f"Can't read {record}: {error}.", hint="Its backup lies beside it.") from None
        return kept

    def _record(self, file: Path) -> Path:
        digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self._folder / f"{digest}-{file.name.lstrip('.')}.json"


def _entry(kept: dict[str, Any]) -> Entry:
    return Entry(path=tuple(kept["path"]), value=kept["value"], is_item=kept["is_item"])


def _check_version(said: object, versions: tuple[str, tuple[int, ...]]) -> None:
    key, known = versions
    found = said.get(key) if isinstance(said, dict) and key else None
    if found is not None and found not in known:
        raise Invalid(f"it is of version {found!r}, which is not known here")


def _read(file: Path) -> bytes | None:
    try:
        if file.stat().st_size > _LARGEST or not file.is_file():
            raise Invalid(f"{file} is not a config: it is a folder, or larger than {_LARGEST >> 20} MB.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint="Check its permissions.") from None


def _refuse_read_only(file: Path) -> None:
    """Refuse a file without write permission: replacing it would be possible, but is not what its owner meant."""
    if file.exists() and not file.stat().st_mode & 0o222:
        raise Refused(f"{file} is read-only.", hint=f"Nothing was changed. Allow it with: chmod u+w {file}")


def _check_is(file: Path, content: bytes | None) -> None:
    if _read(file) != content:
        raise _Rewritten(f"{file} is rewritten all the time.", hint="Nothing was done; end the agent, and try again.")


def _write(
    file: Path, content: bytes | None, *, is_private: bool = True, check: Callable[[], None] = lambda: None
) -> None:
    """Replace the file atomically, or remove it if the content is None."""
    if content is None:
        check()
        with disk_errors(file):
            file.unlink()
    else:
        write_whole(file, content, mode=None if is_private or file.exists() else 0o644, check=check)


def _missing_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders that have to be created, the deepest first."""
    return tuple(one for one in (folder, *folder.parents) if not one.exists())


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against changes by other processes, of any home."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        yield


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
