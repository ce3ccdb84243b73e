"""The editable fields of a skill, declared once for reading, writing, forms, options and tools.

To add one, add an entry here and an attribute to `SkillSummary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from habitus.errors import Invalid
from habitus.skills.model import Skill

FieldValue = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EditableField:
    """One editable field and the texts that describe it in every interface."""

    name: str
    noun: str  # shown next to the value
    label: str  # shown above the input in a form
    help: str  # a sentence for the command line, REST and a model
    hint: str = ""  # small text after the label
    example: str = ""
    options: tuple[str, ...] = ()  # command-line options, if they differ from the name
    max_length: int | None = None
    is_list: bool = False  # a list of texts, separated by commas
    is_required: bool = False
    is_short: bool = False  # two of them fit side by side in a form

    def parse_value(self, given: str | Sequence[str]) -> FieldValue:
        """Convert user input to the field's type; a list is split at commas."""
        if not self.is_list:
            return given if isinstance(given, str) else " ".join(given)
        # An option may be repeated and each value may hold commas, so join first and split once.
        parts = given if isinstance(given, str) else ",".join(given)
        return tuple(text for part in parts.split(",") if (text := part.strip()))

    def format_value(self, skill: object) -> str:
        """Return the skill's value of this field as one line."""
        value: FieldValue = getattr(skill, self.name)
        return value if isinstance(value, str) else ", ".join(value)


EDITABLE_FIELDS = (
    EditableField(
        name="title",
        noun="title",
        label="Title",
        help="A title for people.",
        example="Close the month",
        max_length=200,
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
        max_length=1024,
        is_required=True,
    ),
    EditableField(
        name="when_to_use",
        noun="use when",
        label="When to use it",
        help="One sentence: when to use it.",
        hint="requests it is for; agents select by this line",
        example="When the user wants to close the books of a month.",
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
FIELD_NAMES = tuple(field.name for field in EDITABLE_FIELDS)
LIST_FIELDS = frozenset(field.name for field in EDITABLE_FIELDS if field.is_list)


@dataclass(frozen=True, init=False)
class FieldChanges:
    """New values for a skill's editable fields; None leaves a field unchanged."""

    values: Mapping[str, FieldValue]

    def __init__(self, **given: str | Sequence[str] | None) -> None:
        if unknown := given.keys() - set(FIELD_NAMES):
            raise Invalid(
                f"A skill has no field '{min(unknown)}' to change.", hint=f"Use one of {', '.join(FIELD_NAMES)}."
            )
        values = {one.name: one.parse_value(new) for one in EDITABLE_FIELDS if (new := given.get(one.name)) is not None}
        # The dataclass is frozen, so plain assignment would raise here.
        object.__setattr__(self, "values", values)

    @classmethod
    def from_object(cls, source: object) -> FieldChanges:
        """Read the values from the attributes of an object, such as a request body; missing attributes leave fields
        unchanged.
        """
        return cls(**{name: getattr(source, name, None) for name in FIELD_NAMES})

    def apply_to(self, skill: Skill) -> Skill:
        """Return the skill with the new values."""
        changes: dict[str, Any] = dict(self.values)
        return replace(skill, **changes)


NO_FIELD_CHANGES = FieldChanges()
