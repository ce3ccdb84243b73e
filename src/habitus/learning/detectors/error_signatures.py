"""Error signatures, which are the same for errors of one kind, and the classification of errors by cause.

A signature has placeholders for names, numbers and paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import groupby

from habitus.text import shorten_to_line

# The beginning of an error is enough to recognize it.
MAX_ERROR_CHARS = 4000
_SHOWN_CHARS = 120


# After every round the whole turn is examined again.
@lru_cache(maxsize=512)
def make_error_signature(error: str) -> str:
    """Return the same text for the same kind of error; empty if the error says nothing."""
    text = _replace_traceback_with_its_error(_replace_json_with_its_message(error[:MAX_ERROR_CHARS].strip()))
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())


def describe_error_signature(signature: str) -> str:
    """Return a signature as a person reads it: in a line, with dots for what varies."""
    return shorten_to_line(re.sub(r"<(?:str|url|uuid|path|hex|num)>", "…", signature), _SHOWN_CHARS)


_QUOTED = (r"(?:[^{0}\n]|{0}(?=\w)){{0,500}}+").format("'")
# In this order: a URL contains paths, a path contains numbers, a quoted text contains anything.
_PLACEHOLDERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        # An apostrophe inside a word opens nothing, and closes nothing if a letter follows it.
        (rf"(?<!\w)'{_QUOTED}'(?!\w)", "<str>"),
        (r'"[^"\n]{0,500}+"', "<str>"),
        (r"`[^`\n]{1,500}+`", "<str>"),
        (r"[“„][^”“\n]{0,500}+[”“]|‘[^’\n]{0,500}+’(?!\w)", "<str>"),
        (r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]{1,20}+://[^\s'\"<>)\]}]++", "<url>"),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"(?<![\w\\])(?:[A-Za-z]:|\\\\[\w.$-]+)(?:\\{1,2}[^\s\\:*?\"<>|']+)+\\?", "<path>"),
        (r"(?<![\w:/.<~-])(?:~|\.{1,2})?/(?:[\w.@%+=~-]++/?)++", "<path>"),
        (r"(?<![\w./<-])(?:[\w.-]++/){2,}+[\w.-]*+|(?<![\w./<-])(?:[\w-]++/)++[\w-]++\.[A-Za-z]\w{0,7}", "<path>"),
        (r"\b0[xX][0-9a-fA-F]++\b", "<hex>"),
        (r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}+\b", "<hex>"),
        (r"(?<![A-Za-z0-9.])(?:(?<!\w)[-+])?(?:\d++\.\d++(?:[eE][-+]?\d++)?|\d++[eE][-+]\d++)(?!\.?\d)", "<num>"),
        (r"(?<![A-Za-z0-9])(?:(?<!\w)[-+])?\d++(?:,\d{3})*(?![A-Za-z]\w)", "<num>"),
    )
)


_LOGGED_MESSAGE = re.compile(r'(?m)^(?=.*\blevel=).*?\bmsg="((?:[^"\\]|\\.)+)"')


def _replace_json_with_its_message(text: str) -> str:
    """Replace a JSON object in the text, or a line of fields, with the message inside it."""
    if logged := _LOGGED_MESSAGE.search(text):
        return logged[1].replace('\\"', '"')
    start = text.find("{")
    if start < 0:
        return text
    try:
        envelope, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    message = _find_envelope_message(envelope)
    return f"{text[:start]}{message}{text[end:]}".strip() if message else text


def _find_envelope_message(envelope: object) -> str:
    """Return the first text under `message`, `error`, `detail`, `msg` or `reason`, outermost first.

    Empty if there is none.
    """
    if not isinstance(envelope, dict):
        return ""
    for key in ("message", "error", "detail", "msg", "reason"):
        inside = envelope.get(key)
        if isinstance(inside, str) and inside:
            return inside
        if isinstance(inside, dict) and (found := _find_envelope_message(inside)):
            return found
    return ""


def _replace_traceback_with_its_error(text: str) -> str:
    if not text.startswith("Traceback (most recent call last)"):
        return text
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1]


class ErrorCause(StrEnum):
    """The cause of an error, as far as it decides which later call can be its remedy."""

    # There is no such program.
    PROGRAM = "program"
    # A library is missing, or not on the search path.
    MODULE = "module"
    # An unknown flag, subcommand, script or target.
    OPTION = "option"
    PERMISSION = "permission"
    # There is no such file or directory.
    FILE = "file"
    # A service on this machine does not answer.
    SERVICE = "service"
    OTHER = "other"
    # The network, a limit or a busy machine: it may work the next time.
    TRANSIENT = "transient"
    # A failing test or a mistake in the code at hand: there is no general remedy.
    WORK = "work"

    @property
    def can_have_remedy(self) -> bool:
        """Whether an error of this cause can have a general remedy."""
        return self not in (ErrorCause.TRANSIENT, ErrorCause.WORK)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifiedError:
    """An error with its cause, the thing it is about, and its signature."""

    cause: ErrorCause
    subject: str = ""  # the program, module, option or file named by the error
    signature: str = ""
    text: str = ""

    def mentions_any_word(self, words: Iterable[str]) -> bool:
        """Whether the error text contains one of these words."""
        return any(_is_whole_word_in_text(word, self.text) for word in words)

    @property
    def longest_plain_word_run(self) -> str:
        """The longest run of plain words in the error, by which a person recognizes it; empty if it has none."""
        # Only words: names, numbers and paths differ each time, and anything else could carry instructions.
        parts = re.split(r"<\w+>|[^\w'’ -]|\s-+\s", _JOINED_NAME.sub("<str>", re.sub(r"\([^)]*\)", "", self.signature)))
        runs = [
            list(run)
            for part in parts
            for is_plain, run in groupby(part.split(), key=lambda word: _PLAIN_WORD.fullmatch(word) is not None)
            if is_plain
        ]
        # Of equally long ones the last: what an error begins with, many have.
        longest = max(runs[::-1], key=len, default=[])[:_MAX_PHRASE_WORDS]
        return " ".join(longest) if len("".join(longest)) >= _MIN_PHRASE_CHARS else ""

    @property
    def has_text_beyond_exit_code(self) -> bool:
        """Whether the text says more than an exit code."""
        return _ERROR_PREFIX.sub("", self.text) != ""


_JOINED_NAME = re.compile(r"(?<!\S)[\w'’-]+(?:[^\w\s'’<>-]+[\w'’-]+)+")  # `pnpm-lock.yaml`, `RAILS_ENV=test`: no words
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z_'’-]{0,29}")
_MAX_PHRASE_WORDS, _MIN_PHRASE_CHARS = 8, 6
_NAME = r"[\"'`‘]?([@\w./~][\w.@/+-]{0,80}?)"
_FLAG = r"[\"'`‘]?(-{0,2}[@\w./~][\w.:@/+=-]{0,80}?)"
_NO_NAME = r"(?![a-z]+ \w)"  # a word of the sentence: "can't find stylesheet to import"
_END = r"(?=[\"'`’:,;)]|\.?(?:\s|$))"
# In this order: the first pattern that matches decides.
_CAUSES: tuple[tuple[ErrorCause, re.Pattern[str]], ...] = tuple(
    (cause, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for cause, pattern in (
        (
            ErrorCause.TRANSIENT,
            r"timed? ?out|temporar(?:y|ily)|could not resolve|name resolution|getaddrinfo|network is unreachable"
            r"|connection (?:was )?(?:reset|aborted|closed)|econnreset|etimedout|\benotfound\b|eai_again|rate.?limit"
            r"|too many requests|\b(?:429|502|503|504)\b|overloaded|service unavailable|bad gateway|try again later"
            r"|database is locked|text file busy|resource busy|index\.lock|could not get lock|state lock"
            r"|(?<!heap )out of memory"
            r"|cannot allocate memory|no space left|tls handshake|remote end hung up|^killed$|signal: killed"
            r"|another (?:\w+ ){0,2}(?:process|instance)|device or resource busy"
            r"|code = unavailable|\bunexpected EOF|: EOF$",
        ),
        (
            ErrorCause.WORK,
            r"^E\s+assert|AssertionError|\b(?<!port )[1-9]\d{0,3} (?:failed|failing)\b(?!:)|^FAILED |^--- FAIL"
            r"|test result: FAILED|^not ok \d"
            r"|assertion .{0,60}failed|Tests:\s+[1-9]\d* failed|^\s*(?:✕|✗) "
            r"|expected .{0,80} (?:but )?(?:got|received)"
            r"|\bSyntaxError\b|\bIndentationError\b|\berror TS\d+|\berror\[E\d+\]|^Found [1-9]\d* errors?"
            r"|would reformat"
            r"|^\S+:\d+:(?:\d+:)? (?:error|warning|[A-Z]\d{3})\b|merge conflict|^CONFLICT "
            r"|string to replace (?:was )?not found",
        ),
        (ErrorCause.PROGRAM, rf"command not found: {_NAME}{_END}|{_NAME}' is not recognized as"),
        (ErrorCause.PROGRAM, rf"(?:^|sh: |line \d+: |\d: ){_NAME}: (?:command )?not found"),
        (
            ErrorCause.PROGRAM,
            rf"executable file not found[^\n]*|^env: {_NAME}’?'?: No such file|failed to spawn: {_NAME}{_END}",
        ),
        (ErrorCause.PROGRAM, rf"could not determine executable to run|unknown program {_NAME}{_END}"),
        (
            ErrorCause.MODULE,
            rf"{_NAME}: cannot open shared object file|no module named {_NAME}{_END}"
            rf"|cannot find (?:module|package) {_NAME}{_END}"
            rf"|cannot load such file -- {_NAME}{_END}"
            rf"|can't find crate for {_NAME}{_END}|no required module provides package {_NAME}{_END}"
            rf"|there is no package called {_NAME}{_END}|can't locate {_NAME} in @INC",
        ),
        (
            ErrorCause.OPTION,
            rf"(?:unrecogni[sz]ed|unknown|invalid|illegal|unexpected|unsupported|no such) (?:(?:command[- ]line|\w+) )?"
            rf"(?:arguments?|options?|flags?|commands?|subcommands?|scripts?|targets?|tasks?|phases?|recipes?|flag)"
            rf"(?: --)?:? {_FLAG}{_END}|missing script:? {_FLAG}{_END}|no rule to make target {_FLAG}{_END}"
            rf"|{_FLAG}' is not a (?:\w+ )?command|don't know how to build task {_FLAG}{_END}"
            rf"|task {_FLAG}{_END} (?:does not exist|not found)",
        ),
        (
            ErrorCause.PERMISSION,
            rf"{_FLAG}: permission denied|permission denied|eacces|operation not permitted|must be root",
        ),
        (
            ErrorCause.SERVICE,
            r"(?:localhost|127\.0\.0\.1|::1|\.sock\b|docker daemon)[^\n]{0,160}"
            r"(?:refused|no such file|failed|running)|refused[^\n]{0,80}(?:localhost|127\.0\.0\.1|::1)"
            r"|cannot connect to the docker daemon|is the (?:server|docker daemon) running",
        ),
        (ErrorCause.TRANSIENT, r"connection refused|econnrefused|unreachable|handshake"),
        (
            ErrorCause.FILE,
            rf"no such file or directory:? {_NAME}{_END}|(?:can't|cannot|could not) (?:open|access|find|stat|read)"
            rf"(?:(?: the)? file)?+ {_NO_NAME}{_FLAG}{_END}|{_NAME}: no such file or directory"
            rf"|enoent\b(?:[^\n]*?(?:open|stat|scandir) {_NAME}{_END})?"
            rf"|(?<![\w./-])(?!(?:was|is|are|were|or|it|that|which|file|folder|directory|path|executable)\b)"
            rf"{_NAME}[\"'`’]? (?:(?:was|is|are|were) )?"
            r"(?:does not exist|not found|doesn't exist)"
            r"|no such file"
            r"|not a git repository|file not found",
        ),
    )
)


@lru_cache(maxsize=4096)
def classify_error(error: str) -> ClassifiedError:
    """Return the cause of an error and the program, module, option or file that it names."""
    text = error.strip()
    for cause, pattern in _CAUSES:
        if found := pattern.search(text):
            about = next((group for group in found.groups() if group), "")
            signature = make_error_signature(_find_essential_error_line(text))
            return ClassifiedError(cause=cause, subject=about.strip("'\"`‘"), signature=signature, text=text)
    return ClassifiedError(
        cause=ErrorCause.OTHER, signature=make_error_signature(_find_essential_error_line(text)), text=text
    )


_ERROR_PREFIX = re.compile(
    r"(?:<tool_use_error>|error:|exit code:? -?\d+|process exited with code \d+|\s)+", re.IGNORECASE
)
_ERROR_WORDS = re.compile(
    r"error|exception\b|not found|no such|denied|fatal|cannot|can't|unknown|invalid|missing|failed|refused"
    r"|could not|couldn't|unable to|not allowed|unsupported|rejected|too (?:long|large|many)"
    r"|(?:do|does|is|are|was|did)(?:n't| not)\b",
    re.I,
)
# Says that something failed, and a later line says what.
_HEADLINE = re.compile(
    r"build failed|execution failed for|failed to run custom build|went wrong|npm err(?:or|!) code |^errors? occurred"
    r"|\bELIFECYCLE\b|\btests run: \d|script failed \(code|exited with exit code"
    r"|^\w+ error:?$|^(?!\w+(?:Error|Exception): )(?:\S+\s+){0,8}\S+:$|^error in .*:$",
    re.I,
)
_WORD = re.compile(r"(?<![\w/.-])[^\W\d_][\w'’-]+(?![\w/])")


# Says what is being done, before what went wrong.
_PROGRESS = re.compile(r"\w+ing\b|build (?:started|succeeded)|.*\.\.\.$", re.I)


def _find_essential_error_line(text: str) -> str:
    """Return the line that says what is wrong: the last one of a traceback, else the first that reads like an error."""
    head = _ERROR_PREFIX.match(text)
    rest = (text[head.end() :] if head else text).strip() or text
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in rest:
        return lines[-1]
    # The first line says what is wrong if "Error:" stood before it, whatever its words.
    is_told = head is not None and "error:" in head[0].lower()
    alarming = [line for at, line in enumerate(lines) if _ERROR_WORDS.search(line) or (is_told and not at)]
    first = next(iter(alarming or [line for line in lines if not _PROGRESS.match(line)] or lines), "")
    told = [line for line in alarming if not _HEADLINE.search(line) and len(_WORD.findall(line)) > 1]
    # Where only headlines read like errors, what follows the first of them is what they announce.
    if first and not told:
        after = [line for line in lines[lines.index(first) :] if not _HEADLINE.search(line)]
        told = [line for line in after if len(_WORD.findall(line)) > 1] or after
    return (told[0] if told else first)[:300]


def _is_whole_word_in_text(word: str, text: str) -> bool:
    bare = word.strip("'\"")
    # A word of one or two letters would be found in almost any text.
    if bare not in text or (len(bare.lstrip("-")) < 3 and not bare.startswith("-")):
        return False
    return re.search(rf"(?<![\w-]){re.escape(bare)}(?![\w-])", text) is not None
