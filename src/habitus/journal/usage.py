"""Counts of uses: the only place where uses and judgements become succeeded, failed and no feedback.

A use succeeded or failed if someone who knows said so: a person, a validator, the calling program, or the exit code of
the skill's own code or recipe. The strongest kind of source decides, and within a kind the latest word.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import sqlalchemy as sa

from habitus import sql
from habitus.events import OutcomeKind
from habitus.journal.model import ItemUse, SourceKind, TurnOrigin, UseManner
from habitus.journal.tables import lasting_outcomes, uses

# An outcome of at least this weight is explicit feedback.
EXPLICIT_WEIGHT = 1.0
# The source of an outcome that the next request suggests.
NEXT_TURN = "next turn"


class UseVerdict(StrEnum):
    """What is known about one use. Only the first two count in a percentage; the others are no feedback."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # The next request corrected it.
    WEAK_FAILURE = "weak_failure"
    RAN_WITHOUT_ERROR = "ran_without_error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageCounts:
    """How often something was used, and what is known about it."""

    IN_JSON: ClassVar = ("no_feedback",)

    used: int = 0
    succeeded: int = 0
    failed: int = 0
    # Both are part of `no_feedback`.
    weak_failures: int = 0
    ran_without_error: int = 0
    last_used: datetime | None = None

    @property
    def no_feedback(self) -> int:
        """The uses of which nobody said how they went."""
        return self.used - self.succeeded - self.failed

    def __add__(self, other: UsageCounts) -> UsageCounts:
        dates = [date for date in (self.last_used, other.last_used) if date is not None]
        return UsageCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in COUNT_NAMES},
            last_used=max(dates, default=None),
        )

    def __sub__(self, other: UsageCounts) -> UsageCounts:
        """Return the difference; `last_used` stays, because a use does not unhappen."""
        numbers = {name: getattr(self, name) - getattr(other, name) for name in COUNT_NAMES}
        return UsageCounts(**numbers, last_used=self.last_used)


COUNT_NAMES = tuple(field.name for field in fields(UsageCounts) if field.name != "last_used")


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedUse:
    """A use and what the judgements of its turn say about it."""

    use: ItemUse
    verdict: UseVerdict

    @property
    def counts(self) -> UsageCounts:
        """The use as counts."""
        one = {UseVerdict.WEAK_FAILURE: "weak_failures"}.get(self.verdict, self.verdict.value)
        return UsageCounts(used=1, last_used=self.use.at, **({one: 1} if one in COUNT_NAMES else {}))


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class UseKey:
    """What uses are counted for: a stage of one version of a skill, and the recipe if one ran."""

    layer: str
    item: str
    version: int
    stage: str
    part: str = ""


UsageByKey = Mapping[UseKey, UsageCounts]


class UsageObserver:
    """Hears of every change to the counts; does nothing by itself."""

    def apply_changes(self, changes: UsageByKey) -> None:
        """Store the changes, inside the transaction that caused them."""

    def after_changes(self, changes: UsageByKey) -> None:
        """Act on changes that are stored."""


def decide_verdict(
    judgements: Iterable[Mapping[Any, Any]], result: OutcomeKind | None = None, *, is_credited: bool = True
) -> UseVerdict:
    """Decide what is known about a use, or a request, by the judgements of its turn and the result of its own code."""
    if not is_credited:
        return UseVerdict.UNKNOWN
    # The turn may still have succeeded by other means, but code that failed has failed.
    if result is OutcomeKind.FAILED:
        return UseVerdict.FAILED
    judgements = list(judgements)
    explicit = [one for one in judgements if _is_explicit(one)]
    if explicit:
        last = max(explicit, key=_judgement_sort_key)
        return UseVerdict.SUCCEEDED if last["kind"] == OutcomeKind.OK.value else UseVerdict.FAILED
    if result is OutcomeKind.OK:
        return UseVerdict.SUCCEEDED
    signals = {(one["source"] == NEXT_TURN, one["kind"]) for one in judgements}
    if (True, OutcomeKind.FAILED.value) in signals:
        return UseVerdict.WEAK_FAILURE
    return UseVerdict.RAN_WITHOUT_ERROR if (False, OutcomeKind.OK.value) in signals else UseVerdict.UNKNOWN


def _is_explicit(judgement: Mapping[Any, Any]) -> bool:
    knows = SourceKind(judgement["source_kind"]).rank >= SourceKind.PROGRAM.rank
    return knows and judgement["weight"] >= EXPLICIT_WEIGHT and judgement["kind"] != OutcomeKind.INFRA.value


def _judgement_sort_key(judgement: Mapping[Any, Any]) -> tuple[int, datetime, str]:
    return SourceKind(judgement["source_kind"]).rank, judgement["at"], judgement["source"]


def load_judged_uses(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[JudgedUse]:
    """Return the uses in real turns that match, oldest first, each with its verdict."""
    is_counted = (uses.c.origin == TurnOrigin.REAL.value, *where)
    rows = connection.execute(sa.select(uses).where(*is_counted).order_by(uses.c.at, uses.c.id)).mappings().all()
    if not rows:
        return []
    judged: defaultdict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    of_turns = lasting_outcomes.c.turn.in_(sa.select(uses.c.turn).where(*is_counted))
    for row in connection.execute(sa.select(lasting_outcomes).where(of_turns)).mappings():
        judged[row["turn"]].append(row)
    found = []
    for row in rows:
        use = _use_from_row(row)
        # A run outside a turn has no turn that somebody could judge.
        verdict = decide_verdict(judged[use.turn] if use.turn else (), use.result, is_credited=use.is_credited)
        found.append(JudgedUse(use=use, verdict=verdict))
    return found


def _use_from_row(row: Mapping[Any, Any]) -> ItemUse:
    known = {
        "manner": UseManner(row["manner"]),
        "origin": TurnOrigin(row["origin"]),
        "result": None if row["result"] is None else OutcomeKind(row["result"]),
    }
    return ItemUse(**{name: known.get(name, row[name]) for name in ItemUse.__dataclass_fields__})


def count_by_key(judged: Iterable[JudgedUse]) -> dict[UseKey, UsageCounts]:
    """Return the counts of these uses by what they are counted for."""
    counted: dict[UseKey, UsageCounts] = {}
    for one in judged:
        use = one.use
        key = UseKey(layer=use.layer, item=use.item, version=use.version, stage=use.stage, part=use.part)
        counted[key] = counted.get(key, UsageCounts()) + one.counts
    return counted


def subtract_counts(after: UsageByKey, before: UsageByKey) -> dict[UseKey, UsageCounts]:
    """Return what changed, by key and in a fixed order; two hosts that update the same rows can't deadlock."""
    none = UsageCounts()
    changes = {key: after.get(key, none) - before.get(key, none) for key in sorted({*after, *before})}
    return {key: change for key, change in changes.items() if any(getattr(change, name) for name in COUNT_NAMES)}


def count_turn(connection: sa.Connection, turn: str) -> dict[UseKey, UsageCounts]:
    """Return the counts of the uses in one turn."""
    return count_by_key(load_judged_uses(connection, uses.c.turn == turn))


def build_run_use(
    *,
    skill: tuple[str, str, int],
    stage: str,
    outcome: OutcomeKind,
    turn: str,
    user: str,
    at: datetime,
    part: str = "",
) -> ItemUse:
    """Build the use of a skill (name, layer key, version) whose code or recipe ran; an outage is no result."""
    id, (item, layer, version) = f"run:{secrets.token_hex(8)}", skill
    return ItemUse(
        id=id,
        turn=turn or id,
        item=item,
        layer=layer,
        version=version,
        stage=stage,
        manner=UseManner.RAN,
        part=part,
        result=None if outcome is OutcomeKind.INFRA else outcome,
        at=at,
        user=user,
    )


def insert_uses(connection: sa.Connection, new: Sequence[ItemUse]) -> None:
    """Store uses; those that are stored already stay."""
    rows = [
        asdict(use)
        | {
            "manner": use.manner.value,
            "origin": use.origin.value,
            "result": None if use.result is None else use.result.value,
        }
        for use in new
    ]
    sql.insert_missing_rows(connection, uses, rows)
