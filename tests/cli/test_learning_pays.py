"""A bad skill, its tasks, an improvement, approval, the comparison in use and the report: by command and by page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened
from tests.improve.test_comparing import ask, conversations
from tests.web.conftest import HOST

NAME = "name-a-town"
TASKS = 24
OLD, NEW = "Somebody asks for a town", "Somebody asks for a town, which is written in capitals"
SHARE = "20% of conversations get the version before it"
MONTH = f"{datetime.now(UTC):%Y-%m}"


class Door(Protocol):
    """What a person does in this story, and what they read; the text of an answer is on one line."""

    def write_skill(self) -> None: ...
    def add_task(self, asked: str, expect: str) -> None: ...
    def show_plan(self) -> str: ...
    def improve(self, model: str) -> str: ...
    def show_change(self, number: int) -> str: ...
    def approve_change(self, number: int) -> str: ...
    def list_comparisons(self) -> str: ...
    def report_month(self) -> str: ...
    def list_failed(self) -> str: ...
    def tidy_up(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    """The command line."""

    direct: Direct

    def say(self, *words: str, **more: Any) -> str:
        ran = self.direct(*words, **more)
        assert ran.code == 0, ran.err
        return " ".join(ran.out.split())

    def write_skill(self) -> None:
        self.say("skills", "new", NAME, "-d", "Names a town.", "-w", OLD, "-f", "-", stdin="1. Say its name.\n")

    def add_task(self, asked: str, expect: str) -> None:
        self.say("tasks", "add", NAME, "--request", asked, "--expect", expect)

    def show_plan(self) -> str:
        return self.say("skills", "improvements", NAME)

    def improve(self, model: str) -> str:
        return self.say("skills", "improve", NAME, "--budget", "500k", "--yes", env={"HABITUS_MODEL": model})

    def show_change(self, number: int) -> str:
        return self.say("review", "show", str(number))

    def approve_change(self, number: int) -> str:
        return self.say("review", "approve", str(number))

    def list_comparisons(self) -> str:
        return self.say("skills", "comparisons")

    def report_month(self) -> str:
        return self.say("report", "--month", MONTH)

    def list_failed(self) -> str:
        return self.say("report", "rows", "failed", "--month", MONTH)

    def tidy_up(self) -> None:
        self.say("learn", "curate", "--apply")


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The page, with a worker beside it for what it queues."""

    client: TestClient
    direct: Direct

    def get(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return " ".join(unescape(answer.text).split())

    def post(self, path: str, **fields: str) -> str:
        answer = self.client.post(path, data=fields)
        assert answer.status_code == 200, answer.text
        return " ".join(unescape(answer.text).split())

    def work(self, model: str = "") -> None:
        env = {"HABITUS_MODEL": model} if model else {}
        ran = self.direct("jobs", "work", "--until-idle", env=env)
        assert ran.code == 0, ran.err

    def write_skill(self) -> None:
        texts = {"description": "Names a town.", "when_to_use": OLD, "body": "1. Say its name."}
        assert "Saved." in self.post("/new/write", title="Name a town", **texts)

    def add_task(self, asked: str, expect: str) -> None:
        assert "Task added." in self.post(f"/skills/{NAME}/tasks", asked=asked, expect=expect)

    def show_plan(self) -> str:
        return self.get(f"/skills/{NAME}?tab=improve")

    def improve(self, model: str) -> str:
        assert "Queued for the next free worker" in self.post(f"/skills/{NAME}/improve", budget="500k")
        self.work(model)
        return self.show_plan()

    def show_change(self, number: int) -> str:
        return self.get(f"/inbox/{number}")

    def approve_change(self, number: int) -> str:
        return self.post(f"/inbox/{number}/approve")

    def list_comparisons(self) -> str:
        return self.get(f"/insights/month?month={MONTH}")

    def report_month(self) -> str:
        # Its numbers are links.
        return re.sub(r"<[^>]*>", "", self.get(f"/insights/month?month={MONTH}"))

    def list_failed(self) -> str:
        return self.get(f"/insights/month/rows?of=failed&month={MONTH}")

    def tidy_up(self) -> None:
        self.post("/automation", kind="curate")
        self.work()


@pytest.fixture(params=["commands", "page"])
def door(request: pytest.FixtureRequest, direct: Direct) -> Iterator[Door]:
    if request.param == "commands":
        yield Commands(direct=direct)
        return
    with opened(direct) as habitus:
        keys = load_sign_in_service(habitus)
        app = make_web_app(HomePool(habitus), keys, {HOST}, app=build_application_without_home())
        client = TestClient(app, base_url=f"http://{HOST}")
        cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
        client.cookies.set(keys.cookie, cookie)
        client.headers.update({"X-CSRF": keys.make_csrf_token(cookie), "Origin": f"http://{HOST}"})
        yield Page(client=client, direct=direct)


def _write_model(path: Path) -> str:
    """An agent that writes capitals where the candidate tells it to, and the draft of that candidate."""
    edits = [{"operation": "append", "content": "2. Use capitals."}]
    draft = {"why": "Nobody knows when, and small letters fail.", "when_to_use": NEW, "edits": edits}
    steps: list[object] = [{"say": "I know none."}] * (TASKS // 2) + [{"answer": draft}]
    pair = [{"say": "I know none."}, {"say": "ALTBERG"}]
    for count, rounds in ((TASKS // 2, 1), (TASKS // 4, 10)):
        steps += [one for n in range(rounds) for at in range(count) for one in (pair if (n + at) % 2 else pair[::-1])]
    path.write_text(json.dumps(steps))
    return f"script:{path}"


@pytest.mark.full
@pytest.mark.req("IM-07", "IM-08")
def test_a_bad_skill_is_improved_approved_compared_in_use_and_reported(
    door: Door, direct: Direct, tmp_path: Path
) -> None:
    door.write_skill()
    for number in range(TASKS):
        door.add_task(f"Which town has number {number:03}?", "Altberg")
    assert f"{TASKS} tasks" in door.show_plan()
    improved = door.improve(_write_model(tmp_path / "model.json"))
    assert "Nobody knows when, and small letters fail." in improved
    assert "accepted" in improved
    assert SHARE in door.show_change(1)
    door.approve_change(1)
    with opened(direct) as habitus:
        # The change harms in use: those who got it are not content.
        new, old = (list(islice(conversations(habitus, new=is_new), n)) for is_new, n in ((True, 24), (False, 8)))
        for conversation in new:
            assert NEW in ask(habitus, conversation, ok=False)
        for conversation in old:
            assert OLD in (read := ask(habitus, conversation, ok=True))
            assert NEW not in read
        (good,), (bad,) = (habitus.journal.list_session_turns(each[0]) for each in (old, new))
    for turn, version in ((good, 1), (bad, 2)):
        why = " ".join(direct.ok("skills", "why", NAME, "--turn", turn.id).split())
        assert f"version {version}, drawn to be compared with version {3 - version}" in why
    assert "Harms: " in door.list_comparisons()
    said = door.report_month()
    assert "Because of compared changes about" in said
    assert "1 proposed, 1 approved; after comparing in use 0 kept, 0 rolled back" in said
    failed = door.list_failed()
    assert bad.id in failed
    assert good.id not in failed
    door.tidy_up()
    door.approve_change(2)
    assert NEW not in direct.skill_file(NAME).read_text()
    door.tidy_up()
    with Habitus.open(read_settings(direct.home)) as habitus:
        assert NEW not in ask(habitus, "afterwards")
    assert "after comparing in use 0 kept, 1 rolled back" in door.report_month()
