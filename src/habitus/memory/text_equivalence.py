"""Decides whether two texts say the same, without any side effects.

Merging two different lessons loses one of them, while keeping two alike costs a line, so every doubt is a no. Advice on
one topic differs in few words (utf-8 or cp1252, before or after, always or never), which no similarity measure notices;
so the differing words are checked one by one. Calibrated in docs/decisions/memory.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from habitus.search.texts.words import STOP_WORDS, extract_terms

# Two phrasings of one thing have at least this cosine similarity.
MIN_SIMILARITY = 0.7

# Words that may occur in one text only: they carry the sentence, not the advice.
_LIGHT_WORDS = frozenset(
    extract_terms(
        "find finds found live lives hold holds contain contains expect expects return returns write writes consist "
        "check pass come comes put give belong become since otherwise because therefore instead rather always should "
        "have has time one own run happen occur exist cause order between"
    )
) | {"alway", "otherwis", "sinc", "becaus", "also", "thus", "henc"}

# Function words that reverse advice: both texts must have the same number of each class.
_POLARITY_CLASSES = {
    "not": "not no never none nor without cannot neither rather instead unless except avoid stop nothing nobody lack",
    "before": "before prior until till",
    "after": "after once afterwards following",
    "more": "more over above larger greater bigger higher exceeds exceed beyond longer",
    "less": "less under below smaller fewer lower shorter",
    "most": "most maximum max",
    "least": "least minimum min",
    "only": "only solely exclusively just",
    "may": "may might optional optionally",
    "am": "am",
    "pm": "pm",
    "if": "if",
    "all": "everyone everybody",
    "on": "on_switch",
    "off": "off",
    "up": "up_direction",
    "down": "down",
}
_CLASS_OF = {word: name for name, words in _POLARITY_CLASSES.items() for word in words.split()}
_SIDED = ("before", "after", "to", "from", "of", "than", "not", "into", "over", "under", "by", "for", "with", "without")
_ENDS_A_PHRASE = frozenset((*_SIDED, "in", "on", "at", "as", "and", "or", "then", "when"))
# Stop words in a search, but significant in advice.
_SIGNIFICANT_STOP_WORDS = {"right", "same", "own", "other"}
_PAIRED_CONNECTIVES = ("for", "to", "from", "with", "as", "in", "is", "are")

_WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?", re.UNICODE)
_TOKEN = re.compile(r"[^\s,;:!?()\[\]{}\"“”„«»]+")
_QUOTED = re.compile(r"`([^`]+)`|'([^'\s]{1,40})'|\"([^\"]{1,40})\"")
_NOT = re.compile(r"(?:n['’]t|\bcannot)\b", re.IGNORECASE)
_ENDINGS = frozenset(
    ("", "e", "abl", "able", "ur", "ison", "ten", "otten", "et", "en", "t", "c", "ce", "ion", "ation", "ed", "ss", "up")
)


def is_equivalent(a: str, b: str, *, similarity: float) -> bool:
    """Return whether one text can stand for both; `similarity` is the cosine that the index found."""
    first, second = _parse_comparable_text(a), _parse_comparable_text(b)
    if first.plain == second.plain:
        return True
    return (
        similarity >= MIN_SIMILARITY
        and first.exact == second.exact
        and first.classes == second.classes
        and _has_only_light_differences(first, second)
        and not _has_other_actor_or_order(first, second)
    )


@dataclass(frozen=True, slots=True)
class _ComparableText:
    """A text prepared for comparison; `words` are stems in order, with function words unchanged."""

    plain: str
    # Numbers, identifiers and quoted values, which have no synonyms.
    exact: frozenset[str]
    classes: Counter[str]
    words: tuple[str, ...]
    content: frozenset[str]

    def list_content_stems_after(self, connective: str) -> list[set[str]]:
        """Return the two content stems after each occurrence of the connective, up to the next connective."""
        return [
            set(self._list_content_stems_in_phrase_after(at)[:2])
            for at, word in enumerate(self.words)
            if word == connective
        ]

    def _list_content_stems_in_phrase_after(self, at: int) -> list[str]:
        rest = takewhile(lambda word: word not in _ENDS_A_PHRASE and word not in _CLASS_OF, self.words[at + 1 :])
        return [word for word in rest if word in self.content]

    def list_content_stem_pairs_around(self, connective: str) -> set[tuple[str, str]]:
        """Return the content stems on both sides of each occurrence of the connective."""
        found = set()
        for at, word in enumerate(self.words):
            if word == connective:
                before = [w for w in self.words[:at] if w in self.content][-1:]
                after = [w for w in self.words[at + 1 :] if w in self.content][:1]
                if before and after:
                    found.add((before[0], after[0]))
        return found

    @property
    def content_words_in_order(self) -> list[str]:
        return [word for word in self.words if word in self.content]


@lru_cache(maxsize=4096)
def _parse_comparable_text(text: str) -> _ComparableText:
    text = unicodedata.normalize("NFKC", text)
    spelt = _NOT.sub(" not", text.replace("’", "'"))
    raw = [word.removesuffix("'s") for word in _WORD.findall(spelt.lower())]
    words: list[str] = []
    content: set[str] = set()
    for word in raw:
        if (word in STOP_WORDS and word not in _SIGNIFICANT_STOP_WORDS) or word in _CLASS_OF:
            words.append(word)
            continue
        # A stop word has no stems, so it stands for itself.
        stems = extract_terms(word) or [word]
        words += stems
        content.update(stems)
    return _ComparableText(
        plain=" ".join(raw),
        exact=frozenset(_extract_exact_tokens(text)),
        classes=Counter(_CLASS_OF[word] for word in raw if word in _CLASS_OF),
        words=tuple(words),
        content=frozenset(content),
    )


def _extract_exact_tokens(text: str) -> set[str]:
    """Return the tokens that must not differ: with digits, code characters, in capitals, or quoted."""
    found = {next(part for part in match if part).lower() for match in _QUOTED.findall(text)}
    for token in _TOKEN.findall(text):
        token = token.strip("'`.-–—").removesuffix("'s") if not token.startswith(("--", ".")) else token.rstrip("'`.")
        is_code = re.search(r"[\d_=/\\@#$%<>*+~^|&]|\w\.\w|^--|^\.\w|[a-z][A-Z]", token)
        if is_code or (len(token) > 1 and token.isupper()):
            found.add(token.lower())
    return found


def _has_only_light_differences(a: _ComparableText, b: _ComparableText) -> bool:
    """Return whether the texts differ only in light words or in forms of the same word."""
    only_a, only_b = set(a.content - b.content), set(b.content - a.content)
    for word in sorted(only_a):
        other = next((one for one in sorted(only_b) if _is_word_form_of(word, one)), None)
        if other is not None:
            only_a.discard(word)
            only_b.discard(other)
    if only_a and only_b:
        # One word in place of another is how advice on one topic usually differs.
        return False
    return (only_a | only_b) <= _LIGHT_WORDS and len(only_a | only_b) <= 2 and len(a.content & b.content) >= 2


def _is_word_form_of(a: str, b: str) -> bool:
    """Return whether two stems are forms of one word, such as `reach` and `reachable`, which the stemmer keeps
    apart.
    """
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    return shared >= 4 and a[shared:] in _ENDINGS and b[shared:] in _ENDINGS


def _has_other_actor_or_order(a: _ComparableText, b: _ComparableText) -> bool:
    """Return whether the same words have another actor or another order."""
    for connective in _SIDED:
        in_a, in_b = a.list_content_stems_after(connective), b.list_content_stems_after(connective)
        if len(in_a) == len(in_b) == 1 and in_a[0] and in_b[0] and not _has_common_word_form(in_a[0], in_b[0]):
            return True
    for connective in _PAIRED_CONNECTIVES:
        bound_a, bound_b = a.list_content_stem_pairs_around(connective), b.list_content_stem_pairs_around(connective)
        has_same_left = {x for x, _ in bound_a} == {x for x, _ in bound_b}
        if len(bound_a) == len(bound_b) >= 2 and has_same_left and bound_a != bound_b:
            return True
    # A passive sentence reverses the order without changing the meaning.
    is_passive = ("by" in a.words) != ("by" in b.words)
    mirrored = {tuple(reversed(three)) for three in _list_word_trigrams(b.content_words_in_order)}
    return not is_passive and bool(mirrored & _list_word_trigrams(a.content_words_in_order))


def _has_common_word_form(a: set[str], b: set[str]) -> bool:
    return any(x == y or _is_word_form_of(x, y) for x in a for y in b)


def _list_word_trigrams(order: list[str]) -> set[tuple[str, ...]]:
    found = {tuple(order[at : at + 3]) for at in range(len(order) - 2)}
    return {three for three in found if three[0] != three[2]}
