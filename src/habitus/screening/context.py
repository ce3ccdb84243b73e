"""Is an attack meant, or does the text quote it to warn? Only asked where a rule has matched."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

_LINE_END = re.compile("\n")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_INVISIBLE_MARKUP = re.compile(
    r"<(\w+)\b[^>\n]{0,200}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|"
    r"opacity\s*:\s*0(?![.\d])|color\s*:\s*(?:white|#fff(?:fff)?|transparent)\b|\bhidden\b)"
    r"[^>\n]{0,200}>|\[(?://|comment)\]:\s*#\s*[(\"'][^\n]*"
)
_HEADING = re.compile(r"^(?:#{1,6}[ \t]+\S[^\n]*|\*\*[^\n*]+\*\*:?[ \t]*$|[^\n]*:[ \t]*$)", re.MULTILINE)

# Words that stand around a quoted attack rather than around an order.
_WARNS = re.compile(
    r"\b(?:attack(?:s|er|ers|ing|ed)?|injections?|jailbreaks?|malicious|adversar\w+|payloads?|exploit\w*|"
    r"vulnerab\w+|threats?|red flags?|"
    r"suspicious\w*|unsafe|dangerous\w*|anti-?patterns?|forbidden|prohibited|refuse[sd]?|reject(?:s|ed)?|"
    r"untrusted|phishing|hostile|"
    r"never (?:run|do|execute|use|follow|include|obey|allow|commit|read|send|put|trust|bypass)|(?:do not|"
    r"don't) (?:run|do|execute|use|follow|obey|include|allow|trust|commit|ever)|"
    r"block(?:s|ed)? (?:commands|patterns|by|list)|denied|deny|social engineering|not allowed|disallowed|"
    r"insecure|harmful|catastrophic|destructive|"
    r"malware|warning signs?|bad (?:example|practice|idea)s?|wrong|smuggl\w+|poison\w*|detect(?:s|ed|ion|"
    r"ing)? (?:of|for|patterns?|signatures?)|indicators?)\b|[❌✗✘🚫⛔☠]"
)
# Words that turn the verb which follows into something not to be done, or that someone else wants.
_NEGATES = re.compile(
    r"\b(?:never|do not|don't|does not|doesn't|must not|mustn't|should not|shouldn't|cannot|can't|won't|"
    r"will not|avoid|refuse[sd]? to|"
    r"attempts? (?:to|at)|attempting to|tr(?:y|ies|ying) to|asks? (?:you|it|them|the \w+|to)|asked to|"
    r"asking (?:you|it|to)|tells? (?:you|it|the \w+)|"
    r"telling (?:you|it|the \w+)|claims? to|requests? to|trick\w* (?:\w+ )?into|instead of|rather than|"
    r"prevents? \w+ from|resist|"
    r"(?:says|saying|like|such as|e\.g\.|for example|containing|contains)[:,]?)\s+[\"'`*]?(?:\w+\s+){0,2}[\"'`*]?$"
    r"|(?:不要|禁止|切勿|请勿|不得|避免|不会|不能|绝不|严禁)[^。\n]{0,6}$"
)
# `Never push without asking` is the opposite of `push without asking`.
_FORBIDS = re.compile(
    r"\b(?:never|not|don't|doesn't|won't|can't|cannot|avoid|no|nothing|"
    r"refuse|prevent\w*|"
    r"instead of)\b[^.!?\n]*$"
)
# `Ignore any instructions in the pages you read` is what a careful skill says.
_DEFENDS = re.compile(
    r"[\"'`*]*\s+(?:(?:that|which) (?:appear|are|come|may|might|it)|in|inside|within|from|found|embedded|"
    r"contained|you (?:find|see|encounter|read))\b"
    r"(?!\s+(?:the\s+|your\s+)?(?:system|user|developer|anthropic|openai|operator|above|prior|previous))"
)
# `A page that tells you to … is content to be reported, not followed.`
_DESCRIBES = re.compile(
    r"\b(?:that|which|who) (?:tells?|asks?|orders?|instructs?|urges?) (?:you|it|the \w+) to\b[^.!?\n]*$"
)
_DISOWNS = re.compile(
    r"[^.!?\n]*\b(?:(?:not|never) (?:to be )?(?:followed|obeyed)|to be (?:reported|refused|ignored))\b"
)
# `Do not tell the user what they owe` keeps an opinion back, not a fact.
_OPINION = re.compile(r"\s+they (?:owe|should|must|need|ought|want|can)\b")
_ABOUT_SECURITY = re.compile(
    r"\b(?:security[- ](?:audit|review|scan|test|research|check|guard|analy|assess|polic|rule|"
    r"guideline)\w*|(?:prompt|sql|command|code)[- ]injections?|jailbreak\w*|"
    r"red[- ]?team\w*|pentest\w*|penetration|threats?|vulnerab\w+|malware|guardrails?|owasp|exploits?|"
    r"exploitation|forensic\w*|adversarial|"
    r"hardening|attacks?|attackers?|hacking|ctf|privilege escalation|incident response|yara|sast)\b"
)
_QUOTE_MARKS = "\"'`"
_OVERRIDES = ("ignore", "disregard", "do not follow", "don't follow", "do not obey", "don't obey")
_LIST_MARKS = ("-", "*", "|", "+", ">")
# What follows is a value rather than a quotation: `"hint": "…"`, `hint="…"`, `hint: "…"`.
_VALUE = re.compile(r"(?:[\"'][ \t]*:|[\w\]\"'][ \t]*=|^[\s-]*[\w-]+[ \t]*:)[ \t]*$")

MOST_SPANS = 200


@dataclass(frozen=True, kw_only=True)
class Context:
    """A lower-case text with the places that matter for judging a match, found when first asked for."""

    lower: str
    is_prose: bool = True

    @cached_property
    def line_ends(self) -> list[int]:
        return [match.start() for match in _LINE_END.finditer(self.lower)]

    def line_of(self, place: int) -> int:
        """The number of the line, from 1."""
        return bisect_left(self.line_ends, place) + 1

    def span_of(self, first: int, last: int) -> tuple[int, int]:
        """From the start of one line to the end of another; lines outside of the text are cut off."""
        first, last = max(1, first), min(len(self.line_ends) + 1, last)
        start = self.line_ends[first - 2] + 1 if first > 1 else 0
        end = self.line_ends[last - 1] if last <= len(self.line_ends) else len(self.lower)
        return start, end

    def line(self, number: int) -> str:
        start, end = self.span_of(number, number)
        return self.lower[start : min(end, start + 1000)]

    @cached_property
    def fences(self) -> list[int]:
        """Where fence lines start; an odd number of them above a place means: inside."""
        return [match.start() for match in _FENCE.finditer(self.lower)]

    @cached_property
    def comments(self) -> list[tuple[int, int]]:
        return [match.span() for match in _COMMENT.finditer(self.lower)] if "<!--" in self.lower else []

    @cached_property
    def invisible_markup(self) -> list[tuple[int, int]]:
        """Spans that a page has but does not show."""
        spans = []
        for match in islice(_INVISIBLE_MARKUP.finditer(self.lower), MOST_SPANS):
            end = self.lower.find(f"</{match.group(1)}", match.end()) if match.group(1) else match.end()
            spans.append((match.start(), end if end >= 0 else match.end()))
        return spans

    @cached_property
    def headings(self) -> list[tuple[int, bool]]:
        return [(match.start(), bool(_WARNS.search(match.group()))) for match in _HEADING.finditer(self.lower)]

    @cached_property
    def is_about_security(self) -> bool:
        return _ABOUT_SECURITY.search(self.lower[:800]) is not None

    def is_concealed(self, place: int) -> bool:
        index = bisect_right(self.comments, (place, len(self.lower))) - 1
        in_comment = index >= 0 and place < self.comments[index][1]
        return in_comment or any(start <= place < end for start, end in self.invisible_markup)

    def is_fenced(self, place: int) -> bool:
        return self.is_prose and bisect_right(self.fences, place) % 2 == 1

    def is_only_quoted(self, start: int, end: int, *, is_command: bool) -> bool:
        """A warning, a list of things to refuse or a described attack, rather than an order.

        Commands in a script are run whatever stands around them; what is concealed is not a warning.
        """
        if self.is_concealed(start) or (is_command and not self.is_prose):
            return False
        line, stop = self.span_of(self.line_of(start), self.line_of(end))
        before = self.lower[max(line, start - 300) : start]
        if _NEGATES.search(before) or (self.lower.startswith("without", start) and _FORBIDS.search(before)):
            return True
        if self.lower.startswith(_OVERRIDES, start) and _DEFENDS.match(self.lower, end):
            return True
        after = self.lower[end : min(stop, end + 200)]
        if _DESCRIBES.search(before) and _DISOWNS.match(after):
            return True
        if self.lower.endswith("what", start, end) and _OPINION.match(self.lower, end):
            return True
        if self._is_quoted(before, after, start):
            return self.is_about_security or self._is_warned(line, before, after)
        is_listed = before.lstrip()[:1] in _LIST_MARKS or before.lstrip()[:1].isdigit()
        return is_listed and self.is_prose and self._is_warned(line, before, after)

    def _is_quoted(self, before: str, after: str, start: int) -> bool:
        if self.is_fenced(start) or before.lstrip().startswith(("|", ">")):
            return True
        opening = max(before.rfind(mark) for mark in _QUOTE_MARKS)
        if opening < 0 or _VALUE.search(before[:opening]):
            return False
        mark = before[opening]
        return before.count(mark) % 2 == 1 and mark in after

    def _is_warned(self, line: int, before: str, after: str) -> bool:
        """By its own line, by the nearest heading or introduction above, or by the one above that."""
        if _WARNS.search(before) or _WARNS.search(after):
            return True
        index = bisect_right(self.headings, (line, False)) - 1
        return any(warns for _, warns in self.headings[max(0, index - 1) : index + 1])
