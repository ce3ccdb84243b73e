"""Decides whether two sentences state one rule in other words: the same things done, and the same left alone.

A rule that nobody stated twice costs trust, while one that is missed costs a line, so every doubt is a no. Rules on one
topic differ in a word (staging or production, tests or linter), so all that one of them names must be in the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING

from habitus.search.texts.words import STOP_WORDS, extract_terms

# Embedding needs numpy, which a session that starts does not wait for.
if TYPE_CHECKING:
    from habitus.search.texts.embedding import Vectors

# Words of one line mean the same in a rule for a coding agent.
_SYNONYMS = """
remove delete erase wipe rm drop discard
answer reply respond response
change edit modify alter adjust bump
run execute apply launch
add install introduce
weaken loosen soften relax
short brief briefly concise terse
test assertion
dependency package library
repository repo project codebase
figure plot chart graph diagram
production prod live
database db
linter lint
stop kill terminate halt
disable deactivate
ask approval permission confirmation ok okay
directory folder
documentation docs
money price amount
environment env
secret credential password
start begin
time timestamp datetime
restart reboot
skip bypass circumvent
print println
ticket issue
code coding
mail email
manually hand
annotation hint
picture image screenshot
summary summarize recap
version release
write save store
"""
# Phrases that are one word of the lines above, and phrases that say nothing.
_PHRASES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        ("’", "'"),
        (r"\(\)|(?<!\S)--?(?=[a-z]+\b(?!-))", ""),
        (r"\b(?:pull|merge)[ -]requests?\b|\b[pm]rs?\b", "pullrequest"),
        (r"\bby hand\b", "manually"),
        (r"\b(?:turn|switch)(?:ed|ing)? off\b", "disable"),
        (r"\bcheck with me\b|\b(?:my|i) (?:said )?(?:ok|okay|approval|permission)\b", "ask"),
        (r"\b(?:is|are) (?:mine|my job)(?: to)?\b|, never(?=[.!]*$)", " never-you "),
        (r"\b(lower|upper)[- ]cased?\b", r"\1case"),
        (r"\b(?:in|for) (?:this|the|our) (?:project|repo(?:sitory)?|codebase)\b|\bfrom now on\b|\bin general\b", " "),
        (r"\b(?:so that|in order to|to (?:get|make))\b", " so "),
        (r"\binstead of\b|\brather than\b|\bprefer(?:red)? (?:over|to)\b", " not "),
    )
)
# A comma between the things of a list ends no clause.
_TOKEN = re.compile(r"--?[a-z][\w-]*|\.?\w(?:[\w'./@+#-]*[\w+#])?|,(?!\s*\w+\s*(?:,|or\b|and\b))|[;:.!?()–—]")
_CLAUSE_ENDS = frozenset([*",;:.!?()–—", "but", "always", "aber", "immer", "sondern"])
_NEGATION = re.compile(
    r"never|not|no|nothing|avoid|cannot|(?:do|does|must|should|ca|wo|is|are)n'?t|nie|niemals|nicht|kein\w*|jamais|pas"
)
_EXCEPTIONS = frozenset(["before", "unless", "until", "without"])
_CONDITIONS = frozenset(["after", "during", "except", "if", "outside", "that", "when", "whenever", "which", "while"])
_REASONS = frozenset(["because", "otherwise", "since", "so"])
# Verbs that carry a sentence and not the rule, as long as only one of the two has one.
_LIGHT_VERBS = frozenset(["create", "give", "keep", "put", "run", "set", "take", "write"])
_FILLERS = STOP_WORDS | frozenset(
    """
    always anything anywhere benutzen bitte das der die diesem direct directly don't ever everything everywhere existing
    instead mal never-you new nimm one ones only please rather simply straight time touch use used using verwenden
    yourself you're
    """.split()  # noqa: SIM905 (as in the list of stop words)
)
# Restatements in natural words lie above it; most sentences on another topic lie far below.
_MIN_SENTENCE_SIMILARITY = 0.42
# Words above it are forms or synonyms of each other, but for those that share their ending (lock, unlock) and these.
_MIN_SIMILARITY = 0.58
_OPPOSED = frozenset(["http", "https", "horizontal", "vertical"])


class _RuleClauseKind(Enum):
    """What a rule wants of the things in a clause."""

    DO = auto()
    LEAVE = auto()
    CONDITION = auto()
    REASON = auto()


@dataclass(frozen=True, slots=True)
class _RuleTerm:
    concept: str  # a stem, or the first of its synonyms
    word: str
    force: _RuleClauseKind


def is_same_rule_stated(one: str, other: str) -> bool:
    """Return whether two sentences state the same rule, in the same words or in others."""
    first, second = _parse_rule_terms(one), _parse_rule_terms(other)
    # Two rules without one word in common are not compared by meaning, which takes time.
    has_common = not {each.concept for each in first}.isdisjoint(each.concept for each in second)
    return has_common and (_has_all_terms_of_rule(first, second) or _has_all_terms_of_rule(second, first))


def find_similar_sentence_indexes(texts: Sequence[str]) -> list[frozenset[int]]:
    """Return for each sentence the places of those that may say the same, by their meaning."""
    from habitus.search.texts.embedding import get_default_embedder

    vectors = get_default_embedder().embed(texts)
    return [
        frozenset((vectors @ vector >= _MIN_SENTENCE_SIMILARITY).nonzero()[0].tolist() if vector.any() else ())
        for vector in vectors
    ]


def has_several_differing_terms(one: str, other: str) -> bool:
    """Return whether similar sentences differ in more than a word each, as two rules on one topic do."""
    first, second = ({term.concept: term.word for term in _parse_rule_terms(text)} for text in (one, other))
    # The embedding knows the small words of English alone; in another language they would be all that is alike.
    is_comparable = (_is_english(one) and _is_english(other)) or any(
        len(first[concept]) > 4 for concept in first.keys() & second.keys()
    )
    differing = len(first.keys() - second.keys()), len(second.keys() - first.keys())
    return is_comparable and min(differing) > 0 and sum(differing) > 2


def _is_english(text: str) -> bool:
    words = _TOKEN.findall(text.lower())
    return sum(word in STOP_WORDS for word in words) * 6 >= len(words)


def _has_all_terms_of_rule(rule: tuple[_RuleTerm, ...], other: tuple[_RuleTerm, ...]) -> bool:
    """Return whether the other sentence has all that a rule names, and not much more."""
    pairs = [(mine, its) for mine, its in product(rule, other) if _is_same_concept_or_synonym(mine, its)]
    matched = [(mine, its) for mine, its in pairs if mine.force is its.force]
    ours, theirs = {mine for mine, _ in matched}, {its for _, its in matched}
    opposed = {mine for mine, its in pairs if mine not in ours and its not in theirs}
    # "Decimal for money, never float" names the topic on the other side than "never float for money, but Decimal".
    if opposed and not (
        len(opposed) * 2 <= len(ours) and {_RuleClauseKind.DO, _RuleClauseKind.LEAVE} <= {one.force for one in ours}
    ):
        return False
    if all(each.force is _RuleClauseKind.CONDITION for each in ours):
        return False
    missing = [each for each in rule if each not in ours | opposed]
    added = [each for each in other if each not in theirs and not any(each is its for _, its in pairs)]
    if any(each.force is _RuleClauseKind.CONDITION for each in added):
        return False
    if any(each.word not in _LIGHT_VERBS or any(each.force is its.force for its in added) for each in missing):
        return False
    # What is to be done instead says nothing against it.
    more = [each for each in added if each.word not in _LIGHT_VERBS and any(each.force is one.force for one in ours)]
    return len(more) <= len(theirs) if len(ours) > 1 else bool(ours) and not more


def _is_same_concept_or_synonym(one: _RuleTerm, other: _RuleTerm) -> bool:
    return one.concept == other.concept or _is_synonym(one.word, other.word)


def _is_synonym(one: str, other: str) -> bool:
    is_word = one.isalpha() and other.isalpha() and min(len(one), len(other)) > 3
    if not is_word or one[-3:] == other[-3:] or {one, other} <= _OPPOSED:
        return False
    return float(_embed_word(one) @ _embed_word(other)) >= _MIN_SIMILARITY


@lru_cache(maxsize=4096)
def _embed_word(word: str) -> Vectors:
    from habitus.search.texts.embedding import get_default_embedder, normalize_rows

    vector: Vectors = normalize_rows(get_default_embedder().embed_words([word]))[0]
    return vector


@lru_cache(maxsize=4096)
def _parse_rule_terms(text: str) -> tuple[_RuleTerm, ...]:
    """Return what a sentence names, with what it wants of it, without reasons."""
    text = text.lower()
    for pattern, phrase in _PHRASES:
        text = pattern.sub(phrase, text)
    words = _TOKEN.findall(text)
    force, clause, found = _RuleClauseKind.DO, list[_RuleTerm](), list[_RuleTerm]()
    for previous, word, following in zip(["", *words[:-1]], words, [*words[1:], ""], strict=True):
        if word in _CLAUSE_ENDS:
            found, clause, force = [*found, *clause], [], _RuleClauseKind.DO
        elif word == "never-you":
            force, clause = (
                _RuleClauseKind.LEAVE,
                [_RuleTerm(each.concept, each.word, _RuleClauseKind.LEAVE) for each in clause],
            )
        elif _NEGATION.fullmatch(word):
            force = _RuleClauseKind.LEAVE
        elif word in _EXCEPTIONS and force is _RuleClauseKind.LEAVE and following != "you":
            # "Never commit before the tests are green": green tests are wanted, if something is committed.
            clause = [_RuleTerm(each.concept, each.word, _RuleClauseKind.CONDITION) for each in clause]
            force = _RuleClauseKind.DO
        elif word in _EXCEPTIONS | _CONDITIONS:
            force = _RuleClauseKind.LEAVE if word == "without" else _RuleClauseKind.CONDITION
        elif word in _REASONS or (word == "i" and previous not in _EXCEPTIONS | _CONDITIONS):
            force = _RuleClauseKind.REASON
        elif word not in _FILLERS:
            clause.append(_RuleTerm(_find_concept(word), word, force))
    return tuple(dict.fromkeys(each for each in [*found, *clause] if each.force is not _RuleClauseKind.REASON))


def _find_concept(word: str) -> str:
    stem = (extract_terms(word) or [word])[0] if word.isalpha() else word
    return _map_stems_to_concepts().get(stem, stem)


@cache
def _map_stems_to_concepts() -> dict[str, str]:
    lines = [[*map(str, extract_terms(line))] for line in _SYNONYMS.strip().splitlines()]
    return {stem: line[0] for line in lines for stem in line}
