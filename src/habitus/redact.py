"""The one redactor: secrets leave a text before it is stored, indexed, shown, sent or learned from.

A secret is a value that we were given (`Redactor(secrets=…)`), or one whose shape or name gives it away.
Every pattern starts with a literal or is tried once per word, so that the work grows with the text and no faster.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote


@dataclass(frozen=True, kw_only=True, slots=True)
class Redacted:
    text: str
    counts: Mapping[str, int] = field(default_factory=dict)  # kind of secret → how many were taken out


class Redactor:
    """Knows the secret values of this process; the patterns are always on."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        self._known = tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling)))

    def redact(self, text: str) -> Redacted:
        counts: Counter[str] = Counter()
        for secret in self._known:
            if secret in text:
                counts["known"] += text.count(secret)
                text = text.replace(secret, marker("known"))
        for shape in _SHAPES:
            if any(literal in text for literal in shape.literals):
                text, found = shape.pattern.subn(shape.replacement, text)
                counts[shape.kind] += found
        text = _without_named_values(text, counts)
        return Redacted(text=text, counts={kind: count for kind, count in counts.items() if count})

    def redact_value(self, value: object) -> object:
        """The same value with every text inside it redacted; values under key-like names go whole."""
        match value:
            case str():
                return self.redact(value).text
            case Mapping():
                return {
                    self.redact(str(key)).text: marker("named")
                    if isinstance(item, str) and _is_named_secret(str(key), item, quoted=True)
                    else self.redact_value(item)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self.redact_value(item) for item in value]
            case _:
                return value


class CountingRedactor(Redactor):
    """Another redactor, and a count of what it took out so far."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor
        self.counts: Counter[str] = Counter()

    def redact(self, text: str) -> Redacted:
        redacted = self._redactor.redact(text)
        self.counts.update(redacted.counts)
        return redacted


def marker(kind: str) -> str:
    return f"[redacted:{kind}]"


MARKER = re.compile(r"\[redacted:[a-z_]+\]")
SHORTEST_KNOWN = 5  # a shorter value would blank out ordinary words


def _spellings(secret: str) -> set[str]:
    """A value as it is, and as JSON, URLs and base64 carry it."""
    secret = secret.strip()
    if len(secret) < SHORTEST_KNOWN:
        return set()
    encoded = base64.b64encode(secret.encode("utf-8", "surrogateescape")).decode()
    spellings = {
        secret,
        json.dumps(secret)[1:-1],
        quote(secret, safe="", errors="surrogateescape"),
        encoded.rstrip("="),
    }
    return {spelling for spelling in spellings if not re.fullmatch(r"\[?redacted:?[a-z_]*\]?", spelling)}


@dataclass(frozen=True, slots=True)
class _Shape:
    kind: str
    literals: tuple[str, ...]  # one of them must be in the text: a fast way to say no
    pattern: re.Pattern[str]
    replacement: str


def _key(kind: str, prefix: str, rest: str, *literals: str) -> _Shape:
    """A key of a known shape, standing alone: not the middle of a longer word.

    The look back comes after the prefix, because a pattern that starts with a literal is searched fifty times faster.
    """
    pattern = re.compile(rf"{prefix}(?<![A-Za-z0-9_-]{prefix}){rest}")
    return _Shape(kind, literals or (prefix,), pattern, marker(kind))


_HEADER = r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_FOOTER = r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_MIXED = r"(?=[A-Za-z_-]{0,64}[0-9])(?=[a-z0-9_-]{0,64}[A-Z])"  # words with hyphens are not keys

_SHAPES = (
    _Shape(
        "pem",
        ("PRIVATE KEY",),
        re.compile(rf"{_HEADER}(?:(?:[^-]++|-(?!----))*+{_FOOTER}|(?:(?:\s|\\[nr]){{0,4}}[A-Za-z0-9+/=]{{16,}}+)*+)"),
        marker("pem"),
    ),
    _Shape(
        "url",
        ("://",),
        re.compile(r"(://[^\s/:@'\"<>\[\]]{0,128}:)(?!\[redacted:)[^\s/@'\"<>]{1,256}@"),
        rf"\g<1>{marker('url')}@",
    ),
    _key("jwt", "eyJ", r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+"),
    *(_key("aws", prefix, r"[A-Z0-9]{16}(?![A-Za-z0-9])") for prefix in ("AKIA", "ASIA")),
    _key("github", "gh", r"[pousr]_[A-Za-z0-9]{30,}+"),
    _key("github", "github_pat_", r"[A-Za-z0-9_]{22,}+"),
    _key("gitlab", "glpat-", r"[A-Za-z0-9_.-]{20,}+"),
    _key("slack", "xox", r"[abeoprs]-[A-Za-z0-9-]{10,}+"),
    _key("slack", "xapp-", r"[A-Za-z0-9-]{10,}+"),
    _Shape("slack", ("hooks.slack.com/",), re.compile(r"hooks\.slack\.com/[A-Za-z0-9/_-]{20,}+"), marker("slack")),
    _key("google", "AIza", r"[A-Za-z0-9_-]{35,}+"),
    _key("google", r"ya29\.", r"[A-Za-z0-9_-]{20,}+", "ya29."),
    _key("google", "GOCSPX-", r"[A-Za-z0-9_-]{20,}+"),
    _key("anthropic", "sk-ant-", r"[A-Za-z0-9_-]{16,}+"),
    _key("openai", "sk-", rf"(?!ant-){_MIXED}[A-Za-z0-9_-]{{20,}}+"),
    *(
        _Shape("stripe", (use,), re.compile(rf"{use}(?<=[rs]{use})[A-Za-z0-9]{{16,}}+"), marker("stripe"))
        for use in ("k_live_", "k_test_")
    ),
    _key("stripe", "whsec_", r"[A-Za-z0-9+/=]{24,}+"),
    _key("huggingface", "hf_", r"[A-Za-z0-9]{30,}+"),
    _key("npm", "npm_", r"[A-Za-z0-9]{36,}+"),
    _key("pypi", "pypi-", r"[A-Za-z0-9_-]{50,}+"),
    _key("sendgrid", r"SG\.", r"[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+", "SG."),
    _key("groq", "gsk_", r"[A-Za-z0-9]{32,}+"),
    _key("xai", "xai-", r"[A-Za-z0-9]{32,}+"),
    _key("databricks", "dapi", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _Shape(
        "digitalocean",
        ("_v1_",),
        re.compile(r"_v1_(?<=do[opr]_v1_)[0-9a-f]{64}(?![A-Za-z0-9])"),
        marker("digitalocean"),
    ),
    _key("age", "AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}+"),
    _Shape("telegram", (":AA",), re.compile(r":AA(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{33,}+"), f":{marker('telegram')}"),
    *(
        _Shape(
            kind,
            (word,),
            re.compile(rf"({word} {{0,4}}){value}"),
            rf"\g<1>{marker(kind)}",
        )
        for word, kind, value in (
            ("earer ", "bearer", r"(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{16,}+"),
            ("BEARER ", "bearer", r"(?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{16,}+"),
            ("uthorization: Basic ", "basic", r"[A-Za-z0-9+/_-]{6,}+={0,2}"),
            ("uthorization: basic ", "basic", r"[A-Za-z0-9+/_-]{6,}+={0,2}"),
            ('uthorization": "Basic ', "basic", r"[A-Za-z0-9+/_-]{6,}+={0,2}"),
        )
    ),
)

_PASSWORDS = ("password", "passwd", "passphrase", "pwd")
_TOKENS = ("secret", "token", "credential", "apikey", "api_key", "api-key", "api key")
_KEYS = ("key", "auth", "session_id", "sessionid", "cookie")
# Without the first letter where that may be a capital: finding twenty words is much faster than one pattern for them.
_STEMS = (
    *("assw", "ASSW", "assphrase", "ASSPHRASE", "wd", "WD", "ecret", "ECRET", "oken", "OKEN", "redential", "REDENTIAL"),
    *("key", "Key", "KEY", "uth", "UTH", "ession", "ESSION", "ookie", "OOKIE"),
)
_ASSIGNED = re.compile(r"(?P<end>[A-Za-z0-9_]{0,24})[\"'\])]{0,2}\s{0,3}(?::=|=>|=|:)\s{0,3}")
_INNOCENT_NAMES = re.compile(
    r"(?:public|primary|foreign|partition|sort|cache|idempotency|dedup|group|object|s3|row|sha|hash|lookup|index|join)[_.-]?keys?$"
    r"|key(?:word|board|frame|note|stroke|ring)|tokens$|authors?$|authority|tokeni[sz]"
)
_VALUE = re.compile(
    r"\"(?P<double>[^\"\n]{4,128}+)|'(?P<single>[^'\n]{4,128}+)|(?P<bare>[^\s\"'`,;&<>(){}]{5,128}+)(?![({])"
)
_REST = {
    "double": re.compile(r"[^\"\n]*+"),
    "single": re.compile(r"[^'\n]*+"),
    "bare": re.compile(r"[^\s\"'`,;&<>(){}]*+"),
}
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_LONGEST_NAME = 40


def _without_named_values(text: str, counts: Counter[str]) -> str:
    """Takes out what stands after `password=`, `"api_key":` and the like, if it looks like a value, not like code."""
    pieces: list[str] = []
    done = 0
    for start, assigned in _assignments(text):
        value = _VALUE.match(text, assigned.end()) if start >= done else None
        if value is None or value.lastgroup is None or MARKER.search(value[value.lastgroup]):
            continue
        group = value.lastgroup
        name = text[_name_start(text, start, done) : assigned.end("end")]
        if _is_named_secret(name, value[group], quoted=group != "bare"):
            pieces += [text[done : value.start(group)], marker("named")]
            rest = _REST[group].match(text, value.end(group))
            done = rest.end() if rest else value.end(group)
            counts["named"] += 1
    return "".join([*pieces, text[done:]]) if pieces else text


def _assignments(text: str) -> list[tuple[int, re.Match[str]]]:
    """Where a key-like name is given a value: the start of its stem, and the match up to the value."""
    found: list[tuple[int, re.Match[str]]] = []
    for stem in _STEMS:
        start = text.find(stem)
        while start >= 0:
            assigned = _ASSIGNED.match(text, start + len(stem))
            if assigned:
                found.append((start, assigned))
            start = text.find(stem, start + len(stem))
    return sorted(found, key=lambda each: each[0])


def _name_start(text: str, position: int, earliest: int) -> int:
    earliest = max(earliest, position - _LONGEST_NAME)
    while position > earliest and text[position - 1] in _NAME_CHARS:
        position -= 1
    return position


_PLACEHOLDER = re.compile(
    r"(?i)[<$%{*.\[].*|.*(?:\.\.\.|…|example|your[_-]|placeholder|changeme|xxxx|\*\*\*|redacted).*"
    r"|none|null|true|false|undefined|string|str|bytes|integer|number|boolean|optional\b.*|required|missing|invalid|expired"
    r"|hidden|empty|unset|password|passwd|secret|token|basic|bearer|self|args|kwargs|config|settings|environ|default"
)
_WORD_WITH_DIGITS = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[^\s]+")
_CODE = re.compile(r"[A-Za-z_]+(?:[._][A-Za-z_]+)+(?:\[.*)?|[A-Za-z_]+\[.*|os\.|process\.|self\.|/[\w./-]*|https?://.*")


def _is_named_secret(name: str, value: str, *, quoted: bool) -> bool:
    name = name.lower()
    is_password = any(word in name for word in _PASSWORDS)
    if not is_password and not _WORD_WITH_DIGITS.fullmatch(value):
        return False
    if _INNOCENT_NAMES.search(name) or _PLACEHOLDER.fullmatch(value) or (_CODE.fullmatch(value) and not quoted):
        return False
    if is_password:
        return len(value.split()) <= 2  # more words are a sentence about passwords
    if any(word in name for word in _TOKENS):
        return len(value) >= 8
    return any(word in name for word in _KEYS) and len(value) >= 20 and _entropy(value) >= 3.0


def _entropy(value: str) -> float:
    """Bits per character; English words in snake case stay below 3, random hex is near 4."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


PATTERNS_ONLY = Redactor()
