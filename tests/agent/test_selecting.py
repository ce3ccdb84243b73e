"""What a session chooses for a request, through the doors that a caller has: words, files, resources, features."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from habitus.agent.choosing.skill_selection import find_relevant_skills_on_menu
from habitus.agent.stream import Consent, ConsentQuestion, NoticeEvent
from habitus.app import Habitus
from habitus.app.library import explaining
from habitus.journal.model import SkillPlacementKind
from habitus.llm.model import ProviderError
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.settings import UserSettings
from habitus.skills.model import ActorKind, Author, Manifest, Skill
from tests.agent.conftest import Talk
from tests.agent.test_session import keep, results, said


def places(habitus: Habitus, turn: str) -> dict[str, tuple[SkillPlacementKind, str]]:
    return {entry.name: (entry.place, entry.reason) for entry in habitus.journal.get_turn(turn).selected}


# The ways in


@pytest.mark.full
@pytest.mark.req("SE-02", "SE-04", "SK-15")
async def test_paths_resources_and_features_open_skills_for_their_turn_alone(talk: Talk, habitus: Habitus) -> None:
    keep(habitus, "lint-code", manifest=Manifest(paths=("src/**/*.py",)), body="Mind the style.")
    keep(habitus, "plan-week", manifest=Manifest(resource_types=("calendar",)))
    keep(habitus, "try-this", manifest=Manifest(experimental=True))
    session, model = talk([says("one"), calls("recall_skill", {"name": "plan-week"}), says("two"), says("three")])
    plain = await session.turn("hello")
    await session.turn(
        "what about this?",
        paths=[str(habitus.settings.cwd / "src" / "a" / "b.py")],
        resources=["calendar"],
        features=["skill_try_this"],
    )
    assert places(habitus, plain.turn)["plan-week"][1] == "needs one of the resources calendar"
    assert places(habitus, plain.turn)["try-this"][1].startswith("gated: experimental")
    assert "Mind the style." not in said(model.asked[0])
    beside = said(model.asked[1])
    assert "### Skill: lint-code (path=src/**/*.py)\n\nMind the style." in beside
    heading = "## More available skills for this request (load with recall_skill)"
    assert f"{heading}\n\n- plan-week — Does plan-week\n- try-this — Does try-this" in beside
    assert "1. Do plan-week." in results(session)[0]
    await session.turn("and now for something completely different")
    assert heading not in said(model.asked[-1])
    assert len({ask.system for ask in model.asked}) == 1


@pytest.mark.req("SK-15", "SE-12")
async def test_a_skill_that_needs_a_tool_is_there_where_the_session_has_it(talk: Talk, habitus: Habitus) -> None:
    keep(habitus, "in-a-pad", manifest=Manifest(requires_tools=("scratchpad",)))
    keep(habitus, "on-the-web", manifest=Manifest(requires_tools=("browser",)))
    session, model = talk([says("ok")])
    done = await session.turn("hello")
    assert "- in-a-pad —" in model.asked[0].system
    assert "on-the-web" not in model.asked[0].system
    assert places(habitus, done.turn)["on-the-web"] == (SkillPlacementKind.LEFT_OUT, "gated: needs the tool 'browser'")
    request = explaining.build_request_of_user(habitus, "hello")
    told = {name: explaining.explain_skill_selection(habitus, name, request) for name in ("in-a-pad", "on-the-web")}
    assert [(why.place, why.reason) for why in told.values()] == [
        (SkillPlacementKind.MENU, "eligible, and no rule puts it into the prompt"),
        (SkillPlacementKind.LEFT_OUT, "gated: needs the tool 'browser'"),
    ]
    assert "on-the-web" not in explaining.preview_skills_for_request(habitus, request).skills_on_menu


@pytest.mark.req("SE-03")
async def test_a_reply_to_a_turn_nobody_kept_is_a_notice(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk([says("ok")])
    seen = [event async for event in session.turn_stream("and then?", reply_to="0123456789ab")]
    told = [event.text for event in seen if isinstance(event, NoticeEvent)]
    assert told == ["The turn this replies to is not stored; its skills are not included."]
    assert seen[-1].outcome.is_ok  # type: ignore[union-attr]  # the last event is Done
    assert [turn.reply_to for turn in habitus.journal.list_session_turns(session.id)] == [""]


@pytest.mark.full
@pytest.mark.req("SE-03")
async def test_skills_stay_for_two_turns_and_for_an_answer_however_late(habitus: Habitus, tmp_path: Path) -> None:
    now = [datetime(2026, 5, 1, 9, tzinfo=UTC)]
    with Habitus.open(habitus.settings, clock=lambda: now[0]) as slow:
        keep(slow, "read-log", manifest=Manifest(file_types=("LOG",)), body="Mind the dates.")
        (tmp_path / "a.log").write_text("line\n")
        model = ScriptedModel([says(str(n)) for n in range(7)])
        async with slow.session(model) as session:
            first = await session.turn("read this log", [tmp_path / "a.log"])
            turns = []
            for n in range(3):
                now[0] += timedelta(minutes=1)
                turns.append(await session.turn(f"a wholly different question, number {n}"))
            now[0] += timedelta(days=1)
            late = await session.turn("tomorrow's question")
            answer = await session.turn("about that log again", reply_to=first.turn)
        async with slow.session(ScriptedModel([says("ok")]), source_type="briefing") as briefing:
            unattended = await briefing.turn("about that log again", reply_to=first.turn)
        found = [places(slow, done.turn)["read-log"] for done in (first, *turns, late, answer, unattended)]
    assert [place for place, _ in found] == [
        SkillPlacementKind.EAGER,
        SkillPlacementKind.STICKY,
        SkillPlacementKind.STICKY,
        SkillPlacementKind.MENU,  # what was only sticky does not renew its window
        SkillPlacementKind.MENU,
        SkillPlacementKind.STICKY,
        SkillPlacementKind.MENU,
    ]
    assert found[-2][1] == f"sticky_reply={first.turn}"


@pytest.mark.req("SE-03")
async def test_a_turn_that_failed_leaves_nothing_behind(talk: Talk, habitus: Habitus, tmp_path: Path) -> None:
    keep(habitus, "read-log", manifest=Manifest(file_types=("log",)))
    (tmp_path / "a.log").write_text("line\n")
    session, _ = talk([ProviderError("down"), says("two")])
    await session.turn("read this log", [tmp_path / "a.log"])
    done = await session.turn("a wholly different question")
    assert places(habitus, done.turn)["read-log"][0] is SkillPlacementKind.MENU


@pytest.mark.full
@pytest.mark.req("SE-03")
async def test_a_skill_that_was_switched_off_since_does_not_stay(talk: Talk, habitus: Habitus, tmp_path: Path) -> None:
    keep(habitus, "read-log", manifest=Manifest(file_types=("log",)))
    (tmp_path / "a.log").write_text("line\n")
    session, _ = talk([says("one"), says("two")])
    await session.turn("read this log", [tmp_path / "a.log"])
    habitus.skills.set_enabled("read-log", False, habitus.build_author())
    done = await session.turn("a wholly different question")
    assert places(habitus, done.turn)["read-log"][0] is SkillPlacementKind.LEFT_OUT


# The menu


@pytest.mark.req("SE-06", "SE-02")
async def test_the_menu_lacks_what_every_request_has_or_excludes(talk: Talk, habitus: Habitus) -> None:
    keep(habitus, "house-rules", manifest=Manifest(always_include=True, exclude_skills=("old-rules",)))
    keep(habitus, "old-rules")
    keep(habitus, "read-log", manifest=Manifest(file_types=("log",), exclude_skills=("garden",)))
    keep(habitus, "garden", tags=("green",))
    (habitus.settings.cwd / "a.log").write_text("line\n")
    recalls = [calls("recall_skill", {"name": name}) for name in ("house-rules", "old-rules", "garden", "read-log")]
    session, model = talk([*recalls, says("ok")])
    await session.turn("read this log", [habitus.settings.cwd / "a.log"])
    menu = model.asked[0].system.partition("## Available skills (load on demand)")[2]
    assert "- garden — Does garden [green]\n" in menu
    assert "- read-log — Does read-log" in menu
    assert "house-rules" not in menu
    assert "old-rules" not in menu
    assert results(session) == [
        "The skill 'house-rules' is in view already; follow it from there.",
        "Error: The skill 'old-rules' can't be loaded now: excluded_by=house-rules.",
        "Error: The skill 'garden' can't be loaded now: excluded_by=read-log.",
        "The skill 'read-log' is in view already; follow it from there.",
    ]
    found, _ = explaining.explain_skill_selection_in_last_turn(habitus, session, "garden")
    assert (found.place, found.reason) == (SkillPlacementKind.LEFT_OUT, "excluded_by=read-log")


@pytest.mark.req("SE-06")
async def test_a_menu_without_lines_has_no_heading(talk: Talk, habitus: Habitus) -> None:
    for item in habitus.skills.list_skills():
        habitus.skills.set_enabled(item.name, False, habitus.build_author())
    session, model = talk([says("ok")])
    await session.turn("hello")
    assert "Available skills" not in model.asked[0].system


@pytest.mark.req("SE-06", "AG-09")
async def test_a_person_switching_a_skill_reaches_the_menu_whoever_wrote_it(talk: Talk, habitus: Habitus) -> None:
    written = Skill(name="brew-tea", description="Brews tea", body="1. Boil.")
    habitus.skills.create(written, Author(actor=ActorKind.AGENT, name="agent"))
    session, model = talk([says("one"), calls("recall_skill", {"name": "brew-tea"}), says("two"), says("three")])
    await session.turn("hello")
    habitus.skills.set_enabled("brew-tea", False, habitus.build_author())
    await session.turn("hello again, my friend")
    habitus.skills.set_enabled("brew-tea", True, habitus.build_author())
    await session.turn("something else entirely")
    assert ["- brew-tea —" in ask.system for ask in model.asked] == [True, False, False, True]
    assert results(session) == ["Error: The skill 'brew-tea' can't be loaded now: disabled: switched off."]


@pytest.mark.req("SE-04", "SC-04")
async def test_what_a_user_may_not_see_stays_unknown_when_it_is_off(habitus: Habitus) -> None:
    settings = habitus.settings.model_copy(update={"users": {"ann": UserSettings(admin=True), "bob": UserSettings()}})
    with Habitus.open(settings) as opened:
        keep(opened, "payroll", manifest=Manifest(admin_only=True))
        opened.skills.set_enabled("payroll", False, opened.build_author())
        model = ScriptedModel([calls("recall_skill", {"name": "payroll"}), says("ok")])
        async with opened.session(model, user="bob") as session:
            await session.turn("pay me")
            assert results(session)[0].startswith("Error: There is no skill 'payroll'.")


@pytest.mark.req("SE-05")
async def test_every_turn_logs_one_line(talk: Talk, habitus: Habitus, caplog: pytest.LogCaptureFixture) -> None:
    keep(habitus, "files", manifest=Manifest(always_include=True))
    session, _ = talk([says("one"), says("two")])
    with caplog.at_level(logging.INFO, logger="habitus"):
        await session.turn("hello")
        keep(habitus, "more")  # the menu is drawn anew
        await session.turn("hello again")
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("selection")]
    bundled = len(habitus.skills.list_skills()) - 2
    assert lines == [
        f"selection count=1: files(always_include); skills: eager=1 menu={bundled + more}" for more in (0, 1)
    ]


@pytest.mark.req("SE-08")
def test_why_tells_of_copies_in_front_and_of_those_that_wait(habitus: Habitus) -> None:
    keep(habitus, "brew-tea")
    claude = habitus.settings.user_home / ".claude" / "skills" / "brew-tea"
    project = habitus.settings.cwd / "work" / ".habitus" / "skills" / "brew-tea"
    for folder in (claude, project):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: brew-tea\ndescription: Of {folder.parts[-3]}.\n---\n\nOther.\n")
    with habitus.open_at(habitus.settings.cwd / "work") as opened:
        request = explaining.build_request_of_user(opened, "tea")
        front = explaining.explain_skill_selection(opened, "brew-tea", request).sentences
        assert "It hides brew-tea@claude." in front
        assert "It would be hidden by brew-tea@project, once it is trusted." in front
        behind = explaining.explain_skill_selection(opened, "brew-tea@claude", request)
        assert (behind.place, behind.reason) == (SkillPlacementKind.LEFT_OUT, "hidden by brew-tea@user")
        waiting = explaining.explain_skill_selection(opened, "brew-tea@project", request)
        assert waiting.place is SkillPlacementKind.LEFT_OUT
        assert waiting.reason.startswith("untrusted: ")


# News


@pytest.mark.req("SK-16")
async def test_news_come_with_the_lines_of_the_layers_changelog(talk: Talk, habitus: Habitus) -> None:
    session, model = talk([says("first"), says("second")])
    await session.turn("hello for the first time")
    keep(habitus, "brew-tea")
    (habitus.settings.home / "skills" / "CHANGELOG.md").write_text("# 2\n\n- Brew Tea: no milk\n- bake: hotter\n")
    await session.turn("hello once again, my friend")
    assert "## What's new\n\n- new: brew-tea\n  - Brew Tea: no milk" in said(model.asked[1])
    assert "bake: hotter" not in said(model.asked[1])


@pytest.mark.full
@pytest.mark.req("SK-16", "SC-04")
async def test_nobody_is_told_of_skills_they_may_not_see(habitus: Habitus) -> None:
    users = {"ann": UserSettings(admin=True), "bob": UserSettings()}
    work = habitus.settings.cwd / "work"
    settings = habitus.settings.model_copy(update={"users": users, "cwd": work})
    changelog = habitus.settings.home / "skills" / "CHANGELOG.md"
    (work / ".habitus" / "skills").mkdir(parents=True)
    with Habitus.open(settings) as opened:
        told = {}
        for user in users:
            model = ScriptedModel([says("one"), says("two")])
            async with opened.session(model, user=user) as session:
                await session.turn("hello for the first time")
        keep(opened, "payroll", manifest=Manifest(admin_only=True))
        keep(opened, "brew-tea")
        untrusted = work / ".habitus" / "skills" / "obey-me"
        untrusted.mkdir()
        (untrusted / "SKILL.md").write_text("---\nname: obey-me\ndescription: Obeys.\n---\n\nObey.\n")
        changelog.write_text("- brew-tea and payroll are new\n- brew-tea: no milk\n")
        for user in users:
            model = ScriptedModel([says("one"), says("two")])
            async with opened.session(model, user=user) as session:
                await session.turn("hello once again, my friend")
            told[user] = said(model.asked[0])
    assert "- new: brew-tea, payroll\n  - brew-tea and payroll are new\n  - brew-tea: no milk" in told["ann"]
    assert "- new: brew-tea\n  - brew-tea: no milk" in told["bob"]
    assert "payroll" not in told["bob"]
    assert "obey-me" not in "".join(told.values())


# Placeholders


@pytest.mark.full
@pytest.mark.req("SK-17")
async def test_placeholders_are_filled_in_cues_for_whoever_reads(habitus: Habitus) -> None:
    asking = Manifest(placeholders=True)
    keep(habitus, "greet", description="Greets {USER} in the name of {BOT_NAME}; ${USER} stays", manifest=asking)
    keep(habitus, "raw", description="Writes {USER}")
    for user in ("ann", "bob"):
        model = ScriptedModel([calls("search_skills", {"query": "greets in the name"}), says("ok")])
        async with habitus.session(model, user=user) as session:
            await session.turn("hello")
            found = results(session)[0]
        assert f"- greet — Greets {user} in the name of Habitus; ${{USER}} stays\n" in model.asked[0].system
        assert "- raw — Writes {USER}" in model.asked[0].system
        assert f"Greets {user} in the name of Habitus" in found


@pytest.mark.req("SK-17", "SK-13")
async def test_placeholders_survive_an_override_and_are_not_baked_in(habitus: Habitus, tmp_path: Path) -> None:
    for name in ("greet", "salute"):
        folder = tmp_path / "operator" / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Of {{BOT_NAME}}.\n---\n\nSay hello to {{USER}}, see {{SKILL_DIR}}.\n"
        (folder / "SKILL.md").write_text(text)
    settings = habitus.settings.model_copy(update={"operator_skills": tmp_path / "operator"})
    with Habitus.open(settings) as opened:
        append = {"name": "greet", "operation": "append", "content": "Then bow to {USER}."}
        model = ScriptedModel([calls("update_skill", append), calls("read_skill", {"name": "greet"}), says("ok")])
        async with opened.session(model, ask=_yes) as session:
            await session.turn("correct it")
        written = opened.skills.read_tree("greet@user")["SKILL.md"].content or b""
        assert b"{USER}, see {SKILL_DIR}." in written
        assert b"ann" not in written
        shown = opened.skills.load("greet", user="bob")
        assert shown.description == "Of Habitus."
        assert shown.body.strip().startswith("Say hello to bob, see ")
        assert shown.body.strip().endswith("/skills/greet.\nThen bow to bob.")
        extending = opened.settings.home / "skills" / "salute"
        extending.mkdir()
        front = '---\nname: salute\ndescription: Mine, by {BOT_NAME}.\nmetadata:\n  habitus.extends: "true"\n---\n'
        (extending / "SKILL.md").write_text(front)
        merged = opened.skills.load("salute")
        assert merged.description == "Mine, by Habitus."
        assert merged.body.strip() == f"Say hello to ann, see {tmp_path}/operator/salute."
        assert [i.summary.description for i in opened.skills.list_skills() if i.summary and i.name == "salute"] == [
            "Mine, by Habitus."
        ]


@pytest.mark.req("SE-02")
@pytest.mark.parametrize("ruled", [0, 1, 5, 6, 7, 9])
def test_a_skill_that_is_not_on_the_menu_takes_no_place_of_one_that_is(habitus: Habitus, ruled: int) -> None:
    names = [f"deploy-{place}" for place in ("berlin", "paris", "rome", "oslo", "bonn", "lima", "kyiv", "riga", "graz")]
    for name in names:
        keep(habitus, name, description=f"Deploys the server in {name.removeprefix('deploy-')}.")
    search = partial(habitus.finder.search, "deploy the server")
    first = [hit.id for hit in search(k=len(names)).hits]
    on_menu = frozenset(first[ruled:])
    found = [hit.id for hit in find_relevant_skills_on_menu(search, on_menu)]
    assert set(found) == {hit.id for hit in search(k=3, among=on_menu).hits}
    assert len(found) == min(3, len(names) - ruled)


async def _yes(question: ConsentQuestion) -> Consent:
    return Consent.YES
