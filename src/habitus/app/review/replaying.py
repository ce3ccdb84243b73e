"""Replay recent requests: which would gain or lose a skill if a proposal were approved.

Rules and relevance decide as they would now. Skills that a conversation carries from turn to turn are ignored.
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

# Enough requests to show a trend, and few enough to replay in seconds.
LAST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Affected:
    """A request that would gain the skill, or lose it."""

    turn: str
    session: str
    request: str
    asked_on: datetime
    gets_it: bool
    # The skills that it would displace, or that would replace it.
    instead: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The effect of a change on recent requests, and the skills that would lose their line on the menu."""

    name: str
    requests: int
    # How many requests were replayed so far.
    looked_at: int
    # Most recent first.
    affected: tuple[Affected, ...]
    without_line: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all requests were replayed."""
        return self.looked_at == self.requests

    @property
    def gaining_requests(self) -> tuple[Affected, ...]:
        """Return the requests that would gain the skill."""
        return tuple(one for one in self.affected if one.gets_it)

    @property
    def lost(self) -> tuple[Affected, ...]:
        """Return the requests that would lose the skill."""
        return tuple(one for one in self.affected if not one.gets_it)

    @property
    def displaced_skills(self) -> Mapping[str, int]:
        """Return the skills that would be displaced, with how often, most frequent first."""
        return dict(Counter(name for one in self.gaining_requests for name in one.instead).most_common())


class Replays:
    """Runs replays in background threads; a report is reused until the library or the requests change."""

    def __init__(self, home: Home) -> None:
        # A weak reference: the registry below is keyed by the home and must not keep it alive.
        self._home = proxy(home)
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._is_closed = False

    def look(self, proposal: Proposal, within: float) -> Replay:
        """Return the report as far as it is after `timeout_s` seconds; a later call returns more."""
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
        # Any error is raised again in the thread that asks for the report.
        except Exception as error:
            running.failure = error
        finally:
            running.is_over.set()

    def close(self) -> None:
        """Stop all replays, and wait until their threads have noticed."""
        self._is_closed = True
        for running in self._running.values():
            running.is_over.wait()


_OF: WeakKeyDictionary[Home, Replays] = WeakKeyDictionary()


def replays_of(home: Home) -> Replays:
    """Return the background replays of a home, which end when it closes."""
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
    """Replay the user's recent requests, and yield a report after each."""
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
    """The library in one state, actual or hypothetical, and what a request gets from it."""

    def __init__(self, at: Snapshot, gates: GateContext, search: Callable[..., Results], user: User) -> None:
        self._at = at
        self._gates = gates
        self._search = search
        self._user = user
        # Without attachments, the rules depend on the source type only.
        self._selected = functools.cache(self._select)

    def skills_given(self, text: str, source_type: str) -> tuple[str, ...]:
        """Return the skills a request gets in full by a rule, and those it is pointed to as relevant."""
        chosen, on_menu = self._selected(source_type)
        fitting = near(partial(self._search, text), on_menu)
        return (*(choice.name for choice in chosen.eager), *(hit.id for hit in fitting))

    def lines(self, home: Home) -> set[str]:
        """Return the skills with a line of their own on a session's menu."""
        chosen, _ = self._selected("repl")
        return {*menu.make_menu(chosen, home.skills.all_counters(), home.settings.context_tokens).shown}

    def __contains__(self, name: str) -> bool:
        return name in self._at.by_name

    def _select(self, source_type: str) -> tuple[Selection, frozenset[str]]:
        chosen = select(self._at.listing, Request(text="", source_type=source_type, user=self._user), self._gates)
        return chosen, frozenset(summary.name for summary in chosen.menu)


def _effect_on(name: str, turn: Turn, before: _Library, after: _Library) -> Affected | None:
    """Compare what a turn's request got before and after; None if nothing changes for this skill."""
    has = after.skills_given(turn.request, turn.source_type)
    # A new skill that isn't chosen can't displace anything: skip the second search.
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
    """Return the library as if the change were made; None if a higher layer hides it."""
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
    """Return the skill as it would be listed; its claims only have force in the user's own layers."""
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
    """Return the skills that the search index would gain, and the names it would lose."""
    skill = trees.parse(change.name, change.tree).skill if change.action is Action.WRITE else None
    return ((skill,), ()) if skill is not None else ((), (change.name,) if change.action is Action.REMOVE else ())
