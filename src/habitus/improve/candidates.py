"""Candidates: changed texts of a skill, drafted by a model or given by a person, and reasons to refuse one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from habitus.comparing import BoundedSequenceMatcher
from habitus.errors import Invalid
from habitus.improve.gate import MOST_CANDIDATES, GateHypothesis
from habitus.learning.budget import DEFAULT_PATIENCE_S, BudgetedModel, ask_for_structured_answer
from habitus.redact import Redactor
from habitus.skills import edits
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from habitus.tasks.leaks import find_words_copied_from_task
from habitus.tasks.model import Task, get_task_family
from habitus.tasks.rollouts import Rollout
from habitus.text import load_prompt

MOST_EDITS = 4
MOST_LINES = 30  # that a candidate adds or takes away, together
_ROOM = 3_000  # tokens of an answer
_PATIENCE_S = 3 * DEFAULT_PATIENCE_S
_SHOWN = 3  # records of each kind that a drafter reads, of one task


class CandidateState(StrEnum):
    OPEN = "open"
    REFUSED = "refused"  # before any rollout
    NOT_SHOWN = "not shown"
    STOPPED = "stopped early"  # not shown, and no longer likely to be
    FAILED_EXAM = "failed its exam"  # better on the tasks of its gate, not shown on new ones
    ACCEPTED = "accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A changed text of a skill, and what became of it. `base` is the version that it changes."""

    id: str
    skill: str
    run: str
    base: int
    text: str  # its whole main file
    why: str  # what it is meant to fix
    source: str  # model, person, proposal 7, rule: undo
    claim: GateHypothesis = GateHypothesis.BETTER
    number: int = 0  # among those that share a task of its gate; 0 until its gate begins
    tasks: tuple[str, ...] = ()  # of its gate
    rounds: int = 0  # the most that its gate may take
    state: CandidateState = CandidateState.OPEN
    reason: str = ""
    proposal: int | None = None
    solver: str = ""  # a program of the person's; else our own agent
    model: str = ""  # that it solves with
    files: Mapping[str, str] = field(default_factory=dict)  # that it adds, beside its text
    tokens: int = 0  # that drafting it took
    dollars: float = 0.0
    user: str = ""
    made_on: datetime | None = None

    @property
    def description(self) -> str:
        """What it is meant to fix and what became of it, for the next drafter."""
        return f"{self.why} ({self.state.value}{f': {self.reason}' if self.reason else ''})"


def count_gated_candidates(candidates: Iterable[Candidate], tasks: Collection[str]) -> int:
    """Return how many candidates were gated on any of these tasks or variants of them: they share the error."""
    families = set(map(get_task_family, tasks))
    return sum(1 for one in candidates if one.number and not families.isdisjoint(map(get_task_family, one.tasks)))


def find_task_families_at_candidate_limit(candidates: Iterable[Candidate]) -> set[str]:
    """Return the families of gate tasks that have judged as many candidates as they may."""
    settled = (one for one in candidates if one.number and one.state is not CandidateState.OPEN)
    judged = Counter(family for one in settled for family in set(map(get_task_family, one.tasks)))
    return {family for family, count in judged.items() if count >= MOST_CANDIDATES}


class DraftedEdit(BaseModel):
    """One edit of the skill's text."""

    operation: EditOperation = Field(description="find_replace, append, prepend or delete.")
    find: str = Field(default="", description="For find_replace: the exact text in the skill.")
    content: str = Field(default="", description="The new text; for delete, the exact text that goes.")

    @property
    def as_text_edit(self) -> TextEdit:
        if self.operation is EditOperation.FIND_REPLACE:
            return TextEdit(operation=self.operation, find=self.find, replace=self.content)
        return TextEdit(operation=self.operation, content=self.content)


class DraftedChange(BaseModel):
    """A small change of the skill that is meant to fix what failed."""

    why: str = Field(description="What goes wrong today and how this fixes it, in one sentence.")
    when_to_use: str = Field(
        default="", description="A better line on when the skill applies; empty where it is opened when it should be."
    )
    edits: list[DraftedEdit] = Field(default_factory=list, description=f"At most {MOST_EDITS} edits of its text.")


async def ask_model_for_draft(
    model: BudgetedModel, material: str, *, is_to_shorten: bool, redactor: Redactor
) -> DraftedChange:
    return await ask_for_structured_answer(
        model,
        DraftedChange,
        system=load_prompt("improve", "shorten-skill" if is_to_shorten else "improve-skill"),
        record=redactor.redact(material).text,
        max_tokens=_ROOM,
        patience_s=_PATIENCE_S,
    )


def describe_practice_for_drafter(
    skill: Skill, tasks: Sequence[Task], rollouts: Sequence[Rollout], tried: Sequence[str]
) -> str:
    """Return what a drafter reads: the text, practice with it, and candidates that were not accepted, in words."""
    outcomes = {(one.task, one.is_ok) for one in rollouts}
    # A task that both failed and passed tells most: the two can be compared.
    telling_first = sorted(tasks, key=lambda one: ((one.id, False) not in outcomes, (one.id, True) not in outcomes))
    is_opened = not was_skill_never_opened(rollouts)
    parts = [f"# The skill '{skill.name}'\n\nWhen to use: {skill.when_to_use}\n\nIts text:\n\n{skill.body}"]
    for number, task in enumerate(telling_first, 1):
        made = [one for one in rollouts if one.task == task.id]
        parts.append(_describe_task(number, task, made, is_opened=is_opened))
    if tried:
        parts.append("# Tried before, and not shown to help\n\n" + "\n\n".join(tried))
    return "\n\n".join(parts)


def _describe_task(number: int, task: Task, rollouts: Sequence[Rollout], *, is_opened: bool) -> str:
    lines = [f"# Task {number}\n\nAsked: {task.request}"]
    if not is_opened:
        lines.append("The skill was not opened: nothing in its text can have helped.")
    for heading, is_ok in (("Passed", True), ("Failed", False)):
        lines += [f"{heading}:\n{one.record}" for one in rollouts if one.is_ok is is_ok][:_SHOWN]
    return "\n\n".join(lines)


def was_skill_never_opened(practice: Sequence[Rollout]) -> bool:
    """Whether there was practice, and nobody opened the skill in it: its text can't have helped."""
    return bool(practice) and not any(one.is_opened or one.is_followed for one in practice)


def apply_drafted_edits(skill: Skill, draft: DraftedChange) -> Skill:
    """By the library's own edit operations, each on what the one before left."""
    if len(draft.edits) > MOST_EDITS:
        raise Invalid(f"It has {len(draft.edits)} edits.", hint=f"{MOST_EDITS} are the most.")
    body = skill.body
    for one in draft.edits:
        if one.operation is EditOperation.REPLACE:
            raise Invalid("It replaces the whole text.", hint="Edit a part of it.")
        body = edits.apply_edit(body, one.as_text_edit)
    cue = " ".join(draft.when_to_use.split())
    return replace(skill, body=body, when_to_use=cue or skill.when_to_use)


def find_candidate_objection(
    old: Skill,
    new: Skill,
    hidden: Iterable[Task],
    *,
    known: str = "",
    is_given: bool = False,
    files: Mapping[str, str] | None = None,
) -> str:
    """Why a candidate is not tried at all; nothing where it may be. A person's may be as long as they like. `known` is
    what whoever drafts may read: such words are no quotation."""
    if (old.body, old.when_to_use, old.description) == (new.body, new.when_to_use, new.description):
        return "it changes nothing"
    changed = list_changed_lines(old, new)
    if not is_given and len(changed) > MOST_LINES:
        return f"it changes {len(changed)} lines, and {MOST_LINES} are the most"
    added = "\n".join([*(line[2:] for line in changed if line.startswith("+ ")), *(files or {}).values()])
    for task in hidden:
        if quoted := find_words_copied_from_task(added, task, known):
            return f"it quotes a task of the gate or the exam: '{quoted}'"
    return ""


def list_changed_lines(old: Skill, new: Skill) -> list[str]:
    """Lines that went, as `- …`, and that came, as `+ …`."""
    before, after = (f"{one.when_to_use}\n{one.description}\n{one.body}".splitlines() for one in (old, new))
    changed: list[str] = []
    for what, a, b, c, d in BoundedSequenceMatcher(before, after).get_opcodes():
        if what != "equal":
            changed += [*(f"- {line}" for line in before[a:b]), *(f"+ {line}" for line in after[c:d])]
    return changed
