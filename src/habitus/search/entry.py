"""A document as the index keeps it: term codes in reading order, the words that carry meaning, one vector."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.search.model import SHAPE, Document
from habitus.search.words import codes, content_words

FIELDS = ("name", "cue", "tags", "description", "body")

_LONGEST_BODY = 12_000
_MOST_WORDS = 120
_SAYS_WHEN = re.compile(r"\b(?:use (?:this|it|when|for|if)|when (?:the|a|you|your|asked|user)|if (?:the|you) )", re.I)

Codes = NDArray[np.uint32]
Vector = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEntry:
    id: str
    digest: str
    meaning: str
    codes: Codes
    lengths: tuple[int, ...]
    words: tuple[str, ...]
    name_words: int
    says_when: bool

    @property
    def summary(self) -> Codes:
        return self.codes[: len(self.codes) - self.lengths[-1]]

    @property
    def body(self) -> Codes:
        return self.codes[len(self.codes) - self.lengths[-1] :]


def encode(document: Document) -> IndexEntry:
    tags = " , ".join(document.tags)
    texts = (document.name, document.cue, tags, document.description, document.body[:_LONGEST_BODY])
    fields = [codes(text) for text in texts]
    of_name = content_words(document.name)
    others = [word for word in content_words(" ".join(texts[1:4])) if word not in of_name]
    return IndexEntry(
        id=document.id,
        digest=digest(document),
        meaning=text_digest(meaning_of(document)),
        codes=np.array([number for field in fields for number in field], dtype=np.uint32),
        lengths=tuple(len(field) for field in fields),
        words=_shared((*of_name, *others)[:_MOST_WORDS]),
        name_words=min(len(of_name), _MOST_WORDS),
        says_when=bool(document.cue or _SAYS_WHEN.search(document.description)),
    )


def _shared(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same words, each of them once in memory however many documents have it."""
    return tuple(map(sys.intern, words))


def digest(document: Document) -> str:
    """The same for the same content, whoever asks."""
    content = [SHAPE, document.name, document.cue, document.description, list(document.tags), document.body]
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def meaning_of(document: Document) -> str:
    """The text whose vector stands for the document. Bodies are left out: their vectors helped no set."""
    parts = [f"{document.name}.", document.cue, document.description, ", ".join(document.tags)]
    return " ".join(part for part in parts if part)


def text_digest(text: str) -> str:
    """The same for texts that differ only in case and spacing: they are embedded and learned once."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode("utf-8", "replace"), digest_size=16).hexdigest()


def pack(entry: IndexEntry) -> tuple[bytes, str]:
    """The stored form: codes behind their field lengths, and the words with those of the name on the first line."""
    lengths = np.array(entry.lengths, dtype=np.uint32)
    words = f"{' '.join(entry.words[: entry.name_words])}\n{' '.join(entry.words[entry.name_words :])}"
    return lengths.tobytes() + entry.codes.tobytes(), words


def unpack(*, id: str, digest: str, meaning: str, codes: bytes, words: str, says_when: bool) -> IndexEntry | None:
    """None when the stored form is damaged."""
    if len(codes) % 4 or len(codes) < 4 * len(FIELDS) or "\n" not in words:
        return None
    numbers = np.frombuffer(codes, dtype=np.uint32)
    lengths = tuple(numbers[: len(FIELDS)].tolist())
    if sum(lengths) != len(numbers) - len(FIELDS):
        return None
    of_name, others = (line.split() for line in words.split("\n", 1))
    return IndexEntry(
        id=id,
        digest=digest,
        meaning=meaning,
        codes=numbers[len(FIELDS) :],
        lengths=lengths,
        words=_shared((*of_name, *others)),
        name_words=len(of_name),
        says_when=says_when,
    )
