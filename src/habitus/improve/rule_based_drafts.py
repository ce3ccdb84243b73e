"""Candidates by rule, without a model: undo the last edit, add a learned remedy, attach a worked example.

They are tried before a model drafts one, because they cost nothing to draft and are easy to review.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from habitus.improve.tasks import SkillWithTasks
from habitus.skills.model import Skill
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout

BY_RULE = "rule"  # the source of a candidate that no model drafted begins with it
EXAMPLE_FILE = "references/example.md"
_LONGEST_EXAMPLE = 4_000  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleBasedDraft:
    """A changed skill, with the files that come with it."""

    skill: Skill
    source: str
    why: str
    text: str = ""  # its whole main file, where it is known; else that of the skill
    files: Mapping[str, str] = field(default_factory=dict)


def list_rule_based_drafts(subject: SkillWithTasks, proven: Sequence[str]) -> Iterator[RuleBasedDraft]:
    """Yield the drafts that need no rollouts; `proven` are the texts that were accepted before."""
    # An edit that a gate has accepted is not undone: that it helps was shown on these tasks.
    if subject.previous is not None and subject.main_text not in proven:
        skill, text = subject.previous
        yield RuleBasedDraft(
            skill=skill, text=text, source=f"{BY_RULE}: undo", why="The last edit may have made it worse."
        )
    for remedy in subject.remedies:
        if remedy not in subject.skill.body:
            body = f"{subject.skill.body.rstrip()}\n\n{remedy}\n"
            why = f"Work with it taught: {remedy}"
            yield RuleBasedDraft(skill=replace(subject.skill, body=body), source=f"{BY_RULE}: remedy", why=why)


def draft_worked_example(
    subject: SkillWithTasks, tasks: Sequence[Task], practice: Sequence[Rollout], redact: Callable[[str], str]
) -> RuleBasedDraft | None:
    """Attach the shortest accepted run as a worked example; None if there is none, or if the skill has an example."""
    passed = [one for one in practice if one.is_ok and one.solver_actions.strip()]
    by_id = {task.id: task for task in tasks}
    known = [one for one in passed if one.task in by_id and len(one.solver_actions) <= _LONGEST_EXAMPLE]
    if not known or EXAMPLE_FILE in subject.tree:
        return None
    shortest = min(known, key=lambda one: (one.steps, len(one.solver_actions), one.task))
    done = f"Asked: {by_id[shortest.task].request}\n\n{shortest.solver_actions.strip()}"
    example = f"# A worked example\n\n{redact(done)}\n"
    body = f"{subject.skill.body.rstrip()}\n\nA worked example: `{EXAMPLE_FILE}`.\n"
    return RuleBasedDraft(
        skill=replace(subject.skill, body=body),
        source=f"{BY_RULE}: example",
        why="An example of a run that was accepted shows what the steps mean.",
        files={EXAMPLE_FILE: example},
    )
