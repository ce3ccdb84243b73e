"""Verdicts of the evidence carried out, by `habitus curate` alone: proposals for skills, the archive for lessons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from habitus.app.evidence import chosen
from habitus.errors import HabitusError, Refused
from habitus.evidence.findings import Finding
from habitus.evidence.model import Item, ItemKind
from habitus.evidence.policy import Rollback, Verdict, is_ignored
from habitus.skills import trees
from habitus.skills.lifecycle import Transition, transition
from habitus.skills.listing import Listed
from habitus.skills.model import Actor, Author, State
from habitus.skills.review import Action, Change, Proposal

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """What a bound allows to be done with an item, and why; `to` is the version to go back to."""

    item: Item
    transition: Transition
    reason: str
    to: int = 0


def due(habitus: Habitus) -> tuple[Due, ...]:
    """What the evidence says now, of what is in use now."""
    kept = habitus.evidence.exposures()
    found, by_request = habitus.evidence.findings(kept), chosen(kept)
    back = {one.item: one for one in found.rollbacks}
    steps = []
    for one in found.items:
        is_chosen = (one.item.kind, one.item.name) in by_request
        steps.append(_of_lesson(habitus, one) if _is_lesson(one.item) else _of_skill(habitus, one, back, is_chosen))
    return tuple(step for step in steps if step is not None)


def _is_lesson(item: Item) -> bool:
    return item.kind is ItemKind.LESSON


def _of_lesson(habitus: Habitus, found: Finding) -> Due | None:
    """Harm alone puts a lesson away: it goes by itself where it does not help."""
    if found.judgement.verdict is not Verdict.RETIRE:
        return None
    current = {(lesson.id, lesson.version) for lesson in habitus.memory.list_lessons()}
    if (found.item.name, found.item.version) not in current:
        return None
    return Due(item=found.item, transition=Transition.RETIRE, reason=found.judgement.reason)


def _of_skill(habitus: Habitus, found: Finding, back: Mapping[Item, Rollback], is_chosen: bool) -> Due | None:
    """Of the version that is offered today; a layer that can't be written has none to go back to.

    What only stood on menus hardly changes a session, however much it helps where it is needed: that is not useless.
    """
    item, verdict, worse = found.item, found.judgement.verdict, back.get(found.item)
    skill = _skill_of(habitus, item)
    if skill is None or skill.summary is None or (skill.state, skill.summary.version) != (State.OK, item.version):
        return None
    if not habitus.skills.layer(skill.layer).can_write:
        worse = None
    is_useless = verdict is Verdict.DEGRADE and (is_chosen or is_ignored(found.estimate))
    then = transition(does_harm=verdict is Verdict.RETIRE, is_useless=is_useless, is_worse=worse is not None)
    if then is Transition.STAY:
        return None
    if worse is None:
        return Due(item=item, transition=then, reason=found.judgement.reason)
    return Due(item=item, transition=then, reason=worse.reason, to=worse.to.version)


def _skill_of(habitus: Habitus, item: Item) -> Listed | None:
    try:
        name = habitus.recipes.get(item.name).skill if item.kind is ItemKind.RECIPE else item.name
        return habitus.skills.find(name)
    except HabitusError:
        return None  # it is gone


def carry_out(habitus: Habitus, steps: tuple[Due, ...]) -> Iterator[tuple[Due, Proposal | None]]:
    """Propose what changes skills, and put harmful lessons away; what a person has turned down is left alone."""
    for step in steps:
        if _is_lesson(step.item):
            habitus.memory.remove(step.item.name, by=habitus.settings.signature, why=step.reason)
            yield step, None
        elif (proposal := _proposed(habitus, step)) is not None:
            yield step, proposal


def _proposed(habitus: Habitus, step: Due) -> Proposal | None:
    skill = _skill_of(habitus, step.item)
    assert skill is not None  # due says so
    author = Author(actor=Actor.JOB, name="evidence", reason=step.reason)
    try:
        return habitus.review.propose(_change(habitus, step, skill), author, [step.reason])
    except Refused:
        return None


def _change(habitus: Habitus, step: Due, skill: Listed) -> Change:
    match step.transition:
        case Transition.ROLL_BACK:
            tree = habitus.skills.tree(f"{skill.name}@{skill.layer}", step.to)
            return Change(action=Action.WRITE, name=skill.name, layer=skill.layer, tree=tree)
        case Transition.HIDE:
            layer, tree, whole = habitus.skills.own_copy(skill)
            hidden = replace(whole, manifest=replace(whole.manifest, disable_model_invocation=True))
            return Change(action=Action.WRITE, name=skill.name, layer=layer, tree=trees.with_skill(tree, hidden))
        case Transition.RETIRE | Transition.STAY:
            return Change(action=Action.DISABLE, name=skill.name, layer=skill.layer)
