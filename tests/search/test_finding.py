"""What a person notices: the right skill comes first, nothing is offered when nothing fits, and it says why."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument, SearchResults
from habitus.search.texts.embedding import NoEmbedder, WordLlamaEmbedder
from tests.search.library import PARAPHRASES, SKILLS, UNRELATED, skill


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlamaEmbedder) -> SearchIndex:
    index = SearchIndex.open(engine, "skills", embedder=embedder, clock=lambda: 1_000_000.0)
    index.put_documents(SKILLS)
    return index


@pytest.mark.req("SE-10")
def test_a_paraphrase_finds_its_skill(index: SearchIndex) -> None:
    found = {text: index.search(text).hits[0].id for text in PARAPHRASES}
    assert found == PARAPHRASES


@pytest.mark.req("SE-10", "LP-04")
def test_an_unrelated_request_is_told_apart_from_one_that_fits(index: SearchIndex) -> None:
    fitting = [index.search(text) for text in PARAPHRASES]
    unrelated = [index.search(text) for text in UNRELATED]
    assert [found.fits for found in unrelated] == [False] * len(UNRELATED)
    assert sum(found.fits for found in fitting) >= len(fitting) - 2
    assert min(found.confidence for found in fitting) > max(found.confidence for found in unrelated) - 0.2


def test_a_name_in_the_request_wins(index: SearchIndex) -> None:
    for document in SKILLS:
        assert index.search(f"please run {document.name}").hits[0].id == document.id


def test_spellings_of_an_identifier_are_one(index: SearchIndex) -> None:
    for text in ("parse_json_lines", "parse-json-lines", "parse json lines", "ParseJsonLines"):
        assert index.search(text).hits[0].id == "parseJsonLines"


def test_the_confidence_is_the_score_of_the_best_and_parts_explain_its_place(index: SearchIndex) -> None:
    found = index.search("clean up docker images and volumes")
    scores = [hit.score for hit in found.hits]
    assert scores[0] == max(scores) == found.confidence
    assert all(0 <= score <= 1 for score in scores)
    assert "lexical.description" in found.hits[0].parts
    assert "meaning" in found.hits[0].parts


def test_every_part_of_a_request_is_covered(index: SearchIndex) -> None:
    text = "find cheap plane tickets to Oslo, and then tell me the chance of rain there"
    assert {hit.id for hit in index.search(text).hits[:2]} == {"flight-search", "weather-report"}


def test_a_body_is_found_by_what_stands_inside(index: SearchIndex) -> None:
    index.put_documents(
        [skill("release", "Publish a new version.", body="Bump the version.\n\nSign the tarball with minisign.")]
    )
    assert index.search("sign with minisign").hits[0].id == "release"


def test_only_the_given_ids_are_searched(index: SearchIndex) -> None:
    found = index.search("a text about bread", among={"tax-return", "dog-training", "unknown"})
    assert {hit.id for hit in found.hits} <= {"tax-return", "dog-training"}
    assert index.search("bread", among=()) == SearchResults()


def test_the_same_choice_of_ids_finds_what_has_come_since(index: SearchIndex) -> None:
    chosen = frozenset({"tax-return", "sourdough"})
    assert "sourdough" not in {hit.id for hit in index.search("bake a sourdough loaf", among=chosen).hits}
    index.put_documents([skill("sourdough", "Bake a sourdough loaf.")])
    assert index.search("bake a sourdough loaf", among=chosen).hits[0].id == "sourdough"


def test_at_most_k_come_back(index: SearchIndex) -> None:
    assert len(index.search("file", k=3).hits) <= 3
    assert index.search("file", k=0).hits == ()


def test_an_edit_changes_what_is_found(index: SearchIndex) -> None:
    index.put_documents([skill("skill-17", "Polish the silver spoons.")])
    assert index.search("clean the silver spoons").hits[0].id == "skill-17"
    index.put_documents([skill("skill-17", "Knit a woollen scarf with two needles.")])
    assert index.search("I want to knit something warm").hits[0].id == "skill-17"
    assert "lexical.description" not in index.search("polish silver spoons", k=1).hits[0].parts


def test_a_removed_document_is_gone(index: SearchIndex) -> None:
    index.remove_documents(["bake-bread", "never-there"])
    assert "bake-bread" not in [hit.id for hit in index.search("bake a sourdough loaf").hits]
    assert index.describe().documents == len(SKILLS) - 1


def test_without_a_model_search_is_lexical_and_says_so(engine: sa.Engine) -> None:
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder())
    index.put_documents(SKILLS)
    assert index.search("bake a sourdough loaf").hits[0].id == "bake-bread"
    assert index.describe().embedding == "none"


def test_collections_are_apart(engine: sa.Engine, embedder: WordLlamaEmbedder) -> None:
    skills, lessons = (SearchIndex.open(engine, name, embedder=embedder) for name in ("skills", "lessons"))
    skills.put_documents(SKILLS)
    lessons.put_documents([SearchDocument(id="one", name="", description="Bread burns above 250 degrees.")])
    assert [hit.id for hit in lessons.search("bread").hits] == ["one"]
    assert "one" not in [hit.id for hit in skills.search("bread").hits]
