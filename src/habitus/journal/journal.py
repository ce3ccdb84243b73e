"""The journal: writes redacted turns, one transaction each, and reads them back."""

from __future__ import annotations

import bisect
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound
from habitus.events import AgentEvent
from habitus.journal import evidence_records, menus, usage
from habitus.journal.evidence_records import JudgedTurnFacts
from habitus.journal.model import (
    SYNTHETIC_SOURCE_TYPES,
    CachedEvidenceSums,
    ExposureBatch,
    ItemUse,
    JudgementSourceKind,
    ScoredExposure,
    SessionSummary,
    SkillPlacementKind,
    TrialVariantCounts,
    Turn,
    TurnFilter,
    TurnOutcome,
)
from habitus.journal.retention import prune_turns
from habitus.journal.tables import (
    TURN_FIELDS,
    events,
    messages,
    outcomes,
    parse_json_object,
    seen_skills,
    selections,
    turn_from_row,
    turns,
    uses,
)
from habitus.journal.usage import JudgedUse, UsageCountObserver, UseVerdict, decide_use_verdict
from habitus.redact import Redactor
from habitus.text import replace_surrogates
from habitus.use_counts import UsageByKey, compute_count_changes

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
# Turns loaded per query when reading in batches.
_BATCH_SIZE = 200
_TURN_PART_TABLES = (messages, events, selections, outcomes)


class Journal:
    """Records turns and their outcomes in the database, with secrets redacted, and queries them."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        redactor: Redactor,
        retention: timedelta,
        usage_observer: UsageCountObserver | None = None,
    ) -> None:
        self._engine = engine
        self._observer = usage_observer or UsageCountObserver()
        self._clock = clock
        self._redactor = redactor
        self.retention = retention
        self._was_judged = False

    def record_turn_start(self, turn: Turn) -> None:
        """Record the request of a turn that has just started."""
        with sql.write_transaction(self._engine) as connection:
            connection.execute(turns.insert().values(self._build_turn_row(turn)))
            rows = [{"role": m.role, "content": self._redact_to_json(m.content)} for m in turn.messages]
            _insert_turn_parts(connection, messages, turn.id, rows)

    def record_complete_turn(self, turn: Turn) -> None:
        """Record a complete turn, replacing its earlier record; secrets are redacted."""
        with self._open_usage_transaction(turn.id) as connection:
            # Feedback may have arrived while the turn was running; it must survive the rewrite.
            kept = connection.execute(sa.select(outcomes).where(outcomes.c.turn == turn.id)).mappings().all()
            connection.execute(turns.delete().where(turns.c.id == turn.id))
            menu, chosen = menus.split_selection_into_menu_and_rows(turn.selected)
            digest = menus.store_selection_menu(connection, turn.user, menu, self._clock())
            connection.execute(turns.insert().values({**self._build_turn_row(turn), "menu": digest}))
            own = [self._build_outcome_row(outcome) for outcome in turn.outcomes]
            earlier = [{key: row[key] for key in row if key not in ("turn", "number")} for row in kept]
            added = [row for row in earlier if row["source"] not in {outcome["source"] for outcome in own}]
            for table, rows in (
                (messages, [{"role": m.role, "content": self._redact_to_json(m.content)} for m in turn.messages]),
                (events, [self._build_event_row(event) for event in turn.events]),
                (selections, [{**asdict(one), "place": one.place.value} for one in chosen]),
                (outcomes, [*own, *added]),
            ):
                _insert_turn_parts(connection, table, turn.id, rows)
            evidence_records.record_turn_evidence(connection, turn, turn.outcomes, self._clock())

    def record_use(self, use: ItemUse) -> None:
        """Record a use at once, such as a run of a skill's code."""
        with self._open_usage_transaction(use.turn) as connection:
            usage.insert_missing_uses(connection, [use])

    @contextmanager
    def _open_usage_transaction(self, turn: str) -> Iterator[sa.Connection]:
        """Open a transaction that changes uses or judgements of a turn, and report how the counts changed by it."""
        # A lock per turn: of two judgements at once, the second must see the first.
        with sql.write_transaction(self._engine, lock=f"usage:{turn}") as connection:
            before = usage.count_turn_uses(connection, turn)
            yield connection
            changes = compute_count_changes(usage.count_turn_uses(connection, turn), before)
            if changes:
                self._observer.apply_changes(changes)
        if not changes:
            return
        try:
            # Outside the transaction: what follows from a judgement must not undo it.
            self._observer.after_changes(changes)
        except Exception:
            log.warning("A judgement was recorded, but nothing could be proposed after it.", exc_info=True)

    # In the methods below, `user` restricts the result to that user's turns; None means all users.
    def record_outcome(self, turn: str, outcome: TurnOutcome, *, user: str | None = None) -> str:
        """Record an outcome for a turn, given by its id or caller id, and return the turn's id.

        A second outcome from the same source replaces the first, unless the first came from a stronger kind of source.
        """
        with sql.read_transaction(self._engine) as connection:
            query = sa.select(turns).where(sa.or_(turns.c.id == turn, turns.c.caller_id == turn), _match_user(user))
            row = connection.execute(query.order_by(turns.c.started_on.desc()).limit(1)).mappings().first()
            known = (
                evidence_records.find_turn_with_recorded_outcome(connection, turn, user)
                if row is None
                else JudgedTurnFacts.from_turn(turn_from_row(row, {}))
            )
            if known is None:
                raise NotFound(f"There is no turn '{turn}'.", hint="'habitus sessions show' has their ids.")
        with self._open_usage_transaction(known.turn) as connection:
            evidence_records.record_outcomes_of_turn(connection, known, [outcome], self._clock())
            # If the turn was pruned, its exposures and uses still learn from the outcome.
            if row is not None:
                self._store_outcome_unless_weaker(connection, known.turn, outcome)
        return known.turn

    def _store_outcome_unless_weaker(self, connection: sa.Connection, turn: str, outcome: TurnOutcome) -> None:
        same = (outcomes.c.turn == turn, outcomes.c.source == outcome.source)
        known = connection.execute(sa.select(outcomes.c.source_kind).where(*same)).scalar()
        if known is not None and JudgementSourceKind(known).rank > outcome.source_kind.rank:
            return
        connection.execute(outcomes.delete().where(*same))
        last = sa.select(sa.func.max(outcomes.c.number)).where(outcomes.c.turn == turn)
        number = (connection.execute(last).scalar() or 0) + 1
        packed = self._build_outcome_row(outcome) | {"turn": turn, "number": number}
        connection.execute(outcomes.insert().values(packed))

    def get_turn(self, id: str, *, user: str | None = None) -> Turn:
        """Return a turn with its messages, events, selections, outcomes and exposures."""
        with sql.read_transaction(self._engine) as connection:
            row = connection.execute(sa.select(turns).where(turns.c.id == id, _match_user(user))).mappings().first()
            if row is None:
                raise NotFound(f"There is no turn '{id}'.", hint="See 'habitus sessions list'.")
            turn = turn_from_row(
                row, {table.name: _load_turn_parts(connection, table, id) for table in _TURN_PART_TABLES}
            )
            menu = menus.load_selection_menu(connection, row["menu"])
            return replace(
                turn,
                selected=menus.join_selection_from_menu_and_rows(menu, turn.selected),
                exposures=evidence_records.load_exposures_begun_in_turn(connection, turn),
            )

    def list_session_turns(self, session: str, *, user: str | None = None) -> list[Turn]:
        """Return the turns of a session, oldest first."""
        query = sa.select(turns.c.id).where(turns.c.session == session, _match_user(user))
        query = query.order_by(turns.c.started_on, turns.c.id)
        return [self.get_turn(id) for id in self._read_query_column(query)]

    def get_session_user(self, session: str) -> str:
        """Return the user of a session; empty if the journal has no turn of it."""
        query = sa.select(turns.c.user).where(turns.c.session == session).limit(1)
        return "".join(self._read_query_column(query))

    def list_recent_turns_of_conversation(
        self, conversation: str, *, limit: int, user: str | None = None
    ) -> list[Turn]:
        """Return the last turns of a conversation, newest first, with only their chosen skills and outcomes."""
        query = sa.select(turns).where(turns.c.conversation == conversation, _match_user(user))
        return self._load_brief_turns(query.order_by(turns.c.started_on.desc(), turns.c.id.desc()).limit(limit))

    def list_latest_turns_of_all_conversations(self, *, limit: int, user: str | None = None) -> list[Turn]:
        """Return the latest real turns of all conversations, newest first, in brief."""
        return self._load_brief_turns(
            sa.select(turns)
            .where(_match_real_turns(), _match_user(user))
            .order_by(turns.c.started_on.desc())
            .limit(limit)
        )

    def find_turns(self, criteria: TurnFilter, *, limit: int, after: str = "") -> list[Turn]:
        """Return the real turns that match, newest first, in brief; `after` is the last turn of the page before."""
        query = sa.select(turns).where(_match_real_turns(), _match_user(criteria.user))
        if criteria.text:
            query = query.where(turns.c.request.icontains(criteria.text, autoescape=True))
        if criteria.source_type:
            query = query.where(turns.c.source_type == criteria.source_type)
        if criteria.skill:
            used = sa.select(uses.c.turn).where(usage.IS_USE)
            query = query.where(
                turns.c.id.in_(used if criteria.skill == "*" else used.where(uses.c.item == criteria.skill))
            )
        if criteria.lesson:
            query = query.where(turns.c.id.in_(usage.build_query_of_turns_with_lesson(criteria.lesson)))
        if criteria.since is not None:
            query = query.where(turns.c.started_on >= criteria.since)
        if criteria.before is not None:
            query = query.where(turns.c.started_on < criteria.before)
        if after:
            mark = self.get_turn(after, user=criteria.user)
            earlier = turns.c.started_on < mark.started_on
            query = query.where(earlier | ((turns.c.started_on == mark.started_on) & (turns.c.id < after)))
        query = query.order_by(turns.c.started_on.desc(), turns.c.id.desc())
        if not criteria.verdict:
            return self._load_brief_turns(query.limit(limit))
        wanted = UseVerdict(criteria.verdict)
        found: list[Turn] = []
        start, is_over = 0, False
        # The verdict is decided from all outcomes of a turn, so SQL can't filter by it.
        while len(found) < limit and not is_over:
            some = self._load_brief_turns(query.offset(start).limit(_BATCH_SIZE))
            found += [turn for turn in some if decide_use_verdict(turn.outcomes).is_counted_as(wanted)]
            start, is_over = start + _BATCH_SIZE, len(some) < _BATCH_SIZE
        return found[:limit]

    def list_source_types_of_turns(self, *, user: str | None = None) -> list[str]:
        """Return the source types of real turns, sorted."""
        return self._list_distinct_values(turns.c.source_type, _match_real_turns(), _match_user(user))

    def list_users(self) -> list[str]:
        """Return the users that have real turns, sorted."""
        return self._list_distinct_values(turns.c.user, _match_real_turns())

    def _call_in_read_transaction(
        self, load: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **options: P.kwargs
    ) -> T:
        with sql.read_transaction(self._engine) as connection:
            return load(connection, *args, **options)

    def _read_query_column(self, query: sa.Select[Any]) -> Sequence[Any]:
        with sql.read_transaction(self._engine) as connection:
            return connection.execute(query).scalars().all()

    def _list_distinct_values(self, column: sa.Column[Any], *where: sa.ColumnElement[bool]) -> list[str]:
        return sorted(self._read_query_column(sa.select(column).where(*where).distinct()))

    def find_brief_turn(self, id: str, *, user: str | None = None) -> Turn | None:
        """Return a turn in brief, by its id or caller id; None if the journal does not have it."""
        query = sa.select(turns).where(sa.or_(turns.c.id == id, turns.c.caller_id == id), _match_user(user))
        return next(iter(self._load_brief_turns(query.order_by(turns.c.started_on.desc()).limit(1))), None)

    def iterate_latest_finished_turns(self, *, limit: int, user: str | None = None) -> Iterator[Turn]:
        """Yield the latest finished real turns, oldest first, with messages, events, chosen or loaded skills and
        outcomes.
        """
        query = sa.select(turns.c.id).where(turns.c.ended_on.is_not(None), _match_real_turns(), _match_user(user))
        ids = self._read_query_column(query.order_by(turns.c.started_on.desc(), turns.c.id.desc()).limit(limit))[::-1]
        # In batches, because databases limit the number of parameters in one IN clause.
        for start in range(0, len(ids), _BATCH_SIZE):
            some = sa.select(turns).where(turns.c.id.in_(ids[start : start + _BATCH_SIZE]))
            yield from self._load_brief_turns(some.order_by(turns.c.started_on, turns.c.id), messages, events)

    def _load_brief_turns(self, query: sa.Select[Any], *more: sa.Table) -> list[Turn]:
        """Load turns with their chosen or loaded skills and outcomes, plus the rows of the tables in `more`."""
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
            ids = [row["id"] for row in rows]
            parts: dict[str, dict[str, list[Mapping[Any, Any]]]] = {id: {} for id in ids}
            for table, wanted in (
                (selections, selections.c.place.in_([SkillPlacementKind.EAGER.value, SkillPlacementKind.LOADED.value])),
                *((table, sa.true()) for table in (outcomes, *more)),
            ):
                chosen = sa.select(table).where(table.c.turn.in_(ids), wanted).order_by(table.c.number)
                for entry in connection.execute(chosen).mappings() if ids else ():
                    parts[entry["turn"]].setdefault(table.name, []).append(entry)
        return [turn_from_row(row, parts[row["id"]]) for row in rows]

    def list_sessions(self, *, limit: int = 50, user: str | None = None, after: str = "") -> list[SessionSummary]:
        """Return sessions with their turn counts, latest first; `after` is the last session of the previous page."""
        last = sa.func.max(turns.c.started_on)
        is_behind: sa.ColumnElement[bool] = sa.true()
        if after:
            mark = self._get_last_turn_time_of_session(after, user)
            is_behind = (last < mark) | ((last == mark) & (turns.c.session > after))
        latest = (
            sa.select(
                turns.c.session.label("id"),
                sa.func.min(turns.c.started_on).label("started_on"),
                last.label("last_turn_on"),
                sa.func.count().label("turns"),
                sa.func.min(turns.c.user).label("user"),
            )
            .where(_match_user(user))
            .group_by(turns.c.session)
            .having(is_behind)
            .order_by(last.desc(), turns.c.session)
            .limit(limit)
            .subquery()
        )
        # The title is the beginning of the session's first request, read only for the page being shown.
        opening = sa.select(sa.func.substr(turns.c.request, 1, 80)).where(turns.c.session == latest.c.id)
        title = opening.where(_match_user(user)).order_by(turns.c.started_on, turns.c.id).limit(1).scalar_subquery()
        with sql.read_transaction(self._engine) as connection:
            query = sa.select(latest, title.label("title")).order_by(latest.c.last_turn_on.desc(), latest.c.id)
            return [SessionSummary(**row) for row in connection.execute(query).mappings()]

    def _get_last_turn_time_of_session(self, session: str, user: str | None) -> datetime:
        query = sa.select(sa.func.max(turns.c.started_on)).where(turns.c.session == session, _match_user(user))
        (found,) = self._read_query_column(query)
        if found is None:
            raise Invalid(f"No page of sessions begins after '{session}'.", hint="Start again without 'after'.")
        assert isinstance(found, datetime)
        return found

    def list_session_ids(self, *, user: str | None = None) -> frozenset[str]:
        """Return the ids of all sessions that have turns."""
        return frozenset(self._list_distinct_values(turns.c.session, _match_user(user)))

    def count_requests_by_day(self, number: int, *, user: str | None = None) -> tuple[usage.DailyRequestCounts, ...]:
        """Return the requests of the last days by what is known about them."""
        return self._call_in_read_transaction(usage.count_requests_by_day, self._clock(), number, user)

    def list_skill_use_times(
        self, since: datetime, skill: tuple[str, str] | None = None
    ) -> Sequence[tuple[str, str, datetime]]:
        """Return the name, layer key and time of each use since then, of one skill (name and layer key) or of all."""
        return self._call_in_read_transaction(usage.list_skill_use_times, since, skill)

    def load_judged_uses_of_skill(self, item: str, layer: str) -> list[JudgedUse]:
        """Return the uses of a skill with what is known about each, oldest first; `layer` is its store's key."""
        return self._call_in_read_transaction(usage.load_judged_uses, uses.c.item == item, uses.c.layer == layer)

    def count_skill_uses_by_other_users(self, user: str) -> dict[tuple[str, str], int]:
        """Return how often each skill (layer key and name) was used by anyone but this user."""
        return self._call_in_read_transaction(usage.count_skill_uses_by_other_users, user)

    def load_request_texts_of_turns(self, ids: Sequence[str], *, user: str | None = None) -> dict[str, str]:
        """Return the requests of those of these turns that are stored."""
        query = sa.select(turns.c.id, turns.c.request).where(turns.c.id.in_(ids), _match_user(user))
        with sql.read_transaction(self._engine) as connection:
            return {row.id: row.request for row in connection.execute(query)}

    def count_all_uses_from_facts(self) -> UsageByKey:
        """Count every use from the facts, to check the stored counts."""
        return usage.count_uses_by_key(self._call_in_read_transaction(usage.load_judged_uses))

    def count_requests_with_lesson(self, lesson: str, *, user: str | None = None) -> usage.RequestCounts:
        """Count the stored requests that a lesson was chosen for, one of each conversation."""
        return self._call_in_read_transaction(usage.count_requests_with_lesson, lesson, user)

    def get_last_request_time_by_agent_kind(self, *, user: str | None = None) -> dict[str, datetime]:
        """Return the time of the last real request, by kind of agent."""
        return self._call_in_read_transaction(evidence_records.load_last_request_time_by_agent_kind, user)

    def get_oldest_turn_time(self) -> datetime | None:
        """Return when the oldest stored turn began; None if there is none."""
        with sql.read_transaction(self._engine) as connection:
            return connection.execute(sa.select(sa.func.min(turns.c.started_on))).scalar()

    def prune_turns(self) -> int:
        """Delete the turns that are older than the retention period; return how many."""
        return prune_turns(self._engine, self._clock(), self.retention)

    def load_scored_exposures(
        self, items: Sequence[str] | None = None, *, user: str | None = None, chosen: Collection[tuple[str, str]] = ()
    ) -> list[ScoredExposure]:
        """Return the exposures of items (or all) with later scores, without the steady ones of `chosen` items."""
        return self._call_in_read_transaction(evidence_records.load_scored_exposures, items, user=user, chosen=chosen)

    def has_any_explicit_feedback(self) -> bool:
        """Return whether any conversation has explicit feedback."""
        # A True answer is cached for good: after an erasure, callers merely find no evidence.
        if not self._was_judged:
            self._was_judged = self._call_in_read_transaction(evidence_records.has_any_explicit_feedback)
        return self._was_judged

    def load_latest_cached_evidence_sums(self, until: datetime) -> CachedEvidenceSums:
        """Return the latest cached sums that end until then."""
        return self._call_in_read_transaction(evidence_records.load_latest_cached_evidence_sums, until)

    def iterate_exposure_batches(
        self, chosen: Collection[tuple[str, str]], *, since: datetime | None = None, size: int = _BATCH_SIZE
    ) -> Iterator[ExposureBatch]:
        """Yield the exposures after a time in batches of `size` whole conversations, oldest first.

        Without the steady exposures of items that are `chosen` for requests.
        """
        units = self._call_in_read_transaction(evidence_records.list_conversations_with_exposures, since=since)
        start = 0
        while start < len(units):
            until = units[min(start + size, len(units)) - 1][1]
            # With all that began at the same time, so that a batch ends at a time.
            end = bisect.bisect_right(units, until, lo=start, key=itemgetter(1))
            some = [unit for unit, _ in units[start:end]]
            load = evidence_records.load_scored_exposures
            yield ExposureBatch(
                until=until, exposures=self._call_in_read_transaction(load, units=some, since=since, chosen=chosen)
            )
            start = end

    def list_items_chosen_for_requests(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return the items, by kind and name, that were chosen for a request in this time."""
        return self._call_in_read_transaction(evidence_records.list_items_chosen_for_requests, since=since, until=until)

    def save_evidence_sums_unless_reset(self, sums: CachedEvidenceSums) -> None:
        """Save the sums, unless a transaction is open in this context."""
        # Writing needs a second connection, and a small pool may have none left.
        if sql.count_open_transactions():
            return
        with sql.write_transaction(self._engine) as connection:
            evidence_records.save_evidence_sums_unless_reset(connection, sums, self._clock())

    def count_trial_conversations_by_variant(self, kind: str, item: str | None = None) -> list[TrialVariantCounts]:
        """Count the conversations of paired trials with and without an item (or all items of a kind), by version."""
        return self._call_in_read_transaction(evidence_records.count_trial_conversations_by_variant, kind, item)

    def erase_user_evidence(self, user: str) -> int:
        """Delete the exposures, outcomes and uses of a user; return how many there were."""
        with sql.write_transaction(self._engine) as connection:
            counted = usage.count_uses_by_key(usage.load_judged_uses(connection, uses.c.user == user))
            erased = evidence_records.erase_user_evidence(connection, user)
            if changes := compute_count_changes({}, counted):
                self._observer.apply_changes(changes)
        self._observer.after_changes(changes)
        return erased

    def get_or_create_random_seed(self) -> str:
        """Return the random seed of this installation, which all hosts share."""
        with sql.write_transaction(self._engine) as connection:
            return evidence_records.load_or_create_random_seed(connection)

    def get_hashes_of_seen_skills(self, user: str) -> dict[str, str] | None:
        """Return name → hash of the skills as the user last saw them; None if the user never listed them."""
        packed = self._read_query_column(sa.select(seen_skills.c.hashes).where(seen_skills.c.user == user))
        return parse_json_object(packed[0]) if packed else None

    def store_hashes_of_seen_skills(self, user: str, hashes: Mapping[str, str]) -> None:
        """Remember the skills and hashes that a user has now seen."""
        values = {"hashes": json.dumps(dict(hashes), sort_keys=True), "seen_on": self._clock()}
        with sql.write_transaction(self._engine, lock=f"seen:{user}") as connection:
            sql.insert_missing_rows(connection, seen_skills, [{"user": user, **values}])
            connection.execute(seen_skills.update().where(seen_skills.c.user == user).values(values))

    def _build_turn_row(self, turn: Turn) -> dict[str, Any]:
        said = replace_surrogates(self._redactor.redact(turn.request).text)
        own = {name: getattr(turn, name) for name in TURN_FIELDS}
        return own | {"request": said, "usage": json.dumps(dict(turn.usage))}

    def _redact_to_json(self, content: object) -> str:
        return replace_surrogates(json.dumps(self._redactor.redact_value(content), ensure_ascii=False, default=str))

    def _build_outcome_row(self, outcome: TurnOutcome) -> dict[str, Any]:
        return {
            "kind": outcome.kind.value,
            "weight": outcome.weight,
            "source": outcome.source,
            "source_kind": outcome.source_kind.value,
            "reason": replace_surrogates(self._redactor.redact(outcome.reason).text),
            "at": outcome.at or self._clock(),
        }

    def _build_event_row(self, event: AgentEvent) -> dict[str, Any]:
        return {
            "kind": event.kind.value,
            "severity": event.severity,
            "round_idx": event.round_idx,
            "detail": self._redact_to_json(dict(event.detail)),
        }


def list_chosen_non_sticky_skills_of_turn(turn: Turn) -> tuple[str, ...]:
    """Return the skills of a turn that a rule or the model chose, without merely sticky ones."""
    return tuple(
        entry.name for entry in turn.selected if entry.place in (SkillPlacementKind.LOADED, SkillPlacementKind.EAGER)
    )


def _match_real_turns() -> sa.ColumnElement[bool]:
    return turns.c.source_type.not_in(SYNTHETIC_SOURCE_TYPES)


def _match_user(user: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if user is None else turns.c.user == user


def _insert_turn_parts(
    connection: sa.Connection, table: sa.Table, turn: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    if rows:
        connection.execute(table.insert(), [{"turn": turn, "number": n, **row} for n, row in enumerate(rows, 1)])


def _load_turn_parts(connection: sa.Connection, table: sa.Table, turn: str) -> list[Mapping[Any, Any]]:
    query = sa.select(table).where(table.c.turn == turn).order_by(table.c.number)
    return list(connection.execute(query).mappings())
