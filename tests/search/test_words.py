"""Two ways to the same terms, and to the same meaning: the quick one for long texts is no other one."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers

from habitus.search.texts import embedding
from habitus.search.texts.embedding import WordLlamaEmbedder, widen_half_floats
from habitus.search.texts.words import encode_terms_of_text, extract_terms, hash_term

_ODD = st.text(st.sampled_from("abCX 5#+'’_-.\n\x01\x02é漢①™…"), max_size=14)


@pytest.mark.req("SE-10")
@given(_ODD | st.text(max_size=30))
def test_a_long_text_has_the_codes_of_its_terms(text: str) -> None:
    assert np.frombuffer(encode_terms_of_text(text), np.uint32).tolist() == [
        hash_term(term) for term in extract_terms(text)
    ]


def test_every_half_float_is_widened_to_the_same_number() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    np.testing.assert_array_equal(widen_half_floats(finite), finite.astype(np.float32))


@functools.cache
def _reference() -> Tokenizer:
    """The tokenizer that the vectors were made with: it lists its merges, the earlier the sooner."""
    tokens = json.loads((Path(embedding.__file__).parent / "wordllama" / "tokens.json").read_bytes())
    ids = {token: id for id, token in enumerate(tokens)}
    merges = [
        (token[:at], token[at:])
        for token in sorted(tokens, key=lambda token: not token.strip("▁"))
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


_PROSE = st.lists(
    st.sampled_from(
        ["revenue", "per", "", "", "region,", "Straße", "csv_file", "1.200,50", "naïve", "東京", "ünd", "🎉"]
    )
).map(" ".join)


@pytest.mark.req("SE-10")
@given(st.text(st.sampled_from("ab  \n\t.é漢▁'s☃"), max_size=12) | _PROSE)
def test_a_text_means_the_sum_of_its_tokens(embedder: WordLlamaEmbedder, text: str) -> None:
    wanted = embedder._table[_reference().encode(text).ids].astype(np.float32).sum(0)
    np.testing.assert_allclose(embedder.embed_words([text])[0], wanted, atol=1e-4)
