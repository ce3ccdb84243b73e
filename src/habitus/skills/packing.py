"""Contents as the history keeps them: packed, under their hash, and believed only when they still have it."""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from typing import TypeVar

from habitus.errors import StorageFailed

T = TypeVar("T")


def pack(content: bytes) -> bytes:
    """Most files are small: a small window takes a third less time and hardly more room."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 13, 6)
    return packer.compress(content) + packer.flush()


def unpack(packed: bytes, sha256: str) -> bytes | None:
    """The content that was kept under this hash; None where it is another, or can't be unpacked."""
    with suppress(zlib.error, TypeError):
        content = zlib.decompress(packed)
        return content if hashlib.sha256(content).hexdigest() == sha256 else None
    return None


def whole(kept: T | None) -> T:
    """What history keeps, unless it is not what was put there."""
    if kept is None:
        what = "What the history keeps of this version is damaged: its files are not those of its hash."
        raise StorageFailed(what, mend="See 'habitus doctor'.")
    return kept
