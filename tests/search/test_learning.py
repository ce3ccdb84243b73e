"""Learning from use: what was asked before ranks better, is bounded, fades and can be forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import sqlalchemy as sa

from habitus.search.index import SearchIndex
from habitus.search.learned_requests import (
    HALF_LIFE_DAYS,
    MAX_REQUESTS_PER_ITEM,
    MAX_WEIGHT,
    LearnedRequest,
    LearnedRequestSet,
    compute_aged_weight,
)
from habitus.search.texts.embedding import NoEmbedder, WordLlamaEmbedder
from tests.search.library import SKILLS, assert_alike

DAY = 86_400.0
NOUNS = ("report", "invoice", "chart", "mail", "contract", "photo")
NAMES = ("Anna", "Bernd", "the tax office", "my boss", "tomorrow")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlamaEmbedder, clock: Clock) -> SearchIndex:
    index = SearchIndex.open(engine, "skills", embedder=embedder, clock=clock)
    index.put_documents(SKILLS)
    return index


def _place(index: SearchIndex, text: str, id: str) -> int:
    ids = [hit.id for hit in index.search(text, k=len(SKILLS)).hits]
    return ids.index(id) if id in ids else len(SKILLS)


@pytest.mark.req("SE-10")
def test_a_request_that_was_used_ranks_better_tomorrow(index: SearchIndex, clock: Clock) -> None:
    alike, same = "do the quarterly thing for Anna", "do the quarterly thing for Bernd"
    before = _place(index, alike, "tax-return")
    index.learn_request("tax-return", same)
    clock.now += DAY
    assert _place(index, same, "tax-return") == 0
    assert _place(index, alike, "tax-return") < before


def test_learning_needs_no_model(engine: sa.Engine) -> None:
    index = SearchIndex.open(engine, "lexical", embedder=NoEmbedder())
    index.put_documents(SKILLS)
    index.learn_request("tax-return", "do the quarterly thing for Bernd")
    assert _place(index, "do the quarterly thing for Anna", "tax-return") == 0


def test_one_learned_request_does_not_bury_what_clearly_fits(index: SearchIndex) -> None:
    index.learn_request("tax-return", "do the quarterly thing for Bernd")
    assert _place(index, "bake a sourdough loaf", "bake-bread") == 0


def test_learning_survives_a_restart(
    index: SearchIndex, engine: sa.Engine, embedder: WordLlamaEmbedder, clock: Clock
) -> None:
    index.learn_request("tax-return", "do the quarterly thing for Bernd")
    again = SearchIndex.open(engine, "skills", embedder=embedder, clock=clock)
    assert_alike(again.search("the quarterly thing"), index.search("the quarterly thing"))
    assert again.describe().learned == 1


def test_a_document_remembers_a_bounded_number_of_requests(index: SearchIndex) -> None:
    index.learn_requests(("tax-return", f"request number {number}") for number in range(3 * MAX_REQUESTS_PER_ITEM))
    assert index.describe().learned == MAX_REQUESTS_PER_ITEM


@pytest.mark.full
def test_the_newest_of_equal_requests_stay(index: SearchIndex, clock: Clock) -> None:
    for number in range(MAX_REQUESTS_PER_ITEM + 5):
        clock.now += DAY
        index.learn_request("tax-return", f"request number {number}")
    forgotten = index.forget_requests({f"request number {n}" for n in range(5)})
    assert forgotten == 0


def test_the_same_request_counts_more_but_not_without_end(index: SearchIndex) -> None:
    for _ in range(10):
        index.learn_request("tax-return", "the quarterly  thing")
        index.learn_request("tax-return", "The quarterly thing")
    assert index.describe().learned == 1


@pytest.mark.full
def test_what_was_learned_fades() -> None:
    request = LearnedRequest(item="a", text="b", weight=MAX_WEIGHT, at=0.0, vector=WordLlamaEmbedder().embed(["b"])[0])
    assert compute_aged_weight(request, HALF_LIFE_DAYS * DAY) == pytest.approx(MAX_WEIGHT / 2)
    assert compute_aged_weight(request, 10 * HALF_LIFE_DAYS * DAY) < 0.01


@pytest.mark.full
def test_a_clock_that_goes_back_breaks_nothing(index: SearchIndex, clock: Clock) -> None:
    index.learn_request("tax-return", "do the quarterly thing")
    clock.now -= 500 * DAY
    assert _place(index, "do the quarterly thing", "tax-return") == 0
    index.learn_request("tax-return", "do the quarterly thing")
    assert index.describe().learned == 1


def test_learned_requests_can_be_forgotten(index: SearchIndex) -> None:
    before = index.search("the quarterly thing")
    index.learn_requests([("tax-return", "the quarterly thing"), ("bake-bread", "the quarterly thing")])
    assert index.forget_requests({"the quarterly thing"}) == 2
    assert_alike(index.search("the quarterly thing"), before)


def test_a_removed_document_takes_its_requests_along(index: SearchIndex) -> None:
    index.learn_request("tax-return", "the quarterly thing")
    index.remove_documents(["tax-return"])
    assert index.describe().learned == 0


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_weight_teaches_nothing(index: SearchIndex, weight: float) -> None:
    index.learn_request("tax-return", "the quarterly thing", weight=weight)
    assert index.describe().learned == 0


def test_an_empty_request_teaches_nothing(index: SearchIndex) -> None:
    index.learn_request("tax-return", "  \n ")
    assert index.describe().learned == 0


def test_what_is_learned_for_an_unknown_document_waits_for_it(index: SearchIndex) -> None:
    index.learn_request("not-there-yet", "the quarterly thing")
    assert index.search("the quarterly thing").hits is not None
    assert "not-there-yet" not in [hit.id for hit in index.search("the quarterly thing").hits]


@pytest.mark.req("SE-10")
def test_of_two_that_say_the_same_the_used_one_leads_after_five_uses(index: SearchIndex) -> None:
    bread = next(skill for skill in SKILLS if skill.id == "bake-bread")
    index.put_documents([replace(bread, id="a-twin"), replace(bread, id="z-twin")])
    requests = ("a loaf for sunday", "bread with seeds", "my dough does not rise", "how long in the oven", "rye bread")
    index.learn_requests(("z-twin", text) for text in requests)
    for unseen in ("bake a sourdough loaf", "bread for breakfast", "the crust is too dark", "knead and bake"):
        assert _place(index, unseen, "z-twin") < _place(index, unseen, "a-twin")


@pytest.mark.req("SE-10")
@pytest.mark.parametrize("is_encoded", [True, False])
def test_what_is_kept_up_request_by_request_equals_what_is_summed_at_once(
    embedder: WordLlamaEmbedder, is_encoded: bool
) -> None:
    width, chance = embedder.width if is_encoded else 0, random.Random(7)
    texts = [f"{verb} the {what} for {who}" for verb in ("file", "send", "plot") for what in NOUNS for who in NAMES]
    vectors = embedder.embed(texts)[:, :width]

    def make(at: int) -> LearnedRequest:
        item = f"skill-{chance.randrange(9)}"
        return LearnedRequest(item=item, text=texts[at], weight=chance.uniform(0.3, 2), at=DAY, vector=vectors[at])

    kept = LearnedRequestSet(width)
    kept.add_requests(make(at) for at in range(80))
    kept.compute_similarity("send it", vectors[3], DAY)
    for _ in range(300):
        kept.add_requests([make(chance.randrange(len(texts)))])
        kept.drop_requests([chance.choice(sorted(kept.list_request_keys()))])
        kept.compute_similarity("send it", vectors[3], DAY)
    anew = LearnedRequestSet(width)
    anew.add_requests(kept.list_requests())
    for at in range(0, len(texts), 7):
        is_, should = (one.compute_similarity(texts[at], vectors[at], DAY) for one in (kept, anew))
        assert is_ is not None
        assert should is not None
        rows = [is_.items[item] for item in should.items]
        for name in ("nearest", "usual", "familiarity"):
            assert getattr(is_, name)[rows] == pytest.approx(getattr(should, name), abs=1e-4), name
        assert is_.values[rows, 1:] == pytest.approx(should.values[:, 1:], abs=1e-4)
        # The scatter is a twentieth of the requests behind at most.
        assert is_.values[rows, 0] == pytest.approx(should.values[:, 0], abs=0.03)
