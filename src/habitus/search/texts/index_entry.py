"""A document as the index stores it: term codes in reading order, meaningful words, and the digest of one vector."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.search.model import ENTRY_FORMAT, SearchDocument
from habitus.search.texts.words import encode_terms_of_text, extract_content_words

# `excluded` has terms that occur only where a description says what the document is not for; `excluded_below` the same
# for a body.
FIELDS = ("name", "cue", "tags", "description", "excluded", "excluded_below", "body")

_MAX_BODY_CHARACTERS = 12_000
_MAX_WORDS = 120
_SAYS_WHEN = re.compile(
    r"\b(?:use (?:this|it|when|whenever|for|if)\b|when (?:the|an?|you|your|asked|users?)\b|if (?:the|you)\b|when:"
    r"|triggers?:|trigger(?:s|ed)? (?:on|when|for|words|phrases|keywords|include)\b"
    r"|(?:activate|invoke|applie|load)[sd]? (?:when|on|for|if)\b)"
    r"|适用于|当用户|触发|使用场景|何时使用",
    re.I,
)
# Sentences that say what a document is not for, or refer to another one for it.
_EXCLUDES = re.compile(
    r"(?:\b(?:do not|don['’]t|never|not to|should not) (?:use|trigger|invoke|activate|load|apply|call)\b"
    r"|\bnot (?:for|intended for|suitable for|meant for)\b|\bskip (?:when|if|for)\b|不要使用|不适用|不用于)"
    r".*?(?=[.!?。](?:\s|$)|\n|$)"
    r"|\bfor [^.\n]{3,140}?,? (?:see|use) [`\w]+-[^.\n]*",
    re.I,
)
_EXCLUDES_BELOW = re.compile(
    r"#(?<=^#)#{0,3}[ \t]*(?:(?:do not|don['’]t) use|when not to|not (?:for|when)|out of scope)[^\n]*\n"
    r"((?:(?!#{1,4}[ \t])[^\n]*\n)*)",
    re.I | re.M,
)

_EXCLUDING = (
    *("do not ", "don't ", "don’t ", "never ", "not to ", "should not "),
    *("not for", "not intended for", "not suitable for", "not meant for", "skip ", "不"),
)

Codes = NDArray[np.uint32]
Vector = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEntry:
    """A document encoded for the index."""

    id: str
    digest: str
    meaning: str
    codes: Codes
    lengths: tuple[int, ...]
    words: tuple[str, ...]
    name_words: int
    says_when: bool

    @property
    def summary_term_codes(self) -> Codes:
        return self.codes[: len(self.codes) - self.lengths[-1]]

    @property
    def body_term_codes(self) -> Codes:
        return self.codes[len(self.codes) - self.lengths[-1] :]


def encode_document(document: SearchDocument, content_digest: str = "") -> IndexEntry:
    """Encode a document; `content_digest` is its digest, if the caller has computed it."""
    tags = " , ".join(document.tags)
    texts = (document.name, document.when_to_use, tags, document.description, document.body[:_MAX_BODY_CHARACTERS])
    fields = [encode_terms_of_text(text) for text in texts]
    fields[4:4] = _extract_excluded_terms(document, texts)
    of_name = extract_content_words(document.name)
    others = [word for word in extract_content_words(" ".join(texts[1:4])) if word not in of_name]
    return IndexEntry(
        id=document.id,
        digest=content_digest or compute_document_digest(document),
        meaning=compute_normalized_text_digest(build_embedding_text(document)),
        codes=np.frombuffer(b"".join(fields), dtype=np.uint32),
        lengths=tuple(len(field) // 4 for field in fields),
        words=_intern_words((*of_name, *others)[:_MAX_WORDS]),
        name_words=min(len(of_name), _MAX_WORDS),
        says_when=bool(document.when_to_use or _SAYS_WHEN.search(document.description)),
    )


def _intern_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Intern the words, so each is in memory once however many documents have it."""
    return tuple(map(sys.intern, words))


def _extract_excluded_terms(document: SearchDocument, texts: tuple[str, ...]) -> list[bytes]:
    """Return the terms of exclusions in the description and the body that the other fields lack."""
    described = document.description
    excluded = (
        " ".join(found[0] for found in _EXCLUDES.finditer(described)) if _may_contain_exclusion(described) else ""
    )
    below = " ".join(found[1] for found in _EXCLUDES_BELOW.finditer(texts[4]))
    if not excluded and not below:
        return [b"", b""]
    kept = _list_distinct_term_codes(" ".join([*texts[:3], _EXCLUDES.sub(" ", document.description)]))
    return [np.setdiff1d(_list_distinct_term_codes(text), kept).tobytes() for text in (excluded, below)]


def _may_contain_exclusion(description: str) -> bool:
    """Return whether a description contains a word without which the slow pattern can't match."""
    said = description.lower()
    is_sent_elsewhere = "for " in said and "-" in said and (" see " in said or " use " in said)
    return is_sent_elsewhere or any(word in said for word in _EXCLUDING)


def _list_distinct_term_codes(text: str) -> Codes:
    return np.unique(np.frombuffer(encode_terms_of_text(text), dtype=np.uint32))


def compute_document_digest(doc: SearchDocument) -> str:
    """Return a digest that is the same for the same content."""
    content = [ENTRY_FORMAT, doc.name, doc.when_to_use, doc.description, list(doc.tags), doc.body]
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def build_embedding_text(document: SearchDocument) -> str:
    """Return the text whose vector represents the document, without the body: body vectors improved no test set."""
    parts = [f"{document.name}.", document.when_to_use, document.description, ", ".join(document.tags)]
    return " ".join(part for part in parts if part)


def compute_normalized_text_digest(text: str) -> str:
    """Return a digest that ignores case and spacing, so equal texts are embedded and learned once."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode("utf-8", "replace"), digest_size=16).hexdigest()


def pack_entry(entry: IndexEntry) -> tuple[bytes, str]:
    """Return the stored form: codes after their field lengths, and the words with those of the name on the first
    line.
    """
    lengths = np.array(entry.lengths, dtype=np.uint32)
    words = f"{' '.join(entry.words[: entry.name_words])}\n{' '.join(entry.words[entry.name_words :])}"
    return lengths.tobytes() + entry.codes.tobytes(), words


def unpack_entry(*, id: str, digest: str, meaning: str, codes: bytes, words: str, says_when: bool) -> IndexEntry | None:
    """Return the entry of a stored form; None if it is damaged."""
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
        words=_intern_words((*of_name, *others)),
        name_words=len(of_name),
        says_when=says_when,
    )
