"""Two ways to the same terms, and to the same meaning: the quick one for long texts is no other one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.search.texts.embedding import WordLlamaEmbedder
from habitus.search.texts.words import encode_terms, extract_terms, hash_term

_ODD = st.text(st.sampled_from("abCX 5#+'’_-.\n\x01\x02é漢①™…"), max_size=14)


@pytest.mark.req("SE-10")
@given(_ODD | st.text(max_size=30))
def test_a_long_text_has_the_codes_of_its_terms(text: str) -> None:
    assert np.frombuffer(encode_terms(text), np.uint32).tolist() == [hash_term(term) for term in extract_terms(text)]


@pytest.mark.req("SE-10")
@given(st.text(st.sampled_from("ab  \n\t.é漢▁'s☃"), max_size=12))
def test_a_text_means_the_sum_of_its_tokens(embedder: WordLlamaEmbedder, text: str) -> None:
    tokens = embedder._tokens.encode(text, add_special_tokens=False).ids
    wanted = embedder._table[tokens].astype(np.float32).sum(0)
    np.testing.assert_allclose(embedder.embed_words([text])[0], wanted, atol=1e-4)
