"""Rules as data: patterns, words, hosts and intents, read from `rules/*.toml` when first asked for; commands found in
text, and where its addresses lead."""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Any

from habitus.screening.findings import Category, Risk

_PIECE = re.compile(r"%(\w+)%")
_ORDER_GAP = 6  # words between the parts of an order
_HOST = re.compile(r"(?:\w+://(?:[^\s/@]{1,64}@)?|[^@]{1,64}@)([\w.-]{1,253})")

Slots = frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A pattern over lower-case text, tried only where one of its cues stands."""

    name: str
    category: Category
    in_prose: Risk
    in_code: Risk
    why: str
    cues: tuple[str, ...]
    match: str
    needs: str = ""  # the kind of host that the command must name

    @property
    def pattern(self) -> re.Pattern[str]:
        return _compiled(self.match)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One of these slots is in the sentence, or before it; or none of them is."""

    slots: Slots
    before: Slots
    is_refused: bool


Way = tuple[Group, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """Slots that meet in one sentence: of each group one, in order and at most `gap` words apart."""

    name: str
    category: Category
    risk: Risk
    why: str
    concern: str  # the same, as memory says it; empty where memory does not ask
    ways: tuple[Way, ...]
    unless: Slots
    gap: int

    def is_met(self, words: Sequence[Slots], own: Slots, around: Slots) -> bool:
        return any(self.is_said(way, words, own, around) for way in self.ways)

    def is_said(self, way: Way, words: Sequence[Slots], own: Slots, around: Slots) -> bool:
        """Is it meant in this one of its ways?"""
        if not self.unless.isdisjoint(own) and "unwarned" not in own:
            return False
        placed = []
        for group in way:
            if not group.before.isdisjoint(around):
                continue
            if group.is_refused != group.slots.isdisjoint(own):
                return False
            if not group.is_refused:
                placed.append(group.slots)
        return self._stands(placed, words)

    def _stands(self, groups: Sequence[Slots], words: Sequence[Slots]) -> bool:
        """Do they stand in order, the first of them not negated?"""
        if not groups:
            return True
        first, *others = groups
        refused = frozenset(f"-{name}" for name in first)
        reached = {place for place, word in enumerate(words) if first & word and not refused & word}
        for group in others:
            near = {place + step for place in reached for step in range(1, self.gap + 2)}
            reached = {place for place in near if place < len(words) and group & words[place]}
        return bool(reached)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    rented: frozenset[str]
    known: frozenset[str]
    nowhere: frozenset[str]
    services: Mapping[str, frozenset[str]]  # what keys are named after → where they belong


@functools.cache
def commands() -> tuple[Rule, ...]:
    table = read("commands")
    pieces: dict[str, str] = table.pop("pieces") | {"service_key": _service_key().pattern}
    return tuple(
        Rule(
            name=name,
            category=Category(category),
            in_prose=Risk(row.get("in_prose", row.get("in_code", "high"))),
            in_code=Risk(row.get("in_code", "high")),
            why=row["why"],
            cues=tuple(row["cues"].split("|")),
            match=_PIECE.sub(lambda piece: pieces[piece[1]], row["match"]),
            needs=row.get("needs", ""),
        )
        for category, rows in table.items()
        for name, row in rows.items()
    )


@functools.cache
def all_cues() -> frozenset[str]:
    return frozenset(cue for rule in commands() for cue in rule.cues)


@functools.cache
def intents() -> tuple[Intent, ...]:
    return tuple(
        intent
        for category, rows in read("intents").items()
        for name, row in rows.items()
        for intent in _intents(Category(category), name, row)
    )


@functools.cache
def ways_by_slot() -> Mapping[str, Sequence[tuple[Intent, Way]]]:
    """The ways to say an intent, by the slots of the group that the fewest words have: most sentences have none."""
    entries = {slot: text.count(",") for slot, text in read("words")["english"].items()}

    def commonness(group: Group) -> int:
        return sum(entries.get(slot.lstrip("-~!"), 0) for slot in group.slots)

    found: dict[str, list[tuple[Intent, Way]]] = {}
    for intent in intents():
        for way in intent.ways:
            rarest = min((group for group in way if not (group.before or group.is_refused)), key=commonness)
            for slot in rarest.slots:
                found.setdefault(slot, []).append((intent, way))
    return found


@functools.cache
def lesson_intents() -> tuple[Intent, ...]:
    """What else may not meet in a lesson."""
    rows = read("lessons")["intents"].items()
    return tuple(intent for name, row in rows for intent in _intents(Category.PROMPT_INJECTION, name, row))


def _intents(category: Category, name: str, row: dict[str, Any]) -> Iterator[Intent]:
    """Of one row: the ways to speak of a deed, and those to order it."""
    said, unless = row.get("slots", ""), row.get("unless", "attack warns")
    for ways, excused in ((said, unless), (row.get("orders", ""), "warns defends")):
        gap, _, slots = ways.rpartition(":")
        if slots:
            yield Intent(
                name=name,
                category=category,
                risk=Risk(row.get("risk", "high")),
                why=row.get("why", ""),
                concern=row.get("concern", ""),
                ways=tuple(tuple(map(_group, way.split())) for way in slots.split(";")),
                unless=frozenset(excused.split()),
                gap=int(gap or _ORDER_GAP),
            )


def _group(names: str) -> Group:
    every = names.lstrip("^").split("|")
    before = frozenset(name[1:] for name in every if name[0] == "+")
    return Group(slots=frozenset(every), before=before, is_refused=names[0] == "^")


@functools.cache
def hosts() -> Hosts:
    table = read("hosts")
    services = {name: frozenset(domains.split()) for name, domains in table.pop("services").items()}
    return Hosts(services=services, **{name: frozenset(names.split()) for name, names in table.items()})


def host_of(address: str) -> str:
    found = _HOST.match(address)
    return found[1].strip(".") if found else ""


@functools.lru_cache(maxsize=4_096)
def path_slots(path: str) -> Slots:
    """The kinds of files that a path names: those that hold credentials, and those that instruct agents."""
    return frozenset(name for name in ("secret_path", "steering_path", "script_path") if _piece(name).search(path))


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("habitus.screening") / "rules" / f"{name}.toml").read_text("utf-8"))


@functools.cache
def _piece(name: str) -> re.Pattern[str]:
    return re.compile(read("commands")["pieces"][name])


_compiled = functools.cache(re.compile)


_MOST = 200  # matches of one rule in one file; the first say enough


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    rule: Rule
    start: int
    end: int


def found_commands(lower: str) -> Iterator[Match]:
    """Every place where a rule matches; patterns have no endless repetition, so each opening costs the same at most."""
    standing = {cue: places for cue in _likely_cues(lower) if (places := list(_places(lower, cue)))}
    for rule in commands() if standing else ():
        end, count = -1, 0
        for place in sorted({place for cue in rule.cues for place in standing.get(cue, ())}):
            before = lower[place - 1 : place]
            if place < end or count >= _MOST or (lower[place].isalnum() and (before.isalnum() or before == "_")):
                continue
            if found := rule.pattern.match(lower, place):
                end, count = found.end(), count + 1
                yield Match(rule=rule, start=place, end=end)


def _likely_cues(lower: str) -> Iterator[str]:
    """Those that may open something in a text: nothing is opened in the middle of a word, so most are told from the
    first letters of its words, where looking for each would take a third of a scan."""
    anywhere, by_head = _cues_by_head()
    heads = set(_HEADS.findall(lower))
    return chain(anywhere, *(by_head[head] for head in heads & by_head.keys()))


@functools.cache
def _cues_by_head() -> tuple[Sequence[str], Mapping[str, Sequence[str]]]:
    """Cues without a word at their beginning, or a short one that may be longer in a text; and the others."""
    anywhere: list[str] = []
    by_head: dict[str, list[str]] = {}
    for cue in sorted(all_cues()):
        head = _HEADS.match(cue)
        if head is None or (head.end() == len(cue) and head.end() < _HEAD):
            anywhere.append(cue)
        else:
            by_head.setdefault(head[0], []).append(cue)
    return anywhere, by_head


_HEAD = 3
_HEADS = re.compile(rf"\b[^\W_]{{1,{_HEAD}}}")


def _places(lower: str, cue: str) -> Iterator[int]:
    place = lower.find(cue)
    while place >= 0:
        yield place
        place = lower.find(cue, place + 1)


_ADDRESS = re.compile(
    r"(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]{1,64}@)?([\w.-]{1,253})|(?<=[\w.+-])@((?:[\w-]{1,63}\.){1,5}[a-z]{2,24})\b"
)
_PUBLIC = re.compile(r"(?!(?:127|10|0)\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.)\d{1,3}(?:\.\d{1,3}){3}")
_ELSEWHERE = 3  # how often a skill names a host that is its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """Which hosts a skill is at home with: those it names again and again, and those named like itself."""

    own: Mapping[str, int]
    about: str

    def kind(self, host: str) -> str:
        """Where an address leads; empty for examples and the machine itself."""
        if host.replace(".", "").isdigit():
            return "foreign_host" if _PUBLIC.fullmatch(host) else ""
        domain = domain_of(host)
        if "." not in host or domain in hosts().nowhere or host.rpartition(".")[2] in hosts().nowhere:
            return ""
        if domain in hosts().rented:
            return "foreign_host"
        if domain in hosts().known:
            return "known_host"
        is_own = self.own.get(domain, 0) >= _ELSEWHERE or domain.partition(".")[0] in self.about
        return "own_host" if is_own else "foreign_host"


def neighbourhood(texts: Iterable[str], about: str) -> Neighbourhood:
    named = Counter(domain_of(host) for text in texts for _, host in addresses(text))
    return Neighbourhood(own=named, about=_ADDRESS.sub(" ", about.lower()))


@functools.lru_cache(maxsize=32)
def addresses(lower: str) -> Sequence[tuple[int, str]]:
    """Where addresses stand, and their hosts; remembered, because a text is asked several times in a row."""
    if "://" not in lower and "@" not in lower:
        return ()
    return tuple((found.start(), (found[1] or found[2]).strip(".")) for found in _ADDRESS.finditer(lower))


_GIVEN = re.compile(r"\$(?:env:)?\{?(\w{2,60}|\W)|environ(?:\.get)?[\[(][\"'](\w{2,60})|[=\s](@)")


def is_own_key(command: str, host: str) -> bool:
    """Does a command hand a host nothing but what is named after it, as a key of its own is?"""
    given, name = ["".join(found) for found in _GIVEN.findall(command)], domain_of(host).partition(".")[0]
    return bool(given) and all(one.startswith(f"{name}_") for one in given)


@functools.cache
def _service_key() -> re.Pattern[str]:
    """The name of a key that belongs to one service: `GITHUB_TOKEN`, `stripe.api_key`."""
    names = "|".join(hosts().services)
    return re.compile(rf"(?<![a-z0-9])({names})[_.](?:\w{{1,30}}_)?(?:token|key|secret|pat|password)\b")


def services_of(text: str) -> frozenset[str]:
    """The services whose keys a text names."""
    return frozenset(_service_key().findall(text.lower()))


def is_of_another(service: str, host: str) -> bool:
    return domain_of(host) not in hosts().services[service] and service not in host.split(".")


def is_rented(host: str) -> bool:
    return domain_of(host) in hosts().rented


def domain_of(host: str) -> str:
    return ".".join(host.split(".")[-2:])
