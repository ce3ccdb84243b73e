"""Near-duplicates, for lint and for lessons that say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from habitus.search.index import SearchIndex
from habitus.search.texts.embedding import NoEmbedder, WordLlamaEmbedder
from tests.search.library import SKILLS, skill


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlamaEmbedder) -> SearchIndex:
    index = SearchIndex.open(engine, "skills", embedder=embedder)
    index.put_documents(SKILLS)
    return index


@pytest.mark.req("SK-20", "ME-05")
def test_a_copy_under_another_id_is_the_same(index: SearchIndex) -> None:
    copy = replace(SKILLS[0], id="other")
    nearest = index.find_similar(copy)[0]
    assert (nearest.id, round(nearest.score, 2)) == (SKILLS[0].id, 1.0)


def test_a_document_is_not_its_own_duplicate(index: SearchIndex) -> None:
    assert SKILLS[0].id not in [hit.id for hit in index.find_similar(SKILLS[0], k=50)]


@pytest.mark.req("SK-20")
def test_a_reworded_copy_is_nearer_than_a_neighbour(index: SearchIndex) -> None:
    index.put_documents([skill("loaf", "Bake a loaf of sourdough bread at home, from the starter to the crust.")])
    reworded = index.find_similar(SKILLS[1], k=2)
    assert reworded[0].id == "loaf"
    assert reworded[0].score > 0.6
    assert reworded[1].score < 0.5


def test_a_text_alone_is_compared_too(index: SearchIndex) -> None:
    assert index.find_similar("Scale pictures to a given width and keep their proportions.")[0].id == "resize-images"


def test_without_a_model_words_decide(engine: sa.Engine) -> None:
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder())
    index.put_documents(SKILLS)
    assert index.find_similar(replace(SKILLS[2], id="other"))[0].score == pytest.approx(1.0)


def test_bodies_tell_apart_what_descriptions_do_not(index: SearchIndex) -> None:
    words = [f"alpha{number} beta{number}" for number in range(40)]
    one = skill("one", "Deploy the service.", body=" ".join(words[:20]))
    two = skill("two", "Deploy the service.", body=" ".join(words[20:]))
    index.put_documents([one, two])
    assert index.find_similar(one)[0].id == "two"
    assert index.find_similar(one)[0].score < 0.9
    assert index.find_similar(replace(one, id="three"))[0].score > 0.9
