"""The queue of jobs as those see it who add to it, look at it and take from it; no job runs here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dbos import DBOS, DBOSClient, EnqueueOptions, WorkflowStatus

from habitus.errors import NotFound, Refused
from habitus.jobs.engine import APPLICATION, FORMAT, PLAN, QUEUE, STATES, WORKFLOW, Json
from habitus.jobs.model import Job, JobState


class JobQueue:
    def __init__(self, url: str) -> None:
        DBOS.migrate(url)
        self._client = DBOSClient(
            system_database_url=url, serializer=Json(), application_name=APPLICATION, system_database_pool_size=1
        )

    def close(self) -> None:
        self._client.destroy()

    def add(self, kind: str, given: Mapping[str, Any], *, id: str = "") -> str:
        """Add a job, and return its id. One that is there under this id stays as it is."""
        id = id or uuid.uuid4().hex[:12]
        options: EnqueueOptions = {
            "queue_name": QUEUE,
            "workflow_name": WORKFLOW,
            "workflow_id": id,
            "app_version": FORMAT,
        }
        self._client.enqueue(options, kind, dict(given))
        return id

    def all(self, *, limit: int | None = None) -> list[Job]:
        """The newest first."""
        found = self._client.list_workflows(name=WORKFLOW, sort_desc=True, limit=limit)
        return [self._job(status) for status in found]

    def get(self, id: str) -> Job:
        found = self._client.list_workflows(workflow_ids=[id], name=WORKFLOW)
        if not found:
            raise NotFound(f"There is no job '{id}'.", mend="See 'habitus jobs list'.")
        return self._job(found[0])

    def results(self, id: str) -> list[Any]:
        """What the parts came to that are done."""
        steps = self._client.list_workflow_steps(id)
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
            self._client.rewind_workflow(id, start_step=start, application_version=FORMAT, queue_name=QUEUE)
        elif job.state in (JobState.CANCELLED, JobState.PARKED):
            self._client.resume_workflow(id, queue_name=QUEUE)
        else:
            raise Refused(f"The job '{id}' is {job.state}: there is nothing to try again.", mend="")
        return self.get(id)

    def _job(self, status: WorkflowStatus) -> Job:
        kind, given = status.input["args"] if status.input else ("", {})
        steps = self._client.list_workflow_steps(status.workflow_id)
        good = [step for step in steps if step["error"] is None]
        planned: list[Any] = [step["output"] for step in good if step["function_name"] == PLAN]
        return Job(
            id=status.workflow_id,
            kind=kind,
            given=given,
            state=STATES[status.status],
            done=len(good) - len(planned),
            of=len(planned[0]) if planned else None,
            result=status.output,
            reason="" if status.error is None else str(status.error),
            worker=status.executor_id or "",
            added_on=_moment(status.created_at),
            changed_on=_moment(status.updated_at),
        )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
