"""Recounting: uses that were counted because a text stood in the prompt, counted anew from the turns of the journal.

Where the turns that are kept explain what was counted to the last one, the new count takes its place; otherwise the
count stays, marked, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from habitus.agent.history import unpack
from habitus.app.growth.observing import ASIDE
from habitus.app.home import Home
from habitus.errors import HabitusError
from habitus.events import EventKind, OutcomeKind
from habitus.evidence.traces import left_trace
from habitus.journal.model import Place, Selected, Turn
from habitus.llm.model import Answered
from habitus.skills import trees
from habitus.skills.layers import address
from habitus.skills.model import Counters


def recount(home: Home) -> int:
    """How many counts were taken anew."""
    marked = [
        where
        for where, stages in home.skills.all_counters().items()
        if any(counted.by_presence_until is not None for counted in stages.values())
    ]
    return sum(
        _recount(home, layer, name, version.number)
        for layer, name in marked
        for version in home.skills.layer(layer).store.history(name)
    )


def _recount(home: Home, layer: str, name: str, version: int) -> bool:
    store = home.skills.layer(layer).store
    counted = store.counters(name, version=version)
    stored = next((each for each in counted.values() if each.by_presence_until is not None), Counters())
    until = stored.by_presence_until
    if until is None:
        return False
    turns = home.journal.turns_showing(name, layer, version)
    before = [turn for turn in turns if turn.started_on <= until]
    uses = SkillUses(home, layer, name, version)
    later = uses.count(turn for turn in turns if turn.started_on > until)
    explained = _total(map(_by_presence, before)) + later
    if _numbers(explained) != _numbers(stored):
        return False
    store.replace_uses(name, version, uses.count(before) + later)
    return True


def _numbers(counted: Counters) -> tuple[int, int, int]:
    return counted.used, counted.succeeded, counted.failed


def _total(counted: Iterable[Counters]) -> Counters:
    return sum(counted, Counters())


def _by_presence(turn: Turn) -> Counters:
    """One use of whatever was there in a turn that was not cancelled, with how the turn went at its end."""
    return _went(turn) if turn.outcomes else Counters()


def _went(turn: Turn) -> Counters:
    kind = turn.outcomes[0].kind
    ok, failed = int(kind is OutcomeKind.OK), int(kind is OutcomeKind.FAILED)
    return Counters(used=1, succeeded=ok, failed=failed, last_used=turn.ended_on)


class SkillUses:
    """The uses of one version of a skill, by the rule of today."""

    def __init__(self, home: Home, layer: str, name: str, version: int) -> None:
        self._name = name
        self._stages = {tool.callable_name for tool in home.tools.all() if tool.name == name}
        self._stages |= {recipe.name for recipe in home.recipes.all() if (recipe.skill, recipe.layer) == (name, layer)}
        try:
            parsed = trees.parse(name, home.skills.tree(address(name, layer), version))
            self._steps = parsed.skill.body if parsed.skill is not None else ""
        except HabitusError:
            self._steps = ""

    def count(self, turns: Iterable[Turn]) -> Counters:
        return _total(map(self.of, turns))

    def of(self, turn: Turn) -> Counters:
        places = [one for one in turn.selected if one.name == self._name]
        if not turn.is_real or not turn.outcomes or not (self._is_asked(places) or self._has_trace(turn, places)):
            return Counters()
        results = [event.detail for event in turn.events if event.kind is EventKind.TOOL_RESULT]
        did_it = any(one.get("success") is True and one.get("name") in self._stages for one in results)
        return Counters(used=1, last_used=turn.ended_on) if did_it else _went(turn)

    def _is_asked(self, places: Iterable[Selected]) -> bool:
        return any(one.place is Place.LOADED and one.reason == "the model asked for it" for one in places)

    def _has_trace(self, turn: Turn, places: Iterable[Selected]) -> bool:
        came = any(
            one.place is Place.LOADED or (one.place is Place.EAGER and one.reason != "always_include") for one in places
        )
        answers = [said for kept in turn.messages if isinstance(said := unpack(kept), Answered)] if came else []
        calls = [call for answer in answers for call in answer.calls if call.name not in ASIDE]
        done = [*(f"{call.name} {call.arguments}" for call in calls), *(answer.text for answer in answers)]
        words = "\n".join(done)
        return came and left_trace(self._steps, self._stages, request=turn.request, done=words, if_unclear=False)
