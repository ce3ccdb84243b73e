"""One story in every view: the same numbers by command, page, REST, MCP and Python, on both databases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from mcp.client import Client

from habitus.app import Habitus, read_settings
from habitus.app.learning.usage import find_stale_usage_counters
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.use_cases.skills import show_stats
from habitus.journal.model import JudgementSourceKind
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions
from habitus.skills.model import Skill
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.conftest import Cli
from tests.contracts import postgres
from tests.homes import furnish
from tests.mcp.conftest import text_of
from tests.usage import list_evidence_numbers
from tests.web.conftest import HOST

SCRIPT = [calls("recall_skill", {"name": "brew-tea"}), says("It is done.")]
USES = {
    "recommended": 6,
    "used": 6,
    "succeeded": 1,
    "failed": 2,
    "no_feedback": 3,
    "weak_failures": 1,
    "ran_without_error": 2,
}
# Of ann, who asked six times, and of eve, whose one run failed.
REQUESTS = {"ann": (1, 1, 4), "eve": (0, 1, 0)}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ExitStack() as stack:
        url = ""
        if request.param == "postgresql":
            url = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
            monkeypatch.setenv("HABITUS_DATABASE", url)
        for name, value in {"HOME": str(tmp_path), "HABITUS_USER": "ann", "HABITUS_DURABLE": "false"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        yield url


@pytest.fixture
def habitus(home: Path, database: str) -> Iterator[Habitus]:
    if database:
        (home / "habitus.toml").write_text("[users.ann]\nadmin = true\n")
    with Habitus.open(read_settings(home)) as opened:
        tea = Skill(name="brew-tea", title="Brew tea", description="How tea is brewed", body="1. Boil water.\n")
        opened.skills.create(tea, opened.build_author())
        yield opened


async def ask(habitus: Habitus, *requests: str, source_type: str = "repl") -> str:
    """A conversation that recalls the skill in its first turn; returns that turn."""
    script = [*SCRIPT, *(says("As you say.") for _ in requests[1:])]
    async with habitus.session(ScriptedModel(script), source_type=source_type) as session:
        turns = [await session.turn(request) for request in requests]
    return turns[0].turn


def run_framework(habitus: Habitus, ok: bool | None) -> None:
    with habitus.turn("How is tea brewed?") as turn:
        turn.run("recall_skill", {"name": "brew-tea"})
        turn.done("It is done.", ok=ok)


async def tell_story(habitus: Habitus) -> None:
    """Good, bad, no feedback, corrected, a framework's run, a practice run, and a second user."""
    good, bad = await ask(habitus, "How is tea brewed?"), await ask(habitus, "How is green tea brewed?")
    habitus.outcome(good, ok=True)
    # The last word counts, and a program does not outvote a person.
    habitus.outcome(bad, ok=True)
    habitus.outcome(bad, ok=False, by="user", source_kind=JudgementSourceKind.PERSON)
    habitus.outcome(bad, ok=True, by="user")
    await ask(habitus, "How is black tea brewed?")
    await ask(habitus, "How is white tea brewed?", "No, that is wrong. Do not boil it.")
    run_framework(habitus, None)
    await ask(habitus, "How is any tea brewed?", source_type="practice")
    run_framework(habitus.as_user("eve"), False)


def open_clients(stack: ExitStack, habitus: Habitus) -> tuple[TestClient, TestClient]:
    """A program with the owner's token, and the owner's browser."""
    desks, keys = HomePool(habitus), load_sign_in_service(habitus)
    stack.callback(desks.close)
    app = make_web_app(desks, keys, {HOST})
    browser = TestClient(app, base_url=f"http://{HOST}")
    browser.cookies.set(keys.cookie, keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or "")
    return TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {keys.owner_token}"}), browser


@pytest.fixture
def clients(habitus: Habitus) -> Iterator[dict[str, tuple[TestClient, TestClient]]]:
    """For ann, the owner, and eve, a viewer: a program with a token, and a browser."""
    desks, keys = HomePool(habitus), load_sign_in_service(habitus)
    app = make_web_app(desks, keys, {HOST})
    invited = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.VIEWER)
    found = {}
    for user, token in (("ann", keys.owner_token), ("eve", invited.token)):
        program = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
        found[user] = program, TestClient(app, base_url=f"http://{HOST}")
    found["ann"][1].cookies.set(
        keys.cookie, keys.exchange_sign_in_key_for_cookie(keys.create_owner_sign_in_key()) or ""
    )
    assert found["eve"][1].get(f"/enter?key={invited.link}").status_code == 200
    yield found
    desks.close()


def get_json(program: TestClient, address: str, **params: Any) -> Any:
    answer = program.get(f"/api/v1{address}", params=params or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pick(counts: Any) -> dict[str, int]:
    return {name: counts[name] for name in USES}


def read_page(browser: TestClient, address: str) -> str:
    """The text of a page, without tags."""
    answer = browser.get(address.replace("&amp;", "&"))
    assert answer.status_code == 200, address
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.text.split("<main", 1)[1]))


def check_program(program: TestClient, user: str) -> None:
    """REST has the same numbers, and each of them opens what it counts."""
    (stats,) = get_json(program, "/stats", name="brew-tea")["stats"]
    (listed,) = [one for one in get_json(program, "/skills")["skills"] if one["name"] == "brew-tea"]
    shown = get_json(program, "/skills/brew-tea")
    history = get_json(program, "/skills/brew-tea/evidence")
    every = [stats, listed["counters"], shown["counters"], history["versions"][0][1], history["weeks"][-1][1]]
    for counts in every:
        assert pick(counts) == USES
        assert {name: get_json(program, counts["links"][name])["total"] for name in USES} == USES
    seen = [use for use in get_json(program, "/skills/brew-tea/uses")["uses"] if use["turn"]]
    assert {use["user"] for use in seen} == {user}
    assert len(seen) == {"ann": 5, "eve": 1}[user]
    days = get_json(program, "/overview")["days"]
    names = ("succeeded", "failed", "no_feedback")
    assert tuple(sum(day[name] for day in days) for name in names) == REQUESTS[user]
    for name in (*names, "total"):
        opened = [turn for day in days for turn in get_json(program, day["links"][name])["turns"]]
        assert len(opened) == (sum(REQUESTS[user]) if name == "total" else REQUESTS[user][names.index(name)])
        assert {turn["user"] for turn in opened} <= {user}
    (line,) = [one for one in get_json(program, "/insights")["menu"]["dearest"] if one["name"] == "brew-tea"]
    assert line["used"] == get_json(program, line["links"]["used"])["total"] == {"ann": 5, "eve": 1}[user]
    (point,) = [one for one in get_json(program, "/map")["skills"] if one["name"] == "brew-tea"]
    assert point["uses"] == get_json(program, point["links"]["uses"])["total"] == USES["used"]
    for finding in get_json(program, "/evidence", name="brew-tea")["items"]:
        for number, query in list_evidence_numbers(finding):
            opened = get_json(program, "/evidence/rows", **query)
            assert (opened["total"], len(opened["rows"])) == (number, number), query
            assert sum(row["has_text"] for row in opened["rows"]) <= sum(REQUESTS[user])
    report = get_json(program, "/report")["requests"]
    assert tuple(report[name] for name in names) == REQUESTS[user]
    assert all(get_json(program, report["links"][name])["total"] == report[name] for name in ("requests", *names))


def check_pages(browser: TestClient, user: str) -> None:
    """The pages have the same numbers, and each of them is a link to what it counts."""
    said = "used 6 times: 1 succeeded, 2 failed, 3 no feedback"
    assert said in read_page(browser, "/skills/brew-tea")
    assert said in browser.get("/skills").text
    links = re.findall(r'href="(/skills/brew-tea/uses[^"]*)"', browser.get("/skills/brew-tea").text)
    for name, number in USES.items():
        address = "/skills/brew-tea/uses" + {"used": "", "recommended": "?recommended=true"}.get(
            name, f"?outcome={name}"
        )
        assert address in links or name == "recommended"
        assert read_page(browser, address).count("version 1,") - 1 == number
    home = browser.get("/").text
    total = sum(REQUESTS[user])
    assert re.search(rf"\b{total} {'request' if total == 1 else 'requests'}", read_page(browser, "/"))
    for name, number in zip(("succeeded", "failed", "no feedback"), REQUESTS[user], strict=True):
        (address,) = re.findall(rf'href="(/activity[^"]*)">{number} {name}<', home)
        assert browser.get(address.replace("&amp;", "&")).text.count('<span class="name">') == number
    assert browser.get("/activity").text.count('<span class="name">') == sum(REQUESTS[user])
    cards = re.findall(r'data-card="([^"]*)"', browser.get("/skills?view=map").text)
    assert cards
    assert re.findall(SAID, " ".join(cards)) == []
    uses = {"ann": 5, "eve": 1}[user]
    # The tile, each outcome that occurred below the chart and on its day, and what their agents reported.
    cost = count_cost_numbers(browser, sum(REQUESTS[user]))
    assert check_numbers(browser, "/") == 1 + 2 * sum(map(bool, REQUESTS[user])) + cost
    assert check_numbers(browser, "/insights") == 1 + cost  # and not of what was never used
    assert f'href="/skills/brew-tea/uses?own=true">used {uses} time' in browser.get("/insights/effects").text
    assert check_numbers(browser, "/insights/month") == 1 + sum(map(bool, REQUESTS[user])) + cost
    for address, least in (
        ("/insights/effects", 1),
        ("/skills", 1),
        ("/skills/brew-tea", 6),
        ("/skills/brew-tea?tab=results", 6),
    ):
        assert check_numbers(browser, address) >= least, address


def count_cost_numbers(browser: TestClient, requests: int) -> int:
    """The numbers of the cost of the month, which are the same on each page that has them."""
    pages = [browser.get(page).text for page in ("/", "/insights", "/insights/month")]
    shown, *others = [one.split('<ul class="rows compact cost">')[1].split("</ul>")[0] for one in pages]
    counted = re.compile(r">(\d[\d,]*) (?:more )?(?:requests?|tokens?|decisions?)</a>")
    numbers = counted.findall(shown)
    assert all(counted.findall(one) == numbers for one in others)
    told = re.findall(r">(\d+) (?:more )?requests?</a>", shown)
    assert sum(map(int, told)) == requests
    return len(numbers)


# What an address with rows of requests or uses shows one of, for each.
ROWS = {"/activity": '<span class="name">', "/skills": '<li><div class="grow">', "/insights": "<tr><td>"}


# Counts of requests, uses and conversations, as pages say them; an effect is said in "100 conversations".
SAID = (
    r"\b(?!100 conv)[1-9]\d* (?:requests?|uses|times|conversations?|succeeded|failed|no feedback|corrected|"
    r"ran without error)\b"
)


def check_numbers(browser: TestClient, address: str) -> int:
    """Check that each count of a page is a link, and opens as many turns or uses; return how many there are."""
    main = browser.get(address).text.split("<main", 1)[-1].split("<dialog")[0]
    told = re.sub(r"<(a|svg|script|title)\b.*?</\1>", "", main, flags=re.DOTALL)
    assert re.findall(SAID, re.sub(r"<[^>]*>", " ", told)) == [], address
    links = re.findall(
        r'<a [^>]*href="(/activity|/skills|/insights)([^"]*)"([^>]*)>(.*?)</a>', browser.get(address).text, re.DOTALL
    )
    found = 0
    for page, rest, attributes, inside in links:
        said = " ".join(re.findall(r'aria-label="([^"]*)"', attributes) or [re.sub("<[^>]*>", "", inside)])
        number = re.search(r"(?:^|: |used )(\d[\d,]*)(?! %)\b", said.strip())
        count = int(number[1].replace(",", "")) if number else 0
        if count and "skill" not in said:
            opened = browser.get(f"{page}{rest}".replace("&amp;", "&")).text.split("<main", 1)[1].split("<dialog")[0]
            tokens = [int(one.replace(",", "")) for one in re.findall(r"<td>([\d,]+)</td><td>(?:\$|–)", opened)]
            shown = sum(tokens) if "token" in said else opened.count(ROWS[page])
            assert shown == count, (address, said, page, rest)
            found += 1
    return found


def check_commands(run_cli: Cli, env: dict[str, str]) -> None:
    def read(*args: str) -> Any:
        ran = run_cli(*args, "--json", env=env)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    (told,) = read("skills", "stats", "brew-tea")["stats"]
    (listed,) = [one for one in read("skills", "list")["skills"] if one["name"] == "brew-tea"]
    assert pick(told) == pick(listed["counters"]) == pick(read("skills", "show", "brew-tea")["counters"]) == USES
    for name in USES:
        options = {"used": (), "recommended": ("--recommended",)}.get(name, ("--outcome", name))
        assert read("skills", "uses", "brew-tea", *options)["total"] == USES[name]
    assert "the counters agree with the recorded uses" in run_cli("doctor", env=env).out


@pytest.mark.req("SK-06", "LA-06")
def test_a_bundled_skill_is_counted_and_judged_in_both_databases(habitus: Habitus) -> None:
    with habitus.turn("What is in this file?") as turn:
        turn.run("recall_skill", {"name": "data-summary"})
        turn.done("Rows.")
    habitus.outcome(turn.id, ok=False)
    (row,) = show_stats(habitus, name="data-summary").stats
    assert (row.used, row.failed, row.no_feedback) == (1, 1, 0)


@pytest.mark.req("SK-06", "LA-06", "OP-01")
def test_two_hosts_count_a_skill_of_their_machines_together(tmp_path: Path, url: str, run_cli: Cli) -> None:
    environ = {"HOME": str(tmp_path), "HABITUS_USER": "ann", "HABITUS_DATABASE": url, "HABITUS_DURABLE": "false"}
    with ExitStack() as stack:
        homes = [furnish(tmp_path / name) for name in ("a", "b")]
        a, b = hosts = [stack.enter_context(Habitus.open(read_settings(home, environ))) for home in homes]
        turns: list[str] = []
        for host in (a, a, b):
            with host.turn("What is in this file?", conversation=f"c{len(turns)}") as turn:
                turn.run("recall_skill", {"name": "data-summary"})
                turn.done("Rows.")
            turns.append(turn.id)
        b.outcome(turns[0], ok=False, source_kind=JudgementSourceKind.PERSON)
        counts = {"recommended": 3, "used": 3, "succeeded": 0, "failed": 1, "no_feedback": 2}
        for host in hosts:
            (row,) = show_stats(host, name="data-summary").stats
            assert {name: getattr(row, name) for name in counts} == counts
            program, browser = open_clients(stack, host)
            (listed,) = [one for one in get_json(program, "/skills")["skills"] if one["name"] == "data-summary"]
            for told in (get_json(program, "/stats", name="data-summary")["stats"][0], listed["counters"]):
                assert {name: told[name] for name in counts} == counts
                assert {name: get_json(program, told["links"][name])["total"] for name in counts} == counts
            said = "used 3 times: 1 failed, 2 no feedback"
            assert said in read_page(browser, "/skills/data-summary")
            assert said in browser.get("/skills").text
            ran = run_cli(
                "skills", "list", "--layer", "bundled", env=environ | {"HABITUS_HOME": str(host.settings.home)}
            )
            assert re.search(r"data-summary +ok +bundled +v1 +3 ", ran.out), ran.out
            assert find_stale_usage_counters(host) == []


def write_anton_skill(folder: Path) -> Path:
    """A skill of another system with its own counts, which no use here explains."""
    (folder / "csv-totals").mkdir(parents=True)
    (folder / "csv-totals/SKILL.md").write_text(
        "---\nname: csv-totals\ndescription: Sums up a CSV file.\nmetadata:\n  display_name: CSV totals\n"
        "  provenance: consolidator\n---\n1. Read the header.\n"
    )
    stages = {"stage_1": {"recommended": 7, "used": 5}, "stage_2": {"recommended": 0, "used": 0}}
    (folder / "csv-totals/stats.json").write_text(json.dumps({"total_recalls": 7, **stages}))
    return folder


@pytest.mark.req("SK-06", "SK-19", "OP-01")
@pytest.mark.parametrize("layer", ["claude", "user"])
def test_what_another_system_counted_stays_visible_as_imported_on_a_shared_database(
    tmp_path: Path, url: str, run_cli: Cli, layer: str
) -> None:
    home, source = furnish(tmp_path / "home"), write_anton_skill(tmp_path / "anton")
    alone = {"HOME": str(tmp_path), "HABITUS_HOME": str(home), "HABITUS_USER": "ann", "HABITUS_DURABLE": "false"}
    shared = alone | {"HABITUS_DATABASE": url}

    def show(env: dict[str, str]) -> Any:
        ran = run_cli("skills", "show", "csv-totals", "--json", env=env)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    def import_it(env: dict[str, str]) -> None:
        ran = run_cli("skills", "import", str(source), "--layer", layer, "--trust", env=env)
        assert ran.code == 0, ran.err

    import_it(alone)
    before = show(alone)
    (told,) = before["source_counts"]
    assert "used 5" in told
    assert {name: before["counters"][name] for name in USES} == dict.fromkeys(USES, 0)
    # A layer of the machine is there on the shared database too; the user's own is another one, and imported anew.
    if layer == "user":
        import_it(shared)
    after = show(shared)
    assert [after[name] for name in ("source_counts", "counters")] == [
        before[name] for name in ("source_counts", "counters")
    ]
    with ExitStack() as stack:
        host = stack.enter_context(Habitus.open(read_settings(home, shared)))
        program, browser = open_clients(stack, host)
        assert get_json(program, "/skills/csv-totals")["source_counts"] == [told]
        assert told in read_page(browser, "/skills/csv-totals?tab=results")
        assert find_stale_usage_counters(host) == []
    ran = run_cli("skills", "export", "csv-totals", "--format", "anton", "--to", str(tmp_path / "back"), env=shared)
    assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "back/csv-totals/stats.json").read_text())["stage_1"]["used"] == 5


@pytest.mark.some(1)
@pytest.mark.req("SK-06", "LA-06", "SC-04")
async def test_one_story_has_the_same_numbers_in_every_view(
    habitus: Habitus, clients: dict[str, tuple[TestClient, TestClient]], run_cli: Cli, database: str
) -> None:
    await tell_story(habitus)
    for home in (habitus, habitus.as_user("eve")):
        (row,) = show_stats(home, name="brew-tea").stats
        assert {name: getattr(row, name) for name in USES} == USES
        (counters,) = home.skills.read_counters("brew-tea").values()
        assert {name: getattr(counters, name) for name in USES} == USES
        # Each use was in a conversation of its own, so evidence has the same words, and a sign for what nobody judged.
        (finding,) = home.evidence.find_item_findings("brew-tea")
        offered = finding.estimate.offered
        assert (finding.estimate.used, offered.explicit) == (USES["used"], USES["succeeded"] + USES["failed"])
        assert offered.weak == USES["no_feedback"]
    for user, (program, browser) in clients.items():
        check_program(program, user)
        check_pages(browser, user)
    # An admin may switch to everybody, visibly; a viewer may not.
    owner, viewer = clients["ann"], clients["eve"]
    days = get_json(owner[0], "/overview", all_users=True)["days"]
    assert sum(day["succeeded"] + day["failed"] + day["no_feedback"] for day in days) == 7
    assert "Yours" in read_page(owner[1], "/")
    assert "<strong>Everybody's</strong>" in owner[1].get("/?user=*").text
    assert "Everybody" not in read_page(viewer[1], "/")
    assert viewer[0].get("/api/v1/overview", params={"all_users": True}).status_code == 409
    assert viewer[1].get("/?user=*").status_code == 409
    for user in clients:
        check_commands(run_cli, {"HABITUS_USER": user} | ({"HABITUS_DATABASE": database} if database else {}))
    assert find_stale_usage_counters(habitus) == []
    # An agent over MCP, of the owner and of the viewer by their account; last, because asking is a turn.
    eve = open_user_accounts(habitus).find_account_by_name("eve")
    assert eve is not None
    assert eve.role is UserRole.VIEWER
    for person in (None, eve):
        user = "ann" if person is None else person.name
        behind = LazyHome(McpServerOptions(home=habitus.settings.home, user=user, person=person, profile="all"))
        try:
            async with Client(make_mcp_server(behind)) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
                found = json.loads(text_of(await client.call_tool("list_skills", {})))["skills"]
        finally:
            await behind.close()
        assert ("update_skill" in tools) is (person is None)
        assert next(one["usage"] for one in found if one["name"] == "brew-tea") == USES
