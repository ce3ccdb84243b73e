"""The file of an index while others write it too, and after one was killed at it: nothing is lost."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.files import TEMPORARY_PREFIX
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument
from habitus.search.texts.embedding import Embedder, NoEmbedder, WordLlamaEmbedder
from tests.search.library import SKILLS, assert_alike

_ASKED = ("bake a loaf", "make my pictures smaller", "sum up a table")
_LONG_AGO = 1_000_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """One that stays open: what reads it then creates no file of its own."""
    engine = sql.create_engine(sql.build_sqlite_url(tmp_path / "search.db"))
    sql.metadata.create_all(engine)
    with engine.connect() as held:
        held.execute(sa.text("SELECT 1 FROM search_documents")).all()
        yield tmp_path / "search.db"
    engine.dispose()


def _open(database: Path, folder: Path | None, embedder: Embedder) -> SearchIndex:
    return SearchIndex.open(
        sql.create_engine(sql.build_sqlite_url(database)), "skills", embedder=embedder, clock=lambda: 0.0, folder=folder
    )


def _elsewhere(work: Callable[[], None]) -> int:
    """A process that does this and ends."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return process


def _assert_complete(database: Path, folder: Path, embedder: Embedder) -> None:
    by_file, by_rows = _open(database, folder, embedder), _open(database, None, embedder)
    assert by_file.list_ids() == by_rows.list_ids() == {document.id for document in SKILLS}
    for query in _ASKED:
        assert_alike(by_file.search(query), by_rows.search(query))


def _put_at_once(database: Path, folder: Path, embedder: Embedder) -> None:
    def put(some: Sequence[SearchDocument]) -> None:
        index = _open(database, folder, embedder)
        for document in some:
            index.put_documents([document])

    both = [_elsewhere(partial(put, SKILLS[start::2])) for start in (0, 1)]
    assert [os.waitpid(process, 0)[1] for process in both] == [0, 0]


@pytest.mark.req("SE-10")
def test_two_that_build_at_once_lose_nothing(database: Path, tmp_path: Path) -> None:
    _put_at_once(database, tmp_path / "cache", NoEmbedder())
    _assert_complete(database, tmp_path / "cache", NoEmbedder())


@pytest.mark.full
@pytest.mark.req("SE-10")
def test_two_that_build_at_once_lose_no_vector(database: Path, tmp_path: Path) -> None:
    _put_at_once(database, tmp_path / "cache", WordLlamaEmbedder())
    _assert_complete(database, tmp_path / "cache", WordLlamaEmbedder())


def _kill_at(database: Path, folder: Path, embedder: Embedder, size: int) -> None:
    """The file is written by one who dies when so much of it is there."""

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel ends it in the middle of the write, as kill -9 would
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        _open(database, folder, embedder)

    _, status = os.waitpid(_elsewhere(write), 0)
    assert os.WTERMSIG(status) == signal.SIGXFSZ


def _kept_file(folder: Path) -> Path:
    (file,) = folder.glob("index-*.bin")
    return file


@pytest.mark.req("SE-10")
@pytest.mark.parametrize("is_first", [True, False])
def test_one_killed_in_the_middle_of_writing_leaves_a_right_answer(
    database: Path, tmp_path: Path, is_first: bool
) -> None:
    folder, whole = tmp_path / "cache", tmp_path / "whole"
    _open(database, None if is_first else folder, NoEmbedder()).put_documents(SKILLS[:2])
    before = None if is_first else _kept_file(folder).read_bytes()
    _open(database, whole, NoEmbedder()).put_documents(SKILLS)
    _kill_at(database, folder, NoEmbedder(), _kept_file(whole).stat().st_size // 2)
    (left,) = folder.glob(f"{TEMPORARY_PREFIX}*")
    assert before is None or _kept_file(folder).read_bytes() == before
    os.utime(left, (_LONG_AGO, _LONG_AGO))
    _assert_complete(database, folder, NoEmbedder())
    assert [path.name for path in folder.iterdir()] == [_kept_file(whole).name]


@pytest.mark.full
@pytest.mark.req("SE-10")
def test_killed_anywhere_in_the_file_the_next_search_is_right(database: Path, tmp_path: Path) -> None:
    whole, embedder = tmp_path / "whole", WordLlamaEmbedder()
    _open(database, whole, embedder).put_documents(SKILLS)
    size = _kept_file(whole).stat().st_size
    for place in range(1, 10):
        folder = tmp_path / f"cache-{place}"
        _kill_at(database, folder, embedder, size * place // 10)
        _assert_complete(database, folder, embedder)
