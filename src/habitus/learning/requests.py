"""Requests that ask for much the same, found by what they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from habitus.search.embedding import Embedder

ALIKE = 0.55  # paraphrases of one wish are nearer than this, other wishes about the same things are not
MOST = 2_000  # requests that are compared with each other


def alike(requests: Sequence[str], encoder: Embedder) -> list[list[int]]:
    """Groups of two and more, the largest first, each around the request that most others are like.

    Without an encoder there are none. The work grows with the square of the requests, which is why there is a `MOST`.
    """
    if not encoder.width or not requests:
        return []
    vectors = encoder.embed(requests[-MOST:])
    near = vectors @ vectors.T >= ALIKE
    first = max(len(requests) - MOST, 0)
    groups: list[list[int]] = []
    while True:
        counts = near.sum(axis=1)
        centre = int(np.argmax(counts))
        if counts[centre] < 2:
            return groups
        members = np.flatnonzero(near[centre])
        groups.append([first + int(member) for member in members])
        near[members, :] = False
        near[:, members] = False
