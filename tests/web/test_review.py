"""The Inbox: what a change would have done, what belongs together, and every decision undone."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library import explaining
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.review import inbox, replaying
from habitus.app.review.reminding import count_pending_items
from habitus.app.tasks.proposing import TaskCandidate, propose_tasks
from habitus.app.tasks.storing import load_tasks
from habitus.app.use_cases import review
from habitus.files import build_tree_file
from habitus.journal.model import Turn
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer
from habitus.skills.model import ActorKind, Author, Skill, SkillState
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.trees import update_main_file
from habitus.tasks.checks import ReplyContainsCheck
from habitus.tasks.judging import derive_expected_result, infer_json_schema_of_result
from habitus.tasks.model import Task
from habitus.tools.code_stage import build_case_from_call
from habitus.tools.model import ToolProposalEvidence
from tests.web.test_pages import seen

AGENT = Author(actor=ActorKind.AGENT, name="helper", reason="seen again and again")
COFFEE = Skill(
    name="brew-coffee",
    description="How coffee is brewed: grind, heat the water, pour slowly, wait four minutes",
    when_to_use="When somebody wants coffee.",
    body="1. Grind the beans.\n2. Heat the water.\n3. Pour slowly and wait four minutes.\n4. Press.\n",
)


def _replay(habitus: Habitus, change: SkillChange) -> replaying.ReplayReport:
    *_, whole = replaying.replay_recent_requests(habitus, change)
    return whole


def proposed(habitus: Habitus, skill: Skill) -> str:
    change = SkillChange(action=ProposalAction.WRITE, name=skill.name, layer="user", tree=update_main_file({}, skill))
    submitted = habitus.review.submit(change, AGENT)
    assert submitted.proposal is not None
    return str(submitted.proposal.id)


def asked(habitus: Habitus, *requests: str) -> None:
    for number, request in enumerate(requests):
        began = habitus.clock() - timedelta(hours=1, seconds=-number)
        habitus.journal.record_complete_turn(
            Turn(id=f"a{number}", session="s", request=request, started_on=began, user=habitus.settings.user)
        )


@pytest.mark.req("CL-02")
def test_a_change_is_shown_with_what_it_would_have_done_to_the_last_requests(
    browser: TestClient, api: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    asked(habitus, "Brew me a coffee with the grinder, please", "How is tea brewed?", "Translate this letter")
    id = proposed(habitus, COFFEE)
    while "so far" in (effect := seen(f"<main>{browser.get(f'/inbox/effect/{id}').text}")):
        pass  # it says how far it is, and goes on
    assert re.search(r"1\s+of the last 3 requests would newly get brew-coffee", effect)
    told = api.get(f"/api/v1/review/effect/{id}").json()
    (gained,) = told["affected"]
    assert (gained["request"], gained["gains_skill"]) == ("Brew me a coffee with the grinder, please", True)
    # What was foretold comes true.
    review.approve_items(habitus, ids=(id,))
    why = explaining.explain_skill_selection(
        habitus, "brew-coffee", explaining.build_request_of_user(habitus, gained["request"])
    )
    assert (why.rank, why.fits) == (1, True)
    changed = proposed(habitus, replace(COFFEE, body=f"{COFFEE.body}5. Serve.\n"))
    while "so far" in (effect := seen(f"<main>{browser.get(f'/inbox/effect/{changed}').text}")):
        pass
    assert re.search(r"Each of the last 3 requests\s+would get the same skills as today. What a changed text", effect)
    # Requests are what people said to an agent: whoever has not signed in does not read them.
    assert stranger.get(f"/inbox/effect/{id}").status_code == 401
    assert stranger.get(f"/api/v1/review/effect/{id}").status_code == 401


@pytest.mark.req("CL-02")
def test_what_a_change_takes_away_is_shown_as_well(habitus: Habitus) -> None:
    asked(habitus, "How is tea brewed?", "Translate this letter")
    change = SkillChange(action=ProposalAction.REMOVE, name="brew-tea", layer="user")
    gone = _replay(habitus, change)
    assert [one.request for one in gone.losing_requests] == ["How is tea brewed?"]
    assert (
        _replay(habitus, SkillChange(action=ProposalAction.DISABLE, name="brew-tea", layer="user")).losing_requests
        == gone.losing_requests
    )
    assert habitus.skills.find("brew-tea").summary is not None
    # A copy that another layer stands before changes nothing for anybody.
    behind = SkillChange(action=ProposalAction.REMOVE, name="brew-tea", layer="bundled")
    assert _replay(habitus, behind).affected == ()


@pytest.mark.full
@pytest.mark.req("CL-02")
def test_near_duplicates_that_wait_are_decided_together(browser: TestClient, habitus: Habitus) -> None:
    proposed(habitus, Skill(name="count-stock", description="Counts what is left in the shop", body="1. Count.\n"))
    first = proposed(habitus, COFFEE)
    second = proposed(habitus, replace(COFFEE, name="make-coffee"))
    groups = inbox.group_related_items(habitus.finder, inbox.list_pending(habitus))
    assert [[item.id for item in group] for group in groups if len(group) > 1] == [[first, second]]
    page = browser.get(f"/inbox/alike/{first}").text
    assert "1 other in the inbox says something very similar:  make-coffee ." in seen(f"<main>{page}")
    assert f'hx-post="/inbox/{first}/choose"' in page
    done = browser.post(f"/inbox/{second}/choose", data={"others": [first]})
    assert "Approved; 1 other rejected." in done.text
    assert habitus.skills.is_name_taken("make-coffee")
    assert habitus.review.get(int(first)).decision == "make-coffee says the same and was approved"
    # One Undo has all of them wait again, as if nobody had chosen.
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', done.text)})
    assert inbox.group_related_items(habitus.finder, inbox.list_pending(habitus)) == groups
    assert not habitus.skills.is_name_taken("make-coffee")


@pytest.mark.req("CL-03")
def test_a_program_takes_one_of_several_and_nothing_is_half_done(
    api: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    first, second, other = (
        int(proposed(habitus, skill))
        for skill in (COFFEE, replace(COFFEE, name="make-coffee"), Skill(name="x", description="Stock", body="1."))
    )
    listed = api.get("/api/v1/review", params={"limit": 1}).json()
    assert (listed["groups"], listed["total"]) == ([[first, second]], 3)
    tokens = {
        role: open_user_accounts(habitus).add_or_reinvite_user(role, role).token
        for role in (UserRole.VIEWER, UserRole.REVIEWER)
    }
    viewer, reviewer = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    door, wanted = f"/api/v1/review/{second}/choose", {"others": [str(first)]}
    assert stranger.post(door, json=wanted, headers=viewer).status_code == 403
    for wrong in (["999"], [str(second)], [str(first), str(first)], [], ["9" * 5000], ["²"]):
        assert api.post(door, json={"others": wrong}).status_code in (404, 422), wrong
    api.post(f"/api/v1/review/{other}/reject", json={})
    assert api.post(door, json={"others": [str(other)]}).status_code == 422
    assert not habitus.skills.is_name_taken("make-coffee")
    reviewer["Idempotency-Key"] = "once"
    done, again = (stranger.post(door, json=wanted, headers=reviewer) for _ in range(2))
    assert done.json() == again.json()
    assert [done.json()["approved"]["item"][key] for key in ("state", "decided_by")] == ["approved", "reviewer"]
    assert [one["item"]["decision"] for one in done.json()["rejected"]] == [
        "make-coffee says the same and was approved"
    ]
    assert habitus.skills.is_name_taken("make-coffee")
    back = api.post("/api/v1/undo", json={"undo": done.json()["rejected"][0]["undo"]})
    assert back.json()["messages"] == ["brew-coffee@user is pending review again."]


@pytest.mark.req("CL-02")
def test_every_decision_can_be_taken_back(browser: TestClient, habitus: Habitus) -> None:
    id = proposed(habitus, COFFEE)
    down = browser.post(f"/inbox/{id}/reject", data={"reason": "we drink tea"}).text
    assert "we drink tea" in seen(down)
    assert count_pending_items(habitus) == 0
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', down)})
    assert [item.id for item in inbox.list_pending(habitus)] == [id]
    browser.post(f"/inbox/{id}/reject", data={"reason": "no"})
    assert "Pending review again." in browser.post(f"/inbox/{id}/reopen").text
    taken = browser.post(f"/inbox/{id}/approve").text
    assert habitus.skills.is_name_taken("brew-coffee")
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', taken)})
    assert not habitus.skills.is_name_taken("brew-coffee")
    assert [item.id for item in inbox.list_pending(habitus)] == [id]
    for action in (ProposalAction.WRITE, ProposalAction.DISABLE, ProposalAction.REMOVE):
        tree = update_main_file({}, replace(COFFEE, name="brew-tea")) if action is ProposalAction.WRITE else {}
        submitted = habitus.review.submit(SkillChange(action=action, name="brew-tea", layer="user", tree=tree), AGENT)
        assert submitted.proposal is not None
        before = habitus.skills.read_tree("brew-tea")
        browser.post(f"/inbox/{submitted.proposal.id}/approve")
        assert habitus.skills.is_name_taken("brew-tea") is (action is not ProposalAction.REMOVE)
        assert "Pending review again." in browser.post(f"/inbox/{submitted.proposal.id}/reopen").text
        assert habitus.skills.read_tree("brew-tea") == before
        assert habitus.skills.find("brew-tea").state is SkillState.OK


@pytest.mark.req("CL-02")
def test_a_lesson_that_waits_is_edited_turned_down_and_taken_back(browser: TestClient, habitus: Habitus) -> None:
    draft = LessonDraft(text="Dates are day-first.", kind=LessonKind.ALWAYS, produced_by=LessonProducer.MODEL)
    waiting = habitus.memory.encode(draft).engram
    assert waiting is not None
    edited = browser.post(f"/inbox/{waiting.id}/text", data={"text": "Dates are written day first."})
    assert "Saved; still pending review." in edited.text
    down = browser.post(f"/inbox/{waiting.id}/reject", data={"reason": "not here"}).text
    assert inbox.list_pending(habitus) == ()
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', down)})
    assert [item.title for item in inbox.list_pending(habitus)] == ["Dates are written day first."]


@pytest.mark.req("IM-02")
def test_a_task_that_was_mined_is_read_and_taken_on_the_page(browser: TestClient, habitus: Habitus) -> None:
    task = Task(id="tea", request="How long does green tea draw?", checks=(ReplyContainsCheck(text="three minutes"),))
    found = [TaskCandidate(skill="brew-tea", task=task, evidence=("asked often",))]
    (waits,) = propose_tasks(habitus, found, source="mining", reason="a recurring request")
    (door,) = re.findall(r'hx-get="(/inbox/\d+/file\?path=[^"]+)"', browser.get("/inbox").text)
    assert "three minutes" in browser.get(door).text
    assert load_tasks(habitus, "brew-tea") == ()
    browser.post(f"/inbox/{waits.proposal}/approve")
    (kept,) = load_tasks(habitus, "brew-tea")
    assert (kept.id, kept.reviewed_by) == ("tea", habitus.settings.author_name)


@pytest.mark.req("CL-02")
def test_a_large_import_of_ones_own_is_read_as_that_and_its_files_come_when_they_are_opened(
    browser: TestClient, habitus: Habitus
) -> None:
    script = build_tree_file("".join(f"print({number})\n" for number in range(3000)).encode())
    tree = {**update_main_file({}, COFFEE), **{f"scripts/{number}.py": script for number in range(60)}}
    findings = (
        "scripts/1.py:2: Runs whatever a server sends (pipe)",
        "scripts/2.py:9: Runs whatever a server sends (pipe)",
    )
    change = SkillChange(action=ProposalAction.WRITE, name=COFFEE.name, layer="user", tree=tree)
    made = habitus.review.propose(change, habitus.build_author("import of https://example.org/a.zip"), findings)
    page = browser.get(f"/inbox/{made.id}").text
    assert "You import brew-coffee" in page
    assert "Runs whatever a server sends (scripts/1.py, line 2, and in 1 more place)." in seen(page)
    assert "The agent is told" not in page
    assert (len(page) < 50_000, "print(7)" in page, page.count("<details")) == (True, False, 52)
    rest = browser.get(f"/inbox/{made.id}/files", params={"start": 50}).text
    assert "scripts/9.py" in rest
    first = browser.get(f"/inbox/{made.id}/file", params={"path": "scripts/9.py"}).text
    assert ("print(999)" in first, "print(1000)" in first, "Show more (2,000 lines left)" in first) == (
        True,
        False,
        True,
    )
    assert "print(2999)" in browser.get(f"/inbox/{made.id}/file", params={"path": "scripts/9.py", "start": 2000}).text
    assert browser.get(f"/inbox/{made.id}/file", params={"path": "nothing"}).status_code == 404


@pytest.mark.req("CL-02", "CL-04")
def test_in_a_team_somebody_else_can_be_made_to_approve(
    browser: TestClient, api: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    key = {"key": "review.somebody_else", "value": "true"}
    alone = browser.post("/settings/value", data=key, headers={"HX-Request": "true"})
    assert (alone.status_code, "No other person could approve" in alone.text) == (409, True)
    for spelled, value in (("review.somebody_else", "true"), ("Review.Somebody-Else", "1")):
        refused = api.put(f"/api/v1/settings/{spelled}", json={"value": value})
        assert (refused.status_code, "No other person could approve" in refused.json()["title"]) == (409, True)
    reviewer = {
        "Authorization": f"Bearer {open_user_accounts(habitus).add_or_reinvite_user('ben', UserRole.REVIEWER).token}"
    }
    assert browser.post("/settings/value", data=key).status_code == 200
    id = proposed(habitus, COFFEE)
    assert "another person must approve it" in browser.get(f"/inbox/{id}").text
    refused = api.post(f"/api/v1/review/{id}/approve")
    assert (refused.status_code, "another person must approve it" in refused.json()["title"]) == (409, True)
    assert stranger.post(f"/api/v1/review/{id}/approve", headers=reviewer).status_code == 200
    # With nobody else left, whoever is alone decides again.
    other = proposed(habitus, replace(COFFEE, name="make-coffee"))
    open_user_accounts(habitus).remove_and_bar_account("ben")
    assert api.post(f"/api/v1/review/{other}/approve").status_code == 200


KEY = "sk-ant-" + "api03-" + "a1B2c3D4e5" * 9
SHOUT = """import json, sys
word = json.loads(sys.argv[1])["word"]
print(json.dumps({"said": word.upper(), "with": "sk-ant-" + "api03-" + "a1B2c3D4e5" * 9}))
"""


@pytest.mark.req("LA-04", "CL-02")
def test_the_trial_of_code_is_a_table_that_runs_nothing_and_shows_no_secret(
    browser: TestClient, api: TestClient, habitus: Habitus
) -> None:
    words = ("<b>tea</b>", KEY, "milk")
    recorded = [f'{{"said": "{word.upper()}", "with": "[redacted:anthropic]"}}' for word in words]
    cases = [
        build_case_from_call(
            {"word": word},
            infer_json_schema_of_result(result),
            derive_expected_result([result], redacted=habitus.redact),
        )
        for word, result in zip(words, recorded, strict=True)
    ]
    takes = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    grounds = ToolProposalEvidence(cases=tuple(cases), recorded=tuple(recorded))

    async def propose() -> int | None:
        async with habitus.tools as tools:
            made = await tools.create("shout", "Shouts.", takes, SHOUT, {"word": "milk"}, AGENT, evidence=grounds)
        return made.proposal

    id = asyncio.run(propose())
    page = browser.get(f"/inbox/{id}").text
    table = page[page.index("Its trial") :].split("</table>")[0]
    heads = re.findall("<th>(.*?)</th>", table)
    rows = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(<td>.*?)</tr>", table)]
    assert heads == ["Input", "Recorded", "Draft", "Compared"]
    assert rows[0][0] == "<code>{&#34;word&#34;: &#34;&lt;b&gt;tea&lt;/b&gt;&#34;}</code>"
    result = "<code>{&#34;said&#34;: &#34;MILK&#34;, &#34;with&#34;: &#34;[redacted:anthropic]&#34;}</code>"
    assert rows[2][1:] == [result, result, "values but with"]
    assert KEY[:30] not in page
    shown = api.get(f"/api/v1/review/{id}").json()["item"]["trial"]
    assert shown[1]["input"] == '{"word": "[redacted:anthropic]"}'
