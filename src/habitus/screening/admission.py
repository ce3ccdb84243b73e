"""Which texts may enter memory by themselves: descriptions may, orders that would turn the agent may not. Pure.

A lesson is read by a model later, so a text that somebody planted in a web page must not become a standing order on the
way. What is held back is not lost: it waits for a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from anyascii import anyascii

from habitus.screening.findings import Policy, Risk, excerpt_of, held_texts
from habitus.screening.readable import plain
from habitus.screening.rules import found_commands, intents, lesson_intents, neighbourhood
from habitus.screening.sentences import sentences

_LONGEST = 4_000
_MOST_SENTENCES = 24
_NOWHERE = neighbourhood((), "")
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


def objection(text: str, policy: Policy = Policy()) -> Objection | None:  # noqa: B008 - a frozen value
    """What speaks against keeping this text unasked; None for an ordinary one."""
    for reading in _readings(text[:_LONGEST]):
        if found := next((one for one in _objections(reading, policy) if one.rule not in policy.silence), None):
            return found
    return None


def _objections(text: str, policy: Policy) -> Iterator[Objection]:
    """By what the user wants held, by harmful commands, and by the intents."""
    lower = text.lower()
    for _, held, why in held_texts(lower, policy):
        yield Objection(rule="hold", concern=why, found=held)
    for match in found_commands(lower):
        is_forged = match.rule.name == "forged_turn"
        if is_forged or (match.rule.in_code is Risk.HIGH and (not match.rule.needs or "://" in lower)):
            why = f"it holds a command. {match.rule.why.rstrip('.')}"
            yield Objection(rule=match.rule.name, concern=why, found=excerpt_of(lower[match.start : match.end]))
    for table, asked in (("words", intents()), ("lessons", lesson_intents())):
        for sentence in islice(sentences(text, _NOWHERE.kind, table), _MOST_SENTENCES):
            for intent in asked:
                if intent.concern and intent.is_met(sentence.words, sentence.own, sentence.around):
                    yield Objection(rule=intent.name, concern=intent.concern, found=excerpt_of(sentence.text))


def _readings(text: str) -> Iterator[str]:
    """The text as a model would read it: without hiding places, each of them tried."""
    seen = _MIXED.sub(lambda word: anyascii(word.group()), plain(text).casefold())
    yield seen
    if _SPACED_OUT.search(seen):
        yield re.sub(r"(?<=\b\w)[ .·_-](?=\w\b)", "", seen)
    if _LEET.search(seen):
        yield seen.translate(_LEET_LETTERS)
