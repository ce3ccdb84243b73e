"""The waiting room: jobs wait in one queue that no worker listens to; a worker moves those it takes into its own.

So each has only as many as it has hands for and only kinds it knows, limits hold for all hosts together, and what a
worker leaves or loses is put back. A job's token is taken away with it: who still works on it writes in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

import sqlalchemy as sa

from habitus.jobs.engine import FORMAT, OWN, PLAN, WAITING, WORKFLOW, own_queue
from habitus.jobs.rules import FIRST_WAIT_S, Lanes, Limits, Trouble, chosen
from habitus.jobs.store import JobStore, is_for, jobs, parts, queues

_LOOKED_AT = 200  # waiting jobs at a time, beside those whose lanes are full

_is_waiting = sa.and_(
    jobs.c.name == WORKFLOW,
    jobs.c.queue_name == WAITING,
    jobs.c.status == "ENQUEUED",
    jobs.c.application_version == FORMAT,
)
_kind, _model, _user = (jobs.c.attributes[key].as_string() for key in ("kind", "model", "user"))


class Room:
    def __init__(self, store: JobStore, worker: str, *, host: str = "", first_wait_s: float = FIRST_WAIT_S) -> None:
        self._store = store
        self._worker = worker
        self._host = host
        self._first_wait_s = first_wait_s

    def take(self, kinds: Collection[str], *, hands: int, limits: Limits) -> int:
        """Take as many jobs as there are hands free, the most urgent and then the oldest first; how many it were."""
        is_due = sa.func.coalesce(jobs.c.delay_until_epoch_ms, 0) <= self._store.now_ms()
        known = sa.and_(_is_waiting, _kind.in_(kinds), is_for(self._host), is_due)
        with self._store.reading() as connection:
            if connection.execute(sa.select(jobs.c.workflow_uuid).where(known).limit(1)).first() is None:
                return 0
        with self._store.changing() as connection:
            held = _held(connection, jobs.c.queue_name == own_queue(self._worker))
            free = hands - len(held)
            if free <= 0:
                return 0
            running = _held(connection, jobs.c.queue_name.startswith(OWN))
            order = (jobs.c.priority, jobs.c.created_at, jobs.c.workflow_uuid)
            looked_at = sa.select(jobs.c.workflow_uuid, _model, _user).where(known, *_room(running, limits))
            rows = connection.execute(looked_at.order_by(*order).limit(_LOOKED_AT + free)).all()
            waiting = [(id, Lanes(model=model or "", user=user or "")) for id, model, user in rows]
            taken = chosen(waiting, running, most=free, limits=limits)
            mine = sa.update(jobs).where(_is_waiting, jobs.c.workflow_uuid.in_(taken))
            return connection.execute(mine.values(queue_name=own_queue(self._worker))).rowcount

    def unknown(self, kinds: Collection[str]) -> frozenset[str]:
        """Kinds that wait and that none of these is."""
        with self._store.reading() as connection:
            found = connection.execute(sa.select(_kind).where(_is_waiting, _kind.not_in(kinds)).distinct())
            return frozenset(found.scalars())

    def begun(self) -> frozenset[str]:
        """The jobs that count as running here."""
        mine = (jobs.c.queue_name == own_queue(self._worker), jobs.c.status == "PENDING")
        with self._store.reading() as connection:
            return frozenset(connection.execute(sa.select(jobs.c.workflow_uuid).where(*mine)).scalars())

    def put_back(self, ids: Collection[str]) -> None:
        """Jobs that this worker has and does not do."""
        with self._store.changing() as connection:
            ours = (jobs.c.queue_name == own_queue(self._worker), jobs.c.status.in_(("ENQUEUED", "PENDING")))
            connection.execute(sa.update(jobs).where(jobs.c.workflow_uuid.in_(ids), *ours).values(_WAITING_AGAIN))

    def failed(self, id: str, reason: str) -> Trouble:
        """A part failed, and not for a reason that a person could mend: it waits to be tried again, or is parked."""
        with self._store.changing() as connection:
            is_here = (jobs.c.workflow_uuid == id, jobs.c.queue_name == own_queue(self._worker))
            kept = connection.execute(sa.select(jobs.c.attributes).where(*is_here, jobs.c.status == "PENDING")).scalar()
            if kept is None:
                return Trouble()  # cancelled, or another worker has it
            trouble = _trouble(kept).after_failure(reason, at=_done(connection, id))
            wait_ms = int(trouble.wait_s(self._first_wait_s) * 1000)
            _put_back(connection, id, kept, trouble, not_before=self._store.now_ms() + wait_ms)
            return trouble

    def leave(self) -> None:
        """What is left here is for others, at once."""
        _let_go(self._store, self._worker, died=False)

    def inherit(self, worker: str) -> None:
        """What a dead worker had is for everybody again, but for what so many have died of. Two who do so at once do no
        harm."""
        _let_go(self._store, worker, died=True)

    def beats(self) -> Mapping[str, int]:
        """Every worker that has a queue, and how often its heart has beaten."""
        with self._store.reading() as connection:
            rows = connection.execute(sa.select(queues).where(queues.c.name.startswith(OWN))).all()
        return {row.name.removeprefix(OWN): row.updated_at for row in rows}

    def beat(self) -> bool:
        """Whether this worker still has a queue: it is gone if others took the worker for dead. On one machine nobody
        could, and nobody listens."""
        if not self._store.is_shared:
            return True
        mine = sa.update(queues).where(queues.c.name == own_queue(self._worker))
        with self._store.writing() as connection:
            return connection.execute(mine.values(updated_at=queues.c.updated_at + 1)).rowcount > 0


_WAITING_AGAIN = {"status": "ENQUEUED", "queue_name": WAITING, "owner_xid": None, "started_at_epoch_ms": None}


def _held(connection: sa.Connection, by: sa.ColumnElement[bool]) -> list[Lanes]:
    rows = connection.execute(sa.select(_model, _user).where(by, jobs.c.status.in_(("ENQUEUED", "PENDING"))))
    return [Lanes(model=model or "", user=user or "") for model, user in rows]


def _room(running: Collection[Lanes], limits: Limits) -> list[sa.ColumnElement[bool]]:
    """Those whose lane is full are not looked at, however many they are."""
    full: list[sa.ColumnElement[bool]] = []
    for column, lanes, limit in (
        (_model, [each.model for each in running], limits.per_model),
        (_user, [each.user for each in running], limits.per_user),
    ):
        names = {lane for lane in lanes if lane and limit and lanes.count(lane) >= limit}
        if names:
            full.append(sa.func.coalesce(column, "").not_in(names))
    return full


def _let_go(store: JobStore, worker: str, *, died: bool) -> None:
    with store.changing() as connection:
        rows = connection.execute(
            sa.select(jobs.c.workflow_uuid, jobs.c.status, jobs.c.attributes).where(
                jobs.c.queue_name == own_queue(worker), jobs.c.status.in_(("ENQUEUED", "PENDING"))
            )
        ).all()
        for id, status, kept in rows:
            if died and status == "PENDING":
                trouble = _trouble(kept).after_death(worker, at=_done(connection, id))
                _put_back(connection, id, kept, trouble)
            else:
                connection.execute(sa.update(jobs).where(jobs.c.workflow_uuid == id).values(_WAITING_AGAIN))
        connection.execute(sa.delete(queues).where(queues.c.name == own_queue(worker)))


def _trouble(kept: Mapping[str, object]) -> Trouble:
    found = kept.get("trouble")
    return Trouble.read(found if isinstance(found, dict) else None)


def _put_back(
    connection: sa.Connection,
    id: str,
    kept: Mapping[str, object],
    trouble: Trouble,
    *,
    not_before: sa.ColumnElement[int] | None = None,
) -> None:
    values: dict[str, object] = {**_WAITING_AGAIN, "attributes": {**kept, "trouble": asdict(trouble)}}
    if trouble.is_too_much:
        values |= {"status": "MAX_RECOVERY_ATTEMPTS_EXCEEDED"}
    elif not_before is not None:
        values |= {"delay_until_epoch_ms": not_before}
    connection.execute(sa.update(jobs).where(jobs.c.workflow_uuid == id).values(values))


def _done(connection: sa.Connection, id: str) -> int:
    good = (parts.c.workflow_uuid == id, parts.c.error.is_(None), parts.c.function_name != PLAN)
    found: int = connection.execute(sa.select(sa.func.count()).where(*good)).scalar_one()
    return found
