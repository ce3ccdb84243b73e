"""The daemon behind hooks: receives the hook events of an agent, answers at once, and journals its turns."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from habitus.agent.background import BackgroundTasks, run_in_thread
from habitus.agent.choosing.exposures import ExposureAssigner
from habitus.agent.choosing.skill_selection import (
    choose_skills,
    find_library_news_for_user,
    find_relevant_skills_on_menu,
)
from habitus.agent.hosted_turn import AsyncHostTurn
from habitus.agent.prompts import prompt
from habitus.agent.user_input import SubmittedRequest
from habitus.agent.user_memory import UserProjectMemory
from habitus.app.conversations.hosting import HostDrivenConversations, HostTurnRequest, KeyedResourcePool
from habitus.app.conversations.sessions import open_random_assignment_of_conversation
from habitus.app.home import Home
from habitus.app.home_directory import DATABASE
from habitus.app.learning import noted_sessions
from habitus.app.learning.learning import find_known_remedy_for_failure
from habitus.app.library.layers import build_skill_gate_context
from habitus.app.review.reminding import count_pending_items
from habitus.app.wiring import open_home
from habitus.memory.recall import RecalledLesson
from habitus.resident_process import HOOK_SERVER, serve_until_idle
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.layers.layer import find_project_root
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import SkillSummary
from habitus.sql.outage import OutageGuard
from habitus.text import estimate_tokens

log = logging.getLogger(__name__)

IDLE_S = 4 * 3600.0
# Each open project holds a home with its index in memory.
_MOST_PLACES, _MOST_SESSIONS = 8, 100
# Seconds that a failed call waits for lessons of the last sessions.
_LEARNING_WAIT_S = 2.0
# Seconds that a hook waits before it asks whether the database is locked.
_LOCK_PATIENCE_S = 0.3
# Characters; Claude Code cuts at 10,000.
_MAX_CONTEXT_CHARS = 9_000


async def run_hook_daemon(settings: Settings, *, idle_s: float = IDLE_S, stop: asyncio.Event | None = None) -> None:
    """Run the hook daemon of this home until it is stopped or idle."""
    attendant, stop = HookDaemon(settings), stop or asyncio.Event()
    await serve_until_idle(
        settings.home, HOOK_SERVER, attendant.answer_hook, idle_s=idle_s, stop=stop, close=attendant.close
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenProject:
    """An open project of the agent."""

    home: Home
    hosting: HostDrivenConversations
    prompter: HookContextComposer
    # The prompter is not thread-safe, so callers take turns.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def close(self) -> None:
        with closing(self.home), closing(self.hosting):
            pass


@dataclass(kw_only=True, slots=True)
class _HookSession:
    """A session of the agent with our open turn, if any."""

    place: _OpenProject
    conversation: str
    offers: ExposureAssigner
    turn: AsyncHostTurn | None = None

    async def close(self) -> None:
        """End the session and its turn."""
        # Leaving the conversation also ends its turn.
        await self.place.hosting.end_conversation(self.conversation)


class HookDaemon:
    """Answers hook events and keeps the projects and sessions of the agent open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places: KeyedResourcePool[Path, _OpenProject] = KeyedResourcePool(
            self._close_project, max_open=_MOST_PLACES
        )
        self._sessions: KeyedResourcePool[str, _HookSession] = KeyedResourcePool(
            _HookSession.close, max_open=_MOST_SESSIONS
        )
        self._background = BackgroundTasks()
        self._has_learned = asyncio.Event()
        self._has_learned.set()

    async def answer_hook(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read an event's name and JSON from the hook, and write the JSON that the agent expects."""
        event = (await reader.readline()).decode().strip()
        told = json.loads(await reader.read())
        try:
            said = await self._handle_event_unless_database_locked(event, told)
        # A failing hook must never hold up the agent.
        except Exception:
            log.warning("The hook %s could not be answered.", event, exc_info=True)
            return
        if said:
            context = {"hookEventName": event, "additionalContext": said[:_MAX_CONTEXT_CHARS]}
            writer.write(json.dumps({"hookSpecificOutput": context}).encode())
            await writer.drain()

    async def _handle_event_unless_database_locked(self, event: str, payload: Mapping[str, Any]) -> str:
        """Handle an event; while the database is locked, return nothing instead of letting the user wait for it."""
        handling = asyncio.create_task(self._handle_event(event, payload))
        await asyncio.wait([handling], timeout=_LOCK_PATIENCE_S)
        # Asked on the loop, because all threads may be waiting for the same lock.
        if handling.done() or not _is_database_locked(self._settings.home / DATABASE):
            return await handling

        async def finish() -> None:
            await handling

        self._background.spawn(finish())
        return ""

    async def close(self) -> None:
        """Finish background work and close all projects."""
        await self._background.close()
        await self._places.close()

    async def _handle_event(self, event: str, payload: Mapping[str, Any]) -> str:
        match event:
            case "SessionStart":
                return await self._answer_session_start_with_context(payload)
            case "UserPromptSubmit":
                return await self._answer_prompt_with_context(payload)
            case "PostToolUseFailure":
                return await self._answer_tool_failure_with_advice(payload)
            case "Stop":
                self._background.spawn(self._end_turn_on_stop(payload))
            case "SessionEnd":
                self._background.spawn(self._sessions.close_resource_of_key(_sanitize_session_id(payload)))
        return ""

    async def _answer_session_start_with_context(self, payload: Mapping[str, Any]) -> str:
        async with self._hold_session(payload) as session:
            if self._has_learned.is_set():
                self._has_learned.clear()
                self._background.spawn(self._learn_from_ended_sessions())
            place, is_new = session.place, payload.get("source", "startup") == "startup"
            async with place.lock:
                said = await run_in_thread(
                    lambda: place.prompter.compose_session_start_context(session.offers, is_new=is_new)
                )
        self._background.spawn(self._open_search_index_early(place))
        return said

    async def _answer_prompt_with_context(self, payload: Mapping[str, Any]) -> str:
        text = str(payload.get("prompt", ""))
        async with self._hold_session(payload) as session, session.place.lock:
            composed = await run_in_thread(lambda: session.place.prompter.compose_request_context(text, session.offers))
        # In the background, so the user does not wait for the journal.
        self._background.spawn(self._begin_turn(payload, text, composed))
        return session.place.home.redact(composed.prompt.context_text)

    async def _answer_tool_failure_with_advice(self, payload: Mapping[str, Any]) -> str:
        """Return the known remedy, or else the nudge of a detector; empty if there is neither."""
        if payload.get("is_interrupt"):
            # The user stopped it, so nothing failed.
            return ""
        tool, given, error = str(payload.get("tool_name", "")), payload.get("tool_input"), str(payload.get("error", ""))
        arguments = given if isinstance(given, dict) else {}
        try:
            await asyncio.wait_for(self._has_learned.wait(), _LEARNING_WAIT_S)
        except TimeoutError:
            log.info("What the last sessions teach is not known yet.")
        async with self._hold_session(payload) as session:
            async with session.place.lock:
                remedy = await run_in_thread(
                    lambda: session.place.prompter.compose_known_remedy_context(tool, arguments, error)
                )
            nudge = "" if session.turn is None else await session.turn.observe(tool, arguments, error, ok=False)
        return remedy or nudge

    async def _end_turn_on_stop(self, payload: Mapping[str, Any]) -> None:
        async with self._hold_session(payload) as session:
            if session.turn is not None:
                turn, session.turn = session.turn, None
                await turn.close()

    async def _begin_turn(self, payload: Mapping[str, Any], text: str, composed: prompt.ComposedPrompt) -> None:
        async with self._hold_session(payload) as session:
            request = HostTurnRequest(
                user_input=SubmittedRequest(text=text),
                user=session.place.home.get_user(),
                conversation=session.conversation,
                source_type=SOURCE_TYPE,
                shows_prompt=False,
                already_shown=composed,
                offers=session.offers,
                learns=False,
            )
            # Entering a turn ends the one before.
            session.turn = await session.place.hosting.open_turn(request).__aenter__()
        await self._sessions.shrink_to_limit()

    def _hold_session(self, payload: Mapping[str, Any]) -> AbstractAsyncContextManager[_HookSession]:
        id, cwd = _sanitize_session_id(payload), Path(str(payload.get("cwd") or self._settings.user_home))

        async def opening() -> _HookSession:
            place, conversation = await self._get_or_open_project(cwd), f"{SOURCE_TYPE}-{id}"
            offers = await run_in_thread(lambda: place.prompter.open_exposure_assigner(conversation))
            return _HookSession(place=place, conversation=conversation, offers=offers)

        return self._sessions.hold(id, opening)

    async def _get_or_open_project(self, cwd: Path) -> _OpenProject:
        """Return the project of a working directory, opened once."""
        async with self._places.hold(
            find_project_root(cwd), lambda: run_in_thread(lambda: self._open_project(cwd))
        ) as place:
            pass
        await self._places.shrink_to_limit()
        return place

    def _open_project(self, cwd: Path) -> _OpenProject:
        home = self._open_home_at(cwd if cwd.is_dir() else self._settings.user_home)
        return _OpenProject(home=home, hosting=HostDrivenConversations(home), prompter=HookContextComposer(home))

    def _open_home_at(self, cwd: Path) -> Home:
        return open_home(self._settings.model_copy(update={"cwd": cwd}))

    async def _close_project(self, place: _OpenProject) -> None:
        for id in [id for id, session in self._sessions.map_keys_to_open_resources().items() if session.place is place]:
            await self._sessions.close_resource_of_key(id)
        await run_in_thread(place.close)

    async def _open_search_index_early(self, place: _OpenProject) -> None:
        """Open the search index before the first request waits for it."""
        async with place.lock:
            await run_in_thread(lambda: place.prompter.compose_request_context("warm up", ExposureAssigner()))

    async def _learn_from_ended_sessions(self) -> None:
        live = set(self._sessions.map_keys_to_open_resources())
        try:
            read = await run_in_thread(
                lambda: noted_sessions.learn_from_ended_noted_sessions(self._settings, self._open_home_at, live=live)
            )
            log.info("Learned from %d transcripts.", read)
        finally:
            self._has_learned.set()


def _is_database_locked(database: Path) -> bool:
    """Return whether another connection holds the write lock of an SQLite database."""
    try:
        with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    return False


def _sanitize_session_id(payload: Mapping[str, Any]) -> str:
    """Return the session's id with only characters that a conversation's id may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", str(payload.get("session_id") or "unknown"))[:60]


# The source of these turns in the journal.
SOURCE_TYPE = "claude-code"
REQUEST_TOKENS = 300
# Characters of a request that are searched for.
_MAX_QUERY_CHARS = 4_000


class HookContextComposer:
    """Composes the context that hooks add in one project; all methods read the database."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._user = home.get_user()
        # A memory of its own, because turns use theirs in another thread.
        cortex = home.open_memory()
        self._memory = UserProjectMemory(cortex=cortex, user=self._user.name, project=home.project)

    def open_exposure_assigner(self, conversation: str) -> ExposureAssigner:
        """Return the record of a session's offers, which also decides at random what is withheld."""
        return ExposureAssigner(
            open_random_assignment_of_conversation(self._home.settings, self._home.journal, conversation, OutageGuard())
        )

    def compose_session_start_context(self, offers: ExposureAssigner, *, is_new: bool = True) -> str:
        """Return the rules and, in a new session, also new skills and the number of pending changes."""
        rules = [
            note
            for note in self._memory.recall_profile_and_rules().rules
            if offers.assign_whether_to_show_lesson(note, is_steady=True)
        ]
        parts = [prompt.build_bullet_section("rules", "Rules", [note.prompt_line for note in rules]).text]
        if is_new:
            parts += [self._announce_new_skills_once(), self._describe_pending_change_count()]
        return self._home.redact("\n\n".join(part for part in parts if part))

    def compose_request_context(self, text: str, offers: ExposureAssigner) -> prompt.ComposedPrompt:
        """Return the matching lessons and names of skills within their token budget; empty for most requests."""
        text = self._home.redact(text[:_MAX_QUERY_CHARS])
        request = UserRequest(text=text, source_type=SOURCE_TYPE, user=self._user, now=self._home.clock())
        snapshot = self._home.skills.snapshot(check_disk=False, user=self._user.name)
        chosen = choose_skills(snapshot, request, self._build_gate_context(), self._home.journal)
        ruled = [choice.summary for choice in chosen.eager]
        on_menu = {one.name: one for one in chosen.menu}
        search = partial(self._home.finder.search, text, at=snapshot)
        found = [on_menu[hit.id] for hit in find_relevant_skills_on_menu(search, on_menu)]
        lessons = (
            ()
            if chosen.excludes_lessons or chosen.excludes_rules_and_profile
            else self._memory.recall_lessons(text).lessons
        )
        return _compose_context_within_budget(REQUEST_TOKENS, lessons, [*ruled, *found], offers)

    def compose_known_remedy_context(self, tool: str, arguments: object, error: str) -> str:
        """Return the known remedy against this error; empty if it is unknown."""
        remedy = find_known_remedy_for_failure(self._home, tool, arguments, error)
        return self._home.redact(prompt.build_bullet_section("lessons", "Seen before", [remedy]).text) if remedy else ""

    def _announce_new_skills_once(self) -> str:
        home, gates = self._home, self._build_gate_context()
        snapshot = home.skills.snapshot(user=self._user.name)
        news = find_library_news_for_user(home.journal, self._user.name, snapshot, gates, home.skills.layers)
        if news and not home.is_read_only:
            home.journal.store_hashes_of_seen_skills(self._user.name, menu.list_visible_skill_hashes(snapshot, gates))
        return prompt.build_library_news_section(news).text

    def _describe_pending_change_count(self) -> str:
        count = count_pending_items(self._home)
        waits = "One change is" if count == 1 else f"{count} changes are"
        return f"{waits} pending review; the user can list them with `habitus review list`." if count else ""

    def _build_gate_context(self) -> GateContext:
        return replace(build_skill_gate_context(self._home.settings, self._user), tools=names.BUILT_IN_TOOLS)


def _compose_context_within_budget(
    budget: int, lessons: Sequence[RecalledLesson], skills: Sequence[SkillSummary], offers: ExposureAssigner
) -> prompt.ComposedPrompt:
    """Compose as many lessons and skills as fit, then leave out those withheld at random."""
    while estimate_tokens(_compose_lessons_and_skills_context(lessons, skills).prompt.context_text) > budget:
        if len(lessons) > 1 or not skills:
            lessons = lessons[:-1]
        else:
            skills = skills[:-1]
    # Withheld only after the cut, so a withheld lesson leaves its room empty instead of letting another one in.
    told = [note for note in lessons if offers.assign_whether_to_show_lesson(note)]
    return _compose_lessons_and_skills_context(
        told, [summary for summary in skills if offers.assign_whether_to_show_skill_line(summary)]
    )


def _compose_lessons_and_skills_context(
    lessons: Sequence[RecalledLesson], skills: Sequence[SkillSummary]
) -> prompt.ComposedPrompt:
    heading = "Lessons from earlier work"
    sections = (
        prompt.build_bullet_section("lessons", heading, [note.prompt_line for note in lessons]),
        prompt.build_relevant_skills_section(skills),
    )
    said = prompt.Prompt(system=(), context=tuple(section for section in sections if section.text))
    return prompt.ComposedPrompt(prompt=said, notes=tuple(lessons))
