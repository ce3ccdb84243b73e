"""Lockfiles for people and version control to read: `habitus-lock.json` says where each added skill came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from habitus.errors import Invalid, StorageFailed
from habitus.files import write_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kept = TypeVar("Kept", bound="DataclassInstance")

FILE = "habitus-lock.json"
_LOGIN = re.compile(r"^(?P<scheme>\w[\w+.-]*://)?(?P<login>[^/\s]*)@")
OLD_FILE = "skills-lock.json"  # what it was called; now that name is another tool's


@dataclass(frozen=True, kw_only=True, slots=True)
class Locked:
    """One added skill: what was asked for, what it was, and the hash of its files."""

    address: str
    commit: str
    origin: str
    tree_hash: str
    added_on: str
    digest: str = ""  # by the index of the site that it came from


def read(path: Path) -> dict[str, Locked]:
    locked = entries(path, Locked)
    return {name: replace(entry, address=without_login(entry.address)) for name, entry in locked.items()}


def origin_of(path: Path, name: str) -> str:
    """Where a skill was added from, in words; "" where the file does not know it."""
    known = read(path).get(name)
    if known is None:
        return ""
    return known.address if "://" in known.address else known.origin


def entries(path: Path, kind: type[Kept]) -> dict[str, Kept]:
    """Name → what a lockfile says of a skill."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): kind(**entry) for name, entry in data["skills"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid(f"{path} can't be read.", mend="Restore it from version control, or remove it.") from None
    except OSError as error:
        raise StorageFailed(f"Can't read {path}: {error.strerror}.", mend="Check its permissions.") from None


def write(path: Path, locked: Mapping[str, Kept]) -> None:
    """Replace the file whole: a reader sees the old one or the new one."""
    text = json.dumps({"version": 1, "skills": {name: asdict(locked[name]) for name in sorted(locked)}}, indent=2)
    write_whole(path, f"{text}\n".encode())


def without_login(address: str) -> str:
    """An address as it may be kept and shown. A token may stand where a user does, so both go; `git@` opens nothing."""
    found = _LOGIN.match(address)
    if found is None or (found["login"] == "git" or (found["scheme"] == "ssh://" and ":" not in found["login"])):
        return address
    return (found["scheme"] or "") + address[found.end() :]
