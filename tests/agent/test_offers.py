"""Offers in a session and in a hosted turn: what counts as one, what is withheld, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.evidence.model import EvidenceItem, ItemKind, UnitRandomizer
from habitus.journal.model import ExposureAssignment, SkillPlacementKind
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.skills.model import Manifest, Skill
from tests.agent.test_code_tools import kept

Talk = Callable[..., tuple[Session, ScriptedModel]]
SHARE = 0.5


def keep(habitus: Habitus, name: str, body: str = "1. Boil water.", **manifest: object) -> None:
    made = Skill(name=name, description=f"How to {name}.", body=body, manifest=Manifest(**manifest))  # type: ignore[arg-type]  # the test's own
    habitus.skills.create(made, habitus.build_author())


def withholding(habitus: Habitus) -> None:
    habitus.settings = habitus.settings.model_copy(
        update={"evidence": habitus.settings.evidence.model_copy(update={"withhold": SHARE})}
    )


def unit_where(habitus: Habitus, offered: bool, *items: EvidenceItem) -> str:
    """A conversation whose lot decides so about all of these."""
    seed = habitus.journal.get_or_create_random_seed()
    ids = (f"c{n}" for n in range(10_000))
    return next(
        id
        for id in ids
        if all(UnitRandomizer(unit=id, seed=seed, share=SHARE).assign(item).is_offered is offered for item in items)
    )


def tea(version: int = 1) -> EvidenceItem:
    return EvidenceItem(kind=ItemKind.SKILL, name="brew-tea", version=version)


def of(habitus: Habitus, item: str) -> list[ExposureAssignment]:
    return [kept.exposure for kept in habitus.journal.load_scored_exposures([item])]


@pytest.mark.req("LA-05", "AG-10")
async def test_an_offer_is_an_exposure_recall_is_use_and_later_turns_inherit(talk: Talk, habitus: Habitus) -> None:
    keep(habitus, "brew-tea")
    keep(habitus, "mow-lawn")
    recall = calls("recall_skill", {"name": "brew-tea"})
    session, _ = talk([says("Paris."), recall, says("Boil water, then wait."), says("Yes.")])
    await session.turn("what is the capital of france?")
    assert [(one.is_steady, one.is_used) for one in of(habitus, "brew-tea")] == [(True, False)]
    await session.turn("how do I brew tea?")
    await session.turn("how do I brew tea again?")
    assert of(habitus, "brew-tea") == [
        ExposureAssignment(
            kind="skill",
            item="brew-tea",
            version=1,
            is_steady=steady,
            request_kind="short question",
            tokens=n,
            is_used=True,
        )
        for steady, n in ((True, 8), (False, 8))
    ]
    assert [one.is_used for one in of(habitus, "mow-lawn")] == [False]


@pytest.mark.full
@pytest.mark.req("LA-05")
async def test_what_is_withheld_is_on_no_list_and_still_answers_to_its_name(talk: Talk, habitus: Habitus) -> None:
    keep(habitus, "brew-tea", triggers=("tea",))
    withholding(habitus)
    id = unit_where(habitus, False, tea())
    script = [
        calls("search_skills", {"query": "brew tea"}),
        calls("recall_skill", {"name": "brew-tea"}),
        says("Boil water, as it says."),
    ]
    session, model = talk(script, id=id)
    done = await session.turn("how do I brew tea?")
    assert "brew-tea" not in model.asked[0].system + str(model.asked[1].messages[:1])
    searched, recalled = (str(model.asked[n].messages[-1]) for n in (1, 2))
    assert "brew-tea" not in searched
    assert "1. Boil water." in recalled
    assert {(one.is_offered, one.propensity, one.is_used) for one in of(habitus, "brew-tea")} == {(False, 0.5, True)}
    turn = habitus.journal.get_turn(done.turn)
    assert [entry.place for entry in turn.selected if entry.name == "brew-tea"] == [
        SkillPlacementKind.WITHHELD,
        SkillPlacementKind.LOADED,
    ]
    other, asked = talk([says("Boil water.")], id=unit_where(habitus, True, tea()))
    await other.turn("how do I brew tea?")
    assert "brew-tea" in asked.asked[0].system


@pytest.mark.full
@pytest.mark.req("LA-05")
async def test_rules_lessons_and_tools_are_drawn_but_never_what_a_person_wants_there(
    talk: Talk, habitus: Habitus, tmp_path: Path
) -> None:
    keep(habitus, "brew-tea", body="Warm the pot.", file_types=("csv",))
    keep(habitus, "house-rules", body="Mind the cat.", always_include=True)
    await kept(habitus, "add-up", "Adds numbers up.")
    lessons = {}
    for by in (LessonProducer.USER, LessonProducer.CEREBELLUM):
        draft = LessonDraft(
            text=f"Tea leaves from {by} go into the blue pot.", kind="lesson", produced_by=by, user="ann"
        )
        engram = habitus.memory.encode(draft).engram
        assert engram is not None
        lessons[by] = engram
    withholding(habitus)
    learned = lessons[LessonProducer.CEREBELLUM]
    drawn = (
        tea(),
        EvidenceItem(kind=ItemKind.LESSON, name=learned.id),
        EvidenceItem(kind=ItemKind.TOOL, name="add-up"),
    )
    (tmp_path / "a.csv").write_text("x\n1\n")
    for is_offered in (True, False):
        session, model = talk([says("Done.")], id=unit_where(habitus, is_offered, *drawn))
        await session.turn("which pot do tea leaves go into?", [tmp_path / "a.csv"])
        said = str(model.asked[0].messages)
        assert [text in said for text in ("Warm the pot.", learned.text)] == [is_offered] * 2
        assert all(text in said for text in ("Mind the cat.", lessons[LessonProducer.USER].text))
        assert ("add_up" in [tool.name for tool in model.asked[0].tools]) is is_offered
    arms = {item.name: {one.is_offered for one in of(habitus, item.name)} for item in drawn}
    assert list(arms.values()) == [{True, False}] * 3
    assert {one.propensity for one in of(habitus, lessons[LessonProducer.USER].id)} == {1.0}


@pytest.mark.req("LA-05", "CL-07")
def test_a_hosted_turn_is_assigned_and_recorded_like_one_of_ours(habitus: Habitus) -> None:
    keep(habitus, "brew-tea")
    withholding(habitus)
    for is_offered in (True, False):
        id = unit_where(habitus, is_offered, tea())
        with habitus.turn("how do I brew tea?", conversation=id, user="ann") as turn:
            assert ("brew-tea" in turn.system) is is_offered
            turn.done("Boil water.", ok=is_offered)
    found = habitus.journal.load_scored_exposures(["brew-tea"])
    assert {(one.exposure.is_offered, one.explicit_scores) for one in found} == {(True, (1.0,)), (False, (0.0,))}


@pytest.mark.req("LA-05", "SE-01")
async def test_without_withholding_nothing_is_left_to_chance(talk: Talk, habitus: Habitus) -> None:
    for n in range(8):
        keep(habitus, f"brew-tea-{n}", body="1. Boil water.")
    systems = set()
    for _ in range(3):
        session, model = talk([says("Boil water.")])
        await session.turn("how do I brew tea?")
        systems.add(model.asked[0].system + str(model.asked[0].messages))
    assert len(systems) == 1
    assert {one.exposure.propensity for one in habitus.journal.load_scored_exposures()} == {1.0}


@pytest.mark.full
@pytest.mark.req("LA-05", "SE-01")
async def test_the_last_line_of_a_full_menu_goes_by_lot_between_two_that_are_used_as_often(
    talk: Talk, habitus: Habitus
) -> None:
    for n in range(30):
        keep(habitus, f"tend-bed-{n:02}")
    habitus.settings = habitus.settings.model_copy(update={"context_tokens": 10_000})
    plain, model = talk([says("Yes.")])
    await plain.turn("hello")
    shown = [line.split()[1] for line in model.asked[0].system.splitlines() if line.startswith("- tend-bed")]
    assert 5 < len(shown) < 30
    last, left = shown[-1], f"tend-bed-{len(shown):02}"
    withholding(habitus)
    session, model = talk([says("Yes.")])
    await session.turn("hello")
    tied = [one for name in (last, left) for one in of(habitus, name) if one.propensity == SHARE / 2]
    assert [one.item for one in tied] == [last, left]
    assert sum(one.is_offered for one in tied) <= 1
    lines = [line.split()[1] for line in model.asked[0].system.splitlines() if line.startswith("- tend-bed")]
    assert [one.item in lines for one in tied] == [one.is_offered for one in tied]
    assert {*lines} < {*shown, left}


@pytest.mark.some(1)
@pytest.mark.req("LA-05")
@pytest.mark.parametrize(("reply", "is_ignored"), [("I warmed the kettle and steeped it.", False), ("Paris.", True)])
async def test_a_skill_that_is_recalled_and_left_no_trace_is_ignored(
    talk: Talk, habitus: Habitus, reply: str, is_ignored: bool
) -> None:
    keep(habitus, "brew-tea", body="1. Warm the kettle.\n2. Steep the leaves four minutes.\n3. Strain, then serve.")
    session, _ = talk([calls("recall_skill", {"name": "brew-tea"}), says(reply)])
    await session.turn("how do I brew tea?")
    assert {(one.is_used, one.is_ignored) for one in of(habitus, "brew-tea")} == {(True, is_ignored)}
