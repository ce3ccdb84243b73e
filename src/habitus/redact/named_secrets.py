"""Redacts values by their names: after `password=`, `"api_key":`, `--token ` and the like."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from habitus.redact.key_shapes import MARKER, build_redaction_marker, is_sample_value, replace_non_ascii

_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_TOKENS = ("secret", "token", "credential", "apikey", "api_key", "api-key", "api key")
_KEYS = ("key", "auth", "session_id", "sessionid", "cookie")
# Stems lack the first letter where it may be a capital: finding twenty words is much faster than one pattern for them.
_STEMS = {
    **{
        small: frozenset({small, small.upper()})
        for small in ("assw", "assphrase", "wd", "ecret", "oken", "redential", "uth", "ession", "ookie")
    },
    "key": frozenset({"key", "Key", "KEY"}),
}
# Quotes may be escaped several times, YAML may put the value on the next line, and a list may name it before it.
_ASSIGNED = re.compile(
    r"(?P<end>[A-Za-z0-9_]{0,24})(?:\\{0,7}[\"'\])`]){0,2}"
    r"(?:(?:[\s,]|\\{1,7}[nrt]){1,24}(?:\\{0,7}[\"'])?[Vv]alue(?:\\{0,7}[\"'])?)?"
    r"(?:\s{0,3}(?P<sign>:=|=>|=|:|>)(?:\s{0,3}[|>][+-]?(?:\s|\\{1,7}n){1,20}|\s{0,3})|(?P<space> {1,3}))"
)
_UNFINISHED = re.compile(r"[A-Za-z0-9_]{0,24}[^A-Za-z0-9_]{0,32}(?:[Vv]a?l?u?e?)?[^A-Za-z0-9]{0,32}")
_OPENING = re.compile(r"(?P<slashes>\\{0,7})(?P<quote>[\"'])")
_BARE = re.compile(r"(?:[^\s\"'`,;&<>(){}\\]|\\(?![nrtu\"'\\]))*+")
_QUOTED = re.compile(r"[^\"'\\\n]*+")
# Characters of a value to inspect before it is known to be secret.
_INSPECTED_CHARACTERS = 256
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_MAX_NAME_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class _NamedValueSpan:
    """The position of a value in a text, and its name."""

    name: str
    name_start: int
    start: int
    end: int
    is_quoted: bool


def redact_values_of_secret_names(text: str, counts: Counter[str]) -> str:
    """Redact values that look like secrets, not like code or words about them."""
    pieces: list[str] = []
    done = 0
    for value in _find_values_of_secret_names(text):
        if value.name_start < done:
            continue
        said = text[value.start : value.end]
        if MARKER.search(said) or not is_secret_value_under_name(value.name, said, quoted=value.is_quoted):
            continue
        pieces += [text[done : value.start], build_redaction_marker("named")]
        done = value.end if value.end - value.start < _INSPECTED_CHARACTERS else _find_long_value_end(text, value)
        counts["named"] += 1
    return "".join([*pieces, text[done:]]) if pieces else text


def _find_long_value_end(text: str, value: _NamedValueSpan) -> int:
    rest = (_QUOTED if value.is_quoted else _BARE).match(text, value.end)
    return rest.end() if rest else value.end


def find_uncuttable_named_value_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of names with their values; beyond the end of the text where more may follow."""
    for value in _find_values_of_secret_names(text):
        yield value.name_start, value.end + (value.end >= len(text))
    for stem, start in _find_secret_name_stems(text, max(0, len(text) - 128)):
        if _UNFINISHED.fullmatch(text, start + len(stem)):
            yield _find_name_start(text, start), len(text) + 1


def _find_values_of_secret_names(text: str) -> Iterator[_NamedValueSpan]:
    """Yield every value that is assigned to a secret-like name, in order."""
    for stem, start in sorted(_find_secret_name_stems(text, 0), key=itemgetter(1)):
        assigned = _ASSIGNED.match(text, start + len(stem))
        if assigned is None:
            continue
        name_start = _find_name_start(text, start)
        name = text[name_start : assigned.end("end")]
        if assigned["space"] and not name.startswith("--"):
            # Only a command-line option has its value after a space.
            continue
        if assigned["sign"] == ">" and text[name_start - 1 : name_start] != "<":
            # Only an XML tag has its value after its end.
            continue
        yield _parse_named_value(text, name, name_start, assigned.end())


def _parse_named_value(text: str, name: str, name_start: int, at: int) -> _NamedValueSpan:
    opening = _OPENING.match(text, at)
    if opening is None:
        bare = _BARE.match(text, at, at + _INSPECTED_CHARACTERS)
        # The pattern also matches an empty value.
        assert bare is not None
        end = at if text[bare.end() : bare.end() + 1] in ("(", "{") else bare.end()
        return _NamedValueSpan(name, name_start, at, end, False)
    end = _find_closing_quote(text, opening.end(), len(opening["slashes"]), opening["quote"])
    return _NamedValueSpan(name, name_start, opening.end(), end, True)


def _find_closing_quote(text: str, start: int, slashes: int, quote: str) -> int:
    """Return the end of a quoted value: a quote escaped as often as the opening one, or the end of the line."""
    limit = text.find("\n", start, start + _INSPECTED_CHARACTERS)
    limit = min(len(text), start + _INSPECTED_CHARACTERS) if limit < 0 else limit
    at = text.find(quote, start, limit)
    while at >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        if (at - before) % (2 * slashes + 2) == slashes:
            return at - slashes
        at = text.find(quote, at + 1, limit)
    return limit


def _find_secret_name_stems(text: str, since: int) -> Iterator[tuple[str, int]]:
    # Lowercasing ASCII keeps all positions.
    lowered = replace_non_ascii(text).lower()
    for small, spellings in _STEMS.items():
        start = lowered.find(small, since)
        while start >= 0:
            stem = text[start : start + len(small)]
            if stem in spellings:
                yield stem, start
            start = lowered.find(small, start + len(small))


def _find_name_start(text: str, position: int) -> int:
    earliest = max(0, position - _MAX_NAME_CHARACTERS)
    while position > earliest and text[position - 1] in _NAME_CHARS:
        position -= 1
    return position


_INNOCENT_NAMES = re.compile(
    r"(?:public|primary|foreign|partition|sort|cache|idempotency|dedup|group|object|s3|row|sha|hash|lookup|index|join)[_.-]?keys?$"
    r"|key(?:word|board|frame|note|stroke|ring)|tokens$|authors?$|authority|tokeni[sz]"
)
_PLACEHOLDER = re.compile(
    r"(?i)[<$%{*.\[].*|.*(?:\.\.\.|…|example|your[_-]|placeholder|changeme|xxxx|\*\*\*|redacted).*"
    r"|none|null|true|false|undefined|string|str|bytes|integer|number|boolean|optional\b.*|required|missing|invalid|expired"
    r"|hidden|empty|unset|password|passwd|secret|token|basic|bearer|self|args|kwargs|config|settings|environ|default"
)
_WORD_WITH_DIGITS = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[^\s]+")
_CODE = re.compile(r"[A-Za-z_]+(?:[._][A-Za-z_]+)+(?:\[.*)?|[A-Za-z_]+\[.*|os\.|process\.|self\.|/[\w./-]*|https?://.*")


# A signature grants access to what it signs.
_SIGNATURES = ("sig", "signature")


def is_secret_name(name: str) -> bool:
    """Return whether a value of that name is secret whatever it looks like, as in the query of a URL."""
    name = name.lower()
    is_named = any(word in name for word in (*_PASSWORDS, *_TOKENS, *_KEYS)) and not _INNOCENT_NAMES.search(name)
    return is_named or name.endswith(_SIGNATURES)


def is_secret_value_under_name(name: str, value: str, *, quoted: bool) -> bool:
    """Return whether a value of that name should be redacted."""
    name, value = name.lower(), value[:256]
    if len(value) < (4 if quoted else 5) or is_sample_value(value):
        return False
    is_password = any(word in name for word in _PASSWORDS)
    if not is_password and not _WORD_WITH_DIGITS.fullmatch(value):
        return False
    if _INNOCENT_NAMES.search(name) or _PLACEHOLDER.fullmatch(value) or (_CODE.fullmatch(value) and not quoted):
        return False
    if is_password:
        # More words are a sentence about passwords.
        return len(value.split()) <= 2
    if any(word in name for word in _TOKENS):
        return len(value) >= 8
    return any(word in name for word in _KEYS) and len(value) >= 20 and _compute_entropy(value) >= 3.0


def _compute_entropy(value: str) -> float:
    """Return bits per character; English words in snake case stay below 3, random hex is near 4."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())
