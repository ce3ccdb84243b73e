"""The ledger of `skills improve`: every candidate ever gated, every rollout, and which side each task is on.

A task gets one side once, practice, gate or exam; near-copies of one task get the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound
from habitus.events import OutcomeKind
from habitus.evidence.gate import Claim
from habitus.sql import Utc, metadata
from habitus.tasks.model import Task

improve_tasks = sa.Table(
    "improve_tasks",
    metadata,
    sa.Column("skill", sa.String, primary_key=True),
    sa.Column("task", sa.String, primary_key=True),
    sa.Column("side", sa.String(16), nullable=False),
)
improve_candidates = sa.Table(
    "improve_candidates",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("skill", sa.String, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),  # 0 until its gate begins
    sa.Column("run", sa.String, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("facts", sa.Text, nullable=False),  # the rest of it as JSON
    sa.Column("user", sa.String, nullable=False),
    sa.Column("made_on", Utc, nullable=False),
)
improve_rollouts = sa.Table(
    "improve_rollouts",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("skill", sa.String, nullable=False),
    sa.Column("run", sa.String, nullable=False),
    sa.Column(
        "candidate", sa.String, nullable=False
    ),  # of practice: the program that solved, none for ours; or `trial`
    sa.Column("side", sa.String(16), nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("task", sa.String, nullable=False),
    sa.Column("is_new", sa.Boolean, nullable=False),  # solved with the candidate, else with today's version
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),  # empty while it runs
    sa.Column("is_opened", sa.Boolean, nullable=False),
    sa.Column("is_followed", sa.Boolean, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("dollars", sa.Float, nullable=False),
    sa.Column("record", sa.Text, nullable=False),  # of practice alone: what was done, and why it failed
    sa.Column("at", Utc, nullable=False),
    sa.Index("improve_rollouts_by_skill", "skill"),
)
LOST = "lost"  # the outcome of a rollout that a killed process had begun
_RECORD_CHARS = 6_000


class CandidateState(StrEnum):
    OPEN = "open"
    REFUSED = "refused"  # before any rollout
    NOT_SHOWN = "not shown"
    STOPPED = "stopped early"  # not shown, and no longer likely to be
    FAILED_EXAM = "failed its exam"
    ACCEPTED = "accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A changed text of a skill, and what became of it. `base` is the version that it changes."""

    id: str
    skill: str
    run: str
    base: int
    text: str  # its whole main file
    why: str  # what it is meant to mend
    source: str  # model, person, proposal 7, rule
    claim: Claim = Claim.BETTER
    number: int = 0
    tasks: tuple[str, ...] = ()  # of its gate
    rounds: int = 0  # the most that its gate may take
    state: CandidateState = CandidateState.OPEN
    reason: str = ""
    proposal: int | None = None
    solver: str = ""  # a program of the person's; else our own agent
    user: str = ""
    made_on: datetime | None = None


class Side(StrEnum):
    PRACTICE = "practice"  # failures are read by who drafts
    GATE = "gate"  # only scores come back
    EXAM = "exam"  # asked once for each accepted change


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRollout:
    """One try at a task, as it counts. `infra` and lost ones are paid for, and count for no side."""

    id: str
    skill: str
    run: str
    side: Side
    round: int
    task: str
    is_new: bool
    version: int
    candidate: str = ""
    outcome: str = ""
    is_opened: bool = False
    is_followed: bool = False
    tokens: int = 0
    steps: int = 0
    dollars: float = 0.0
    record: str = ""

    @property
    def counts(self) -> bool:
        return self.outcome in (OutcomeKind.OK.value, OutcomeKind.FAILED.value)

    @property
    def is_ok(self) -> bool:
        return self.outcome == OutcomeKind.OK.value


_FACTS = ("base", "text", "why", "source", "claim", "tasks", "rounds", "reason", "proposal", "solver")


class ImproveLedger:
    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime], redacted: Callable[[str], str]) -> None:
        self._engine = engine
        self._clock = clock
        self._redacted = redacted

    def sides(self, skill: str) -> dict[str, Side]:
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(improve_tasks).where(improve_tasks.c.skill == skill))
            return {row.task: Side(row.side) for row in rows}

    def keep_sides(self, skill: str, sides: Mapping[str, Side]) -> None:
        """New tasks only: one that has a side keeps it, whoever comes second."""
        rows = [{"skill": skill, "task": task, "side": side.value} for task, side in sides.items()]
        with sql.writing(self._engine) as connection:
            sql.insert_missing(connection, improve_tasks, rows)

    def add(self, candidate: Candidate) -> Candidate:
        made = replace(candidate, made_on=self._clock())
        with sql.writing(self._engine) as connection:
            connection.execute(improve_candidates.insert().values(_row(made)))
        return made

    def begin_gate(self, candidate: Candidate) -> Candidate:
        """Give it the next number of its skill, which spends its share of the error for good."""
        table = improve_candidates
        with sql.writing(self._engine, lock=table.name) as connection:
            taken = sa.select(sa.func.max(table.c.number)).where(table.c.skill == candidate.skill)
            begun = replace(candidate, number=(connection.execute(taken).scalar_one() or 0) + 1)
            connection.execute(table.update().where(table.c.id == candidate.id).values(_row(begun)))
        return begun

    def settle(self, candidate: Candidate) -> Candidate:
        values = _row(candidate)
        with sql.writing(self._engine) as connection:
            connection.execute(
                improve_candidates.update().where(improve_candidates.c.id == candidate.id).values(values)
            )
        return candidate

    def candidates(self, skill: str) -> list[Candidate]:
        """All that were ever tried, the newest last."""
        table = improve_candidates
        query = sa.select(table).where(table.c.skill == skill).order_by(table.c.made_on, table.c.id)
        with sql.reading(self._engine) as connection:
            return [_candidate(row) for row in connection.execute(query)]

    def candidate(self, skill: str, id: str) -> Candidate:
        for one in self.candidates(skill):
            if one.id == id:
                return one
        raise NotFound(f"'{skill}' has no candidate '{id}'.", mend=f"See 'habitus skills improvements {skill}'.")

    def skills(self) -> list[str]:
        """Those for which anything was tried."""
        with sql.reading(self._engine) as connection:
            query = sa.select(improve_candidates.c.skill).distinct().order_by(improve_candidates.c.skill)
            return list(connection.execute(query).scalars())

    def begin(self, rollout: KeptRollout) -> None:
        """Written down before a model is asked, so that one whose process was killed is known to be paid."""
        with sql.writing(self._engine) as connection:
            connection.execute(improve_rollouts.insert().values({**asdict(rollout), "at": self._clock()}))

    def finish(self, rollout: KeptRollout) -> None:
        record = self._redacted(rollout.record)[:_RECORD_CHARS] if rollout.side is Side.PRACTICE else ""
        values = {**asdict(rollout), "record": record, "at": self._clock()}
        with sql.writing(self._engine) as connection:
            connection.execute(improve_rollouts.update().where(improve_rollouts.c.id == rollout.id).values(values))

    def lose_unfinished(self, run: str) -> int:
        """Rollouts that a killed process had begun are lost, each counted as one usually costs."""
        done = [one for one in self.rollouts(run=run) if one.outcome]
        usual = sum(one.tokens for one in done) // max(len(done), 1)
        cost = sum(one.dollars for one in done) / max(len(done), 1)
        unfinished = improve_rollouts.update().where(improve_rollouts.c.run == run, improve_rollouts.c.outcome == "")
        with sql.writing(self._engine) as connection:
            return int(connection.execute(unfinished.values(outcome=LOST, tokens=usual, dollars=cost)).rowcount)

    def rollouts(
        self,
        *,
        skill: str = "",
        run: str = "",
        job: str = "",
        side: Side | None = None,
        candidates: Iterable[str] = (),
    ) -> list[KeptRollout]:
        """In the order in which they were begun; `job` is what the names of its runs begin with."""
        table = improve_rollouts
        query = sa.select(table).order_by(table.c.at, table.c.id)
        for column, value in ((table.c.skill, skill), (table.c.run, run), (table.c.side, side)):
            query = query.where(column == value) if value else query
        if job:
            query = query.where(table.c.run.startswith(job, autoescape=True))
        if wanted := tuple(candidates):
            query = query.where(table.c.candidate.in_(wanted))
        with sql.reading(self._engine) as connection:
            return [_rollout(row) for row in connection.execute(query)]


def new_candidate(skill: str, run: str, base: int, text: str, **facts: Any) -> Candidate:
    return Candidate(id=secrets.token_hex(6), skill=skill, run=run, base=base, text=text, **facts)


def pairs(rollouts: Sequence[KeptRollout], side: Side, tasks: Sequence[str]) -> list[list[tuple[bool, bool]]]:
    """Of each whole round, whether today's version and the candidate passed each task."""
    went = {(one.round, one.task, one.is_new): one.is_ok for one in rollouts if one.side is side and one.counts}
    rounds: list[list[tuple[bool, bool]]] = []
    while all((len(rounds), task, is_new) in went for task in tasks for is_new in (False, True)) and tasks:
        rounds.append([(went[len(rounds), task, False], went[len(rounds), task, True]) for task in tasks])
    return rounds


def _row(candidate: Candidate) -> dict[str, Any]:
    facts = {name: getattr(candidate, name) for name in _FACTS}
    rest = ("id", "skill", "number", "run", "user", "made_on")
    return {
        **{name: getattr(candidate, name) for name in rest},
        "state": candidate.state.value,
        "facts": json.dumps(facts, ensure_ascii=False),
    }


def _candidate(row: Any) -> Candidate:
    facts = json.loads(row.facts)
    return Candidate(
        id=row.id,
        skill=row.skill,
        run=row.run,
        number=row.number,
        user=row.user,
        made_on=row.made_on,
        state=CandidateState(row.state),
        **{**facts, "claim": Claim(facts["claim"]), "tasks": tuple(facts["tasks"])},
    )


def _rollout(row: Any) -> KeptRollout:
    kept = {key: value for key, value in row._mapping.items() if key != "at"}
    return KeptRollout(**{**kept, "side": Side(row.side)})


_COPY = 0.85  # of the words of two tasks with the same checks, so many in common
_WORD = re.compile(r"\w+")
SHARES: Mapping[Side, float] = {Side.PRACTICE: 0.25, Side.GATE: 0.5, Side.EXAM: 0.25}


def split(tasks: Sequence[Task], known: Mapping[str, Side], *, seed: str = "") -> dict[str, Side]:
    """The sides of those that have none yet, so that all sides together come as near to their shares as they can."""
    by_id = {task.id: task for task in tasks}
    sides = {task.id: known[task.id] for task in tasks if task.id in known}
    counts, total = Counter(sides.values()), len(tasks)
    found: dict[str, Side] = {}
    for task in sorted(tasks, key=lambda one: hashlib.sha256(f"{seed}\0{one.id}".encode()).digest()):
        if task.id in sides:
            continue
        copied = next((other for other in sides if _is_copy(task, by_id[other])), None)
        side = sides[copied] if copied else max(Side, key=lambda one: SHARES[one] * total - counts[one])
        sides[task.id] = found[task.id] = side
        counts[side] += 1
    return found


def _words(task: Task) -> frozenset[str]:
    whole = "\n".join((task.request, task.setup, *task.files.values()))
    return frozenset(_WORD.findall(whole.casefold()))


def _is_copy(one: Task, other: Task) -> bool:
    """One task in other words has the same checks; the same words with other values have others, and are no copy."""
    ours, theirs = _words(one), _words(other)
    return ours == theirs or (one.checks == other.checks and len(ours & theirs) >= _COPY * len(ours | theirs))
