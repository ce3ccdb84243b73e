"""Changes of one host's directories, decided on another: two homes on one PostgreSQL."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus, read_settings
from habitus.app.sharing.approvals import ApprovalWatcher
from habitus.app.use_cases.review import reopen_proposals
from habitus.errors import Invalid, Refused, UserError
from habitus.llm.scripted import ScriptedModel, says
from habitus.skills import trees
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.review import Proposal, ProposalAction, ProposalState, SkillChange
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.contracts.lines import Line
from tests.contracts.test_two_hosts import soon
from tests.homes import furnish
from tests.web.conftest import standing

AGENT = Author(actor=ActorKind.AGENT, name="main", reason="did it three times")
REPORT = Skill(name="report", description="Writes the report.", body="1. Write it.")
ROLES = "[users.ann]\nadmin = true\n[users.bob]\nadmin = {}\n"
PAGE = "127.0.0.1:8765"

# Opens a home and dies at a statement; what it can't do any more the next process does.
DIES = """
import os, signal, sys
from pathlib import Path
import sqlalchemy as sa
from habitus.app import Habitus, read_settings

home, url, at = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def look(connection, cursor, statement, parameters, *more):
    if statement.startswith(at.split("/")[0]) and at.split("/")[1] in str(parameters):
        os.kill(os.getpid(), signal.SIGKILL)

sa.event.listen(sa.Engine, "before_cursor_execute", look)
environ = {"HOME": str(home), "USER": "ann", "HABITUS_DATABASE": url, "HABITUS_LOOK_EVERY": "0"}
Habitus.open(read_settings(home, environ)).close()
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """Homes by name, each with a person's home of its own; `ann` is their user unless another is said."""

    folder: Path
    url: str
    stack: ExitStack

    def home(self, name: str) -> Path:
        return furnish(self.folder / name)

    def environ(self, name: str, user: str = "ann") -> dict[str, str]:
        told = {"HOME": str(self.home(name)), "USER": user, "HABITUS_DATABASE": self.url}
        return told | {"HABITUS_LOOK_EVERY": "0", "HABITUS_DURABLE": "false"}

    def open(self, name: str, user: str = "ann", cwd: Path | None = None) -> Habitus:
        settings = read_settings(self.home(name), self.environ(name, user))
        habitus = Habitus.open(settings.model_copy(update={"cwd": cwd or self.home(name)}))
        return self.stack.enter_context(habitus)

    def file(self, name: str) -> Path:
        return self.home(name) / ".claude" / "skills" / "report" / "SKILL.md"


@pytest.fixture
def hosts(tmp_path: Path, url: str) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(folder=tmp_path, url=url, stack=stack)


def proposed(
    habitus: Habitus, body: str = REPORT.body, *, layer: str = "claude", action: ProposalAction = ProposalAction.WRITE
) -> Proposal:
    tree = trees.update_main_file({}, replace(REPORT, body=body)) if action is ProposalAction.WRITE else {}
    made = habitus.review.submit(SkillChange(action=action, name="report", layer=layer, tree=tree), AGENT).proposal
    assert made is not None
    return made


@pytest.mark.req("OP-01", "SK-21")
def test_what_another_host_approves_is_done_where_the_directory_is(
    hosts: Hosts, run_cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    here = hosts.open("here")
    number = str(proposed(here).id)
    there = replace(run_cli, home=hosts.home("there"), env=hosts.environ("there"))
    serving = ApprovalWatcher(here)
    hosts.stack.callback(serving.close)
    listed = there("review", "list").out
    assert f"report@claude on {(hosts.home('here') / 'host').read_text()}" in listed
    assert "+1. Write it." in there("review", "diff", number).out
    approved = there("review", "approve", number)
    assert "that host applies it" in approved.out, approved
    assert soon(lambda: here.review.get(int(number)).state is ProposalState.APPROVED), here.review.get(int(number))
    assert "1. Write it." in hosts.file("here").read_text()
    assert not hosts.file("there").exists()
    (version,) = here.skills.get_layer("claude").store.list_versions("report")
    assert version.author.actor is ActorKind.USER
    assert version.author.name == here.review.get(int(number)).decided_by
    undo = there("review", "reopen", number)
    assert undo.code == 1
    assert f"as version 1. Undo it there: habitus review reopen {number}." in undo.err
    assert reopen_proposals(here, ids=(number,)).reopened[0].state == ProposalState.PENDING
    assert not hosts.file("here").exists()


@pytest.mark.full
@pytest.mark.req("OP-01", "SK-21")
async def test_a_chat_does_between_two_turns_what_another_host_approved_meanwhile(hosts: Hosts) -> None:
    here, there = hosts.open("here"), hosts.open("there")
    async with here.session(ScriptedModel([says("one"), says("two")])) as session:
        await session.turn("Hello")
        number = proposed(here).id
        there.review.approve(number, there.build_author())
        assert not hosts.file("here").exists()
        await session.turn("Write the report")
        assert "1. Write it." in hosts.file("here").read_text()


@pytest.mark.req("OP-01", "SK-21")
def test_a_directory_that_changed_meanwhile_is_left_alone_and_the_proposal_waits_on_what_is_there(hosts: Hosts) -> None:
    here, there = hosts.open("here"), hosts.open("there")
    here.skills.get_layer("claude").store.save_tree("report", trees.update_main_file({}, REPORT), here.build_author())
    number = proposed(here, "1. Write it twice.").id
    there.review.approve(number, there.build_author())
    hosts.file("here").write_text(hosts.file("here").read_text().replace("Write it", "Sing it"))
    hosts.open("here")
    waits = there.review.get(number)
    assert (waits.state, waits.decided_by) == (ProposalState.PENDING, "")
    assert "but not applied: 'report' has changed since" in waits.reasons[-1]
    assert "-1. Sing it.\n+1. Write it twice.\n" in there.review.diff_proposal(number)
    assert "Sing it" in hosts.file("here").read_text()
    there.review.approve(number, there.build_author())
    hosts.open("here")
    assert "Write it twice" in hosts.file("here").read_text()


@pytest.mark.req("OP-01", "SK-21")
@pytest.mark.parametrize(
    "at",
    [
        "UPDATE skill_proposals/'approved'",  # done, and not yet said
        *(
            pytest.param(at, marks=pytest.mark.full)
            for at in ("INSERT INTO skill_intents/report", "DELETE FROM skill_intents/", "INSERT INTO skill_versions/")
        ),
    ],
)
def test_a_host_that_is_killed_while_it_carries_out_does_it_once(hosts: Hosts, python: str, at: str) -> None:
    here = hosts.open("here")
    number = proposed(here).id
    there = hosts.open("there")
    there.review.approve(number, there.build_author())
    killed = subprocess.run([python, "-c", DIES, str(hosts.home("here")), hosts.url, at], check=False)
    assert killed.returncode == 256 - 9
    assert there.review.get(number).state is ProposalState.APPLYING
    with pytest.raises(Invalid):
        there.review.reopen(number)
    again = hosts.open("here")
    assert there.review.get(number).state is ProposalState.APPROVED
    assert [version.number for version in again.skills.get_layer("claude").store.list_versions("report")] == [1]


@pytest.mark.req("OP-01", "SC-04")
def test_only_an_admin_decides_for_another_host_and_that_host_knows_who_is_one(hosts: Hosts) -> None:
    (hosts.home("here") / "habitus.toml").write_text(ROLES.format("false"))
    toml = hosts.home("there") / "habitus.toml"
    toml.write_text(ROLES.format("false"))
    number = proposed(hosts.open("here")).id
    bob = hosts.open("there", "bob")
    for decide in (
        lambda: bob.review.approve(number, bob.build_author()),
        lambda: bob.review.reject(number, bob.build_author(), "no"),
        lambda: bob.review.edit_proposed_file(number, "SKILL.md", b"---\nname: report\ndescription: x\n---\n"),
    ):
        with pytest.raises(Refused, match="Only an admin may decide about directories of another host"):
            decide()
    toml.write_text(ROLES.format("true"))
    bob = hosts.open("there", "bob")
    bob.review.approve(number, bob.build_author())
    here = hosts.open("here")
    assert here.review.get(number).reasons[-1] == "approved by bob, who is not an admin here"
    assert not hosts.file("here").exists()
    ann = hosts.open("there", "ann")
    ann.review.approve(number, ann.build_author())
    hosts.open("here")
    assert hosts.file("here").exists()


@pytest.mark.full
@pytest.mark.req("OP-01", "SK-21")
def test_a_project_is_changed_where_it_is_whichever_directory_the_host_works_in(hosts: Hosts) -> None:
    one, other = hosts.folder / "one", hosts.folder / "other"
    for project in (one, other):
        (project / ".claude" / "skills").mkdir(parents=True)
    number = proposed(hosts.open("here", cwd=one), layer="project-claude").id
    there = hosts.open("there")
    there.review.approve(number, there.build_author())
    here = hosts.open("here", cwd=other)
    assert (one / ".claude" / "skills" / "report" / "SKILL.md").exists()
    assert not (other / ".claude" / "skills" / "report").exists()
    reopen_proposals(here, ids=(str(number),))
    assert not (one / ".claude" / "skills" / "report").exists()
    there.review.approve(number, there.build_author())
    (one / ".claude").rename(one / "gone")
    hosts.open("here", cwd=other)
    assert "There is no" in there.review.get(number).reasons[-1]


@pytest.mark.req("OP-01", "OP-03")
def test_what_is_proposed_while_the_database_is_away_is_known_to_all_when_it_is_back(
    hosts: Hosts, url: str, line: Line
) -> None:
    cut_off = replace(hosts, url=line.url)
    here = cut_off.open("here")
    line.cut()
    alone = proposed(here)
    assert (alone.id % 2, alone.reasons[-1].partition(",")[0]) == (1, "the database is unreachable")
    line.restore()
    there = hosts.open("there")
    assert there.review.list_proposals_by_state(all_hosts=True) == []
    assert cut_off.open("here").review.list_proposals_by_state() == there.review.list_proposals_by_state(all_hosts=True)
    assert cut_off.open("here").review.list_proposals_by_state() == there.review.list_proposals_by_state(all_hosts=True)
    (waits,) = there.review.list_proposals_by_state(all_hosts=True)
    assert (waits.change, waits.made_on, waits.id % 2) == (alone.change, alone.made_on, 0)


@pytest.mark.full
@pytest.mark.req("OP-01", "SK-21")
def test_of_many_who_decide_at_once_the_first_has_decided(hosts: Hosts) -> None:
    number = proposed(hosts.open("here")).id
    deciders = [hosts.open(f"host-{count}") for count in range(6)]
    together = threading.Barrier(len(deciders))

    def decide(count: int) -> bool:
        review, person = deciders[count].review, deciders[count].build_author(user=f"user-{count}")
        together.wait()
        try:
            review.approve(number, person) if count % 2 else review.reject(number, person, "no")
        except UserError:
            return False
        return True

    with ThreadPoolExecutor(len(deciders)) as pool:
        first = [count for count, is_first in enumerate(pool.map(decide, range(len(deciders)))) if is_first]
    (winner,) = first
    assert deciders[0].review.get(number).decided_by == f"user-{winner}"


@pytest.mark.full
@pytest.mark.req("OP-01", "CL-02")
def test_the_page_says_which_host_it_is_about_and_takes_an_approval_back_until_that_has_heard(hosts: Hosts) -> None:
    here = hosts.open("here")
    number = proposed(here).id
    there = hosts.open("there")
    desks, keys = HomePool(there), load_sign_in_service(there)
    hosts.stack.callback(desks.close)
    browser = TestClient(make_web_app(desks, keys, {PAGE}, app=standing()), base_url=f"http://{PAGE}")
    cookie = keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
    browser.cookies.set(keys.cookie, cookie)
    browser.headers.update({"X-CSRF": keys.make_csrf_token(cookie), "Origin": f"http://{PAGE}"})
    host = (hosts.home("here") / "host").read_text()
    page = browser.get("/inbox").text
    assert f"wants to add the skill report in claude on {host}" in page
    assert f"/inbox/effect/{number}" not in page
    assert f"Approved; {host} applies it." in browser.post(f"/inbox/{number}/approve").text
    assert "approved; its host applies it" in browser.get("/inbox").text
    assert "Pending review again." in browser.post(f"/inbox/{number}/reopen").text
    hosts.open("here")
    assert not hosts.file("here").exists()
    assert here.review.get(number).state is ProposalState.PENDING
