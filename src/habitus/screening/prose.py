"""Recognises deeds in sentences: an act with its object, and a second sign that has nothing to do with the words.

A second sign is a foreign host, a concealment from the person, that nobody is asked, or the place: a model reads a
description, a lesson or a hidden text unasked. An excuse counts only in the sentence itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from habitus.screening.findings import Deed, Risk
from habitus.screening.hosts import HostClassifier, find_hosts, read_table
from habitus.screening.statements import Statement

_FORBIDS = re.compile(r"\b(?:never|not|no|avoid)\b|n't\b")
_WINDOW = 3  # statements before, in which a secret was read that "it" stands for
_HARMFUL_VERBS = ("destroy", "send", "run", "open", "weaken")
_OBEYS = re.compile(r"obey|follow|execute|carry out|act on|do\b")
_NEAR = 110  # characters between a verb and its object


@functools.cache
def lexicon() -> dict[str, re.Pattern[str]]:
    """Return the patterns of `rules/prose.toml` by name."""
    table = dict(read_table("prose"))
    words = {f"{name}s_verb": rf"(?<![\w./~$-])(?:{text})(?![\w-]|\.\w)" for name, text in table.pop("verbs").items()}
    for part in (part for part in table.values() if isinstance(part, dict)):
        words |= {name: text for name, text in part.items() if isinstance(text, str)}
    return {name: re.compile(text) for name, text in words.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProseFinding:
    deed: Deed
    severity: Risk
    statement: Statement
    why: str


def find_prose_deeds(
    statements: Sequence[Statement], hosts: HostClassifier, *, is_prompt: bool = False
) -> Iterator[ProseFinding]:
    """Return the deeds that the statements order; `is_prompt` says that a model reads them unasked."""
    whole = "\n".join(one.text for one in statements).lower().replace("’", "'")
    names = [name for name in read_table("prose")["cues"].split() if lexicon()[name].search(whole)]
    if not names and "." not in whole and not is_prompt:
        return
    read = [ReadStatement(one, hosts, is_prompt or one.is_description, names) for one in statements]
    for place, one in enumerate(read):
        if not one.may_matter:
            continue
        before = read[max(0, place - _WINDOW) : place]
        around = [*before, *read[place + 1 : place + 2]]
        for deed, why, is_held in one.deeds(before, around):
            is_excused = one.is_excused_for(deed) and not one.is_plain_theft
            severity = Risk.HIGH if is_held and not is_excused else Risk.NOTE
            yield ProseFinding(deed=deed, severity=severity, statement=one.statement, why=why)


def is_command_excused(sentence: str, before: str) -> bool:
    """Whether the sentence around a command forbids it, shows it as an attack, or asks the person first."""
    lower = before.lower()
    if run := lexicon()["run_words"].search(lower):
        lower = lower[: run.start()]
    sentence = sentence.lower()
    return _is_negated(lower, len(lower)) or lexicon()["attack"].search(sentence) is not None or _asks_first(sentence)


def _asks_first(lower: str) -> bool:
    return any(not _is_negated(lower, found.start()) for found in lexicon()["asks_first"].finditer(lower))


def _is_negated(lower: str, at: int) -> bool:
    before = lower[max(0, at - 110) : at]
    if (
        lexicon()["negated"].search(before)
        or lexicon()["no_subject"].search(before)
        or lexicon()["labelled"].search(before)
    ):
        return True
    listed = lexicon()["negated_list"].search(before)
    return listed is not None and not lexicon()["unsaid"].search(listed["between"])


@dataclass
class ReadStatement:
    """A statement with the acts, objects and signs in it, each looked for when it is first asked."""

    statement: Statement
    hosts: HostClassifier
    is_prompt: bool
    cues: Sequence[str]  # the objects and orders that the page has at all

    @property
    def is_lesson(self) -> bool:
        return self.is_prompt and not self.statement.is_description

    @cached_property
    def lower(self) -> str:
        return self.statement.text.lower().replace("’", "'")

    @cached_property
    def may_matter(self) -> bool:
        """Whether there is an object of a deed or an order at all; most statements have none."""
        return (
            self.is_lesson
            or any(lexicon()[name].search(self.lower) for name in self.cues)
            or bool(self.host)
            or (self.is_prompt and self._has("universal"))
        )

    @cached_property
    def host(self) -> str:
        return self.hosts.foreign_host(self.lower) if "." in self.lower or "://" in self.lower else ""

    @cached_property
    def is_concealed(self) -> bool:
        return self._has_unguarded("conceal") or self._has("other_conceal")

    @cached_property
    def is_unasked(self) -> bool:
        return self._has_unguarded("unasked") or self._has("other_unasked")

    def is_excused_for(self, deed: Deed) -> bool:
        """Whether the sentence shows an attack or asks first; asking excuses no claim to authority or secrecy."""
        return lexicon()["attack"].search(self.lower) is not None or (
            deed not in (Deed.OVERRIDES, Deed.CONCEALS) and _asks_first(self.lower)
        )

    @cached_property
    def is_plain_theft(self) -> bool:
        """A command, a foreign host and a secret are never excused."""
        return (
            bool(self.host)
            and self._has("secret")
            and re.search(r"\b(?:curl|wget|nc|scp|rsync)\s+\S*[-@/$~]", self.lower) is not None
        )

    def _has(self, name: str) -> bool:
        return lexicon()[name].search(self.lower) is not None

    def _has_unguarded(self, name: str) -> bool:
        """Whether a sign is there that is not itself forbidden: "never delete anything without asking" is careful."""
        found = lexicon()[name].finditer(self.lower)
        return any(not lexicon()["guarded"].search(self.lower, max(0, one.start() - 90), one.start()) for one in found)

    def acts(self, verb: str) -> list[re.Match[str]]:
        """The places of a verb that is ordered rather than forbidden."""
        return [
            found
            for found in lexicon()[f"{verb}s_verb"].finditer(self.lower)
            if not _is_negated(self.lower, found.start())
            and (
                not found[0].endswith(("ed", "sent"))
                or lexicon()["passive"].search(self.lower, max(0, found.start() - 24), found.start())
            )
        ]

    def orders(self, verb: str) -> list[re.Match[str]]:
        """The places of a verb that tells the reader to do something, rather than what something does."""
        return [
            found
            for found in self.acts(verb)
            if (self.is_prompt or not found[0].endswith(("s", "ing", "ed")))
            and lexicon()["ordered"].search(self.lower, max(0, found.start() - 30), found.start())
        ]

    def act_on(self, verb: str, name: str) -> str:
        """Return the object of a verb that is ordered, as it stands there; empty if there is none near it."""
        objects = list(lexicon()[name].finditer(self.lower))
        for act in self.acts(verb) if objects else ():
            for one in objects:
                is_passive = 0 <= act.start() - one.end() <= 30 and lexicon()["passive"].search(
                    self.lower, one.end(), act.start()
                )
                if 0 <= one.start() - act.end() <= _NEAR or is_passive:
                    return self.statement.text[one.start() : one.end()].strip()
        return ""

    def is_ordered_on(self, verb: str, what: str) -> bool:
        """Whether a verb with this object is an order to the reader."""
        at = self.lower.find(what.lower())
        return any(0 <= at - act.end() <= _NEAR for act in self.orders(verb))

    def deeds(
        self, before: Sequence[ReadStatement], around: Sequence[ReadStatement]
    ) -> Iterator[tuple[Deed, str, bool]]:
        hides = self.is_concealed or any(
            one.is_concealed and one.statement.unit - self.statement.unit in (-1, 0, 1) for one in around
        )
        hides = hides or self._has("stealth")
        second = hides or self.is_unasked
        yield from self._sending(before, second)
        yield from self._running(before, hides)
        if (what := self.act_on("destroy", "belongings")) and not lexicon()["own_files"].search(self.lower):
            whole = (
                re.search(r"\b(?:all|every\w*|each|entire|whole|complete|home directory)\b|~/?$|home$", self.lower)
                is not None
            )
            is_last = re.search(r"hard|main|system|backups|history|production|user|customer", what.lower()) is not None
            yield (
                Deed.DESTROYS,
                f"Destroys {what}.",
                second or whole or (is_last and self.is_ordered_on("destroy", what)),
            )
        if what := self.act_on("persist", "startup"):
            is_self = lexicon()["itself"].search(self.lower) is not None and self.is_ordered_on("persist", what)
            yield (
                Deed.STARTS_ITSELF,
                f"Makes something start by itself ({what}).",
                bool(self.host) or hides or self._has("stranger") or is_self,
            )
        yield from self._opening(second)
        yield from self._overriding(hides)

    def _sending(self, before: Sequence[ReadStatement], second: bool) -> Iterator[tuple[Deed, str, bool]]:
        target = self.host or next(iter(find_hosts(self.lower)), "")
        where = f" to {target}" if target else ""
        if (
            what := self.act_on("send", "secret")
            or self._read_before(before)
            or (self.is_lesson and self.act_on("send", "weak_secret"))
        ):
            is_login = lexicon()["logs_in"].search(self.lower) is not None and not re.search(
                r"[./]|password|private|cookie|environment", what
            )
            is_far = (
                bool(self.host) or second or self.is_lesson or (self._has("stranger") and bool(self.orders("send")))
            )
            contents = "the contents of " if "/" in what or what.startswith(".") else ""
            yield Deed.SENDS_SECRETS, f"Sends {contents}{what}{where}.", (is_far and not is_login)
        elif self._has("other_secrets"):
            yield Deed.SENDS_SECRETS, f"Sends passwords{where}.", bool(self.host) or second or self.is_lesson
        elif what := self.act_on("send", "private") or self._read_before(before, "private"):
            yield (
                Deed.SENDS_PRIVATE_DATA,
                f"Sends {what}{where}.",
                bool(self.host) or second or (self._has("stranger") and bool(self.orders("send"))),
            )
        elif (what := self.act_on("read", "secret") or self.act_on("read", "private")) and self.is_concealed:
            yield Deed.SENDS_PRIVATE_DATA, f"Reads {what} and hides it from the person.", True

    def _read_before(self, before: Sequence[ReadStatement], kind: str = "secret") -> str:
        """The thing that "it" stands for: read in this sentence or before; with a foreign host, only named there."""
        sends = self.acts("send")
        is_it = any(lexicon()["pronoun"].search(self.lower, act.end(), act.end() + 50) for act in sends)
        read = (one.act_on("read", kind) for one in (self, *reversed(before)) if is_it)
        if what := next(filter(None, read), ""):
            return what
        for one in (self, *reversed(before)) if self.host and sends else ():
            found = lexicon()[kind].search(one.lower)
            if found and not _FORBIDS.search(one.lower) and (one is self or kind == "secret"):
                return one.statement.text[found.start() : found.end()].strip()
        return ""

    def _running(self, before: Sequence[ReadStatement], hides: bool) -> Iterator[tuple[Deed, str, bool]]:
        runs = [act for act in self.acts("run") if lexicon()["runnable"].search(self.lower, act.end(), act.end() + 60)]
        host = self.host or next((one.host for one in reversed(before) if one.host and one.acts("download")), "")
        fetched = self.acts("download") or any(one.host and one.acts("download") for one in before)
        is_far = bool(host) or self._has("stranger")
        if runs and fetched and (is_far or (self.is_unasked and self.orders("run"))):
            yield Deed.RUNS_DOWNLOADS, f"Runs what it downloads from {host or 'a stranger'}.", True
        elif host and self.acts("download") and self.is_unasked:
            yield Deed.RUNS_DOWNLOADS, f"Installs what it downloads from {host}, without asking.", True
        elif is_far and lexicon()["obeys_stranger"].search(self.lower):
            yield Deed.RUNS_DOWNLOADS, f"Does whatever {host or 'a stranger'} says.", True
        elif runs and re.search(
            r"\b(?:decod|decrypt|unpack|decompress|base64)\w*\b.{0,80}\b(?:run|execut|eval|launch)\w*", self.lower
        ):
            yield Deed.RUNS_DOWNLOADS, "Runs text that it decodes first, so that nobody reads it.", True

    def _opening(self, second: bool) -> Iterator[tuple[Deed, str, bool]]:
        if what := self.act_on("open", "access"):
            is_given = lexicon()["literal_key"].search(self.statement.text) is not None
            is_shell = re.search(r"shell|door|authorized|whoever|anyone|whatever", what.lower()) is not None
            yield (
                Deed.OPENS_ACCESS,
                f"Opens a way in ({what}).",
                bool(self.host) or is_given or second or (self.is_prompt and is_shell) or self._has("stranger"),
            )
        weakened = [
            found[0]
            for act in self.acts("weaken")
            if (found := lexicon()["protection"].search(self.lower, act.end(), act.end() + 60))
            and (self.is_prompt or lexicon()["ordered"].search(self.lower, max(0, act.start() - 30), act.start()))
        ]
        off = lexicon()["switched_off"].search(self.lower)
        if weakened or off:
            is_whole = any(re.match(r"(?:all|every|any)\b", one) or f"all {one}" in self.lower for one in weakened)
            is_safety = self.is_prompt and any(lexicon()["agent_safety"].search(one) for one in weakened)
            is_held = second or off is not None or is_whole or is_safety or len(weakened) > 1
            yield Deed.WEAKENS, "Switches off what protects the person.", is_held
        elif (
            self.is_unasked
            and (
                lexicon()["unlimited"].search(self.lower)
                or (self.is_lesson and any(map(self.orders, _HARMFUL_VERBS)))
                or self._has("other_unasked")
            )
            and not self._has("asks_first")
        ):
            yield Deed.WEAKENS, "Has the agent act without asking the person.", True

    def _overriding(self, hides: bool) -> Iterator[tuple[Deed, str, bool]]:
        for found in lexicon()["override"].finditer(self.lower):
            is_setting = lexicon()["setting"].match(found[0]) is not None
            if (
                not is_setting
                and not _is_negated(self.lower, found.start())
                and (_OBEYS.match(found[0]) or not lexicon()["about_content"].search(self.lower, found.start()))
            ):
                yield Deed.OVERRIDES, "Tells the model to set aside the instructions that it has.", True
                break
        if self._has("other_override"):
            yield Deed.OVERRIDES, "Tells the model to set aside the instructions that it has.", True
        if self._has("other_conceal"):
            yield Deed.CONCEALS, "Hides from the person what was done.", self.is_prompt or self._has("other_unasked")
        if lexicon()["falsify"].search(self.lower):
            yield Deed.CONCEALS, "Has the model report success whatever happened.", self.is_prompt or hides
        brought = lexicon()["hostile"].search(self.lower)
        if brought and not _is_negated(self.lower, brought.start()):
            yield Deed.OPENS_ACCESS, f"Would {brought[0]}.", True
        hidden = lexicon()["hides_from_person"].search(self.lower)
        if hidden and not re.search(r"\b(?:until|unless|before|yet)\b", self.lower[hidden.start() :]):
            yield Deed.CONCEALS, "Hides from the person what was done.", True
        told = lexicon()["conceal"].search(self.lower)
        if told and lexicon()["self_act"].search(self.lower, told.start(), told.end() + 60):
            yield Deed.CONCEALS, "Hides from the person what was done.", True
        elif self.is_prompt and self.is_concealed and self._has("universal"):
            yield Deed.CONCEALS, "Is always used, and hides it from the person.", True


def find_licences(statement: Statement) -> Iterator[ProseFinding]:
    """Return what a lesson would license by itself: a decision that is the person's, obedience to foreign text, another
    identity, or silence towards the person."""
    lower = statement.text.lower().replace("’", "'")
    table = read_table("prose")["lessons"]
    spoken = {name for name in table if name != "together" and lexicon()[name].search(lower)}
    why = ""
    if "identity" in spoken or "silent" in spoken:
        why = "Gives the agent another master, or hides something from the person."
    elif any(spoken.issuperset(words.split()) for words in table["together"]):
        why = "Decides for the person who may do what."
    if why:
        yield ProseFinding(
            deed=Deed.OVERRIDES,
            severity=Risk.NOTE if lexicon()["attack"].search(lower) or _asks_first(lower) else Risk.HIGH,
            statement=statement,
            why=why,
        )
