"""The services of a conversation, and the composer of its prompts.

A prompt has a session part that stays the same from turn to turn and a block chosen for each request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from habitus.agent.background import Background
from habitus.agent.choosing import SessionMemory, choose, near, of_skill, unseen
from habitus.agent.library_view import OtherFiles, View
from habitus.agent.prompts import prompt
from habitus.agent.prompts.prompt import Composed, Identity, Prompt, Section
from habitus.agent.stream import TimedPerson, nobody
from habitus.agent.tools.stage_tools import OfferedTools
from habitus.errors import HabitusError
from habitus.events import TurnObserver
from habitus.evidence.model import edge
from habitus.journal.journal import Journal
from habitus.journal.spool import Spool
from habitus.llm.transcription import Transcriber
from habitus.memory.model import Encoded
from habitus.memory.recall import Recall, Recalled
from habitus.sandbox.files import Given
from habitus.skills.choosing import menu
from habitus.skills.choosing.finding import Finder
from habitus.skills.choosing.selection import INTERACTIVE, Request, Selection
from habitus.skills.layers.listing import Snapshot
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Counters, Skill, Stage, Summary
from habitus.skills.review import Proposal
from habitus.text import one_line

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Steady:
    """The part of the prompt that stays the same until a person changes something."""

    identity: str
    standing: Recall
    # The selection for an empty request.
    selection: Selection
    menu: menu.Menu
    seen: Snapshot
    # Built while the database was down.
    is_makeshift: bool = False


class Composer:
    """Composes the prompts of a conversation. Every method except `build_system_sections` queries the database:
    call it in a thread.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._away = parts.view.outage.unless_away
        # The snapshot that the user was fully told about.
        self._told: Snapshot | None = None
        self._settled: _Steady | None = None

    def recall(self, request: Request) -> Recall:
        """Recall what memory has for the request; empty while the database is down."""
        return self._away(lambda: self._parts.memory.recall(request.text), Recall())

    def select(self, request: Request) -> Selection:
        """Select the skills for the request; while the database is down, the last selection."""
        parts, view = self._parts, self._parts.view
        view.request = request.text
        view.selection = self._away(lambda: choose(view.snapshot, request, parts.gates, parts.journal), view.selection)
        log.info("%s", view.selection)
        return view.selection

    def compose(self, request: Request, selection: Selection, remembered: Recall) -> Composed:
        """Compose the prompt of one turn: the session part and the block chosen for this request."""
        offers = self._parts.view.offers
        selection = offers.without_withheld(selection)
        if selection.drops_memory:
            remembered = Recall()
        elif selection.drops_lessons:
            remembered = replace(remembered, lessons=(), tied=None)
        eager, skills = self._eager(selection)
        lessons = offers.lessons(remembered)
        known = {note.id for note in self._steady.standing.rules}
        rules = tuple(note for note in remembered.rules if note.id not in known and offers.takes_note(note))
        news = self._news(request)
        nothing: tuple[Proposal, ...] = ()
        turned_down = self._away(self._turned_down, nothing)
        unlearned = self._parts.memory.cortex.turned_down(self._parts.view.user.name)
        opened = [summary for summary in self._opened_skills(selection) if offers.takes_line(summary)]
        none: list[Summary] = []
        found = self._away(lambda: self._fitting(request, selection), none)
        context = (
            eager,
            prompt.bullets("rules", "Rules for this request", self._unsaid(rules)),
            prompt.bullets(
                "lessons", "Lessons from earlier work", self._unsaid([note for note in lessons if not note.is_played])
            ),
            prompt.playbook(self._unsaid([note for note in lessons if note.is_played])),
            prompt.opened_section(opened),
            prompt.fitting([summary for summary in found if summary not in opened]),
            prompt.whats_new(news),
            prompt.bullets(
                "turned down",
                "Turned down by the person",
                [*(one.refusal for one in turned_down), *(one.refusal for one in unlearned)],
            ),
        )
        standing = () if selection.drops_memory else self._steady.standing.rules
        return Composed(
            prompt=Prompt(system=self.system(selection), context=tuple(part for part in context if part.text)),
            skills=skills,
            notes=lessons,
            rules=(*standing, *rules),
            in_tools=self._parts.memory.in_scratchpad,
            cut=() if selection.drops_memory else self._cut(remembered, rules),
            menu=self._steady.menu,
            news=news,
            turned_down=turned_down,
            unlearned=unlearned,
        )

    def system(self, selection: Selection | None = None) -> tuple[Section, ...]:
        """Return the session sections, without those that a selected skill excludes for its turn."""
        steady = self._steady
        drops_memory = selection is not None and selection.drops_memory
        standing = Recall() if drops_memory else steady.standing
        return prompt.system(
            identity="" if selection is not None and selection.drops_persona else steady.identity,
            profile=[note.text for note in standing.profile],
            rules=prompt.bullets("rules", "Rules", [note.line for note in standing.rules], cut=standing.cut),
            menu=steady.menu,
        )

    def has_told(self) -> None:
        """Note that the news reached the user, so it is not repeated."""
        self._told = self._parts.view.snapshot

    @property
    def has_news(self) -> bool:
        """Whether the library may contain changes that the user has not been told of."""
        return self._told is None or self._told.hashes is not self._parts.view.snapshot.hashes

    def _eager(self, selection: Selection) -> tuple[Section, tuple[Skill, ...]]:
        """Build the section of skills that rules put into the prompt; text already in the conversation is
        referenced.
        """
        view = self._parts.view
        loaded = [(skill, choice.reason) for choice in selection.eager if (skill := self._load(choice.name))]
        chosen = [(skill, reason) for skill, reason in loaded if view.offers.takes_text(skill)]
        there = {skill.name for skill, _ in chosen if view.is_in_view(skill.name)}
        room = int(self._parts.context_tokens * prompt.EAGER_SHARE)
        section, shown = prompt.eager(
            chosen, room, already=there, unreviewed=view.unreviewed_origin, files=self._parts.files.put
        )
        for skill, _ in chosen:
            if skill.name in shown:
                view.saw(skill)
        return section, tuple(skill for skill, _ in chosen if skill.name in shown or skill.name in there)

    def _load(self, name: str) -> Skill | None:
        try:
            return self._away(lambda: self._parts.view.load(name), None)
        except HabitusError:
            # The skill was removed a moment ago.
            return None

    def _unsaid(self, notes: Sequence[Recalled]) -> list[str]:
        """Return the lines that are not in the conversation yet."""
        return [note.line for note in notes if not self._parts.view.has_said(f"- {one_line(note.line)}")]

    def _cut(self, remembered: Recall, rules: Sequence[Recalled]) -> tuple[str, ...]:
        """Return the rules that fit neither into the system prompt nor beside the request."""
        shown = {note.id for note in (*self._steady.standing.rules, *rules)}
        return tuple(id for id in remembered.cut if id not in shown)

    def _opened_skills(self, selection: Selection) -> list[Summary]:
        """Return the skills that only this request makes available, which the session menu can't contain."""
        closed = self._steady.selection.left_out
        return [summary for summary in selection.menu if summary.name in closed]

    def _fitting(self, request: Request, selection: Selection) -> list[Summary]:
        """Return the skills on the menu that search finds relevant."""
        on_menu = {summary.name: summary for summary in selection.menu}
        offers = self._parts.view.offers
        # One more candidate, so that random assignment can decide between the last two.
        k = prompt.FITTING + offers.lots.are_drawn
        found = near(partial(self._parts.finder.search, request.text, at=self._parts.view.snapshot), on_menu, k=k)
        ranked = [on_menu[hit.id] for hit in found]
        worth = {hit.id: hit.score for hit in found}
        drawn = edge(offers.lots, ranked, prompt.FITTING, item=of_skill, worth=lambda one: worth[one.name])
        if drawn.left is not None:
            offers.takes_line(drawn.left, at_edge=False)
        return [one for one in drawn.taken if offers.takes_line(one, at_edge=(one is drawn.last) or None)]

    def _news(self, request: Request) -> menu.News:
        """Return the skills that are new to this user; empty if no person reads along."""
        nothing = menu.News()
        if request.source_type not in INTERACTIVE or not self.has_news:
            return nothing
        return self._away(self._unseen, nothing)

    def _unseen(self) -> menu.News:
        parts, view = self._parts, self._parts.view
        withheld = view.offers.withheld_skills
        return unseen(parts.journal, parts.view.user.name, view.snapshot, parts.gates, view.library.layers, withheld)

    def _turned_down(self) -> tuple[Proposal, ...]:
        """Return rejected proposals of this user's agent that it has not been told of."""
        parts, here = self._parts, ("", self._parts.view.conversation)
        return tuple(
            one
            for one in parts.view.review.turned_down()
            if one.conversation in here or parts.journal.user_of(one.conversation) == parts.view.user.name
        )

    @property
    def _steady(self) -> _Steady:
        return self._settled or self.settle()

    def settle(self) -> _Steady:
        """Build the session part of the prompt."""
        self._settled = self._away(self._put_together, None) or self._makeshift()
        return self._settled

    def refresh(self) -> None:
        """Rebuild the session part after a person's change, but not after the agent's own, to keep it cacheable."""
        self._away(self._refresh, None)

    def _refresh(self) -> None:
        now, steady = self._parts.view.snapshot, self._steady
        # An unchanged system prompt keeps the provider's cache valid.
        written, switched = _compare_snapshots(steady.seen, now)
        is_same = self._parts.identity.text() == steady.identity
        if not steady.is_makeshift and is_same and not switched and all(self._is_own_change(name) for name in written):
            self._settled = replace(steady, seen=now)
        else:
            self._settled = self._put_together()

    def _is_own_change(self, name: str) -> bool:
        try:
            return self._parts.view.library.history(name)[-1].author.is_automatic
        except (HabitusError, IndexError):
            # The skill has been removed.
            return False

    def _put_together(self) -> _Steady:
        parts = self._parts
        return self._make_steady(parts.identity.text(), parts.memory.standing(), parts.view.library.all_counters())

    def _makeshift(self) -> _Steady:
        """Build the session part from what is known without the database."""
        identity = self._away(self._parts.identity.text, prompt.text("identity"))
        return replace(self._make_steady(identity, self._parts.memory.standing(is_away=True), {}), is_makeshift=True)

    def _make_steady(
        self, identity: str, standing: Recall, counters: Mapping[tuple[str, str], Mapping[Stage, Counters]]
    ) -> _Steady:
        parts = self._parts
        bare = Request(text="", source_type=parts.source_type, user=parts.view.user, now=parts.clock())
        parts.view.selection = selection = choose(parts.view.snapshot, bare, parts.gates, parts.journal)
        drawn = partial(menu.make_menu, selection, counters, parts.context_tokens)
        parts.view.menu = parts.view.offers.steady(selection, drawn)
        rules = tuple(note for note in standing.rules if parts.view.offers.takes_note(note, is_steady=True))
        return _Steady(
            identity=identity,
            standing=replace(standing, rules=rules),
            selection=selection,
            menu=parts.view.menu,
            seen=parts.view.snapshot,
        )


def _compare_snapshots(before: Snapshot, now: Snapshot) -> tuple[list[str], list[str]]:
    """Return the skills written or removed, and those only enabled or disabled."""
    if before is now:
        return [], []
    a, b = ({item.name: (item.tree_hash, item.state) for item in seen.listing} for seen in (before, now))
    changed = [name for name in {*a, *b} if a.get(name) != b.get(name)]
    switched = [name for name in changed if name in a and name in b and a[name][0] == b[name][0]]
    return [name for name in changed if name not in switched], switched


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Everything a conversation works with."""

    view: View
    files: OtherFiles
    finder: Finder
    journal: Journal
    spool: Spool
    memory: SessionMemory
    identity: Identity
    tools: OfferedTools
    observers: Sequence[TurnObserver]
    transcribe: Transcriber
    clock: Callable[[], datetime]
    context_tokens: int
    # Where attachments are placed for code.
    given: Given
    person: TimedPerson = field(default_factory=lambda: TimedPerson(nobody))
    # Returns the lessons learned since it was last called.
    learned: Callable[[], tuple[Encoded, ...]] = tuple
    project: str = ""
    source_type: str = "repl"
    background: Background = field(default_factory=Background)
    # Runs what other processes left to be done between two turns.
    before_turn: Callable[[], None] = lambda: None
    # Prepares what code needs before a call runs any.
    ready: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    # Closed together with the conversation.
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def gates(self) -> GateContext:
        """The user's gates, including the available tools."""
        return self.tools.gates
