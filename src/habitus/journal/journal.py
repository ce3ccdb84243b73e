"""The journal: writes redacted turns, one transaction each, and reads them back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound
from habitus.events import Event, OutcomeKind
from habitus.journal import facts
from habitus.journal.facts import Day, JudgedTurn
from habitus.journal.model import (
    NOT_REAL,
    KeptExposure,
    KeptSession,
    KeptSums,
    Place,
    TrialArms,
    Turn,
    TurnFilter,
    TurnOutcome,
)
from habitus.journal.tables import (
    events,
    messages,
    object_of,
    outcomes,
    seen,
    selections,
    turn_of,
    turns,
)
from habitus.redact import Redactor
from habitus.text import encodable

# Turns loaded per query when reading in batches.
_AT_ONCE = 200
_PARTS = (messages, events, selections, outcomes)


class Journal:
    """Records turns and their outcomes in the database, with secrets redacted, and queries them."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        clock: Callable[[], datetime],
        redactor: Redactor,
        kept_for: timedelta,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._redactor = redactor
        self.kept_for = kept_for
        self._was_judged = False

    def begin(self, turn: Turn) -> None:
        """Record the request of a turn that has just started."""
        with sql.writing(self._engine) as connection:
            connection.execute(turns.insert().values(self._row(turn)))
            rows = [{"role": m.role, "content": self._safe(m.content)} for m in turn.messages]
            _insert(connection, messages, turn.id, rows)

    def record(self, turn: Turn) -> None:
        """Record a complete turn, replacing its earlier record; secrets are redacted."""
        with sql.writing(self._engine) as connection:
            # Feedback may have arrived while the turn was running; it must survive the rewrite.
            kept = connection.execute(sa.select(outcomes).where(outcomes.c.turn == turn.id)).mappings().all()
            connection.execute(turns.delete().where(turns.c.id == turn.id))
            connection.execute(turns.insert().values(self._row(turn)))
            own = [self._outcome(outcome) for outcome in turn.outcomes]
            earlier = [{key: row[key] for key in ("kind", "weight", "source", "reason", "at")} for row in kept]
            added = [row for row in earlier if row["source"] not in {outcome["source"] for outcome in own}]
            for table, rows in (
                (messages, [{"role": m.role, "content": self._safe(m.content)} for m in turn.messages]),
                (events, [self._event(event) for event in turn.events]),
                (selections, [{**asdict(one), "place": one.place.value} for one in turn.selected]),
                (outcomes, [*own, *added]),
            ):
                _insert(connection, table, turn.id, rows)
            facts.record(connection, turn, turn.outcomes, self._clock())

    # In the methods below, `user` restricts the result to that user's turns; None means all users.
    def judge(self, turn: str, outcome: TurnOutcome, *, user: str | None = None) -> str:
        """Record an outcome for a turn, given by its id or caller id, and return the turn's id.

        A second outcome from the same source replaces the first.
        """
        with sql.writing(self._engine, lock="outcomes") as connection:
            query = sa.select(turns).where(sa.or_(turns.c.id == turn, turns.c.caller_id == turn), _of(user))
            row = connection.execute(query.order_by(turns.c.started_on.desc()).limit(1)).mappings().first()
            known = facts.judged_turn(connection, turn, user) if row is None else JudgedTurn.of(turn_of(row, {}))
            if known is None:
                raise NotFound(f"There is no turn '{turn}'.", hint="'habitus sessions show' has their ids.")
            facts.judge(connection, known, [outcome], self._clock())
            found = known.turn
            if row is None:
                # The turn was pruned, but its exposures still learn from the outcome.
                return found
            same = (outcomes.c.turn == found, outcomes.c.source == outcome.source)
            connection.execute(outcomes.delete().where(*same))
            last = sa.select(sa.func.max(outcomes.c.number)).where(outcomes.c.turn == found)
            number = (connection.execute(last).scalar() or 0) + 1
            packed = self._outcome(outcome) | {"turn": found, "number": number}
            connection.execute(outcomes.insert().values(packed))
        return found

    def turn(self, id: str, *, user: str | None = None) -> Turn:
        """Return a turn with its messages, events, selections, outcomes and exposures."""
        with sql.reading(self._engine) as connection:
            row = connection.execute(sa.select(turns).where(turns.c.id == id, _of(user))).mappings().first()
            if row is None:
                raise NotFound(f"There is no turn '{id}'.", hint="See 'habitus sessions list'.")
            turn = turn_of(row, {table.name: _entries(connection, table, id) for table in _PARTS})
            return replace(turn, exposures=facts.of_turn(connection, id))

    def turns_of(self, session: str, *, user: str | None = None) -> list[Turn]:
        """Return the turns of a session, oldest first."""
        query = sa.select(turns.c.id).where(turns.c.session == session, _of(user))
        query = query.order_by(turns.c.started_on, turns.c.id)
        with sql.reading(self._engine) as connection:
            ids = connection.execute(query).scalars().all()
        return [self.turn(id) for id in ids]

    def turns_showing(self, skill: str, layer: str, version: int) -> list[Turn]:
        """Return the turns that showed this skill version in full or whose model loaded it, oldest first."""
        table, places = selections.c, (Place.EAGER.value, Place.STICKY.value, Place.LOADED.value)
        which = (table.name == skill, table.layer == layer, table.version == version, table.place.in_(places))
        with sql.reading(self._engine) as connection:
            ids = connection.execute(sa.select(table.turn).where(*which).distinct()).scalars().all()
        return sorted((self.turn(id) for id in ids), key=lambda turn: turn.started_on)

    def user_of(self, session: str) -> str:
        """Return the user of a session; empty if the journal has no turn of it."""
        query = sa.select(turns.c.user).where(turns.c.session == session).limit(1)
        with sql.reading(self._engine) as connection:
            return str(connection.execute(query).scalar() or "")

    def recent(self, conversation: str, *, limit: int, user: str | None = None) -> list[Turn]:
        """Return the last turns of a conversation, newest first, with only their chosen skills and outcomes."""
        query = sa.select(turns).where(turns.c.conversation == conversation, _of(user))
        return self._brief(query.order_by(turns.c.started_on.desc(), turns.c.id.desc()).limit(limit))

    def latest(self, *, limit: int, user: str | None = None) -> list[Turn]:
        """Return the latest real turns of all conversations, newest first, in brief."""
        return self._brief(
            sa.select(turns).where(_is_real(), _of(user)).order_by(turns.c.started_on.desc()).limit(limit)
        )

    def find(self, wanted: TurnFilter, *, limit: int, after: str = "") -> list[Turn]:
        """Return the real turns that match the filter, newest first, in brief; `after` is the last turn of the previous
        page.
        """
        query = sa.select(turns).where(_is_real(), _of(wanted.user))
        if wanted.text:
            query = query.where(turns.c.request.icontains(wanted.text, autoescape=True))
        if wanted.source_type:
            query = query.where(turns.c.source_type == wanted.source_type)
        if wanted.skill:
            read = selections.c.place.in_([Place.EAGER.value, Place.LOADED.value])
            showing = sa.select(selections.c.turn).where(selections.c.name == wanted.skill, read)
            query = query.where(turns.c.id.in_(showing))
        if after:
            mark = self.turn(after, user=wanted.user)
            earlier = turns.c.started_on < mark.started_on
            query = query.where(earlier | ((turns.c.started_on == mark.started_on) & (turns.c.id < after)))
        query = query.order_by(turns.c.started_on.desc(), turns.c.id.desc())
        if wanted.outcome is None:
            return self._brief(query.limit(limit))
        found: list[Turn] = []
        start, is_over = 0, False
        # The effective outcome is computed from all outcomes of a turn, so SQL can't filter by it.
        while len(found) < limit and not is_over:
            some = self._brief(query.offset(start).limit(_AT_ONCE))
            found += [turn for turn in some if _went(turn) is wanted.outcome]
            start, is_over = start + _AT_ONCE, len(some) < _AT_ONCE
        return found[:limit]

    def source_types(self, *, user: str | None = None) -> list[str]:
        """Return the source types of real turns, sorted."""
        return self._distinct(turns.c.source_type, _is_real(), _of(user))

    def users(self) -> list[str]:
        """Return the users that have real turns, sorted."""
        return self._distinct(turns.c.user, _is_real())

    def _distinct(self, column: sa.Column[Any], *where: sa.ColumnElement[bool]) -> list[str]:
        with sql.reading(self._engine) as connection:
            return sorted(connection.execute(sa.select(column).where(*where).distinct()).scalars())

    def brief(self, id: str, *, user: str | None = None) -> Turn | None:
        """Return a turn in brief, by its id or caller id; None if the journal does not have it."""
        query = sa.select(turns).where(sa.or_(turns.c.id == id, turns.c.caller_id == id), _of(user))
        return next(iter(self._brief(query.order_by(turns.c.started_on.desc()).limit(1))), None)

    def past(self, *, limit: int, user: str | None = None) -> Iterator[Turn]:
        """Yield the latest finished real turns, oldest first, with messages, events, chosen or loaded skills and
        outcomes.
        """
        query = sa.select(turns.c.id).where(turns.c.ended_on.is_not(None), _is_real(), _of(user))
        with sql.reading(self._engine) as connection:
            latest = query.order_by(turns.c.started_on.desc(), turns.c.id.desc()).limit(limit)
            ids = connection.execute(latest).scalars().all()[::-1]
        # In batches, because databases limit the number of parameters in one IN clause.
        for start in range(0, len(ids), _AT_ONCE):
            some = sa.select(turns).where(turns.c.id.in_(ids[start : start + _AT_ONCE]))
            yield from self._brief(some.order_by(turns.c.started_on, turns.c.id), messages, events)

    def _brief(self, query: sa.Select[Any], *more: sa.Table) -> list[Turn]:
        """Load turns with their chosen or loaded skills and outcomes, plus the rows of the tables in `more`."""
        with sql.reading(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
            ids = [row["id"] for row in rows]
            parts: dict[str, dict[str, list[Mapping[Any, Any]]]] = {id: {} for id in ids}
            for table, wanted in (
                (selections, selections.c.place.in_([Place.EAGER.value, Place.LOADED.value])),
                *((table, sa.true()) for table in (outcomes, *more)),
            ):
                chosen = sa.select(table).where(table.c.turn.in_(ids), wanted).order_by(table.c.number)
                for entry in connection.execute(chosen).mappings() if ids else ():
                    parts[entry["turn"]].setdefault(table.name, []).append(entry)
        return [turn_of(row, parts[row["id"]]) for row in rows]

    def sessions(self, *, limit: int = 50, user: str | None = None, after: str = "") -> list[KeptSession]:
        """Return sessions with their turn counts, latest first; `after` is the last session of the previous page."""
        last = sa.func.max(turns.c.started_on)
        is_behind: sa.ColumnElement[bool] = sa.true()
        if after:
            mark = self._last_turn_on(after, user)
            is_behind = (last < mark) | ((last == mark) & (turns.c.session > after))
        latest = (
            sa.select(
                turns.c.session.label("id"),
                sa.func.min(turns.c.started_on).label("started_on"),
                last.label("last_turn_on"),
                sa.func.count().label("turns"),
                sa.func.min(turns.c.user).label("user"),
            )
            .where(_of(user))
            .group_by(turns.c.session)
            .having(is_behind)
            .order_by(last.desc(), turns.c.session)
            .limit(limit)
            .subquery()
        )
        # The title is the beginning of the session's first request, read only for the page being shown.
        opening = sa.select(sa.func.substr(turns.c.request, 1, 80)).where(turns.c.session == latest.c.id)
        title = opening.where(_of(user)).order_by(turns.c.started_on, turns.c.id).limit(1).scalar_subquery()
        with sql.reading(self._engine) as connection:
            query = sa.select(latest, title.label("title")).order_by(latest.c.last_turn_on.desc(), latest.c.id)
            return [KeptSession(**row) for row in connection.execute(query).mappings()]

    def _last_turn_on(self, session: str, user: str | None) -> datetime:
        query = sa.select(sa.func.max(turns.c.started_on)).where(turns.c.session == session, _of(user))
        with sql.reading(self._engine) as connection:
            found: datetime | None = connection.execute(query).scalar()
        if found is None:
            raise Invalid(f"No page of sessions begins after '{session}'.", hint="Begin anew, without 'after'.")
        return found

    def session_ids(self, *, user: str | None = None) -> frozenset[str]:
        """Return the ids of all sessions that have turns."""
        with sql.reading(self._engine) as connection:
            return frozenset(connection.execute(sa.select(turns.c.session).where(_of(user)).distinct()).scalars())

    def days(self, number: int) -> tuple[Day, ...]:
        """Return the requests of the last days by outcome, for all users together."""
        with sql.reading(self._engine) as connection:
            return facts.read_days(connection, self._clock(), number)

    def used_since(self, since: datetime, of: str | None = None) -> Sequence[tuple[str, datetime]]:
        """Return each use of a skill (or of all skills) since then, with its time."""
        with sql.reading(self._engine) as connection:
            return facts.used_since(connection, since, of)

    def last_heard(self) -> dict[str, datetime]:
        """Return the time of the last real request, by kind of agent."""
        with sql.reading(self._engine) as connection:
            return facts.last_heard(connection)

    def prune(self) -> int:
        """Delete the turns that are older than the retention period; return how many."""
        with sql.writing(self._engine) as connection:
            gone = turns.delete().where(turns.c.started_on < self._clock() - self.kept_for)
            return connection.execute(gone).rowcount

    def exposures(self, items: Sequence[str] | None = None) -> list[KeptExposure]:
        """Return the exposures of these items (or all), offered or withheld, with their conversations' later scores."""
        with sql.reading(self._engine) as connection:
            return facts.load_exposures(connection, items)

    def is_judged(self) -> bool:
        """Return whether any conversation has explicit feedback."""
        # A True answer is cached for good: after an erasure, callers merely find no evidence.
        if not self._was_judged:
            with sql.reading(self._engine) as connection:
                self._was_judged = facts.is_judged(connection)
        return self._was_judged

    def exposures_and_sums(self) -> tuple[list[KeptExposure], KeptSums]:
        """Return the exposures that the cached sums do not count, and those sums; all exposures if there are none."""
        with sql.reading(self._engine) as connection:
            sums = facts.read_sums(connection)
            found = facts.load_exposures(connection, since=sums.until)
            # A reset between the two reads would leave a gap, so then everything is loaded.
            if facts.count_changes(connection) == sums.changes:
                return found, sums
            return facts.load_exposures(connection), KeptSums()

    def keep_sums(self, sums: KeptSums) -> None:
        """Save the sums, unless a transaction is open in this context."""
        # Writing needs a second connection, and a small pool may have none left.
        if sql.open_transactions():
            return
        with sql.writing(self._engine) as connection:
            facts.keep_sums(connection, sums)

    def trial_arms(self, kind: str, item: str | None = None) -> list[TrialArms]:
        """Count the conversations of paired trials with and without an item (or all items of a kind), by version."""
        with sql.reading(self._engine) as connection:
            return facts.trial_arms(connection, kind, item)

    def erase_evidence(self, user: str) -> int:
        """Delete the exposures and outcomes of a user; return how many there were."""
        with sql.writing(self._engine) as connection:
            return facts.erase(connection, user)

    def seed(self) -> str:
        """Return the random seed of this installation, which all hosts share."""
        with sql.writing(self._engine) as connection:
            return facts.seed(connection)

    def skills_seen(self, user: str) -> dict[str, str] | None:
        """Return name → hash of the skills as the user last saw them; None if the user never listed them."""
        with sql.reading(self._engine) as connection:
            packed = connection.execute(sa.select(seen.c.hashes).where(seen.c.user == user)).scalar()
        return None if packed is None else object_of(packed)

    def mark_seen(self, user: str, hashes: Mapping[str, str]) -> None:
        """Remember the skills and hashes that a user has now seen."""
        values = {"hashes": json.dumps(dict(hashes), sort_keys=True), "seen_on": self._clock()}
        with sql.writing(self._engine, lock=f"seen:{user}") as connection:
            sql.insert_missing(connection, seen, [{"user": user, **values}])
            connection.execute(seen.update().where(seen.c.user == user).values(values))

    def _row(self, turn: Turn) -> dict[str, Any]:
        said = encodable(self._redactor.redact(turn.request).text)
        own = {column.name: getattr(turn, column.name) for column in turns.columns}
        return own | {"request": said, "usage": json.dumps(dict(turn.usage))}

    def _safe(self, content: object) -> str:
        return encodable(json.dumps(self._redactor.redact_value(content), ensure_ascii=False, default=str))

    def _outcome(self, outcome: TurnOutcome) -> dict[str, Any]:
        return {
            "kind": outcome.kind.value,
            "weight": outcome.weight,
            "source": outcome.source,
            "reason": encodable(self._redactor.redact(outcome.reason).text),
            "at": outcome.at or self._clock(),
        }

    def _event(self, event: Event) -> dict[str, Any]:
        return {
            "kind": event.kind.value,
            "severity": event.severity,
            "round_idx": event.round_idx,
            "detail": self._safe(dict(event.detail)),
        }


def effective(found: Sequence[TurnOutcome]) -> TurnOutcome | None:
    """Return the outcome that counts, the heaviest and of equal ones the latest; None without outcomes."""
    ranked = sorted(enumerate(found), key=lambda item: (item[1].weight, item[1].at or datetime.min, item[0]))
    return ranked[-1][1] if ranked else None


def _went(turn: Turn) -> OutcomeKind | None:
    judged = effective(turn.outcomes)
    return None if judged is None else judged.kind


def loaded_or_ruled(turn: Turn) -> tuple[str, ...]:
    """Return the skills of a turn that a rule or the model chose, without merely sticky ones."""
    return tuple(entry.name for entry in turn.selected if entry.place in (Place.LOADED, Place.EAGER))


def _is_real() -> sa.ColumnElement[bool]:
    return turns.c.source_type.not_in(NOT_REAL)


def _of(user: str | None) -> sa.ColumnElement[bool]:
    return sa.true() if user is None else turns.c.user == user


def _insert(connection: sa.Connection, table: sa.Table, turn: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(table.insert(), [{"turn": turn, "number": n, **row} for n, row in enumerate(rows, 1)])


def _entries(connection: sa.Connection, table: sa.Table, turn: str) -> list[Mapping[Any, Any]]:
    query = sa.select(table).where(table.c.turn == turn).order_by(table.c.number)
    return list(connection.execute(query).mappings())
