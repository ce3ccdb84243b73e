"""Drafts: a skill as it stands in the form that writes or changes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Form

from habitus.skills.library import Fields
from habitus.skills.model import Skill


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What stands in the form."""

    title: str = ""
    description: str = ""
    when_to_use: str = ""
    tags: tuple[str, ...] = ()
    body: str = ""

    @property
    def fields(self) -> Fields:
        return Fields(title=self.title, description=self.description, when_to_use=self.when_to_use, tags=self.tags)


def draft_with(skill: Skill | None) -> Draft:
    """The form as it begins; None is a skill that can't be read."""
    if skill is None:
        return Draft()
    return Draft(
        title=skill.title,
        description=skill.description,
        when_to_use=skill.when_to_use,
        tags=skill.tags,
        body=skill.body,
    )


def _sent(
    title: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form()] = "",
    when_to_use: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "",
    body: Annotated[str, Form()] = "",
) -> Draft:
    """As it was sent; browsers end lines in their own way."""
    return Draft(
        title=title.strip(),
        description=description.strip(),
        when_to_use=when_to_use.strip(),
        tags=tuple(part.strip() for part in tags.split(",") if part.strip()),
        body=body.replace("\r\n", "\n"),
    )


Drafted = Annotated[Draft, Depends(_sent)]
