"""Every declared use case through both of its doors: the same input gives the same JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.declaring import Nothing, UseCase, all_declared
from habitus.app.operation.people import Role, open_people
from habitus.app.use_cases import improving, jobs, lessons, pausing, review, sessions, skills, tasks, users, writing
from habitus.cli.declared import words_of
from habitus.journal.model import Turn
from habitus.memory.model import Draft, Evidence, Kind
from habitus.skills.layers import USER
from habitus.skills.model import Actor, Author, Skill
from habitus.skills.review import Action, Change
from habitus.skills.trees import with_skill
from habitus.web.app import make_app
from habitus.web.homes_by_person import Desks
from habitus.web.security import keys_of
from tests.cli.conftest import Direct, direct, stock, stocked
from tests.web.conftest import HOST, standing

__all__ = ["direct", "stock", "stocked"]

Prepare = Callable[[Habitus], Any]  # makes what a use case needs, and says which input to give


def _a_lesson(habitus: Habitus) -> str:
    return lessons.add(habitus, lessons.NewLesson(text="Dates are day-first.")).lesson.id


def _an_archived_lesson(habitus: Habitus) -> str:
    id = _a_lesson(habitus)
    lessons.remove(habitus, lessons.ManyLessons(ids=(id,)))
    return id


def _a_taught_lesson(habitus: Habitus) -> lessons.Retraction:
    habitus.memory.encode(Draft(text="Dates are day-first.", kind=Kind.LESSON, evidence=Evidence(trace="t1")))
    return lessons.Retraction(turn="t1")


def _proposals(habitus: Habitus) -> tuple[str, ...]:
    for name in ("make-jam", "make-ham"):
        tree = with_skill({}, Skill(name=name, description="Jam", body="1. Boil."))
        change = Change(action=Action.WRITE, name=name, layer="user", tree=tree)
        habitus.review.submit(change, Author(actor=Actor.AGENT, name="tester", reason="worked it out"))
    return tuple(str(one.id) for one in habitus.review.list())


def _an_approved_proposal(habitus: Habitus) -> review.Reopening:
    ids = _proposals(habitus)[:1]
    review.approve(habitus, review.Approval(ids=ids))
    return review.Reopening(ids=ids)


def _a_job(habitus: Habitus) -> jobs.OneJob:
    return jobs.OneJob(id=jobs.add(habitus, jobs.NewJob(kind="curate")).id)


def _a_cancelled_job(habitus: Habitus) -> jobs.OneJob:
    wanted = _a_job(habitus)
    jobs.cancel(habitus, wanted)
    return wanted


def _a_pause(habitus: Habitus) -> Nothing:
    pausing.pause(habitus, Nothing())
    return Nothing()


def _a_session(habitus: Habitus) -> sessions.OneSession:
    for id in ("t1", "t2"):
        turn = Turn(id=id, session="s1", request="Hello", started_on=habitus.clock(), user=habitus.settings.user)
        habitus.journal.record(turn)
    return sessions.OneSession(id="s", limit=1)


def _a_skill(habitus: Habitus, name: str = "csv-summary") -> str:
    for number in range(1, 4):
        skill = Skill(name=name, description="Sums up a table.", body=f"{number}. Look at it.")
        save = habitus.skills.create if number == 1 else habitus.skills.layer(USER).store.save
        save(skill, habitus.person("written"))
    return name


def _with_skill(wanted: object) -> Prepare:
    """The example as it is, of a skill that is there in three versions."""
    return lambda habitus: (_a_skill(habitus), wanted)[1]


def _an_archived_skill(habitus: Habitus) -> writing.ArchivedName:
    writing.remove(habitus, writing.SkillRemoval(names=(_a_skill(habitus),)))
    return writing.ArchivedName(name="csv-summary", new_name="csv-total")


def _with_task(wanted: object) -> Prepare:
    def prepare(habitus: Habitus) -> object:
        tasks.add(habitus, tasks.NewTask(name=_a_skill(habitus), request="Sum it up.", expect=("total",), id="tea"))
        return wanted

    return prepare


# A use case whose example names something that must be there first.
PREPARED: dict[str, Prepare] = {
    "resume": _a_pause,
    "sessions list": lambda habitus: sessions.SessionList(limit=_a_session(habitus).limit),
    "sessions show": _a_session,
    "jobs add": lambda habitus: jobs.NewJob(kind="curate", tokens=5),
    "jobs list": lambda habitus: jobs.JobList(done=bool(_a_job(habitus))),
    "jobs show": _a_job,
    "jobs cancel": _a_job,
    "jobs retry": _a_cancelled_job,
    "skills show": _with_skill(skills.show.example),
    "skills history": _with_skill(skills.history.example),
    "skills diff": _with_skill(skills.diff.example),
    "skills stats": _with_skill(skills.stats.example),
    "skills improvements": _with_skill(improving.improvements.example),
    "skills edit": _with_skill(writing.SkillEdit(name="csv-summary", append="4. Archive.", expect="3")),
    "skills enable": _with_skill(writing.ManySkills(names=("csv-summary",))),
    "skills disable": _with_skill(writing.ManySkills(names=("csv-summary",))),
    "skills remove": _with_skill(writing.SkillRemoval(names=("csv-summary",), reason="twice")),
    "skills restore": _an_archived_skill,
    "skills rollback": _with_skill(writing.rollback.example),
    "tasks list": _with_task(tasks.list_tasks.example),
    "tasks add": _with_skill(tasks.add.example),
    "tasks edit": _with_task(tasks.edit.example),
    "tasks remove": _with_task(tasks.remove.example),
    "tasks check": _with_task(tasks.check.example),
    "lessons show": lambda habitus: lessons.OneLesson(id=_a_lesson(habitus)),
    "lessons edit": lambda habitus: lessons.LessonEdit(id=_a_lesson(habitus), text="Dates are ISO.", expect='"1"'),
    "lessons remove": lambda habitus: lessons.ManyLessons(ids=(_a_lesson(habitus),)),
    "lessons restore": lambda habitus: lessons.ManyLessons(ids=(_an_archived_lesson(habitus),)),
    "lessons retract": _a_taught_lesson,
    "review list": lambda habitus: review.WaitingList(limit=len(_proposals(habitus)) - 1),
    "review show": lambda habitus: review.OneItem(id=_proposals(habitus)[0]),
    "review approve": lambda habitus: review.Approval(ids=_proposals(habitus)),
    "review reject": lambda habitus: review.Rejection(ids=_proposals(habitus), reason="no ham"),
    "review reopen": _an_approved_proposal,
    "users remove": lambda habitus: users.OneUser(name=open_people(habitus).add("ben", Role.VIEWER).person.name),
}
BOTH = [case for case in all_declared() if case.method and case.command]


@pytest.mark.req("CL-01", "CL-03")
@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.command)
def test_a_command_and_its_route_give_the_same_json(direct: Direct, tmp_path: Path, case: UseCase[Any, Any]) -> None:
    other = tmp_path / "other"
    with _opened(direct, direct.home) as habitus:
        prepare = PREPARED.get(case.command)
        wanted = case.example if prepare is None else prepare(habitus)
    shutil.copytree(direct.home, other)
    ran = direct(*words_of(case, wanted), "--json")
    assert ran.code == 0, ran.err
    with _opened(direct, other) as habitus:
        by_request = _requested(habitus, case, wanted)
    assert _steady(by_request, other) == _steady(json.loads(ran.out), direct.home)


@pytest.mark.req("CL-01", "CL-03")
@pytest.mark.parametrize(
    ("command", "path"),
    [
        (("skills", "search", "sum a CSV"), "/search?q=sum+a+CSV"),
        (("skills", "select", "-r", "sum a CSV"), "/select?request=sum+a+CSV"),
        (("why", "csv-summary", "--request", "sum it"), "/skills/csv-summary/why?request=sum+it"),
        (("evidence", "show"), "/evidence"),
        (("tools", "list"), "/tools"),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, tuple) else "",
)
def test_a_command_that_is_written_by_hand_gives_the_json_of_its_route(
    stocked: Direct, command: tuple[str, ...], path: str
) -> None:
    by_command = stocked.json(*command)
    with _opened(stocked, stocked.home) as habitus, _client(habitus) as client:
        by_request = client.get(f"/api/v1{path}").json()
    assert _steady(by_request, stocked.home) == _steady(by_command, stocked.home)


def _requested(habitus: Habitus, case: UseCase[Any, Any], wanted: object) -> Any:
    headers = {}
    given = {one.name: getattr(wanted, one.name) for one in case.fields}
    for one in case.fields:
        if one.is_version:
            headers["If-Match"] = given.pop(one.name)
    given = {name: _plain(value) for name, value in given.items()}
    path = re.sub(r"\{(\w+)\}", lambda found: _joined(given.pop(found[1])), case.path)
    sent = {"params": given} if case.method in ("GET", "DELETE") else {"json": given} if given else {}
    sent = {kind: {key: value for key, value in all.items() if value is not None} for kind, all in sent.items()}
    with _client(habitus) as client:
        answer = client.request(case.method, f"/api/v1{path}", headers=headers, **sent)  # type: ignore[arg-type]  # params or json
    assert answer.status_code == case.status, answer.text
    return answer.json()


@contextmanager
def _client(habitus: Habitus) -> Iterator[TestClient]:
    keys, desks = keys_of(habitus), Desks(habitus)
    headers = {"Authorization": f"Bearer {keys.bearer}"}
    try:
        yield TestClient(make_app(desks, keys, {HOST}, app=standing()), base_url=f"http://{HOST}", headers=headers)
    finally:
        desks.close()


def _plain(value: object) -> Any:
    return value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value


def _joined(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


@contextmanager
def _opened(direct: Direct, home: Path) -> Iterator[Habitus]:
    with direct.patch.context() as patch:
        for name, value in direct.cli.environ().items():
            patch.setenv(name, value)
        settings = read_settings(home)
    with Habitus.open(settings.model_copy(update={"cwd": direct.cli.cwd})) as habitus:
        yield habitus


def _steady(told: Any, home: Path) -> Any:
    """Without moments, the ids that are drawn, and where the home lies."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+-]+", "MOMENT", json.dumps(told, sort_keys=True))
    text = re.sub(r'"token": "[^"]+"', '"token": "DRAWN"', text.replace(str(home), "HOME"))
    text = re.sub(r"enter\?key=[\w-]+", "enter?key=DRAWN", text)
    for id in re.findall(r'"id": "(\w+)"', text):
        text = text.replace(id, "ID")
    return json.loads(text)


@pytest.mark.parametrize("case", list(all_declared()), ids=lambda case: case.command or case.path)
def test_a_declaration_is_whole(case: UseCase[Any, Any]) -> None:
    assert case.help
    assert dataclasses.is_dataclass(case.input)
    assert dataclasses.is_dataclass(case.result)
    assert isinstance(case.example, case.input)
    assert all(one.help for one in case.fields)
    names = set(re.findall(r"\{(\w+)\}", case.path))
    assert names <= {one.name for one in case.fields}
