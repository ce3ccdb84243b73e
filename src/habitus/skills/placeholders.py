"""Names in braces that a skill's text may leave open, such as `{BOT_NAME}`, filled in when it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from habitus.files import Tree
from habitus.skills import trees
from habitus.skills.fields import EDITABLE
from habitus.skills.model import Summary

KNOWN = ("BOT_NAME", "BOT_DIR", "SKILL_DIR", "USER")

_OPEN = re.compile(r"(?<!\$)\{(" + "|".join(KNOWN) + r")\}")
_TEXTS = (*(field.name for field in EDITABLE if not field.is_list), "body")

AnySkill = TypeVar("AnySkill", bound=Summary)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the known names; shell variables (`${USER}`) and every other brace stay as they are."""
    return _OPEN.sub(lambda found: values.get(found[1], found[0]), text)


def open_texts(skill: Summary) -> dict[str, str]:
    """The texts of a skill that leave a name open, by field."""
    texts = {name: getattr(skill, name, "") for name in _TEXTS}
    return {name: text for name, text in texts.items() if "{" in text and _OPEN.search(text)}


def fill_placeholders(skill: AnySkill, values: Mapping[str, str]) -> AnySkill:
    """The skill as it is shown."""
    texts: dict[str, Any] = {name: fill(text, values) for name, text in open_texts(skill).items()}
    return replace(skill, **texts) if texts else skill


def kept_open(name: str, tree: Tree) -> Tree:
    """A copy of a skill whose names were filled because of where it lies: it asks for that itself."""
    skill = trees.parse(name, tree).skill
    if skill is None or not open_texts(skill):
        return tree
    return trees.with_skill(tree, replace(skill, manifest=replace(skill.manifest, placeholders=True)))
