"""A job that a guest submitted reaches no more than the guest: it runs with their role, in whatever worker."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from habitus.agent.background import EventLoopThread
from habitus.app import Habitus, read_settings
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import add_job, make_job_handlers
from habitus.errors import Refused
from habitus.hosts.hook import NOTED_SESSIONS_FILE
from tests.learning.logs import failing, write


@pytest.mark.req("CL-04")
@pytest.mark.parametrize("is_named", [True, False])
def test_a_guests_job_learns_from_no_transcript_of_this_machine(home: Path, tmp_path: Path, is_named: bool) -> None:
    transcript = write(tmp_path / "owner.jsonl", failing(3))
    note = {"event": "Stop", "session": "s1", "transcript": str(transcript), "cwd": str(tmp_path)}
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
        spool = habitus.settings.home / NOTED_SESSIONS_FILE
        spool.write_text(json.dumps(note) + "\n")
        queue = jobs.open_job_queue(habitus)
        guest = habitus.settings.as_user("gil", is_admin=True)
        job = queue.get(add_job(guest, queue, "learn", {"files": [str(transcript)]} if is_named else {}))
        with closing(EventLoopThread("jobs")) as loop:
            work = make_job_handlers(habitus, loop)["learn"]
            with pytest.raises(Refused, match="Only the owner of this home decides"):
                work.plan_parts(job.arguments)
        assert spool.read_text() == json.dumps(note) + "\n"
        assert list(habitus.as_user("gil", is_admin=True).memory.list_lessons()) == []
