"""Parses shell, and says what a single command is by its words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from habitus.screening.code_context import Taint
from habitus.screening.findings import ThreatKind
from habitus.screening.hosts import load_rule_table

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_POWERSHELL_EVALUATES = re.compile(r"(?im)\b(?:iex|invoke-expression)\s*\(+([^\n]*?)\)+\s*$")


@functools.cache
def _create_parser() -> Parser:
    import tree_sitter_bash  # the grammars are needed only where there is a script
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


@functools.cache
def load_command_rules() -> Sequence[tuple[ThreatKind, str, re.Pattern[str]]]:
    rows = load_rule_table("commands")["deeds"]
    return [(ThreatKind(row["deed"]), row["why"], re.compile(row["match"], re.IGNORECASE)) for row in rows]


# The parser recovers from errors in quadratic time, so what is mostly no shell is read in small pieces, and a long
# script in large ones. Errors are counted with their parts.
_PIECE_CHARS, _CHUNK_CHARS, _MOST_ERRORS = 1_000, 16_000, 60


def parse_shell_script_in_parts(source: str) -> Iterator[tuple[int, Node]]:
    """Yield the parts of a script in order, each with the number of lines before it; most scripts have one part.

    PowerShell is read as far as it looks like a shell: `iex (iwr URL)` is `iwr URL | iex`.
    """
    source = _POWERSHELL_EVALUATES.sub(r"\1 | iex", source)
    parts = _cut_text_into_parts_at_lines(source, _PIECE_CHARS)
    if len(parts) < 2 or all(_count_errors(_parse(part)) <= _MOST_ERRORS for part in parts):
        parts = _cut_text_into_parts_at_lines(source, _CHUNK_CHARS)
    lines = 0
    for part in parts:
        yield lines, _parse(part)
        lines += part.count("\n")


def _parse(source: str) -> Node:
    return _create_parser().parse(source.encode("utf-8", "replace")).root_node


def _cut_text_into_parts_at_lines(text: str, size: int) -> list[str]:
    """Cut a text into parts of at most this size, if possible after an empty line or else after any."""
    parts, start = [], 0
    while len(text) - start > size:
        end = start + size
        blank, line = text.rfind("\n\n", start + size // 2, end), text.rfind("\n", start, end)
        end = blank + 2 if blank >= 0 else line + 1 if line >= 0 else end
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _count_errors(root: Node) -> int:
    count, nodes = 0, [root]
    while nodes:
        node = nodes.pop()
        count += (1 + node.child_count) * (node.type == "ERROR")
        nodes += node.children if node.has_error else ()
    return count


def get_node_text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def make_filter_of_taints_without_code(code: str) -> Callable[[Taint], bool]:
    return lambda one: one.text != code


def parse_file_named_by_argument(word: str) -> str:
    """The file that an argument names: `@file`, `name=@file`, `if=file`."""
    return word.rpartition("@" if "@" in word and "://" not in word else "=")[2]


def is_decoder_command(name: str, words: Sequence[str]) -> bool:
    flags = " ".join(words[1:])
    return (
        (
            name in ("base64", "base32", "xxd", "openssl")
            and re.search(r"(?:^|\s)-(?:d|D|-decode|r|\w*d)\b", flags) is not None
        )
        or name in ("rev", "uudecode", "gunzip", "zcat")
        or (name == "tr" and "a-z" in flags.lower() and "n-za-m" in flags.lower())
        or (name == "printf" and flags.count("\\x") >= 2)
    )
