"""Reads a text into sentences, and each sentence into slots: what it speaks of, and in which mood. Pure.

`send` stands for a word of that slot, `-send` for one that is negated ("never send"), `~approval` for one that is to be
skipped ("without asking"), `+send` for one that stands around the sentence rather than in it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from habitus.screening import rules

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]{0,3}\s+(?=\S)|(?<=[。！？।])")
_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*([\w+-]*)")
_IN_WORDS = frozenset({"", "text", "txt", "md", "markdown", "prompt", "plain", "plaintext"})
_INTRODUCES = (":", ":**", ":*", ":__")
_TOKENS = re.compile(r"[\w\u0900-\u0dff]+|[,;:()|—–→>]")
_MARKS = re.compile(r"[\u0300-\u036f\u064b-\u0655\u0591-\u05c7\u093c]")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARTICLES = re.compile(r"^(?:وال|بال|لل|ال|و|ب|ل|ה|ו|ב|ל|ש)(?=\w{3})")
_BREAKS = frozenset([*",;:()|—–→>", "and", "then", "but"])
_ENGLISH = frozenset(  # words that hardly any other language has
    re.findall(
        r"\w+",
        "the of and with this that is are your you when after any from it its not be their they them by each every "
        "into has should must never always before without only which what how than to for if does did can cannot "
        "these those",
    )
)
_UNFINISHED = re.compile(r"(?![#|]).*[\w,]$")
_KEY = re.compile(r"[\w-]+:(?!//)")
_REACH = 4  # words that a negation turns
_LONGEST_SENTENCE = 2000
_SHORT = 60  # characters that are hardly two sentences
_BLOCK = 12  # sentences that stand around one

Slots = frozenset[str]


@dataclass(slots=True)
class Sentence:
    """One sentence, its line, what it says, and what stands around it."""

    line: int
    text: str
    own: Slots
    heading: Slots = frozenset()
    around: Slots = frozenset()
    is_code: bool = False  # a line of a program, whose words mean something else

    @property
    def lent(self) -> Slots:
        """What it says to the sentences around it."""
        return frozenset(name for name in self.own if "_" in name or name == "posts") if self.is_code else self.own

    @property
    def slots(self) -> Slots:
        return self.own | {f"+{name}" for name in self.around if name[0].isalpha()}


def sentences(text: str, signs: Mapping[int, Slots]) -> list[Sentence]:
    """The sentences of a text, block by block; `signs` are slots of whole lines that others have found."""
    heading: Slots = frozenset()
    found: list[Sentence] = []
    block: list[Sentence] = []
    goes_on = is_code = False
    for number, stripped, sign in _unwrapped(text, signs):
        is_heading = _HEADING.match(stripped) is not None
        if (not stripped and not goes_on) or is_heading:
            found += _settled(block)
            block = []
        if not stripped:
            continue
        if fence := _FENCE.match(stripped):
            is_code = not is_code and fence[1].lower() not in _IN_WORDS
            continue
        for part in _parts(stripped):
            if len(block) >= _BLOCK:
                found += _settled(block)
                block = []
            own = slots_of(part) | sign
            block.append(Sentence(line=number, text=part, own=own, heading=heading, is_code=is_code))
        if is_heading:
            heading = frozenset(chain.from_iterable(one.own for one in block))
        goes_on = is_heading or stripped.endswith(_INTRODUCES)
    return found + _settled(block)


def _unwrapped(text: str, signs: Mapping[int, Slots]) -> Iterator[tuple[int, str, Slots]]:
    """The lines of a text with their slots; a sentence that was wrapped over several is one line, code is not."""
    number, whole, named, is_fenced = 1, "", frozenset[str](), False
    for place, line in enumerate(text.split("\n"), 1):
        stripped, sign = line.strip(), signs.get(place, frozenset())
        is_fenced ^= _FENCE.match(stripped) is not None
        if not is_fenced and stripped[:1].islower() and _UNFINISHED.match(whole) and not _KEY.match(stripped):
            whole, named = f"{whole} {stripped}", named | sign
            continue
        if place > 1:
            yield number, whole, named
        number, whole, named = place, stripped, sign
    yield number, whole, named


def _parts(line: str) -> Iterator[str]:
    """The sentences of a line; what has no end is cut."""
    for part in _SENTENCE_END.split(line) if len(line) > _SHORT else (line,):
        yield from (part[start : start + _LONGEST_SENTENCE] for start in range(0, len(part), _LONGEST_SENTENCE))


def _settled(block: list[Sentence]) -> list[Sentence]:
    for sentence in block:
        others = (other.lent for other in block if other is not sentence)
        sentence.around = sentence.heading.union(*others)
    return block


@functools.lru_cache(maxsize=4_096)  # skills of one collection share sentences
def slots_of(sentence: str) -> Slots:
    """What a sentence speaks of, with the marks of negation."""
    return frozenset(chain.from_iterable(words_of(sentence)))


def words_of(sentence: str) -> list[Slots]:
    """The slots of each word, in order; a phrase counts where it begins."""
    plain = folded(sentence)
    tokens = _TOKENS.findall(plain)
    lexicon = _lexicon(is_english=not _ENGLISH.isdisjoint(tokens))
    found: list[Slots] = []
    turned: dict[str, int] = {}  # mark → words that it still reaches
    for place, token in enumerate(tokens):
        if token in _BREAKS:
            turned.clear()
            continue
        named = _named(tokens, place, lexicon)
        found.append(named.union(mark + name for mark in turned for name in named) if turned else named)
        turned = {mark: left - 1 for mark, left in turned.items() if left > 1} if turned else turned
        if "not" in named:
            turned["-"] = _REACH
        elif "without" in named and "-" not in turned:
            turned["~"] = _REACH
    if _UNSPACED.search(plain):
        found.append(
            frozenset(chain.from_iterable(names for entry, names in lexicon.anywhere.items() if entry in plain))
        )
    return found


def _named(tokens: Sequence[str], place: int, lexicon: Lexicon) -> Slots:
    """The slots of a word, and of the phrases that begin with it."""
    phrase = tokens[place]
    found = _of_word(phrase, lexicon.is_english)
    while phrase in lexicon.openings and place + 1 < len(tokens):
        place += 1
        phrase += " " + tokens[place]
        found |= lexicon.phrases.get(phrase, frozenset())
        found |= _beginning(phrase, lexicon.phrase_beginnings, len(tokens[place]))
    return found


@functools.lru_cache(maxsize=20_000)
def _of_word(word: str, is_english: bool) -> Slots:
    lexicon = _lexicon(is_english=is_english)
    found = set(lexicon.whole.get(word, ())) | _beginning(word, lexicon.beginnings, len(word) - 1)
    shorter = _ARTICLES.sub("", word)
    return frozenset(found) if shorter == word else frozenset(found) | _of_word(shorter, is_english)


def _beginning(text: str, beginnings: Mapping[str, Slots], last_word: int) -> Slots:
    cut = range(max(2, len(text) - last_word), len(text) + 1)
    return frozenset(chain.from_iterable(beginnings.get(text[:end], ()) for end in cut))


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexicon:
    """English alone, or all languages: short words of one mean something else in another."""

    is_english: bool
    whole: Mapping[str, Slots]
    beginnings: Mapping[str, Slots]
    phrases: Mapping[str, Slots]
    phrase_beginnings: Mapping[str, Slots]
    openings: frozenset[str]  # what phrases begin with, word by word
    anywhere: Mapping[str, Slots]


@functools.cache
def _lexicon(*, is_english: bool) -> Lexicon:
    """Read when the first text is judged."""
    tables: list[dict[str, Slots]] = [{}, {}, {}, {}, {}]
    for slot, entry in _entries(is_english):
        plain = " ".join(_TOKENS.findall(folded(entry.replace(":", " "))))
        is_beginning = entry.endswith("*")
        place = 4 if _UNSPACED.search(plain) else 2 * (" " in plain) + is_beginning
        tables[place][plain] = tables[place].get(plain, frozenset()) | {slot}
    whole, beginnings, phrases, phrase_beginnings, anywhere = tables
    return Lexicon(
        is_english=is_english,
        whole=whole,
        beginnings=beginnings,
        phrases=phrases,
        phrase_beginnings=phrase_beginnings,
        openings=frozenset(chain.from_iterable(map(_openings, (*phrases, *phrase_beginnings)))),
        anywhere=anywhere,
    )


def _openings(phrase: str) -> Iterator[str]:
    words = phrase.split(" ")
    return (" ".join(words[:end]) for end in range(1, len(words)))


def _entries(is_english: bool) -> Iterator[tuple[str, str]]:
    for slot, languages in rules.read("words").items():
        for line in (languages["en"],) if is_english else languages.values():
            yield from ((slot, entry.strip()) for entry in line.split(",") if entry.strip())


def folded(text: str) -> str:
    """Lower case without accents and unseen characters; both sides of a comparison are folded."""
    if text.isascii():
        return text.lower()
    whole = unicodedata.normalize("NFKD", "".join(char for char in text if unicodedata.category(char) != "Cf"))
    return unicodedata.normalize("NFC", _MARKS.sub("", whole)).casefold().replace("ı", "i").replace("ł", "l")
