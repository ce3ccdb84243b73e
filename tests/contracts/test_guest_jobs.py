"""A job that a guest submitted reaches no more than the guest: it runs with their role, in whatever worker."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from pathlib import Path

import pytest

from habitus.agent.background import EventLoopThread
from habitus.app import Habitus, read_settings
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import _GUEST_ADMIN, JOB_KINDS, add_job, make_job_handlers
from habitus.errors import HabitusError, Refused
from habitus.hosts.hook import NOTED_SESSIONS_FILE
from tests.cli.conftest import Direct, direct, stock, stocked
from tests.contracts.test_both_doors import _opened
from tests.contracts.test_guest_reach import (
    MODEL_SERVERS,
    audit_hook,
    list_agent_folders,
    list_reached,
    observed,
)
from tests.learning.logs import failing, write

__all__ = ["audit_hook", "direct", "stock", "stocked"]


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


SECRET = "the-owner-has-4711-apples"


@pytest.mark.req("CL-04")
@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_guests_job_of_any_kind_reaches_nothing_of_the_machine(direct: Direct, kind: str) -> None:
    """Whatever its arguments name, and although nobody but the worker looks at them."""
    outside = direct.cli.user_home / "secret"
    (outside / "steal").mkdir(parents=True)
    (outside / "steal" / "SKILL.md").write_text(f"---\nname: steal\ndescription: {SECRET}\n---\n1. {SECRET}\n")
    (outside / "secret.toml").write_text(f"[[task]]\nid = 'x'\nrequest = '{SECRET}'\nexpect = 'y'\n")
    write(outside / "secret.jsonl", failing(3))
    found: list[tuple[str, str]] = []
    with _opened(direct, direct.home) as owner, closing(EventLoopThread("jobs")) as loop:
        queue, guest = jobs.open_job_queue(owner), owner.settings.as_user("gil", is_admin=True)
        handlers = make_job_handlers(owner, loop)
        for named in ("", *map(str, (outside, outside / "secret.toml", outside / "secret.jsonl"))):
            about = dict.fromkeys(("source", "challenges", "skill", "lesson", "domain"), named)
            for given in ({**about, "files": [named]}, {**about, "model": f"script:{named}", "solver": "claude-code"}):
                # The route checks them as well; here they reach the worker as they are.
                id = queue.add_job(kind, {**given, "user": "gil", _GUEST_ADMIN: guest.is_guest_admin})
                work, arguments = handlers[kind], queue.get(id).arguments
                with observed() as seen, suppress(HabitusError, ValueError, KeyError, OSError, TypeError):
                    for part in work.plan_parts(arguments):
                        work.run_part(part, f"{id}/0", ())
                found += seen
        told = repr(owner.skills.list_skills())
    assert list_reached(found, direct.home) - MODEL_SERVERS - list_agent_folders(direct) == set()
    assert SECRET not in told
