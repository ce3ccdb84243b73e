"""The queue of jobs as those see it who add to it, look at it and take from it; no job runs here."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from dbos import DBOSClient, EnqueueOptions, WorkflowStatus

from habitus.errors import NotFound, Refused
from habitus.jobs.engine import APPLICATION, FORMAT, PLAN, STATES, WAITING, WORKFLOW, Json, own_queue
from habitus.jobs.model import Job, JobState, Priority
from habitus.jobs.rules import ALONE, Lanes, Trouble
from habitus.jobs.store import JobStore, is_for, jobs, parts


class JobQueue:
    """`user` is whose jobs are shown and changed; None is everybody's."""

    def __init__(self, url: str, *, connections: int = 1, user: str | None = None, workspace: str = "") -> None:
        self._user = user
        self.store = JobStore(url, connections=connections, workspace=workspace)
        self._client = DBOSClient(
            system_database_engine=self.store.engine,
            dbos_system_schema=self.store.schema,
            serializer=Json(),
            application_name=APPLICATION,
        )

    def close(self) -> None:
        self._client.destroy()
        self.store.close()

    def open_for(self, worker: str, *, hands: int, look_s: float) -> None:
        """A queue of its own for a worker, for what it takes."""
        self._client.register_queue(own_queue(worker), worker_concurrency=hands, polling_interval_sec=look_s)

    def add(
        self,
        kind: str,
        given: Mapping[str, Any],
        *,
        id: str = "",
        lanes: Lanes = ALONE,
        priority: Priority = Priority.NORMAL,
    ) -> str:
        """Add a job, and return its id. One that is there under this id stays as it is."""
        id = id or uuid.uuid4().hex[:12]
        options: EnqueueOptions = {
            "queue_name": WAITING,
            "workflow_name": WORKFLOW,
            "workflow_id": id,
            "app_version": FORMAT,
            "priority": priority.order,
            "attributes": {"kind": kind, **asdict(lanes)},
        }
        self._client.enqueue(options, kind, dict(given))
        return id

    def all(self, *, limit: int | None = None) -> list[Job]:
        """The newest first."""
        most = limit if self._user is None else None  # of the others' nobody knows how many there are
        found = self._client.list_workflows(name=WORKFLOW, sort_desc=True, limit=most)
        return self._jobs(self._seen(found)[:limit])

    def ids(self) -> list[str]:
        """Of all of them, the newest first; those of one moment in the order of their names."""
        found = self._client.list_workflows(name=WORKFLOW, load_input=False, load_output=False)
        return [
            one.workflow_id
            for one in sorted(self._seen(found), key=lambda one: (-(one.created_at or 0), one.workflow_id))
        ]

    def some(self, ids: Sequence[str]) -> list[Job]:
        """Those with these ids, in their order; what has gone is left out."""
        found = self._client.list_workflows(workflow_ids=list(ids), name=WORKFLOW) if ids else []
        by_id = {job.id: job for job in self._jobs(self._seen(found))}
        return [by_id[id] for id in ids if id in by_id]

    def get(self, id: str) -> Job:
        found = self.some([id])
        if not found:
            raise NotFound(f"There is no job '{id}'.", mend="See 'habitus jobs list'.")
        return found[0]

    def last(self, prefix: str) -> Job | None:
        """The newest of those whose ids begin so."""
        found = self._client.list_workflows(workflow_id_prefix=prefix, name=WORKFLOW, sort_desc=True, limit=1)
        return self._jobs(found)[0] if found else None

    def left(self, kinds: Collection[str] | None = None, *, host: str = "") -> int:
        """How many jobs wait or run; of these kinds, and not those of other hosts, where that is said."""
        is_left = [jobs.c.name == WORKFLOW, jobs.c.status.in_(("ENQUEUED", "PENDING"))]
        if kinds is not None:
            is_left += [jobs.c.attributes["kind"].as_string().in_(kinds), is_for(host)]
        with self.store.reading() as connection:
            found: int = connection.execute(sa.select(sa.func.count()).where(*is_left)).scalar_one()
        return found

    def forget(self, before: datetime) -> int:
        """Delete what was over by then, with all that it came to; how many jobs it were."""
        over = [status for status, state in STATES.items() if state.is_over]
        found = self._client.list_workflows(
            name=WORKFLOW, status=over, end_time=before.isoformat(), load_input=False, load_output=False
        )
        ids = [one.workflow_id for one in found if (_moment(one.updated_at) or before) < before]
        if ids:
            self._client.delete_workflows(ids)
        return len(ids)

    def forget_user(self, user: str, *, dry_run: bool = False) -> int:
        """Delete what a user left, whether it is over or not; how many jobs it are."""
        theirs = sa.select(jobs.c.workflow_uuid).where(jobs.c.attributes["user"].as_string() == user)
        with self.store.reading() as connection:
            ids = list(connection.execute(theirs).scalars())
        if ids and not dry_run:
            self._client.cancel_workflows(ids)
            self._client.delete_workflows(ids)
        return len(ids)

    def results(self, id: str) -> list[Any]:
        """What the parts came to that are done."""
        steps = self._client.list_workflow_steps(self.get(id).id)
        return [step["output"] for step in steps if step["error"] is None and step["function_name"] != PLAN]

    def cancel(self, id: str) -> Job:
        """End it before its next part; what is done stays done."""
        job = self.get(id)
        if job.state.is_over:
            raise Refused(f"The job '{id}' is {job.state} already.", mend="")
        self._client.cancel_workflow(id)
        return self.get(id)

    def retry(self, id: str) -> Job:
        """Go on with the part that failed, or that was to come when it was cancelled."""
        job = self.get(id)
        if job.state is JobState.FAILED:
            steps = self._client.list_workflow_steps(id)
            failed = [step["function_id"] for step in steps if step["error"] is not None]
            start = min(failed, default=len(steps) + 1)
            self._client.rewind_workflow(id, start_step=start, application_version=FORMAT, queue_name=WAITING)
        elif job.state in (JobState.CANCELLED, JobState.PARKED):
            self._client.update_workflow_attributes(id, {"trouble": None}, merge=True)
            self._client.resume_workflow(id, queue_name=WAITING)
        else:
            raise Refused(f"The job '{id}' is {job.state}: there is nothing to try again.", mend="")
        return self.get(id)

    def _seen(self, found: Sequence[WorkflowStatus]) -> list[WorkflowStatus]:
        return [one for one in found if self._user is None or (one.attributes or {}).get("user") == self._user]

    def _jobs(self, found: Sequence[WorkflowStatus]) -> list[Job]:
        ids = [status.workflow_id for status in found]
        is_done = (parts.c.workflow_uuid.in_(ids), parts.c.error.is_(None))
        counted = sa.select(parts.c.workflow_uuid, sa.func.count()).where(*is_done, parts.c.function_name != PLAN)
        planned = sa.select(parts.c.workflow_uuid, parts.c.output).where(*is_done, parts.c.function_name == PLAN)
        with self.store.reading() as connection:
            done = {row[0]: row[1] for row in connection.execute(counted.group_by(parts.c.workflow_uuid))}
            of = {id: len(Json().deserialize(output)) for id, output in connection.execute(planned)}
        return [_job(status, done.get(status.workflow_id, 0), of.get(status.workflow_id)) for status in found]


def _job(status: WorkflowStatus, done: int, of: int | None) -> Job:
    kind, given = status.input["args"] if status.input else ("", {})
    kept, state = status.attributes or {}, STATES[status.status]
    trouble = "" if state is JobState.DONE else Trouble.read(kept.get("trouble")).reason
    return Job(
        id=status.workflow_id,
        kind=kind,
        given=given,
        state=state,
        priority=Priority.of(status.priority or 0),
        done=done,
        of=of,
        result=status.output,
        reason=trouble if status.error is None else str(status.error),
        worker=status.executor_id or "",
        host=kept.get("host") or "",
        added_on=_moment(status.created_at),
        changed_on=_moment(status.updated_at),
        not_before=_moment(status.delay_until_epoch_ms) if state is JobState.WAITING else None,
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
