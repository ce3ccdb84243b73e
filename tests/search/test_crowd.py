"""A crowd changes nothing: whether a skill fits is said by the request and the skill, not by who else is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus.search import searcher
from habitus.search.index import SearchIndex
from habitus.search.model import IndexHit
from habitus.search.texts.embedding import Embedder, NoEmbedder, WordLlamaEmbedder
from habitus.search.texts.words import encode_terms_of_text, extract_terms, hash_term
from tests.search.library import PARAPHRASES, SKILLS, UNRELATED, skill

_TWISTS = ("quickly", "for a team", "step by step", "with a report", "in the cloud")


@pytest.fixture(params=["static", "lexical"])
def index(request: pytest.FixtureRequest, engine: sa.Engine, embedder: WordLlamaEmbedder) -> SearchIndex:
    chosen: Embedder = embedder if request.param == "static" else NoEmbedder()
    index = SearchIndex.open(engine, "skills", embedder=chosen, clock=lambda: 1_000_000.0)
    index.put_documents(SKILLS)
    return index


def _crowd(id: str, size: int) -> list[str]:
    return [f"{id}-{number}" for number in range(size)]


@pytest.mark.some(3)
@pytest.mark.req("PF-04")
@pytest.mark.parametrize("size", [10, 50])
def test_near_duplicates_leave_the_fit_of_the_right_one_as_it_was(index: SearchIndex, size: int) -> None:
    for text, right in list(PARAPHRASES.items())[:3]:
        (document,) = (one for one in SKILLS if one.id == right)
        before = {hit.id: hit.score for hit in index.search(text, k=100).hits}
        crowd = [
            replace(document, id=id, name=f"{document.name} {id}", description=f"{document.description} {twist}.")
            for id, twist in zip(_crowd(right, size), _TWISTS * size, strict=False)
        ]
        index.put_documents(crowd)
        after = {hit.id: hit.score for hit in index.search(text, k=100).hits}
        index.remove_documents(one.id for one in crowd)
        if right in before:  # without a model, a paraphrase that shares no word is not found at all
            assert after[right] == pytest.approx(before[right], abs=0.05)


def test_a_crowd_does_not_make_an_unrelated_request_fit(index: SearchIndex) -> None:
    index.put_documents(replace(SKILLS[0], id=id, name=f"{SKILLS[0].name} {id}") for id in _crowd("copy", 50))
    assert not any(index.search(text).fits for text in UNRELATED)


@pytest.mark.parametrize(
    ("request_", "right"),
    [("an A/B test of two pages", "b-test"), ("convert this to C#", "c-sharp"), ("plot it in R", "r-plots")],
)
def test_single_letters_count(index: SearchIndex, request_: str, right: str) -> None:
    index.put_documents(
        [
            skill("b-test", "Set up an A/B experiment."),
            skill("c-sharp", "Write code in C#."),
            skill("r-plots", "Charts made in R."),
            skill("c-plus", "Write code in C++."),
            skill("py-plots", "Charts made in Python."),
        ]
    )
    assert index.search(request_).hits[0].id == right


@given(st.text(alphabet="aB9_'’#+ cé中字²-.\n"))
def test_a_document_is_read_as_a_request_is(text: str) -> None:
    assert [*memoryview(encode_terms_of_text(text)).cast("I")] == [hash_term(term) for term in extract_terms(text)]
    assert encode_terms_of_text(f"{text}…") == encode_terms_of_text(text)  # in ASCII or not


def test_the_letter_of_an_apostrophe_is_no_word() -> None:
    assert extract_terms("it's the user's, don't") == ["user"]
    assert extract_terms("plot in R") == ["plot", "r"]
    assert extract_terms("C#") == ["c", "c#"]


@pytest.mark.req("SK-20", "PF-04")
def test_neighbours_meet_a_handful_each_and_not_all_pairs(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    index.put_documents(
        skill(f"job-{number}", f"Handles job {number} of the many jobs there are.") for number in range(120)
    )
    index.put_documents([replace(SKILLS[0], id="copy")])
    met = 0
    compare = searcher._build_hit_by_comparing_profiles

    def counted(*pair: searcher._ComparisonProfile) -> IndexHit:
        nonlocal met
        met += 1
        return compare(*pair)

    monkeypatch.setattr(searcher, "_build_hit_by_comparing_profiles", counted)
    found = index.find_neighbours_of_each_document()
    assert met <= 5 * len(found)
    assert found["copy"][0].id == SKILLS[0].id
    assert found["copy"][0].score > 0.9
