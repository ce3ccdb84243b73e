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

from habitus.skills.model import ActorKind, LifecycleAction, SkillVersionAndEventHistory
from habitus.skills.stores.base import ChangedSkillRecord, RestoreAction
from habitus.skills.stores.layer_database import LayerDatabase, SkillRow
from habitus.skills.stores.tables import lifecycle_events, skills, versions

_EventTimes = Sequence[tuple[LifecycleAction, datetime]]  # oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillAtTimestamp:
    """A skill as it was at a timestamp, and whether it is enabled now."""

    name: str
    version: int
    tree_hash: str
    was_enabled: bool
    is_enabled: bool


def list_skills_touched_by_change(conn: sa.Connection, layer: str, change: str) -> list[ChangedSkillRecord]:
    """Return every skill that a change touched, present or archived."""
    made = (
        sa.select(versions.c.skill, versions.c.number)
        .join(skills)
        .where(skills.c.layer == layer, _build_condition_has_change_id(versions.c.author, change))
    )
    numbers: dict[int, list[int]] = {}
    for skill, number in conn.execute(made):
        numbers.setdefault(skill, []).append(number)
    done = (
        sa.select(lifecycle_events)
        .join(skills)
        .where(skills.c.layer == layer, _build_condition_has_change_id(lifecycle_events.c.author, change))
    )
    moves: dict[int, list[LifecycleAction]] = {}
    for row in conn.execute(done.order_by(lifecycle_events.c.id)):
        moves.setdefault(row.skill, []).append(LifecycleAction(row.action))
    found = sa.select(skills.c.id, skills.c.name).where(skills.c.layer == layer).order_by(skills.c.id)
    return [
        ChangedSkillRecord(
            skill=id,
            name=name,
            first_version=min(numbers.get(id, [0])),
            last_version=max(numbers.get(id, [0])),
            lifecycle_actions=tuple(moves.get(id, ())),
        )
        for id, name in conn.execute(found)
        if id in numbers or id in moves
    ]


def _build_condition_has_change_id(author: sa.Column[str], change: str) -> sa.ColumnElement[bool]:
    """Match authors that carry the id of a change."""
    # The change id is the last element of the author's JSON list.
    return author.endswith(f", {json.dumps(change)}]", autoescape=True)


def read_versions_and_lifecycle_events(
    conn: sa.Connection, ledger: LayerDatabase, name: str
) -> SkillVersionAndEventHistory:
    """Return the history of the skill of this name, or of the most recently archived one."""
    query = (
        sa.select(skills.c.id)
        .where(skills.c.layer == ledger.key, skills.c.name == name)
        # Present skills sort before archived ones, because False sorts before True.
        .order_by(skills.c.archived_on.is_not(None), skills.c.archived_on.desc(), skills.c.folder, skills.c.id.desc())
    )
    identity = conn.execute(query).scalars().first()
    if identity is None:
        return SkillVersionAndEventHistory()
    versions = tuple(ledger.list_versions(conn, identity))
    return SkillVersionAndEventHistory(
        versions=versions, lifecycle_events=tuple(ledger.list_lifecycle_events(conn, identity))
    )


def plan_restore_steps(
    conn: sa.Connection,
    ledger: LayerDatabase,
    present: Mapping[int, SkillRow],
    timestamp: datetime,
    *,
    keep_found: bool,
) -> list[RestoreAction]:
    """Return the steps that restore the skills of a timestamp; with `keep_found`, skills found on disk since then
    stay.
    """
    steps = _diff_into_restore_steps(present, list_skills_at(conn, ledger.key, timestamp))
    return [
        step
        for step in steps
        if not (keep_found and _would_archive_skill_found_on_disk_after(conn, ledger, step, timestamp))
    ]


def _would_archive_skill_found_on_disk_after(
    conn: sa.Connection, ledger: LayerDatabase, step: RestoreAction, timestamp: datetime
) -> bool:
    if step.action != "archive":
        return False
    first = ledger.list_versions(conn, step.skill)[0]
    return first.author.actor is ActorKind.DISK and first.made_on > timestamp


def _diff_into_restore_steps(
    present: Mapping[int, SkillRow], then: Mapping[int, SkillAtTimestamp]
) -> list[RestoreAction]:
    # Archiving comes first: a restored skill may need the name.
    steps = [
        RestoreAction(skill=identity, name=row.name, action="archive", version=0)
        for identity, row in present.items()
        if identity not in then
    ]
    for identity, was in then.items():
        if identity not in present:
            steps.append(RestoreAction(skill=identity, name=was.name, action="restore", version=was.version))
        elif present[identity].tree_hash != was.tree_hash:
            steps.append(RestoreAction(skill=identity, name=was.name, action="rewrite", version=was.version))
        if was.was_enabled != was.is_enabled:
            action: Literal["enable", "disable"] = "enable" if was.was_enabled else "disable"
            steps.append(RestoreAction(skill=identity, name=was.name, action=action, version=0))
    return steps


def list_skills_at(conn: sa.Connection, layer: str, timestamp: datetime) -> dict[int, SkillAtTimestamp]:
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
    happened = _list_lifecycle_events(conn, layer)
    return {
        row.id: SkillAtTimestamp(
            name=row.name,
            version=row.number,
            tree_hash=row.tree_hash,
            was_enabled=_was_enabled(happened.get(row.id, ()), timestamp, row.enabled),
            is_enabled=row.enabled,
        )
        for row in conn.execute(query)
        if _was_present(happened.get(row.id, ()), timestamp)
    }


def _list_lifecycle_events(conn: sa.Connection, layer: str) -> dict[int, list[tuple[LifecycleAction, datetime]]]:
    query = sa.select(lifecycle_events).join(skills).where(skills.c.layer == layer).order_by(lifecycle_events.c.id)
    found: dict[int, list[tuple[LifecycleAction, datetime]]] = {}
    for row in conn.execute(query):
        found.setdefault(row.skill, []).append((LifecycleAction(row.action), row.made_on))
    return found


def _was_present(happened: _EventTimes, timestamp: datetime) -> bool:
    """Whether the skill was not archived at the timestamp."""
    moves = [action for action, when in happened if when <= timestamp and action in _ARCHIVE_ACTIONS]
    return not moves or moves[-1] is LifecycleAction.RESTORED


_ARCHIVE_ACTIONS = (LifecycleAction.REMOVED, LifecycleAction.RESTORED)


def _was_enabled(happened: _EventTimes, timestamp: datetime, is_enabled: bool) -> bool:
    """Whether the skill was enabled at the timestamp."""
    turns = [(action is LifecycleAction.ENABLED, when) for action, when in happened if action not in _ARCHIVE_ACTIONS]
    before = [on for on, when in turns if when <= timestamp]
    if before:
        return before[-1]
    # Before the first switch it must have been in the opposite state.
    return not turns[0][0] if turns else is_enabled
