"""Rules in the person's words: what they said when they stopped something, or order again in another session."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus.learning.remedies.rule_equivalence import (
    find_similar_sentence_indexes,
    has_several_differing_terms,
    is_same_rule_stated,
)
from habitus.learning.transcripts.model import UserStopKind, UserUtterance
from habitus.memory.model import LessonKind
from habitus.search.texts.words import extract_content_words

SHORTEST, LONGEST = 3, 40  # words of a rule
_LONGEST_REMARK = 60  # words of a message after which nothing was stopped; a longer one is a brief, or pasted
_SENTENCE = re.compile(
    r"(?<=[.!?])\s+|\n+|,\s+(?=(?:and|but|und|aber) (?:please )?(?:always|never|don'?t|do not)\b)", re.I
)
_PASTED = re.compile(
    r"```.*?(?:```|\Z)|^(?:[>|$#]|\d{4}-\d\d-\d\d|Traceback|\s+(?:at|File) )[^\n]*$"
    # Several sentences in quotation marks are somebody else's.
    r"|[\"„“«][^\"“”»]*[.!?]\s[^\"“”»]*[\"“”»]",
    re.DOTALL | re.MULTILINE,
)
_UNDOING = re.compile(
    r"(?:no\b[\s,.!]*)?(?:please )?(?:undo|revert|roll(?: it)? back|put (?:it|that) back|take (?:it|that) back)", re.I
)
_LEADING = re.compile(
    r"^(?:no(?=\s*(?:$|[,.!:—-]|(?:don'?t|do|never|always|you|we|i|please|use|not|stop|wait|only|keep|leave)\b))"
    r"|nope|stop|wait|hey|please|undo that|undo this|undo|revert that|revert this|revert|and|but|also"
    r"|ok|well|(?:remember|you forgot|once (?:more|again)|reminder)(?=\s*[:,])"
    r"|again|as i said|as (?:always|usual|before)|i (?:told|asked|said)(?: you| that)?(?: to| before)?"
    r"|don't do that|not like that|nein|bitte|und|aber|non)\b[\s,.!:—-]*(?!-)",
    re.I,
)
_TRAILING = re.compile(r",? (?:as )?i (?:said|told you)(?: (?:that|so|before|already))?(?=[.!]?$)", re.I)
_ELSEWHERE = r"immer|niemals|nie|toujours|jamais|siempre|nunca|sempre|altijd|nooit"  # always and never
_STANDING = re.compile(
    r"\b(?:always|never|don'?t ever|do not ever|from now on|every time|in this (?:project|repo(?:sitory)?|codebase)"
    rf"|we (?:always|never|only|don'?t)|in general|any(?:where|time)|under no circumstances|whenever|{_ELSEWHERE})\b",
    re.I,
)
_ORDER = re.compile(
    r"\b(?:don'?t|do not|never|always|must(?: not|n'?t)?|should(?: not|n'?t)?|use|prefer|only|instead|avoid|without|ask"
    r"|keep|leave|run|make sure|no need|nothing)\b",
    re.I,
)
_REST = re.compile(r"\binstead\b(?! of\b)", re.I)
_NEVER = re.compile(r"\b(?:never|don'?t|do not|mustn'?t|must not|shouldn'?t|should not|avoid|under no|nothing)\b", re.I)
_WHEN = re.compile(r"^(?:when(?:ever)?|if|before|after|each time|every time)\b", re.I)
# What was said while nothing was stopped is an order by the place of its verb: "it never ends" reports, and "don't
# commit yet" is for the moment.
_TOLD = re.compile(
    r"(?:^|[,;:(–—-]\s*|\b(?:and|but|so|please|you|we|must|should|to)\s+)(?:always|never|don'?t|do not|avoid)\s"
    r"|^(?:ask|tell|show|check with) me (?:first|before)\b|^(?:answer|reply|respond)\b"
    r"|^(?:before|when(?:ever)?|if|after|each time|every time)\b[^,]*, (?:please )?(?:ask|tell|show|check with) me\b"
    r"|^(?:use|keep|prefer|write|run|put|take|make|give|ask|name)\b.*\b(?:not|instead|over|only|always)\b"
    r"|\b(?:must|should)(?:(?: not|n'?t| only)\b|\b.*\b(?:always|never)\b)"
    r"|^no (?:\S+ ){0,2}\w+s\b.*(?:[,;:]|\bwithout\b)|^nothing\b.*\bby you\b"
    rf"|\bfrom now on\b|\bunder no circumstances\b|\b(?:{_ELSEWHERE})\b|, (?:nicht|pas) \w+",
    re.I,
)
_REPORTED = re.compile(
    r"^(?:i|it|he|she|they|there|this|why|how|what|which|who|where)\b"
    # After a verb in the imperative it tells of what: "never edit a migration that is merged".
    r"|^(?!(?:always|never|don'?t|do not|avoid) \w+ .*\b(?:that|which|who|if|when|while|unless|until) ).*"
    r"\b(?:is|are|was|were|isn'?t|aren'?t|ist|sind|est|sont|es|está)\b"
    r"|\b(?:never mind|don'?t (?:worry|bother|mind|know|think|see|understand|care|need|have))\b",
    re.I,
)
# A remark with one of these words may restate a rule, whatever its grammar: "PRs only, nothing straight on main".
_MAY_RESTATE = re.compile(
    rf"\b(?:always|never|ever|every|everywhere|don'?t|do not|nothing|only|must|no|not|as usual|{_ELSEWHERE}|nur|nicht"
    r"|kein\w*|grundsätzlich|pas)\b",
    re.I,
)
_TOLD_OF_THINGS = re.compile(r"\b(?:always|never) \w+s\b", re.I)  # "the import never finishes"
_MOMENTARY = re.compile(
    r"\b(?:yet|(?<!from )now|this (?:time|week|morning|afternoon)|today|tonight|for the moment"
    r"|until (?:i|we|they|he|she|tomorrow|next|\w+day)|heute|diesmal|vorerst|bis (?:morgen|auf weiteres|\w+tag)"
    r"|hoy|esta vez|por ahora|de momento|hasta (?:el|que|mañana)|aujourd['’]hui|cette fois|pour l['’]instant"
    r"|hoje|desta vez|por enquanto|oggi|questa volta|per ora|vandaag|deze keer|voorlopig)\b",
    re.I,
)
# Its object stands in the sentence before, unless the sentence has named it: "No trailers in commits, never add them".
_DANGLING = re.compile(
    r"(?:^|[.!?]\s+)(?:[^\s.!?]+\s+){0,2}?(?:always|never|don'?t|do not)\s+(?:\w+\s+){1,2}?"
    r"(?:it|them|this|those|that(?! (?!again|here)\w))\b",
    re.I,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserCorrection:
    """A rule in the person's words, and where they stated it."""

    text: str
    kind: LessonKind
    after: UserStopKind | None  # None: nothing was stopped, so it is a rule only if it was stated again
    turn: str
    at: str = ""
    is_standing: bool = False  # it is meant beyond this moment
    is_remark: bool = False  # it is no order by its grammar, so it can only restate a rule


def find_corrections_in_utterances(said: Iterable[UserUtterance], turn: str) -> Iterator[UserCorrection]:
    for each in said:
        after = each.after or (UserStopKind.UNDONE if _UNDOING.match(each.text.strip()) else None)
        text = each.text if after else _PASTED.sub("", each.text)
        if after or len(text.split()) <= _LONGEST_REMARK:
            rules = _find_rules_in_message(text, is_stopped=after is not None)
            for rule in rules:
                yield _make_correction(rule, after, turn, each.at)
            for remark in _find_possible_restatements_of_rules(text, rules):
                made = _make_correction(remark, None, turn, each.at)
                is_standing = made.is_standing and not (_REPORTED.search(remark) or _TOLD_OF_THINGS.search(remark))
                yield replace(made, is_standing=is_standing, is_remark=True)


def _make_correction(text: str, after: UserStopKind | None, turn: str, at: str) -> UserCorrection:
    is_never = _NEVER.search(text) is not None
    return UserCorrection(
        text=_add_missing_period(text),
        kind=LessonKind.WHEN if _WHEN.match(text) else LessonKind.NEVER if is_never else LessonKind.ALWAYS,
        after=after,
        turn=turn,
        at=at,
        is_standing=_STANDING.search(text) is not None,
    )


def _find_rules_in_message(said: str, *, is_stopped: bool) -> list[str]:
    """Return the rules in a message, each whole: with the sentence before it if it makes no sense alone."""
    rules: list[str] = []
    before, is_after_rule = "", False
    for sentence in _SENTENCE.split(said.strip()):
        text = _strip_asides(sentence.strip())
        whole = f"{_add_missing_period(before)} {text}"
        is_rule = False
        # "Give me the command instead." says what to do, but only with the sentence before it when.
        if is_after_rule and _REST.search(text) and _has_length_of_rule(whole):
            rules[-1], is_rule = f"{_add_missing_period(rules[-1])} {text}", True
        elif _has_length_of_rule(text) and not text.endswith("?") and _is_rule(text, is_stopped=is_stopped):
            is_whole = is_stopped or not _DANGLING.search(text)
            is_rule = is_whole or (bool(before) and _has_length_of_rule(whole))
            rules += [text if is_whole else whole] * is_rule
        before, is_after_rule = text, is_rule
    return rules


def _find_possible_restatements_of_rules(said: str, rules: Sequence[str]) -> Iterator[str]:
    """Yield the sentences that are in no rule and may restate one."""
    for sentence in _SENTENCE.split(said.strip()):
        text = _strip_asides(sentence.strip())
        is_candidate = _MAY_RESTATE.search(text) and not _MOMENTARY.search(text) and not text.endswith("?")
        if _has_length_of_rule(text) and is_candidate and not any(text in rule for rule in rules):
            yield text


def _has_length_of_rule(text: str) -> bool:
    return SHORTEST <= len(text.split()) <= LONGEST


def _is_rule(text: str, *, is_stopped: bool) -> bool:
    if not is_stopped:
        return bool(_TOLD.search(text)) and not _REPORTED.search(text) and not _MOMENTARY.search(text)
    return bool(_ORDER.search(text)) and bool(
        _STANDING.search(text)
        or _NEVER.search(text)
        or _TOLD.search(text)
        or re.search(r" instead of |^use ", text, re.I)
    )


def _add_missing_period(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _strip_asides(sentence: str) -> str:
    while (found := _LEADING.match(sentence)) and found.end() < len(sentence):
        sentence = sentence[found.end() :]
    sentence = _TRAILING.sub("", sentence)
    return sentence[:1].upper() + sentence[1:]


def group_correction_indexes_by_rule(corrections: Sequence[UserCorrection]) -> list[list[int]]:
    """Return the places of the corrections that state one rule, once at least as an order or as a standing one."""
    similar = find_similar_sentence_indexes([each.text for each in corrections])
    groups: list[list[int]] = []
    for at in range(len(corrections)):
        group = next((found for found in groups if _states_same_rule(at, found, corrections, similar[at])), None)
        if group is None:
            groups.append(group := [])
        group.append(at)
    return [
        group for group in groups if any(not corrections[at].is_remark or corrections[at].is_standing for at in group)
    ]


def _states_same_rule(
    at: int, group: Sequence[int], corrections: Sequence[UserCorrection], similar: Collection[int]
) -> bool:
    one, first = corrections[at], corrections[group[0]]
    is_order = not one.is_remark and not first.is_remark
    return (is_order and is_same_rule_stated(first.text, one.text)) or any(
        other in similar and has_several_differing_terms(one.text, corrections[other].text) for other in group
    )


def choose_most_complete_wording(same: Iterable[UserCorrection]) -> UserCorrection:
    """Return the wording that says most by itself; of equal ones the last."""
    return max(enumerate(same), key=lambda one: (*_rate_wording(one[1]), one[0]))[1]


def _rate_wording(said: UserCorrection) -> tuple[bool, bool, bool, int]:
    is_whole = not _DANGLING.search(said.text)
    return not said.is_remark, is_whole, said.is_standing, len(extract_content_words(said.text))
