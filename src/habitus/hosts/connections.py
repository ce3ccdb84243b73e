"""Connections on disk: the entries written to each file, its contents before, and how to restore them byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

from habitus.errors import Invalid, Refused, Stale, StorageFailed
from habitus.files import translate_disk_errors, write_atomically
from habitus.hosts import config_editing
from habitus.hosts.config_editing import ConfigEntry, ConfigFormat, ConfigStateBeforeOurEntries
from habitus.hosts.config_outlines import outline_config_hiding_foreign_values
from habitus.locks import hold_lock

# In the home.
CONNECTIONS_FOLDER = "connections"
_MAX_FILE_BYTES = 64 << 20
# An agent may rewrite its file between our read and our write.
_MAX_ATTEMPTS = 20


class _FileRewrittenError(Stale):
    """The file changed between reading and writing it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigEditRequest:
    """The entries that a file of an agent should contain; without any, ours are removed."""

    agent: str
    file: Path
    format: ConfigFormat
    entries: tuple[ConfigEntry, ...] = ()
    versions: tuple[str, tuple[int, ...]] = ("", ())
    # A new file is readable only for the user.
    is_private: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFileChange:
    """The current and the planned content of a file; None if it does not exist."""

    request: ConfigEditRequest
    current: bytes | None
    planned: bytes | None
    # The content without any of our entries.
    clean: bytes | None
    previous: ConfigStateBeforeOurEntries
    # Those to be written and those written earlier; only their values are shown.
    entries: tuple[ConfigEntry, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether the file would change."""
        return self.current != self.planned

    @property
    def diff(self) -> str:
        """The difference between the outlines of both contents: our entries whole, values of others hidden."""
        before, after = (
            outline_config_hiding_foreign_values(
                (content or b"").decode("utf-8", "replace"), self.request.format, self.entries
            )
            for content in (self.current, self.planned)
        )
        name = str(self.request.file)
        return "\n".join(unified_diff(before, after, name, name, "now", "then", lineterm=""))


class AgentConfigEditor:
    """Plans and applies the connections of one home.

    A record is written before its file, so a crash can be reverted.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / CONNECTIONS_FOLDER

    def plan_change(self, request: ConfigEditRequest) -> ConfigFileChange:
        """Plan a change: first our earlier entries are removed, then the requested ones are added."""
        now = _read_file(request.file)
        if not request.entries and self._list_other_agents_sharing_file(request):
            return ConfigFileChange(
                request=request,
                current=now,
                planned=now,
                clean=now,
                previous=ConfigStateBeforeOurEntries(replaced={}, missing=()),
            )
        try:
            clean = self._build_content_without_own_entries(request.file, now)
            text = (clean or b"").decode()
            _refuse_unknown_config_version(config_editing.parse_config_text(text, request.format), request.versions)
            was = config_editing.extract_config_state_before_entries(text, request.format, request.entries)
            then = (
                config_editing.add_entries_to_config_text(text, request.format, request.entries).encode()
                if request.entries
                else clean
            )
        except UnicodeDecodeError:
            raise Invalid(f"{request.file} is not UTF-8.", hint="Nothing was changed.") from None
        except Invalid as error:
            raise Invalid(f"{request.file} can't be edited: {error.message}.", hint="Nothing was changed.") from None
        entries = (*request.entries, *self._list_recorded_entries(request.file))
        return ConfigFileChange(request=request, current=now, planned=then, clean=clean, previous=was, entries=entries)

    def _list_recorded_entries(self, file: Path) -> list[ConfigEntry]:
        return (
            [_parse_recorded_entry(one) for one in self._read_record(file)["entries"]]
            if self.has_recorded_change_of_file(file)
            else []
        )

    def apply_change(self, change: ConfigFileChange) -> None:
        """Apply the change to the present content of the file, which an agent may have rewritten since the plan."""
        file = change.request.file
        if not change.has_changes:
            if not self.has_recorded_change_of_file(file):
                return
            if change.request.entries:
                self._update_recorded_agents(change.request)
            else:
                self._remove_agent_from_record(change.request)
            return
        made = _list_missing_folders(file.parent) if change.request.entries else ()
        with lock_folder(file.parent):
            for left in reversed(range(_MAX_ATTEMPTS)):
                try:
                    self._write_config_and_record(change, made)
                    return
                except _FileRewrittenError:
                    if not left:
                        raise

    def _write_config_and_record(self, planned: ConfigFileChange, made: Sequence[Path]) -> None:
        wanted, again = planned.request, self.plan_change(planned.request)
        if not again.has_changes:
            # Another process has made the same change.
            return
        # The user has not seen these values in the diff.
        if again.previous.replaced != planned.previous.replaced:
            raise Stale(f"{wanted.file} was changed meanwhile.", hint="Nothing was done; look at the difference again.")
        _refuse_read_only_file(wanted.file)
        if wanted.entries:
            self._write_backup_and_record(again, made)
        _replace_or_remove_file(
            wanted.file,
            again.planned,
            is_private=wanted.is_private,
            check=partial(_refuse_file_changed_since_read, wanted.file, again.current),
        )
        if not wanted.entries:
            self._remove_agent_from_record(wanted)

    def has_recorded_change_of_file(self, file: Path) -> bool:
        """Whether we have changed the file."""
        return self._get_record_path(file).exists()

    def is_connected(self, request: ConfigEditRequest) -> bool:
        """Whether the agent has entries of ours in the file."""
        return (
            self.has_recorded_change_of_file(request.file)
            and request.agent in self._read_record(request.file)["agents"]
        )

    def _list_other_agents_sharing_file(self, wanted: ConfigEditRequest) -> list[str]:
        """Return the other agents that use our entries in this file: several share one file with instructions."""
        agents = self._read_record(wanted.file)["agents"] if self.has_recorded_change_of_file(wanted.file) else []
        return [one for one in agents if one != wanted.agent]

    def _update_recorded_agents(self, wanted: ConfigEditRequest, *, leaves: bool = False) -> None:
        agents = sorted({*self._list_other_agents_sharing_file(wanted), *(() if leaves else (wanted.agent,))})
        self._write_record(wanted.file, {**self._read_record(wanted.file), "agents": agents})

    def backup_path(self, file: Path) -> Path:
        """Return the path of the backup from before the file was connected."""
        return self._get_record_path(file).with_suffix(".before")

    def _build_content_without_own_entries(self, file: Path, now: bytes | None) -> bytes | None:
        """Return the file without our entries.

        That is the backup if only we changed it, otherwise the present text without them.
        """
        if now is None or not self.has_recorded_change_of_file(file):
            return now
        kept = self._read_record(file)
        if _hash_content(now) == kept["then"]:
            return None if kept["was_missing"] else self.backup_path(file).read_bytes()
        if _hash_content(now) == kept["clean"]:
            return now
        entries, format = self._list_recorded_entries(file), ConfigFormat(kept["format"])
        was = ConfigStateBeforeOurEntries(
            replaced={tuple(path): value for path, value in kept["replaced"]},
            missing=tuple(tuple(path) for path in kept["missing"]),
        )
        return config_editing.remove_entries_from_config_text(now.decode(), format, entries, was).encode()

    def _write_backup_and_record(self, change: ConfigFileChange, made: Sequence[Path]) -> None:
        wanted = change.request
        earlier = self._read_record(wanted.file) if self.has_recorded_change_of_file(wanted.file) else {}
        kept = {
            "file": str(wanted.file),
            "agents": sorted({wanted.agent, *earlier.get("agents", ())}),
            "format": wanted.format.value,
            "was_missing": change.clean is None,
            "made_folders": earlier.get("made_folders") or [str(folder) for folder in made],
            "clean": _hash_content(change.clean or b""),
            "then": _hash_content(change.planned or b""),
            "entries": [{"path": one.path, "value": one.value, "is_item": one.is_item} for one in wanted.entries],
            "replaced": [[path, value] for path, value in change.previous.replaced.items()],
            "missing": change.previous.missing,
        }
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace_or_remove_file(self.backup_path(wanted.file), change.clean or b"")
        self._write_record(wanted.file, kept)

    def _write_record(self, file: Path, kept: dict[str, Any]) -> None:
        _replace_or_remove_file(self._get_record_path(file), (json.dumps(kept, indent=2) + "\n").encode())

    def _remove_agent_from_record(self, wanted: ConfigEditRequest) -> None:
        file, kept = wanted.file, self._read_record(wanted.file)
        if self._list_other_agents_sharing_file(wanted):
            self._update_recorded_agents(wanted, leaves=True)
            return
        self._get_record_path(file).unlink()
        self.backup_path(file).unlink(missing_ok=True)
        for folder in kept["made_folders"]:
            # Not empty: something else uses the folder by now.
            with suppress(OSError):
                Path(folder).rmdir()

    def _read_record(self, file: Path) -> dict[str, Any]:
        record = self._get_record_path(file)
        try:
            kept: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StorageFailed(f"Can't read {record}: {error}.", hint="Its backup is next to it.") from None
        return kept

    def _get_record_path(self, file: Path) -> Path:
        digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self._folder / f"{digest}-{file.name.lstrip('.')}.json"


def _parse_recorded_entry(kept: dict[str, Any]) -> ConfigEntry:
    return ConfigEntry(path=tuple(kept["path"]), value=kept["value"], is_item=kept["is_item"])


def _refuse_unknown_config_version(said: object, versions: tuple[str, tuple[int, ...]]) -> None:
    key, known = versions
    found = said.get(key) if isinstance(said, dict) and key else None
    if found is not None and found not in known:
        raise Invalid(f"it is of version {found!r}, which is not known here")


def _read_file(file: Path) -> bytes | None:
    try:
        if file.stat().st_size > _MAX_FILE_BYTES or not file.is_file():
            raise Invalid(f"{file} is not a config: it is a folder, or larger than {_MAX_FILE_BYTES >> 20} MB.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed(f"Can't read {file}: {error.strerror}.", hint="Check its permissions.") from None


def _refuse_read_only_file(file: Path) -> None:
    """Refuse a file without write permission: replacing it would be possible, but is not what its owner meant."""
    if file.exists() and not file.stat().st_mode & 0o222:
        raise Refused(f"{file} is read-only.", hint=f"Nothing was changed. Allow it with: chmod u+w {file}")


def _refuse_file_changed_since_read(file: Path, content: bytes | None) -> None:
    if _read_file(file) != content:
        raise _FileRewrittenError(
            f"{file} is rewritten all the time.", hint="Nothing was done; end the agent, and try again."
        )


def _replace_or_remove_file(
    file: Path, content: bytes | None, *, is_private: bool = True, check: Callable[[], None] = lambda: None
) -> None:
    """Replace the file atomically, or remove it if the content is None."""
    if content is None:
        check()
        with translate_disk_errors(file):
            file.unlink()
    else:
        write_atomically(file, content, mode=None if is_private or file.exists() else 0o644, check=check)


def _list_missing_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders that have to be created, the deepest first."""
    return tuple(one for one in (folder, *folder.parents) if not one.exists())


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against changes by other processes, of any home."""
    with translate_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder):
        yield


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
