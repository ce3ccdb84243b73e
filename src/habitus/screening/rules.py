"""Rules as data: patterns, words, hosts and intents, read from `rules/*.toml` when first asked for."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from operator import itemgetter
from typing import Any

from habitus.screening.findings import Category, Risk

_PIECE = re.compile(r"%(\w+)%")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A pattern over lower-case text, tried only where one of its cues stands."""

    name: str
    category: Category
    risk: Risk | None  # in prose; None: a sign that says nothing alone
    in_code: Risk | None
    why: str
    cues: tuple[str, ...]
    match: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return _compiled(self.match)


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """Slots that meet in one sentence: of each group one, in order and at most `gap` words apart if it has one."""

    name: str
    category: Category
    risk: Risk
    why: str
    concern: str  # the same, as memory says it; empty where memory leaves it to the learned look
    groups: tuple[frozenset[str], ...]
    unless: frozenset[str]
    gap: int | None

    def may_be_met(self, slots: frozenset[str]) -> bool:
        return all(not group.isdisjoint(slots) for group in self.groups) and self.unless.isdisjoint(slots)

    def is_met(self, words: Sequence[frozenset[str]], signs: frozenset[str] = frozenset()) -> bool:
        """Are none of the groups negated, and do they stand in order? Signs and what stands around have no place."""
        placed = [group for group in self.groups if group.isdisjoint(signs)]
        if self.gap is None:
            found = frozenset().union(*words)
            return all(found & {f"-{name}" for name in group} == frozenset() for group in placed)
        if not placed:
            return True
        first, *others = placed
        refused = frozenset(f"-{name}" for name in first)
        reached = {place for place, word in enumerate(words) if first & word and not refused & word}
        for group in others:
            near = {place + step for place in reached for step in range(self.gap + 1)}
            reached = {place for place in near if place < len(words) and group & words[place]}
        return bool(reached)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    rented: frozenset[str]
    known: frozenset[str]
    nowhere: frozenset[str]


@functools.cache
def commands() -> tuple[Rule, ...]:
    table = read("commands")
    pieces: dict[str, str] = table.pop("pieces")
    return tuple(
        Rule(
            name=name,
            category=Category(category),
            risk=Risk(row["risk"]) if "risk" in row else None,
            in_code=Risk(row["in_code"]) if "in_code" in row else None,
            why=row["why"],
            cues=tuple(row["cues"].split("|")),
            match=_PIECE.sub(lambda piece: pieces[piece[1]], row["match"]),
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
        Intent(
            name=name,
            category=Category(category),
            risk=Risk(row.get("risk", "high")),
            why=row["why"],
            concern=row.get("concern", ""),
            groups=tuple(frozenset(group.split("|")) for group in row["slots"].split()),
            unless=frozenset(row.get("unless", "warns").split()),
            gap=row.get("gap"),
        )
        for category, rows in read("intents").items()
        for name, row in rows.items()
    )


def intents_in(slots: frozenset[str]) -> list[Intent]:
    """Those whose slots a sentence has. Few are tried: only the ones whose narrowest group it touches."""
    by_slot = _by_slot()
    touched = dict(sorted(chain.from_iterable(by_slot.get(name, ()) for name in slots), key=itemgetter(0)))
    return [intent for intent in touched.values() if intent.may_be_met(slots)]


@functools.cache
def _by_slot() -> Mapping[str, Sequence[tuple[int, Intent]]]:
    found: dict[str, list[tuple[int, Intent]]] = {}
    for at, intent in enumerate(intents()):
        for name in min(intent.groups, key=len):
            found.setdefault(name, []).append((at, intent))
    return found


@functools.cache
def hosts() -> Hosts:
    return Hosts(**{name: frozenset(names.split()) for name, names in read("hosts").items()})


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("habitus.screening") / "rules" / f"{name}.toml").read_text("utf-8"))


@functools.cache
def names() -> Mapping[str, str]:
    """Every rule that patterns and intents have, with why it matters."""
    return {rule.name: rule.why for rule in commands()} | {intent.name: intent.why for intent in intents()}


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
