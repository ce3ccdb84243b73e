"""Workspaces of one PostgreSQL: what is in one does not exist in the other, whichever door somebody tries."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from mcp.client import Client

from habitus.app import Habitus, read_settings
from habitus.app.conversations.past_sessions import get_latest_or_matching_session
from habitus.app.operating import jobs
from habitus.errors import NotFound
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import ProposalAction, SkillChange
from habitus.sql.change_notifications import ChangeTopic, get_change_feed
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.cli.conftest import Direct
from tests.conftest import Ran
from tests.contracts.test_two_hosts import soon
from tests.homes import furnish
from tests.web.conftest import standing

HOST = "127.0.0.1:8765"
_PAGE = Path(__file__).parents[2] / "docs" / "guides" / "operations.md"
GUIDE = _PAGE.read_text("utf-8").partition("```sql\n")[2].partition("```")[0]


@pytest.fixture
def server(postgres_server: str) -> str:
    """The address of a database for a role that may make schemas in it, and nothing else."""
    role, database = f"plain{secrets.token_hex(4)}", f"db{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"CREATE DATABASE {database}")
        admin.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
    return sa.make_url(postgres_server).set(username=role, database=database).render_as_string(hide_password=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ids:
    skill: str
    lesson: str
    session: str
    turn: str
    proposal: str
    job: str


def environ(home: Path, server: str, workspace: str) -> dict[str, str]:
    told = {"HOME": str(home), "HABITUS_USER": "ann", "HABITUS_DURABLE": "false", "HABITUS_LOOK_EVERY": "0"}
    return told | {"HABITUS_HOME": str(home), "HABITUS_DATABASE": server, "HABITUS_WORKSPACE": workspace}


def opened(home: Path, env: Mapping[str, str]) -> Habitus:
    return Habitus.open(read_settings(furnish(home), env))


def fill(habitus: Habitus) -> Ids:
    tea = Skill(name="brew-tea", description="How tea is brewed", when_to_use="Tea is wanted", body="1. Boil.")
    habitus.skills.create(tea, habitus.build_author())
    with habitus.turn("how is tea brewed?", conversation="at-breakfast") as turn:
        turn.done("Boil it.")
    mate = trees.update_main_file({}, Skill(name="brew-mate", description="How mate is brewed", body="1. Cool it."))
    change = SkillChange(action=ProposalAction.WRITE, name="brew-mate", layer="user", tree=mate)
    waiting = habitus.review.propose(change, Author(actor=ActorKind.AGENT), ["the agent started it"])
    queue = jobs.open_job_queue(habitus)
    job = jobs.submit_job(habitus, queue, "index")
    lesson = habitus.memory.add("Tea needs a clean kettle.").engram
    assert lesson is not None
    return Ids(
        skill="brew-tea", lesson=lesson.id, session="at-breakfast", turn=turn.id, proposal=str(waiting.id), job=job
    )


def through_the_library(habitus: Habitus, ids: Ids) -> set[str]:
    queue = jobs.open_job_queue(habitus)
    asked: dict[str, Callable[[], object]] = {
        "skill": lambda: habitus.skills.find(ids.skill),
        "lesson": lambda: habitus.memory.get(ids.lesson),
        "session": lambda: get_latest_or_matching_session(habitus.settings, habitus.journal, ids.session),
        "turn": lambda: habitus.journal.get_turn(ids.turn),
        "proposal": lambda: habitus.review.get(int(ids.proposal)),
        "job": lambda: queue.get(ids.job),
    }
    found = set()
    for name, ask in asked.items():
        with suppress(NotFound):
            ask()
            found.add(name)
    return found


def through_commands(direct: Direct, home: Path, env: Mapping[str, str], ids: Ids) -> set[str]:
    here = replace(direct, cli=replace(direct.cli, home=home))
    asked = {
        "skill": ("skills", "show", ids.skill),
        "lesson": ("lessons", "show", ids.lesson),
        "session": ("sessions", "show", ids.session),
        "turn": ("sessions", "outcome", ids.turn, "--ok"),
        "proposal": ("review", "show", ids.proposal),
        "job": ("jobs", "show", ids.job),
    }
    ran = {name: here(*words, env=env) for name, words in asked.items()}
    assert {one.err.count("\n") for one in ran.values() if one.code} <= {1}
    return {name for name, one in ran.items() if one.code == 0}


def through_rest(habitus: Habitus, ids: Ids) -> set[str]:
    desks, keys = HomePool(habitus), load_sign_in_service(habitus)
    try:
        headers = {"Authorization": f"Bearer {keys.owner_token}"}
        api = TestClient(make_web_app(desks, keys, {HOST}, app=standing()), base_url=f"http://{HOST}", headers=headers)
        asked = {
            "skill": f"/api/v1/skills/{ids.skill}",
            "lesson": f"/api/v1/lessons/{ids.lesson}",
            "session": f"/api/v1/sessions/{ids.session}",
            "turn": f"/api/v1/turns/{ids.turn}",
            "proposal": f"/api/v1/review/{ids.proposal}",
            "job": f"/api/v1/jobs/{ids.job}",
        }
        codes = {name: api.get(path).status_code for name, path in asked.items()}
    finally:
        desks.close()
    assert set(codes.values()) <= {200, 404}, codes
    return {name for name, code in codes.items() if code == 200}


def through_mcp(home: Path, ids: Ids) -> set[str]:
    async def ask() -> set[str]:
        behind = LazyHome(McpServerOptions(home=home))
        try:
            async with Client(make_mcp_server(behind), mode="auto") as client:
                recalled = await client.call_tool("recall_skill", {"name": ids.skill})
                lessons = str(await client.call_tool("list_lessons", {}))
        finally:
            await behind.close()
        return {
            name for name, is_there in (("skill", not recalled.is_error), ("lesson", ids.lesson in lessons)) if is_there
        }

    return asyncio.run(ask())


@pytest.mark.full
@pytest.mark.req("OP-01", "SC-04")
def test_ids_of_one_workspace_do_not_exist_in_another_through_any_door(
    direct: Direct, server: str, tmp_path: Path
) -> None:
    homes = {name: tmp_path / name for name in ("red", "blue")}
    env = {name: environ(home, server, name) for name, home in homes.items()}
    with opened(homes["red"], env["red"]) as habitus:
        ids = fill(habitus)
    seen = {}
    for name, home in homes.items():
        with opened(home, env[name]) as habitus, pytest.MonkeyPatch.context() as patch:
            for key, value in env[name].items():
                patch.setenv(key, value)
            seen[name] = (
                through_the_library(habitus, ids),
                through_commands(direct, home, env[name], ids),
                through_rest(habitus, ids),
                through_mcp(home, ids),
            )
    whole = set(Ids.__slots__)
    assert seen == {"red": (whole, whole, whole, {"skill", "lesson"}), "blue": (set(), set(), set(), set())}
    told = {name: direct.json("db", "status", env=env[name]) for name in homes}
    assert {name: one["rows"]["skills"] for name, one in told.items()} == {"red": 1, "blue": 0}
    assert told["red"]["address"].endswith("(workspace red)")
    elsewhere = direct("skills", "list", env=env["red"] | {"HABITUS_WORKSPACE": "blue"})
    assert elsewhere.code == 1
    assert "is in workspace 'red', not in workspace 'blue'. Use a home for each" in elsewhere.err


@pytest.mark.full
@pytest.mark.req("OP-01", "OP-04")
def test_what_is_copied_looked_at_and_forgotten_is_of_one_workspace(
    direct: Direct, server: str, tmp_path: Path
) -> None:
    tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil.")
    with opened(direct.home, {"HOME": str(tmp_path), "HABITUS_USER": "ann"}) as habitus:
        habitus.skills.create(tea, habitus.build_author())
        habitus.memory.add("Tea needs a clean kettle.")
    env = {name: environ(tmp_path / name, server, name) for name in ("red", "blue")}
    for told in env.values():
        copied = direct.json("db", "copy", "home", server, env=told | {"HABITUS_HOME": str(direct.home)})
        assert copied["target"].endswith(f"(workspace {told['HABITUS_WORKSPACE']})")
        (again,) = direct.json("skills", "list", "--layer", "user", env=told)["skills"]
        assert again["name"] == "brew-tea"
    checks = direct("doctor", "--json", env=env["red"])
    assert "(workspace red) answers" in checks.out
    direct.ok("users", "forget", "ann", "--yes", env=env["red"])
    left = {name: direct.json("lessons", "list", env=told)["lessons"] for name, told in env.items()}
    assert (len(left["red"]), len(left["blue"])) == (0, 1)


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_word_of_a_change_stays_in_its_workspace(server: str, tmp_path: Path) -> None:
    tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil.")
    with ExitStack() as stack:
        red, blue, other = (
            stack.enter_context(opened(tmp_path / home, environ(tmp_path / home, server, workspace)))
            for home, workspace in (("red", "red"), ("blue", "blue"), ("other", "red"))
        )
        for habitus in (red, blue):
            get_change_feed(habitus.shared).start()
            stack.callback(get_change_feed(habitus.shared).close)
        assert soon(
            lambda: all(
                get_change_feed(one.shared).get_token_of_announced_changes(ChangeTopic.ROWS) for one in (red, blue)
            )
        )
        before = [get_change_feed(one.shared).get_token_of_announced_changes(ChangeTopic.ROWS) for one in (red, blue)]
        other.skills.create(tea, other.build_author())
        assert soon(lambda: get_change_feed(red.shared).get_token_of_announced_changes(ChangeTopic.ROWS) != before[0])
        assert get_change_feed(blue.shared).get_token_of_announced_changes(ChangeTopic.ROWS) == before[1]


@pytest.mark.full
@pytest.mark.req("OP-01", "SC-04")
def test_a_role_for_each_workspace_is_a_hard_wall(direct: Direct, server: str, postgres_server: str) -> None:
    url = sa.make_url(server)
    admin_url = sa.make_url(postgres_server).set(database=url.database)
    roles = {name: f"{name}{secrets.token_hex(4)}" for name in ("red", "blue")}
    with psycopg.connect(admin_url.render_as_string(hide_password=False), autocommit=True) as admin:
        for name, role in roles.items():
            admin.execute(GUIDE.replace("habitus_red", role).replace("team-red", f"team-{name}").encode())
    addresses = {name: url.set(username=role).render_as_string(hide_password=False) for name, role in roles.items()}

    def ran(role: str, workspace: str) -> Ran:
        told = {"HABITUS_DATABASE": addresses[role], "HABITUS_WORKSPACE": workspace}
        return direct("jobs", "list", env=told | {"HABITUS_HOME": str(furnish(direct.home / role))})

    assert ran("red", "team-red").code == 0
    for workspace, told in (
        ("team-blue", "does not let this role in"),
        ("team-green", "(workspace team-green) is not there, and"),
        ("public", "does not let this role in"),
    ):
        (direct.home / "red" / "workspace").unlink()
        refused = ran("red", workspace)
        assert (refused.code, told in refused.err, refused.err.count("\n")) == (1, True, 1), refused
    with psycopg.connect(addresses["blue"]) as blue, pytest.raises(psycopg.errors.InsufficientPrivilege):
        blue.execute('SELECT count(*) FROM "team-red".skills')


@pytest.mark.req("OP-01")
@pytest.mark.parametrize("name", ["Team", "a b", "x_jobs", "a;drop schema public", '"', "é", "a" * 41, "a\nb", "../x"])
def test_a_name_that_no_workspace_can_have_is_refused_in_one_line(direct: Direct, name: str) -> None:
    refused = direct("skills", "list", env={"HABITUS_DATABASE": "postgresql://h/d", "HABITUS_WORKSPACE": name})
    assert (refused.code, "Setting 'workspace' can't be" in refused.err, refused.err.count("\n")) == (1, True, 1)


@pytest.mark.req("OP-01")
@pytest.mark.parametrize("database", ["", "sqlite:///{home}/shared.db"])
def test_a_file_is_one_workspace(direct: Direct, database: str) -> None:
    env = {"HABITUS_DATABASE": database.format(home=direct.home), "HABITUS_WORKSPACE": "red"}
    for words in (("skills", "list"), ("db", "status")):
        refused = direct(*words, env=env)
        assert (refused.code, "Workspace 'red' needs PostgreSQL" in refused.err) == (1, True)
        assert refused.err.count("\n") == 1
