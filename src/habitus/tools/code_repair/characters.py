"""Restores characters that transport or typography replaced.

Each function yields candidates as pairs: the text, and whether the end of a wrapper was seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from habitus.tools.code_repair import source

_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ", "newline": "\n", "tab": "\t"}
_NAMED |= {"lbrace": "{", "rbrace": "}", "lpar": "(", "rpar": ")", "lsqb": "[", "rsqb": "]", "colon": ":", "num": "#"}
_NAMED |= {"equals": "=", "comma": ",", "semi": ";", "lowbar": "_", "grave": "`", "ast": "*", "plus": "+", "bsol": "\\"}
_ENTITY = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z]{2,8}));")
_CODE_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});", re.IGNORECASE)
_BARE = re.compile(r"[<>]|&(?!(?:[A-Za-z]{2,8}|#\w{1,7});)")

_MARKDOWN = re.compile(r"\\([_*`\[\](){}<>#+.!|~=-])")
_BARE_MARKDOWN = re.compile(r"(?<!\\)[_*]")

_ESCAPE = re.compile(r'\\(?:([\\nrt"\'/])|u([0-9a-fA-F]{4}))')
_ODD_ESCAPE = re.compile(r'(?:[^\\]|\\[\\nrt"\'/]|\\u[0-9a-fA-F]{4})*+')
_PLAIN = {"n": "\n", "r": "", "t": "\t"}
_ESCAPED_CODE = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+'''"
    r'|"(?:[^"\\\n]|\\.)*+"'
    r"|'(?:[^'\\\n]|\\.)*+'"
    r"|#(?:(?!\\n)[^\n])*+"
    r"|\\\\n|\\(?:r\\)?n|\\t|\\\"|\\'",
    re.DOTALL,
)

_ANSI = re.compile(r"\x1b\[[0-9;?]*+[A-Za-z]")
_INVISIBLE = re.compile(
    "[\x01-\x08\x0b\x0e-\x1f\x7f\x80-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe0f\ufeff\ufffc\ufffd]"
)
_UNPRINTABLE = re.compile("\0|" + _INVISIBLE.pattern)
_MARGIN = re.compile("^[ \t\xa0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff]+", re.MULTILINE)
_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_BREAKS = re.compile("\r\n|[\x85\u2028\u2029]")
# Letters and digits stay: full-width ones may be part of an identifier.
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F) if not chr(code - 0xFEE0).isalnum()}
_SYMBOLS = str.maketrans({"−": "-", "–": "-", "、": ",", "。": ".", "×": "*", "≤": "<=", "≥": ">=", "≠": "!="})
_QUOTED = re.compile(
    rf"(?P<plain>{source.LITERAL.pattern})"
    r'|(?P<triple>[“”„‟]{3}|[“”„‟]""|‘‘‘|’’’)(?P<doc>(?:[^“”"\\‘’]|[‘’](?![‘’]{2}))*+)(?:[“”]{3}|""[“”]|’’’)'
    r'|[“”„‟](?P<double>[^"“”„‟\\\n]*+)[“”"]'
    r"|[‘’‚‛](?P<single>[^'‘’‚‛\\\n]*+)[‘’']",
    re.DOTALL,
)


def propose_html_entity_decodings(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text with HTML entities decoded once.

    If a bare `<` or `&` shows that not everything was escaped, the first candidate leaves strings alone.
    """
    if not _ENTITY.search(text):
        return
    if _BARE.search(text):
        yield source.map_outside_literals(text, _decode_html_entities), False
    yield _decode_html_entities(text), False


def has_html_entities_in_code(text: str) -> bool:
    """Whether code contains entities: `a &lt; b` parses as `a & lt` and `b`, which is never meant."""
    return any(not literal and _CODE_ENTITY.search(piece) for literal, piece in source.split_text_at_literals(text))


def _decode_html_entities(text: str) -> str:
    return _ENTITY.sub(_decode_entity, text)


def _decode_entity(match: re.Match[str]) -> str:
    decimal, hexadecimal, name = match.groups()
    if name:
        return _NAMED.get(name.lower(), match.group())
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code == 0xA0:
        return " "
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else match.group()


def decode_escaped_line_breaks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text with escaped line breaks decoded; all escapes are decoded if one encoder made them."""
    body = text.strip("\n")
    if "\\n" not in body and '\\"' not in body:
        return
    if body.count("\\n") <= body.count("\n") and not _has_only_escaped_quotes(body):
        return
    # A lone backslash at the end is what remains of a cut-off escape.
    body = body.removesuffix("\\") if body.endswith("n\\") else body
    if _ODD_ESCAPE.fullmatch(body) or _has_only_escaped_quotes(body):
        yield _ESCAPE.sub(_decode_escape, body), False
    yield _ESCAPED_CODE.sub(_decode_line_breaks_between_tokens, body), False


def _has_only_escaped_quotes(text: str) -> bool:
    return '\\"' in text and text.count('"') == text.count('\\"')


def _decode_escape(match: re.Match[str]) -> str:
    plain, unicode = match.groups()
    if unicode:
        # Half of a surrogate pair has no character of its own.
        return match.group() if "d8" <= unicode[:2].lower() <= "df" else chr(int(unicode, 16))
    return _PLAIN.get(plain, plain)


def _decode_line_breaks_between_tokens(match: re.Match[str]) -> str:
    r"""Decode `\n` between tokens; inside a one-line string it is what the author wrote."""
    token = match.group()
    if token.startswith(('"""', "'''")):
        return token.replace("\\n", "\n") if "\\\\" not in token else token
    if token[0] in "\"'#":
        return token
    return {"\\\\n": "\\\n", "\\t": "\t", '\\"': '"', "\\'": "'"}.get(token, "\n")


def strip_markdown_escapes(text: str) -> Iterator[tuple[str, bool]]:
    r"""Yield the text without Markdown escapes, as in `hello\_world`.

    If no Markdown character stands unescaped, strings were escaped with the rest.
    """
    if not any(not literal and _MARKDOWN.search(piece) for literal, piece in source.split_text_at_literals(text)):
        return
    if not _BARE_MARKDOWN.search(text):
        yield _MARKDOWN.sub(r"\1", text), False
    yield source.map_outside_literals(text, lambda piece: _MARKDOWN.sub(r"\1", piece)), False


def strip_control_characters(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without invisible characters outside strings, then also inside them."""
    if not _UNPRINTABLE.search(text):
        return
    clean = _ANSI.sub("", text).replace("\0", "")
    clean = _MARGIN.sub(lambda margin: _INVISIBLE.sub("", margin.group()), clean)
    clean = source.map_outside_literals(clean, lambda piece: _INVISIBLE.sub("", piece))
    if clean != text:
        yield clean, False
    everywhere = _INVISIBLE.sub("", clean)
    if everywhere != clean:
        yield everywhere, False


def replace_typography(original: str) -> Iterator[tuple[str, bool]]:
    """Yield the text with typographic quotes, spaces and full-width signs replaced by plain ones."""
    if original.isascii():
        return
    text = _MARGIN.sub(lambda margin: _SPACES.sub(" ", margin.group()), original)
    plain = _QUOTED.sub(_replace_quotes, text)
    plain = source.map_outside_literals(plain, _replace_symbols)
    if plain != original:
        yield plain, False


def _replace_symbols(piece: str) -> str:
    spaced = _BREAKS.sub("\n", _SPACES.sub(" ", piece))
    return spaced.translate(_FULL_WIDTH).translate(_SYMBOLS)


def _replace_quotes(match: re.Match[str]) -> str:
    if match["plain"]:
        return match["plain"]
    if match["triple"]:
        return f'"""{match["doc"]}"""'
    if match["double"] is not None:
        return f'"{match["double"]}"'
    return f"'{match['single']}'"


def normalize_line_endings(text: str) -> str:
    """Return the text with line feeds as line endings."""
    return text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")


_NUMBERED = re.compile(r"[ \t]*L?(\d{1,7})([ ]*[:|→│.)\]]|\t|(?=[ ])|$)")
_PROMPT = re.compile(r"(?:>>>|In \[\d+\]:)(?: |$)")
_CONTINUED = re.compile(r"[ \t]*\.\.\.:?(?: |$)")
_PROMPTED_OUTPUT = re.compile(r"Out\[\d+\]:")
_DIFF_HEADER = ("diff --git", "index ", "--- ", "+++ ", "new file", "\\ No newline")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_MARKS = ">|│┃+"
_TOP_LEVEL = re.compile(r"(?:def|class|async[ ]+def|import|from|@)\b|@|if[ ]+__name__|#")


def strip_line_prefixes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without consecutive numbers, or one mark, in front of every line."""
    lines = text.strip("\n").split("\n")
    if numbered := _strip_line_numbers(lines):
        yield numbered, False
    filled = [line.lstrip() for line in lines if line.strip()]
    mark = filled[0][0] if filled else ""
    if mark and mark in _MARKS and not _PROMPT.match(filled[0]) and all(line[0] == mark for line in filled):
        bare = [line.lstrip()[1:] for line in lines]
        yield _dedent_lines(bare) + "\n", False


def _strip_line_numbers(lines: list[str]) -> str | None:
    rest: list[str] = []
    expected: int | None = None
    separators: set[str] = set()
    for line in lines:
        if not line.strip():
            rest.append("")
            continue
        match = _NUMBERED.match(line)
        if match is None or (expected is not None and int(match[1]) != expected):
            return None
        expected = int(match[1]) + 1
        separators |= {match[2].strip(" ")} if match.end() < len(line) else set()
        rest.append(line[match.end() :])
    return _dedent_lines(rest) + "\n" if len(separators) == 1 and (len(rest) > 1 or expected == 2) else None


def extract_input_of_interactive_session(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the input of an interactive session without its output."""
    lines = _dedent_lines(text.strip("\n").split("\n")).split("\n")
    if not _PROMPT.match(lines[0]):
        return
    kept: list[str] = []
    dropped: list[str] = []
    for line in lines:
        if match := _PROMPT.match(line) or _CONTINUED.match(line):
            kept.append(line[match.end() :])
        else:
            dropped.append(line)
    if not source.has_definite_code("\n".join(line for line in dropped if not _PROMPTED_OUTPUT.match(line))):
        yield "\n".join(kept) + "\n", False


def extract_new_file_from_diff(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the new file from a diff with a single hunk at line 1; other diffs show only part of a file."""
    lines = text.strip("\n").split("\n")
    hunks = [match for line in lines if (match := _HUNK.match(line))]
    if not hunks or len(hunks) > 1 or hunks[0][1] != "1":
        return
    at = next(number for number, line in enumerate(lines) if _HUNK.match(line))
    body = [line for line in lines[at + 1 :] if not line.startswith(_DIFF_HEADER)]
    if all(line.startswith(_DIFF_HEADER) or not line.strip() for line in lines[:at]) and all(
        line[:1] in ("+", "-", " ", "") for line in body
    ):
        yield "\n".join(line[1:] for line in body if not line.startswith("-")) + "\n", False


def strip_common_indentation(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text without a common margin of all lines, of all code lines, or of all but the first."""
    lines = text.split("\n")
    if _measure_common_indentation(lines):
        yield _dedent_lines(lines), False
    counts = source.find_lines_beginning_outside_strings(text)
    margin = _measure_common_indentation([line for line, is_code in zip(lines, counts, strict=True) if is_code])
    if margin > _measure_common_indentation(lines):
        yield _cut_indentation_of_chosen_lines(lines, [True] * len(lines), margin), False
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    rest = [line for line, is_code in zip(lines[first + 1 :], counts[first + 1 :], strict=True) if is_code]
    if (margin := _measure_common_indentation(rest)) and not lines[first][:1].isspace():
        at_margin = [line[margin:] for line in rest if line.strip() and not line[margin : margin + 1].isspace()]
        if all(_TOP_LEVEL.match(line) for line in at_margin):
            yield (
                _cut_indentation_of_chosen_lines(lines, [number > first for number in range(len(lines))], margin),
                False,
            )


def _dedent_lines(lines: list[str]) -> str:
    """Dedent like `textwrap.dedent`, but keep blank lines beyond the margin, as they may be in a string."""
    margin = _measure_common_indentation(lines)
    return "\n".join(line[margin:] for line in lines)


def has_diff_hunk(text: str) -> bool:
    """Whether the text contains a diff hunk."""
    return any(_HUNK.match(line) for line in text.split("\n"))


def _measure_common_indentation(lines: list[str]) -> int:
    return min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)


def _cut_indentation_of_chosen_lines(lines: list[str], chosen: list[bool], margin: int) -> str:
    return "\n".join(
        line[min(margin, len(line) - len(line.lstrip())) :] if is_chosen else line
        for line, is_chosen in zip(lines, chosen, strict=True)
    )


def expand_mixed_tabs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text with tabs expanded, if every width that parses gives the same program.

    A guess could move a line into another block.
    """
    lines = text.split("\n")
    counts = source.find_lines_beginning_outside_strings(text)
    starts = [line[0] for line, is_code in zip(lines, counts, strict=True) if is_code and line[:1] in ("\t", " ")]
    if "\t" not in text or len(set(starts)) == 0:
        return
    readings: dict[str, str] = {}
    # The most common widths first: the first reading is the one returned.
    for width in (4, 8, 2):
        expanded = "\n".join(
            _expand_tabs_of_indentation(line, width) if is_code else line
            for line, is_code in zip(lines, counts, strict=True)
        )
        if module := source.parse_module(expanded):
            readings.setdefault(_describe_block_structure(module), expanded)
    if len(readings) == 1:
        yield from ((expanded, False) for expanded in readings.values())


def _describe_block_structure(module: ast.Module) -> str:
    """Describe which block each statement belongs to, which is all that indentation can change."""
    return " ".join(f"{type(node).__name__}{len(list(ast.iter_child_nodes(node)))}" for node in ast.walk(module))


def _expand_tabs_of_indentation(line: str, width: int) -> str:
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)].expandtabs(width) + body
