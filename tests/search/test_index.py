"""Keeping: nothing is embedded twice, others' changes are noticed, damage is repaired and said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument
from habitus.search.store import documents, vectors
from habitus.search.texts.embedding import NoEmbedder
from tests.search.conftest import BrokenEmbedder, CountingEmbedder
from tests.search.library import SKILLS, assert_alike, skill


@pytest.fixture
def counting() -> CountingEmbedder:
    return CountingEmbedder()


def _filled(engine: sa.Engine, embedder: CountingEmbedder) -> SearchIndex:
    index = SearchIndex.open(engine, "skills", embedder=embedder, clock=lambda: 0.0)
    index.put_documents(SKILLS)
    return index


@pytest.mark.req("SE-10")
def test_nothing_unchanged_is_embedded_again(engine: sa.Engine, counting: CountingEmbedder) -> None:
    index = _filled(engine, counting)
    assert len(counting.embedded) == len(SKILLS)
    assert index.put_documents(SKILLS) == 0
    assert index.put_documents([*SKILLS[1:], replace(SKILLS[0], description="Something else.")]) == 1
    assert len(counting.embedded) == len(SKILLS) + 1
    again = CountingEmbedder()
    SearchIndex.open(engine, "skills", embedder=again)
    assert again.embedded == []


def test_an_edited_body_is_not_embedded(engine: sa.Engine, counting: CountingEmbedder) -> None:
    index = _filled(engine, counting)
    assert index.put_documents([replace(SKILLS[0], body="New steps.")]) == 1
    assert len(counting.embedded) == len(SKILLS)


def test_what_a_search_counted_does_not_outlive_a_change(engine: sa.Engine, counting: CountingEmbedder) -> None:
    index = _filled(engine, counting)
    before = index.search("scale my pictures")
    photos = skill("scale-photos", "Scale pictures of a photo album.", body="Use a filter. " * 30)
    index.put_documents([photos, replace(SKILLS[3], description="Give pictures another width.")])
    index.remove_documents([SKILLS[1].id])
    again = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    assert index.search("scale my pictures") != before
    for text in ("scale my pictures", "slow database", "bread", "find the broken commit and fix the build"):
        assert_alike(index.search(text), again.search(text))


@pytest.mark.full
def test_a_reopened_index_answers_the_same(tmp_path: Path, counting: CountingEmbedder) -> None:
    engine = sql.create_engine(sql.build_sqlite_url(tmp_path / "habitus.db"))
    sql.metadata.create_all(engine)
    index = _filled(engine, counting)
    index.put_documents([replace(SKILLS[3], body="Use a filter. " * 30)])
    index.remove_documents([SKILLS[1].id])
    again = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    for text in ("scale my pictures", "slow database", "bread", "find the broken commit and fix the build"):
        assert_alike(again.search(text), index.search(text))
    engine.dispose()


@pytest.mark.full
def test_another_process_changes_are_noticed(tmp_path: Path, counting: CountingEmbedder) -> None:
    engines = [sql.create_engine(sql.build_sqlite_url(tmp_path / "habitus.db")) for _ in range(2)]
    sql.metadata.create_all(engines[0])
    mine, theirs = (SearchIndex.open(engine, "skills", embedder=counting) for engine in engines)
    theirs.put_documents(SKILLS)
    assert mine.search("bake a loaf").hits[0].id == "bake-bread"
    theirs.remove_documents(["bake-bread"])
    theirs.put_documents([skill("oven", "Clean the oven.")])
    theirs.learn_request("oven", "scrub the black stuff off")
    found = mine.search("bake a loaf")
    assert "bake-bread" not in [hit.id for hit in found.hits]
    assert mine.search("scrub the black stuff off").hits[0].id == "oven"
    for engine in engines:
        engine.dispose()


@pytest.mark.some(1)
@pytest.mark.parametrize("blob", [b"", b"\x00" * 7, np.full(256, np.nan, np.float32).tobytes()])
def test_a_damaged_vector_is_made_anew_and_said(
    engine: sa.Engine, counting: CountingEmbedder, blob: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = _filled(engine, counting).search("bake a loaf")
    with sql.write_transaction(engine) as connection:
        connection.execute(sa.update(vectors).values(vector=blob))
    index = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    assert_alike(index.search("bake a loaf"), before)
    assert "made anew" in caplog.text
    assert any("made anew" in note for note in index.describe().notes)


@pytest.mark.some(1)
@pytest.mark.parametrize("values", [{"codes": b"\x01"}, {"codes": b"\xff" * 60}, {"words": "no line end"}])
def test_a_damaged_row_is_made_anew_from_its_text(
    engine: sa.Engine, counting: CountingEmbedder, values: dict[str, bytes | str]
) -> None:
    before = _filled(engine, counting).search("bake a loaf")
    with sql.write_transaction(engine) as connection:
        connection.execute(sa.update(documents).where(documents.c.id != "csv-summary").values(**values))
    index = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    assert_alike(index.search("bake a loaf"), before)
    assert index.describe().documents == len(SKILLS)


@pytest.mark.full
def test_another_model_embeds_anew_and_the_first_keeps_its_vectors(
    engine: sa.Engine, counting: CountingEmbedder
) -> None:
    _filled(engine, counting)
    other = CountingEmbedder("other-model")
    index = SearchIndex.open(engine, "skills", embedder=other)
    assert index.describe().documents == len(other.embedded) == len(SKILLS)
    assert index.search("bake a loaf").hits[0].id == "bake-bread"
    again = CountingEmbedder()
    SearchIndex.open(engine, "skills", embedder=again)
    assert again.embedded == []


@pytest.mark.full
def test_an_index_made_without_a_model_is_embedded_later(engine: sa.Engine, counting: CountingEmbedder) -> None:
    SearchIndex.open(engine, "skills", embedder=NoEmbedder()).put_documents(SKILLS)
    index = SearchIndex.open(engine, "skills", embedder=counting)
    assert index.search("make my pictures smaller").hits[0].id == "resize-images"


@pytest.mark.full
def test_a_model_that_gives_no_numbers_leaves_the_words(engine: sa.Engine, caplog: pytest.LogCaptureFixture) -> None:
    index = SearchIndex.open(engine, "skills", embedder=BrokenEmbedder("broken"))
    index.put_documents(SKILLS)
    assert index.search("bake a sourdough loaf").hits[0].id == "bake-bread"
    index.learn_request("bake-bread", "a loaf please")
    assert np.isfinite(index.search("a loaf please").confidence)
    assert "not numbers" in caplog.text


def test_vectors_nobody_needs_are_dropped(engine: sa.Engine, counting: CountingEmbedder) -> None:
    index = _filled(engine, counting)
    index.put_documents([replace(SKILLS[0], id="same-meaning")])
    index.remove_documents([document.id for document in SKILLS])
    with sql.read_transaction(engine) as connection:
        left = connection.execute(sa.select(sa.func.count()).select_from(vectors)).scalar_one()
    assert left == 1


@pytest.mark.full
def test_many_changes_are_the_same_as_one(engine: sa.Engine, counting: CountingEmbedder) -> None:
    """Slots are counted anew on the way; the answers must not show it."""
    index = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    for round in range(3):
        index.put_documents([skill(f"filler-{n}", f"Filler number {n} of round {round}.") for n in range(600)])
    index.put_documents(SKILLS)
    index.remove_documents([f"filler-{n}" for n in range(600)])
    fresh = SearchIndex.open(sql.create_in_memory_engine(), "skills", embedder=counting, clock=lambda: 0.0)
    fresh.put_documents(SKILLS)
    index = SearchIndex.open(engine, "skills", embedder=counting, clock=lambda: 0.0)
    assert_alike(index.search("bake a loaf"), fresh.search("bake a loaf"))


def test_equal_documents_come_in_the_order_of_their_ids(engine: sa.Engine, counting: CountingEmbedder) -> None:
    index = SearchIndex.open(engine, "skills", embedder=counting)
    index.put_documents(
        SearchDocument(id=f"{n:02}", name="same", description="The same text.") for n in reversed(range(30))
    )
    assert [hit.id for hit in index.search("same text", k=30).hits] == [f"{n:02}" for n in range(30)]


@pytest.mark.req("CL-02")
def test_what_is_supposed_is_found_as_if_it_were_so_and_nothing_of_it_is_kept(
    engine: sa.Engine, counting: CountingEmbedder
) -> None:
    index = _filled(engine, counting)
    edited, new = replace(SKILLS[0], description="Bake bread"), skill("fix-build", "Repair a build that fails")
    asked = ("scale my pictures", "bread", "find the broken commit and fix the build")
    before = [index.search(text) for text in asked]
    supposed = index.with_documents([edited, new], removed_ids=[SKILLS[1].id])
    foretold = [supposed.search(text) for text in asked]
    assert [index.search(text) for text in asked] == before
    index.put_documents([edited, new])
    index.remove_documents([SKILLS[1].id])
    for text, found in zip(asked, foretold, strict=True):
        assert_alike(found, index.search(text))


@pytest.mark.full
def test_an_index_in_a_file_answers_as_the_rows_do(tmp_path: Path, counting: CountingEmbedder) -> None:
    engine = sql.create_engine(sql.build_sqlite_url(tmp_path / "search.db"))
    sql.metadata.create_all(engine)
    kept = SearchIndex.open(engine, "skills", embedder=counting, folder=tmp_path)
    kept.put_documents(SKILLS)
    edited = replace(SKILLS[0], description="Bake a loaf of rye bread.")
    for change in (
        lambda: None,
        lambda: SearchIndex.open(engine, "skills", embedder=counting).put_documents([edited]),
        lambda: SearchIndex.open(engine, "skills", embedder=counting).remove_documents([SKILLS[1].id]),
        lambda: kept.learn_request(SKILLS[2].id, "bake a loaf"),
    ):
        change()
        by_rows = SearchIndex.open(engine, "skills", embedder=counting)
        by_file = SearchIndex.open(engine, "skills", embedder=counting, folder=tmp_path)
        for query in ("bake a loaf", "make my pictures smaller", "sum up a table"):
            for index in (by_file, kept):
                assert_alike(index.search(query), by_rows.search(query))
                assert [hit.id for hit in index.find_similar(query)] == [hit.id for hit in by_rows.find_similar(query)]
    engine.dispose()


def test_the_file_of_another_database_changes_nothing(tmp_path: Path, counting: CountingEmbedder) -> None:
    engines = [sql.create_engine(sql.build_sqlite_url(tmp_path / name)) for name in ("one.db", "two.db")]
    for engine, some in zip(engines, (SKILLS, SKILLS[:5]), strict=True):
        sql.metadata.create_all(engine)
        SearchIndex.open(engine, "skills", embedder=counting).put_documents(some)
    SearchIndex.open(engines[0], "skills", embedder=counting, folder=tmp_path)
    found = SearchIndex.open(engines[1], "skills", embedder=counting, folder=tmp_path)
    assert found.list_ids() == {document.id for document in SKILLS[:5]}
    wanted = SearchIndex.open(engines[1], "skills", embedder=counting)
    assert_alike(found.search("bake a loaf"), wanted.search("bake a loaf"))
    for engine in engines:
        engine.dispose()


def test_an_index_that_is_put_anew_is_not_mended_before(engine: sa.Engine, counting: CountingEmbedder) -> None:
    _filled(engine, counting)
    with engine.begin() as connection:
        connection.execute(sa.update(documents).values(codes=b"of another version"))
    index = SearchIndex.open(engine, "skills", embedder=counting)
    index.put_documents(SKILLS)
    assert index.search("bake a loaf").hits[0].id == "bake-bread"
    assert index.notes == []
