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

from habitus.agent.choosing.skill_selection import find_relevant_skills_on_menu
from habitus.app.home import Home
from habitus.app.library.explaining import build_gates_with_session_tools, build_skill_menu_options
from habitus.journal.model import Turn
from habitus.search.model import SearchResults
from habitus.skills import trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import RequestUser, SkillSelection, UserRequest, select_skills
from habitus.skills.layers.layer import OWN_LAYERS
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Skill, SkillSource, SkillState
from habitus.skills.review import Proposal, ProposalAction, SkillChange

# Enough requests to show a trend, and few enough to replay in seconds.
MAX_REQUESTS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedRequest:
    """A request that would gain the skill, or lose it."""

    turn: str
    session: str
    request: str
    asked_on: datetime
    gains_skill: bool
    # The skills that it would displace, or that would replace it.
    displaced: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayReport:
    """The effect of a change on recent requests, and the skills that would lose their line on the menu."""

    name: str
    requests: int
    # How many requests were replayed so far.
    replayed: int
    # Most recent first.
    affected: tuple[AffectedRequest, ...]
    dropped_from_menu: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all requests were replayed."""
        return self.replayed == self.requests

    @property
    def gaining_requests(self) -> tuple[AffectedRequest, ...]:
        """Return the requests that would gain the skill."""
        return tuple(one for one in self.affected if one.gains_skill)

    @property
    def losing_requests(self) -> tuple[AffectedRequest, ...]:
        """Return the requests that would lose the skill."""
        return tuple(one for one in self.affected if not one.gains_skill)

    @property
    def displaced_skills(self) -> Mapping[str, int]:
        """Return the skills that would be displaced, with how often, most frequent first."""
        return dict(Counter(name for one in self.gaining_requests for name in one.displaced).most_common())


class BackgroundReplays:
    """Runs replays in background threads; a report is reused until the library or the requests change."""

    def __init__(self, home: Home) -> None:
        # A weak reference: the registry below is keyed by the home and must not keep it alive.
        self._home = proxy(home)
        self._lock = threading.Lock()
        self._running: dict[str, _RunningReplay] = {}
        # With those that a newer one replaced and that have not noticed yet.
        self._unfinished: set[_RunningReplay] = set()
        self._is_closed = False

    def start_replay_and_get_report(self, proposal: Proposal, timeout_s: float) -> ReplayReport:
        """Return the report as far as it is after `timeout_s` seconds; a later call returns more."""
        latest = self._home.journal.list_latest_turns_of_all_conversations(limit=1, user=self._home.get_user().name)
        of = (proposal.id, self._home.skills.snapshot().revision, [turn.id for turn in latest], proposal.change)
        with self._lock:
            running = self._running.get(str(proposal.id))
            if running is None or running.of != of or running.failure is not None:
                running = self._running[str(proposal.id)] = _RunningReplay(of)
                self._unfinished.add(running)
                running.thread = threading.Thread(target=self._replay_in_thread, args=(running, proposal), daemon=True)
                running.thread.start()
        running.is_over.wait(timeout_s)
        if running.failure is not None:
            raise running.failure
        return running.so_far or ReplayReport(name=proposal.change.name, requests=MAX_REQUESTS, replayed=0, affected=())

    def _replay_in_thread(self, running: _RunningReplay, proposal: Proposal) -> None:
        try:
            for running.so_far in replay_recent_requests(self._home, proposal.change):
                if self._is_closed or self._running.get(str(proposal.id)) is not running:
                    return
        # Any error is raised again in the thread that asks for the report.
        except Exception as error:
            running.failure = error
        finally:
            with self._lock:
                self._unfinished.discard(running)
            running.is_over.set()

    def close(self) -> None:
        """Stop all replays, and wait until their threads have noticed."""
        self._is_closed = True
        with self._lock:
            unfinished = [*self._unfinished]
        for running in unfinished:
            running.is_over.wait()


_REPLAYS_BY_HOME: WeakKeyDictionary[Home, BackgroundReplays] = WeakKeyDictionary()


def get_background_replays(home: Home) -> BackgroundReplays:
    """Return the background replays of a home, which end when it closes."""
    if home not in _REPLAYS_BY_HOME:
        _REPLAYS_BY_HOME[home] = BackgroundReplays(home)
        home.exit_stack.callback(_REPLAYS_BY_HOME[home].close)
    return _REPLAYS_BY_HOME[home]


class _RunningReplay:
    def __init__(self, of: object) -> None:
        self.of = of
        self.thread: threading.Thread | None = None
        self.is_over = threading.Event()
        self.so_far: ReplayReport | None = None
        self.failure: Exception | None = None


def replay_recent_requests(home: Home, change: SkillChange, last: int = MAX_REQUESTS) -> Iterator[ReplayReport]:
    """Replay the user's recent requests, and yield a report after each."""
    user = home.get_user()
    now = home.skills.snapshot(user=user.name)
    then = _build_library_after_change(home.skills, now, change)
    turns = home.journal.list_latest_turns_of_all_conversations(limit=last, user=user.name)
    if then is None:
        yield ReplayReport(name=change.name, requests=len(turns), replayed=len(turns), affected=())
        return
    supposed = home.finder.build_hypothetical_searcher(*_list_index_changes(change))
    search = partial(home.finder.search, at=now, look=False)
    before = _LibraryStateForReplay(now, build_gates_with_session_tools(home, now, user), search, user)
    after = _LibraryStateForReplay(then, build_gates_with_session_tools(home, then, user), supposed.search, user)
    so_far = ReplayReport(name=change.name, requests=len(turns), replayed=0, affected=())
    for number, turn in enumerate(turns, 1):
        one = _compare_turn_before_and_after_change(change.name, turn, before, after)
        so_far = replace(so_far, replayed=number, affected=(*so_far.affected, *([one] if one is not None else [])))
        if number < len(turns):
            yield so_far
    lines = [library.list_skills_on_menu(home) for library in (before, after)]
    yield replace(so_far, dropped_from_menu=tuple(sorted(lines[0] - lines[1] - {change.name})))


class _LibraryStateForReplay:
    """The library in one state, actual or hypothetical, and what a request gets from it."""

    def __init__(
        self, at: LibrarySnapshot, gates: GateContext, search: Callable[..., SearchResults], user: RequestUser
    ) -> None:
        self._at = at
        self._gates = gates
        self._search = search
        self._user = user
        # Without attachments, the rules depend on the source type only.
        self._selected = functools.cache(self._select_skills_for_source_type)

    def list_skills_provided_to_request(self, text: str, source_type: str) -> tuple[str, ...]:
        """Return the skills a request gets in full by a rule, and those it is pointed to as relevant."""
        chosen, on_menu = self._selected(source_type)
        fitting = find_relevant_skills_on_menu(partial(self._search, text), on_menu)
        return (*(choice.name for choice in chosen.eager), *(hit.id for hit in fitting))

    def list_skills_on_menu(self, home: Home) -> set[str]:
        """Return the skills with a line of their own on a session's menu."""
        chosen, _ = self._selected("repl")
        return {
            *menu.build_menu_for_selection(
                chosen, home.skills.read_all_counters(), build_skill_menu_options(home)
            ).shown
        }

    def __contains__(self, name: str) -> bool:
        return name in self._at.by_name

    def _select_skills_for_source_type(self, source_type: str) -> tuple[SkillSelection, frozenset[str]]:
        chosen = select_skills(
            self._at.listing, UserRequest(text="", source_type=source_type, user=self._user), self._gates
        )
        return chosen, frozenset(summary.name for summary in chosen.menu)


def _compare_turn_before_and_after_change(
    name: str, turn: Turn, before: _LibraryStateForReplay, after: _LibraryStateForReplay
) -> AffectedRequest | None:
    """Compare what a turn's request got before and after; None if nothing changes for this skill."""
    has = after.list_skills_provided_to_request(turn.request, turn.source_type)
    # A new skill that isn't chosen can't displace anything: skip the second search.
    if name not in before and name not in has:
        return None
    had = before.list_skills_provided_to_request(turn.request, turn.source_type)
    if (name in had) is (name in has):
        return None
    more, less = (has, had) if name in has else (had, has)
    return AffectedRequest(
        turn=turn.id,
        session=turn.session,
        request=turn.request,
        asked_on=turn.started_on,
        gains_skill=name in has,
        displaced=tuple(other for other in less if other not in more),
    )


def _build_library_after_change(skills: Library, now: LibrarySnapshot, change: SkillChange) -> LibrarySnapshot | None:
    """Return the library as if the change were made; None if a higher layer hides it."""
    old = now.by_name.get(change.name)
    layers = [layer.name for layer in skills.layers]
    if old is not None and layers.index(old.layer) > layers.index(change.layer):
        return None
    match change.action:
        case ProposalAction.WRITE:
            new = _build_skill_after_approval(change, old)
        case ProposalAction.REMOVE:
            new = None
        case ProposalAction.ENABLE | ProposalAction.DISABLE:
            new = _build_enabled_or_disabled_skill(old, on=change.action is ProposalAction.ENABLE)
        case ProposalAction.TASKS:
            new = old
    return now.with_changes(("supposed", now.revision), frozenset((change.name,)), [new] if new is not None else [])


def _build_skill_after_approval(change: SkillChange, old: ListedSkill | None) -> ListedSkill | None:
    """Return the skill as it would be listed; its claims only have force in the user's own layers."""
    skill = trees.parse_skill_tree(change.name, change.tree).skill
    if skill is None:
        return None
    is_own = change.layer in OWN_LAYERS and skill.source is not SkillSource.IMPORTED
    enabled = old is None or old.summary is None or old.summary.enabled
    manifest = skill.manifest if is_own else skill.manifest.without_claims()
    summary = replace(skill, layer=change.layer, manifest=manifest, enabled=enabled)
    return ListedSkill(name=change.name, layer=change.layer, state=SkillState.OK, summary=summary)


def _build_enabled_or_disabled_skill(old: ListedSkill | None, *, on: bool) -> ListedSkill | None:
    if old is None or old.summary is None:
        return old
    state = SkillState.OK if on else SkillState.DISABLED
    return replace(old, state=state, summary=replace(old.summary, enabled=on))


def _list_index_changes(change: SkillChange) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills that the search index would gain, and the names it would lose."""
    skill = trees.parse_skill_tree(change.name, change.tree).skill if change.action is ProposalAction.WRITE else None
    return (
        ((skill,), ()) if skill is not None else ((), (change.name,) if change.action is ProposalAction.REMOVE else ())
    )
