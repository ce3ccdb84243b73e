"""The five edit operations on a text, as one pure function. Text is literal: no patterns, no back-references."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from habitus.errors import Invalid


class Operation(StrEnum):
    REPLACE = "replace"
    FIND_REPLACE = "find_replace"
    APPEND = "append"
    PREPEND = "prepend"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What to do with a text. Without an operation nothing is done, and no operand may be given."""

    operation: Operation | None = None
    content: str | None = None
    find: str | None = None
    replace: str | None = None
    replace_all: bool = False


def apply(text: str, edit: Edit) -> str:
    """The edited text, or an error that says what is missing; the text given is never half-edited."""
    match edit.operation:
        case None:
            _refuse_operands(edit)
            return text
        case Operation.REPLACE:
            return _operand(edit, "content")
        case Operation.APPEND:
            return _join_parts(text, _operand(edit, "content"))
        case Operation.PREPEND:
            return _join_parts(_operand(edit, "content"), text)
        case Operation.DELETE:
            return _replace_text(text, _operand(edit, "content"), "", all_of_them=False)
        case Operation.FIND_REPLACE:
            return _replace_text(text, _operand(edit, "find"), _operand(edit, "replace"), all_of_them=edit.replace_all)
        case never:
            assert_never(never)


def _refuse_operands(edit: Edit) -> None:
    for name in ("content", "find", "replace"):
        if getattr(edit, name) is not None:
            raise Invalid(
                f"'{name}' was given without an operation.",
                mend=f"Say which: {', '.join(Operation)}.",
            )


def _operand(edit: Edit, name: str) -> str:
    value: str | None = getattr(edit, name)
    if value is None:
        raise Invalid(f"The operation '{edit.operation}' needs '{name}'.", mend=f"Give '{name}' as text.")
    return value


def _join_parts(first: str, second: str) -> str:
    """Exactly one newline is put between the parts where there is none."""
    if not first or not second or first.endswith("\n") or second.startswith("\n"):
        return first + second
    return f"{first}\n{second}"


def _replace_text(text: str, find: str, replacement: str, *, all_of_them: bool) -> str:
    if not find:
        raise Invalid("The text to find is empty.", mend="Give the exact text that stands in the skill.")
    if find not in text:
        shown = find if len(find) <= 60 else find[:57] + "…"
        raise Invalid(f"The text {shown!r} is not in the skill.", mend="Copy it exactly, with its spaces and case.")
    return text.replace(find, replacement, -1 if all_of_them else 1)
