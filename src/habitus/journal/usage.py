"""Counts of uses: the only place where uses and judgements become succeeded, failed and no feedback.

A use succeeded or failed if someone who knows said so: a person, a validator, the calling program, or the exit code of
the skill's own code or recipe. The strongest kind of source decides, and within a kind the latest word. An exit code is
the word of a program, before all that is said about its turn.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

import sqlalchemy as sa

from habitus import sql
from habitus.events import OutcomeKind
from habitus.journal.model import (
    SYNTHETIC_SOURCE_TYPES,
    ItemUse,
    JudgementSourceKind,
    TurnOrigin,
    TurnOutcome,
    UseManner,
)
from habitus.journal.tables import exposures, lasting_outcomes, parse_json_object, turns, uses
from habitus.plain_data import INTERNAL
from habitus.use_counts import COUNT_NAMES, UsageByKey, UsageCountKey, UsageCounts, build_count_links, sum_counts_by_key

# An outcome of at least this weight is explicit feedback.
EXPLICIT_WEIGHT = 1.0
# The source of an outcome that the next request suggests.
NEXT_TURN = "next turn"
# Not a skill that was only shown.
IS_USE = uses.c.manner != UseManner.SHOWN.value
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class UseVerdict(StrEnum):
    """What is known about one use or request, by the name of the count that counts it.

    Only the first two count in a percentage; the others are all no feedback.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # The next request corrected it.
    WEAK_FAILURE = "weak_failures"
    RAN_WITHOUT_ERROR = "ran_without_error"
    NO_FEEDBACK = "no_feedback"

    @property
    def is_known(self) -> bool:
        """Whether someone or something that knows said how it went."""
        return self in (UseVerdict.SUCCEEDED, UseVerdict.FAILED)

    @property
    def outcome(self) -> UseVerdict:
        """Succeeded, failed, or no feedback."""
        return self if self.is_known else UseVerdict.NO_FEEDBACK

    def is_counted_as(self, wanted: UseVerdict | None) -> bool:
        """Whether the count of this name counts it; None counts everything."""
        return wanted in (None, self) or (wanted is UseVerdict.NO_FEEDBACK and not self.is_known)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedUse:
    """A use and what the judgements of its turn say about it."""

    use: ItemUse
    verdict: UseVerdict

    @property
    def counts(self) -> UsageCounts:
        """The use as counts."""
        if not self.is_used_not_only_shown:
            return UsageCounts(recommended=1)
        counted: dict[str, Any] = {name: 1 for name in ("used", self.verdict.value) if name in COUNT_NAMES}
        return UsageCounts(**counted, recommended=int(self.is_text_shown_for_request), last_used=self.use.at)

    @property
    def is_used_not_only_shown(self) -> bool:
        """Whether it was used, and not only shown."""
        return self.use.manner is not UseManner.SHOWN

    @property
    def is_text_shown_for_request(self) -> bool:
        """Whether its text was shown for the request; code and recipes run without."""
        return self.use.manner is not UseManner.RAN


class UsageCountObserver:
    """Hears of every change to the counts; does nothing by itself."""

    def apply_changes(self, changes: UsageByKey) -> None:
        """Store the changes, inside the transaction that caused them."""

    def after_changes(self, changes: UsageByKey) -> None:
        """Act on changes that are stored."""


def decide_use_verdict(
    judgements: Sequence[TurnOutcome], result: OutcomeKind | None = None, *, is_credited: bool = True
) -> UseVerdict:
    """Decide what is known about a use, or a request, by the judgements of its turn and the result of its own code."""
    if not is_credited:
        return UseVerdict.NO_FEEDBACK
    last = find_deciding_judgement(judgements)
    if (known := result if last is None else last.kind) is not None:
        return UseVerdict.SUCCEEDED if known is OutcomeKind.OK else UseVerdict.FAILED
    signals = {(one.source == NEXT_TURN, one.kind) for one in judgements}
    if (True, OutcomeKind.FAILED) in signals:
        return UseVerdict.WEAK_FAILURE
    return UseVerdict.RAN_WITHOUT_ERROR if (False, OutcomeKind.OK) in signals else UseVerdict.NO_FEEDBACK


def find_deciding_judgement(judgements: Iterable[TurnOutcome]) -> TurnOutcome | None:
    """Return the judgement that decides: by the strongest kind of source that knows, and of these the latest."""
    return max(filter(is_from_knowing_source, judgements), key=_get_judgement_sort_key, default=None)


def get_deciding_or_heaviest_outcome(judgements: Sequence[TurnOutcome]) -> TurnOutcome | None:
    """Return the outcome of a run: what someone who knows said, else the heaviest sign; None without any."""
    if last := find_deciding_judgement(judgements):
        return last
    # A result counts before an outage.
    return max(
        judgements,
        key=lambda one: (one.weight, one.kind is not OutcomeKind.INFRA, *_get_judgement_sort_key(one)),
        default=None,
    )


def _get_judgement_sort_key(judgement: TurnOutcome) -> tuple[int, datetime, str]:
    return judgement.source_kind.rank, judgement.at or _LONG_AGO, judgement.source


def is_from_knowing_source(judgement: TurnOutcome) -> bool:
    """Return whether a judgement is by someone who can know, and about the work: no sign, guess or outage."""
    knows = judgement.source_kind.rank >= JudgementSourceKind.PROGRAM.rank
    return knows and judgement.weight >= EXPLICIT_WEIGHT and judgement.kind is not OutcomeKind.INFRA


def load_judged_uses(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[JudgedUse]:
    """Return the uses in real turns that match, oldest first, each with its verdict."""
    is_counted = (uses.c.origin == TurnOrigin.REAL.value, *where)
    rows = connection.execute(sa.select(uses).where(*is_counted).order_by(uses.c.at, uses.c.id)).mappings().all()
    if not rows:
        return []
    judged = _load_judgements_by_turn(connection, sa.select(uses.c.turn).where(*is_counted))
    found = [_use_from_row(row) for row in rows]
    acted = {
        _get_use_key(use)
        for use in found
        if use.is_credited and (use.manner is not UseManner.RAN or use.result is OutcomeKind.OK)
    }
    return [_judge_use(use, judged[use.turn], is_replaced=_get_use_key(use) in acted) for use in found]


def _get_use_key(use: ItemUse) -> tuple[str, str, str]:
    return use.turn, use.layer, use.item


def _judge_use(use: ItemUse, judgements: Sequence[TurnOutcome], *, is_replaced: bool) -> JudgedUse:
    # Judgements of the turn are about what acted: a run that failed stays failed if the skill's steps, or another run,
    # then did the work.
    said = () if is_replaced and use.result is OutcomeKind.FAILED else judgements
    return JudgedUse(use=use, verdict=decide_use_verdict(said, use.result, is_credited=use.is_credited))


def _load_judgements_by_turn(connection: sa.Connection, ids: sa.Select[Any]) -> Mapping[str, list[TurnOutcome]]:
    """Return the judgements of these turns."""
    found: defaultdict[str, list[TurnOutcome]] = defaultdict(list)
    for row in connection.execute(sa.select(lasting_outcomes).where(lasting_outcomes.c.turn.in_(ids))).mappings():
        found[row["turn"]].append(judgement_from_row(row))
    return found


def judgement_from_row(row: Mapping[Any, Any]) -> TurnOutcome:
    """Return a row of `lasting_outcomes` as a judgement."""
    kind, source_kind = OutcomeKind(row["kind"]), JudgementSourceKind(row["source_kind"])
    return TurnOutcome(kind=kind, source_kind=source_kind, **{name: row[name] for name in ("weight", "source", "at")})


def _use_from_row(row: Mapping[Any, Any]) -> ItemUse:
    known = {
        "manner": UseManner(row["manner"]),
        "origin": TurnOrigin(row["origin"]),
        "result": None if row["result"] is None else OutcomeKind(row["result"]),
    }
    return ItemUse(**{name: known.get(name, row[name]) for name in ItemUse.__dataclass_fields__})


def count_uses_by_key(judged: Iterable[JudgedUse]) -> dict[UsageCountKey, UsageCounts]:
    """Return the counts of these uses by what they are counted for."""
    return sum_counts_by_key((_build_count_key(one.use), one.counts) for one in judged)


def _build_count_key(use: ItemUse) -> UsageCountKey:
    return UsageCountKey(layer=use.layer, item=use.item, version=use.version, stage=use.stage, part=use.part)


def count_turn_uses(connection: sa.Connection, turn: str) -> dict[UsageCountKey, UsageCounts]:
    """Return the counts of the uses in one turn."""
    return count_uses_by_key(load_judged_uses(connection, uses.c.turn == turn))


def build_use_of_code_or_recipe_run(
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


def lock_use_and_judgement_tables(connection: sa.Connection) -> None:
    """Let no other host record a use or a judgement before this transaction ends."""
    # A transaction that writes to SQLite is alone.
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("LOCK TABLE uses, lasting_outcomes IN SHARE ROW EXCLUSIVE MODE"))


def insert_missing_uses(connection: sa.Connection, new: Sequence[ItemUse]) -> None:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestCounts:
    """Requests by what is known about them."""

    IN_JSON: ClassVar = ("total", "links")

    succeeded: int = 0
    failed: int = 0
    no_feedback: int = 0
    # The address that lists them, below the root of REST.
    address: str = field(default="", metadata=INTERNAL)

    @property
    def total(self) -> int:
        return self.succeeded + self.failed + self.no_feedback

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the turns that each count counts."""
        links = build_count_links(self.address)
        return {"total" if name == "used" else name: links[name] for name in ("used", *_REQUEST_COUNTS)}


@dataclass(frozen=True, kw_only=True, slots=True)
class DailyRequestCounts(RequestCounts):
    """The requests of one day; `skills` has one entry per use on that day."""

    day: date
    skills: tuple[str, ...] = ()


_REQUEST_COUNTS = ("succeeded", "failed", "no_feedback")


def count_requests_by_day(
    connection: sa.Connection, now: datetime, number: int, user: str | None
) -> tuple[DailyRequestCounts, ...]:
    """Return the counts of the last days, oldest first, including days without requests; `user` None counts all."""
    today = now.astimezone(UTC).date()
    all_days = [today - timedelta(days=back) for back in range(number - 1, -1, -1)]
    since = datetime.combine(all_days[0], datetime.min.time(), tzinfo=UTC)
    went = {day: dict.fromkeys(_REQUEST_COUNTS, 0) for day in all_days}
    is_asked = [turns.c.started_on >= since, turns.c.source_type.not_in(SYNTHETIC_SOURCE_TYPES)]
    is_asked += [] if user is None else [turns.c.user == user]
    judged = _load_judgements_by_turn(connection, sa.select(turns.c.id).where(*is_asked))
    for id, began in connection.execute(sa.select(turns.c.id, turns.c.started_on).where(*is_asked)):
        verdict = decide_use_verdict(judged[id])
        # The clock of another host may be ahead by a day.
        if counted := went.get(began.astimezone(UTC).date()):
            counted[verdict.outcome.value] += 1
    used: defaultdict[date, list[str]] = defaultdict(list)
    for item, _, at in list_skill_use_times(connection, since, user=user):
        used[at.astimezone(UTC).date()].append(item)
    scope = "&all_users=true" if user is None else ""
    return tuple(
        DailyRequestCounts(
            day=day, skills=tuple(used[day]), address=f"/turns?since={day}&until={day}{scope}", **went[day]
        )
        for day in all_days
    )


def count_requests_with_lesson(connection: sa.Connection, lesson: str, user: str | None) -> RequestCounts:
    """Count the stored requests that a lesson was chosen for, one of each conversation; `user` None counts all."""
    is_mine = sa.true() if user is None else turns.c.user == user
    is_real = turns.c.source_type.not_in(SYNTHETIC_SOURCE_TYPES)
    query = sa.select(turns.c.id).where(turns.c.id.in_(build_query_of_turns_with_lesson(lesson)), is_real, is_mine)
    judged = _load_judgements_by_turn(connection, query)
    went = dict.fromkeys(_REQUEST_COUNTS, 0)
    for id in connection.execute(query).scalars():
        went[decide_use_verdict(judged[id]).outcome.value] += 1
    scope = "&all_users=true" if user is None else ""
    return RequestCounts(address=f"/turns?lesson={lesson}{scope}", **went)


def build_query_of_turns_with_lesson(lesson: str) -> sa.Select[Any]:
    """Return the query of the turns for which a lesson was chosen, one of each conversation."""
    table = exposures.c
    is_chosen = (table.kind == "lesson", table.item == lesson, table.is_offered, sa.not_(table.is_steady))
    return sa.select(table.turn).where(*is_chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRequest:
    """A request and what is known about it; it outlives its turn, without text."""

    turn: str
    at: datetime
    verdict: UseVerdict
    # Whether its turn is still stored.
    has_text: bool = True
    # What its turn says that it took; 0 and None if it does not say.
    tokens: int = 0
    dollars: float | None = None

    @property
    def outcome(self) -> UseVerdict:
        """Whether it succeeded, failed, or has no feedback."""
        return self.verdict.outcome


def list_requests_with_verdicts(
    connection: sa.Connection, since: datetime, before: datetime, user: str | None
) -> list[JudgedRequest]:
    """Return the requests of a period, oldest first; after their retention, those of which an outcome is stored."""
    asked, kept = turns.c, lasting_outcomes.c
    stored = sa.select(asked.id, asked.started_on, asked.usage).where(
        asked.started_on >= since,
        asked.started_on < before,
        asked.source_type.not_in(SYNTHETIC_SOURCE_TYPES),
        *([] if user is None else [asked.user == user]),
    )
    in_period = (
        kept.began_on >= since,
        kept.began_on < before,
        kept.origin == TurnOrigin.REAL.value,
        *([] if user is None else [kept.user == user]),
    )
    judged = _load_judgements_by_turn(connection, sa.select(kept.turn).where(*in_period))
    found = {
        id: JudgedRequest(
            turn=id, at=at, verdict=decide_use_verdict(judged.get(id, [])), **_read_tokens_and_dollars_of_turn(spent)
        )
        for id, at, spent in connection.execute(stored)
    }
    for id, at in connection.execute(sa.select(kept.turn, kept.began_on).where(*in_period).distinct()):
        if id not in found:
            found[id] = JudgedRequest(turn=id, at=at, verdict=decide_use_verdict(judged[id]), has_text=False)
    return sorted(found.values(), key=lambda one: (one.at, one.turn))


def _read_tokens_and_dollars_of_turn(packed: str) -> dict[str, Any]:
    """Return the tokens and dollars of a turn from its stored usage."""
    spent = parse_json_object(packed)
    tokens = int(spent.get("input_tokens", 0) + spent.get("output_tokens", 0))
    return {"tokens": tokens, "dollars": spent.get("cost")}


def list_skill_use_times(
    connection: sa.Connection, since: datetime, skill: tuple[str, str] | None = None, *, user: str | None = None
) -> Sequence[tuple[str, str, datetime]]:
    """Return the name, layer key and time of each use of a skill (or of all skills) in a real turn."""
    table = uses.c
    query = sa.select(table.item, table.layer, table.at)
    query = query.where(IS_USE, table.origin == TurnOrigin.REAL.value, table.at >= since)
    if skill is not None:
        query = query.where(table.item == skill[0], table.layer == skill[1])
    if user is not None:
        query = query.where(table.user == user)
    return [(item, layer, at) for item, layer, at in connection.execute(query)]


def count_skill_uses_by_other_users(connection: sa.Connection, user: str) -> dict[tuple[str, str], int]:
    """Return how often each skill (layer key and name) was used by anyone but this user."""
    where = (IS_USE, uses.c.origin == TurnOrigin.REAL.value, uses.c.user != user)
    query = sa.select(uses.c.layer, uses.c.item, sa.func.count()).where(*where).group_by(uses.c.layer, uses.c.item)
    return {(layer, item): number for layer, item, number in connection.execute(query)}
