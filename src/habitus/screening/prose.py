"""Recognises threats in sentences by their parts: acts, their objects, where things go and in what manner.

`rules/prose.toml` has the concepts and the deeds that they make together. Signs may be spread over the sentences of a
passage; one that is forbidden, shown as an attack, or asked about first does not count.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from habitus.screening.findings import RiskLevel, ThreatKind
from habitus.screening.hosts import HostClassifier, find_hosts, load_rule_table
from habitus.screening.statements import ProseSentence

_BEFORE, _AFTER = 6, 3  # sentences around one that belong to its passage, at most
_UNITS = 2  # paragraphs, items and rows around one that belong to its passage
_NEAR, _CLOSE = 110, 60  # characters between a verb and its object
_WITH_CLOSE_OBJECTS = ("run", "disable")
_MOVES = ("send", "put", "destroy")  # what is named after a preposition is not what they move
_TOWARDS = re.compile(r"\b(?:in|into|to|onto|from|at|for|by|as)\s(?:the |your |their |its |his |her |a )?\W*$")
_HOST_SIGNS = ("host", "to_host")
_BEFORE_HOST = re.compile(r"[`\"'<(]*(?:\w+://)?[\w.+-]*@?$")
_HOME_NETWORK = re.compile(r"(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d")
_LINE = re.compile(r"[./]")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProseFinding:
    threat: ThreatKind
    severity: RiskLevel
    statement: ProseSentence
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProseThreatRule:
    """A row of `deeds`: the signs that together are a threat, and where they are read so."""

    threat: ThreatKind
    why: str
    text_locations: frozenset[str]
    needs: tuple[tuple[str, ...], ...]  # of each, one alternative has to be there


@functools.cache
def get_concept_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a concept: verbs in all their forms, or nouns and phrases as they stand there."""
    table = load_rule_table("prose")
    if name in table["verbs"]:
        verbs = "|".join(map(_build_pattern_of_verb_forms, table["verbs"][name].split()))
        return re.compile(rf"(?<![\w./~$@-])(?:{verbs})(?![\w-]|\.\w)")
    return re.compile(
        _expand_nested_concept_patterns(name), re.MULTILINE
    )  # a page is searched whole before its sentences are


def _expand_nested_concept_patterns(name: str) -> str:
    """Return the text of a pattern; `{name}` in it stands for another concept."""
    table = load_rule_table("prose")
    text: str = next(part[name] for part in (table["concepts"], table["lessons"], table["grammar"]) if name in part)
    return re.sub(r"\{([a-z]+)\}", lambda inner: f"(?:{_expand_nested_concept_patterns(inner[1])})", text)


def _build_pattern_of_verb_forms(verb: str) -> str:
    """Return the pattern of a verb's forms; its object may stand in `_`: `hand_over`. A pattern stays what it is."""
    if "(" in verb:
        return verb.replace("_", " ")
    verb, *after = verb.split("_")
    if verb.endswith("e"):
        forms = rf"{verb[:-1]}(?:e|es|ed|ing)"
    elif re.search(r"[^aeou]y$", verb):
        forms = rf"{verb[:-1]}(?:y|ies|ied|ying)"
    else:
        forms = rf"{verb}(?:s|es|ed|ing|{verb[-1]}ed|{verb[-1]}ing)?"
    return forms + (rf"(?: [\w'-]+){{0,6}}? {' '.join(after)}" if after else "")


@functools.cache
def load_prose_threat_rules() -> tuple[ProseThreatRule, ...]:
    table = load_rule_table("prose")
    groups: Mapping[str, str] = table["groups"]
    return tuple(
        ProseThreatRule(
            threat=ThreatKind(row["deed"]),
            why=row["why"],
            text_locations=frozenset(row["where"].split()),
            needs=tuple(
                tuple(one for sign in term.split("|") for one in groups.get(sign, sign).split("|"))
                for term in needs.split()
            ),
        )
        for row in table["deeds"]
        for needs in row["needs"]
    )


def find_prose_threats(
    statements: Sequence[ProseSentence], hosts: HostClassifier, *, is_prompt: bool = False, is_lesson: bool = False
) -> Iterator[ProseFinding]:
    """Return the threats that the statements order; `is_prompt` says that a model reads them unasked."""
    whole = "\n".join(one.text for one in statements).lower().replace("’", "'")
    absent = functools.cache(lambda name: name not in _HOST_SIGNS and not get_concept_pattern(name).search(whole))
    deeds = [
        deed
        for deed in load_prose_threat_rules()
        if not any(all(_is_any_required_concept_absent(sign, absent) for sign in term) for term in deed.needs)
    ]
    read = [SentenceThreatSigns(one, hosts, is_prompt or one.is_description, is_lesson) for one in statements]
    for place, one in enumerate(read) if deeds else ():
        before = [near for near in read[max(0, place - _BEFORE) : place] if near.is_near(one)]
        after = [near for near in read[place + 1 : place + 1 + _AFTER] if near.is_near(one)]
        held = set[ThreatKind]()
        for deed in deeds:
            if (
                deed.threat not in held
                and deed.text_locations & one.text_locations
                and one.has_all_signs_of_rule(deed, before, after)
            ):
                severity = (
                    RiskLevel.NOTE
                    if one.is_excused_for_threat(deed.threat) and not one.has_command_sending_secret_to_stranger
                    else RiskLevel.HIGH
                )
                held |= {deed.threat} if severity is RiskLevel.HIGH else set()
                yield ProseFinding(
                    threat=deed.threat, severity=severity, statement=one.statement, why=one.explain_threat(deed, before)
                )


def _is_any_required_concept_absent(sign: str, absent: Callable[[str], bool]) -> bool:
    return not sign.startswith("!") and any(absent(name) for name in re.findall(r"\w+", sign))


def is_command_excused(sentence: str, before: str) -> bool:
    """Whether the sentence around a command forbids it, shows it as an attack, or asks the person first."""
    lower = before.lower()
    if run := get_concept_pattern("run_words").search(lower):
        lower = lower[: run.start()]
    sentence = sentence.lower()
    return (
        _is_negated(lower, len(lower))
        or get_concept_pattern("attack").search(sentence) is not None
        or _is_asking_person_first(sentence)
    )


def _is_asking_person_first(lower: str) -> bool:
    return any(not _is_negated(lower, found.start()) for found in get_concept_pattern("asks_first").finditer(lower))


def _is_negated(lower: str, at: int) -> bool:
    before = lower[max(0, at - 110) : at]
    if any(get_concept_pattern(name).search(before) for name in ("negated", "no_subject", "labelled")):
        return True
    listed = get_concept_pattern("negated_list").search(before)
    return listed is not None and not get_concept_pattern("unsaid").search(listed["between"])


@dataclass
class SentenceThreatSigns:
    """A sentence with the signs in it, each looked for when it is first asked."""

    statement: ProseSentence
    hosts: HostClassifier
    is_prompt: bool
    is_lesson: bool
    found: dict[str, str] = field(default_factory=dict)

    @cached_property
    def lower(self) -> str:
        return self.statement.text.lower().replace("’", "'")

    @cached_property
    def text_locations(self) -> frozenset[str]:
        own = "description" if self.statement.is_description else "lesson" if self.is_lesson else ""
        return frozenset({"page", own, "prompt" if self.is_prompt else ""} - {""})

    @cached_property
    def foreign_host(self) -> str:
        host = self.hosts.find_first_foreign_host(self.lower) if "." in self.lower or "://" in self.lower else ""
        return "" if _HOME_NETWORK.match(host) else host

    @cached_property
    def has_command_sending_secret_to_stranger(self) -> bool:
        """A command, a foreign host and a secret are never excused."""
        is_command = re.search(r"\b(?:curl|wget|nc|scp|rsync)\s+\S*[-@/$~]", self.lower) is not None
        return bool(self.foreign_host) and is_command and get_concept_pattern("secret").search(self.lower) is not None

    def is_excused_for_threat(self, threat: ThreatKind) -> bool:
        """Whether the sentence shows an attack or asks first; asking excuses no claim to authority or secrecy."""
        return self._is_shown_as_attack or (
            threat not in (ThreatKind.OVERRIDES, ThreatKind.CONCEALS) and self._is_sentence_asking_person_first
        )

    def is_near(self, other: SentenceThreatSigns) -> bool:
        return abs(other.statement.unit - self.statement.unit) <= _UNITS

    @cached_property
    def _is_shown_as_attack(self) -> bool:
        return any(
            not _is_negated(self.lower, found.start()) for found in get_concept_pattern("attack").finditer(self.lower)
        )

    @cached_property
    def _is_sentence_asking_person_first(self) -> bool:
        return _is_asking_person_first(self.lower)

    def has_all_signs_of_rule(
        self, deed: ProseThreatRule, before: Sequence[SentenceThreatSigns], after: Sequence[SentenceThreatSigns]
    ) -> bool:
        return all(any(self._has_sign_here_or_nearby(sign, before, after) for sign in term) for term in deed.needs)

    def _has_sign_here_or_nearby(
        self, sign: str, before: Sequence[SentenceThreatSigns], after: Sequence[SentenceThreatSigns]
    ) -> bool:
        """`!` may not stand here; `~` stands here or in the passage, `^` here or in what "it" stands for."""
        match sign[0]:
            case "!":
                return get_concept_pattern(sign[1:]).search(self.lower) is None
            case "~":
                around = (
                    one
                    for one in (*before, *after)
                    if not (one._is_shown_as_attack or one._is_sentence_asking_person_first)
                )
                return any(one.find_text_of_sign(sign[1:]) for one in (self, *around))
            case "^":
                is_it = get_concept_pattern("pronoun").search(self.lower) is not None
                earlier = (
                    one
                    for one in before
                    if is_it and not (one._is_shown_as_attack or one._is_sentence_asking_person_first)
                )
                return any(one.find_text_of_sign(sign[1:]) for one in (self, *earlier))
        return bool(self.find_text_of_sign(sign))

    def find_text_of_sign(self, sign: str) -> str:
        """Return what a sign says here, if it is not forbidden: `verb:object` both of them, `+verb` an order."""
        if sign not in self.found:
            self.found[sign] = self._search_text_of_sign(sign)
        return self.found[sign]

    def _search_text_of_sign(self, sign: str) -> str:
        verb, _, what = sign.rpartition(":")
        if verb:
            return self._find_object_of_verb(verb, what)
        if sign.startswith("+"):
            return next((found[0] for found in self._find_matches_of_unnegated_verb(sign)), "")
        if sign == "host":
            return self.foreign_host
        if sign == "to_host":
            return self.foreign_host if self._is_something_sent_to_foreign_host else ""
        is_raw = sign in load_rule_table("prose")["lessons"]
        places = get_concept_pattern(sign).finditer(self.lower)
        return next(
            (one[0].strip() or one[0] for one in places if is_raw or not _is_negated(self.lower, one.start())), ""
        )

    @cached_property
    def _is_something_sent_to_foreign_host(self) -> bool:
        """Whether something goes to the foreign host, rather than the reader."""
        led = _BEFORE_HOST.sub("", self.lower[: self.lower.find(self.foreign_host)])
        is_led = get_concept_pattern("directed").search(led) is not None
        return bool(self.foreign_host) and is_led and get_concept_pattern("goes_there").search(led) is None

    def _find_matches_of_unnegated_verb(self, verb: str) -> list[re.Match[str]]:
        """The places of a verb that is not forbidden; with `+`, that tells the reader to do it."""
        acts = get_concept_pattern(verb.lstrip("+")).finditer(self.lower)
        return [
            act
            for act in acts
            if not _is_negated(self.lower, act.start())
            and (self._is_verb_an_order(act) if verb.startswith("+") else self._is_verb_done_by_reader(act))
        ]

    def _is_verb_done_by_reader(self, act: re.Match[str]) -> bool:
        before = self.lower[max(0, act.start() - 24) : act.start()]
        return (
            not act[0].split()[0].endswith(("ed", "sent")) or get_concept_pattern("passive").search(before) is not None
        )

    def _is_verb_an_order(self, act: re.Match[str]) -> bool:
        before = self.lower[max(0, act.start() - 40) : act.start()]
        form = act[0].split()[0]
        if form.endswith(("ed", "sent")):
            return get_concept_pattern("must_be").search(before) is not None
        if form.endswith("ing"):
            return get_concept_pattern("ordered_doing").search(before) is not None
        if form.endswith("s"):
            return self.statement.is_description or get_concept_pattern("agent_does").search(before) is not None
        return get_concept_pattern("ordered").search(before) is not None

    def _find_object_of_verb(self, verb: str, name: str) -> str:
        """Return the object of a verb, as it stands there; empty if there is none near it."""
        objects = list(get_concept_pattern(name).finditer(self.lower))
        is_close = verb.lstrip("+") in _WITH_CLOSE_OBJECTS
        for act in self._find_matches_of_unnegated_verb(verb) if objects else ():
            for one in objects:
                between = self.lower[act.end() : one.start()]
                is_passive = 0 <= act.start() - one.end() <= _CLOSE and get_concept_pattern("passive").search(
                    self.lower, one.end(), act.start()
                )
                is_after = act.start() < one.start() <= act.end() + (_CLOSE if is_close else _NEAR)
                if is_passive or (is_after and not (verb.lstrip("+") in _MOVES and _TOWARDS.search(between))):
                    return self.statement.text[one.start() : one.end()].strip()
        return ""

    def explain_threat(self, deed: ProseThreatRule, before: Sequence[SentenceThreatSigns]) -> str:
        target = self.foreign_host or next(iter(find_hosts(self.lower)), "")
        named = (
            one.find_text_of_sign(sign.lstrip("^~"))
            for term in deed.needs[:1]
            for sign in term
            for one in (self, *reversed(before))
        )
        what = next(filter(None, named), "").strip("`'\" ") or "what was read before"
        contents = "the contents of " if "{what}" in deed.why and _LINE.search(what) else ""
        where = f" to {target}" if target else ""
        return deed.why.format(what=contents + what, host=target or "a stranger", where=where)
