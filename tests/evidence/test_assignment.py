"""ItemOfferAssignment: the same draw everywhere, the right share withheld, and what is sure always there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.model import (
    EvidenceItem,
    ItemKind,
    LastPlaceDrawResult,
    UnitRandomizer,
    classify_request_kind,
    has_left_trace_of_steps,
    select_items_drawing_last_place,
)


def skill(name: str, version: int = 1) -> EvidenceItem:
    return EvidenceItem(kind=ItemKind.SKILL, name=name, version=version)


@pytest.mark.req("LA-05")
@given(unit=st.text(), seed=st.text(), name=st.text(), share=st.floats(0, 0.5))
def test_a_draw_depends_on_seed_unit_and_item_alone(unit: str, seed: str, name: str, share: float) -> None:
    lots = UnitRandomizer(unit=unit, seed=seed, share=share)
    drawn = lots.assign(skill(name))
    assert drawn == UnitRandomizer(unit=unit, seed=seed, share=share).assign(skill(name, version=7))
    assert drawn.propensity == pytest.approx(1 - share)
    assert lots.assign(skill(name), is_never_withheld=True).is_offered
    assert (
        lots.is_last_place_given_to_second(skill(name), skill("b"))
        != lots.is_last_place_given_to_second(skill("b"), skill(name))
        or name == "b"
    )


@pytest.mark.req("LA-05")
def test_the_share_that_is_set_is_withheld() -> None:
    drawn = [UnitRandomizer(unit=f"u{n}", seed="s", share=0.1).assign(skill("tea")).is_offered for n in range(5000)]
    assert 0.08 < drawn.count(False) / len(drawn) < 0.12
    seconds = [
        UnitRandomizer(unit=f"u{n}", seed="s", share=0.1).is_last_place_given_to_second(skill("a"), skill("b"))
        for n in range(2000)
    ]
    assert 0.45 < seconds.count(True) / len(seconds) < 0.55


@pytest.mark.req("LA-05", "SE-01")
def test_only_near_ties_are_drawn_and_only_while_something_is_withheld() -> None:
    def first_two(share: float, third: float, unit: str) -> LastPlaceDrawResult[EvidenceItem]:
        worth = {"a": 1.0, "b": 0.9, "c": third}
        lots = UnitRandomizer(unit=unit, seed="s", share=share)
        return select_items_drawing_last_place(
            lots, [skill(n) for n in worth], 2, item=lambda one: one, score=lambda one: worth[one.name]
        )

    units = [f"u{n}" for n in range(40)]
    plain = LastPlaceDrawResult(taken=(skill("a"), skill("b")))
    assert all(first_two(0.0, 0.9, unit) == plain for unit in units)
    assert all(first_two(0.1, 0.8, unit) == plain for unit in units)
    drawn = [first_two(0.1, 0.88, unit) for unit in units]
    assert {one.taken[1].name for one in drawn} == {"b", "c"}
    assert all({one.last, one.left_out} == {skill("b"), skill("c")} and one.taken[1] == one.last for one in drawn)


@pytest.mark.req("LA-05")
@given(text=st.text(), has_files=st.booleans())
def test_there_are_eight_kinds_of_request_and_none_has_its_text(text: str, has_files: bool) -> None:
    kinds = {
        f"{length} {what}{files}"
        for length in ("short", "long")
        for what in ("question", "task")
        for files in ("", " with files")
    }
    assert classify_request_kind(text, has_files=has_files) in kinds
    assert classify_request_kind("Why?\nTell me.", has_files=False) == "short question"


STEPS = "1. Warm the pot with boiling water.\n2. Steep the leaves for four minutes; see `brew-log`.\n3. Discard it."


@pytest.mark.req("LA-05")
@pytest.mark.parametrize(
    ("done", "left"),
    [
        ("The capital of France is Paris.", False),
        ("I will brew the tea for you.", False),  # only what was asked for
        ("I warmed the pot and steeped the leaves.", True),
        ('scratchpad {"code": "open(\'brew-log\')"}', True),
        ('kettle_on {"minutes": 4}', True),
        ("", False),
    ],
)
def test_a_skill_that_nothing_came_of_is_ignored(done: str, left: bool) -> None:
    assert has_left_trace_of_steps(STEPS, ["kettle_on"], request="Please brew the tea for me", done=done) is left
    assert has_left_trace_of_steps("Do it well.", [], request="anything", done="Paris.")  # it says too little to tell
