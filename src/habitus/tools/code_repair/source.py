"""Inspects text as Python source: whether it parses, where its literals are, which lines are code or prose."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Callable, Iterator
from enum import StrEnum

from habitus.errors import ToolFailed

# Possessive repeats keep every literal a single pass, whatever the text.
LITERAL = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\\?\Z)'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\\?\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
# Patterns that prose does not contain by chance.
_DEFINITE_CODE = re.compile(
    r"^[ \t]*(?:(?:async[ ]+)?def[ ]+\w+[ ]*[(\[]|class[ ]+\w+[ ]*[(:\[]|from[ ]+[\w.]+[ ]+import[ ]"
    r"|import[ ]+[\w.]+(?:[ ]+as[ ]+\w+)?[ ]*$|@\w|if[ ]+__name__|\w+[ ]*=[^=])"
    r'|"""|\'\'\'',
    re.MULTILINE,
)
_NOT_PROSE_WORDS = {*keyword.kwlist, *keyword.softkwlist, "print", "exec"}
_BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])[ \t]+(?=\S)")
_SHORT_SENTENCE = re.compile(r"[A-Z][\w'’ ,\-]*[.!?:]")


def parse_module_or_error(text: str) -> ast.Module | SyntaxError:
    """Return the syntax tree, or the error. Warnings about escapes in strings are suppressed."""
    try:
        # Odd escapes in strings are valid Python and none of our business.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))


def parse_module(text: str) -> ast.Module | None:
    """Return the syntax tree, or None."""
    module = parse_module_or_error(text)
    return module if isinstance(module, ast.Module) else None


def map_outside_literals(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to everything outside strings and comments."""
    return "".join(piece if literal else change(piece) for literal, piece in split_text_at_literals(text))


def split_text_at_literals(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text in order as pairs: whether the piece is a string or comment, and the piece."""
    end = 0
    for match in LITERAL.finditer(text):
        if match.start() > end:
            yield False, text[end : match.start()]
        yield True, match.group()
        end = match.end()
    if end < len(text):
        yield False, text[end:]


def find_lines_beginning_outside_strings(text: str) -> list[bool]:
    """Return for each line whether it begins outside any string, so that its indentation counts."""
    begins = [True]
    for literal, piece in split_text_at_literals(text):
        begins.extend([not literal] * piece.count("\n"))
    return begins


def has_definite_code(text: str) -> bool:
    """Whether a line can only be Python. Such a text must never be discarded as chat."""
    return _DEFINITE_CODE.search(text) is not None


def is_lone_literal(module: ast.Module) -> bool:
    """Whether the program is a single string or dict, which does nothing and may be a wrapper."""
    return (
        len(module.body) == 1
        and isinstance(statement := module.body[0], ast.Expr)
        and (
            isinstance(statement.value, ast.Dict)
            or (isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str))
        )
    )


def has_more_than_names_and_constants(module: ast.Module) -> bool:
    """Whether there is more than bare names and constants, which plain words would parse to as well."""
    return any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call | ast.Await)
        for statement in module.body
    )


def is_prose_line(line: str) -> bool:
    """Whether a line is a sentence: two plain words side by side are never Python."""
    stripped = line.strip()
    if not stripped or stripped[0] in "#\"'@" or has_definite_code(stripped):
        return False
    if stripped.startswith(("**", "---", "===")) or stripped[-1] in "。！？：":
        return True
    bullet = _BULLET.match(stripped)
    sentence = stripped[bullet.end() :] if bullet else stripped
    if _SHORT_SENTENCE.fullmatch(sentence):
        return True
    marked = bullet is not None or sentence[0].isupper() or sentence[-1] in ".!?:"
    return marked and _has_words_side_by_side(sentence)


def _has_words_side_by_side(sentence: str) -> bool:
    previous_is_word = False
    for token in sentence.split():
        word = token.rstrip(".,:;!?)").replace("'", "").replace("’", "").replace("-", "")
        is_word = word.isalpha() and word not in _NOT_PROSE_WORDS
        if is_word and previous_is_word:
            return True
        previous_is_word = is_word and token[-1].isalpha()
    return False


class CodeDefectKind(StrEnum):
    """A kind of damage, or the reason for a refusal."""

    TRUNCATED = "truncated"
    NO_CODE = "no_code"
    SYNTAX = "syntax"
    CDATA = "cdata"
    XML_TAGS = "xml_tags"
    END_TOKENS = "end_tokens"
    FENCE = "fence"
    CHAT = "chat"
    JSON = "json"
    ESCAPES = "escapes"
    ENTITIES = "entities"
    MARKDOWN = "markdown"
    CONTROL_CHARACTERS = "control_characters"
    TYPOGRAPHY = "typography"
    LINE_ENDINGS = "line_endings"
    LINE_PREFIXES = "line_prefixes"
    PROMPTS = "prompts"
    DIFF = "diff"
    INDENTATION = "indentation"
    MIXED_TABS = "mixed_tabs"


ADVICE = {
    CodeDefectKind.TRUNCATED: "The code stops in the middle. Send all of it again, to the last line; split long code.",
    CodeDefectKind.NO_CODE: "There is no Python code in this text. Send the source of the tool and nothing else.",
    CodeDefectKind.SYNTAX: "The code is not valid Python. Correct it and send all of it again.",
    CodeDefectKind.CDATA: "The code is wrapped in a CDATA section. Send it without `<![CDATA[` and `]]>`.",
    CodeDefectKind.XML_TAGS: "XML tags are mixed into the code. Send only the source, without tags around or after it.",
    CodeDefectKind.END_TOKENS: (
        "Chat template tokens such as `<|im_end|>` are mixed into the code. Send only the source."
    ),
    CodeDefectKind.FENCE: "The code is in Markdown fences. Send one source without ``` lines.",
    CodeDefectKind.CHAT: "There are sentences around the code. Send only the source; put explanations in comments.",
    CodeDefectKind.JSON: (
        "The code is wrapped in JSON that holds no readable code. Send the source itself as the string."
    ),
    CodeDefectKind.ESCAPES: "Line breaks or quotes are escaped twice. Send real line breaks and plain quotes.",
    CodeDefectKind.ENTITIES: "The code contains HTML entities. Send `<`, `>`, `&` and quotes as plain characters.",
    CodeDefectKind.MARKDOWN: (
        "The code has backslashes in front of plain signs, as in hello\\_world. Send it without them."
    ),
    CodeDefectKind.CONTROL_CHARACTERS: (
        "The code contains invisible or control characters. Type it again as plain text."
    ),
    CodeDefectKind.TYPOGRAPHY: (
        "The code contains typographic quotes or spaces. Use plain ' and \" and ordinary spaces."
    ),
    CodeDefectKind.LINE_ENDINGS: "The line endings are broken. Send plain line feeds.",
    CodeDefectKind.LINE_PREFIXES: "The lines carry numbers or marks in front. Send the source without them.",
    CodeDefectKind.PROMPTS: "This is an interactive session. Send the source without prompts and output.",
    CodeDefectKind.DIFF: "This is a diff, not a whole file. Send the complete source.",
    CodeDefectKind.INDENTATION: "The indentation is inconsistent. Start at column 0 and indent by 4 spaces.",
    CodeDefectKind.MIXED_TABS: "Tabs and spaces are mixed in the indentation. Indent by 4 spaces everywhere.",
}


class CodeRefused(ToolFailed):
    """The code can't be used as sent; `defect` says why, and the message says what to send instead."""

    def __init__(self, defect: CodeDefectKind, detail: str = "") -> None:
        self.defect = defect
        self.detail = detail
        super().__init__(f"{ADVICE[defect]} ({detail})" if detail else ADVICE[defect])
