"""A search reads the documents as they were when it began, and holds up neither writers nor other searches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument, SearchResults
from habitus.search.texts.embedding import NoEmbedder, Vectors
from tests.search.library import SKILLS

_PATIENCE_S = 60


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    """A database in a file: one in memory has a single connection for all threads."""
    engine = sql.create_engine(sql.build_sqlite_url(tmp_path / "search.db"))
    sql.metadata.create_all(engine)
    return engine


class _HeldEmbedder(NoEmbedder):
    """Embeds one text only once it is released, so its search stands still in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.released = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> Vectors:
        if any("held" in text for text in texts):
            self.reached.set()
            assert self.released.wait(_PATIENCE_S)
        return super().embed(texts)


@pytest.mark.req("SE-10", "PF-05")
def test_a_search_in_the_middle_holds_up_no_writer_and_no_other_search_and_sees_nothing_new(engine: sa.Engine) -> None:
    embedder = _HeldEmbedder()
    index = SearchIndex.open(engine, "skills", embedder=embedder, clock=lambda: 0.0)
    index.put_documents(SKILLS)
    later = SearchDocument(id="later", name="zither tuning", description="Tune a zither.")
    edited = replace(SKILLS[0], description="Tune a zither, too.")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(index.search, "held zither", k=50)
        try:
            assert embedder.reached.wait(_PATIENCE_S)
            pool.submit(index.put_documents, [later, edited]).result(_PATIENCE_S)
            pool.submit(index.remove_documents, [SKILLS[1].id]).result(_PATIENCE_S)
            found: SearchResults = pool.submit(index.search, "zither", k=50).result(_PATIENCE_S)
        finally:
            embedder.released.set()
        old = slow.result(_PATIENCE_S)
    assert {hit.id for hit in found.hits} == {"later", SKILLS[0].id}
    assert old.hits == ()


@pytest.mark.req("SE-10", "PF-05")
def test_searches_beside_writers_find_what_searches_alone_find(engine: sa.Engine) -> None:
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder(), clock=lambda: 0.0)
    index.put_documents(SKILLS)
    asked = [one.description for one in SKILLS]
    alone = [index.search(text, k=1).hits[0].id for text in asked]

    def write(number: int) -> None:
        index.put_documents([SearchDocument(id=f"new-{number}", name=f"zyx{number}", description=f"Zyx{number}.")])
        index.learn_request(SKILLS[0].id, f"zyx{number}")
        if number % 2:
            index.remove_documents([f"new-{number}"])

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, number) for number in range(20)]
        beside = [[hit.id for hit in found.hits] for found in pool.map(lambda text: index.search(text, k=1), asked * 4)]
        for one in writes:
            one.result(_PATIENCE_S)
    assert [ids[0] for ids in beside] == alone * 4
    assert index.list_ids() == {*(one.id for one in SKILLS), *(f"new-{n}" for n in range(0, 20, 2))}
