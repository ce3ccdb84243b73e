"""Candidates: a few edits of a skill's text, drafted by a model from what went well and badly, and what refuses one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field

from habitus.errors import Invalid
from habitus.learning.asking import PATIENCE_S, ask_within
from habitus.learning.budget import BudgetedModel
from habitus.learning.dream.guard import copied_from
from habitus.redact import Redactor
from habitus.skills import edits
from habitus.skills.edits import Edit, Operation
from habitus.skills.model import Skill
from habitus.tasks.model import Task

MOST_EDITS = 4
MOST_LINES = 30  # that a candidate adds or takes away, together
_ROOM = 3_000  # tokens of an answer
_PATIENCE_S = 3 * PATIENCE_S


class DraftedEdit(BaseModel):
    """One edit of the skill's text."""

    operation: Operation = Field(description="find_replace, append, prepend or delete.")
    find: str = Field(default="", description="For find_replace: the exact text that stands in the skill.")
    content: str = Field(default="", description="The new text; for delete, the exact text that goes.")

    @property
    def edit(self) -> Edit:
        if self.operation is Operation.FIND_REPLACE:
            return Edit(operation=self.operation, find=self.find, replace=self.content)
        return Edit(operation=self.operation, content=self.content)


class DraftedCandidate(BaseModel):
    """A small change of the skill that is meant to mend what failed."""

    why: str = Field(description="What goes wrong today and how this mends it, in one sentence.")
    when_to_use: str = Field(
        default="", description="A better line on when the skill applies; empty where it is opened when it should be."
    )
    edits: list[DraftedEdit] = Field(default_factory=list, description=f"At most {MOST_EDITS} edits of its text.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A practice task: what was asked, and what was done by who passed and who failed."""

    request: str
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    never_opened: bool = False


async def draft_candidate(
    model: BudgetedModel,
    skill: Skill,
    contrasts: Sequence[Contrast],
    tried: Sequence[str],
    *,
    is_to_shorten: bool,
    redactor: Redactor,
) -> tuple[Skill, str]:
    """A changed skill and what it is meant to mend; `tried` are candidates that were not accepted, in words."""
    record = redactor.redact(material(skill, contrasts, tried)).text
    found = await ask_within(
        model,
        DraftedCandidate,
        system=_prompt("shorten-skill" if is_to_shorten else "improve-skill"),
        record=record,
        room=_ROOM,
        patience_s=_PATIENCE_S,
    )
    return apply_draft(skill, found), " ".join(found.why.split())


def apply_draft(skill: Skill, draft: DraftedCandidate) -> Skill:
    """By the library's own edit operations, each on what the one before left."""
    if len(draft.edits) > MOST_EDITS:
        raise Invalid(f"It has {len(draft.edits)} edits.", mend=f"{MOST_EDITS} are the most.")
    body = skill.body
    for one in draft.edits:
        if one.operation is Operation.REPLACE:
            raise Invalid("It replaces the whole text.", mend="Edit a part of it.")
        body = edits.apply(body, one.edit)
    cue = " ".join(draft.when_to_use.split())
    return replace(skill, body=body, when_to_use=cue or skill.when_to_use)


def objection(old: Skill, new: Skill, hidden: Iterable[Task], *, known: str = "", is_given: bool = False) -> str:
    """Why a candidate is not tried at all; nothing where it may be. A person's may be as long as they like. `known` is
    what whoever drafts may read: such words are no quotation."""
    if (old.body, old.when_to_use, old.description) == (new.body, new.when_to_use, new.description):
        return "it changes nothing"
    changed = changed_lines(old, new)
    if not is_given and len(changed) > MOST_LINES:
        return f"it changes {len(changed)} lines, and {MOST_LINES} are the most"
    added = "\n".join(line[2:] for line in changed if line.startswith("+ "))
    for task in hidden:
        if quoted := copied_from(added, task, known):
            return f"it quotes a task of the gate or the exam: '{quoted}'"
    return ""


def changed_lines(old: Skill, new: Skill) -> list[str]:
    """Lines that went, as `- …`, and that came, as `+ …`."""
    before, after = (f"{one.when_to_use}\n{one.description}\n{one.body}".splitlines() for one in (old, new))
    return [line for line in difflib.ndiff(before, after) if line.startswith(("+ ", "- "))]


def material(skill: Skill, contrasts: Sequence[Contrast], tried: Sequence[str]) -> str:
    """What whoever drafts is shown."""
    parts = [
        f"# The skill '{skill.name}'\n\nWhen to use: {skill.when_to_use}\n\nIts text:\n\n{skill.body}",
        *(_contrast(number, one) for number, one in enumerate(contrasts, 1)),
    ]
    if tried:
        parts.append("# Tried before, and not shown to help\n\n" + "\n\n".join(tried))
    return "\n\n".join(parts)


def _contrast(number: int, one: Contrast) -> str:
    lines = [f"# Task {number}\n\nAsked: {one.request}"]
    if one.never_opened:
        lines.append("The skill was not opened: nothing in its text can have helped.")
    lines += [f"Passed:\n{record}" for record in one.passed]
    lines += [f"Failed:\n{record}" for record in one.failed]
    return "\n\n".join(lines)


@cache
def _prompt(name: str) -> str:
    return files("habitus.learning").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()
