"""Near-duplicates, for lint and for lessons that say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from habitus.search import Index, NoEmbedder, WordLlama
from tests.search.library import SKILLS, skill


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlama) -> Index:
    index = Index.open(engine, "skills", embedder=embedder)
    index.put(SKILLS)
    return index


@pytest.mark.req("SK-20", "ME-05")
def test_a_copy_under_another_id_is_the_same(index: Index) -> None:
    copy = replace(SKILLS[0], id="other")
    nearest = index.similar(copy)[0]
    assert (nearest.id, round(nearest.score, 2)) == (SKILLS[0].id, 1.0)


def test_a_document_is_not_its_own_duplicate(index: Index) -> None:
    assert SKILLS[0].id not in [hit.id for hit in index.similar(SKILLS[0], k=50)]


@pytest.mark.req("SK-20")
def test_a_reworded_copy_is_nearer_than_a_neighbour(index: Index) -> None:
    index.put([skill("loaf", "Bake a loaf of sourdough bread at home, from the starter to the crust.")])
    reworded = index.similar(SKILLS[1], k=2)
    assert reworded[0].id == "loaf"
    assert reworded[0].score > 0.6
    assert reworded[1].score < 0.5


def test_a_text_alone_is_compared_too(index: Index) -> None:
    assert index.similar("Scale pictures to a given width and keep their proportions.")[0].id == "resize-images"


def test_without_a_model_words_decide(engine: sa.Engine) -> None:
    index = Index.open(engine, "skills", embedder=NoEmbedder())
    index.put(SKILLS)
    assert index.similar(replace(SKILLS[2], id="other"))[0].score == pytest.approx(1.0)


def test_bodies_tell_apart_what_descriptions_do_not(index: Index) -> None:
    words = [f"alpha{number} beta{number}" for number in range(40)]
    one = skill("one", "Deploy the service.", body=" ".join(words[:20]))
    two = skill("two", "Deploy the service.", body=" ".join(words[20:]))
    index.put([one, two])
    assert index.similar(one)[0].id == "two"
    assert index.similar(one)[0].score < 0.9
    assert index.similar(replace(one, id="three"))[0].score > 0.9
