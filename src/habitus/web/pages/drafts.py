"""Drafts: a skill as it stands in the form that writes or changes one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Form

from habitus.skills.fields import EDITABLE, Fields
from habitus.skills.model import Skill


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """The texts that stand in the form, by the names of their fields, and the steps."""

    texts: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def given_fields(self) -> dict[str, Any]:
        """Its fields as an input takes them."""
        return dict(Fields(**self.texts).values)


def draft_with(skill: Skill | None) -> Draft:
    """The form as it begins; None is a skill that can't be read."""
    return (
        Draft() if skill is None else Draft(texts={each.name: each.text(skill) for each in EDITABLE}, body=skill.body)
    )


def _read_form(body: Annotated[str, Form()] = "", **texts: str) -> Draft:
    """As it was sent; browsers end lines in their own way."""
    return Draft(texts={name: text.strip() for name, text in texts.items()}, body=body.replace("\r\n", "\n"))


_read_form.__dict__["__signature__"] = inspect.Signature(
    [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, Form(max_length=most)]
        )
        for name, most in {"body": None, **{each.name: each.longest for each in EDITABLE}}.items()
    ]
)

Drafted = Annotated[Draft, Depends(_read_form)]
