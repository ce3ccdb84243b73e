"""A session: one conversation with a model, with the same system prompt from its first turn to its last."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from habitus import sql
from habitus.agent import attachments, budget, outcome, prompt
from habitus.agent.background import CLOSING_S, Background
from habitus.agent.budget import Section
from habitus.agent.history import History, unpack
from habitus.agent.memory import SessionMemory
from habitus.agent.prompt import Composed, Note, Prompt, Remembered
from habitus.agent.record import journal_turn
from habitus.agent.stream import Done, TurnEvent
from habitus.agent.tools.recall_skill import loadable
from habitus.agent.tools.registry import Registry, Tool
from habitus.agent.transcription import Transcriber
from habitus.agent.turn import Incoming, TurnRecord, World, run_turn
from habitus.encodable import encodable
from habitus.errors import HabitusError, Invalid, NotFound, StorageFailed
from habitus.events import OutcomeKind, TurnEnded, TurnObserver
from habitus.journal.journal import Journal
from habitus.journal.model import Turn
from habitus.llm.model import Image, Model, Text
from habitus.redact import Redactor
from habitus.skills import fingerprint, menu
from habitus.skills.finding import Finder
from habitus.skills.library import Library
from habitus.skills.model import Skill, Stage, Summary
from habitus.skills.review import Review
from habitus.skills.selection import INTERACTIVE, Request, Selection, User

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 3.0  # with a database that somebody else keeps busy, while a person waits
MOST_UNWRITTEN = 100  # turns that wait for a database that is away
SHOWN_WHOLE = 14_000  # characters of a skill that no result cuts
CODE_TOOLS = 25  # with more than that, only those that fit a request are offered


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a session is made of; `app` puts it together."""

    model: Model
    library: Library
    finder: Finder
    review: Review
    journal: Journal
    memory: SessionMemory
    select: Callable[[Request], Selection]
    identity: Callable[[], str]
    built_in: Callable[[Session], Sequence[Tool]]
    code_tools: Callable[[], Sequence[Tool]]  # as they are now, the waiting ones of this conversation too
    observers: Sequence[TurnObserver]
    transcribe: Transcriber
    background: Background
    close: Callable[[], Coroutine[Any, Any, None]]
    clock: Callable[[], datetime]
    redactor: Redactor
    context_tokens: int
    user: User
    project: str = ""
    source_type: str = "repl"
    changelog: Callable[[], str] = lambda: ""


@dataclass(kw_only=True, slots=True)
class _Steady:
    """What stays the same while nobody changes anything."""

    identity: str
    standing: Remembered
    menu: menu.Menu
    hashes: Mapping[str, str] = field(default_factory=dict)


class Session:
    def __init__(self, parts: Parts, *, id: str | None = None, past: Sequence[Turn] = ()) -> None:
        self.id = id or new_id()
        self._parts = parts
        self._history = History(
            message for turn in past for kept in turn.messages if (message := unpack(kept)) is not None
        )
        self._previous: tuple[str, str] | None = (past[-1].id, past[-1].request) if past else None
        self._loaded: dict[str, Skill] = {}  # in this turn
        self._in_view: dict[str, Skill] = {}  # those whose text was put into this conversation
        self._eligible: set[str] | None = None
        self._selection: Selection  # the last one, for when the database is away
        self._steady = self._settle()
        self._built_in = tuple(parts.built_in(self))
        self._offered: list[Tool] = self._code_tools_at_start()
        self._began = parts.clock()
        self._running: asyncio.Task[Done] | None = None
        self._unwritten: list[Turn] = []  # turns that wait for the database
        self._trouble = ""  # why it could not be used in this turn
        self.last: TurnRecord | None = None

    # Turns

    async def turn(self, text: str, attach: Sequence[Path] = (), **more: Any) -> Done:
        """Say something and wait for the answer."""
        done: Done | None = None
        async with aclosing(self.turn_stream(text, attach, **more)) as stream:
            async for seen in stream:
                done = seen if isinstance(seen, Done) else done
        if done is None:
            raise asyncio.CancelledError
        return done

    async def turn_stream(
        self,
        text: str,
        attach: Sequence[Path] = (),
        *,
        caller_id: str = "",
        reply_to: str = "",
        invoked: Skill | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Say something and see the answer come. Whoever stops listening cancels the turn.

        `invoked` is a skill the person calls by its name; the model gets it as it is handed in.
        """
        if self._running is not None:
            raise Invalid("A turn of this session is running.", mend="Wait for it, or cancel it first.")
        seen: asyncio.Queue[TurnEvent | None] = asyncio.Queue()
        read = partial(self._incoming, text, attach, caller_id, reply_to, invoked)
        self._running = running = asyncio.create_task(self._run(read, seen.put_nowait))
        running.add_done_callback(self._ended)
        running.add_done_callback(lambda _: seen.put_nowait(None))
        try:
            while (happened := await seen.get()) is not None:
                yield happened
            if not running.cancelled():
                running.result()  # a bug is raised here, loudly
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])

    def _ended(self, turn: asyncio.Task[Done]) -> None:
        """Only now may the next one begin: it would find the history half written."""
        self._running = None

    def cancel(self) -> None:
        """Stop the turn that runs; the session goes on."""
        if self._running is not None:
            self._running.cancel()

    def judge(self, kind: OutcomeKind, *, turn: str = "", source: str = "user", reason: str = "") -> str:
        """Somebody says how a turn went, the last one unless told; returns its id."""
        found = turn or (self._previous[0] if self._previous else "")
        if not found:
            raise NotFound("There is no turn to judge yet.", mend="Ask something first.")
        self._parts.journal.judge(found, outcome.explicit(kind, source, reason))
        if kind is OutcomeKind.OK:
            judged = self._parts.journal.turn(found)
            self._learn_from_use(
                judged.request, [entry.name for entry in judged.selected if entry.place.value == "loaded"], weight=1.0
            )
            self._parts.memory.helped(judged.request)
        return found

    async def settle(self) -> None:
        """Wait until everything that learns from the turns so far has done so."""
        await self._parts.background.settle()

    async def close(self) -> None:
        """End it: the turn that runs is cancelled, what still learns is waited for, but neither for ever."""
        if (running := self._running) is not None:
            running.cancel()
            await asyncio.wait([running], timeout=CLOSING_S)
        await self._parts.background.close()
        self._safely(self._write_down, "write the last turns down")
        await self._parts.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # What tools and surfaces ask

    @property
    def conversation(self) -> str:
        return self.id

    @property
    def model(self) -> str:
        return self._parts.model.name

    @property
    def history(self) -> History:
        return self._history

    def may_load(self) -> set[str]:
        """The skills the model may have in this turn."""
        return loadable(self._parts.library.listing()) if self._eligible is None else self._eligible

    def in_view(self) -> set[str]:
        """The skills whose text, as it is now, stands in the conversation already."""
        versions = {item.name: item.summary.version for item in self._parts.library.listing() if item.summary}
        return {
            name
            for name, skill in self._in_view.items()
            if versions.get(name, skill.version) == skill.version and (name in self._loaded or self._is_there(skill))
        }

    def _is_there(self, skill: Skill) -> bool:
        """Its turn may have left the conversation since, or was cancelled before the text came in."""
        return self._history.contains(self._parts.redactor.redact(skill.body).text.strip()[:SHOWN_WHOLE])

    def waiting_skills(self) -> dict[str, Skill]:
        return self._parts.review.in_conversation(self.conversation)

    def note_loaded(self, skill: Skill) -> None:
        self._loaded[skill.name] = skill
        self._in_view[skill.name] = skill
        if skill.version:
            self._safely(lambda: self._parts.library.count_recommended(skill.name), "count a skill that was loaded")

    def sections(self) -> tuple[Section, ...]:
        """The last prompt, section by section."""
        if self.last is None or self.last.composed is None:
            return self._system(None)
        return (*self.last.composed.prompt.system, *self.last.composed.prompt.context)

    # The steps of a turn that need the session

    async def _incoming(
        self, text: str, attach: Sequence[Path], caller_id: str, reply_to: str, invoked: Skill | None
    ) -> Incoming:
        attached = await attachments.read(
            attach,
            sees_images=self._parts.model.sees_images,
            transcribe=self._parts.transcribe,
            budget=int(self._parts.context_tokens * budget.ATTACHED_SHARE),
        )
        said = encodable("\n\n".join(part for part in (text, *attached.heard) if part.strip()))
        if not said.strip() and not attached.parts:
            raise Invalid("There is nothing to say.", mend="Write a request, or attach a file.")
        request = Request(
            text=said,
            source_type=self._parts.source_type,
            user=self._parts.user,
            attachments=tuple(map(encodable, attached.names)),
            conversation=self.conversation,
            reply_to=reply_to,
            now=self._parts.clock(),
        )
        return Incoming(
            request=request,
            parts=tuple(_sound(part) for part in (*([prompt.invoked(invoked)] if invoked else []), *attached.parts)),
            notices=attached.notices,
            caller_id=encodable(caller_id),
            invoked=invoked,
        )

    async def _run(self, read: Callable[[], Awaitable[Incoming]], emit: Callable[[TurnEvent], None]) -> Done:
        incoming = await read()
        self._loaded = {}
        self._trouble = ""
        self._judge_previous(incoming.request.text)
        self._unless_away(self._refresh_if_changed, None)
        self._began = self._parts.clock()
        if incoming.invoked is not None:
            self.note_loaded(incoming.invoked)
        world = World(
            model=self._parts.model,
            context_tokens=self._parts.model.context_tokens or self._parts.context_tokens,
            recall=lambda request: self._unless_away(lambda: self._parts.memory.recall(request.text), Remembered()),
            select=self._select,
            compose=self._compose,
            tools=self._tools,
            finish=self._finish,
            observers=self._parts.observers,
            redactor=self._parts.redactor,
            waiting=lambda: self._unless_away(self._parts.review.waiting_count, 0),
        )
        return await run_turn(new_id(), incoming, self._history, world, emit)

    def _select(self, request: Request) -> Selection:
        self._selection = self._unless_away(lambda: self._parts.select(request), self._selection)
        self._eligible = self._selection.eligible()
        return self._selection

    def _compose(self, request: Request, selection: Selection, remembered: Remembered) -> Composed:
        parts = self._parts
        if selection.drops_memory:
            remembered = Remembered()
        chosen = [(skill, choice.reason) for choice in selection.eager if (skill := self._load(choice.name))]
        eager, shown = prompt.eager(chosen, int(parts.context_tokens * budget.EAGER_SHARE))
        skills = tuple(skill for skill, _ in chosen if skill.name in shown)
        for skill in skills:
            self._in_view[skill.name] = skill
        known = {note.id for note in self._steady.standing.rules}
        rules = tuple(note for note in remembered.rules if note.id not in known)
        nothing = fingerprint.News()
        news = self._unless_away(self._news, nothing) if request.source_type in INTERACTIVE else nothing
        context = (
            eager,
            prompt.bullets("rules", "Rules for this request", [note.line for note in rules]),
            prompt.bullets("lessons", "Lessons from earlier work", [note.line for note in remembered.lessons]),
            prompt.fitting(self._unless_away(lambda: self._fitting(request, selection, shown), [])),
            prompt.whats_new(news),
        )
        standing = () if selection.drops_memory else self._steady.standing.rules
        return Composed(
            prompt=Prompt(system=self._system(selection), context=tuple(part for part in context if part.text)),
            skills=skills,
            notes=remembered.lessons,
            rules=(*standing, *rules),
            cut=() if selection.drops_memory else self._cut(remembered, rules),
            menu=self._steady.menu,
            news=news,
        )

    def _load(self, name: str) -> Skill | None:
        try:
            return self._unless_away(lambda: self._parts.library.load(name), None)
        except HabitusError:
            return None  # somebody removed it a moment ago

    def _cut(self, remembered: Remembered, rules: Sequence[Note]) -> tuple[str, ...]:
        """The rules that found room neither in the system prompt nor beside the request."""
        shown = {note.id for note in (*self._steady.standing.rules, *rules)}
        return tuple(id for id in remembered.cut if id not in shown)

    def _system(self, selection: Selection | None) -> tuple[Section, ...]:
        steady = self._steady
        drops_memory = selection is not None and selection.drops_memory
        standing = Remembered() if drops_memory else steady.standing
        rules = prompt.bullets("rules", "Rules", [note.line for note in standing.rules], cut=standing.cut)
        return prompt.system(
            identity="" if selection is not None and selection.drops_persona else steady.identity,
            profile=[note.text for note in standing.profile],
            rules=rules,
            menu=steady.menu,
        )

    def _fitting(self, request: Request, selection: Selection, shown: Sequence[str]) -> list[Summary]:
        """What search finds on the menu, while something really fits."""
        on_menu = {summary.name: summary for summary in selection.menu}
        if not on_menu:
            return []
        results = self._parts.finder.search(request.text, k=budget.FITTING, among=set(on_menu))
        if not results.fits:
            return []
        near = [hit.id for hit in results.hits if hit.score >= results.hits[0].score * budget.NEARLY_AS_FITTING]
        return [on_menu[name] for name in near if name not in shown]

    def _news(self) -> fingerprint.News:
        parts = self._parts
        return fingerprint.news(parts.journal.seen(parts.user.name), parts.library.tree_hashes(), parts.changelog())

    def _tools(self, request: Request) -> Registry:
        """Built-in ones, then code; the list only grows within a session while the code tools are few."""
        known: Sequence[Tool] = self._offered
        now = {tool.name: tool for tool in self._unless_away(self._parts.code_tools, known)}
        kept = [now[tool.name] for tool in self._offered if tool.name in now]
        added = [tool for name, tool in now.items() if name not in {tool.name for tool in kept}]
        self._offered = [*kept, *added]
        offered = self._offered
        if len(offered) > CODE_TOOLS:
            offered = self._most_fitting(request, offered)
        return Registry([*self._built_in, *offered])

    def _most_fitting(self, request: Request, offered: Sequence[Tool]) -> list[Tool]:
        by_skill = {tool.name.replace("_", "-"): tool for tool in offered}
        search = partial(self._parts.finder.search, request.text, k=CODE_TOOLS, among=set(by_skill))
        results = self._unless_away(search, None)
        ranked = [by_skill[hit.id] for hit in results.hits] if results else []
        rest = [tool for tool in offered if tool not in ranked]
        return sorted((ranked + rest)[:CODE_TOOLS], key=lambda tool: tool.name)

    def _code_tools_at_start(self) -> list[Tool]:
        return sorted(self._parts.code_tools(), key=lambda tool: tool.name)

    # Before and after a turn

    def _judge_previous(self, request: str) -> None:
        if self._previous is None:
            return
        id, before = self._previous
        judged = outcome.by_next_request(before, request)
        if judged is not None:
            self._safely(lambda: self._parts.journal.judge(id, judged), "judge the turn before")

    def _finish(self, turn: TurnRecord) -> list[str]:
        """Write the turn down, count what was used, and let the observers learn in the background; what to tell."""
        self.last = turn
        self._previous = (turn.id, turn.incoming.request.text)
        self._unwritten = [*self._unwritten, self._kept(turn)][-MOST_UNWRITTEN:]
        self._safely(self._write_down, "write the turn down")
        if not turn.is_cancelled:
            if not self._trouble:
                self._safely(lambda: self._count(turn), "count what was used")
            self._teach(turn)
        return [f"{self._trouble} {self._consequence()}"] if self._trouble else []

    def _consequence(self) -> str:
        if not self._unwritten:
            return "This turn made do with what was known before."
        return "This turn made do with what was known before; it is written down when the database is back."

    def _kept(self, turn: TurnRecord) -> Turn:
        return journal_turn(
            turn,
            session=self.id,
            started_on=self._began,
            ended_on=self._parts.clock(),
            loaded=tuple(self._loaded.values()),
            tools=[(tool.name, tool.version) for tool in self._offered],
        )

    def _write_down(self) -> None:
        """This turn, and those before it that the database did not take."""
        while self._unwritten:
            first = self._unwritten.pop(0)
            try:
                self._parts.journal.record(first)
            except _away():
                self._unwritten.insert(0, first)
                raise

    def _teach(self, turn: TurnRecord) -> None:
        ended = TurnEnded(
            turn=turn.id,
            request=self._parts.redactor.redact(turn.incoming.request.text).text,
            outcome=turn.outcome,
            user=self._parts.user.name,
            project=self._parts.project,
            rules=tuple(note.text for note in turn.composed.rules) if turn.composed else (),
            lessons=tuple(note.id for note in turn.composed.notes) if turn.composed else (),
        )
        for observer in self._parts.observers:
            try:
                self._parts.background.spawn(observer.learn(ended))
            except Exception:
                log.warning("An observer could not begin to learn; nothing else is affected.", exc_info=True)

    def _count(self, turn: TurnRecord) -> None:
        parts = self._parts
        went = {OutcomeKind.OK: True, OutcomeKind.FAILED: False}.get(turn.outcome.kind)
        used = {
            skill.name: skill for skill in (*self._loaded.values(), *(turn.composed.skills if turn.composed else ()))
        }
        for skill in used.values():
            if skill.version:
                with suppress(NotFound):  # the turn may have removed it
                    parts.library.count_use(skill.name, stage=Stage.STEPS, succeeded=went)
        if turn.composed is not None:
            shown = [*turn.composed.rules, *turn.composed.notes]
            parts.memory.shown([note.id for note in shown], cut=turn.composed.cut)
        if turn.outcome.is_ok:
            self._learn_from_use(turn.incoming.request.text, list(self._loaded), weight=0.5)
            parts.memory.helped(turn.incoming.request.text)
            if turn.incoming.request.source_type in INTERACTIVE:
                parts.journal.mark_seen(parts.user.name, parts.library.tree_hashes())

    def _learn_from_use(self, request: str, loaded: Sequence[str], *, weight: float) -> None:
        said = self._parts.redactor.redact(request).text
        for name in loaded:
            self._parts.finder.learn(name, said, weight=weight)

    def _safely(self, what: Callable[[], object], saying: str) -> None:
        """The person has the answer; what fails now is logged and takes nothing away."""
        try:
            with sql.patience(PATIENCE_S):
                what()
        except _away() as error:
            self._trouble = self._trouble or str(error)
            log.warning("Could not %s: %s", saying, error)
        except Exception:
            log.warning("Could not %s.", saying, exc_info=True)

    def _unless_away(self, look: Callable[[], T], otherwise: T) -> T:
        """What the database says; while it can't be used, what is known without it."""
        try:
            with sql.patience(PATIENCE_S):
                return look()
        except _away() as error:
            self._trouble = self._trouble or str(error)
            log.warning("The database is away: %s", error)
            return otherwise

    # What stays the same

    def _settle(self) -> _Steady:
        parts = self._parts
        neutral = Request(text="", source_type=parts.source_type, user=parts.user, now=parts.clock())
        self._selection = selection = parts.select(neutral)
        summaries = sorted((*selection.menu, *(choice.summary for choice in selection.eager)), key=lambda s: s.name)
        used = {
            name: sum(c.used + c.recommended for c in stages.values())
            for (_, name), stages in parts.library.all_counters().items()
        }
        return _Steady(
            identity=parts.identity(),
            standing=parts.memory.standing(),
            menu=menu.compose(summaries, menu.budget_for(parts.context_tokens), utility=used),
            hashes=parts.library.tree_hashes(),
        )

    def _refresh_if_changed(self) -> None:
        """A person's change is told to the model at once; the agent's own must not unsettle its prompt."""
        hashes = self._parts.library.tree_hashes()
        if hashes == self._steady.hashes and self._parts.identity() == self._steady.identity:
            return
        changed = [
            name for name in {*hashes, *self._steady.hashes} if hashes.get(name) != self._steady.hashes.get(name)
        ]
        if all(self._is_own_change(name) for name in changed) and changed:
            self._steady = replace(self._steady, hashes=hashes)
        else:
            self._steady = self._settle()

    def _is_own_change(self, name: str) -> bool:
        try:
            return self._parts.library.history(name)[-1].author.is_automatic
        except (HabitusError, IndexError):
            return False  # it is gone


def _sound(part: Text | Image) -> Text | Image:
    return Text(text=prompt.unmarked(encodable(part.text))) if isinstance(part, Text) else part


def new_id() -> str:
    return secrets.token_hex(6)


def _away() -> tuple[type[Exception], ...]:
    """What is raised while the disk or the database can't be used."""
    from sqlalchemy.exc import SQLAlchemyError

    return StorageFailed, OSError, SQLAlchemyError
