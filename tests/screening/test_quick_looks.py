"""What a scan passes over quickly is what the slow look would not have found either."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.screening import rules, sentences

_CUES = st.sampled_from(sorted(rules.all_cues()))
_BETWEEN = st.sampled_from(["", " ", "\n", "_", ".", "a", "9", "é", "`", "中"])
_WORDS = "you must should be sent ensure make sure that to with start by it is best copied never data, the agent has"
_SAID = st.lists(st.sampled_from(_WORDS.split()), min_size=1, max_size=12).map(" ".join)


@pytest.mark.req("SC-02", "PF-04")
@given(st.lists(st.tuples(_BETWEEN, _CUES), max_size=6), _BETWEEN)
def test_no_cue_that_opens_a_word_is_passed_over(parts: list[tuple[str, str]], end: str) -> None:
    text = "".join(between + cue for between, cue in parts) + end
    likely = set(rules._likely_cues(text))
    for cue in rules.all_cues() - likely:
        for place in rules._places(text, cue):
            before = text[place - 1 : place] if place else ""
            assert text[place].isalnum()
            assert before.isalnum() or before == "_"


@pytest.mark.req("SC-02", "PF-04")
@given(_SAID)
def test_no_order_in_other_words_is_passed_over(said: str) -> None:
    if sentences._PASSIVE.search(said):
        assert any(sign in said for sign in (" be ", "ensure ", "make sure "))
    if sentences._ROUNDABOUT.search(said):
        assert sentences._MAY_BE_ROUNDABOUT.search(said)
    once, again = (sentences.words_of(said, lambda host: "foreign_host", "words") for _ in range(2))
    assert once == again == sentences._read_words(said, lambda host: "foreign_host", "words")
