"""Redacts keys by their shapes: one line per kind, recognised by its beginning.

A pattern starts with a literal and is tried only if one of its literals occurs in the text, which keeps the work
linear.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

MARKER = re.compile(r"\[redacted:[a-z_]+\]")


def build_redaction_marker(kind: str) -> str:
    """Return the text that replaces a secret of this kind."""
    return f"[redacted:{kind}]"


def redact_keys_by_shape(text: str, counts: Counter[str]) -> str:
    """Redact everything that has the shape of a key."""
    plain = replace_non_ascii(text)
    words = _extract_long_words(plain)
    for shape in _SHAPES if words else _LONGER_SHAPES:
        where = words if shape.is_one_word else plain
        for literal in shape.literals:
            if literal in where:
                clean = shape.redact_matches(text, counts, words)
                if clean is not text:
                    text, plain = clean, replace_non_ascii(clean)
                    words = _extract_long_words(plain)
                break
    return text


@dataclass(frozen=True, slots=True)
class KeySpan:
    """The position of a key in a text."""

    kind: str
    start: int
    end: int


def find_key_spans_by_shape(text: str) -> Iterator[KeySpan]:
    """Yield the keys of a short text that are recognised by their shape."""
    for shape in _SHAPES:
        if any(literal in text for literal in shape.literals):
            pattern = _compile_pattern(shape.pattern)
            for found in pattern.finditer(text):
                start = found.end(1) if pattern.groups else found.start()
                if not is_sample_value(text[start : found.end()]):
                    yield KeySpan(shape.kind, start, found.end())


@functools.cache
def list_key_prefixes() -> tuple[str, ...]:
    """Return the literals that keys of one word begin with or contain."""
    more = (":AA", "/webhooks/", "hooks.slack.com")
    return tuple({literal: None for shape in _SHAPES if shape.is_one_word for literal in shape.literals}) + more


def replace_non_ascii(text: str) -> str:
    """Replace every non-ASCII letter with a question mark, because ASCII text is searched much faster."""
    return text if text.isascii() else text.encode("ascii", "replace").decode("ascii")


def _extract_long_words(plain: str) -> str:
    """Return only the words that are long enough for a key: a small part of most texts."""
    marked = plain.encode("ascii").translate(_IN_WORDS)
    found = []
    start = marked.find(_LONG)
    while start >= 0:
        end = marked.find(b" ", start)
        end = len(plain) if end < 0 else end
        found.append(plain[start:end])
        start = marked.find(_LONG, end)
    return " ".join(found)


_SAMPLE_WORDS = re.compile(r"(?i)example|placeholder|your[_-]|changeme")
_FILLED = re.compile(r"[xX]{6,}|0{6,}|\*{4,}")
_MAX_SAMPLE_CHARACTERS = 100


def is_sample_value(value: str) -> bool:
    """Return whether a value is a placeholder from documentation: it says so, or is mostly filler."""
    if len(value) > _MAX_SAMPLE_CHARACTERS:
        return False
    filler = max(map(len, _FILLED.findall(value)), default=0)
    return 2 * filler >= len(value) or _SAMPLE_WORDS.search(value) is not None


@dataclass(frozen=True, slots=True)
class _KeyShape:
    """A kind of key with its pattern."""

    kind: str
    # One of them must occur in the text, which rejects most texts quickly.
    literals: tuple[str, ...]
    # Its group, if any, is kept.
    pattern: str
    # The whole match, including lookbehind, lies within one long word.
    is_one_word: bool = False
    # It may also begin in the middle of a word.
    is_anywhere: bool = False

    def redact_matches(self, text: str, counts: Counter[str], words: str) -> str:
        pattern = _compile_pattern(self.pattern)
        if self.is_one_word and not pattern.search(words):
            return text

        def replacement(found: re.Match[str]) -> str:
            kept = found[1] if pattern.groups else ""
            if self.kind != "pem" and is_sample_value(found[0][len(kept) :]):
                return found[0]
            counts[self.kind] += 1
            return kept + build_redaction_marker(self.kind)

        return pattern.sub(replacement, text)


def _build_word_character_table(more: str) -> bytes:
    """Return a translation table that maps letters, digits and these characters to `x`, and the rest to a space."""
    return bytes(120 if byte < 128 and (chr(byte).isalnum() or chr(byte) in more) else 32 for byte in range(256))


_IN_WORDS = _build_word_character_table("_-.+/=%:\\~")
# The shortest key: `xapp-` and ten more characters.
_LONG = b"x" * 15


# Compiled on demand: most texts need no pattern, and no process all of them.
@functools.cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(_ENDS, rf"(?:{_ENDS}|(?={_build_key_start_pattern()}))"))


@functools.cache
def _build_key_start_pattern() -> str:
    """Return a pattern for the beginnings of keys that occur inside words, because another key may end there."""
    return "|".join(re.escape(shape.literals[0]) for shape in _SHAPES if shape.is_anywhere)


_ESCAPES = (r"\\[abfnrtv0]", r"%[0-9A-Fa-f]{2}", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}", r"\\[0-7]{3}")


def _build_key_shape(kind: str, prefix: str, rest: str) -> _KeyShape:
    """Return the shape of a key with this prefix.

    A short or plain prefix must not be inside a longer word, as in `task-force`; an escaped line break before it is no
    word.
    """
    # The lookbehind follows the prefix, because a pattern that starts with a literal is searched fifty times faster.
    literal, prefix = prefix, re.escape(prefix)
    if literal.startswith("gh") or (len(literal) > 4 and not literal.isalnum()):
        return _KeyShape(kind, (literal,), prefix + rest, is_one_word=True, is_anywhere=True)
    escaped = "".join(f"|(?<={escape}{prefix})" for escape in _ESCAPES)
    whole = rf"{prefix}(?:(?<![A-Za-z0-9_-]{prefix}){escaped}){rest}"
    return _KeyShape(kind, (literal,), whole, is_one_word=True)


def _build_key_shape_with_context(kind: str, words: tuple[str, ...], pattern: str) -> _KeyShape:
    """Return the shape of a value that is recognised by its context."""
    return _KeyShape(kind, words, pattern)


_WORD = r"[A-Za-z0-9_-]"
# Digits and capitals are required, because words with hyphens are not keys.
_MIXED = r"(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])"
_ENDS = r"(?![A-Za-z0-9])"
_BREAK = r"(?:\s|\\+[nr]|%0[AaDd])"
_SPACE = r"(?: |%20|\+)"
_PRIVATE = rf"{_SPACE}(?:[A-Z0-9]{{1,16}}{_SPACE}){{0,3}}PRIVATE{_SPACE}KEY(?:{_SPACE}BLOCK)?-----"
_TOKEN = r"(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{16,}+"
_LOGIN = r"[A-Za-z0-9+/_-]{6,}+={0,2}"

_SHAPES = (
    _build_key_shape_with_context(
        "pem",
        ("PRIVATE",),
        rf"-----BEGIN{_PRIVATE}(?:(?:[^-]++|-(?!----))*+-----END{_PRIVATE}|(?:{_BREAK}{{0,4}}[A-Za-z0-9+/=]{{16,}}+)*+)",
    ),
    _build_key_shape_with_context(
        "url", ("://", ":\\/"), r"(:\\{0,3}/\\{0,3}/[^\s/:@'\"<>\[\]\\]{0,128}:)(?!\[redacted:)[^\s/@'\"<>]{1,256}(?=@)"
    ),
    _build_key_shape("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"),
    *(_build_key_shape("aws", prefix, rf"[A-Z0-9]{{16}}{_ENDS}") for prefix in ("AKIA", "ASIA")),
    *(_build_key_shape("github", f"gh{use}_", r"[A-Za-z0-9]{30,}+") for use in "pousr"),
    _build_key_shape("github", "github_pat_", r"[A-Za-z0-9_]{22,}+"),
    _build_key_shape("gitlab", "glpat-", r"[A-Za-z0-9_.-]{20,}+"),
    _build_key_shape("slack", "xox", r"[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _build_key_shape("slack", "xapp-", r"[A-Za-z0-9-]{10,}+"),
    _build_key_shape_with_context(
        "slack", ("hooks.slack.com",), r"hooks\.slack\.com(?:\\{0,3}/|%2[Ff])(?:[A-Za-z0-9_-]|\\{0,3}/|%2[Ff]){20,}+"
    ),
    _build_key_shape("google", "AIza", rf"{_WORD}{{35,}}+"),
    _build_key_shape("google", "ya29.", rf"{_WORD}{{20,}}+"),
    _build_key_shape("google", "GOCSPX-", rf"{_WORD}{{20,}}+"),
    _build_key_shape("anthropic", "sk-ant-", rf"{_WORD}{{16,}}+"),
    _build_key_shape("openai", "sk-", rf"(?!ant-){_MIXED}{_WORD}{{20,}}+"),
    *(_build_key_shape("stripe", f"{use}k_{of}_", r"[A-Za-z0-9]{16,}+") for use in "rs" for of in ("live", "test")),
    _build_key_shape("stripe", "whsec_", r"(?:[A-Za-z0-9+/=]|%2[BbFf]|%3[Dd]){24,}+"),
    _build_key_shape("huggingface", "hf_", r"[A-Za-z0-9]{30,}+"),
    _build_key_shape("npm", "npm_", r"[A-Za-z0-9]{36,}+"),
    _build_key_shape("pypi", "pypi-", rf"{_WORD}{{50,}}+"),
    _build_key_shape("sendgrid", "SG.", rf"{_WORD}{{16,}}+\.{_WORD}{{16,}}+"),
    _build_key_shape("groq", "gsk_", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("xai", "xai-", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("databricks", "dapi", rf"[0-9a-f]{{32}}{_ENDS}"),
    *(_build_key_shape("digitalocean", f"do{use}_v1_", rf"[0-9a-f]{{64}}{_ENDS}") for use in "opr"),
    _build_key_shape("age", "AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}+"),
    _build_key_shape_with_context("telegram", (":AA",), r"(:)AA(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{33,}+"),
    *(
        _build_key_shape("discord", first, rf"{_WORD}{{22,28}}\.{_WORD}{{5,8}}\.{_MIXED}{_WORD}{{27,}}+")
        for first in "MNO"
    ),
    _build_key_shape_with_context("discord", ("/webhooks/",), rf"(/webhooks/[0-9]{{16,20}}/){_WORD}{{40,}}+"),
    _build_key_shape("twilio", "SK", rf"[0-9a-f]{{32}}{_ENDS}"),
    _build_key_shape("mailgun", "key-", rf"[0-9a-f]{{32}}{_ENDS}"),
    *(_build_key_shape("shopify", f"shp{use}_", rf"[0-9a-fA-F]{{32}}{_ENDS}") for use in ("at", "ca", "pa", "ss")),
    _build_key_shape("linear", "lin_api_", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("notion", "ntn_", r"[A-Za-z0-9]{40,}+"),
    _build_key_shape("newrelic", "NRAK-", r"[A-Z0-9]{24,}+"),
    _build_key_shape("vault", "hvs.", rf"{_WORD}{{20,}}+"),
    _build_key_shape("doppler", "dp.pt.", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("grafana", "glsa_", r"[A-Za-z0-9_]{32,}+"),
    _build_key_shape("postman", "PMAK-", r"[A-Za-z0-9-]{40,}+"),
    _build_key_shape("atlassian", "ATATT3", r"[A-Za-z0-9_=-]{40,}+"),
    _build_key_shape("replicate", "r8_", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("perplexity", "pplx-", r"[A-Za-z0-9]{32,}+"),
    _build_key_shape("tavily", "tvly-", r"[A-Za-z0-9-]{24,}+"),
    _build_key_shape("docker", "dckr_pat_", rf"{_WORD}{{20,}}+"),
    _build_key_shape("supabase", "sbp_", rf"[0-9a-f]{{40}}{_ENDS}"),
    _build_key_shape("figma", "figd_", rf"{_WORD}{{32,}}+"),
    _build_key_shape("rubygems", "rubygems_", rf"[0-9a-f]{{48}}{_ENDS}"),
    *(_build_key_shape_with_context("bearer", (word,), rf"({word} {{1,4}}){_TOKEN}") for word in ("earer", "EARER")),
    *(
        _build_key_shape_with_context("basic", (word,), rf"({word}[^A-Za-z0-9\n]{{1,12}}(?i:basic) {{1,4}}){_LOGIN}")
        for word in ("uthorization", "UTHORIZATION")
    ),
    _build_key_shape_with_context(
        "basic", ("curl ",), r"(curl [^\n]{0,200}?-u ?['\"]?[A-Za-z0-9_.@-]{1,64}:)(?![0-9]{1,8}\b)[^\s'\"\[]{4,128}"
    ),
)
_LONGER_SHAPES = tuple(shape for shape in _SHAPES if not shape.is_one_word)
