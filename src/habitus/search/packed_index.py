"""Index entries packed into a few arrays, in memory or mapped from a file.

Such a file is a copy of the database, used only while it is undamaged and was made by the same rules.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus import operating_system
from habitus.files import TEMPORARY_PREFIX, replace_file_when_block_ends
from habitus.search import calibration
from habitus.search.model import ENTRY_FORMAT
from habitus.search.postings import Postings, Slots, Strengths, TextSteps, compute_term_strengths, merge_term_strengths
from habitus.search.texts.embedding import Embedder, Vectors
from habitus.search.texts.index_entry import FIELDS, Codes, IndexEntry

WordIds = NDArray[np.int32]

_FORMAT = 4
_HEADER_BYTES, _ALIGNMENT_BYTES, _READ_BYTES = 64, 64, 1 << 20
_BATCH_SIZE = 500
# Seconds after which an unfinished file was abandoned.
_MAX_WRITE_S = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedIndex:
    """Index entries by slot; plural fields have one row per slot, the rest is sliced by its starts."""

    ids: list[str]
    digests: list[str]
    meanings: list[str]
    # The words by number.
    spelled: list[str]
    says_when: NDArray[np.bool_]
    name_words: NDArray[np.int32]
    lengths: NDArray[np.int32]
    code_starts: Slots
    codes: Codes
    word_starts: Slots
    word_ids: WordIds
    vectors: Vectors
    terms: Codes
    term_starts: Slots
    term_slots: NDArray[np.int32]
    strengths: Strengths
    text_steps: TextSteps
    # Data of the words, by number.
    word_codes: Codes
    # Half precision, because these vectors make up most of a file.
    word_vectors: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.ids)

    def get_term_codes_at_slot(self, slot: int) -> Codes:
        return self.codes[self.code_starts[slot] : self.code_starts[slot + 1]]

    def get_word_ids_at_slot(self, slot: int) -> WordIds:
        return self.word_ids[self.word_starts[slot] : self.word_starts[slot + 1]]

    def get_entry_at_slot(self, slot: int) -> IndexEntry:
        return IndexEntry(
            id=self.ids[slot],
            digest=self.digests[slot],
            meaning=self.meanings[slot],
            codes=self.get_term_codes_at_slot(slot),
            lengths=tuple(self.lengths[slot].tolist()),
            words=tuple(self.spelled[number] for number in self.get_word_ids_at_slot(slot).tolist() if number),
            name_words=int(self.name_words[slot]),
            says_when=bool(self.says_when[slot]),
        )

    @property
    def postings(self) -> Postings:
        return Postings(self.terms, self.term_starts, self.term_slots, self.strengths, self.text_steps)


def pack_entries(
    entries: Sequence[IndexEntry], vectors: Vectors, number: Callable[[Sequence[str]], WordIds]
) -> PackedIndex:
    """Pack entries with their vectors; `number` returns the numbers of words."""
    # In batches, because all intermediate arrays at once would take too much memory.
    batches = [entries[start : start + _BATCH_SIZE] for start in range(0, len(entries), _BATCH_SIZE)]
    parts = [_pack_batch(some, number) for some in batches or [entries]]
    ids, digests, meanings = ([text for one in parts for text in one[0][kind]] for kind in range(3))
    made = [np.concatenate(same) for same in zip(*(one[1] for one in parts), strict=True)]
    says_when, name_words, lengths, codes, word_counts, word_ids = made
    found = merge_term_strengths([one[2] for one in parts], [len(one[0][0]) for one in parts])
    starts = np.flatnonzero(np.concatenate([[True], found.terms[1:] != found.terms[:-1]]))[: len(found.terms)]
    return PackedIndex(
        ids=ids,
        digests=digests,
        meanings=meanings,
        spelled=[],
        says_when=says_when,
        name_words=name_words,
        lengths=lengths,
        code_starts=_compute_slice_starts(lengths.sum(1)),
        codes=codes,
        word_starts=_compute_slice_starts(word_counts),
        word_ids=word_ids,
        vectors=np.ascontiguousarray(vectors, dtype=np.float32),
        terms=found.terms[starts],
        term_starts=np.append(starts, len(found.terms)).astype(np.int64),
        term_slots=found.slots,
        strengths=found.strengths,
        text_steps=found.text_steps,
        word_codes=np.zeros(0, np.uint32),
        word_vectors=np.zeros((0, 0), np.float16),
    )


def _pack_batch(entries: Sequence[IndexEntry], number: Callable[[Sequence[str]], WordIds]) -> tuple[Any, Any, Any]:
    words = [number(entry.words) for entry in entries]
    texts = [[getattr(entry, name) for entry in entries] for name in ("id", "digest", "meaning")]
    arrays = (
        np.array([entry.says_when for entry in entries], dtype=bool),
        np.array([entry.name_words for entry in entries], dtype=np.int32),
        np.array([entry.lengths for entry in entries], dtype=np.int32).reshape(-1, len(FIELDS)),
        np.concatenate([np.zeros(0, np.uint32), *(entry.codes for entry in entries)]),
        np.array([len(of_one) for of_one in words], dtype=np.int32),
        np.concatenate([np.zeros(0, np.int32), *words]),
    )
    return texts, arrays, compute_term_strengths(entries, first=0)


def _compute_slice_starts(lengths: NDArray[np.int32]) -> Slots:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


# Layout of the file: a header, the arrays, then JSON with their positions and the texts.
def get_index_path(folder: Path, collection: str, embedder: Embedder) -> Path:
    """Return the path of the index file of a collection and embedding model."""
    return folder / f"index-{collection}-{embedder.name}.bin"


def delete_index_files(folder: Path) -> None:
    """Delete all index files; the next process that opens an index writes a new one."""
    for file in folder.glob("index-*.bin"):
        file.unlink(missing_ok=True)


def write_index_file(path: Path, packed: PackedIndex, embedder: Embedder) -> None:
    """Write the index file, readable by its owner only; does nothing if it can't be written."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with replace_file_when_block_ends(path, durable=False) as aside:
            _write_index_data(aside, packed, embedder)
        _delete_abandoned_temporary_files(path)


def _delete_abandoned_temporary_files(path: Path) -> None:
    """Delete unfinished files of killed processes; younger ones may still be in use."""
    for left in path.parent.glob(f"{TEMPORARY_PREFIX}*"):
        if left.stat().st_mtime < path.stat().st_mtime - _MAX_WRITE_S:
            left.unlink(missing_ok=True)


def _write_index_data(aside: Path, packed: PackedIndex, embedder: Embedder) -> None:
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o600)
    with os.fdopen(fd, "wb") as file:
        checksum, at, placed = 0, _HEADER_BYTES, {}
        file.write(bytes(_HEADER_BYTES))
        for name, array in _get_arrays(packed).items():
            placed[name] = [array.dtype.str, array.shape, at]
            padding = bytes(-array.nbytes % _ALIGNMENT_BYTES)
            for piece in (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, padding):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            at += array.nbytes + len(padding)
        texts = {name: getattr(packed, name) for name in _TEXTS}
        tail = json.dumps(
            {"rules": _compute_encoding_settings_digest(embedder), "placed": placed, "texts": texts}
        ).encode()
        file.write(tail)
        file.seek(0)
        file.write(f"{_FORMAT} {at} {len(tail)} {zlib.crc32(tail, checksum):08x}".ljust(_HEADER_BYTES).encode())


def release_freed_memory() -> None:
    """Return freed memory to the system, which the C library would otherwise keep."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def read_index_file(path: Path, embedder: Embedder) -> PackedIndex | None:
    """Map the index file; None if it is missing, damaged or made by other rules."""
    try:
        with path.open("rb") as file:
            kind, tail_at, tail_size, checksum = file.read(_HEADER_BYTES).split()
            if int(kind) != _FORMAT or _compute_checksum(file, int(tail_at) + int(tail_size)) != int(checksum, 16):
                return None
            file.seek(int(tail_at))
            told = json.loads(file.read())
            if told["rules"] != _compute_encoding_settings_digest(embedder):
                return None
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        arrays: dict[str, Any] = {name: _map_array(content, *place) for name, place in told["placed"].items()}
        return PackedIndex(**told["texts"], **arrays)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compute_checksum(file: Any, size: int) -> int:
    """Return the checksum of everything after the header; -1 if the size is wrong."""
    if os.fstat(file.fileno()).st_size != size:
        return -1
    # Read instead of mapped, because mapped pages that were touched stay in memory.
    found, piece = 0, bytearray(_READ_BYTES)
    while count := file.readinto(piece):
        found = zlib.crc32(memoryview(piece)[:count], found)
    return found


def _map_array(content: mmap.mmap, kind: str, shape: Sequence[int], at: int) -> NDArray[Any]:
    count = int(np.prod(shape))
    return np.frombuffer(content, dtype=kind, count=count, offset=at).reshape(shape)


def _get_arrays(packed: PackedIndex) -> dict[str, NDArray[Any]]:
    return {field.name: getattr(packed, field.name) for field in fields(PackedIndex) if field.name not in _TEXTS}


def _compute_encoding_settings_digest(embedder: Embedder) -> str:
    """Return a digest of the settings that determine how documents become entries."""
    fields_of = [calibration.FIELD_WEIGHTS, calibration.FIELD_NORMS, calibration.FIELD_LENGTHS, calibration.SATURATION]
    of_text = [calibration.TEXT_SATURATION, calibration.TEXT_NORM, calibration.TEXT_LENGTH]
    rules = [ENTRY_FORMAT, embedder.name, embedder.width, sys.byteorder, fields_of, of_text]
    return hashlib.blake2b(json.dumps(rules).encode(), digest_size=16).hexdigest()


_TEXTS = ("ids", "digests", "meanings", "spelled")
