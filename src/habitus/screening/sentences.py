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
_ANSWERED_NO = re.compile(r"(?i)[^.!?]{1,200}\?[\"')*_]{0,3}\s{1,3}(?=(?:never|no)[.,:;!]|don['’]?t\b|do not\b)")
_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*([\w+-]*)")
_IN_WORDS = frozenset({"", "text", "txt", "md", "markdown", "prompt", "plain", "plaintext"})
_SAID_IN_CODE = re.compile(
    r"(?:(?:#|//) )?[A-Z][a-z]+ [a-z]+(?: [\w'’,./~-]{1,60}){4,60}[.!]$"
)  # a sentence, no program
_NO_ORDER = re.compile(  # a title, somebody's words, and when a skill is of use
    r"#|[-*+ ]{0,4}[\"“][^\"”]{2,200}[\"”]\W{0,3}$"
    r"|(?:description: ?[\"']?)?(?:use|used|invoke|apply|applies|triggers?)\b(?: \w{2,12}){0,3} (?:when|whenever|if)\b"
)
_INTRODUCES = (":", ":**", ":*", ":__")
_TOKENS = re.compile(
    r"(?P<url>(?:https?|wss?|ftp|s3|gs)://[^\s\"'<>)\]`]{1,300})"
    r"|(?<![\w.:@/-])(?P<host>\d{1,3}(?:\.\d{1,3}){3}|(?:[\w-]{1,40}+\.){1,3}(?:com|org|cc|ru|xyz|biz|onion)(?![\w(]))(?![\w.]\w)"
    r"|(?<![a-z0-9_.+$-])(?:(?P<mail>[\w.+-]{1,64}+@(?:[\w-]{1,63}\.){1,5}[a-z]{2,24}\b)"
    r"|(?P<path>[~$.]{0,2}[\w${}.-]{0,60}+(?:/[\w${}.*-]{1,60}+){1,9}/?|\.[a-z]\w{1,20}(?:\.\w{1,12})?"
    r"|[\w-]{1,60}+\.[a-z]{1,5}\d?\b))"
    r"|[\w\u0900-\u0dff]{1,80}|[,;:()|—–→>]"
)
_PLAIN_TOKENS = re.compile(r"[\w\u0900-\u0dff]{1,80}|[,;:()|—–→>]")
_MAY_LEAD = re.compile(r"[/@]|\.\w")  # without one of these there is neither an address nor a path
_COMPOUND = re.compile(r"\b([a-z]{2,20})-(?=[a-z])")  # "open-source": the first word orders nothing
_INSIDE = re.compile(r"[\w\u0900-\u0dff]+")
_MARKS = re.compile(r"[\u0300-\u036f\u064b-\u0655\u0591-\u05c7\u093c]")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARTICLES = re.compile(r"^(?:وال|بال|لل|ال|و|ب|ل|ה|ו|ב|ל|ש)(?=\w{3})")
_BREAKS = frozenset([*",;:()|—–→>", "and", "then", "but"])
_ENGLISH = frozenset(  # words that hardly any other language has
    re.findall(
        r"\w+",
        "the of and with this that is are your you when after any from it its not be their they them by each every "
        "into should must never always before without only which what how than to for if does did can cannot "
        "these those previous instructions run",
    )
)
_PARTICIPLE = r"(\w{2,20}(?:ed|en)|read|run|put|set|sent|kept|made|told|left|built|sold|bought|paid|fed)\b"
_THING, _MUST = r"((?:(?![,;:] ).){2,160}?)", r"(?:must|should|shall|(?:has|have|needs?|is|are|ought) to)"
_PASSIVE = re.compile(
    rf"(?:(?<=[,;:] )|(?<=[:,]\*\* )|^)[-*+>#\d.\s]{{0,8}}(?:(?:make sure|ensure)(?: that)? {_THING} (?:is|are|gets?)"
    rf"|{_THING} {_MUST}(?: (not|never))?(?: \w{{1,20}}ly| always| also)? be)(?: \w{{1,20}}ly)? {_PARTICIPLE}"
    r"( (?:off|out|up|over|aside|down|away|with)\b)?"
)
_AND_PARTICIPLE = re.compile(rf"(?<=\band ){_PARTICIPLE}")
_ROUNDABOUT = re.compile(
    rf"\b(?:(?:assistant|agent|model|ai|claude|skill|script|you) {_MUST}|(?:could|can|would|will) you"
    r"|it is \w{1,20} (?:to|that you)|(?:task|job|duty|goal|step|role|action) is to|(?:forget|you|required|expected) to"
    r"|(?:start|begin|finish|end|go on|continue|proceed) (?:by|with)) (?:(\w{2,20}ing)\b)?"
)
_MAY_BE_ROUNDABOUT = re.compile(r" (?:to|you|with|by|must|should|shall) ")  # without it that one, much slower, has none
_FORMS = "sent/send kept/keep made/make told/tell left/leave built/build sold/sell bought/buy paid/pay fed/feed "
_FORMS += (
    "given/give written/write hidden/hide stolen/steal taken/take overwritten/overwrite forgotten/forget broken/break"
)
_IRREGULAR = dict(re.findall(r"(\w+)/(\w+)", _FORMS))
_UNFINISHED = re.compile(r"(?![#|]).*[\w,]$")
_NOTIFIES = re.compile(  # a message that is written out, to a channel of a team: nothing of the person's is in it
    r"curl\b[^\n`$@]{0,200}\{\s{0,3}\"(?:text|content)\"\s{0,3}:\s{0,3}\"[^\n`$@\"]{0,200}\"\s{0,3}\}[^\n`$@]{0,80}"
    r"https://(?:hooks\.slack\.com|discord\.com/api/webhooks)/[\w/-]{0,120}"
)
_KEY = re.compile(r"[\w-]+:(?!//)")
_WALLET = re.compile(r"0x[0-9a-f]{12}|bc1[0-9a-z]{20}|[13][1-9a-z]{25,34}$|[a-z]{2}\d{2}[0-9a-z]{12,30}$")
_REACH = 4  # words that a negation turns
_UNORDERED = 3  # groups of slots that may meet in what has no words to order
_KNOWN_AT_MOST = 100_000  # words
_LONGEST_SENTENCE = 1_000
_SHORT = 60  # characters that are hardly two sentences
_BLOCK = 12  # sentences that one introduction reaches

Slots = frozenset[str]
KindOfHost = Callable[[str], str]
NOTHING: Slots = frozenset()
_APART = (NOTHING,) * 13  # more words than any intent reaches over
_OF_WALLET: Slots = frozenset({"wallet_address"})
_OF_SECRETS: Slots = frozenset({"secret_path"})  # addresses that give credentials out


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """One sentence, its line, the slots of its words, and those of what stands before it."""

    line: int
    text: str
    words: Sequence[Slots]
    own: Slots  # those of all its words
    heading: Slots = NOTHING
    block: Slots = NOTHING  # those of the sentences before it
    opening: Slots = NOTHING  # those of the line that introduces its list
    is_row: bool = False  # of a table
    is_code: bool = False  # a line of a program, whose words mean something else

    @property
    def around(self) -> Slots:
        return self.heading | self.block

    @property
    def above(self) -> Slots:
        return self.heading | self.opening


def sentences(text: str, kind_of_host: KindOfHost, table: str = "words") -> Iterator[Sentence]:
    """The sentences of a text in their order, read with the words of a table."""
    heading, opening, block, count = NOTHING, NOTHING, NOTHING, 0
    goes_on = is_code = False
    for number, stripped in _unwrap_lines(text):
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
            is_program = is_code and not _SAID_IN_CODE.match(part)
            words = words_of(part, kind_of_host, table) if not is_program else []
            own = NOTHING.union(*words)
            yield Sentence(
                line=number,
                text=part,
                words=words,
                own=own,
                heading=heading,
                block=block,
                opening=opening,
                is_row=stripped.startswith("|"),
                is_code=is_program,
            )
            block, count = block | own, count + 1
        if is_heading:
            heading = block
        goes_on = is_heading or stripped.endswith(_INTRODUCES)
        opening = block if goes_on else opening


def _unwrap_lines(text: str) -> Iterator[tuple[int, str]]:
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
    line = _ANSWERED_NO.sub("", line) if "?" in line else line
    for part in _SENTENCE_END.split(line) if len(line) > _SHORT or ". " in line else (line,):
        yield from (part[start : start + _LONGEST_SENTENCE] for start in range(0, len(part), _LONGEST_SENTENCE))


def words_of(sentence: str, kind_of_host: KindOfHost, table: str) -> list[Slots]:
    """The slots of each word, in order; an order in other words ("must be sent") follows as it is given ("send")."""
    if _MAY_LEAD.search(sentence) or not sentence.isascii():
        return _read_words(sentence, kind_of_host, table)
    return [*_words_anywhere(sentence, table)]


@functools.lru_cache(maxsize=10_000)
def _words_anywhere(sentence: str, table: str) -> tuple[Slots, ...]:
    """Of a sentence that means the same in every skill, because it has no address; a fifth of them come again."""
    return tuple(_read_words(sentence, lambda host: "", table))


def _read_words(sentence: str, kind_of_host: KindOfHost, table: str) -> list[Slots]:
    plain = fold_text(sentence)
    plain = _NOTIFIES.sub("", plain) if "hooks" in plain else plain
    found = _slots_in_order(plain, kind_of_host, table)
    order = _as_order(plain) if " " in plain else plain
    return found if order == plain else [*found, *_APART, *_slots_in_order(order, kind_of_host, table)]


def _as_order(plain: str) -> str:
    """Passive, gerund and roundabout orders of an English sentence as imperatives. Most have no sign of one."""
    if " be " in plain or "ensure " in plain or "make sure " in plain:
        active = _PASSIVE.sub(
            lambda said: f"{said[3] or ''} {_base_of(said[4])}{said[5] or ''} {said[1] or said[2]}", plain
        )
        plain = plain if active == plain else _AND_PARTICIPLE.sub(lambda said: _base_of(said[1]), active)
    if not _MAY_BE_ROUNDABOUT.search(plain):
        return plain
    return _ROUNDABOUT.sub(lambda said: f", {_base_of(said[1] or '')}", plain)


def _base_of(verb: str) -> str:
    """The form of a verb that orders: that of a participle or gerund which the words know."""
    stem = re.sub(r"(?:ied|ed|ing)$", lambda end: "y" if end[0] == "ied" else "", verb)
    forms = (_IRREGULAR.get(verb, ""), stem, f"{stem}e", stem[:-1])
    known = _lexicon("words", is_english=True).whole
    return next((form for form in forms if form in known), verb)


def _slots_in_order(plain: str, kind_of_host: KindOfHost, table: str) -> list[Slots]:
    """The slots of each word; a phrase counts where it begins."""
    tokens, special = _tokens(plain, kind_of_host)
    lexicon = _lexicon(table, is_english=not _ENGLISH.isdisjoint(tokens))
    known, openings = lexicon.known, lexicon.openings
    found: list[Slots] = []
    turned: dict[str, int] = {}  # mark → words that it still reaches
    is_title = _NO_ORDER.match(plain) is not None
    opens = not is_title
    compounds = _COMPOUND.findall(plain) if "-" in plain else ()
    for place, token in enumerate(tokens):
        if token in _BREAKS:
            turned.clear()
            is_title = is_title and (token != ";" or plain[0] == "#")
            opens = token not in "(|>→" and not is_title
            continue
        named = known[token] if token in known else _of_word(token, lexicon)
        phrases = _of_phrases(tokens, place, lexicon) if token in openings else NOTHING
        if special and place in special:
            named |= special[place]
        if opens:
            opens = token.isdigit() or "leads_in" in named or "leads_in" in phrases
            phrases = _mark_slots(phrases, "!") if phrases else phrases
            named = named if token in compounds else _mark_slots(named, "!")
        if phrases:
            named |= phrases
        if turned:
            found.append(named.union(*(_mark_slots(named, mark) for mark in turned)))
            turned = {mark: left - 1 for mark, left in turned.items() if left > 1}
        else:
            found.append(named)
        if named:
            if "not" in named:
                turned["-"] = _REACH
            elif "without" in named and "-" not in turned:
                turned["~"] = _REACH
    if _UNSPACED.search(plain):
        found += [NOTHING.union(*(names for entry, names in lexicon.anywhere.items() if entry in plain))] * _UNORDERED
    return found


def _tokens(plain: str, kind_of_host: KindOfHost) -> tuple[list[str], dict[int, Slots]]:
    """The words, and what addresses and paths among them stand for."""
    if not _MAY_LEAD.search(plain):
        tokens = _PLAIN_TOKENS.findall(plain)
        return tokens, {at: _OF_WALLET for at, token in enumerate(tokens) if len(token) > 13 and _WALLET.match(token)}
    tokens = []
    special: dict[int, Slots] = {}
    for found in _TOKENS.finditer(plain):
        token, kind = found[0], found.lastgroup
        if kind in ("url", "mail", "host"):
            host = kind_of_host(token if kind == "host" else rules.host_of(token))
            special[len(tokens)] = frozenset({host, "address"} - {""}) | (rules.path_slots(token) & _OF_SECRETS)
            tokens.append("")
        elif kind == "path" and (named := rules.path_slots(token)):
            special[len(tokens)] = named
            tokens.append("")
        else:
            if _WALLET.match(token):
                special[len(tokens)] = _OF_WALLET
            tokens += _INSIDE.findall(token) if kind else [token]
    return tokens, special


@functools.lru_cache(maxsize=20_000)
def _mark_slots(named: Slots, mark: str) -> Slots:
    """The slots, and the same with a mark before them."""
    return named.union(mark + name for name in named)


def _of_phrases(tokens: Sequence[str], place: int, lexicon: Lexicon) -> Slots:
    """The slots of the phrases that begin with a word."""
    phrase, found = tokens[place], NOTHING
    while phrase in lexicon.openings and place + 1 < len(tokens):
        place += 1
        word = tokens[place]
        for stem, named in lexicon.phrase_beginnings.get(phrase, ()):
            if word.startswith(stem):
                found |= named
        phrase += " " + word
        if phrase in lexicon.phrases:
            found |= lexicon.phrases[phrase]
    return found


def _of_word(word: str, lexicon: Lexicon) -> Slots:
    """The slots of a word, remembered because words repeat."""
    stems = (word[:end] for end in range(2, min(len(word), lexicon.longest_beginning) + 1))
    found = lexicon.whole.get(word, NOTHING).union(*(lexicon.beginnings.get(stem, NOTHING) for stem in stems))
    shorter = _ARTICLES.sub("", word)
    found = found if shorter == word else found | _of_word(shorter, lexicon)
    if len(lexicon.known) >= _KNOWN_AT_MOST:
        lexicon.known.clear()
    lexicon.known[word] = found
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexicon:
    """English alone, or all languages: short words of one mean something else in another."""

    whole: Mapping[str, Slots]
    beginnings: Mapping[str, Slots]
    phrases: Mapping[str, Slots]
    phrase_beginnings: Mapping[str, Sequence[tuple[str, Slots]]]  # all but the last word → how that one begins
    openings: frozenset[str]  # what phrases begin with, word by word
    anywhere: Mapping[str, Slots]
    longest_beginning: int
    known: dict[str, Slots]  # words that were looked up


@functools.cache
def _lexicon(table: str, *, is_english: bool) -> Lexicon:
    """Read when the first text is judged."""
    tables: list[dict[str, Slots]] = [{}, {}, {}, {}, {}]
    words = rules.read(table)
    other = {} if is_english else rules.read("words")["other"] | words["other"]
    for language in (words["english"], other):
        for slot, entries in language.items():
            for entry in map(str.strip, entries.split(",")):
                plain = " ".join(_INSIDE.findall(fold_text(entry)))
                place = 4 if _UNSPACED.search(plain) else 2 * (" " in plain) + entry.endswith("*")
                tables[place][plain] = tables[place].get(plain, NOTHING) | {slot}
    whole, beginnings, phrases, begun, anywhere = tables
    phrase_beginnings: dict[str, list[tuple[str, Slots]]] = {}
    for phrase, slots in begun.items():
        opening, _, stem = phrase.rpartition(" ")
        phrase_beginnings.setdefault(opening, []).append((stem, slots))
    return Lexicon(
        whole=whole,
        beginnings=beginnings,
        phrases=phrases,
        phrase_beginnings=phrase_beginnings,
        openings=frozenset(chain.from_iterable(map(_openings, (*phrases, *begun)))),
        anywhere=anywhere,
        longest_beginning=max(map(len, beginnings)),
        known={},
    )


def _openings(phrase: str) -> Iterator[str]:
    words = phrase.split(" ")
    return (" ".join(words[:end]) for end in range(1, len(words)))


def fold_text(text: str) -> str:
    """Lower case without accents and unseen characters; both sides of a comparison are folded."""
    if text.isascii():
        return text.lower()
    for char in set(text):
        if char > "\x7f" and unicodedata.category(char) == "Cf":
            text = text.replace(char, "")
    whole = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _MARKS.sub("", whole)).casefold().replace("ı", "i").replace("ł", "l")
