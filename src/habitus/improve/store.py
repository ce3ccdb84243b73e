"""The store of improvement runs: every candidate, every rollout (of trials and self-play, too), every task's split."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.improve.candidates import Candidate, CandidateState, count_gated_candidates
from habitus.improve.gate import GateHypothesis
from habitus.sql import UtcDateTime, build_primary_key_columns, build_required_columns, metadata
from habitus.tasks.rollouts import LOST, Rollout, TaskSplit

improve_tasks = sa.Table(
    "improve_tasks",
    metadata,
    *build_primary_key_columns(sa.String, "skill", "task"),
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
    sa.Column("made_on", UtcDateTime, nullable=False),
)
improve_rollouts = sa.Table(
    "improve_rollouts",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    *build_required_columns(sa.String, "skill", "run", "candidate"),
    sa.Column("side", sa.String(16), nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("task", sa.String, nullable=False),
    sa.Column("is_new", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),  # empty while it runs
    *build_required_columns(sa.Boolean, "is_opened", "is_followed"),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("dollars", sa.Float, nullable=False),
    sa.Column("record", sa.Text, nullable=False),  # of practice alone: what was done, and why it failed
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Index("improve_rollouts_by_skill", "skill"),
)
SCHEDULED_MARK = "~scheduled"  # ends the name of a run that the budget of the day paid
_RECORD_CHARS = 6_000
_CANDIDATE_COLUMNS = ("id", "skill", "number", "run", "state", "user", "made_on")


class ImproveStore:
    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime], redact: Callable[[str], str]) -> None:
        self._engine = engine
        self._clock = clock
        self._redact = redact

    def load_task_splits(self, skill: str) -> dict[str, TaskSplit]:
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(sa.select(improve_tasks).where(improve_tasks.c.skill == skill))
            return {row.task: TaskSplit(row.side) for row in rows}

    def add_task_splits(self, skill: str, splits: Mapping[str, TaskSplit]) -> None:
        """Store the splits of new tasks; a task that has one keeps it."""
        rows = [{"skill": skill, "task": task, "side": split.value} for task, split in splits.items()]
        with sql.write_transaction(self._engine) as connection:
            sql.insert_missing_rows(connection, improve_tasks, rows)

    def add_candidate(self, candidate: Candidate) -> Candidate:
        made = replace(candidate, made_on=self._clock())
        with sql.write_transaction(self._engine) as connection:
            connection.execute(improve_candidates.insert().values(_candidate_to_row(made)))
        return made

    def assign_gate_number_to_candidate(self, candidate: Candidate) -> Candidate:
        """Number it among those tried on any of its tasks, which spends its share of the error for good."""
        table = improve_candidates
        with sql.write_transaction(self._engine, lock=table.name) as connection:
            rows = connection.execute(sa.select(table).where(table.c.skill == candidate.skill, table.c.number > 0))
            tried = count_gated_candidates(map(_candidate_from_row, rows), candidate.tasks)
            begun = replace(candidate, number=tried + 1)
            connection.execute(table.update().where(table.c.id == candidate.id).values(_candidate_to_row(begun)))
        return begun

    def update_candidate(self, candidate: Candidate) -> Candidate:
        table = improve_candidates
        with sql.write_transaction(self._engine) as connection:
            connection.execute(table.update().where(table.c.id == candidate.id).values(_candidate_to_row(candidate)))
        return candidate

    def list_candidates(self, skill: str) -> list[Candidate]:
        """Return all candidates that were ever made for a skill, the newest last."""
        table = improve_candidates
        query = sa.select(table).where(table.c.skill == skill).order_by(table.c.made_on, table.c.id)
        with sql.read_transaction(self._engine) as connection:
            return [_candidate_from_row(row) for row in connection.execute(query)]

    def list_skills_with_candidates(self) -> list[str]:
        """Return the skills that have candidates."""
        with sql.read_transaction(self._engine) as connection:
            query = sa.select(improve_candidates.c.skill).distinct().order_by(improve_candidates.c.skill)
            return list(connection.execute(query).scalars())

    def list_rollouts_with_known_usage(self, solver: str, *, skill: str = "") -> list[Rollout]:
        """Return the rollouts of a solver (empty for our own agent) whose usage is known, of one skill or of all."""
        solvers = {
            one.id: one.solver for name in self.list_skills_with_candidates() for one in self.list_candidates(name)
        }

        def is_by_solver(one: Rollout) -> bool:
            made_by = one.candidate if one.side is TaskSplit.PRACTICE else solvers.get(one.candidate, "")
            return made_by == solver and one.is_counted and one.tokens > 0

        return list(filter(is_by_solver, self.list_rollouts(skill=skill)))

    def measure_minutes_between_rollouts(self, runs: Collection[str]) -> float:
        """Return the usual minutes from one rollout to the next within these runs; 0 if none has two."""
        table = improve_rollouts
        query = sa.select(table.c.run, table.c.at).where(table.c.outcome != "").order_by(table.c.run, table.c.at)
        with sql.read_transaction(self._engine) as connection:
            ends = [(row.run, row.at) for row in connection.execute(query) if row.run in runs]
        gaps = [(after - before).total_seconds() / 60 for (run, before), (same, after) in pairwise(ends) if run == same]
        return median(gaps) if gaps else 0.0

    def store_begun_rollout(self, rollout: Rollout) -> None:
        """Store a rollout before a model is asked: if its process is killed, it is known to be paid."""
        with sql.write_transaction(self._engine) as connection:
            connection.execute(improve_rollouts.insert().values({**asdict(rollout), "at": self._clock()}))

    def store_finished_rollout(self, rollout: Rollout) -> None:
        record = self._redact(rollout.record)[:_RECORD_CHARS] if rollout.side is TaskSplit.PRACTICE else ""
        values = {**asdict(rollout), "record": record, "at": self._clock()}
        with sql.write_transaction(self._engine) as connection:
            connection.execute(improve_rollouts.update().where(improve_rollouts.c.id == rollout.id).values(values))

    def mark_lost_rollouts(self, run: str) -> None:
        """Mark the rollouts that a killed process had begun as lost, each at the usual cost of one."""
        done = [one for one in self.list_rollouts(run=run) if one.outcome]
        usual = sum(one.tokens for one in done) // max(len(done), 1)
        cost = sum(one.dollars for one in done) / max(len(done), 1)
        unfinished = improve_rollouts.update().where(improve_rollouts.c.run == run, improve_rollouts.c.outcome == "")
        with sql.write_transaction(self._engine) as connection:
            connection.execute(unfinished.values(outcome=LOST, tokens=usual, dollars=cost))

    def list_rollouts(
        self,
        *,
        skill: str = "",
        run: str = "",
        job: str = "",
        side: TaskSplit | None = None,
        candidate: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> list[Rollout]:
        """Return rollouts in the order in which they began; the names of a job's runs begin with `job`."""
        table = improve_rollouts
        query = sa.select(table).order_by(table.c.at, table.c.id)
        for column, value in ((table.c.skill, skill), (table.c.run, run), (table.c.side, side)):
            query = query.where(column == value) if value else query
        if job:
            query = query.where(table.c.run.startswith(job, autoescape=True))
        if candidate is not None:
            query = query.where(table.c.candidate == candidate)
        query = query.where(table.c.at >= since) if since is not None else query
        query = query.where(table.c.at < before) if before is not None else query
        with sql.read_transaction(self._engine) as connection:
            return [_rollout_from_row(row) for row in connection.execute(query)]


def _candidate_to_row(candidate: Candidate) -> dict[str, Any]:
    facts = asdict(candidate)
    row = {name: facts.pop(name) for name in _CANDIDATE_COLUMNS}
    return {**row, "facts": json.dumps(facts, ensure_ascii=False)}


def _candidate_from_row(row: Any) -> Candidate:
    columns, facts = {name: row._mapping[name] for name in _CANDIDATE_COLUMNS}, json.loads(row.facts)
    enums = {"state": CandidateState(row.state), "claim": GateHypothesis(facts["claim"])}
    return Candidate(**{**columns, **facts, **enums, "tasks": tuple(facts["tasks"])})


def _rollout_from_row(row: Any) -> Rollout:
    return Rollout(**{**row._mapping, "side": TaskSplit(row.side)})
