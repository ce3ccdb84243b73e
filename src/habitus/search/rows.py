"""Rows of the stored index as entries and learned requests. Those that are damaged are told apart, never trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from habitus.search import learned
from habitus.search.embedding import Vectors
from habitus.search.entry import IndexEntry, unpack


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Sound entries with their vectors, and the ids of rows that have to be made anew."""

    entries: list[IndexEntry]
    vectors: Vectors
    damaged: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRequests:
    """Sound requests, and those whose vector is missing."""

    sound: list[learned.LearnedRequest]
    damaged: list[learned.LearnedRequest]


def load_entries(rows: Iterable[Sequence[Any]], width: int) -> Loaded:
    """Rows of id, digest, meaning, says_when, codes, words and vector as entries; without a width there are none."""
    entries: list[IndexEntry] = []
    blobs: list[bytes] = []
    damaged: list[str] = []
    for id, digest, meaning, says_when, codes, words, blob in rows:
        entry = unpack(id=id, digest=digest, meaning=meaning, codes=codes, words=words, says_when=says_when)
        blob = blob if width else b""
        if entry is None or blob is None or len(blob) != 4 * width:
            damaged.append(id)
        else:
            entries.append(entry)
            blobs.append(blob)
    matrix = np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(blobs), width)
    sound = np.isfinite(matrix.sum(axis=1))
    damaged += [entry.id for entry, is_sound in zip(entries, sound, strict=True) if not is_sound]
    return Loaded(
        entries=[entry for entry, is_sound in zip(entries, sound, strict=True) if is_sound],
        vectors=matrix if sound.all() else matrix[sound],
        damaged=damaged,
    )


def load_requests(rows: Iterable[Sequence[Any]], width: int) -> LoadedRequests:
    """Rows of document, text, weight, time and vector."""
    sound: list[learned.LearnedRequest] = []
    damaged: list[learned.LearnedRequest] = []
    for item, text, weight, at, blob in rows:
        blob = blob if width else b""
        has_vector = is_sound(blob, width)
        vector = np.frombuffer(blob, dtype=np.float32) if has_vector else np.zeros(width, dtype=np.float32)
        request = learned.LearnedRequest(item=item, text=text, weight=weight, at=at, vector=vector)
        (sound if has_vector else damaged).append(request)
    return LoadedRequests(sound=sound, damaged=damaged)


def is_sound(blob: bytes | None, width: int) -> bool:
    if blob is None or len(blob) != 4 * width:
        return False
    # A sum is finite exactly when every part is, short of an overflow that unit vectors can't reach.
    return bool(np.isfinite(np.frombuffer(blob, dtype=np.float32).sum()))
