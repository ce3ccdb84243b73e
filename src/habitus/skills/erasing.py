"""Erasing a person from skills: past versions and archived skills of theirs, proposals, and their name under the rest.

A skill that is in use stays, for it is everybody's; who wrote it is no longer said.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sqlalchemy as sa

from habitus.skills.formats.tool_json import recorded_in
from habitus.skills.stores import records
from habitus.skills.stores.tables import blobs, counters, intents, proposals, skills, switches, versions
from habitus.skills.trees import TOOL_FILE

NOBODY = "forgotten"  # the name under what somebody did who was erased
_AT_A_TIME = 500

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """What one database knows of somebody: keys of rows, and where archived files of theirs lie."""

    past: tuple[tuple[int, int], ...]  # skill and number of versions that have been replaced
    archived: tuple[int, ...]
    folders: tuple[str, ...]  # of those, below the archive
    present: tuple[str, ...]  # skills of theirs that are in use
    proposals: tuple[int, ...]
    decisions: tuple[int, ...]  # proposals of others that they decided
    signed_versions: tuple[tuple[int, int], ...]
    signed_switches: tuple[int, ...]
    signed_archived: tuple[int, ...]

    @property
    def signatures(self) -> int:
        return len((*self.decisions, *self.signed_versions, *self.signed_switches, *self.signed_archived))


def traces(connection: sa.Connection, names: Collection[str], conversations: Collection[str]) -> Traces:
    """`names` are how they sign, `conversations` those in which proposals were made for them."""
    theirs = _is_signed_by(versions.c.author, names)
    columns = (skills.c.name, skills.c.version, skills.c.archived_on, skills.c.archived_as)
    query = sa.select(versions.c.skill, versions.c.number, versions.c.tree, *columns).join(skills)
    with_tool = versions.c.tree.contains(f'"{TOOL_FILE}"', autoescape=True)
    quoting = [
        row
        for row in connection.execute(query.where(with_tool, sa.not_(theirs)))
        if _has_recorded(connection, row.tree, conversations)
        and (row.number != row.version or row.archived_on is not None)
    ]
    made = [*connection.execute(query.where(theirs)), *quoting]
    newest = [row for row in made if row.number == row.version]
    archived = {row.skill: row.archived_as for row in newest if row.archived_on is not None}
    present = [row for row in newest if row.archived_on is None]
    past = [(row.skill, row.number) for row in made if row.number != row.version and row.skill not in archived]
    switched = connection.execute(
        sa.select(switches.c.id, switches.c.skill).where(_is_signed_by(switches.c.author, names))
    )
    put_away = connection.execute(sa.select(skills.c.id).where(_is_signed_by(skills.c.archived_by, names))).scalars()
    wrote = connection.execute(sa.select(proposals.c.id).where(_is_signed_by(proposals.c.author, names))).scalars()
    with_tool = proposals.c.tree.contains(f'"{TOOL_FILE}"', autoescape=True)
    talked = connection.execute(
        sa.select(proposals.c.id, proposals.c.conversation, proposals.c.tree).where(
            sa.or_(proposals.c.conversation != "", with_tool)
        )
    ).all()
    proposed = {
        *wrote,
        *(row.id for row in talked if row.conversation in conversations),
        *(row.id for row in talked if row.tree and _has_recorded(connection, row.tree, conversations)),
    }
    decided = connection.execute(sa.select(proposals.c.id).where(proposals.c.decided_by.in_(names))).scalars()
    return Traces(
        past=tuple(past),
        archived=tuple(archived),
        folders=tuple(folder for folder in archived.values() if folder),
        present=tuple(sorted({row.name for row in present})),
        proposals=tuple(sorted(proposed)),
        decisions=tuple(id for id in decided if id not in proposed),
        signed_versions=tuple((row.skill, row.number) for row in present),
        signed_switches=tuple(row.id for row in switched if row.skill not in archived),
        signed_archived=tuple(id for id in put_away if id not in archived),
    )


def _has_recorded(connection: sa.Connection, tree: str, conversations: Collection[str]) -> bool:
    """Whether a tool among these files keeps cases that were recorded in these conversations."""
    file = records.unpack_tree(tree).get(TOOL_FILE)
    if file is None or not conversations:
        return False
    packed = connection.execute(sa.select(blobs.c.packed).where(blobs.c.sha256 == file.sha256)).scalar()
    return packed is not None and recorded_in(zlib.decompress(packed), conversations) > 0


def erase(connection: sa.Connection, found: Traces, also: Collection[str] = ()) -> None:
    """Take all of it away; contents that nothing else needs go, too, and so do `also`, by their hashes."""
    trees = _trees(connection, versions.c.tree, _these(found.past))
    trees += _trees(connection, versions.c.tree, [versions.c.skill.in_(part) for part in _parts(found.archived)])
    for column in (proposals.c.tree, proposals.c.base):
        trees += _trees(connection, column, _ids(found.proposals))
    for where in _these(found.past):
        connection.execute(versions.delete().where(where))
    for part in _parts(found.archived):
        for table in (versions, switches, counters):
            connection.execute(table.delete().where(table.c.skill.in_(part)))
        connection.execute(skills.delete().where(skills.c.id.in_(part)))
    for where in _ids(found.proposals):
        connection.execute(proposals.delete().where(where))
    for where in _ids(found.decisions):
        connection.execute(proposals.update().where(where).values(decided_by=NOBODY, decision=""))
    _unsign(connection, versions.c.author, _these(found.signed_versions))
    _unsign(connection, switches.c.author, [switches.c.id.in_(part) for part in _parts(found.signed_switches)])
    _unsign(connection, skills.c.archived_by, [skills.c.id.in_(part) for part in _parts(found.signed_archived)])
    _sweep(connection, {sha256 for tree in trees for sha256 in _contents(tree)} | set(also))


def _is_signed_by(author: sa.Column[str], names: Collection[str]) -> sa.ColumnElement[bool]:
    """Whether somebody signed it, by how authors are written down."""
    begins = [f'["user", {json.dumps(name, ensure_ascii=False)}, ' for name in names]
    return sa.or_(*(author.startswith(begin, autoescape=True) for begin in begins))


def _unsign(connection: sa.Connection, author: sa.Column[str], where: Iterable[sa.ColumnElement[bool]]) -> None:
    """Leave which change it was part of, so that it can be taken back, and nobody's name or words."""
    table = author.table
    assert isinstance(table, sa.Table)
    keys = list(table.primary_key)
    for some in where:
        for row in connection.execute(sa.select(*keys, author).where(some)).all():
            unsigned = replace(records.unpack_author(row[-1]), name=NOBODY, reason="")
            mine = [key == value for key, value in zip(keys, row[:-1], strict=True)]
            connection.execute(table.update().where(*mine).values({author.name: records.pack_author(unsigned)}))


def _sweep(connection: sa.Connection, candidates: Collection[str]) -> None:
    """Drop the contents that no version, proposal or unfinished change needs."""
    if not candidates:
        return
    needed = {
        sha256
        for column in (versions.c.tree, proposals.c.tree, proposals.c.base)
        for tree in _trees(connection, column)
        for sha256 in _contents(tree)
    }
    plans = connection.execute(sa.select(intents.c.plan)).scalars().all()
    gone = [one for one in candidates if one not in needed and not any(one in plan for plan in plans)]
    for part in _parts(gone):
        connection.execute(blobs.delete().where(blobs.c.sha256.in_(part)))


def _trees(
    connection: sa.Connection, tree: sa.Column[Any], where: Iterable[sa.ColumnElement[bool]] = (sa.true(),)
) -> list[str]:
    query = sa.select(tree).where(tree.is_not(None))
    return [found for some in where for found in connection.execute(query.where(some)).scalars()]


def _contents(tree: str) -> list[str]:
    return [file.sha256 for file in records.unpack_tree(tree).values()]


def _these(keys: Collection[tuple[int, int]]) -> list[sa.ColumnElement[bool]]:
    pairs = sa.tuple_(versions.c.skill, versions.c.number)
    return [pairs.in_(part) for part in _parts(keys)]


def _ids(ids: Collection[int]) -> list[sa.ColumnElement[bool]]:
    return [proposals.c.id.in_(part) for part in _parts(ids)]


def _parts(keys: Collection[T]) -> list[list[T]]:
    """As many at a time as a query may have."""
    listed = list(keys)
    return [listed[start : start + _AT_A_TIME] for start in range(0, len(listed), _AT_A_TIME)]
