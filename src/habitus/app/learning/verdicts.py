"""Decide what evidence and use lead to: a proposal for a skill, the archive for a harmful lesson.

`habitus curate` carries these transitions out; items that earned their next stage go to `climbing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus.agent.history import acted_above, unpack
from habitus.app.home import Home
from habitus.app.learning.mining import MOST_TURNS
from habitus.errors import HabitusError, Refused
from habitus.events import Event, EventKind, OutcomeKind
from habitus.evidence.findings import Finding, Rollback, Verdict, is_ignored
from habitus.evidence.model import Item, ItemKind, left_trace
from habitus.journal.model import Origin, Place, Selected, Turn
from habitus.llm.model import Answered
from habitus.memory.model import Engram
from habitus.recipes.catalogue import RecipeStatus, SkillRecipe
from habitus.skills import names, trees
from habitus.skills.layers.layer import address
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.lifecycle import Transition, Worth, lesson_transition, serves, transition
from habitus.skills.model import Actor, Author, Counters, Stage, State
from habitus.skills.review import Action, Change, Proposal

MOST_LESSONS = 10_000
# Turns that a reason names.
_LISTED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A transition that an item is due for, and why; `to` is the version to roll back to."""

    item: Item
    transition: Transition
    reason: str
    to: int = 0


class _Now:
    """The skills and recipes in one snapshot of the library."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._seen = home.skills.snapshot()
        self._recipes = {recipe.name: recipe for recipe in home.recipes.all(at=self._seen)}

    def skill_of(self, item: Item) -> Listed | None:
        """Return the skill that the item is a version, code or recipe of; None if it was removed."""
        recipe = self._recipes.get(item.name) if item.kind is ItemKind.RECIPE else None
        if item.kind is ItemKind.RECIPE and recipe is None:
            return None
        try:
            return self.home.skills.find(recipe.skill if recipe else item.name, at=self._seen)
        except HabitusError:
            return None

    def uses(self, found: Finding, skill: Listed) -> Counters:
        """Return the outcomes of the uses of this version.

        Empty for a tool, whose calls count for its health instead.
        """
        match found.item.kind:
            case ItemKind.SKILL if found.estimate.used:
                counted = self.home.skills.layer(skill.layer).store.counters(skill.name, version=found.item.version)
                steps = counted.get(Stage.STEPS, Counters())
                return Counters() if steps.by_presence_until is not None else steps
            case ItemKind.RECIPE:
                return _runs(self._recipes[found.item.name])
            case _:
                return Counters()

    def recipes_without(self, found: Iterable[Item]) -> Iterator[tuple[Item, Counters]]:
        """Yield the active recipes that were never offered, with the outcomes of their runs by hand or by name."""
        known = set(found)
        for recipe in self._recipes.values():
            item = Item(kind=ItemKind.RECIPE, name=recipe.name, version=recipe.version)
            if recipe.status is RecipeStatus.ACTIVE and item not in known:
                yield item, _runs(recipe)


def _runs(recipe: SkillRecipe) -> Counters:
    return Counters(succeeded=recipe.counts.succeeded, failed=recipe.counts.failed)


def due(home: Home) -> tuple[Due, ...]:
    """Return the transitions that today's evidence on active items leads to."""
    (found, by_request), now = home.evidence.findings_and_chosen(), _Now(home)
    back = {one.item: one for one in found.rollbacks}
    lessons = {(lesson.id, lesson.version): lesson for lesson in home.memory.list_lessons(limit=MOST_LESSONS)}
    steps = []
    for one in found.items:
        is_chosen = (one.item.kind, one.item.name) in by_request
        if _is_lesson(one.item):
            steps.append(_of_lesson(home, one, lessons.get((one.item.name, one.item.version))))
        else:
            steps.append(_of_skill(now, one, back.get(one.item), is_chosen))
    steps += [_of_runs(now, item, runs) for item, runs in now.recipes_without(one.item for one in found.items)]
    return tuple(step for step in steps if step is not None)


def _is_lesson(item: Item) -> bool:
    return item.kind is ItemKind.LESSON


def _of_lesson(home: Home, found: Finding, lesson: Engram | None) -> Due | None:
    if lesson is None:
        return None
    counted = lesson.counters
    uses = Counters(succeeded=counted.helpful, failed=max(counted.retrievals - counted.helpful, 0))
    worth = _worth(found, uses)
    is_verified = lesson.verified and lesson.kind.is_lesson
    then = lesson_transition(worth, is_verified=is_verified, reliable=home.settings.reliable)
    if then is Transition.STAY:
        return None
    shown = f"It was verified by a trial, and helped in {uses.succeeded} of the {counted.retrievals} times it was shown"
    turns = [one.turn for one in home.journal.exposures([lesson.id]) if one.origin is Origin.REAL]
    return Due(item=found.item, transition=then, reason=_describe_bound(worth, found) or f"{shown}{_in_turns(turns)}.")


def _of_skill(now: _Now, found: Finding, back: Rollback | None, is_chosen: bool) -> Due | None:
    """Decide about the version that is offered today; a read-only layer has no version to roll back to.

    An item that only stood on menus hardly changes a session, however much it helps when needed, so it is not useless.
    """
    item, skill, home = found.item, now.skill_of(found.item), now.home
    if skill is None or skill.summary is None or (skill.state, skill.summary.version) != (State.OK, item.version):
        return None
    if not home.skills.layer(skill.layer).can_write:
        back = None
    uses = now.uses(found, skill)
    worth = _worth(found, uses, is_chosen=is_chosen or is_ignored(found.estimate), is_worse=back is not None)
    then = transition(worth, reliable=home.settings.reliable)
    is_of_skill = item.kind is ItemKind.SKILL or then is not Transition.RETIRE or worth.does_harm
    # Below a failing recipe there are steps that may still serve, so the skill is not retired for it.
    if then is Transition.STAY or not is_of_skill:
        return None
    if back is not None:
        return Due(item=item, transition=then, reason=back.reason, to=back.to.version)
    went, count = ("failed", uses.failed) if then is Transition.RETIRE else ("served", uses.succeeded)
    if reason := _describe_bound(worth, found):
        return Due(item=item, transition=then, reason=reason)
    turns = _turns_that(home, item, skill, is_good=then is not Transition.RETIRE)
    counted = f"It {went} in {count} of the {uses.succeeded + uses.failed} uses that were judged{_in_turns(turns)}."
    return Due(item=item, transition=then, reason=counted)


def _of_runs(now: _Now, item: Item, runs: Counters) -> Due | None:
    """Decide about a recipe of which only its runs are known: they let it climb, nothing else."""
    if not serves(runs, now.home.settings.reliable):
        return None
    past = now.home.journal.past(limit=MOST_TURNS)
    turns = [turn.id for turn in past if any(_came_to(event) == (item.name, True) for event in turn.events)]
    judged = runs.succeeded + runs.failed
    reason = f"It served in {runs.succeeded} of the {judged} uses that were judged{_in_turns(turns)}."
    return Due(item=item, transition=Transition.CLIMB, reason=reason)


def _turns_that(home: Home, item: Item, skill: Listed, *, is_good: bool) -> list[str]:
    """Return the stored turns in which the item succeeded, or failed."""
    if item.kind is ItemKind.SKILL:
        uses = SkillUses(home, skill.layer, skill.name, item.version)
        turns = home.journal.turns_showing(skill.name, skill.layer, item.version)
        return [turn.id for turn in turns if (uses.of(turn).succeeded if is_good else uses.of(turn).failed)]
    kept = [one.unit for one in home.journal.exposures([item.name]) if one.exposure.is_used]
    turns = [turn for unit in dict.fromkeys(kept[-_LISTED:]) for turn in home.journal.turns_of(unit)]
    wanted = (item.name, is_good)
    return [turn.id for turn in turns if any(_came_to(event) == wanted for event in turn.events)]


def _came_to(event: Event) -> tuple[object, object]:
    is_result = event.kind is EventKind.TOOL_RESULT
    return (event.detail.get("name"), event.detail.get("success")) if is_result else ("", None)


def _in_turns(turns: Sequence[str]) -> str:
    """Name the latest turns; empty if none is stored any more."""
    more = f" and {len(turns) - _LISTED} before" if len(turns) > _LISTED else ""
    return f": turn{'s' if len(turns) > 1 else ''} {', '.join(turns[-_LISTED:])}{more}" if turns else ""


def _worth(found: Finding, uses: Counters, *, is_chosen: bool = True, is_worse: bool = False) -> Worth:
    verdict = found.judgement.verdict
    return Worth(
        counters=uses,
        helps=verdict is Verdict.PROMOTE,
        is_useless=verdict is Verdict.DEGRADE and is_chosen,
        does_harm=verdict is Verdict.RETIRE,
        is_worse=is_worse,
    )


def _describe_bound(worth: Worth, found: Finding) -> str:
    """Return the reason of the judgement, if the evidence decided rather than the counts."""
    return found.judgement.reason if worth.helps or worth.is_useless or worth.does_harm else ""


def carry_out(home: Home, steps: Sequence[Due]) -> Iterator[tuple[Due, Proposal | None]]:
    """Propose the changes of skills and archive harmful lessons; changes that a person rejected before are skipped."""
    now = _Now(home)
    for step in steps:
        if _is_lesson(step.item):
            home.memory.remove(step.item.name, by=home.settings.signature, why=step.reason)
            yield step, None
        elif (proposal := _propose(now, step)) is not None:
            yield step, proposal


def _propose(now: _Now, step: Due) -> Proposal | None:
    home, skill = now.home, now.skill_of(step.item)
    assert skill is not None  # a due transition has a skill
    author = Author(actor=Actor.JOB, name="evidence", reason=step.reason)
    try:
        return home.review.propose(_change(home.skills, step, skill), author, [step.reason])
    except Refused:
        return None


def _change(skills: Library, step: Due, skill: Listed) -> Change:
    match step.transition:
        case Transition.ROLL_BACK:
            tree = skills.tree(f"{skill.name}@{skill.layer}", step.to)
            return Change(action=Action.WRITE, name=skill.name, layer=skill.layer, tree=tree)
        case Transition.HIDE:
            layer, tree, whole = skills.own_copy(skill)
            hidden = replace(whole, manifest=replace(whole.manifest, disable_model_invocation=True))
            return Change(action=Action.WRITE, name=skill.name, layer=layer, tree=trees.with_skill(tree, hidden))
        case Transition.RETIRE | Transition.STAY | Transition.CLIMB:
            return Change(action=Action.DISABLE, name=skill.name, layer=skill.layer)


def _went(turn: Turn) -> Counters:
    kind = turn.outcomes[0].kind
    ok, failed = int(kind is OutcomeKind.OK), int(kind is OutcomeKind.FAILED)
    return Counters(used=1, succeeded=ok, failed=failed, last_used=turn.ended_on)


class SkillUses:
    """Counts the uses of one version of a skill in stored turns, by the present rule."""

    def __init__(self, home: Home, layer: str, name: str, version: int) -> None:
        self._name = name
        self._stages = {tool.callable_name for tool in home.tools.all() if tool.name == name}
        self._stages |= {recipe.name for recipe in home.recipes.all() if (recipe.skill, recipe.layer) == (name, layer)}
        try:
            parsed = trees.parse(name, home.skills.tree(address(name, layer), version))
            self._steps = parsed.skill.body if parsed.skill is not None else ""
        except HabitusError:
            self._steps = ""

    def of(self, turn: Turn) -> Counters:
        """Return the turn's use and outcome; empty if the skill was not used, or the turn was not real."""
        places = [one for one in turn.selected if one.name == self._name]
        if not turn.is_real or not turn.outcomes or not (self._is_asked(places) or self._has_trace(turn, places)):
            return Counters()
        said = [message for kept in turn.messages if (message := unpack(kept)) is not None]
        # A turn that acted through the skill's code or recipe is a use of the steps, but its outcome is not theirs.
        is_above = acted_above(self._steps, self._stages, request=turn.request, events=turn.events, messages=said)
        return Counters(used=1, last_used=turn.ended_on) if is_above else _went(turn)

    def _is_asked(self, places: Iterable[Selected]) -> bool:
        return any(one.place is Place.LOADED and one.reason == "the model asked for it" for one in places)

    def _has_trace(self, turn: Turn, places: Iterable[Selected]) -> bool:
        came = any(
            one.place is Place.LOADED or (one.place is Place.EAGER and one.reason != "always_include") for one in places
        )
        answers = [said for kept in turn.messages if isinstance(said := unpack(kept), Answered)] if came else []
        calls = [call for answer in answers for call in answer.calls if call.name not in names.ASIDE]
        done = [*(f"{call.name} {call.arguments}" for call in calls), *(answer.text for answer in answers)]
        words = "\n".join(done)
        return came and left_trace(self._steps, self._stages, request=turn.request, done=words, if_unclear=False)
