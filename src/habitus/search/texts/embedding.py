"""Embedding models behind a small protocol: the static default, and none for search by words alone."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

# More than any request has.
ALL_WORDS = 10_000
_MAX_CACHED_WORDS = 20_000

_FOLDER = Path(__file__).with_name("wordllama")


class Embedder(Protocol):
    """Turns texts into unit vectors; `name` changes when the same text would get another vector."""

    @property
    def name(self) -> str: ...

    @property
    def width(self) -> int: ...

    @property
    def max_request_words(self) -> int:
        """The number of words of a request and its parts that the model can embed within a search's time."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit row per text; zeros for a text without words."""
        ...

    def embed_words(self, words: Sequence[str]) -> Vectors:
        """Return one row per word, whose length says how much the word means; no columns if the model can't."""
        ...


class NoEmbedder:
    """An embedder without a model: search is lexical only."""

    name = "none"
    width = 0
    max_request_words = ALL_WORDS

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), 0), dtype=np.float32)

    def embed_words(self, words: Sequence[str]) -> Vectors:
        return self.embed(words)


class WordLlamaEmbedder:
    """Static embeddings: sums of the token vectors in `wordllama/`, whose norms already weigh the words."""

    name = "wordllama-256"
    width = 256
    max_request_words = ALL_WORDS

    def __init__(self) -> None:
        # Only the rows that are used are read.
        self._table: NDArray[np.float16] = np.load(_FOLDER / "vectors.npy", mmap_mode="r")
        tokens = json.loads((_FOLDER / "tokens.json").read_bytes())
        # The order in which tokens are joined is that of their ids, but those of spaces alone come last.
        self._ranks = {token: id if token.strip("▁") else id + len(tokens) for id, token in enumerate(tokens)}
        # Token ids by word, each word with its leading space.
        self._known: dict[str, list[int]] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        return normalize_rows(self.embed_words([split_identifiers(text) for text in texts]))

    def embed_words(self, words: Sequence[str]) -> Vectors:
        found = self._tokenize_texts(words)
        vectors = np.zeros((len(found), self.width), dtype=np.float32)
        # A few hundred texts per batch keep the gathered token vectors small.
        for start in range(0, len(found), 256):
            batch = found[start : start + 256]
            tokens = self._gather_token_vectors([id for ids in batch for id in ids])
            end = 0
            for row, ids in enumerate(batch, start):
                begin, end = end, end + len(ids)
                np.add.reduce(tokens[begin:end], axis=0, out=vectors[row])
        return vectors

    def _gather_token_vectors(self, ids: list[int]) -> Vectors:
        """Return the token vectors in single precision."""
        if len(ids) < 1000:
            return widen_half_floats(self._table[ids])
        # Many texts share their words, so each distinct vector is converted once.
        different, back = np.unique(np.array(ids, np.int32), return_inverse=True)
        return np.asarray(widen_half_floats(self._table[different])[back])

    def _tokenize_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        if len(self._known) >= _MAX_CACHED_WORDS:
            self._known = {}
        # "▁" is the spelling of a space in the tokens.
        spaced = [f" {text}".replace(" ", "▁") if text else "" for text in texts]
        # No token crosses a word boundary, so each distinct word is tokenized once.
        known, cut = self._known, [_WORDS.findall(text) for text in spaced]
        for word in {word for words in cut for word in words}.difference(known):
            known[word] = self._tokenize_word(word)
        return [[id for word in words for id in known[word]] for words in cut]

    def _tokenize_word(self, word: str) -> list[int]:
        """Return the token ids of a word by byte pair encoding: neighbours are joined, the commonest token first."""
        ranks, parts = self._ranks, list[str]()
        if word in ranks:
            return [ranks[word] % len(ranks)]
        for letter in word:
            # A letter without a token is written as its bytes.
            parts += [letter] if letter in ranks else [f"<0x{byte:02X}>" for byte in letter.encode()]
        joined = [ranks.get(one + other, _NO_TOKEN) for one, other in itertools.pairwise(parts)]
        while joined and (best := min(joined)) != _NO_TOKEN:
            at = joined.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del joined[at]
            # Only the neighbours of what was joined have another rank now.
            for near in range(max(at - 1, 0), min(at + 1, len(joined))):
                joined[near] = ranks.get(parts[near] + parts[near + 1], _NO_TOKEN)
        return [ranks[part] % len(ranks) for part in parts]


def widen_half_floats(halves: NDArray[np.float16]) -> Vectors:
    """Convert finite half floats to single precision, in a quarter of the time that numpy needs."""
    bits = halves.view(np.int16).astype(np.int32)
    # Sign, exponent and fraction at their places in a single float; its exponent counts from 112 lower.
    bits <<= 13
    bits &= -0x70000001
    widened = bits.view(np.float32)
    widened *= np.float32(2.0**112)
    return widened


def normalize_rows(vectors: Vectors) -> Vectors:
    """Scale rows to length one; zero rows stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0))


# Loaded once per process, however many libraries it opens.
@functools.cache
def get_default_embedder() -> Embedder:
    """Return the static model that comes with Habitus."""
    return WordLlamaEmbedder()


# Each word with the spaces before it. A very long one is cut, because the time for it grows with its square.
_WORDS = re.compile("▁+[^▁]{0,64}|[^▁]{1,64}")
# The rank of letters that no token has side by side.
_NO_TOKEN = 1 << 30
_SEPARATORS = re.compile(r"[_\-./:]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def split_identifiers(text: str) -> str:
    """Split identifiers into lower-case words: models know `parse csv file` better than `parseCsv_file`."""
    # A lone surrogate has no bytes.
    valid = text.encode("utf-8", "replace").decode()
    return _CAMEL.sub(" ", _SEPARATORS.sub(" ", valid)).lower()
