"""Trust in content from outside: a person trusts what a project's skills say and can do now, and no more than that.

A skill that changed since follows only when a scan finds nothing and it gained no script and no permission.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.files import Tree, tree_hash
from habitus.skills.powers import powers
from habitus.skills.tables import trusted

IMPORTED = "imported"  # the root under which imported skills are trusted one by one
APPROVED = "approved"  # the root under which the code of one's own skills is approved, one by one
PACKAGES = "packages for "  # how the roots begin under which a project's packages are allowed, one by one
_ONE_BY_ONE = (IMPORTED, APPROVED, PACKAGES)
_REVISION = sa.select(sa.func.count(), sa.func.max(trusted.c.trusted_on))

Scan = Callable[[Tree], Sequence[str]]  # what a person must see before they trust it, one text each


@dataclass(frozen=True, kw_only=True, slots=True)
class Trusted:
    """What was trusted under one root."""

    root: str
    names: tuple[str, ...]
    trusted_on: datetime
    trusted_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Record:
    tree_hash: str
    powers: frozenset[str]  # their texts


class Trust:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], scan: Scan) -> None:
        self._engine = engine
        self._clock = clock
        self._scan = scan
        self._lock = threading.RLock()
        self._known: dict[str, dict[str, _Record]] = {}
        self._seen: tuple[int, str] = (-1, "")
        self._followed: dict[tuple[str, str, str], str] = {}

    def trust(self, root: str, skills: Mapping[str, Tree], by: str, *, adds: bool = False) -> None:
        """Trust these skills of a root as they are; what was trusted there before is forgotten unless this adds."""
        now = self._clock()
        values = [
            {
                "root": root,
                "name": name,
                "tree_hash": tree_hash(tree),
                "powers": json.dumps(sorted(map(str, powers(name, tree))), ensure_ascii=False),
                "trusted_on": now,
                "trusted_by": by,
            }
            for name, tree in skills.items()
        ]
        whole = {"root": root, "name": "", "tree_hash": "", "powers": "[]", "trusted_on": now, "trusted_by": by}
        with sql.writing(self._engine, durable=True, lock="trust") as connection:
            if adds or root.startswith(_ONE_BY_ONE):
                gone = trusted.delete().where(trusted.c.root == root, trusted.c.name.in_([*skills, ""]))
            else:
                gone = trusted.delete().where(trusted.c.root == root)
            connection.execute(gone)
            connection.execute(trusted.insert(), [whole, *values])

    def revoke(self, root: str, name: str | None = None) -> bool:
        """Trust it no longer; False when it was not trusted."""
        query = trusted.delete().where(trusted.c.root == root)
        if name is not None:
            query = query.where(trusted.c.name == name)
        with sql.writing(self._engine, durable=True, lock="trust") as connection:
            return connection.execute(query).rowcount > 0

    def names(self, root: str) -> tuple[str, ...]:
        """What is trusted under a root by now, also by another process."""
        return tuple(sorted(name for name in self._read(root) if name))

    def list(self) -> list[Trusted]:
        query = sa.select(trusted).order_by(trusted.c.root, trusted.c.name)
        found: dict[str, list[sa.RowMapping]] = {}
        with sql.reading(self._engine) as connection:
            for row in connection.execute(query).mappings():
                found.setdefault(row["root"], []).append(row)
        return [
            Trusted(
                root=root,
                names=tuple(row["name"] for row in rows if row["name"]),
                trusted_on=max(row["trusted_on"] for row in rows),
                trusted_by=rows[0]["trusted_by"],
            )
            for root, rows in found.items()
            if not root.startswith(_ONE_BY_ONE) or len(rows) > 1
        ]

    def revision(self) -> tuple[int, str]:
        """Changes whenever somebody trusts or revokes something."""
        with sql.reading(self._engine) as connection:
            count, newest = connection.execute(_REVISION).one()
        seen = (int(count), str(newest or ""))
        with self._lock:
            if seen != self._seen:
                self._known.clear()
                self._followed.clear()
                self._seen = seen
        return seen

    def objection(self, root: str, name: str, digest: str, read: Callable[[], Tree]) -> str:
        """Why a skill of this root is not trusted as it is now; nothing when it is."""
        known = self._records(root)
        record = known.get(name)
        if root == APPROVED and record is None:
            return f"nobody has approved its code; see 'habitus trust {name}'"
        if not known:
            return "the project it belongs to is not trusted; see 'habitus trust'"
        if record is not None and record.tree_hash == digest:
            return ""
        key = (root, name, digest)
        with self._lock:
            if key not in self._followed:
                self._followed[key] = self._objection_to_change(root, name, record, read())
            return self._followed[key]

    def is_trusted_as_it_is(self, root: str, name: str, digest: str) -> bool:
        record = self._records(root).get(name)
        return record is not None and record.tree_hash == digest

    def _objection_to_change(self, root: str, name: str, record: _Record | None, tree: Tree) -> str:
        known = record.powers if record is not None else frozenset()
        new = sorted(text for power in powers(name, tree) if (text := str(power)) not in known)
        what = "changed" if record is not None else "new"
        since, mend = "the project was trusted", "habitus trust"
        if root == APPROVED:
            since, mend = "its code was approved", f"habitus trust {name}"
        if new:
            return f"{what} since {since}, and it {new[0]}; see '{mend}'"
        findings = self._scan(tree)
        return f"{what} since {since}: {findings[0]}; see '{mend}'" if findings else ""

    def _records(self, root: str) -> dict[str, _Record]:
        with self._lock:
            if root not in self._known:
                self._known[root] = self._read(root)
            return self._known[root]

    def _read(self, root: str) -> dict[str, _Record]:
        query = sa.select(trusted).where(trusted.c.root == root)
        with sql.reading(self._engine) as connection:
            return {
                row["name"]: _Record(tree_hash=row["tree_hash"], powers=frozenset(json.loads(row["powers"])))
                for row in connection.execute(query).mappings()
            }
