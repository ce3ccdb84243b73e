"""Whatever is put in or asked, search answers with numbers between 0 and 1 and does not fall over."""

from __future__ import annotations

import math

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus import sql
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument, SearchResults
from habitus.search.texts.embedding import WordLlamaEmbedder
from habitus.search.texts.index_entry import encode_document, pack_entry, unpack_entry
from habitus.search.texts.words import extract_content_words, extract_terms, parse_request
from tests.search.library import SKILLS, skill

TEXT = st.text(max_size=200)


@pytest.fixture
def index(engine: sa.Engine, embedder: WordLlamaEmbedder) -> SearchIndex:
    index = SearchIndex.open(engine, "skills", embedder=embedder)
    index.put_documents(SKILLS)
    return index


@pytest.mark.some(5)
@pytest.mark.parametrize("text", ["", "   \n", "😀😀🎉", "…!?", "\x00", "\ud800"])
def test_a_request_without_words_finds_nothing(index: SearchIndex, text: str) -> None:
    assert index.search(text) == SearchResults()


def test_a_request_of_a_megabyte_is_answered(index: SearchIndex) -> None:
    noise = "lorem ipsum dolor sit amet " * 40_000
    assert index.search(f"Bake a sourdough loaf. {noise}").hits[0].id == "bake-bread"


def test_a_megabyte_without_a_space_is_answered(index: SearchIndex) -> None:
    assert index.search("x" * 1_000_000).fits is False


def test_other_languages_are_searched_by_their_own_words(index: SearchIndex) -> None:
    index.put_documents([skill("wechat", "下载微信公众号文章"), skill("kuchen", "Einen Käsekuchen backen, ohne Boden")])
    assert index.search("帮我下载这篇微信文章").hits[0].id == "wechat"
    assert index.search("Kasekuchen backen").hits[0].id == "kuchen"


def test_an_empty_index_finds_nothing(engine: sa.Engine, embedder: WordLlamaEmbedder) -> None:
    index = SearchIndex.open(engine, "nothing", embedder=embedder)
    assert index.search("bread") == SearchResults()
    assert index.find_similar("bread") == ()


def test_a_document_without_description_is_found_by_its_name(index: SearchIndex) -> None:
    index.put_documents([SearchDocument(id="bare", name="teleport"), SearchDocument(id="void", name="")])
    assert index.search("teleport").hits[0].id == "bare"
    assert index.describe().documents == len(SKILLS) + 2


@pytest.mark.full
def test_ten_thousand_identical_descriptions_keep_a_stable_order(
    engine: sa.Engine, embedder: WordLlamaEmbedder
) -> None:
    index = SearchIndex.open(engine, "skills", embedder=embedder)
    index.put_documents(SearchDocument(id=f"{n:05}", name="same", description="Send a mail.") for n in range(10_000))
    found = index.search("send a mail", k=5)
    assert [hit.id for hit in found.hits] == [f"{n:05}" for n in range(5)]


@pytest.mark.full
def test_text_that_no_database_takes_is_kept_without_it(index: SearchIndex) -> None:
    index.put_documents(
        [SearchDocument(id="odd", name="tele\ud800port", description="Move\x00 at once", tags=("\ud800",))]
    )
    index.learn_request("odd", "beam me up\x00 \ud800")
    assert index.search("beam me up").hits[0].id == "odd"
    assert index.search("teleport").hits


@given(
    document=st.builds(
        SearchDocument, id=TEXT, name=TEXT, when_to_use=TEXT, description=TEXT, body=TEXT, tags=st.tuples(TEXT)
    )
)
def test_a_stored_entry_reads_back_as_it_was(document: SearchDocument) -> None:
    entry = encode_document(document)
    codes, words = pack_entry(entry)
    read_back = unpack_entry(
        id=entry.id, digest=entry.digest, meaning=entry.meaning, codes=codes, words=words, says_when=entry.says_when
    )
    assert read_back is not None
    assert read_back.codes.tolist() == entry.codes.tolist()
    assert (read_back.lengths, read_back.words, read_back.name_words) == (entry.lengths, entry.words, entry.name_words)


@given(text=TEXT)
def test_terms_do_not_depend_on_what_was_asked_before(text: str) -> None:
    assert extract_terms(text) == extract_terms(text)
    assert set(extract_content_words(text)) == set(extract_content_words(" ".join(extract_content_words(text))))
    assert parse_request(text).terms.keys() <= set(extract_terms(text))


@pytest.fixture(scope="module")
def library(embedder: WordLlamaEmbedder) -> SearchIndex:
    index = SearchIndex.open(sql.create_in_memory_engine(), "laws", embedder=embedder)
    index.put_documents(SKILLS)
    return index


@given(text=st.text(max_size=400))
def test_every_answer_is_a_number_between_0_and_1(library: SearchIndex, text: str) -> None:
    found = library.search(text)
    assert 0 <= found.confidence <= 1
    assert all(0 <= hit.score <= 1 and math.isfinite(hit.score) for hit in found.hits)
    assert all(0 <= hit.score <= 1 for hit in library.find_similar(text))
