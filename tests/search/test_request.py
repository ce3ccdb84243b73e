"""What counts of a request: the asker's own words, whatever they quote, and never more than a search has time for."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus.search import ranking
from habitus.search.index import SearchIndex
from habitus.search.model import SearchDocument
from habitus.search.texts import words
from habitus.search.texts.embedding import NoEmbedder

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    run()\nKeyError: 3\n'


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("Repair this:\n1. the door\n2. the roof", "Repair this:\n1. the door\n2. the roof"),
        (f"Why does it stop?\n{TRACE}It did not yesterday.", "Why does it stop?\n\nIt did not yesterday."),
        ('She said "no" to the "big plan".', 'She said "no" to the "big plan".'),
        ("```\nonly code\n```", "```\nonly code\n```"),
    ],
)
def test_own_words(text: str, own: str) -> None:
    assert words.remove_quotations_and_pasted_text(text) == own


@given(st.text(st.sampled_from('ab .:\n>`"”“~Traceback'), max_size=400), st.integers(1, 60))
def test_a_request_keeps_words_and_within_what_a_model_reads(text: str, most: int) -> None:
    read = words.parse_request(text)
    assert read.has_words == any(char.isalnum() for char in text)
    texts = read.list_request_and_part_texts(most)
    assert len(texts) >= 2
    assert sum(len(one.split()) for one in dict.fromkeys(texts)) <= most


_STATEMENT = "The canary receives a tenth of the traffic before the rollout continues"
_IN_A_BODY = (
    SearchDocument(
        id="deploy", name="deploy", description="Ship a service.", body=f"First, a build. {_STATEMENT}. Then all."
    ),
    SearchDocument(
        id="traffic", name="traffic report", description="Report a tenth of the traffic.", body="Ask analytics."
    ),
)


@pytest.mark.req("SE-10")
@pytest.mark.parametrize(
    ("asked", "points"),
    [
        (_STATEMENT, 4.0),
        ("canary traffic", 2.0),
        (f"Can you help me? {_STATEMENT}.", 2.0),
        (f"Please help me with all of this. {_STATEMENT}. {' '.join(f'word{n}' for n in range(30))}", 4.0),
    ],
)
def test_the_text_counts_half_for_a_wish_or_a_topic_and_whole_for_a_statement_or_a_long_task(
    engine: sa.Engine, asked: str, points: float
) -> None:
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder(), clock=lambda: 0.0)
    index.put_documents(_IN_A_BODY)
    best = max(index.search(asked).hits, key=lambda hit: hit.parts.get("as_text", 0.0))
    assert (best.id, best.parts["as_text"]) == ("deploy", points)
    assert ("passage" in best.parts) == (points > 2)


@pytest.mark.req("SE-10")
def test_a_text_that_other_fields_outweigh_is_still_a_candidate(engine: sa.Engine) -> None:
    named = [
        SearchDocument(id=f"named-{n:03}", name="canary traffic rollout", description="A tenth of canary traffic.")
        for n in range(120)
    ]
    body = f"Unrelated words come first. {_STATEMENT}."
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder(), clock=lambda: 0.0)
    index.put_documents([*named, SearchDocument(id="likest", name="release", description="Rolls out.", body=body)])
    assert "likest" in [hit.id for hit in index.search("canary traffic rollout before it continues", k=200).hits]


@pytest.mark.req("SE-10")
@pytest.mark.parametrize("k", [3, 10])
def test_the_text_most_like_a_statement_is_among_the_first_five_whatever_else_is_said(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    monkeypatch.setattr(ranking, "STATED_WEIGHTS", (0.0, 0.0, 0.0, -400.0))
    wordy = [
        SearchDocument(
            id=f"wordy-{number}", name="canary traffic", description="Shift canary traffic.", body="Shift " * 40
        )
        for number in range(8)
    ]
    index = SearchIndex.open(engine, "skills", embedder=NoEmbedder(), clock=lambda: 0.0)
    index.put_documents(
        [*wordy, SearchDocument(id="likest", name="release", description="Rolls out.", body=f"{_STATEMENT}.")]
    )
    wished = [hit.id for hit in index.search(f"Please help me with this: {_STATEMENT}", k=5).hits]
    assert "likest" not in wished
    found = [hit.id for hit in index.search(_STATEMENT, k=k).hits]
    assert found[:4] == [f"wordy-{number}" for number in range(4)][:k]
    assert found[4:5] == ["likest"][: k - 3]
    assert len(set(found)) == len(found)
