"""Every REST route, by three people from eight threads at once: each gets the answer it gets alone."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.use_cases import jobs, lessons, review, writing
from habitus.app.use_cases.declaration import format_etag
from habitus.journal.model import Turn
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.contracts import postgres
from tests.homes import furnish
from tests.web.conftest import HOST

API = "/api/v1"
PEOPLE = ("ann", "bob", "cyd")
# One thing that everybody has together: who comes first decides, so only that each was answered is compared.
OF_ALL = ("/pause", "/identity", "/settings/{key}", "/skills/{name}/trust", "/skills/{name}/tasks/drafts")
# They say how this machine is doing at this moment.
OF_A_MOMENT = ("/doctor", "/today", "/failing", "/overview", "/map", "/find")
STEPS = "1. Boil water.\n"


@dataclass(frozen=True, kw_only=True)
class Own:
    """What one call of one person is about, and nobody else's is: made before anybody calls."""

    home: Habitus
    who: str
    number: int

    @property
    def skill(self) -> str:
        return f"{self.who}-soup-{self.number}"

    @property
    def words(self) -> str:
        return f"Soup {self.number} of {self.who} needs {self.number} leeks"

    def a_skill(self) -> str:
        made = Skill(name=self.skill, description=f"How {self.skill} is made", body=STEPS)
        self.home.skills.create(made, self.home.build_author())
        return self.skill

    def a_lesson(self) -> str:
        return lessons.add_lesson(self.home, text=f"{self.words}.").lesson.id

    def an_archived_lesson(self) -> str:
        id = self.a_lesson()
        lessons.remove_lessons(self.home, ids=(id,))
        return id

    def a_proposal(self, more: str = "") -> str:
        name = f"{self.skill}{more}"
        tree = update_main_file({}, Skill(name=name, description=f"How {name} is made", body=STEPS))
        change = SkillChange(action=ProposalAction.WRITE, name=name, layer="user", tree=tree)
        made = self.home.review.submit(change, Author(actor=ActorKind.AGENT, name=self.who, reason="worked it out"))
        assert made.proposal is not None
        return str(made.proposal.id)

    def an_approved_proposal(self) -> str:
        id = self.a_proposal()
        review.approve_items(self.home, ids=(id,))
        return id

    def a_job(self) -> str:
        return jobs.add_job(self.home, kind="curate").id

    def a_cancelled_job(self) -> str:
        id = self.a_job()
        jobs.cancel_job(self.home, id=id)
        return id

    def a_turn(self) -> str:
        id, now = f"{self.who}-turn-{self.number}", self.home.clock()
        turn = Turn(id=id, session=f"{id}-s", request=self.words, started_on=now, ended_on=now, user=self.who)
        self.home.journal.record_complete_turn(turn)
        return id

    def a_session(self) -> str:
        return f"{self.a_turn()}-s"

    def an_archived_skill(self) -> str:
        writing.remove_skills(self.home, names=(self.a_skill(),))
        return self.skill

    def a_skill_twice(self) -> str:
        self.home.skills.get_layer("user").store.save(
            Skill(name=self.a_skill(), description="Soup", body="1. Cut leeks.\n"), self.home.build_author()
        )
        return self.skill


Make = Callable[[Own], str]
# What stands for a part of a route's path, by what comes before it.
PARTS: Sequence[tuple[str, Make]] = (
    (r"/lessons/{ids}/restore", Own.an_archived_lesson),
    (r"/lessons/{ids?}", Own.a_lesson),
    (r"/review/{ids}/reopen", Own.an_approved_proposal),
    (r"/review/(effect/)?{ids?}", Own.a_proposal),
    (r"/jobs/{id}/(retry|events)", Own.a_cancelled_job),
    (r"/jobs/{id}", Own.a_job),
    (r"/sessions/{id}", Own.a_session),
    (r"/turns/{id}", Own.a_turn),
    (r"/archive/{name}", Own.an_archived_skill),
    (r"/skills/{name}/(rollback|diff)", Own.a_skill_twice),
    (r"/skills/{names?}", Own.a_skill),
    (r"/settings/{key}", lambda own: "bot_name"),
)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a call sends beside its path."""

    params: dict[str, Any] = field(default_factory=dict)
    json: Any = None
    files: Any = None
    content: bytes | None = None
    version: str = ""


SENT: dict[str, Callable[[Own], Sent]] = {
    "GET /search": lambda own: Sent(params={"q": own.words}),
    "GET /evidence/rows": lambda own: Sent(params={"name": own.a_skill()}),
    "GET /select": lambda own: Sent(params={"request": own.words}),
    "GET /skills/{name}/why": lambda own: Sent(params={"request": own.words}),
    "GET /skills/{name}/diff": lambda own: Sent(params={"old": 1, "new": 2}),
    "PUT /skills/{name}/files/{path}": lambda own: Sent(content=own.words.encode(), version=format_etag(1, "user")),
    "POST /uploads": lambda own: Sent(
        params={"save": True},
        files={"file": (f"{own.skill}.md", f"---\nname: {own.skill}\ndescription: Soup\n---\n{STEPS}".encode())},
    ),
    "POST /sessions": lambda own: Sent(json={"text": own.words}),
    "POST /sessions/{id}/say": lambda own: Sent(json={"text": own.words}),
    "POST /sessions/{id}/answer": lambda own: Sent(json={"number": 0, "word": "no"}),
    "POST /turns/{id}/outcome": lambda own: Sent(json={"ok": True, "reason": own.words}),
    "POST /undo": lambda own: Sent(json={"undo": ["undo", f"{own.a_lesson()}:1"]}),
    "PUT /settings/{key}": lambda own: Sent(json={"value": "soup"}),
    "POST /skills/{name}/run": lambda own: Sent(json={}),
    "POST /skills/{name}/recipes/{recipe}": lambda own: Sent(json={}),
    "PUT /identity": lambda own: Sent(json={"text": "You cook."}),
    "POST /jobs": lambda own: Sent(json={"kind": "curate"}),
    "POST /lessons": lambda own: Sent(json={"text": f"{own.words}."}),
    "PATCH /lessons/{id}": lambda own: Sent(json={"text": f"{own.words} and salt."}, version='"1"'),
    "POST /lessons/{ids}/restore": lambda own: Sent(json={}),
    "POST /lessons/retract": lambda own: Sent(json={"turn": own.a_turn()}),
    "POST /review/{ids}/approve": lambda own: Sent(json={}),
    "POST /review/{ids}/reject": lambda own: Sent(json={"reason": own.words}),
    "POST /review/{id}/choose": lambda own: Sent(json={"others": [own.a_proposal("-too")]}),
    "PUT /review/{id}/text": lambda own: Sent(
        json={"text": f"---\nname: {own.skill}\ndescription: Soup\n---\n{own.words}.\n"}
    ),
    "POST /skills": lambda own: Sent(json={"name": own.skill, "description": own.words, "body": STEPS}),
    "PATCH /skills/{name}": lambda own: Sent(json={"append": f"2. {own.words}."}, version="1"),
    "POST /archive/{name}/restore": lambda own: Sent(json={}),
    "POST /skills/{name}/rollback": lambda own: Sent(json={"to": 1}),
}


@dataclass(frozen=True, kw_only=True)
class Call:
    route: str
    who: str
    path: str
    sent: Sent
    is_page: bool = False


_doors = functools.cache(build_application_without_home)


@functools.cache
def routes() -> list[str]:
    """Every route of REST, as its description has it: a new one is called too."""
    paths = _doors().openapi()["paths"]
    return [f"{method.upper()} {path.removeprefix(API)}" for path, methods in paths.items() for method in methods]


def is_read(route: str) -> bool:
    return route.startswith("GET ")


class World:
    """A home with three people, all of them admins, and what each of their calls is about."""

    def __init__(self, habitus: Habitus, app: Any, tokens: dict[str, str]) -> None:
        self.habitus = habitus
        self._clients = {
            who: TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
            for who, token in tokens.items()
        }

    def calls(self, wanted: Sequence[str], people: Sequence[str] = PEOPLE) -> list[Call]:
        homes = {who: self.habitus.as_user(who, is_admin=True) for who in people}
        made = []
        for number, route in [*enumerate(routes())]:
            if route not in wanted:
                continue
            for who in people:
                own = Own(home=homes[who], who=who, number=number)
                path = route.partition(" ")[2]
                for pattern, make in PARTS:
                    if re.match(pattern, path):
                        path = re.sub(r"{(ids?|names?|key)}", make(own), path)
                        break
                path = path.replace("{path}", "SKILL.md").replace("{recipe}", "simmer")
                made.append(Call(route=route, who=who, path=path, sent=SENT[route](own) if route in SENT else Sent()))
        for home in homes.values():
            home.close()
        return made

    def answer(self, call: Call) -> tuple[int, Any]:
        answer = self.ask(call)
        is_json = "json" in answer.headers.get("content-type", "")
        return answer.status_code, answer.json() if is_json else answer.text

    def ask(self, call: Call) -> Any:
        sent = call.sent
        return self._clients[call.who].request(
            call.route.partition(" ")[0],
            call.path if call.is_page else f"{API}{call.path}",
            params=sent.params,
            json=sent.json,
            files=sent.files,
            content=sent.content,
            headers={"If-Match": sent.version} if sent.version else None,
        )


@contextmanager
def world(place: Path, database: str | None) -> Iterator[World]:
    settings = read_settings(furnish(place), {"HOME": str(place), "USER": "ann", "HABITUS_DURABLE": "false"})
    changed = {"cwd": place, "database": database, "look_every": 60.0}
    with Habitus.open(settings.for_server().model_copy(update=changed)) as habitus:
        keys, desks = load_sign_in_service(habitus), HomePool(habitus)
        tokens = {"ann": keys.owner_token} | {
            who: open_user_accounts(habitus).add_or_reinvite_user(who, UserRole.ADMIN).token for who in PEOPLE[1:]
        }
        try:
            yield World(habitus, make_web_app(desks, keys, {HOST}, app=_doors()), tokens)
        finally:
            desks.close()


@contextmanager
def database(kind: str, request: pytest.FixtureRequest) -> Iterator[str | None]:
    if kind == "sqlite":
        yield None
        return
    with postgres.schema(request.getfixturevalue("postgres_server")) as url:
        yield url


def at_once(world: World, calls: Sequence[Call]) -> list[tuple[int, Any]]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(world.answer, calls))


@pytest.mark.req("OP-05")
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("sqlite", 12),
        pytest.param("sqlite", 1, marks=pytest.mark.full),
        pytest.param("postgresql", 1, marks=pytest.mark.full),
    ],
)
def test_every_route_answers_many_as_it_answers_one(
    kind: str, step: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    some = routes()[::step]
    reading, writing = [one for one in some if is_read(one)], [one for one in some if not is_read(one)]
    with ExitStack() as stack:
        here = stack.enter_context(world(tmp_path / "home", stack.enter_context(database(kind, request))))
        reads = here.calls(reading)
        alone = [here.answer(call) for call in reads]
        compare(reads, at_once(here, reads), alone)
        writes = here.calls(writing)
        together = at_once(here, writes)
    with ExitStack() as stack:
        here = stack.enter_context(world(tmp_path / "other", stack.enter_context(database(kind, request))))
        here.calls(reading)
        again = here.calls(writing)
        compare(writes, together, [here.answer(call) for call in again], again)


def compare(
    calls: Sequence[Call],
    found: Sequence[tuple[int, Any]],
    alone: Sequence[tuple[int, Any]],
    others: Sequence[Call] = (),
) -> None:
    for call, other, (status, told), (expected, said) in zip(calls, others or calls, found, alone, strict=True):
        name = f"{call.route} by {call.who}"
        assert status < 500, f"{name}: {told}"
        if any(part in call.route for part in OF_ALL):
            continue
        assert status == expected, f"{name}: {told} {said}"
        assert (status, str(told)[:20]) != (422, "{'title': \"'body'"), f"{name}: {told}"
        if not any(part in call.route for part in OF_A_MOMENT):
            assert steady(told, call) == steady(said, other), name


def steady(told: Any, call: Call) -> str:
    """Without moments and the ids that are drawn; an id that stands in two places stays the same one."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+-]+Z?", "MOMENT", json.dumps(told, sort_keys=True))
    text = re.sub(r'\["undo", "[0-9a-f]{8}"\]', "UNDO", text)
    text = re.sub(r'"/[^"]*/(home|other)/', '"HOME/', text)
    drawn = [
        *re.findall(r'"id": "(\w+)"', text),
        *call.path.split("/")[2:3],
        *re.findall(r"\b\w{8}:", str(call.sent)),
    ]
    for number, id in enumerate(dict.fromkeys(drawn)):
        text = text.replace(id.strip(":"), f"ID{number}")
    return text
