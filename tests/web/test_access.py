"""Who may use which route: every one of them is called by everybody, and answers as the table below says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.files import build_tree_file
from habitus.journal.model import Turn
from habitus.memory.model import LessonDraft, LessonKind, LessonProvenance, LessonScope
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import ReplyContainsCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.web.app import build_application_without_home, make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.routing import AccessRouter
from habitus.web.security import SignInService
from tests.web.conftest import HOST, standing
from tests.web.furnished import furnish_with_life

pytestmark = pytest.mark.req("CL-04")

# Every route with the least access that its methods take. A declaration that changes has to change here too.
DECLARED = {
    "/": "GET open_reading",
    "/activity": "GET viewer",
    "/activity/{id}": "GET viewer",
    "/activity/{id}/{turn}": "POST reviewer",
    "/api/v1/additions": "POST admin",
    "/api/v1/agents": "GET viewer",
    "/api/v1/agents/folders": "GET admin",
    "/api/v1/agents/{agent}/changes": "GET admin",
    "/api/v1/agents/{agent}/connect": "POST admin",
    "/api/v1/agents/{agent}/disconnect": "POST admin",
    "/api/v1/agents/{agent}/import": "POST admin",
    "/api/v1/archive": "GET open_reading",
    "/api/v1/archive/{name}/restore": "POST admin",
    "/api/v1/doctor": "GET viewer",
    "/api/v1/evidence": "GET open_reading",
    "/api/v1/evidence/rows": "GET viewer",
    "/api/v1/failing": "GET viewer",
    "/api/v1/find": "GET viewer",
    "/api/v1/identity": "GET viewer, PUT admin",
    "/api/v1/insights": "GET open_reading",
    "/api/v1/comparisons": "GET open_reading",
    "/api/v1/improvements/plan": "GET open_reading",
    "/api/v1/report": "GET viewer",
    "/api/v1/report/rows": "GET viewer",
    "/api/v1/skills/{name}/comparison": "POST admin",
    "/api/v1/jobs": "GET viewer, POST admin",
    "/api/v1/jobs/schedule": "GET viewer",
    "/api/v1/jobs/workers": "GET admin",
    "/api/v1/jobs/schedule/{kind}": "PUT admin",
    "/api/v1/jobs/{id}": "GET viewer",
    "/api/v1/jobs/{id}/cancel": "POST admin",
    "/api/v1/jobs/{id}/events": "GET viewer",
    "/api/v1/jobs/{id}/retry": "POST admin",
    "/api/v1/layers": "GET viewer",
    "/api/v1/lessons": "GET open_reading, POST admin",
    "/api/v1/lessons/archive": "GET open_reading",
    "/api/v1/lessons/retract": "POST admin",
    "/api/v1/lessons/{ids}": "DELETE admin",
    "/api/v1/lessons/{ids}/restore": "POST admin",
    "/api/v1/lessons/{id}": "GET open_reading, PATCH admin",
    "/api/v1/map": "GET open_reading",
    "/api/v1/openapi.json": "GET/HEAD open_reading",
    "/api/v1/overview": "GET viewer",
    "/api/v1/pause": "DELETE admin, GET viewer, PUT admin",
    "/api/v1/review": "GET viewer",
    "/api/v1/review/effect/{id}": "GET viewer",
    "/api/v1/review/{ids}/approve": "POST reviewer",
    "/api/v1/review/{ids}/reject": "POST reviewer",
    "/api/v1/review/{ids}/reopen": "POST reviewer",
    "/api/v1/review/{id}": "GET viewer",
    "/api/v1/review/{id}/choose": "POST reviewer",
    "/api/v1/review/{id}/text": "PUT reviewer",
    "/api/v1/search": "GET open_reading",
    "/api/v1/secrets": "GET viewer",
    "/api/v1/select": "GET open_reading",
    "/api/v1/sessions": "GET viewer, POST admin",
    "/api/v1/sessions/{id}": "GET viewer",
    "/api/v1/sessions/{id}/answer": "POST admin",
    "/api/v1/sessions/{id}/events": "GET viewer",
    "/api/v1/sessions/{id}/say": "POST admin",
    "/api/v1/sessions/{id}/stop": "POST admin",
    "/api/v1/settings": "GET viewer",
    "/api/v1/settings/{key}": "DELETE admin, PUT admin",
    "/api/v1/skills": "GET open_reading, POST admin",
    "/api/v1/skills/{names}": "DELETE admin",
    "/api/v1/skills/{names}/disable": "POST admin",
    "/api/v1/skills/{names}/enable": "POST admin",
    "/api/v1/skills/{names}/test": "POST admin",
    "/api/v1/skills/{name}": "GET open_reading, PATCH admin",
    "/api/v1/skills/{name}/diff": "GET open_reading",
    "/api/v1/skills/{name}/evidence": "GET open_reading",
    "/api/v1/skills/{name}/files/{path:path}": "GET open_reading, PUT admin",
    "/api/v1/skills/{name}/history": "GET open_reading",
    "/api/v1/skills/{name}/improvements": "GET open_reading, POST admin",
    "/api/v1/skills/{name}/recipes": "GET open_reading",
    "/api/v1/skills/{name}/recipes/{recipe}": "POST admin",
    "/api/v1/skills/{name}/rollback": "POST admin",
    "/api/v1/skills/{name}/run": "POST admin",
    "/api/v1/skills/{name}/uses": "GET viewer",
    "/api/v1/skills/{name}/tasks": "GET admin, POST admin",
    "/api/v1/skills/{name}/tasks/drafts": "POST admin",
    "/api/v1/skills/{name}/tasks/{id}": "DELETE admin, PATCH admin",
    "/api/v1/skills/{name}/tool": "GET open_reading",
    "/api/v1/skills/{name}/trust": "DELETE admin, GET open_reading, PUT admin",
    "/api/v1/skills/{name}/why": "GET open_reading",
    "/api/v1/stats": "GET open_reading",
    "/api/v1/tasks/check": "POST admin",
    "/api/v1/tasks/mine": "POST admin",
    "/api/v1/today": "GET viewer",
    "/api/v1/tools": "GET open_reading",
    "/api/v1/trust": "GET viewer",
    "/api/v1/turns": "GET viewer",
    "/api/v1/turns/{id}": "GET viewer",
    "/api/v1/turns/{id}/outcome": "POST reviewer",
    "/api/v1/undo": "POST admin",
    "/api/v1/uploads": "POST admin",
    "/api/v1/users": "GET viewer, POST admin",
    "/api/v1/users/{name}": "DELETE admin",
    "/archive": "GET open_reading",
    "/archive/{id}": "POST admin",
    "/automation": "GET viewer, POST admin",
    "/automation/schedule/{kind}": "POST admin",
    "/automation/{id}/cancel": "POST admin",
    "/automation/{id}/retry": "POST admin",
    "/chat": "GET viewer, POST admin",
    "/chat/{id}": "GET viewer, POST admin",
    "/chat/{id}/answer": "POST admin",
    "/chat/{id}/events": "GET viewer",
    "/chat/{id}/stop": "POST admin",
    "/connections": "GET viewer",
    "/connections/{agent}/changes": "GET admin",
    "/connections/{agent}/connect": "POST admin",
    "/connections/{agent}/disconnect": "POST admin",
    "/doctor": "GET viewer",
    "/enter": "GET public",
    "/oidc/callback": "GET public",
    "/oidc/sign-in": "GET public",
    "/sign-out": "POST viewer",
    "/failing": "GET viewer",
    "/find": "GET viewer",
    "/import": "GET viewer",
    "/import/address": "POST admin",
    "/import/agent/{agent}": "POST admin",
    "/import/look": "POST admin",
    "/import/take": "POST admin",
    "/inbox": "GET viewer",
    "/inbox/alike/{id}": "GET viewer",
    "/inbox/bulk": "POST reviewer",
    "/inbox/effect/{id}": "GET viewer",
    "/inbox/undo": "POST reviewer",
    "/inbox/{id}": "GET viewer",
    "/inbox/{id}/approve": "POST reviewer",
    "/inbox/{id}/approve-here": "POST reviewer",
    "/inbox/{id}/choose": "POST reviewer",
    "/inbox/{id}/file": "GET viewer",
    "/inbox/{id}/files": "GET viewer",
    "/inbox/{id}/text": "POST reviewer",
    "/inbox/{id}/reject": "POST reviewer",
    "/inbox/{id}/reopen": "POST reviewer",
    "/insights": "GET open_reading",
    "/insights/confusion": "GET open_reading",
    "/insights/pairs": "GET open_reading",
    "/insights/effects": "GET open_reading",
    "/insights/month": "GET viewer",
    "/insights/evidence": "GET viewer",
    "/insights/month/rows": "GET viewer",
    "/lessons": "GET open_reading, POST admin",
    "/lessons/{id}": "GET open_reading, POST admin",
    "/lessons/{id}/away": "POST admin",
    "/lessons/{id}/restore": "POST admin",
    "/live": "GET viewer",
    "/model": "GET owner",
    "/model/key": "POST owner",
    "/model/test": "POST owner",
    "/model/use": "POST owner",
    "/new": "GET viewer",
    "/new/write": "POST admin",
    "/pause": "POST admin",
    "/preview": "POST viewer",
    "/secrets": "GET viewer",
    "/settings": "GET viewer",
    "/settings/value": "POST admin",
    "/skills": "GET open_reading",
    "/skills/bulk": "POST admin",
    "/skills/{name}": "GET open_reading",
    "/skills/{name}/away": "POST admin",
    "/skills/{name}/back": "POST admin",
    "/skills/{name}/edit": "POST admin",
    "/skills/{name}/improve": "POST admin",
    "/skills/{name}/raw": "POST admin",
    "/skills/{name}/recipes/{recipe}": "POST admin",
    "/skills/{name}/run": "POST admin",
    "/skills/{name}/switch": "POST admin",
    "/skills/{name}/tasks": "POST admin",
    "/skills/{name}/tasks/drafts": "POST admin",
    "/skills/{name}/tasks/mine": "POST admin",
    "/skills/{name}/tasks/pending": "POST admin",
    "/skills/{name}/test": "POST admin",
    "/skills/{name}/trust": "POST admin",
    "/skills/{name}/turn": "POST admin",
    "/skills/{name}/uses": "GET viewer",
    "/static": "GET public",
    "/team": "GET viewer",
    "/team/invite": "POST admin",
    "/team/somebody-else": "POST admin",
    "/team/{name}/remove": "POST admin",
    "/tools": "GET open_reading",
    "/try": "GET open_reading",
    "/undo": "POST admin",
}
VALUES = {
    "names": "close-the-month",
    "name": "close-the-month",
    "ids": "1",
    "id": "1",
    "turn": "t1",
    "kind": "curate",
    "agent": "codex",
    "key": "model",
    "recipe": "look around",
    "path:path": "SKILL.md",
    "rest:path": "skills",
}
SHARED, TEACHER = "Tea needs three minutes.", "quagga"
ANSWER, ASKED, LEARNED = "FORTY-TWO", "Sell the zebra.", "The zebra is called Frida."
TABS = (
    "read",
    "edit",
    "results",
    "improve",
    "history&version=4",
    "history&old=1&version=4",
    f"files&file={TASKS_FILE}",
)


def declared() -> Iterator[tuple[str, str, Access]]:
    """Method, path and access of every row."""
    for path, rows in DECLARED.items():
        for row in rows.split(", "):
            method, access = row.split(" ")
            yield method, path, Access[access.upper()]


def test_every_route_declares_what_the_table_says() -> None:
    found: dict[str, list[str]] = {}
    for route, rule in standing().rules:
        methods = "/".join(sorted(getattr(route, "methods", None) or ["GET"]))
        found.setdefault(getattr(route, "path", ""), []).append(f"{methods} {rule.access.name.lower()}")
    assert {path: ", ".join(sorted(rows)) for path, rows in found.items()} == DECLARED


@pytest.fixture
def lived_in(habitus: Habitus) -> Habitus:
    """A home with something for every route, and with what is the owner's alone."""
    furnish_with_life(habitus)
    tree = habitus.skills.read_tree("close-the-month")
    tasks = serialize_tasks([Task(id="1", request="What is it?", checks=(ReplyContainsCheck(text=ANSWER),))])
    person = habitus.build_author("examined")
    habitus.skills.write_tree("user", "close-the-month", {**tree, TASKS_FILE: build_tree_file(tasks.encode())}, person)
    habitus.journal.record_complete_turn(
        Turn(id="z1", session="z1", request=ASKED, started_on=habitus.clock(), user="ann")
    )
    habitus.memory.add(LEARNED)
    taught = LessonProvenance(user=f"ann-{TEACHER}", session=f"c-{TEACHER}", trace=f"t-{TEACHER}")
    habitus.memory.encode(LessonDraft(text=SHARED, kind=LessonKind.LESSON, scope=LessonScope.GLOBAL, evidence=taught))
    return habitus


@pytest.fixture
def callers(lived_in: Habitus, keys: SignInService) -> Iterator[Mapping[Access, TestClient]]:
    """Somebody at each level; a stranger is one with `--open-reading` and another without."""
    desks, people = HomePool(lived_in), open_user_accounts(lived_in)
    tokens = {role.access: people.add_or_reinvite_user(role.value, role).token for role in UserRole} | {
        Access.OWNER: keys.owner_token
    }
    closed = make_web_app(desks, keys, {HOST}, app=standing())
    opened = make_web_app(desks, keys, {HOST}, app=standing(), open_reading=True)
    strangers = {Access.PUBLIC: closed, Access.OPEN_READING: opened}
    made = {level: TestClient(app, base_url=f"http://{HOST}") for level, app in strangers.items()}
    for level, token in tokens.items():
        app = opened if level is Access.VIEWER else closed  # being signed in is no less than being a stranger
        made[level] = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
    yield made
    desks.close()


def fill(path: str) -> str:
    """An address with something that is there for each of its parts."""
    path = "/static/habitus.css" if path == "/static" else path
    return re.sub(r"\{([\w:]+)\}", lambda found: VALUES[found[1]], path)


def test_everybody_gets_as_far_as_the_table_says(callers: Mapping[Access, TestClient]) -> None:
    """A body that is too large is refused only after who sends it was let in, and before anything is done."""
    wrong = []
    for method, path, least in declared():
        for level, client in callers.items():
            answer = client.request(method.split("/")[0], fill(path), headers={"Content-Length": str(10**9)})
            refused = 401 if level < Access.VIEWER else 403
            expected = 413 if level >= least else refused
            if answer.status_code != expected:
                wrong.append((method, path, level.name, answer.status_code, expected))
    assert wrong == []


def test_nothing_of_a_person_reaches_who_may_only_look(callers: Mapping[Access, TestClient], lived_in: Habitus) -> None:
    """Every page and route that may be read is read, with what it takes; nothing that is the owner's is in it."""
    query = "?request=tea&q=zebra&file=SKILL.md"
    reads = [path for method, path, least in declared() if "GET" in method and least <= Access.VIEWER]
    paths = [fill(path) + query for path in reads if not path.endswith(("/events", "/live", "/static"))]
    paths += [f"/skills/close-the-month?tab={tab}" for tab in TABS]
    paths += [f"/api/v1/skills/close-the-month/files/{TASKS_FILE}", "/activity/z1", "/api/v1/sessions/z1"]
    paths += [f"{at}/lessons/{one.id}" for one in lived_in.memory.list_lessons(limit=100) for at in ("/api/v1", "")]
    read = 0
    for level in (Access.OPEN_READING, Access.VIEWER):
        for path in paths:
            answer = callers[level].get(path)
            assert answer.status_code < 500, path
            read += answer.status_code == 200
            told = answer.text.replace("q=zebra", "")
            assert [word for word in (ANSWER, ASKED, LEARNED) if word in told] == [], (level.name, path)
            assert TEACHER not in told, (level.name, path)
    assert SHARED in callers[Access.OPEN_READING].get("/api/v1/lessons").text
    assert read > len(paths)
    owner = callers[Access.OWNER]
    assert all(word in owner.get(path).text for word, path in ((ASKED, "/activity"), (LEARNED, "/lessons")))
    assert ANSWER in owner.get(f"/skills/close-the-month?tab=files&file={TASKS_FILE}").text


def test_a_stranger_is_shown_the_skills_first_and_can_follow_every_link_in_the_navigation(
    callers: Mapping[Access, TestClient],
) -> None:
    page = callers[Access.OPEN_READING].get("/")
    assert page.url.path == "/skills"
    links = re.findall(r'<li><a href="(/[a-z]*)"', page.text.partition("</nav>")[0])
    assert links == ["/skills", "/lessons", "/insights"]
    assert {callers[Access.OPEN_READING].get(link).status_code for link in links} == {200}


def test_a_route_without_access_does_not_start(habitus: Habitus, keys: SignInService) -> None:
    app = build_application_without_home()
    app.get("/new-door")(lambda: Response())
    desks = HomePool(habitus)
    with pytest.raises(ValueError, match=r"/new-door.*does not declare who may use it"):
        make_web_app(desks, keys, {HOST}, app=app)
    desks.close()
    with pytest.raises(TypeError, match="access"):
        AccessRouter().get("/new-door")  # type: ignore[call-arg]  # which is what is tried


@pytest.mark.req("PF-05")
def test_models_of_results_are_built_for_the_description_alone() -> None:
    app = build_application_without_home()
    described = app.openapi()
    evidence = described["paths"]["/api/v1/evidence"]["get"]["responses"]["200"]["content"]["application/json"]
    assert evidence["schema"]["$ref"].rpartition("/")[2] in described["components"]["schemas"]
    assert [route for route in app.routes if getattr(route, "response_field", None) is not None] == []


def test_nobody_changes_anything_without_signing_in() -> None:
    router = AccessRouter()
    router.post("/change", access=Access.OPEN_READING)(lambda: Response())
    with pytest.raises(ValueError, match="nobody uses it without signing in"):
        router.add_routes_to(build_application_without_home())
