"""Embedding models behind a small protocol: the static default, and lexical search if its weights are missing."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from habitus.search.texts.weights import ModelUnavailableError

Vectors = NDArray[np.float32]

# More than any request has.
ALL_WORDS = 10_000
_MAX_CACHED_WORDS = 20_000

log = logging.getLogger(__name__)


class Embedder(Protocol):
    """Turns texts into unit vectors; `name` changes when the same text would get another vector."""

    @property
    def name(self) -> str: ...

    @property
    def width(self) -> int: ...

    @property
    def request_words(self) -> int:
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
    request_words = ALL_WORDS

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), 0), dtype=np.float32)

    def embed_words(self, words: Sequence[str]) -> Vectors:
        return self.embed(words)


class WordLlamaEmbedder:
    """Static embeddings from the wordllama wheel: sums of its token vectors, whose norms already weigh the words.

    The files are read directly, because importing the package reconfigures logging and may use the network.
    """

    name = "wordllama-256"
    width = 256
    request_words = ALL_WORDS

    def __init__(self, directory: Path | None = None) -> None:
        where = directory or _find_wordllama()
        self._tokens = _load_tokenizer(where / "tokenizers" / "l2_supercat_tokenizer_config.json")
        self._table = _map_vector_table(where / "weights" / "l2_supercat_256.safetensors")
        # Token ids by word, each word with its leading space.
        self._known = {" ": [self._tokens.token_to_id("▁")]}

    def embed(self, texts: Sequence[str]) -> Vectors:
        return normalize_rows(self.embed_words([make_readable(text) for text in texts]))

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
            return self._table[ids].astype(np.float32)
        # Many texts share their words, so each distinct vector is converted once.
        different, back = np.unique(np.array(ids, np.int32), return_inverse=True)
        return np.asarray(self._table[different].astype(np.float32)[back])

    def _tokenize_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        if len(self._known) >= _MAX_CACHED_WORDS:
            self._known = {" ": self._known[" "]}
        # "▁" is the tokenizer's spelling of a space.
        spaced = [f" {text}".replace("▁", " ") if text else "" for text in texts]
        # No token crosses a word boundary, so each distinct word is tokenized once.
        known, cut = self._known, [_WORDS.findall(text) for text in spaced]
        new = list({word for words in cut for word in words}.difference(known))
        # Starting the library's threads costs more than tokenizing a few words.
        if len(new) <= 64:
            encoded = [self._tokens.encode(word[1:], add_special_tokens=False) for word in new]
        else:
            encoded = self._tokens.encode_batch([word[1:] for word in new], add_special_tokens=False)
        known |= {word: found.ids for word, found in zip(new, encoded, strict=True)}
        return [[id for word in words for id in known[word]] for words in cut]


def normalize_rows(vectors: Vectors) -> Vectors:
    """Scale rows to length one; zero rows stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0))


def get_default_embedder() -> Embedder:
    """Return the static model that comes with Habitus, or none with a logged warning."""
    try:
        return _load_static_embedder()
    except ModelUnavailableError as missing:
        log.warning("Search is lexical only: %s.", missing)
        return NoEmbedder()


# Loaded once per process, however many libraries it opens.
@functools.cache
def _load_static_embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


# Each word with the spaces before it, of which the tokenizer adds the first itself.
_WORDS = re.compile(r" +[^ ]*")
_SEPARATORS = re.compile(r"[_\-./:]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def make_readable(text: str) -> str:
    """Split identifiers into lower-case words: models know `parse csv file` better than `parseCsv_file`."""
    # The tokenizers reject lone surrogates.
    valid = text.encode("utf-8", "replace").decode()
    return _CAMEL.sub(" ", _SEPARATORS.sub(" ", valid)).lower()


def _find_wordllama() -> Path:
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailableError("the wordllama wheel is not installed")
    return Path(spec.submodule_search_locations[0])


def _load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelUnavailableError("the tokenizers library is not installed") from None
    if not path.is_file():
        raise ModelUnavailableError(f"{path.name} is missing")
    tokens = Tokenizer.from_file(str(path))
    tokens.no_padding()
    tokens.no_truncation()
    return tokens


def _map_vector_table(path: Path) -> NDArray[np.float16]:
    """Map the vectors of a safetensors file; only pages that are used are read."""
    if not path.is_file():
        raise ModelUnavailableError(f"{path.name} is missing")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(size))["embedding.weight"]
    if tensor["dtype"] != "F16":
        raise ModelUnavailableError(f"{path.name} holds {tensor['dtype']}, not F16")
    begin = 8 + size + tensor["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=begin, shape=tuple(tensor["shape"]))
