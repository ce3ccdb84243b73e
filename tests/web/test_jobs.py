"""The Jobs page: leaving work, seeing how far it is, ending it and trying it again."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.work import jobs
from habitus.jobs.model import JobState
from tests.web.test_chat import heard


@pytest.mark.req("CL-02")
def test_a_job_is_left_followed_ended_and_tried_again(browser: TestClient, habitus: Habitus) -> None:
    assert "Nothing to do" in browser.get("/more/jobs").text
    page = browser.post("/more/jobs", data={"kind": "curate"}).text
    assert '<live-part from="/more/jobs/live">' in page
    queue = jobs.open_queue(habitus)
    (job,) = queue.all()
    ended = browser.post(f"/more/jobs/{job.id}/cancel").text
    assert "It ends before its next part." in ended
    assert queue.get(job.id).state is JobState.CANCELLED
    # Nothing runs any more, so that the list is told once, in place of what listened.
    assert [put for put, _ in heard(browser, "/more/jobs/live")] == ["over"]
    assert "It goes on where it had come to." in browser.post(f"/more/jobs/{job.id}/retry").text
    assert queue.get(job.id).state is JobState.WAITING
    missing = browser.post("/more/jobs", data={"kind": "import"}, headers={"HX-Request": "true"})
    assert (missing.status_code, "Say where from" in missing.text) == (422, True)
