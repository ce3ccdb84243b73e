"""An index with the encoder that a setting names, which is loaded once in a process."""

from __future__ import annotations

import functools
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid
from habitus.search import store
from habitus.search.embedding import Embedder, default_embedder
from habitus.search.index import Index
from habitus.search.minilm import MiniLM
from habitus.search.weights import Unavailable, find_weights

_FEW = 100  # documents that a search may wait for


def open_index(
    engine: sa.Engine, collection: str, encoder_name: str, weights: Path, folder: Path | None = None
) -> Index:
    """While most documents have no vectors of the encoder yet, the static one answers, and a note says so."""
    if is_soon_ready(engine, collection, encoder_name, weights):
        return Index.open(engine, collection, embedder=encoder(encoder_name, weights), folder=folder)
    index = Index.open(engine, collection, folder=folder)
    there, missing = _counts(engine, collection, encoder(encoder_name, weights))
    index.notes.append(f"{encoder_name} has {there} of {there + missing} ready; until then the static one answers")
    return index


def is_soon_ready(engine: sa.Engine, collection: str, encoder_name: str, weights: Path) -> bool:
    """Whether so few documents have no vector of the encoder that a search can wait for them."""
    return encoder_name == "static" or _counts(engine, collection, encoder(encoder_name, weights))[1] <= _FEW


def encoder(name: str, weights: Path) -> Embedder:
    """`static` or `minilm`; a better one that is not there is an error, never quietly another one."""
    if name == "static":
        return default_embedder()
    try:
        return _minilm(find_weights(weights))
    except Unavailable as missing:
        raise Invalid(
            f"The setting search.encoder is '{name}', and {missing}.",
            mend="Run 'habitus config set search.encoder minilm', which fetches it (90 MB), or set it to 'static'.",
        ) from None


def _counts(engine: sa.Engine, collection: str, embedder: Embedder) -> tuple[int, int]:
    """How many documents have a vector of this encoder, and how many have none."""
    space = store.Space(collection=collection, model=embedder.name, width=embedder.width)
    with sql.reading(engine) as connection:
        there = store.embedded_count(connection, space)
        return there, store.count(connection, collection) - there


@functools.cache
def _minilm(weights: Path) -> MiniLM:
    return MiniLM(weights)
