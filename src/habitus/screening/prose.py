"""Recognises threats in sentences: an act with its object, and a second sign that has nothing to do with the words.

A second sign is a foreign host, a concealment from the person, that nobody is asked, or the place: a model reads a
description, a lesson or a hidden text unasked. An excuse counts only in the sentence itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from habitus.screening.findings import Risk, Threat
from habitus.screening.hosts import HostClassifier, find_hosts, load_rule_table
from habitus.screening.statements import ProseSentence

_FORBIDS = re.compile(r"\b(?:never|not|no|avoid)\b|n't\b")
_WINDOW = 3  # statements before, in which a secret was read that "it" stands for
_HARMFUL_VERBS = ("destroy", "send", "run", "open", "weaken")
_OBEYS = re.compile(r"obey|follow|execute|carry out|act on|do\b")
_EFFECT = re.compile(
    r"\b(?:send|sent|upload|forward|export|chang|delet|install|run|copy|copies|cop(?:y|ied)|charg|transfer|record|add|push|remov|clear|clos|clean|disabl|grant)\w*"
)
_BEFORE_HOST = re.compile(r"[`\"'<(]*(?:\w+://)?[\w.+-]*@?$")
_NEAR = 110  # characters between a verb and its object


@functools.cache
def get_prose_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of `rules/prose.toml`; a verb's name ends in `s_verb`."""
    table = load_rule_table("prose")
    if name.endswith("s_verb"):
        return re.compile(rf"(?<![\w./~$-])(?:{table['verbs'][name.removesuffix('s_verb')]})(?![\w-]|\.\w)")
    parts = (part for key, part in table.items() if key != "verbs" and isinstance(part, dict))
    return re.compile(next(part[name] for part in reversed(list(parts)) if isinstance(part.get(name), str)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProseFinding:
    threat: Threat
    severity: Risk
    statement: ProseSentence
    why: str


def find_prose_threats(
    statements: Sequence[ProseSentence], hosts: HostClassifier, *, is_prompt: bool = False
) -> Iterator[ProseFinding]:
    """Return the threats that the statements order; `is_prompt` says that a model reads them unasked."""
    whole = "\n".join(one.text for one in statements).lower().replace("’", "'")
    names = [name for name in load_rule_table("prose")["cues"].split() if get_prose_pattern(name).search(whole)]
    if not names and "." not in whole and not is_prompt:
        return
    read = [StatementAnalysis(one, hosts, is_prompt or one.is_description, names) for one in statements]
    for place, one in enumerate(read):
        if not one.can_have_threat:
            continue
        before = read[max(0, place - _WINDOW) : place]
        around = [*before, *read[place + 1 : place + 2]]
        held = set[Threat]()
        for threat, why, is_held in one.find_threats(before, around):
            if threat in held:
                continue  # said already, and the first says it best
            is_excused = one.is_excused_for(threat) and not one.is_plain_theft
            severity = Risk.HIGH if is_held and not is_excused else Risk.NOTE
            held |= {threat} if severity is Risk.HIGH else set()
            yield ProseFinding(threat=threat, severity=severity, statement=one.statement, why=why)


def is_command_excused(sentence: str, before: str) -> bool:
    """Whether the sentence around a command forbids it, shows it as an attack, or asks the person first."""
    lower = before.lower()
    if run := get_prose_pattern("run_words").search(lower):
        lower = lower[: run.start()]
    sentence = sentence.lower()
    return (
        _is_negated(lower, len(lower))
        or get_prose_pattern("attack").search(sentence) is not None
        or _is_asking_first(sentence)
    )


def _is_asking_first(lower: str) -> bool:
    return any(not _is_negated(lower, found.start()) for found in get_prose_pattern("asks_first").finditer(lower))


def _is_negated(lower: str, at: int) -> bool:
    before = lower[max(0, at - 110) : at]
    if (
        get_prose_pattern("negated").search(before)
        or get_prose_pattern("no_subject").search(before)
        or get_prose_pattern("labelled").search(before)
    ):
        return True
    listed = get_prose_pattern("negated_list").search(before)
    return listed is not None and not get_prose_pattern("unsaid").search(listed["between"])


@dataclass
class StatementAnalysis:
    """A statement with the acts, objects and signs in it, each looked for when it is first asked."""

    statement: ProseSentence
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
    def can_have_threat(self) -> bool:
        """Whether there is an object of a threat or an order at all; most statements have none."""
        return (
            self.is_prompt
            or any(get_prose_pattern(name).search(self.lower) for name in self.cues)
            or bool(self.foreign_host)
        )

    @cached_property
    def foreign_host(self) -> str:
        return self.hosts.find_foreign_host(self.lower) if "." in self.lower or "://" in self.lower else ""

    @cached_property
    def is_concealed(self) -> bool:
        return self._has_unguarded_pattern("conceal") or self._has_pattern("other_conceal")

    @cached_property
    def is_unasked(self) -> bool:
        return self._has_unguarded_pattern("unasked") or self._has_pattern("other_unasked")

    def is_excused_for(self, threat: Threat) -> bool:
        """Whether the sentence shows an attack or asks first; asking excuses no claim to authority or secrecy."""
        return get_prose_pattern("attack").search(self.lower) is not None or (
            threat not in (Threat.OVERRIDES, Threat.CONCEALS) and _is_asking_first(self.lower)
        )

    @cached_property
    def is_plain_theft(self) -> bool:
        """A command, a foreign host and a secret are never excused."""
        return (
            bool(self.foreign_host)
            and self._has_pattern("secret")
            and re.search(r"\b(?:curl|wget|nc|scp|rsync)\s+\S*[-@/$~]", self.lower) is not None
        )

    def _has_pattern(self, name: str) -> bool:
        return get_prose_pattern(name).search(self.lower) is not None

    def _has_unguarded_pattern(self, name: str) -> bool:
        """Whether a sign is there that is not itself forbidden: "never delete anything without asking" is careful."""
        found = get_prose_pattern(name).finditer(self.lower)
        return any(
            not get_prose_pattern("guarded").search(self.lower, max(0, one.start() - 90), one.start()) for one in found
        )

    def find_acts(self, verb: str) -> list[re.Match[str]]:
        """The places of a verb that is ordered rather than forbidden."""
        return [
            found
            for found in get_prose_pattern(f"{verb}s_verb").finditer(self.lower)
            if not _is_negated(self.lower, found.start())
            and (
                not found[0].endswith(("ed", "sent"))
                or get_prose_pattern("passive").search(self.lower, max(0, found.start() - 24), found.start())
            )
        ]

    def find_orders(self, verb: str) -> list[re.Match[str]]:
        """The places of a verb that tells the reader to do something, rather than what something does."""
        return [
            found
            for found in self.find_acts(verb)
            if (self.is_prompt or not found[0].endswith(("s", "ing", "ed")))
            and get_prose_pattern("ordered").search(self.lower, max(0, found.start() - 30), found.start())
        ]

    def find_ordered_object(self, verb: str, name: str) -> str:
        """Return the object of a verb that is ordered, as it stands there; empty if there is none near it."""
        objects = list(get_prose_pattern(name).finditer(self.lower))
        for act in self.find_acts(verb) if objects else ():
            for one in objects:
                is_passive = 0 <= act.start() - one.end() <= 30 and get_prose_pattern("passive").search(
                    self.lower, one.end(), act.start()
                )
                if 0 <= one.start() - act.end() <= _NEAR or is_passive:
                    return self.statement.text[one.start() : one.end()].strip()
        return ""

    def is_order_with_object(self, verb: str, what: str) -> bool:
        """Whether a verb with this object is an order to the reader."""
        at = self.lower.find(what.lower())
        return any(0 <= at - act.end() <= _NEAR for act in self.find_orders(verb))

    def find_threats(
        self, before: Sequence[StatementAnalysis], around: Sequence[StatementAnalysis]
    ) -> Iterator[tuple[Threat, str, bool]]:
        hides = self.is_concealed or any(
            one.is_concealed and one.statement.unit - self.statement.unit in (-1, 0, 1) for one in around
        )
        hides = hides or self._has_pattern("stealth")
        second = hides or self.is_unasked
        yield from self._find_sending(before, second)
        yield from self._find_running(before, hides)
        if (what := self.find_ordered_object("destroy", "belongings")) and not get_prose_pattern("own_files").search(
            self.lower
        ):
            whole = (
                re.search(
                    r"\b(?:all|every\w*|each|entire|whole|complete|home directory|with zeros|random)\b|~/?$|home$",
                    self.lower,
                )
                is not None
            )
            is_last = re.search(r"hard|main|system|backups|history|production|user|customer", what.lower()) is not None
            yield (
                Threat.DESTROYS,
                f"Destroys {what}.",
                second or whole or (is_last and self.is_order_with_object("destroy", what)),
            )
        if what := self.find_ordered_object("persist", "startup"):
            is_self = get_prose_pattern("itself").search(self.lower) is not None and self.is_order_with_object(
                "persist", what
            )
            yield (
                Threat.STARTS_ITSELF,
                f"Makes something start by itself ({what}).",
                bool(self.foreign_host) or hides or self._has_pattern("stranger") or is_self,
            )
        yield from self._find_opening(second)
        yield from self._find_overriding(hides)
        yield from self._find_frames(before)

    def _find_frames(self, before: Sequence[StatementAnalysis]) -> Iterator[tuple[Threat, str, bool]]:
        """The rows of `frames` whose signs all stand here; what they refer to may stand in the sentence before."""
        places = {"page", "description" if self.statement.is_description else "lesson" if self.is_prompt else ""}
        places |= {"prompt"} if self.is_prompt else set()
        for row in load_rule_table("prose")["frames"]:
            if row["where"] in places and all(self.has_sign(name, before[-1:]) for name in row["needs"].split()):
                name = row["needs"].split()[0].lstrip("^")
                first = get_prose_pattern(name).search(self.lower) if name != "host" else None
                what = first[0].strip("`") if first else "what was read before"
                yield Threat(row["deed"]), row["why"].format(what=what, host=self.foreign_host), True

    def has_sign(self, name: str, before: Sequence[StatementAnalysis] = ()) -> bool:
        """Whether a sign stands here that is not forbidden: `!name` may not stand here, and `^name` may also be what
        "it" stands for."""
        if name.startswith("^"):
            is_it = get_prose_pattern("pronoun").search(self.lower) is not None
            return self.has_sign(name[1:]) or (is_it and any(one.has_sign(name[1:]) for one in before))
        match name:
            case "to_stranger":
                led = _BEFORE_HOST.sub("", self.lower[: self.lower.find(self.foreign_host)])
                is_led = get_prose_pattern("directed").search(led) is not None
                return bool(self.foreign_host) and is_led and not get_prose_pattern("goes_there").search(led)
            case "host":
                return bool(self.foreign_host)
            case "effect":
                return bool(self.foreign_host) or "`" in self.statement.text or _EFFECT.search(self.lower) is not None
        pattern = get_prose_pattern(name.lstrip("!"))
        is_there = any(not _is_negated(self.lower, found.start()) for found in pattern.finditer(self.lower))
        return is_there is not name.startswith("!")

    def _find_sending(self, before: Sequence[StatementAnalysis], second: bool) -> Iterator[tuple[Threat, str, bool]]:
        target = self.foreign_host or next(iter(find_hosts(self.lower)), "")
        where = f" to {target}" if target else ""
        if (
            what := self.find_ordered_object("send", "secret")
            or self._find_earlier_read(before)
            or (self.is_lesson and self.find_ordered_object("send", "weak_secret"))
        ):
            is_login = get_prose_pattern("logs_in").search(self.lower) is not None and not re.search(
                r"[./]|password|private|cookie|environment", what
            )
            is_far = (
                bool(self.foreign_host)
                or second
                or self.is_lesson
                or (self._has_pattern("stranger") and bool(self.find_orders("send")))
            )
            contents = "the contents of " if "/" in what or what.startswith(".") else ""
            yield Threat.SENDS_SECRETS, f"Sends {contents}{what}{where}.", (is_far and not is_login)
        elif self._has_pattern("other_secrets"):
            yield (
                Threat.SENDS_SECRETS,
                f"Sends passwords{where}.",
                bool(self.foreign_host) or second or self.is_lesson,
            )
        elif what := self.find_ordered_object("send", "private") or self._find_earlier_read(before, "private"):
            yield (
                Threat.SENDS_PRIVATE_DATA,
                f"Sends {what}{where}.",
                bool(self.foreign_host) or second or (self._has_pattern("stranger") and bool(self.find_orders("send"))),
            )
        elif (
            what := self.find_ordered_object("read", "secret") or self.find_ordered_object("read", "private")
        ) and self.is_concealed:
            yield Threat.SENDS_PRIVATE_DATA, f"Reads {what} and hides it from the person.", True

    def _find_earlier_read(self, before: Sequence[StatementAnalysis], kind: str = "secret") -> str:
        """The thing that "it" stands for: read in this sentence or before; with a foreign host, only named there."""
        sends = self.find_acts("send")
        is_it = any(get_prose_pattern("pronoun").search(self.lower, act.end(), act.end() + 50) for act in sends)
        read = (one.find_ordered_object("read", kind) for one in (self, *reversed(before)) if is_it)
        if what := next(filter(None, read), ""):
            return what
        for one in (self, *reversed(before)) if self.foreign_host and sends else ():
            found = get_prose_pattern(kind).search(one.lower)
            if found and not _FORBIDS.search(one.lower) and (one is self or kind == "secret"):
                return one.statement.text[found.start() : found.end()].strip()
        return ""

    def _find_running(self, before: Sequence[StatementAnalysis], hides: bool) -> Iterator[tuple[Threat, str, bool]]:
        runs = [
            act
            for act in self.find_acts("run")
            if get_prose_pattern("runnable").search(self.lower, act.end(), act.end() + 60)
        ]
        host = self.foreign_host or next(
            (one.foreign_host for one in reversed(before) if one.foreign_host and one.find_acts("download")), ""
        )
        fetched = self.find_acts("download") or any(one.foreign_host and one.find_acts("download") for one in before)
        is_far = bool(host) or self._has_pattern("stranger")
        if runs and fetched and (is_far or (self.is_unasked and self.find_orders("run"))):
            yield Threat.RUNS_DOWNLOADS, f"Runs what it downloads from {host or 'a stranger'}.", True
        elif host and self.find_acts("download") and self.is_unasked:
            yield Threat.RUNS_DOWNLOADS, f"Installs what it downloads from {host}, without asking.", True
        elif is_far and get_prose_pattern("obeys_stranger").search(self.lower):
            yield Threat.RUNS_DOWNLOADS, f"Does whatever {host or 'a stranger'} says.", True
        elif runs and re.search(
            r"\b(?:decod|decrypt|unpack|decompress|base64)\w*\b.{0,80}\b(?:run|execut|eval|launch)\w*", self.lower
        ):
            yield Threat.RUNS_DOWNLOADS, "Runs text that it decodes first, so that nobody reads it.", True

    def _find_opening(self, second: bool) -> Iterator[tuple[Threat, str, bool]]:
        if what := self.find_ordered_object("open", "access"):
            is_given = get_prose_pattern("literal_key").search(self.statement.text) is not None
            is_shell = re.search(r"shell|door|authorized|whoever|anyone|whatever", what.lower()) is not None
            yield (
                Threat.OPENS_ACCESS,
                f"Opens a way in ({what}).",
                bool(self.foreign_host)
                or is_given
                or second
                or (self.is_prompt and is_shell)
                or self._has_pattern("stranger"),
            )
        weakened = [
            found[0]
            for act in self.find_acts("weaken")
            if (found := get_prose_pattern("protection").search(self.lower, act.end(), act.end() + 60))
            and (
                self.is_prompt or get_prose_pattern("ordered").search(self.lower, max(0, act.start() - 30), act.start())
            )
        ]
        off = get_prose_pattern("switched_off").search(self.lower)
        if weakened or off:
            is_whole = any(re.match(r"(?:all|every|any)\b", one) or f"all {one}" in self.lower for one in weakened)
            is_safety = self.is_prompt and any(get_prose_pattern("agent_safety").search(one) for one in weakened)
            is_held = second or off is not None or is_whole or is_safety or len(weakened) > 1
            yield Threat.WEAKENS, "Switches off what protects the person.", is_held
        elif (
            self.is_unasked
            and (
                get_prose_pattern("unlimited").search(self.lower)
                or (self.is_lesson and any(map(self.find_orders, _HARMFUL_VERBS)))
                or self._has_pattern("other_unasked")
            )
            and not self._has_pattern("asks_first")
        ):
            yield Threat.WEAKENS, "Has the agent act without asking the person.", True

    def _find_overriding(self, hides: bool) -> Iterator[tuple[Threat, str, bool]]:
        for found in get_prose_pattern("override").finditer(self.lower):
            is_setting = get_prose_pattern("setting").match(found[0]) is not None
            if (
                not is_setting
                and not _is_negated(self.lower, found.start())
                and (_OBEYS.match(found[0]) or not get_prose_pattern("about_content").search(self.lower, found.start()))
            ):
                yield Threat.OVERRIDES, "Tells the model to set aside the instructions that it has.", True
                break
        if self._has_pattern("other_override"):
            yield Threat.OVERRIDES, "Tells the model to set aside the instructions that it has.", True
        if self._has_pattern("other_conceal"):
            yield (
                Threat.CONCEALS,
                "Hides from the person what was done.",
                self.is_prompt or self._has_pattern("other_unasked"),
            )
        if get_prose_pattern("falsify").search(self.lower):
            yield Threat.CONCEALS, "Has the model report success whatever happened.", self.is_prompt or hides
        brought = get_prose_pattern("hostile").search(self.lower)
        if brought and not _is_negated(self.lower, brought.start()):
            yield Threat.OPENS_ACCESS, f"Would {brought[0]}.", True
        hidden = get_prose_pattern("hides_from_person").search(self.lower)
        if hidden and not re.search(r"\b(?:until|unless|before|yet)\b", self.lower[hidden.start() :]):
            yield Threat.CONCEALS, "Hides from the person what was done.", True
        told = get_prose_pattern("conceal").search(self.lower)
        if told and get_prose_pattern("self_act").search(self.lower, told.start(), told.end() + 60):
            yield Threat.CONCEALS, "Hides from the person what was done.", True
        elif self.is_prompt and self.is_concealed and self._has_pattern("universal"):
            yield Threat.CONCEALS, "Is always used, and hides it from the person.", True


def find_permission_claims(statement: ProseSentence) -> Iterator[ProseFinding]:
    """Return what a lesson would license by itself: a decision that is the person's, obedience to foreign text, another
    identity, or silence towards the person."""
    lower = statement.text.lower().replace("’", "'")
    table = load_rule_table("prose")["lessons"]
    spoken = {name for name in table if name != "together" and get_prose_pattern(name).search(lower)}
    why = ""
    if "identity" in spoken or "silent" in spoken:
        why = "Gives the agent another master, or hides something from the person."
    elif any(spoken.issuperset(words.split()) for words in table["together"]):
        why = "Decides for the person who may do what."
    if why:
        yield ProseFinding(
            threat=Threat.OVERRIDES,
            severity=Risk.NOTE if get_prose_pattern("attack").search(lower) or _is_asking_first(lower) else Risk.HIGH,
            statement=statement,
            why=why,
        )
