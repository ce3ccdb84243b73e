"""Trigger evals in `evals/evals.json` (requests that should or should not bring up a skill), and the store of failed
climbs, which keeps a failed trial from running again.
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
from habitus.sql import UtcDateTime, metadata

EVALS_FILE = "evals/evals.json"
# A skill counts as triggered if it is among this many best matches.
OFFERED_COUNT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerEvalCase:
    """A request, and whether it should bring up the skill."""

    query: str
    should_trigger: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerEvalResult:
    """The result of one trigger eval."""

    IN_JSON: ClassVar = ("passed",)

    name: str
    query: str
    should_trigger: bool
    triggered: bool
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the skill triggered exactly as it should."""
        return self.should_trigger == self.triggered


def parse_trigger_eval_cases(name: str, tree: Tree) -> list[TriggerEvalCase]:
    """Return the eval cases of a skill: a list of {query, should_trigger}, or such a list under 'evals' or
    'cases'.
    """
    # Rows with a 'request' are tasks, which another module reads.
    found = [row for row in _parse_eval_file_and_cases(name, tree)[1] if "request" not in row]
    return [
        TriggerEvalCase(query=_get_eval_query(row), should_trigger=row.get("should_trigger", True)) for row in found
    ]


def render_eval_file_with_case(tree: Tree, name: str, case: TriggerEvalCase) -> bytes:
    """Return the file with one more case; a known query is corrected instead. The rest of the file stays."""
    data, rows = _parse_eval_file_and_cases(name, tree)
    known = next((row for row in rows if _get_eval_query(row) == case.query), None)
    if known is None:
        rows.append({"query": case.query, "should_trigger": case.should_trigger})
    else:
        known["should_trigger"] = case.should_trigger
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode()


def _parse_eval_file_and_cases(name: str, tree: Tree) -> tuple[object, list[dict[str, Any]]]:
    """Return the content of the file and the list of cases inside it."""
    file = tree.get(EVALS_FILE)
    if file is None or file.content is None:
        rows: list[dict[str, Any]] = []
        return rows, rows
    try:
        data = json.loads(file.content)
    except ValueError as error:
        raise Invalid(f"{EVALS_FILE} of '{name}' is not JSON: {error}.", hint="Correct it.") from None
    found = data.get("evals", data.get("cases")) if isinstance(data, dict) else data
    if not isinstance(found, list):
        raise Invalid(
            f"{EVALS_FILE} of '{name}' has no list of cases.", hint='Write [{"query": "…", "should_trigger": true}].'
        )
    if not all(
        isinstance(row, dict)
        and ("request" in row or _get_eval_query(row))
        and isinstance(row.get("should_trigger", True), bool)
        for row in found
    ):
        raise Invalid(f"{EVALS_FILE} of '{name}' has a case without a 'query' text.", hint="Give each case a query.")
    return data, found


def _get_eval_query(row: Mapping[str, Any]) -> str:
    query = row.get("query") or row.get("prompt")
    return query if isinstance(query, str) else ""


# `item` is a lesson's id or a skill's address; a new version of it may try again.
failed_climbs = sa.Table(
    "failed_climbs",
    metadata,
    sa.Column("item", sa.String, primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("tried_on", UtcDateTime, nullable=False),
)


class FailedStageTrialStore:
    """Trials that kept an item from its next stage."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def list_all_failure_reasons(self) -> dict[tuple[str, Stage, int], str]:
        """Return the reason of each failure, by item, stage and version."""
        with sql.read_transaction(self._engine) as conn:
            rows = conn.execute(sa.select(failed_climbs))
            return {(row.item, Stage(row.stage), row.version): row.reason for row in rows}

    def record_failure(self, item: str, stage: Stage, version: int, reason: str) -> None:
        """Record a failed climb; it replaces an earlier one of the same item and stage."""
        row = {"item": item, "stage": stage.value, "version": version, "reason": reason, "tried_on": self._clock()}
        with sql.write_transaction(self._engine, lock="failed_climbs") as conn:
            sql.upsert_rows(
                conn,
                failed_climbs,
                [row],
                lambda new: {"version": new.version, "reason": new.reason, "tried_on": new.tried_on},
            )
