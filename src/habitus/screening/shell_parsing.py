"""Parses shell, and says what a single command is by its words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from habitus.screening.code_context import Taint
from habitus.screening.findings import Threat
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
def load_command_rules() -> Sequence[tuple[Threat, str, re.Pattern[str]]]:
    rows = load_rule_table("commands")["deeds"]
    return [(Threat(row["deed"]), row["why"], re.compile(row["match"], re.IGNORECASE)) for row in rows]


def parse_shell(source: str) -> Node:
    """PowerShell is read as far as it looks like a shell: `iex (iwr URL)` is `iwr URL | iex`."""
    source = _POWERSHELL_EVALUATES.sub(r"\1 | iex", source)
    return _create_parser().parse(source.encode("utf-8", "replace")).root_node


def get_node_text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def is_taint_without_code(code: str) -> Callable[[Taint], bool]:
    return lambda one: one.text != code


def parse_file_argument(word: str) -> str:
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
