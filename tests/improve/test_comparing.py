"""After approval a change is compared in use with the version before it, by conversation, unless that is off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import count, islice
from pathlib import Path

import pytest
import sqlalchemy as sa
from mcp.client import Client

from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.agent.user_input import SubmittedRequest
from habitus.app import Habitus, read_settings
from habitus.app.conversations.hosting import HostTurnRequest
from habitus.app.conversations.sessions import open_random_assignment_of_conversation, open_session
from habitus.app.learning.compared_versions import load_version_comparison_exposures
from habitus.app.learning.comparing import decide_running_comparisons, list_comparison_reports
from habitus.app.library.explaining import explain_skill_selection_in_past_turn
from habitus.app.use_cases.finding import ExplainSkillRequest, explain_skill
from habitus.app.use_cases.improving import compare_versions, list_comparisons
from habitus.app.use_cases.review import approve_items, show_inbox_item
from habitus.evidence.model import UnitRandomizer
from habitus.evidence.versions import COMPARISON_PERIOD, ComparisonState
from habitus.improve.plan import ImproveRequest
from habitus.llm.scripted import ScriptedModel, says
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions
from habitus.repl.chat import build_skill_placement_report
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.proposals import ProposalAction, SkillChange
from habitus.sql.outage import OutageGuard
from tests.improve.test_improving import BETTER, NAME, SKILL, furnish
from tests.improve.test_improving import run as improve

OLD, NEW = "Say its name.", "in capitals"


async def approved(habitus: Habitus) -> None:
    """An improvement of a skill that is in every prompt, approved as a person would."""
    furnish(habitus, 24)
    done = await improve(habitus, ImproveRequest(skill=NAME, rounds=3, text=BETTER))
    shown = show_inbox_item(habitus, id=str(done.proposal))
    assert "20% of conversations get the version before it" in shown.comparison
    (made,) = approve_items(habitus, ids=(str(done.proposal),)).approved
    assert made.version == 2


def conversations(habitus: Habitus, *, new: bool) -> Iterator[str]:
    (report,) = list_comparison_reports(habitus)
    seed, item = habitus.journal.get_or_create_random_seed(), report.comparison.evidence_item
    ids = (f"c{number}" for number in count())
    return (id for id in ids if UnitRandomizer(unit=id, seed=seed).gets_changed_version(item, 0.2) is new)


def ask(habitus: Habitus, conversation: str, ok: bool | None = None) -> str:
    """Ask in a conversation, say how it went, and return what the model read."""
    with habitus.turn("Name a town.", conversation=conversation) as turn:
        read = turn.context
        turn.done("Altberg", ok=ok)
        return read


@pytest.mark.req("IM-07")
async def test_a_fifth_of_the_conversations_gets_the_version_before_and_keeps_it(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        assert NEW not in ask(habitus, "before")
        done = await improve(habitus, ImproveRequest(skill=NAME, rounds=3, text=BETTER))
        approve_items(habitus, ids=(str(done.proposal),))
        old, new = (next(conversations(habitus, new=is_new)) for is_new in (False, True))
        assert NEW in ask(habitus, new, ok=True)
        assert NEW not in ask(habitus, old, ok=False)
        assert NEW not in ask(habitus, "before", ok=False), "it began with the old one, and does not count"
        (report,) = list_comparison_reports(habitus)
        assert (report.result.old.judged, report.result.new.judged) == (1, 1)
        assert (report.comparison.old, report.comparison.new, report.comparison.share) == (1, 2, 0.2)
        kept = load_version_comparison_exposures(habitus.shared, report.comparison.evidence_item.name)
        assert {(one.unit, one.exposure.is_offered, one.exposure.propensity) for one in kept} == {
            (old, False, 0.8),
            (new, True, 0.8),
        }
        for conversation, version in ((old, 1), (new, 2)):
            (kept_turn,) = habitus.journal.list_session_turns(conversation)
            why = explain_skill_selection_in_past_turn(habitus.skills, habitus.journal, NAME, kept_turn.id, user=None)
            (part,) = why.selected
            other = 3 - version
            assert part.version == version
            assert f"version {version}, drawn to be compared with version {other}" in part.reason
    with Habitus.open(read_settings(home)) as habitus:
        with habitus.turn("Name a town.", conversation=old) as turn:
            assert NEW not in turn.context, "another process draws the same"
            said = turn.run("why", {"name": NAME}).content
            assert "This conversation has version 1, drawn to be compared with version 2." in said
            turn.done("Altberg")
        edit = TextEdit(operation=EditOperation.APPEND, content="4. Say it twice.")
        habitus.skills.edit(NAME, edit, habitus.build_author())
        assert "twice" in ask(habitus, old), "a later edit holds for all"
        (settled,) = decide_running_comparisons(habitus, apply=True)
        assert settled.state is ComparisonState.SUPERSEDED


@pytest.mark.req("IM-07")
async def test_a_change_that_harms_in_use_is_proposed_to_be_rolled_back(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        for conversation in islice(conversations(habitus, new=True), 24):
            ask(habitus, conversation, ok=False)
        for conversation in islice(conversations(habitus, new=False), 8):
            ask(habitus, conversation, ok=True)
        (report,) = list_comparison_reports(habitus)
        assert report.result.sentence.startswith("Harms: ")
        assert list_comparisons(habitus, name=NAME).comparisons == [report]
        (settled,) = decide_running_comparisons(habitus, apply=True)
        assert not list(decide_running_comparisons(habitus, apply=True)), "it is proposed once"
        assert settled.proposal is not None
        assert "does worse in use than version 1" in habitus.review.get(settled.proposal).reasons[0]
        approve_items(habitus, ids=(str(settled.proposal),))
        assert NEW not in habitus.skills.load(NAME).body
        list(decide_running_comparisons(habitus, apply=True))
        assert list_comparison_reports(habitus)[0].comparison.state is ComparisonState.ROLLED_BACK


@pytest.mark.req("IM-07")
async def test_a_change_that_helps_is_kept_and_one_that_shows_nothing_ends_after_sixty_days(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        clock = habitus.clock
        habitus.clock = lambda: clock() + COMPARISON_PERIOD - timedelta(hours=1)
        assert not list(decide_running_comparisons(habitus, apply=False))
        begun = next(conversations(habitus, new=False))
        assert NEW not in ask(habitus, begun)
        habitus.clock = lambda: clock() + COMPARISON_PERIOD
        assert NEW not in ask(habitus, begun), "it keeps what it began with"
        (settled,) = decide_running_comparisons(habitus, apply=False)
        assert settled.state is ComparisonState.NOT_SHOWN
        habitus.clock = clock
        for conversation in islice(conversations(habitus, new=True), 24):
            ask(habitus, conversation, ok=True)
        for conversation in islice(conversations(habitus, new=False), 8):
            ask(habitus, conversation, ok=False)
        (settled,) = decide_running_comparisons(habitus, apply=True)
        assert settled.state is ComparisonState.KEPT
        late = next(islice(conversations(habitus, new=False), 8, None))
        assert NEW in ask(habitus, late), "there is nothing to compare any more"


@pytest.mark.req("IM-07")
async def test_where_one_version_is_judged_more_often_nothing_is_known(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        for number, conversation in enumerate(islice(conversations(habitus, new=True), 24)):
            ask(habitus, conversation, ok=False if number < 8 else None)
        for conversation in islice(conversations(habitus, new=False), 8):
            ask(habitus, conversation, ok=True)
        (report,) = list_comparison_reports(habitus)
        assert report.result.sentence == (
            "Not known: 33% of the new version's conversations were judged, 100% of the old's."
        )
        assert not list(decide_running_comparisons(habitus, apply=True))


@pytest.mark.req("IM-07")
@pytest.mark.parametrize("is_on", [True, False])
async def test_switched_off_there_is_no_draw_and_no_comparison(home: Path, is_on: bool) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        # Of thirty conversations all get the new version once in a billion.
        evidence = habitus.settings.evidence.model_copy(update={"compare_versions": 0.5 if is_on else 0.0})
        habitus.settings = habitus.settings.model_copy(update={"evidence": evidence})
        furnish(habitus, 24)
        done = await improve(habitus, ImproveRequest(skill=NAME, rounds=3, text=BETTER))
        assert bool(show_inbox_item(habitus, id=str(done.proposal)).comparison) is is_on
        sent: list[str] = []
        sa.event.listen(habitus.shared, "before_cursor_execute", lambda *given: sent.append(given[2]))
        approve_items(habitus, ids=(str(done.proposal),))
        read = [ask(habitus, f"c{number}", ok=False) for number in range(30)]
        assert all(NEW in one for one in read) is not is_on
        assert any("live_comparisons" in one or "evidence_seed" in one for one in sent) is is_on
        assert len(list_comparison_reports(habitus)) == is_on
        evidence = evidence.model_copy(update={"compare_versions": 0.0})
        habitus.settings = habitus.settings.model_copy(update={"evidence": evidence})
        settled = list(decide_running_comparisons(habitus, apply=True))
        assert [one.state for one in settled] == [ComparisonState.STOPPED] * is_on


@pytest.mark.full
@pytest.mark.req("IM-07")
def test_a_person_compares_an_edit_of_their_own(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 1)
        edit = TextEdit(operation=EditOperation.APPEND, content="3. Say it in capitals.")
        habitus.skills.edit(NAME, edit, habitus.build_author())
        compare_versions(habitus, name=NAME, share=0.5)
        read = [ask(habitus, f"c{number}") for number in range(30)]
        assert {NEW in one for one in read} == {True, False}
        request = ExplainSkillRequest(name=NAME, request="Name a town.")
        assert explain_skill(habitus, request).sentences[-1] == (
            "Versions 1 and 2 are compared: 50% of conversations get version 1. "
            "An agent that reads the file itself always has version 2."
        )
        compare_versions(habitus, name=NAME, stop=True)
        assert all(NEW in ask(habitus, f"d{number}") for number in range(30))


@pytest.mark.req("IM-07")
def test_of_a_changed_line_why_says_which_one_a_conversation_got(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 1, text=SKILL.replace("always_include: true\n", ""))
        file = home / "skills" / NAME / "SKILL.md"
        file.write_text(file.read_text().replace("Names a town.", "Names a town in capitals."))
        compare_versions(habitus, name=NAME, share=0.5)
        seen = set[int]()
        for number in range(30):
            lines = ask(habitus, f"c{number}")
            (turn,) = habitus.journal.list_session_turns(f"c{number}")
            (part,) = explain_skill_selection_in_past_turn(
                habitus.skills, habitus.journal, NAME, turn.id, user=None
            ).selected
            assert (part.version == 2) is (NEW in lines)
            assert f"version {part.version}, drawn to be compared with version {3 - part.version}" in part.reason
            seen.add(part.version)
        assert seen == {1, 2}


@pytest.mark.req("IM-07")
async def test_conversations_of_our_own_agent_are_compared_and_not_those_of_an_agent_with_our_hooks(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        for is_new in (True, False):
            id, model = next(conversations(habitus, new=is_new)), ScriptedModel([says("Altberg")])
            async with open_session(habitus, model, id=id) as session:
                await session.turn("Name a town.")
                said = str(build_skill_placement_report(habitus, session, NAME).data)
            assert (
                f"This conversation has version {1 + is_new}, drawn to be compared with version {2 - is_new}." in said
            )
            assert (NEW in f"{model.asked[0].system}{model.asked[0].messages}") is is_new
        old = next(islice(conversations(habitus, new=False), 1, None))
        lots = open_random_assignment_of_conversation(habitus.settings, habitus.journal, old, OutageGuard())
        hooked = HostTurnRequest(
            user_input=SubmittedRequest(text="Name a town."),
            user=habitus.get_user(),
            conversation=old,
            source_type="claude-code",
            offers=ExposureAssigner(lots),
        )
        async with habitus.hosted_conversations.open_turn(hooked) as turn:
            assert NEW in turn.context, "it reads the file itself, which is the new one"
        counted = {one.unit for one in load_version_comparison_exposures(habitus.shared)}
        assert len(counted) == 2
        assert old not in counted


@pytest.mark.req("IM-07")
async def test_conversations_over_mcp_are_compared(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
    read = list[bool]()
    while len(set(read)) < 2 and len(read) < 80:
        behind = LazyHome(McpServerOptions(home=home))
        try:
            async with Client(make_mcp_server(behind)) as client:
                before = await client.read_resource(f"skill://{NAME}/SKILL.md")
                answer = await client.call_tool("recall_skill", {"name": NAME})
                is_new = NEW in str(answer.content)
                read.append(is_new)
                version = f"version {1 + is_new}, drawn to be compared with version {2 - is_new}"
                after = await client.read_resource(f"skill://{NAME}/SKILL.md")
                assert [NEW in str(one.contents) for one in (before, after)] == [is_new, is_new]
                why = await client.call_tool("why", {"name": NAME})
                assert f"This conversation has {version}." in str(why.content)
        finally:
            await behind.close()
    with Habitus.open(read_settings(home)) as habitus:
        kept = load_version_comparison_exposures(habitus.shared)
        assert sorted(one.exposure.is_offered for one in kept) == sorted(read)
        for one in kept:
            (turn,) = habitus.journal.list_session_turns(one.unit)
            (part,) = explain_skill_selection_in_past_turn(
                habitus.skills, habitus.journal, NAME, turn.id, user=None
            ).selected
            assert part.version == 1 + one.exposure.is_offered
            assert f"version {part.version}, drawn to be compared with version {3 - part.version}" in part.reason
        assert set(read) == {True, False}


@pytest.mark.req("IM-07")
@pytest.mark.parametrize("is_automatic", [True, False])
async def test_harm_is_rolled_back_by_itself_where_a_person_allowed_it_else_by_the_proposal_that_is_there(
    home: Path, is_automatic: bool
) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        await approved(habitus)
        review = habitus.settings.review.model_copy(update={"auto": is_automatic})
        habitus.settings = habitus.settings.model_copy(update={"review": review})
        for conversation in islice(conversations(habitus, new=True), 24):
            ask(habitus, conversation, ok=False)
        for conversation in islice(conversations(habitus, new=False), 8):
            ask(habitus, conversation, ok=True)
        # Whoever else wants to go back to that version, such as curation, has proposed the same.
        tree = habitus.skills.read_tree(NAME, 1)
        change = SkillChange(action=ProposalAction.WRITE, name=NAME, layer="user", tree=tree)
        before = None if is_automatic else habitus.review.propose(change, habitus.build_author(), ["It does worse."])
        (settled,) = decide_running_comparisons(habitus, apply=True)
        assert settled.proposal == (before.id if before is not None else None)
        assert (NEW not in habitus.skills.load(NAME).body) is is_automatic
        (report,) = list_comparison_reports(habitus)
        assert (report.comparison.state is ComparisonState.ROLLED_BACK) is is_automatic
