"""Extracts the terms for lexical search (identifiers split, words stemmed, CJK as character pairs), and parses
requests: which sentences ask, and which only give background.
"""

from __future__ import annotations

import re
import sys
import unicodedata
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from operator import add
from typing import Protocol

# Words around a request rather than in it. Pronouns and politeness are rare in descriptions, so their idf would be
# high, but they never tell two skills apart.
STOP_WORDS = frozenset(
    """
    a about actually again all also although am an and any anyone anything are around as at be because been before
    being both but by came can could did do does doing don done each either else even ever every everything few for
    from further get gets getting give given go goes going got had has have having he hello help her here hey hi him
    his how however i if in into is it its itself just kind know let lets like ll look looking lot make makes many
    may maybe me might mine more most much must my myself need needed needs neither no nor not now of off ok okay on
    once one only onto or other our ours out over own per please quite rather re really right same say see shall she
    should show so some someone something soon still such sure tell than thank thanks that the their them then there
    these they thing things this those though through to too under until up upon us use used using ve very want
    wanted wants was way we well were what whatever when where whether which while who whom whose why will wish with
    within without won would yes yet you your yours yourself
    """.split()  # noqa: SIM905 (two hundred quoted words would be harder to read)
)

# Letters and digits together; `C#` and `C++` are names, and the single letter of `it's` is not a word.
_CHUNK = re.compile(r"[^\W_]{2,}|[A-Za-z](?:#|\+\+)|(?<!['’])[^\W_]")
# The same for ASCII, in half the time.
_ASCII_CHUNK = re.compile(r"[A-Za-z0-9]{2,}|[A-Za-z](?:#|\+\+)|(?<!')[A-Za-z0-9]")
_AFTER_APOSTROPHE = re.compile(r"'(?:[A-Za-z](?!#|\+\+)|[0-9])(?![A-Za-z0-9])")
_SHARP = re.compile(r"#(?<=[^A-Za-z0-9][A-Za-z]#)")
_PLUSES = re.compile(r"\+\+(?<=[^A-Za-z0-9][A-Za-z]\+\+)")
# Stand-ins for the ends of `C#` and `C++` in text that is cut at everything but letters.
_MARKS = {"\x01": "#", "\x02": "++"}
_APART = bytes(byte if chr(byte).isalnum() or byte in (1, 2) else 32 for byte in range(128)) + b" " * 128
_ASCII = bytes(range(128))
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
# Chinese stop words: no pair with one counts.
_CJK_FUNCTION = re.compile("[我你您他她它们的了帮请这那吗呢吧啊是把篇]+")
_MAX_TERM_CHARACTERS = 40


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


def extract_terms(text: str) -> list[str]:
    """Return the terms of a text in reading order, without stop words."""
    return [
        term
        for chunk in _split_into_alphanumeric_runs(_normalize_unicode(text))
        for term in _extract_chunk_terms(chunk)
    ]


def encode_terms_of_text(text: str) -> bytes:
    """Return the term codes of a long text, four bytes each, with a cache because words repeat."""
    if len(_known_codes) >= _MAX_CACHED_CHUNKS:
        _known_codes.clear()
    text = _normalize_unicode(text)
    plain = _prepare_ascii_for_split(text)
    chunks = _split_into_alphanumeric_runs(text) if plain is None else plain.translate(_APART).split()
    return b"".join(map(_known_codes.__getitem__, chunks))


def clear_term_code_cache() -> None:
    """Clear the cache of `encode_terms_of_text`, after a bulk load."""
    _known_codes.clear()
    _encode_term.cache_clear()


def _normalize_unicode(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _split_into_alphanumeric_runs(text: str) -> list[str]:
    """Split a text into runs of letters and digits."""
    return (_ASCII_CHUNK if text.isascii() else _CHUNK).findall(text)


def _prepare_ascii_for_split(text: str) -> bytes | None:
    """Prepare a text so `split` yields the same chunks in a fifth of the time; None if it has non-ASCII letters."""
    if not text.isascii():
        beyond_ascii = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
        if any(map(str.isalnum, set(beyond_ascii.decode("utf-8", "surrogatepass")))):
            return None
        text = text.replace("’", "'")
    if "\x01" in text or "\x02" in text:
        return None
    text = f" {text}"
    if "'" in text:
        text = _AFTER_APOSTROPHE.sub(" ", text)
    if "#" in text:
        text = _SHARP.sub("\x01 ", text)
    if "++" in text:
        text = _PLUSES.sub("\x02 ", text)
    return text.encode("ascii", "replace")


_CAMEL = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])")


def extract_content_words(text: str) -> list[str]:
    """Return the distinct words of a text in lower case, unstemmed, for comparison by meaning."""
    split = _CAMEL.sub(r" \g<0>", _normalize_unicode(text)).lower()
    found = dict.fromkeys(word[:_MAX_TERM_CHARACTERS] for word in _split_into_alphanumeric_runs(split))
    return [word for word in found if word not in STOP_WORDS]


def hash_term(term: str) -> int:
    """Hash a term to 32 bits; in 200,000 words a collision happens now and then."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def hash_term_of_content_word(word: str) -> int:
    """Return the code of the term that a content word counts as."""
    if word.isascii() and word.isalpha():
        # A shortcut with the same result as `extract_terms`.
        return hash_term(_get_stemmer().stemWord(word))
    return hash_term((extract_terms(word) or [word])[0])


@cache
def _get_stemmer() -> _Stemmer:
    import Stemmer

    stemmer: _Stemmer = Stemmer.Stemmer("english", 0)
    return stemmer


class _TermCodeCache(dict[str | bytes, bytes]):
    def __missing__(self, chunk: str | bytes) -> bytes:
        if isinstance(chunk, str):
            found = (
                self[chunk.encode()] if chunk.isascii() else b"".join(map(_encode_term, _split_chunk_into_terms(chunk)))
            )
        elif chunk.isalpha() and chunk[1:].islower() and len(chunk) <= _MAX_TERM_CHARACTERS:
            found = _encode_word(chunk.decode("ascii").lower())
        else:
            found = array(
                "I", map(hash_term, _extract_terms_of_non_cjk_chunk(_restore_chunk_from_ascii(chunk)))
            ).tobytes()
        self[chunk] = found
        return found


# Chinese character pairs are few, but occur in long runs that never repeat.
@lru_cache(maxsize=50_000)
def _encode_term(term: str) -> bytes:
    return hash_term(term).to_bytes(4, sys.byteorder)


def _encode_word(word: str) -> bytes:
    """Encode a lower-case word, as most are: a shortcut with the same result as `_split_chunk_into_terms`."""
    return b"" if word in STOP_WORDS else _encode_term(_get_stemmer().stemWord(word))


def _restore_chunk_from_ascii(chunk: bytes) -> str:
    text = chunk.decode("ascii")
    return text[:-1] + _MARKS[text[-1]] if text[-1] in _MARKS else text


_known_codes = _TermCodeCache()
_MAX_CACHED_CHUNKS = 200_000


@lru_cache(maxsize=50_000)
def _extract_chunk_terms(chunk: str) -> tuple[str, ...]:
    return tuple(_split_chunk_into_terms(chunk))


def _split_chunk_into_terms(chunk: str) -> list[str]:
    if chunk.isascii():
        return _extract_terms_of_non_cjk_chunk(chunk)
    found: list[str] = []
    rest = 0
    for run in _CJK.finditer(chunk):
        if rest < run.start():
            found += _extract_terms_of_non_cjk_chunk(_strip_accents(chunk[rest : run.start()]))
        found += _list_character_pairs(run.group())
        rest = run.end()
    return found + _extract_terms_of_non_cjk_chunk(_strip_accents(chunk[rest:])) if rest < len(chunk) else found


def _strip_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def _list_character_pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [pair for piece in _CJK_FUNCTION.split(run) for pair in map(add, piece, piece[1:])]


def _extract_terms_of_non_cjk_chunk(chunk: str) -> list[str]:
    """Return the terms of a chunk: `parseCSVFile` gives parse, csv, file and the whole, to match either spelling."""
    whole = chunk.lower()[:_MAX_TERM_CHARACTERS]
    is_plain = chunk.isascii() and chunk.isalpha() and (chunk[1:].islower() or chunk.isupper())
    parts = [whole] if is_plain else [part.lower()[:_MAX_TERM_CHARACTERS] for part in _PART.findall(chunk)]
    words = parts if parts == [whole] else [*parts, whole]
    stem = _get_stemmer().stemWord
    is_one = len(parts) == 1
    return [
        stem(word)
        for word in words
        if word not in STOP_WORDS and (len(word) > 1 or _is_meaningful_letter(word, is_one))
    ]


def _is_meaningful_letter(letter: str, stands_alone: bool) -> bool:
    """Return whether a letter names something, as in "plot in R"; as part of `x2y` it does not."""
    return not letter.isascii() or (stands_alone and letter.isalpha())


# The sentence that comes first usually says what is wanted; a later statement about the asker is background.
# Found by a sweep over first = 1…3 and background = 0.3…1, see docs/decisions/search.md.
_FIRST, _BACKGROUND, _PASTED = 2.0, 0.4, 0.1
_MOST_PARTS = 8
_MOST_TERMS = 96
_MOST_WORDS = 40
# Characters to inspect at the beginning and end of a request.
_HEAD, _TAIL = 6000, 2000
# Characters that count: first and last of the asker's own words, and of pasted text.
_OWN, _OF_PASTE = (1000, 400), (300, 0)

_SENTENCE_END = re.compile(r"(?<=[.!?;。！？；])\s+|(?<=[。！？；])|\n+")
_PART_END = re.compile(r"(?<=[.!?;。！？；])\s+|\n+|,?\s(?:and then|and also|and|then|also)\s|,\s")
_STATEMENT = re.compile(
    r"(?:we|i|our|my|it|its|they|this|that|these|those|the|a|an|there|here|he|she|his|her|their|currently)\b", re.I
)


_ASKS = re.compile(r"\b(?:i|we|our|my|me|us|you|your|help|please)\b|[?？]|我|帮|请|吗", re.I)
# Only the host of a URL says something; the rest is rare and means nothing.
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://(?:[\w-]+@)?([\w.-]+)[^\s<>\"'）)，。]*", re.I)
_PLACE_ENDS = frozenset(["www", "mp", "com", "cn", "org", "net", "io", "dev", "co", "uk", "de"])

# Text by somebody else or a program: fenced, quoted as in mail, long quotations, tracebacks.
_LINE = r"[^\n]*(?:\n|\Z)"
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|\"{3}.*?(?:\"{3}|\Z)"
    rf"|(?:^[ \t]*>{_LINE})+|^Traceback \(most recent call last\):\n(?:[ \t]{_LINE})*(?:\w[\w.]*:{_LINE})?"
    r"|[“\"«„][^”\"»“\n]{80,}[”\"»“]",
    re.MULTILINE | re.DOTALL,
)
_INTRODUCED = re.compile(r"[:：][ \t]*\n")
# Words after "…:" and a new line that are too many for a list of wishes.
_LONG_PASTE = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSearchRequest:
    """A parsed request; the weights of `terms` and `words` say how much their sentence reveals about the wish.

    `text` are the asker's own words, without quotations and pasted text.
    """

    text: str
    terms: Mapping[str, float]
    words: Mapping[str, float]
    phrases: frozenset[tuple[str, str]]
    parts: tuple[str, ...]
    # Somebody asks for something ("help me", "our", "?"), as opposed to a bare topic or statement.
    is_asked: bool

    def list_request_and_part_texts(self, max_words: int) -> list[str]:
        """Return the request and then its parts, with at most so many words in all."""
        text = " ".join(self.text.split()[:max_words])
        left = max_words - len(text.split())
        parts: list[str] = []
        for part in self.parts:
            left -= len(part.split())
            if left >= 0 or part == text:
                parts.append(part)
        return [text, *(parts or [text])]

    @property
    def has_words(self) -> bool:
        """True if there is any letter or digit, even if only in stop words."""
        return any(char.isalnum() for char in self.text)


def parse_request(text: str) -> ParsedSearchRequest:
    """Parse a request for searching."""
    own, pasted = _split_own_and_quoted_text(_reduce_urls_to_host_words(cut_middle_of_long_text(text)))
    weighted = [*_weigh_sentences(own), *((sentence, _PASTED) for sentence in _split_sentences(pasted))]
    return ParsedSearchRequest(
        text=own,
        terms=_keep_heaviest_terms(
            [(term, weight) for sentence, weight in weighted for term in extract_terms(sentence)], _MOST_TERMS
        ),
        words=_keep_heaviest_terms(
            [(w, weight) for sentence, weight in weighted for w in extract_content_words(sentence)], _MOST_WORDS
        ),
        phrases=frozenset(pair for sentence, _ in weighted for pair in pairwise(extract_terms(sentence))),
        parts=_split_request_parts(own),
        is_asked=_ASKS.search(own) is not None,
    )


def _reduce_urls_to_host_words(text: str) -> str:
    """Reduce URLs to the words of their host."""
    return _ADDRESS.sub(lambda at: " " + " ".join(w for w in at[1].split(".") if w not in _PLACE_ENDS) + " ", text)


def remove_quotations_and_pasted_text(text: str) -> str:
    """Return a request without quotations and pasted text; all of it if nothing else remains."""
    return _split_own_and_quoted_text(cut_middle_of_long_text(text))[0].strip()


def _split_own_and_quoted_text(text: str) -> tuple[str, str]:
    pasted = [found[0] for found in _QUOTED.finditer(text)]
    own = _QUOTED.sub("\n", text)
    if introduced := _INTRODUCED.search(own):
        before, after = own[: introduced.end()], own[introduced.end() :]
        *paragraphs, last = re.split(r"\n[ \t]*\n", after.strip())
        asks_last = bool(paragraphs) and len(last.split()) <= _LONG_PASTE
        shown = "\n\n".join(paragraphs) if asks_last else after
        if len(shown.split()) > _LONG_PASTE:
            own, pasted = f"{before}{last if asks_last else ''}", [*pasted, shown]
    own = own.strip()
    if not any(char.isalnum() for char in own):
        own, pasted = text, []
    return cut_middle_of_long_text(own, *_OWN), cut_middle_of_long_text("\n".join(pasted), *_OF_PASTE)


def cut_middle_of_long_text(text: str, head: int = _HEAD, tail: int = _TAIL) -> str:
    """Cut the middle out of a long text: people say what they want at the beginning or the end."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[len(text) - tail :]}"


def _weigh_sentences(text: str) -> list[tuple[str, float]]:
    sentences = _split_sentences(text)
    return [(sentence, _weigh_sentence(sentence, place, len(sentences))) for place, sentence in enumerate(sentences)]


def _split_sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def _weigh_sentence(sentence: str, place: int, count: int) -> float:
    weight = _FIRST if place == 0 else 1.0
    is_background = count > 1 and not sentence.endswith(("?", "？")) and _STATEMENT.match(sentence)
    return weight * _BACKGROUND if is_background else weight


def _keep_heaviest_terms(found: list[tuple[str, float]], most: int) -> dict[str, float]:
    weights: dict[str, float] = {}
    for key, weight in found:
        weights[key] = max(weight, weights.get(key, 0.0))
    if len(weights) <= most:
        return weights
    return dict(sorted(weights.items(), key=lambda item: -item[1])[:most])


def _split_request_parts(text: str) -> tuple[str, ...]:
    """Split a request into the things it asks for, keeping the longest; at least the request itself."""
    parts = [part for part in _PART_END.split(text) if len(part.split()) > 1]
    if len(parts) > _MOST_PARTS:
        parts = sorted(parts, key=lambda part: -len(part))[:_MOST_PARTS]
    return tuple(parts) or (text,)
