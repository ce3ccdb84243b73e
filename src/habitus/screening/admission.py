"""Which texts may enter memory by themselves: descriptions may, orders that would turn the agent may not. Pure.

A lesson is read by a model later, so a text that somebody planted in a web page must not become a standing order on the
way. What is held back is not lost: it waits for a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anyascii import anyascii

from habitus.screening import learned
from habitus.screening.findings import Risk, excerpt_of
from habitus.screening.patterns import Work, addresses, found_commands, neighbourhood
from habitus.screening.policy import Policy, held_texts
from habitus.screening.readable import plain
from habitus.screening.rules import intents
from habitus.screening.slots import Sentence, Slots, sentences, words_of

_LONGEST = 4_000
_MOST_SENTENCES = 24
_SPACED_OUT = re.compile(r"(?:\b\w[ .·_-]){4,}\w\b")
_LEET = re.compile(r"[a-z][013457@$][a-z]|\b[013457@$][a-z]{3}")
_LEET_LETTERS = str.maketrans("013457@$", "oieastas")
_MIXED = re.compile(r"\b(?=\w*[a-z])(?=\w*[\u0370-\u04ff])\w+\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Why a text waits for a person."""

    rule: str
    concern: str
    found: str

    @property
    def reason(self) -> str:
        shown = self.found if len(self.found) <= 60 else f"{self.found[:59]}…"
        return f"{self.concern}: “{shown}”"


def objection(text: str, embedder: learned.WordVectors | None = None, policy: Policy = Policy()) -> Objection | None:  # noqa: B008
    """What speaks against keeping this text unasked; None for an ordinary one."""
    for reading in _readings(text[:_LONGEST]):
        found = (one for one in _said(reading, policy) if one.rule not in policy.silence)
        if first := next(found, None):
            return first
    return _learned(plain(text[:_LONGEST]), embedder) if "works_as_order" not in policy.silence else None


def _said(text: str, policy: Policy) -> Iterator[Objection]:
    """By what the user wants held, by harmful commands, and by the intents."""
    lower = text.lower()
    for _, held, why in held_texts(lower, policy):
        yield Objection(rule="hold", concern=why, found=held)
    signs = _signs(lower)
    for match in found_commands(lower, Work())[0]:
        if match.rule.risk is Risk.HIGH or (match.rule.in_code is Risk.HIGH and "known_host" not in signs):
            why = f"it holds a command. {match.rule.why.rstrip('.')}"
            yield Objection(rule=match.rule.name, concern=why, found=excerpt_of(lower[match.start : match.end]))
    for sentence in _sentences(text, signs):
        words = words_of(sentence.text)
        for intent in intents():
            if intent.concern and intent.may_be_met(sentence.slots) and intent.is_met(words, signs):
                yield Objection(rule=intent.name, concern=intent.concern, found=excerpt_of(sentence.text))


def _learned(text: str, embedder: learned.WordVectors | None) -> Objection | None:
    weights = learned.weights(embedder)
    read = read_lesson(text)
    scores = learned.scores(read, weights, embedder) if read else []
    if max(scores, default=weights.lesson_floor - 1) < weights.lesson_floor:
        return None
    worst = read[scores.index(max(scores))]
    return Objection(
        rule="works_as_order", concern="it may work as an order or a permission", found=excerpt_of(worst.text)
    )


def read_lesson(text: str) -> list[Sentence]:
    """A lesson as the learned look reads it."""
    return _sentences(text, _signs(text.lower()))


def _sentences(text: str, signs: Slots) -> list[Sentence]:
    return sentences(text, dict.fromkeys(range(1, text.count("\n") + 2), signs))[:_MOST_SENTENCES]


def _signs(lower: str) -> Slots:
    hosts = neighbourhood((), "")
    kinds = {hosts.kind(host) for _, host in addresses(lower)} - {""}
    kinds = {"foreign_host" if kind in ("rented_host", "numeric_host") else kind for kind in kinds}
    return frozenset(kinds | {match.rule.name for match in found_commands(lower, Work())[0]})


def _readings(text: str) -> Iterator[str]:
    """The text as a model would read it: without hiding places, each of them tried."""
    seen = _MIXED.sub(lambda word: anyascii(word.group()), plain(text).casefold())
    yield seen
    if _SPACED_OUT.search(seen):
        yield re.sub(r"(?<=\b\w)[ .·_-](?=\w\b)", "", seen)
    if _LEET.search(seen):
        yield seen.translate(_LEET_LETTERS)
