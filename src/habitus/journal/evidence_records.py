"""Exposures and outcomes without any text, which outlive their turns until the user is erased.

Also the time of the last request of each kind of agent.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self

import sqlalchemy as sa

from habitus import sql
from habitus.events import OutcomeKind
from habitus.journal.menus import load_steady_exposures_from_menus, store_steady_exposures_as_menu
from habitus.journal.model import (
    CHANGE,
    SYNTHETIC_SOURCE_TYPES,
    CachedEvidenceSums,
    ExposureAssignment,
    JudgementSourceKind,
    ScoredExposure,
    TrialVariantCounts,
    Turn,
    TurnOrigin,
    TurnOutcome,
    classify_turn_origin,
)
from habitus.journal.tables import (
    evidence_seed,
    evidence_sums,
    exposures,
    lasting_outcomes,
    menu_exposures,
    turn_menus,
    turns,
    uses,
)
from habitus.journal.usage import (
    EXPLICIT_WEIGHT,
    get_deciding_or_heaviest_outcome,
    insert_missing_uses,
    is_from_knowing_source,
    judgement_from_row,
)

_EXPOSURE_FIELDS = tuple(ExposureAssignment.__dataclass_fields__)
# Younger conversations still change often, so they are left out of the cached sums.
SETTLING_PERIOD = timedelta(days=3)
# Shorter than the settling period, because the clocks of two hosts may differ by up to a day.
_SUMS_RESET_AGE = timedelta(days=2)
# So many steady exposures that begin together are stored as one list.
_LIST_SIZE = 4
_UNITS_PER_QUERY = 500
# The row of `evidence_sums` that counts how often sums were deleted; the others are sums by the day of their end.
_RESET_COUNT = 1
_IS_RESET_COUNT, _IS_CHECKPOINT = evidence_sums.c.id == _RESET_COUNT, evidence_sums.c.id != _RESET_COUNT
_DAY_S = 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedTurnFacts:
    """The facts of a turn that its outcomes carry, available even after the turn itself was pruned."""

    turn: str
    unit: str
    user: str
    caller_id: str
    began_on: datetime
    origin: str

    @classmethod
    def from_turn(cls, turn: Turn) -> Self:
        """Return the facts of a turn from the journal."""
        return cls(
            turn=turn.id,
            unit=turn.session,
            user=turn.user,
            caller_id=turn.caller_id,
            began_on=turn.started_on,
            origin=classify_turn_origin(turn.source_type).value,
        )


def record_turn_evidence(connection: sa.Connection, turn: Turn, judged: Sequence[TurnOutcome], now: datetime) -> None:
    """Record a turn's outcomes and the exposures that began or were used in it; recording it twice changes nothing."""
    known = JudgedTurnFacts.from_turn(turn)
    belongs = {name: getattr(known, name) for name in ("unit", "turn", "user", "origin")} | {"at": turn.started_on}
    steady = [one for one in turn.exposures if one.is_steady]
    is_list = sum(not one.is_used for one in steady) >= _LIST_SIZE and known.origin != TurnOrigin.TRIAL.value
    if is_list:
        store_steady_exposures_as_menu(connection, belongs, steady, now)
    own = [one for one in turn.exposures if not (is_list and one.is_steady and not one.is_used)]
    # A steady exposure began with the list that has it, even if it is used only now.
    began = (
        belongs | _find_start_of_first_exposure_list(connection, turn.session)
        if any(one.is_steady for one in own)
        else belongs
    )
    rows = [
        (began if one.is_steady else belongs) | {name: getattr(one, name) for name in _EXPOSURE_FIELDS} for one in own
    ]
    sql.upsert_rows(
        connection,
        exposures,
        rows,
        lambda new: {
            "is_used": sa.or_(exposures.c.is_used, new.is_used),
            # A later turn may use what an earlier one ignored, so a use overrides `is_ignored`.
            "is_ignored": sa.case((new.is_used, new.is_ignored), else_=exposures.c.is_ignored),
        },
    )
    insert_missing_uses(connection, turn.uses)
    record_outcomes_of_turn(connection, known, judged, now)


def _find_start_of_first_exposure_list(connection: sa.Connection, unit: str) -> dict[str, Any]:
    """Return the turn and time at which a conversation's first list of exposures began; empty if it has none."""
    query = sa.select(menu_exposures.c.turn, menu_exposures.c.at).where(menu_exposures.c.unit == unit)
    row = connection.execute(query.order_by(menu_exposures.c.at).limit(1)).mappings().first()
    return {} if row is None else dict(row)


def record_outcomes_of_turn(
    connection: sa.Connection, turn: JudgedTurnFacts, judged: Iterable[TurnOutcome], now: datetime
) -> None:
    """Record outcomes of a turn; a later outcome from the same source replaces the earlier one, unless the earlier one
    came from a stronger kind of source.
    """
    rows = [
        {
            **asdict(turn),
            "source": one.source,
            "source_kind": one.source_kind.value,
            "kind": one.kind.value,
            "weight": one.weight,
            "at": one.at or now,
        }
        for one in judged
    ]
    ranks = {kind.value: kind.rank for kind in JudgementSourceKind}
    old = lasting_outcomes.c

    def replace_weaker(new: sa.ColumnCollection[str, Any]) -> Mapping[str, Any]:
        # A program that signs with a person's name must not overwrite the person.
        is_stronger = sa.case(ranks, value=new.source_kind) >= sa.case(ranks, value=old.source_kind)
        return {
            name: sa.case((is_stronger, new[name]), else_=old[name]) for name in ("kind", "weight", "at", "source_kind")
        }

    sql.upsert_rows(connection, lasting_outcomes, rows, replace_weaker)
    _delete_cached_sums_counting_conversation(connection, turn.unit, now)


def find_turn_with_recorded_outcome(connection: sa.Connection, turn: str, user: str | None) -> JudgedTurnFacts | None:
    """Return the latest turn with this id or caller id, or None if no outcome of it was recorded."""
    table = lasting_outcomes.c
    whose = sa.true() if user is None else table.user == user
    query = sa.select(lasting_outcomes).where(sa.or_(table.turn == turn, table.caller_id == turn), whose)
    row = connection.execute(query.order_by(table.began_on.desc()).limit(1)).mappings().first()
    return (
        None if row is None else JudgedTurnFacts(**{name: row[name] for name in JudgedTurnFacts.__dataclass_fields__})
    )


def load_exposures_begun_in_turn(connection: sa.Connection, turn: Turn) -> tuple[ExposureAssignment, ...]:
    """Return the exposures that began in a turn, in a fixed order."""
    # By the conversation, which has an index.
    own_rows, listed_rows = ((t.c.unit == turn.session, t.c.turn == turn.id) for t in (exposures, menu_exposures))
    query = sa.select(exposures).where(*own_rows)
    own = [_exposure_from_row(row) for row in connection.execute(query).mappings()]
    known = {_get_exposure_key(one) for one in own}
    listed = [
        one
        for _, several in load_steady_exposures_from_menus(connection, *listed_rows)
        for one in several
        if _get_exposure_key(one) not in known
    ]
    return tuple(sorted((*own, *listed), key=lambda one: (not one.is_steady, one.kind, one.item)))


def list_conversations_with_exposures(
    connection: sa.Connection, *, since: datetime | None
) -> Sequence[tuple[str, datetime]]:
    """Return the conversations with exposures after a time, each with the time of the first of these, oldest first."""
    both = sa.union_all(
        *(
            sa.select(table.c.unit, table.c.at).where(*_build_time_and_user_conditions(table, since))
            for table in (exposures, menu_exposures)
        )
    ).subquery()
    began = sa.func.min(both.c.at, type_=both.c.at.type)
    query = sa.select(both.c.unit, began).group_by(both.c.unit).order_by(began, both.c.unit)
    return [(unit, at) for unit, at in connection.execute(query)]


def list_items_chosen_for_requests(
    connection: sa.Connection, *, since: datetime | None, until: datetime | None
) -> frozenset[tuple[str, str]]:
    """Return the items, by kind and name, that were chosen for a request; others only stood in a steady part."""
    is_chosen = [
        sa.not_(exposures.c.is_steady),
        _build_counted_exposure_condition(),
        *_build_time_and_user_conditions(exposures, since),
    ]
    is_chosen += [] if until is None else [exposures.c.at <= until]
    query = sa.select(exposures.c.kind, exposures.c.item).where(*is_chosen)
    # Of a short time SQLite would read the whole index of items to tell them apart.
    rows = connection.execute(query.distinct() if since is None else query)
    return frozenset((kind, item) for kind, item in rows)


def load_scored_exposures(
    connection: sa.Connection,
    items: Sequence[str] | None = None,
    *,
    units: Collection[str] | None = None,
    since: datetime | None = None,
    user: str | None = None,
    chosen: Collection[tuple[str, str]] = (),
    of_changes: bool = False,
) -> list[ScoredExposure]:
    """Return the exposures of these items (or all), oldest first, each with its conversation's later scores.

    Includes real turns and the random assignments of trials; practice and replays do not count. Without the steady
    exposures of items that are `chosen` elsewhere. Which version of a skill a conversation got is a comparison of its
    own, `of_changes`.
    """
    table = exposures.c
    some = [sa.true() if items is None else table.item.in_(items)]
    some += [] if units is None else [table.unit.in_(units)]
    columns = [table[name] for name in _EXPOSURE_FIELDS]
    query = sa.select(table.unit, table.turn, table.at, table.origin, *columns)
    rows = connection.execute(
        query.where(
            _build_counted_exposure_condition(of_changes=of_changes),
            *some,
            *_build_time_and_user_conditions(exposures, since, user),
        )
    ).all()
    began = [
        (unit, turn, at, origin, ExposureAssignment(**dict(zip(_EXPOSURE_FIELDS, values, strict=True))))
        for unit, turn, at, origin, *values in rows
    ]
    known = {(unit, _get_exposure_key(one)) for unit, _, _, _, one in began if one.is_steady}
    began = [one for one in began if not (one[4].is_steady and (one[4].kind, one[4].item) in chosen)]
    # Menus have no comparisons of versions.
    is_real = [sa.false() if of_changes else menu_exposures.c.origin == TurnOrigin.REAL.value]
    is_real += [] if units is None else [menu_exposures.c.unit.in_(units)]
    limits = _build_time_and_user_conditions(menu_exposures, since, user)
    for row, several in load_steady_exposures_from_menus(connection, *is_real, *limits, items=items, without=chosen):
        start = row["unit"], row["turn"], row["at"], row["origin"]
        began += [(*start, one) for one in several if (row["unit"], _get_exposure_key(one)) not in known]
    # Reading all outcomes once is faster than asking for many units.
    found = {unit for unit, *_ in began}
    went = _load_outcomes_by_unit(connection, found if len(found) < _UNITS_PER_QUERY else None) if found else {}
    # A conversation's exposures mostly begin together, so their scores are computed once.
    scores = {
        (unit, at): _score_turns(judged for began_on, judged in went[unit].values() if began_on >= at)
        for unit, at in {(unit, at) for unit, _, at, _, _ in began if unit in went}
    }
    origins = {origin.value: origin for origin in TurnOrigin}
    kept = []
    for unit, turn, at, origin, exposure in sorted(began, key=lambda one: (one[2], one[0])):
        said, seemed = scores.get((unit, at), ((), ()))
        kept.append(
            ScoredExposure(
                exposure=exposure,
                origin=origins[origin],
                explicit_scores=said,
                inferred_scores=seemed,
                unit=unit,
                turn=turn,
                at=at,
            )
        )
    return kept


def _build_counted_exposure_condition(*, of_changes: bool = False) -> sa.ColumnElement[bool]:
    """Whether an exposure is of a real turn, or the random assignment of a trial; `of_changes` or of items."""
    is_wanted = exposures.c.kind == CHANGE if of_changes else exposures.c.kind != CHANGE
    is_arm = sa.and_(exposures.c.origin == TurnOrigin.TRIAL.value, exposures.c.propensity < 1)
    return sa.and_(is_wanted, sa.or_(exposures.c.origin == TurnOrigin.REAL.value, is_arm))


def _build_time_and_user_conditions(
    table: sa.Table, since: datetime | None, user: str | None = None
) -> list[sa.ColumnElement[bool]]:
    limits = [] if since is None else [table.c.at > since]
    return limits if user is None else [*limits, table.c.user == user]


def _get_exposure_key(one: ExposureAssignment) -> tuple[bool, str, str, int]:
    return one.is_steady, one.kind, one.item, one.version


def load_session_start(connection: sa.Connection, session: str) -> datetime | None:
    """Return when the first stored turn of a session began; None if there is none."""
    began = turns.c.started_on
    return connection.execute(
        sa.select(sa.func.min(began, type_=began.type)).where(turns.c.session == session)
    ).scalar()


def has_any_explicit_feedback(connection: sa.Connection) -> bool:
    """Return whether any conversation has explicit feedback."""
    return connection.execute(_EXPLICIT_OUTCOME_QUERY).first() is not None


_EXPLICIT_OUTCOME_QUERY = (
    sa.select(lasting_outcomes.c.turn).where(lasting_outcomes.c.weight >= EXPLICIT_WEIGHT).limit(1)
)


def load_latest_cached_evidence_sums(connection: sa.Connection, until: datetime) -> CachedEvidenceSums:
    """Return the latest cached sums that end until then, with the number of resets; without sums if there are none."""
    changes = connection.execute(sa.select(evidence_sums.c.changes).where(_IS_RESET_COUNT)).scalar()
    found = sa.select(evidence_sums.c.until, evidence_sums.c.sums).where(_IS_CHECKPOINT, evidence_sums.c.until <= until)
    # By the key, the day of `until`: to sort by another column, SQLite would hold all sums in memory.
    row = connection.execute(found.order_by(evidence_sums.c.id.desc()).limit(1)).mappings().first()
    known = {} if changes is None else {"changes": changes}
    return CachedEvidenceSums(**known, **(row or {}))


def save_evidence_sums_unless_reset(connection: sa.Connection, new: CachedEvidenceSums, now: datetime) -> None:
    """Save the sums unless any were reset since `changes` was read."""
    assert new.until is not None
    _insert_missing_reset_count_row(connection)
    # Locked, so that a reset waits until the sums are saved, and finds them.
    locked = sa.select(evidence_sums.c.changes).where(_IS_RESET_COUNT).with_for_update()
    if connection.execute(locked).scalar() != new.changes:
        return
    row = {"id": int(new.until.timestamp() // _DAY_S), **asdict(new)}
    sql.upsert_rows(connection, evidence_sums, [row], lambda given: {"until": given.until, "sums": given.sums})
    saved = connection.execute(sa.select(evidence_sums.c.id, evidence_sums.c.until).where(_IS_CHECKPOINT)).all()
    kept = {get_age_bucket_of_cached_sums(now - until): id for id, until in sorted(saved, reverse=True)} | {
        -1: max(saved)[0]
    }
    connection.execute(evidence_sums.delete().where(_IS_CHECKPOINT, evidence_sums.c.id.not_in(kept.values())))


def get_age_bucket_of_cached_sums(age: timedelta) -> int:
    """Return the number of the period of ages, each four times as long as the one before, of which the oldest cached
    sums are kept, which grow into the next one: after a late judgement, a look reads again at most about four times its
    age.
    """
    return int(math.log(max(age / SETTLING_PERIOD, 1), 4))


def delete_all_cached_evidence_sums(connection: sa.Connection) -> None:
    """Delete all cached sums; call this when conversations were erased."""
    _delete_cached_sums_and_count_reset(connection, sa.true())


def _delete_cached_sums_and_count_reset(connection: sa.Connection, where: sa.ColumnElement[bool]) -> None:
    # The count first: its row is what a process that saves sums holds, perhaps the first ones.
    _insert_missing_reset_count_row(connection)
    connection.execute(evidence_sums.update().where(_IS_RESET_COUNT).values(changes=evidence_sums.c.changes + 1))
    connection.execute(evidence_sums.delete().where(_IS_CHECKPOINT, where))


def _insert_missing_reset_count_row(connection: sa.Connection) -> None:
    sql.insert_missing_rows(connection, evidence_sums, [{"id": _RESET_COUNT, "changes": 0}])


def _delete_cached_sums_counting_conversation(connection: sa.Connection, unit: str, now: datetime) -> None:
    """Delete the cached sums that may count this conversation; call this with every change to one."""
    first = [
        sa.select(sa.func.min(t.c.at, type_=t.c.at.type)).where(t.c.unit == unit) for t in (exposures, menu_exposures)
    ]
    began = [at for query in first if (at := connection.execute(query).scalar()) is not None]
    if began and min(began) <= now - _SUMS_RESET_AGE:
        _delete_cached_sums_and_count_reset(connection, evidence_sums.c.until >= min(began))


def count_trial_conversations_by_variant(
    connection: sa.Connection, kind: str, item: str | None = None
) -> list[TrialVariantCounts]:
    """Count the conversations of paired trials with and without each item, by version."""
    table = exposures.c
    with_it = sa.func.sum(sa.case((table.is_offered, 1), else_=0))
    query = sa.select(table.item, table.version, with_it, sa.func.count() - with_it)
    query = query.where(table.origin == TurnOrigin.TRIAL.value, table.propensity < 1, table.kind == kind)
    query = query.group_by(table.item, table.version).order_by(table.item, table.version)
    rows = connection.execute(query if item is None else query.where(table.item == item))
    return [
        TrialVariantCounts(item=name, version=number, offered=on, withheld=off, kind=kind)
        for name, number, on, off in rows
    ]


# Judgements by turn, with the time at which the turn began.
_JudgementsByTurn = dict[str, tuple[datetime, list[TurnOutcome]]]


def _load_outcomes_by_unit(connection: sa.Connection, units: Collection[str] | None) -> Mapping[str, _JudgementsByTurn]:
    """Return the recorded outcomes by unit and turn, of these units or of all."""
    found: defaultdict[str, _JudgementsByTurn] = defaultdict(dict)
    query = sa.select(lasting_outcomes)
    some = query if units is None else query.where(lasting_outcomes.c.unit.in_(units))
    for row in connection.execute(some).mappings():
        _, judgements = found[row["unit"]].setdefault(row["turn"], (row["began_on"], []))
        judgements.append(judgement_from_row(row))
    return found


def _score_turns(turns: Iterable[Sequence[TurnOutcome]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Score turns by explicit feedback, and the rest by weak signals; outages count neither way."""
    said: list[float] = []
    seemed: list[float] = []
    for judgements in turns:
        went = get_deciding_or_heaviest_outcome(judgements)
        if went is not None and went.kind is not OutcomeKind.INFRA:
            (said if is_from_knowing_source(went) else seemed).append(float(went.kind is OutcomeKind.OK))
    return tuple(said), tuple(seemed)


def erase_user_evidence(connection: sa.Connection, user: str) -> int:
    """Delete every exposure, outcome and use of a user; return how many there were."""
    tables = (exposures, menu_exposures, lasting_outcomes, uses, turn_menus)
    delete_all_cached_evidence_sums(connection)
    return sum(connection.execute(table.delete().where(table.c.user == user)).rowcount for table in tables)


def load_or_create_random_seed(connection: sa.Connection) -> str:
    """Return the random seed of this installation, created on first use."""
    # Two hosts may ask at once: the first insert wins and both read the same seed.
    sql.insert_missing_rows(connection, evidence_seed, [{"id": 1, "seed": secrets.token_hex(16)}])
    return str(connection.execute(sa.select(evidence_seed.c.seed)).scalar_one())


def _exposure_from_row(row: Mapping[Any, Any]) -> ExposureAssignment:
    return ExposureAssignment(**{name: row[name] for name in _EXPOSURE_FIELDS})


def load_last_request_time_by_agent_kind(connection: sa.Connection, user: str | None) -> dict[str, datetime]:
    """Return the time of the last real request, by kind of agent; `user` None looks at all users."""
    query = sa.select(turns.c.source_type, sa.func.max(turns.c.started_on).label("last")).group_by(turns.c.source_type)
    query = query.where(turns.c.source_type.not_in(SYNTHETIC_SOURCE_TYPES))
    rows = connection.execute(query if user is None else query.where(turns.c.user == user))
    return {row.source_type: row.last for row in rows}
