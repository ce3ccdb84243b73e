"""Reads a text into sentences, and each of them into the slots of its words: what it speaks of, in which mood. Pure.

`send` stands for a word of that slot, `!send` for one that opens its clause as an order does, `-send` for one that is
negated ("never send"), `~approval` for one that is to be skipped ("without asking"), `+standing` for one in the heading
or in the sentences before it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from habitus.screening import rules

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]{0,3}\s+(?=\S)|(?<=[。！？।])")
_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*([\w+-]*)")
_IN_WORDS = frozenset({"", "text", "txt", "md", "markdown", "prompt", "plain", "plaintext"})
_INTRODUCES = (":", ":**", ":*", ":__")
_TOKENS = re.compile(
    r"(?P<url>(?:https?|wss?|ftp)://[^\s\"'<>)\]`]{1,300})"
    r"|(?<![\w.:@/-])(?P<host>\d{1,3}(?:\.\d{1,3}){3}|(?:[\w-]{1,40}+\.){1,3}(?:com|org|cc|ru|xyz|biz|onion)(?![\w(]))(?![\w.]\w)"
    r"|(?<![a-z0-9_.+$-])(?:(?P<mail>[\w.+-]{1,64}+@(?:[\w-]{1,63}\.){1,5}[a-z]{2,24}\b)"
    r"|(?P<path>[~$.]{0,2}[\w${}.-]{0,60}+(?:/[\w${}.*-]{1,60}+){1,9}/?|\.[a-z]\w{1,20}(?:\.\w{1,12})?"
    r"|[\w-]{1,60}+\.[a-z]{1,5}\d?\b))"
    r"|[\w\u0900-\u0dff]{1,80}|[,;:()|—–→>]"
)
_INSIDE = re.compile(r"[\w\u0900-\u0dff]+")
_MARKS = re.compile(r"[\u0300-\u036f\u064b-\u0655\u0591-\u05c7\u093c]")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARTICLES = re.compile(r"^(?:وال|بال|لل|ال|و|ب|ل|ה|ו|ב|ל|ש)(?=\w{3})")
_BREAKS = frozenset([*",;:()|—–→>", "and", "then", "but"])
_ENGLISH = frozenset(  # words that hardly any other language has
    re.findall(
        r"\w+",
        "the of and with this that is are your you when after any from it its not be their they them by each every "
        "into has should must never always before without only which what how than to for if does did can cannot "
        "these those all previous instructions run",
    )
)
_UNFINISHED = re.compile(r"(?![#|]).*[\w,]$")
_KEY = re.compile(r"[\w-]+:(?!//)")
_WALLET = re.compile(r"0x[0-9a-f]{12}|bc1[0-9a-z]{20}|[13][1-9a-z]{25,34}$|[a-z]{2}\d{2}[0-9a-z]{12,30}$")
_REACH = 4  # words that a negation turns
_UNORDERED = 3  # groups of slots that may meet in what has no words to order
_LONGEST_SENTENCE = 1_000
_SHORT = 60  # characters that are hardly two sentences
_BLOCK = 12  # sentences that one introduction reaches

Slots = frozenset[str]
KindOfHost = Callable[[str], str]
NOTHING: Slots = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """One sentence, its line, the slots of its words, and those of its heading and of the sentences before it."""

    line: int
    text: str
    words: Sequence[Slots]
    around: Slots = NOTHING
    above: Slots = NOTHING  # those of its heading and of the line that introduces its list
    is_row: bool = False  # of a table
    is_code: bool = False  # a line of a program, whose words mean something else

    @property
    def own(self) -> Slots:
        return NOTHING.union(*self.words)


def sentences(text: str, kind_of_host: KindOfHost, table: str = "words") -> Iterator[Sentence]:
    """The sentences of a text in their order, read with the words of a table."""
    heading, opening, block, count = NOTHING, NOTHING, NOTHING, 0
    goes_on = is_code = False
    for number, stripped in _unwrapped(text):
        is_heading = _HEADING.match(stripped) is not None
        if (not stripped and not goes_on) or is_heading:
            opening = NOTHING
        if (not stripped and not goes_on) or is_heading or count >= _BLOCK:
            block, count = NOTHING, 0
        if not stripped:
            continue
        if fence := _FENCE.match(stripped):
            is_code = not is_code and fence[1].lower() not in _IN_WORDS
            continue
        for part in _parts(stripped):
            words = words_of(part, kind_of_host, table) if not is_code else []
            around, above = heading | block, heading | opening
            yield Sentence(
                line=number,
                text=part,
                words=words,
                around=around,
                above=above,
                is_row=stripped.startswith("|"),
                is_code=is_code,
            )
            block, count = block.union(*words), count + 1
        if is_heading:
            heading = block
        goes_on = is_heading or stripped.endswith(_INTRODUCES)
        opening = block if goes_on else opening


def _unwrapped(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text; a sentence that was wrapped over several is one line, code is not."""
    number, whole, is_fenced = 1, [""], False
    for place, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        is_fenced ^= _FENCE.match(stripped) is not None
        if not is_fenced and stripped[:1].islower() and _UNFINISHED.match(whole[-1]) and not _KEY.match(stripped):
            whole.append(stripped)
            continue
        if place > 1:
            yield number, " ".join(whole)
        number, whole = place, [stripped]
    yield number, " ".join(whole)


def _parts(line: str) -> Iterator[str]:
    """The sentences of a line; what has no end is cut."""
    for part in _SENTENCE_END.split(line) if len(line) > _SHORT else (line,):
        yield from (part[start : start + _LONGEST_SENTENCE] for start in range(0, len(part), _LONGEST_SENTENCE))


def words_of(sentence: str, kind_of_host: KindOfHost, table: str) -> list[Slots]:
    """The slots of each word, in order; a phrase counts where it begins."""
    plain = folded(sentence)
    tokens, special = _tokens(plain, kind_of_host)
    lexicon = _lexicon(table, is_english=not _ENGLISH.isdisjoint(tokens))
    found: list[Slots] = []
    turned: dict[str, int] = {}  # mark → words that it still reaches
    is_title = sentence.startswith("#")
    opens = not is_title
    for place, token in enumerate(tokens):
        if token in _BREAKS:
            turned.clear()
            opens = token not in "(|>→" and not is_title
            continue
        named = _named(tokens, place, lexicon) | special.get(place, NOTHING)
        if opens:
            opens = token.isdigit() or "leads_in" in named
            named = named.union("!" + name for name in named)
        found.append(named.union(mark + name for mark in turned for name in named) if turned else named)
        turned = {mark: left - 1 for mark, left in turned.items() if left > 1} if turned else turned
        if "not" in named:
            turned["-"] = _REACH
        elif "without" in named and "-" not in turned:
            turned["~"] = _REACH
    if _UNSPACED.search(plain):
        found += [NOTHING.union(*(names for entry, names in lexicon.anywhere.items() if entry in plain))] * _UNORDERED
    return found


def _tokens(plain: str, kind_of_host: KindOfHost) -> tuple[list[str], dict[int, Slots]]:
    """The words, and what addresses and paths among them stand for."""
    tokens: list[str] = []
    special: dict[int, Slots] = {}
    for found in _TOKENS.finditer(plain):
        token, kind = found[0], found.lastgroup
        if kind in ("url", "mail", "host"):
            host = kind_of_host(token if kind == "host" else rules.host_of(token))
            special[len(tokens)] = frozenset({host, "address"} - {""})
            tokens.append("")
        elif kind == "path" and (named := rules.path_slots(token)):
            special[len(tokens)] = named
            tokens.append("")
        else:
            if _WALLET.match(token):
                special[len(tokens)] = frozenset({"wallet_address"})
            tokens += _INSIDE.findall(token) if kind else [token]
    return tokens, special


def _named(tokens: Sequence[str], place: int, lexicon: Lexicon) -> Slots:
    """The slots of a word, and of the phrases that begin with it."""
    phrase = tokens[place]
    found = _of_word(phrase, lexicon.table, lexicon.is_english)
    while phrase in lexicon.openings and place + 1 < len(tokens):
        place += 1
        phrase += " " + tokens[place]
        found |= lexicon.phrases.get(phrase, NOTHING) | _beginning(
            phrase, lexicon.phrase_beginnings, len(tokens[place])
        )
    return found


@functools.lru_cache(maxsize=20_000)
def _of_word(word: str, table: str, is_english: bool) -> Slots:
    lexicon = _lexicon(table, is_english=is_english)
    found = lexicon.whole.get(word, NOTHING) | _beginning(word, lexicon.beginnings, len(word) - 1)
    shorter = _ARTICLES.sub("", word)
    return found if shorter == word else found | _of_word(shorter, table, is_english)


def _beginning(text: str, beginnings: Mapping[str, Slots], last_word: int) -> Slots:
    cut = range(max(2, len(text) - last_word), len(text) + 1)
    return NOTHING.union(*(beginnings.get(text[:end], NOTHING) for end in cut))


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexicon:
    """English alone, or all languages: short words of one mean something else in another."""

    table: str
    is_english: bool
    whole: Mapping[str, Slots]
    beginnings: Mapping[str, Slots]
    phrases: Mapping[str, Slots]
    phrase_beginnings: Mapping[str, Slots]
    openings: frozenset[str]  # what phrases begin with, word by word
    anywhere: Mapping[str, Slots]


@functools.cache
def _lexicon(table: str, *, is_english: bool) -> Lexicon:
    """Read when the first text is judged."""
    tables: list[dict[str, Slots]] = [{}, {}, {}, {}, {}]
    words = rules.read(table)
    for language in ("english",) if is_english else ("english", "other"):
        for slot, entries in words[language].items():
            for entry in map(str.strip, entries.split(",")):
                plain = " ".join(_INSIDE.findall(folded(entry)))
                place = 4 if _UNSPACED.search(plain) else 2 * (" " in plain) + entry.endswith("*")
                tables[place][plain] = tables[place].get(plain, NOTHING) | {slot}
    whole, beginnings, phrases, phrase_beginnings, anywhere = tables
    return Lexicon(
        table=table,
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


def folded(text: str) -> str:
    """Lower case without accents and unseen characters; both sides of a comparison are folded."""
    if text.isascii():
        return text.lower()
    whole = unicodedata.normalize("NFKD", "".join(char for char in text if unicodedata.category(char) != "Cf"))
    return unicodedata.normalize("NFC", _MARKS.sub("", whole)).casefold().replace("ı", "i").replace("ł", "l")
