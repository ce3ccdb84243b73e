"""Replaying: who of the last requests would get a skill, or no longer, if a proposal were approved.

Rules and fit decide, as they would now; what a conversation carries on from turn to turn is left out.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from weakref import WeakKeyDictionary, proxy

from habitus.agent.choosing import near
from habitus.app.home import Home
from habitus.app.library.explaining import gates_at
from habitus.journal.model import Turn
from habitus.search.model import Results
from habitus.skills import trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import Request, Selection, User, select
from habitus.skills.layers.layer import OWN
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Skill, Source, State
from habitus.skills.review import Action, Change, Proposal

LAST = 200  # requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Affected:
    """A request that would get the skill and does not now, or the other way round."""

    turn: str
    session: str
    request: str
    asked_on: datetime
    gets_it: bool
    instead: tuple[str, ...]  # what it would lose for it, or get in its place


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The effect of a change on the last requests; `without_line` have no room on the list of names any more."""

    name: str
    requests: int
    looked_at: int  # of the requests; fewer while it goes on
    affected: tuple[Affected, ...]  # the latest first
    without_line: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.looked_at == self.requests

    @property
    def gaining_requests(self) -> tuple[Affected, ...]:
        return tuple(one for one in self.affected if one.gets_it)

    @property
    def lost(self) -> tuple[Affected, ...]:
        return tuple(one for one in self.affected if not one.gets_it)

    @property
    def displaced_skills(self) -> Mapping[str, int]:
        """Skills that would lose their place to it, and how often; the most first."""
        return dict(Counter(name for one in self.gaining_requests for name in one.instead).most_common())


class Replays:
    """Replays that go on while nobody waits for them; each is kept until the library or the requests have changed."""

    def __init__(self, home: Home) -> None:
        self._home = proxy(home)
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._is_closed = False

    def look(self, proposal: Proposal, within: float) -> Replay:
        """As far as it is after so many seconds; asking again goes on from there."""
        latest = self._home.journal.latest(limit=1, user=self._home.user().name)
        of = (proposal.id, self._home.skills.snapshot().revision, [turn.id for turn in latest], proposal.change)
        with self._lock:
            running = self._running.get(str(proposal.id))
            if running is None or running.of != of or running.failure is not None:
                running = self._running[str(proposal.id)] = _Running(of)
                running.thread = threading.Thread(target=self._run, args=(running, proposal.change), daemon=True)
                running.thread.start()
        running.is_over.wait(within)
        if running.failure is not None:
            raise running.failure
        return running.so_far or Replay(name=proposal.change.name, requests=LAST, looked_at=0, affected=())

    def _run(self, running: _Running, change: Change) -> None:
        try:
            for running.so_far in replaying(self._home, change):
                if self._is_closed:
                    return
        except Exception as error:  # whoever asks hears of it
            running.failure = error
        finally:
            running.is_over.set()

    def close(self) -> None:
        self._is_closed = True
        for running in self._running.values():
            running.is_over.wait()


_OF: WeakKeyDictionary[Home, Replays] = WeakKeyDictionary()


def replays_of(home: Home) -> Replays:
    """Those of a home, which end with it."""
    if home not in _OF:
        _OF[home] = Replays(home)
        home.ending.callback(_OF[home].close)
    return _OF[home]


class _Running:
    def __init__(self, of: object) -> None:
        self.of = of
        self.thread: threading.Thread | None = None
        self.is_over = threading.Event()
        self.so_far: Replay | None = None
        self.failure: Exception | None = None


def replaying(home: Home, change: Change, last: int = LAST) -> Iterator[Replay]:
    """Of the user's own requests, as far as it is after each of them."""
    user = home.user()
    now = home.skills.snapshot(user=user.name)
    then = _library_after(home.skills, now, change)
    turns = home.journal.latest(limit=last, user=user.name)
    if then is None:
        yield Replay(name=change.name, requests=len(turns), looked_at=len(turns), affected=())
        return
    supposed = home.finder.supposing(*_differing(change))
    search = partial(home.finder.search, at=now, look=False)
    before = _Library(now, gates_at(home, now, user), search, user)
    after = _Library(then, gates_at(home, then, user), supposed.search, user)
    so_far = Replay(name=change.name, requests=len(turns), looked_at=0, affected=())
    for number, turn in enumerate(turns, 1):
        one = _effect_on(change.name, turn, before, after)
        so_far = replace(so_far, looked_at=number, affected=(*so_far.affected, *([one] if one is not None else [])))
        if number < len(turns):
            yield so_far
    lines = [library.lines(home) for library in (before, after)]
    yield replace(so_far, without_line=tuple(sorted(lines[0] - lines[1] - {change.name})))


class _Library:
    """The skills at one moment, real or supposed, and what a request gets of them."""

    def __init__(self, at: Snapshot, gates: GateContext, search: Callable[..., Results], user: User) -> None:
        self._at = at
        self._gates = gates
        self._search = search
        self._user = user
        self._selected = functools.cache(self._select)  # without what is attached, rules look at nothing else

    def skills_given(self, text: str, source_type: str) -> tuple[str, ...]:
        """Skills a request gets in full by a rule, and those it is pointed to because they fit."""
        chosen, on_menu = self._selected(source_type)
        fitting = near(partial(self._search, text), on_menu)
        return (*(choice.name for choice in chosen.eager), *(hit.id for hit in fitting))

    def lines(self, home: Home) -> set[str]:
        """Skills with a line of their own on the list of names that every session has."""
        chosen, _ = self._selected("repl")
        return {*menu.make_menu(chosen, home.skills.all_counters(), home.settings.context_tokens).shown}

    def __contains__(self, name: str) -> bool:
        return name in self._at.by_name

    def _select(self, source_type: str) -> tuple[Selection, frozenset[str]]:
        chosen = select(self._at.listing, Request(text="", source_type=source_type, user=self._user), self._gates)
        return chosen, frozenset(summary.name for summary in chosen.menu)


def _effect_on(name: str, turn: Turn, before: _Library, after: _Library) -> Affected | None:
    has = after.skills_given(turn.request, turn.source_type)
    if name not in before and name not in has:
        return None
    had = before.skills_given(turn.request, turn.source_type)
    if (name in had) is (name in has):
        return None
    more, less = (has, had) if name in has else (had, has)
    return Affected(
        turn=turn.id,
        session=turn.session,
        request=turn.request,
        asked_on=turn.started_on,
        gets_it=name in has,
        instead=tuple(other for other in less if other not in more),
    )


def _library_after(skills: Library, now: Snapshot, change: Change) -> Snapshot | None:
    """The library if the change were made; None where a copy of another layer stands before it."""
    old = now.by_name.get(change.name)
    layers = [layer.name for layer in skills.layers]
    if old is not None and layers.index(old.layer) > layers.index(change.layer):
        return None
    match change.action:
        case Action.WRITE:
            new = _as_approved(change, old)
        case Action.REMOVE:
            new = None
        case Action.ENABLE | Action.DISABLE:
            new = _switch(old, on=change.action is Action.ENABLE)
        case Action.TASKS:
            new = old
    return now.after(("supposed", now.revision), frozenset((change.name,)), [new] if new is not None else [])


def _as_approved(change: Change, old: Listed | None) -> Listed | None:
    """A skill as it would be listed; what it claims has force only where it is the person's own."""
    skill = trees.parse(change.name, change.tree).skill
    if skill is None:
        return None
    is_own = change.layer in OWN and skill.source is not Source.IMPORTED
    enabled = old is None or old.summary is None or old.summary.enabled
    manifest = skill.manifest if is_own else skill.manifest.without_force()
    summary = replace(skill, layer=change.layer, manifest=manifest, enabled=enabled)
    return Listed(name=change.name, layer=change.layer, state=State.OK, summary=summary)


def _switch(old: Listed | None, *, on: bool) -> Listed | None:
    if old is None or old.summary is None:
        return old
    state = State.OK if on else State.DISABLED
    return replace(old, state=state, summary=replace(old.summary, enabled=on))


def _differing(change: Change) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Skills that search would have anew, and those it would no longer have."""
    skill = trees.parse(change.name, change.tree).skill if change.action is Action.WRITE else None
    return ((skill,), ()) if skill is not None else ((), (change.name,) if change.action is Action.REMOVE else ())
