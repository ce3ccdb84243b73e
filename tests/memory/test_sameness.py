"""Which texts say the same: measured on labelled pairs, half of them distinct advice on one topic."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.memory.text_equivalence import is_equivalent
from habitus.search.texts.embedding import WordLlamaEmbedder

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "benchmarks" / "data" / "paraphrases.jsonl").read_text().splitlines()
]


@cache
def _embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def same(a: str, b: str) -> bool:
    first, second = _embedder().embed([a, b])
    return is_equivalent(a, b, similarity=float(first @ second))


@pytest.mark.full
@pytest.mark.req("ME-05")
def test_no_distinct_pair_is_merged() -> None:
    assert len(PAIRS) >= 120
    assert [
        pair for pair in PAIRS if not pair["same"] and (same(pair["a"], pair["b"]) or same(pair["b"], pair["a"]))
    ] == []


@pytest.mark.req("ME-05")
@pytest.mark.parametrize("part", ["tune", "check"])
def test_most_paraphrases_are_seen(part: str) -> None:
    mine = [pair for pair in PAIRS if pair["same"] and pair["part"] == part]
    assert sum(same(pair["a"], pair["b"]) for pair in mine) / len(mine) >= 0.6


@given(st.sampled_from([pair["a"] for pair in PAIRS]))
def test_a_text_says_the_same_as_itself(text: str) -> None:
    assert is_equivalent(text, text.upper(), similarity=0.0)
    assert is_equivalent(text, f" {text.rstrip('.')}", similarity=0.0)


@given(st.sampled_from([pair["a"] for pair in PAIRS]), st.sampled_from([pair["b"] for pair in PAIRS]))
def test_sameness_does_not_depend_on_the_order(a: str, b: str) -> None:
    assert is_equivalent(a, b, similarity=1.0) == is_equivalent(b, a, similarity=1.0)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_numbers_tell_texts_apart(a: int, b: int) -> None:
    merged = is_equivalent(f"The limit is {a} rows per page.", f"Per page the limit is {b} rows.", similarity=1.0)
    assert merged == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Benutze UTF-8 zum Lesen der Datei.", "Benutze nicht UTF-8 zum Lesen der Datei."),
        ("Utilise le cache pour les images.", "N'utilise pas le cache pour les images."),
        ("Сервер возвращает время в UTC.", "Сервер не возвращает время в UTC."),
        ("读取文件时使用utf-8编码", "读取文件时不使用utf-8编码"),
        ("Use iloc for positions and loc for labels.", "Use loc for positions and iloc for labels."),
        ("Python calls Rust here.", "Rust calls Python here."),
        ("Prefer tabs to spaces in Makefiles.", "Prefer spaces to tabs in Makefiles."),
        ("The left table wins over the right one.", "The right table wins over the left one."),
    ],
)
def test_what_is_turned_around_is_not_the_same(a: str, b: str) -> None:
    assert not is_equivalent(a, b, similarity=1.0)
