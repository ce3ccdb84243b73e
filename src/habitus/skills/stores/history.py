"""The history of a layer: the changes of a skill, the skills present at a timestamp, and the steps to restore
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa

from habitus.skills.model import Actor, History, Switched
from habitus.skills.stores.base import Changed, Step
from habitus.skills.stores.ledger import Ledger, Row
from habitus.skills.stores.tables import skills, switches, versions

_Happened = Sequence[tuple[Switched, datetime]]  # oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Then:
    """A skill as it was at a timestamp, and whether it is enabled now."""

    name: str
    version: int
    tree_hash: str
    was_enabled: bool
    is_enabled: bool


def changed_in(connection: sa.Connection, layer: str, change: str) -> list[Changed]:
    """Return every skill that a change touched, present or archived."""
    made = (
        sa.select(versions.c.skill, versions.c.number)
        .join(skills)
        .where(skills.c.layer == layer, _is_of(versions.c.author, change))
    )
    numbers: dict[int, list[int]] = {}
    for skill, number in connection.execute(made):
        numbers.setdefault(skill, []).append(number)
    done = sa.select(switches).join(skills).where(skills.c.layer == layer, _is_of(switches.c.author, change))
    moves: dict[int, list[Switched]] = {}
    for row in connection.execute(done.order_by(switches.c.id)):
        moves.setdefault(row.skill, []).append(Switched(row.action))
    found = sa.select(skills.c.id, skills.c.name).where(skills.c.layer == layer).order_by(skills.c.id)
    return [
        Changed(
            skill=id,
            name=name,
            first=min(numbers.get(id, [0])),
            last=max(numbers.get(id, [0])),
            switches=tuple(moves.get(id, ())),
        )
        for id, name in connection.execute(found)
        if id in numbers or id in moves
    ]


def _is_of(author: sa.Column[str], change: str) -> sa.ColumnElement[bool]:
    """Match authors that carry the id of a change."""
    # The change id is the last element of the author's JSON list.
    return author.endswith(f", {json.dumps(change)}]", autoescape=True)


def whole_history(connection: sa.Connection, ledger: Ledger, name: str) -> History:
    """Return the history of the skill of this name, or of the most recently archived one."""
    query = (
        sa.select(skills.c.id)
        .where(skills.c.layer == ledger.key, skills.c.name == name)
        # Present skills sort before archived ones, because False sorts before True.
        .order_by(skills.c.archived_on.is_not(None), skills.c.archived_on.desc(), skills.c.folder, skills.c.id.desc())
    )
    identity = connection.execute(query).scalars().first()
    if identity is None:
        return History()
    versions = tuple(ledger.history(connection, identity))
    return History(versions=versions, switches=tuple(ledger.switches(connection, identity)))


def steps_back(
    connection: sa.Connection, ledger: Ledger, present: Mapping[int, Row], timestamp: datetime, *, keeps_found: bool
) -> list[Step]:
    """Return the steps that restore the skills of a timestamp; with `keep_found`, skills found on disk since then
    stay.
    """
    steps = _steps(present, known_at(connection, ledger.key, timestamp))
    return [step for step in steps if not (keeps_found and _was_found(connection, ledger, step, timestamp))]


def _was_found(connection: sa.Connection, ledger: Ledger, step: Step, timestamp: datetime) -> bool:
    if step.action != "archive":
        return False
    first = ledger.history(connection, step.skill)[0]
    return first.author.actor is Actor.DISK and first.made_on > timestamp


def _steps(present: Mapping[int, Row], then: Mapping[int, Then]) -> list[Step]:
    # Archiving comes first: a restored skill may need the name.
    steps = [
        Step(skill=identity, name=row.name, action="archive", version=0)
        for identity, row in present.items()
        if identity not in then
    ]
    for identity, was in then.items():
        if identity not in present:
            steps.append(Step(skill=identity, name=was.name, action="restore", version=was.version))
        elif present[identity].tree_hash != was.tree_hash:
            steps.append(Step(skill=identity, name=was.name, action="rewrite", version=was.version))
        if was.was_enabled != was.is_enabled:
            action: Literal["enable", "disable"] = "enable" if was.was_enabled else "disable"
            steps.append(Step(skill=identity, name=was.name, action=action, version=0))
    return steps


def known_at(connection: sa.Connection, layer: str, timestamp: datetime) -> dict[int, Then]:
    """Return the skills that were present at a timestamp, by id."""
    newest = (
        sa.select(versions.c.skill, sa.func.max(versions.c.number).label("number"))
        .where(versions.c.made_on <= timestamp)
        .group_by(versions.c.skill)
        .subquery()
    )
    query = (
        sa.select(skills.c.id, skills.c.name, skills.c.enabled, versions.c.number, versions.c.tree_hash)
        .join(newest, newest.c.skill == skills.c.id)
        .join(versions, sa.and_(versions.c.skill == skills.c.id, versions.c.number == newest.c.number))
        .where(skills.c.layer == layer)
        .order_by(skills.c.id)
    )
    happened = _switches(connection, layer)
    return {
        row.id: Then(
            name=row.name,
            version=row.number,
            tree_hash=row.tree_hash,
            was_enabled=_was_enabled(happened.get(row.id, ()), timestamp, row.enabled),
            is_enabled=row.enabled,
        )
        for row in connection.execute(query)
        if _was_present(happened.get(row.id, ()), timestamp)
    }


def _switches(connection: sa.Connection, layer: str) -> dict[int, list[tuple[Switched, datetime]]]:
    query = sa.select(switches).join(skills).where(skills.c.layer == layer).order_by(switches.c.id)
    found: dict[int, list[tuple[Switched, datetime]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.skill, []).append((Switched(row.action), row.made_on))
    return found


def _was_present(happened: _Happened, timestamp: datetime) -> bool:
    """Whether the skill was not archived at the timestamp."""
    moves = [action for action, when in happened if when <= timestamp and action in _MOVES]
    return not moves or moves[-1] is Switched.RESTORED


_MOVES = (Switched.REMOVED, Switched.RESTORED)


def _was_enabled(happened: _Happened, timestamp: datetime, is_enabled: bool) -> bool:
    """Whether the skill was enabled at the timestamp."""
    turns = [(action is Switched.ENABLED, when) for action, when in happened if action not in _MOVES]
    before = [on for on, when in turns if when <= timestamp]
    if before:
        return before[-1]
    # Before the first switch it must have been in the opposite state.
    return not turns[0][0] if turns else is_enabled
