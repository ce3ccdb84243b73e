"""Learning from use: what was asked before ranks better, is bounded, fades and can be forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from habitus.search import Index, NoEmbedder, WordLlama
from habitus.search.learned import HALF_LIFE_DAYS, HEAVIEST, MOST_PER_ITEM, LearnedRequest, strength
from tests.search.library import SKILLS, assert_alike

DAY = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlama, clock: Clock) -> Index:
    index = Index.open(engine, "skills", embedder=embedder, clock=clock)
    index.put(SKILLS)
    return index


def _place(index: Index, text: str, id: str) -> int:
    ids = [hit.id for hit in index.search(text, k=len(SKILLS)).hits]
    return ids.index(id) if id in ids else len(SKILLS)


@pytest.mark.req("SE-10")
def test_a_request_that_was_used_ranks_better_tomorrow(index: Index, clock: Clock) -> None:
    alike, same = "do the quarterly thing for Anna", "do the quarterly thing for Bernd"
    before = _place(index, alike, "tax-return")
    index.learn("tax-return", same)
    clock.now += DAY
    assert _place(index, same, "tax-return") == 0
    assert _place(index, alike, "tax-return") < before


def test_learning_needs_no_model(engine: sa.Engine) -> None:
    index = Index.open(engine, "lexical", embedder=NoEmbedder())
    index.put(SKILLS)
    index.learn("tax-return", "do the quarterly thing for Bernd")
    assert _place(index, "do the quarterly thing for Anna", "tax-return") == 0


def test_one_learned_request_does_not_bury_what_clearly_fits(index: Index) -> None:
    index.learn("tax-return", "do the quarterly thing for Bernd")
    assert _place(index, "bake a sourdough loaf", "bake-bread") == 0


def test_learning_survives_a_restart(index: Index, engine: sa.Engine, embedder: WordLlama, clock: Clock) -> None:
    index.learn("tax-return", "do the quarterly thing for Bernd")
    again = Index.open(engine, "skills", embedder=embedder, clock=clock)
    assert_alike(again.search("the quarterly thing"), index.search("the quarterly thing"))
    assert again.describe().learned == 1


def test_a_document_remembers_a_bounded_number_of_requests(index: Index) -> None:
    index.learn_all(("tax-return", f"request number {number}") for number in range(3 * MOST_PER_ITEM))
    assert index.describe().learned == MOST_PER_ITEM


@pytest.mark.full
def test_the_newest_of_equal_requests_stay(index: Index, clock: Clock) -> None:
    for number in range(MOST_PER_ITEM + 5):
        clock.now += DAY
        index.learn("tax-return", f"request number {number}")
    forgotten = index.forget_learned(lambda _, text: text in {f"request number {n}" for n in range(5)})
    assert forgotten == 0


def test_the_same_request_counts_more_but_not_without_end(index: Index) -> None:
    for _ in range(10):
        index.learn("tax-return", "the quarterly  thing")
        index.learn("tax-return", "The quarterly thing")
    assert index.describe().learned == 1


@pytest.mark.full
def test_what_was_learned_fades() -> None:
    request = LearnedRequest(item="a", text="b", weight=HEAVIEST, at=0.0, vector=WordLlama().embed(["b"])[0])
    assert strength(request, HALF_LIFE_DAYS * DAY) == pytest.approx(HEAVIEST / 2)
    assert strength(request, 10 * HALF_LIFE_DAYS * DAY) < 0.01


@pytest.mark.full
def test_a_clock_that_goes_back_breaks_nothing(index: Index, clock: Clock) -> None:
    index.learn("tax-return", "do the quarterly thing")
    clock.now -= 500 * DAY
    assert _place(index, "do the quarterly thing", "tax-return") == 0
    index.learn("tax-return", "do the quarterly thing")
    assert index.describe().learned == 1


def test_learned_requests_can_be_forgotten(index: Index) -> None:
    before = index.search("the quarterly thing")
    index.learn_all([("tax-return", "the quarterly thing"), ("bake-bread", "the quarterly thing")])
    assert index.forget_learned({"tax-return"}) == 1
    assert index.forget_learned(lambda id, text: id == "bake-bread" and "quarterly" in text) == 1
    assert_alike(index.search("the quarterly thing"), before)


def test_a_removed_document_takes_its_requests_along(index: Index) -> None:
    index.learn("tax-return", "the quarterly thing")
    index.remove(["tax-return"])
    assert index.describe().learned == 0


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_weight_teaches_nothing(index: Index, weight: float) -> None:
    index.learn("tax-return", "the quarterly thing", weight=weight)
    assert index.describe().learned == 0


def test_an_empty_request_teaches_nothing(index: Index) -> None:
    index.learn("tax-return", "  \n ")
    assert index.describe().learned == 0


def test_what_is_learned_for_an_unknown_document_waits_for_it(index: Index) -> None:
    index.learn("not-there-yet", "the quarterly thing")
    assert index.search("the quarterly thing").hits is not None
    assert "not-there-yet" not in [hit.id for hit in index.search("the quarterly thing").hits]


@pytest.mark.req("SE-10")
def test_of_two_that_say_the_same_the_used_one_leads_after_five_uses(index: Index) -> None:
    bread = next(skill for skill in SKILLS if skill.id == "bake-bread")
    index.put([replace(bread, id="a-twin"), replace(bread, id="z-twin")])
    requests = ("a loaf for sunday", "bread with seeds", "my dough does not rise", "how long in the oven", "rye bread")
    index.learn_all(("z-twin", text) for text in requests)
    for unseen in ("bake a sourdough loaf", "bread for breakfast", "the crust is too dark", "knead and bake"):
        assert _place(index, unseen, "z-twin") < _place(index, unseen, "a-twin")
