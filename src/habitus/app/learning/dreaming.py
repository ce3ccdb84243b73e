"""Self-play put together: challenges, our session as their solver, and memory for what it taught."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from habitus.agent.session import new_id
from habitus.app.conversations import models
from habitus.app.home import Home
from habitus.app.learning.improving import open_store
from habitus.app.learning.solving import solve
from habitus.app.tasks.validation import TaskValidation, validate_task
from habitus.improve.rollouts import make_rollout
from habitus.learning.budget import Budget, BudgetedModel, Limits
from habitus.learning.dreaming import (
    Dreamt,
    DreamVerdict,
    Solver,
    cycle,
    extract,
    propose,
    read,
    starters,
    verify_lesson,
)
from habitus.llm.model import NoUsableAnswer, ProviderFault
from habitus.memory.model import Draft, Evidence, Kind, Producer, Scope, Status
from habitus.settings import Settings
from habitus.tasks.files import write_task
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit

_PLAYED = "self-play: "  # what the source of a lesson says before the name of its challenge
OWN = "challenges"  # a folder of the home with challenges of one's own
_MOST_TRIED = 200  # candidates at a time


def challenges(settings: Settings, path: Path | None = None) -> tuple[Task, ...]:
    """Those of a file or folder; else those that come along, and the home's own, which win under one name."""
    if path is not None:
        return read(path)
    own = settings.home / OWN
    found = {each.id: each for each in (*starters(), *(read(own) if own.is_dir() else ()))}
    return tuple(found.values())


@asynccontextmanager
async def _open_player(home: Home, model: str, limits: Limits | None = None) -> AsyncIterator[BudgetedModel]:
    """The model of this name, or the settings', within the tokens of the day; refused while nothing may be learned."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    opened = models.models_named(home.settings, model) if model else home.models
    try:
        yield Budget(limits, day=home.spending).model(opened.main)
    finally:
        await opened.close()


async def dream(home: Home, challenge: Task, *, key: str, model: str = "", limits: Limits | None = None) -> Dreamt:
    """One cycle over one challenge, its lesson kept; under a key whose lesson is kept already, only that is told."""
    if home.memory.taught_by([key]):
        return Dreamt(challenge=challenge.id, verdict=DreamVerdict.NOTHING, reason="it was dreamt already")
    async with _open_player(home, model, limits) as player:
        dreamt = await dream_with(home, challenge, SessionSolver(home, player, run=key), player, key=key)
        return _with_spent(dreamt, player.budget)


def _with_spent(dreamt: Dreamt, budget: Budget) -> Dreamt:
    return replace(
        dreamt,
        tokens=budget.tokens,
        requests=budget.requests,
        dollars=budget.usage.cost or 0.0,
        is_spent=budget.is_reached,
    )


async def dream_with(home: Home, challenge: Task, solver: Solver, model: BudgetedModel, *, key: str) -> Dreamt:
    """The same with any solver; `model` draws the lesson."""
    if challenge not in starters():
        sound = await validate_task(home, challenge)
        if not sound.is_sound:
            return Dreamt(challenge=challenge.id, verdict=DreamVerdict.UNSOUND, reason=sound.reason)
    draw = partial(extract, model=model, redactor=home.redactor)
    try:
        dreamt = await cycle(challenge, solver, draw)
    except (NoUsableAnswer, ProviderFault, TimeoutError) as fault:
        return Dreamt(challenge=challenge.id, verdict=DreamVerdict.INFRA, reason=str(fault) or "it took too long")
    return await asyncio.to_thread(_keep_lesson, home, challenge, dreamt, key)


def _keep_lesson(home: Home, challenge: Task, dreamt: Dreamt, key: str) -> Dreamt:
    if dreamt.lesson is None or not dreamt.is_kept:
        return dreamt
    encoded = home.open_memory(user=home.settings.user).encode(
        Draft(
            text=dreamt.lesson.text,
            kind=Kind.LESSON,
            scope=Scope.USER,
            confidence=dreamt.confidence,
            topic=challenge.domain,
            source=f"{_PLAYED}{challenge.id}",
            evidence=Evidence(trace=key, user=home.settings.user),
            body=dreamt.lesson,
            user=home.settings.user,
            produced_by=Producer.DREAM,
            verified=dreamt.verdict is DreamVerdict.VERIFIED,
        )
    )
    if encoded.status in (Status.STORED, Status.REINFORCED, Status.WAITING):
        return dreamt
    return Dreamt(challenge=challenge.id, verdict=DreamVerdict.REJECTED, reason=f"memory: {encoded.reason}")


def candidates(home: Home) -> tuple[str, ...]:
    """The ids of the lessons that self-play has drawn and nothing has shown yet."""
    memory = home.open_memory(user=home.settings.user)
    drawn = [one for one in memory.list_lessons("self-play", limit=_MOST_TRIED) if one.source.startswith(_PLAYED)]
    return tuple(one.id for one in drawn if not one.verified and one.body is not None)


async def verify(home: Home, id: str, *, model: str = "") -> Dreamt:
    """Try a lesson once more on the challenge that it was drawn from; what was verified meanwhile stays so."""
    async with _open_player(home, model) as player:
        return _with_spent(await verify_with(home, id, SessionSolver(home, player)), player.budget)


async def verify_with(home: Home, id: str, solver: Solver) -> Dreamt:
    """The same with any solver."""
    lesson = await asyncio.to_thread(home.open_memory(user=home.settings.user).get, id)
    name = lesson.source.removeprefix(_PLAYED)
    found = {each.id: each for each in challenges(home.settings)}
    tried = Dreamt(challenge=name, verdict=DreamVerdict.NOTHING, reason="it is verified already")
    if lesson.verified or lesson.body is None:
        return tried
    if name not in found:
        return replace(tried, verdict=DreamVerdict.INFRA, reason="its challenge is not there any more")
    drawn = replace(tried, lesson=lesson.body, confidence=lesson.confidence, reason="")
    dreamt = await verify_lesson(found[name], solver, lesson.body, drawn)
    if dreamt.verdict is not DreamVerdict.VERIFIED:
        return dreamt
    return await asyncio.to_thread(_keep_lesson, home, found[name], dreamt, lesson.evidence.trace)


class SessionSolver:
    """Our own agent, in a session that nobody's memory learns from but by this.

    Rollouts of a run are stored: those that a killed process has made are not made again.
    """

    def __init__(self, home: Home, model: BudgetedModel, *, run: str = "") -> None:
        self._home = home
        self._model = model
        self._run = run or new_id()
        self._store = open_store(home)
        self._made = [one for one in self._store.rollouts(run=self._run) if one.counts]
        self._number = 0

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Rollout:
        self._number += 1
        if self._number <= len(self._made):
            return self._made[self._number - 1]
        side, is_new = TaskSplit.PRACTICE, bool(playbook)
        planned = Rollout(run=self._run, side=side, round=self._number, task=challenge.id, is_new=is_new)
        request = _request(challenge, playbook, feedback)
        attempt = partial(solve, self._home, model=self._model, source_type="dream", request=request)
        return await make_rollout(self._store, planned, attempt, challenge)


def _request(challenge: Task, playbook: str, feedback: str) -> str:
    parts = [
        playbook,
        challenge.request,
        f"An earlier attempt, of which nothing is left, was not accepted: {feedback}" if feedback else "",
    ]
    return "\n\n".join(part for part in parts if part)


async def invent(home: Home, *, model: str = "") -> tuple[Task, TaskValidation]:
    """A challenge that a model makes up about what failed here; one that tells right from wrong is kept in the home."""
    async with _open_player(home, model) as player:
        return await invent_with(home, player)


async def invent_with(home: Home, model: BudgetedModel) -> tuple[Task, TaskValidation]:
    """The same with any model."""
    failures = await asyncio.to_thread(_failures, home)
    made = await propose(failures, model=model, redactor=home.redactor)
    sound = await validate_task(home, made)
    if sound.is_sound:
        folder = home.settings.home / OWN
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{made.id}.toml").write_text(write_task(made), "utf-8")
    return made, sound


def _failures(home: Home) -> list[str]:
    """Recent failures, as memory has them."""
    memory = home.open_memory(user=home.settings.user)
    found = [one for one in memory.list_lessons(limit=200) if one.evidence.error_signature or one.evidence.detector]
    return [f"{one.text} [{one.evidence.error_signature or one.evidence.detector}]" for one in found[:20]]
