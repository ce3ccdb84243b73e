"""Personal data by table: which rows are one person's, what becomes of them when they are erased, and what is nobody's.

Every table stands in exactly one of these lists; a test says which new one doesn't yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from habitus import pause
from habitus.app.operation.once import answered
from habitus.journal.tables import exposures, lasting_outcomes, seen, turns
from habitus.learning.improve.ledger import improve_candidates, improve_rollouts
from habitus.learning.remedies.store import studied_files
from habitus.memory.tables import engram_versions
from habitus.sandbox.credentials.calling import calls
from habitus.sandbox.credentials.grants import granted
from habitus.settings import CLAIMED
from habitus.skills.climbs import failed_climbs
from habitus.skills.erasing import NOBODY
from habitus.skills.tables import trusted
from habitus.tools.health import tool_health


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    name: str
    conversations: frozenset[str] = frozenset()
    is_owner: bool = False  # of this home: what lies in it under no name is theirs

    @property
    def names(self) -> tuple[str, ...]:
        """How they sign what they do."""
        return self.name, f"{self.name}{CLAIMED}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows that are somebody's. They go, unless something is written over a part of them."""

    place: str  # as people call it
    table: sa.Table
    theirs: Callable[[Person], sa.ColumnElement[bool]]
    becomes: Mapping[str, Any] = field(default_factory=dict)

    def count(self, connection: sa.Connection, person: Person) -> int:
        query = sa.select(sa.func.count()).select_from(self.table).where(self.theirs(person))
        return int(connection.execute(query).scalar_one())

    def erase(self, connection: sa.Connection, person: Person) -> None:
        where = self.theirs(person)
        change = (
            self.table.update().where(where).values(self.becomes) if self.becomes else self.table.delete().where(where)
        )
        connection.execute(change)


def _rows_of_owner(table: sa.Table) -> Callable[[Person], sa.ColumnElement[bool]]:
    return lambda person: table.c.user == person.name


def _rows_signed_by(column: sa.Column[str]) -> Callable[[Person], sa.ColumnElement[bool]]:
    return lambda person: column.in_(person.names)


def _called_by(name: str) -> sa.ColumnElement[bool]:
    """At a shell, or in a session, which then stands behind the name."""
    return sa.or_(calls.c.who == name, calls.c.who.startswith(f"{name}, ", autoescape=True))


ROWS = (
    Rows(place="turns", table=turns, theirs=_rows_of_owner(turns)),
    Rows(place="evidence", table=exposures, theirs=_rows_of_owner(exposures)),
    Rows(place="evidence", table=lasting_outcomes, theirs=_rows_of_owner(lasting_outcomes)),
    Rows(place="skills they have seen", table=seen, theirs=_rows_of_owner(seen)),
    Rows(place="answered requests", table=answered, theirs=_rows_of_owner(answered)),
    Rows(
        place="studied transcripts",
        table=studied_files,
        theirs=lambda person: sa.true() if person.is_owner else sa.false(),
    ),
    Rows(
        place="signatures", table=trusted, theirs=_rows_signed_by(trusted.c.trusted_by), becomes={"trusted_by": NOBODY}
    ),
    Rows(
        place="signatures",
        table=engram_versions,
        theirs=_rows_signed_by(engram_versions.c.made_by),
        becomes={"made_by": NOBODY},
    ),
    Rows(
        place="reminders",
        table=pause.switches,
        theirs=lambda person: pause.switches.c.name == f"reminded {person.name}",
    ),
    Rows(
        place="signatures",
        table=pause.switches,
        theirs=_rows_signed_by(pause.switches.c.set_by),
        becomes={"set_by": NOBODY},
    ),
    Rows(place="grants", table=granted, theirs=_rows_of_owner(granted)),
    Rows(
        place="signatures", table=granted, theirs=_rows_signed_by(granted.c.granted_by), becomes={"granted_by": NOBODY}
    ),
    Rows(place="calls of command lines", table=calls, theirs=lambda person: _called_by(person.name)),
    Rows(  # in whose turn a tool failed is not known, and the next failure says it again
        place="last failures of tools",
        table=tool_health,
        theirs=lambda person: tool_health.c.last_failure != "",
        becomes={"last_failure": ""},
    ),
    Rows(
        place="why drafts failed",
        table=failed_climbs,
        theirs=lambda person: failed_climbs.c.reason != "",
        becomes={"reason": ""},
    ),
    Rows(
        place="signatures",
        table=improve_candidates,
        theirs=_rows_signed_by(improve_candidates.c.user),
        becomes={"user": NOBODY},
    ),
    Rows(  # whose tasks were practised is not known here
        place="records of practice",
        table=improve_rollouts,
        theirs=lambda person: improve_rollouts.c.record != "",
        becomes={"record": ""},
    ),
)

# Erased where the idea lives: with a turn, by memory, by search, or with the history of skills.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("turn_messages", "turn_events", "turn_selections", "turn_outcomes"), "goes with its turn"),
    **dict.fromkeys(("engrams", "memory_views"), "memory erases it"),
    **dict.fromkeys(("jobs", "job_parts"), "the queue of jobs erases it"),
    "sign_ins": "people.py erases it",
    "evidence_sums": "forgetting.py empties it",
    **dict.fromkeys(("search_documents", "search_vectors", "search_learned"), "search erases it"),
    **dict.fromkeys(
        ("skills", "skill_versions", "skill_switches", "skill_counters", "skill_proposals", "blobs"),
        "skills/erasing.py erases it",
    ),
}

# Nothing in these says anything of a person.
NOBODYS: Mapping[str, str] = {
    **dict.fromkeys(("agent_skills", "agent_skill_files"), "skills in use are everybody's"),
    "improve_tasks": "ids of tasks",
    **dict.fromkeys(("skill_intents",), "is empty unless a process was killed"),
    **dict.fromkeys(("skill_imports", "indexed_skills"), "where skills came from, and hashes"),
    **dict.fromkeys(("recipe_counts", "learning_spending"), "counts"),
    **dict.fromkeys(("sequences", "memory_revision", "search_collections", "evidence_seed"), "numbers"),
    "signing_keys": "random",
    "learned_turns": "hashes, without which an old transcript would teach the same again",
}
