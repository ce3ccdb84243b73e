"""The daemon behind hooks: receives the hook events of an agent, answers at once, and journals its turns."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from habitus.agent.background import Background, in_thread
from habitus.agent.choosing import Offers, SessionMemory, choose, near, unseen
from habitus.agent.hosted_turn import AsyncHostTurn
from habitus.agent.prompts import prompt
from habitus.agent.prompts.prompt import Composed, Prompt
from habitus.agent.user_input import Asking
from habitus.app.conversations.hosting import Hosting, HostRequest, Keeper
from habitus.app.conversations.sessions import lots
from habitus.app.home import Home
from habitus.app.learning import noted_sessions
from habitus.app.learning.learning import remedy_for
from habitus.app.wiring import open_home
from habitus.memory.recall import Recalled
from habitus.resident_process import HOOK_SERVER, listen
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import Request
from habitus.skills.layers.layer import project_root
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Summary
from habitus.sql.outage import Outage
from habitus.text import tokens

log = logging.getLogger(__name__)

IDLE_S = 4 * 3600.0
# Each open project holds a home with its index in memory.
_MOST_PLACES, _MOST_SESSIONS = 8, 100
# Seconds that a failed call waits for lessons of the last sessions.
_LEARNING_S = 2.0
# Characters; Claude Code cuts at 10,000.
_MOST_SAID = 9_000


async def attend(settings: Settings, *, idle_s: float = IDLE_S, stop: asyncio.Event | None = None) -> None:
    """Run the hook daemon of this home until it is stopped or idle."""
    attendant, stop = Attendant(settings), stop or asyncio.Event()
    await listen(settings.home, HOOK_SERVER, attendant.answer, idle_s=idle_s, stop=stop, close=attendant.close)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """An open project of the agent."""

    home: Home
    hosting: Hosting
    prompter: Prompter
    # The prompter is not thread-safe, so callers take turns.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        with closing(self.home), closing(self.hosting):
            pass


@dataclass(kw_only=True, slots=True)
class _Session:
    """A session of the agent with our open turn, if any."""

    place: _Place
    conversation: str
    offers: Offers
    turn: AsyncHostTurn | None = None

    async def leave(self) -> None:
        """End the session and its turn."""
        # Leaving the conversation also ends its turn.
        await self.place.hosting.leave(self.conversation)


class Attendant:
    """Answers hook events and keeps the projects and sessions of the agent open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places: Keeper[Path, _Place] = Keeper(self._close_place, most=_MOST_PLACES)
        self._sessions: Keeper[str, _Session] = Keeper(_Session.leave, most=_MOST_SESSIONS)
        self._background = Background()
        self._has_learned = asyncio.Event()
        self._has_learned.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read an event's name and JSON from the hook, and write the JSON that the agent expects."""
        event = (await reader.readline()).decode().strip()
        told = json.loads(await reader.read())
        try:
            said = await self._handle(event, told)
        # A failing hook must never hold up the agent.
        except Exception:
            log.warning("The hook %s could not be answered.", event, exc_info=True)
            return
        if said:
            context = {"hookEventName": event, "additionalContext": said[:_MOST_SAID]}
            writer.write(json.dumps({"hookSpecificOutput": context}).encode())
            await writer.drain()

    async def close(self) -> None:
        """Finish background work and close all projects."""
        await self._background.close()
        await self._places.close()

    async def _handle(self, event: str, told: Mapping[str, Any]) -> str:
        match event:
            case "SessionStart":
                return await self._session_started(told)
            case "UserPromptSubmit":
                return await self._prompt_submitted(told)
            case "PostToolUseFailure":
                return await self._tool_failed(told)
            case "Stop":
                self._background.spawn(self._turn_stopped(told))
            case "SessionEnd":
                self._background.spawn(self._sessions.end(_id(told)))
        return ""

    async def _session_started(self, told: Mapping[str, Any]) -> str:
        async with self._session(told) as session:
            if self._has_learned.is_set():
                self._has_learned.clear()
                self._background.spawn(self._learn())
            place, is_new = session.place, told.get("source", "startup") == "startup"
            async with place.lock:
                said = await in_thread(lambda: place.prompter.at_start(session.offers, is_new=is_new))
        self._background.spawn(self._warm_up(place))
        return said

    async def _prompt_submitted(self, told: Mapping[str, Any]) -> str:
        text = str(told.get("prompt", ""))
        async with self._session(told) as session, session.place.lock:
            composed = await in_thread(lambda: session.place.prompter.beside_request(text, session.offers))
        # In the background, so the user does not wait for the journal.
        self._background.spawn(self._begin(told, text, composed))
        return session.place.home.redact(composed.prompt.context_text)

    async def _tool_failed(self, told: Mapping[str, Any]) -> str:
        """Return the known remedy, or else the nudge of a detector; empty if there is neither."""
        if told.get("is_interrupt"):
            # The user stopped it, so nothing failed.
            return ""
        tool, given, error = str(told.get("tool_name", "")), told.get("tool_input"), str(told.get("error", ""))
        arguments = given if isinstance(given, dict) else {}
        try:
            await asyncio.wait_for(self._has_learned.wait(), _LEARNING_S)
        except TimeoutError:
            log.info("What the last sessions teach is not known yet.")
        async with self._session(told) as session:
            async with session.place.lock:
                remedy = await in_thread(lambda: session.place.prompter.beside_failure(tool, arguments, error))
            nudge = "" if session.turn is None else await session.turn.observe(tool, arguments, error, ok=False)
        return remedy or nudge

    async def _turn_stopped(self, told: Mapping[str, Any]) -> None:
        async with self._session(told) as session:
            if session.turn is not None:
                turn, session.turn = session.turn, None
                await turn.close()

    async def _begin(self, told: Mapping[str, Any], text: str, composed: Composed) -> None:
        async with self._session(told) as session:
            request = HostRequest(
                asking=Asking(text=text),
                user=session.place.home.user(),
                conversation=session.conversation,
                source_type=SOURCE,
                shows_prompt=False,
                told=composed,
                offers=session.offers,
                learns=False,
            )
            # Entering a turn ends the one before.
            session.turn = await session.place.hosting.turn(request).__aenter__()
        await self._sessions.make_room()

    def _session(self, told: Mapping[str, Any]) -> AbstractAsyncContextManager[_Session]:
        id, cwd = _id(told), Path(str(told.get("cwd") or self._settings.user_home))

        async def opening() -> _Session:
            place, conversation = await self._at(cwd), f"{SOURCE}-{id}"
            offers = await in_thread(lambda: place.prompter.offers(conversation))
            return _Session(place=place, conversation=conversation, offers=offers)

        return self._sessions.hold(id, opening)

    async def _at(self, cwd: Path) -> _Place:
        """Return the project of a working directory, opened once."""
        async with self._places.hold(project_root(cwd), lambda: in_thread(lambda: self._open_place(cwd))) as place:
            pass
        await self._places.make_room()
        return place

    def _open_place(self, cwd: Path) -> _Place:
        home = self._open_at(cwd if cwd.is_dir() else self._settings.user_home)
        return _Place(home=home, hosting=Hosting(home), prompter=Prompter(home))

    def _open_at(self, cwd: Path) -> Home:
        return open_home(self._settings.model_copy(update={"cwd": cwd}))

    async def _close_place(self, place: _Place) -> None:
        for id in [id for id, session in self._sessions.open().items() if session.place is place]:
            await self._sessions.end(id)
        await in_thread(place.close)

    async def _warm_up(self, place: _Place) -> None:
        """Open the search index before the first request waits for it."""
        async with place.lock:
            await in_thread(lambda: place.prompter.beside_request("warm up", Offers()))

    async def _learn(self) -> None:
        live = set(self._sessions.open())
        try:
            read = await in_thread(lambda: noted_sessions.learn_from_noted(self._settings, self._open_at, live=live))
            log.info("Learned from %d transcripts.", read)
        finally:
            self._has_learned.set()


def _id(told: Mapping[str, Any]) -> str:
    """Return the session's id with only characters that a conversation's id may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", str(told.get("session_id") or "unknown"))[:60]


# The source of these turns in the journal.
SOURCE = "claude-code"
REQUEST_TOKENS = 300
# Characters of a request that are searched for.
_MOST_WORDS = 4_000


class Prompter:
    """Composes the context that hooks add in one project; all methods read the database."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._user = home.user()
        # A memory of its own, because turns use theirs in another thread.
        cortex = home.open_memory()
        self._memory = SessionMemory(cortex=cortex, user=self._user.name, project=home.project)

    def offers(self, conversation: str) -> Offers:
        """Return the record of a session's offers, which also decides at random what is withheld."""
        return Offers(lots(self._home.settings, self._home.journal, conversation, Outage()))

    def at_start(self, offers: Offers, *, is_new: bool = True) -> str:
        """Return the rules and, in a new session, also new skills and the number of pending changes."""
        rules = [note for note in self._memory.standing().rules if offers.takes_note(note, is_steady=True)]
        parts = [prompt.bullets("rules", "Rules", [note.line for note in rules]).text]
        if is_new:
            parts += [self._news(), self._waiting()]
        return self._home.redact("\n\n".join(part for part in parts if part))

    def beside_request(self, text: str, offers: Offers) -> Composed:
        """Return the matching lessons and names of skills within their token budget; empty for most requests."""
        text = self._home.redact(text[:_MOST_WORDS])
        request = Request(text=text, source_type=SOURCE, user=self._user, now=self._home.clock())
        snapshot = self._home.skills.snapshot(look=False, user=self._user.name)
        chosen = choose(snapshot, request, self._gates(), self._home.journal)
        ruled = [choice.summary for choice in chosen.eager]
        on_menu = {one.name: one for one in chosen.menu}
        search = partial(self._home.finder.search, text, at=snapshot)
        found = [on_menu[hit.id] for hit in near(search, on_menu)]
        lessons = () if chosen.drops_lessons or chosen.drops_memory else self._memory.recall(text).lessons
        return _within(REQUEST_TOKENS, lessons, [*ruled, *found], offers)

    def beside_failure(self, tool: str, arguments: object, error: str) -> str:
        """Return the known remedy against this error; empty if it is unknown."""
        remedy = remedy_for(self._home, tool, arguments, error)
        return self._home.redact(prompt.bullets("lessons", "Seen before", [remedy]).text) if remedy else ""

    def _news(self) -> str:
        home, gates = self._home, self._gates()
        snapshot = home.skills.snapshot(user=self._user.name)
        news = unseen(home.journal, self._user.name, snapshot, gates, home.skills.layers)
        if news and not home.is_read_only:
            home.journal.mark_seen(self._user.name, menu.visible(snapshot, gates))
        return prompt.whats_new(news).text

    def _waiting(self) -> str:
        count = self._home.waiting_count()
        waits = "One change waits" if count == 1 else f"{count} changes wait"
        return f"{waits} for the user's decision; they can look with `habitus review list`." if count else ""

    def _gates(self) -> GateContext:
        return replace(self._home.gates(self._user), tools=names.BUILT_IN_TOOLS)


def _within(room: int, lessons: Sequence[Recalled], skills: Sequence[Summary], offers: Offers) -> Composed:
    """Compose as many lessons and skills as fit, then leave out those withheld at random."""
    while tokens(_compose(lessons, skills).prompt.context_text) > room:
        if len(lessons) > 1 or not skills:
            lessons = lessons[:-1]
        else:
            skills = skills[:-1]
    # Withheld only after the cut, so a withheld lesson leaves its room empty instead of letting another one in.
    told = [note for note in lessons if offers.takes_note(note)]
    return _compose(told, [summary for summary in skills if offers.takes_line(summary)])


def _compose(lessons: Sequence[Recalled], skills: Sequence[Summary]) -> Composed:
    heading = "Lessons from earlier work"
    sections = (prompt.bullets("lessons", heading, [note.line for note in lessons]), prompt.fitting(skills))
    said = Prompt(system=(), context=tuple(section for section in sections if section.text))
    return Composed(prompt=said, notes=tuple(lessons))
