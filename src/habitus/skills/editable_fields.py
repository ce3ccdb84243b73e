"""The fields of a skill that people change, declared once: reading, writing, forms, options and tools ask this table.

A new one is a line here and an attribute of `Summary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from habitus.errors import Invalid
from habitus.skills.model import Skill

Value = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EditableField:
    """One of them, with what every surface says about it."""

    name: str
    noun: str  # beside its value
    label: str  # above its place in a form
    help: str  # a sentence for the command line, REST and a model
    hint: str = ""  # small, after the label
    example: str = ""
    options: tuple[str, ...] = ()  # on the command line, where they are not simply its name
    longest: int | None = None
    is_list: bool = False  # of texts, which a line has with commas between them
    is_required: bool = False
    is_short: bool = False  # two of them fit side by side

    def value(self, given: str | Sequence[str]) -> Value:
        """The value that somebody gave, as a skill has it."""
        if not self.is_list:
            return given if isinstance(given, str) else " ".join(given)
        parts = given if isinstance(given, str) else ",".join(given)
        return tuple(text for part in parts.split(",") if (text := part.strip()))

    def text(self, skill: object) -> str:
        """The value as one line."""
        value: Value = getattr(skill, self.name)
        return value if isinstance(value, str) else ", ".join(value)


EDITABLE = (
    EditableField(
        name="title",
        noun="title",
        label="Title",
        help="A title for people.",
        example="Close the month",
        longest=200,
        is_short=True,
    ),
    EditableField(
        name="description",
        noun="description",
        label="What it does",
        help="One sentence: what it does.",
        hint="one sentence",
        example="Books the last invoices and locks the period.",
        options=("--description", "-d"),
        longest=1024,
        is_required=True,
    ),
    EditableField(
        name="when_to_use",
        noun="use when",
        label="When to use it",
        help="One sentence: when to use it.",
        hint="what somebody would ask; agents choose by this line",
        example="When somebody wants to close the books of a month.",
        options=("--when", "-w"),
    ),
    EditableField(
        name="tags",
        noun="tags",
        label="Tags",
        help="Tags, separated by commas; they replace those it has.",
        hint="separated by commas",
        example="finance, monthly",
        is_list=True,
        is_short=True,
    ),
)
NAMES = tuple(field.name for field in EDITABLE)
LISTS = frozenset(field.name for field in EDITABLE if field.is_list)


@dataclass(frozen=True, init=False)
class Fields:
    """New values for the fields of a skill that people change; None leaves one as it is."""

    values: Mapping[str, Value]

    def __init__(self, **given: str | Sequence[str] | None) -> None:
        if unknown := given.keys() - set(NAMES):
            raise Invalid(f"A skill has no field '{min(unknown)}' to change.", mend=f"Use one of {', '.join(NAMES)}.")
        values = {field.name: field.value(value) for field in EDITABLE if (value := given.get(field.name)) is not None}
        object.__setattr__(self, "values", values)

    @classmethod
    def of(cls, holder: object) -> Fields:
        """From an object that has attributes of their names, such as the body of a request; those it lacks stay."""
        return cls(**{name: getattr(holder, name, None) for name in NAMES})

    def apply_to(self, skill: Skill) -> Skill:
        changes: dict[str, Any] = dict(self.values)
        return replace(skill, **changes)


NO_FIELDS = Fields()
