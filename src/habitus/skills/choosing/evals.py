"""Trials of skills: requests that should, or should not, bring a skill up, kept beside it in `evals/evals.json`; and
trials that kept something from its next stage, so that the same one is not run again at every look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid
from habitus.files import Tree
from habitus.skills.model import Stage
from habitus.sql import Utc, metadata

FILE = "evals/evals.json"
OFFERED = 3  # a skill is offered when it is among the first so many of what fits


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalCase:
    query: str
    should_trigger: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    IN_JSON: ClassVar = ("passed",)

    name: str
    query: str
    should_trigger: bool
    triggered: bool
    detail: str

    @property
    def passed(self) -> bool:
        return self.should_trigger == self.triggered


def read(name: str, tree: Tree) -> list[EvalCase]:
    """The cases of a skill: a list of {query, should_trigger}, or such a list under 'evals' or 'cases'."""
    found = [row for row in _rows(name, tree)[1] if "request" not in row]  # such a row is a task
    return [EvalCase(query=_query(row), should_trigger=row.get("should_trigger", True)) for row in found]


def with_case(tree: Tree, name: str, case: EvalCase) -> bytes:
    """The file with one more case; the same query again corrects the earlier one. All else in it stays as it is."""
    data, rows = _rows(name, tree)
    known = next((row for row in rows if _query(row) == case.query), None)
    if known is None:
        rows.append({"query": case.query, "should_trigger": case.should_trigger})
    else:
        known["should_trigger"] = case.should_trigger
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode()


def _rows(name: str, tree: Tree) -> tuple[object, list[dict[str, Any]]]:
    """The content of the file, and the list of cases inside it."""
    file = tree.get(FILE)
    if file is None or file.content is None:
        rows: list[dict[str, Any]] = []
        return rows, rows
    try:
        data = json.loads(file.content)
    except ValueError as error:
        raise Invalid(f"{FILE} of '{name}' is not JSON: {error}.", mend="Correct it.") from None
    found = data.get("evals", data.get("cases")) if isinstance(data, dict) else data
    if not isinstance(found, list):
        raise Invalid(
            f"{FILE} of '{name}' has no list of cases.", mend='Write [{"query": "…", "should_trigger": true}].'
        )
    if not all(
        isinstance(row, dict)
        and ("request" in row or _query(row))
        and isinstance(row.get("should_trigger", True), bool)
        for row in found
    ):
        raise Invalid(f"{FILE} of '{name}' has a case without a 'query' text.", mend="Give each case a query.")
    return data, found


def _query(row: Mapping[str, Any]) -> str:
    query = row.get("query") or row.get("prompt")
    return query if isinstance(query, str) else ""


# `item` is the id of a lesson or the address of a skill; another version of it may try again.
failed_climbs = sa.Table(
    "failed_climbs",
    metadata,
    sa.Column("item", sa.String, primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("tried_on", Utc, nullable=False),
)


class FailedClimbs:
    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def all(self) -> dict[tuple[str, Stage, int], str]:
        """Why each failed, by item, stage and the version that was tried."""
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(failed_climbs))
            return {(row.item, Stage(row.stage), row.version): row.reason for row in rows}

    def note(self, item: str, stage: Stage, version: int, reason: str) -> None:
        row = {"item": item, "stage": stage.value, "version": version, "reason": reason, "tried_on": self._clock()}
        with sql.writing(self._engine, lock="failed_climbs") as connection:
            sql.upsert(
                connection,
                failed_climbs,
                [row],
                lambda new: {"version": new.version, "reason": new.reason, "tried_on": new.tried_on},
            )
