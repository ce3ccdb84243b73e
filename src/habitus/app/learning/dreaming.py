"""Self-play: run challenges with our own session as the solver, and store the lessons they teach."""

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

# The prefix of a lesson's source, in front of the name of its challenge.
_PLAYED = "self-play: "
# The folder of the home with the user's own challenges.
OWN = "challenges"
# Lessons looked at in one run.
_MOST_TRIED = 200


def challenges(settings: Settings, path: Path | None = None) -> tuple[Task, ...]:
    """Return the challenges of a file or folder.

    Without a path, the built-in ones and the home's own, which win by name.
    """
    if path is not None:
        return read(path)
    own = settings.home / OWN
    found = {each.id: each for each in (*starters(), *(read(own) if own.is_dir() else ()))}
    return tuple(found.values())


@asynccontextmanager
async def _open_player(home: Home, model: str, limits: Limits | None = None) -> AsyncIterator[BudgetedModel]:
    """Open the named or configured model within the token budget of the day; refused while learning is paused."""
    home.refuse_if_read_only()
    home.pause.refuse_if_paused()
    opened = models.models_named(home.settings, model) if model else home.models
    try:
        yield Budget(limits, day=home.spending).model(opened.main)
    finally:
        await opened.close()


async def dream(home: Home, challenge: Task, *, key: str, model: str = "", limits: Limits | None = None) -> Dreamt:
    """Run one cycle over a challenge and store its lesson; do nothing if this key has taught one before."""
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
    """Run one cycle with the given solver; `model` extracts the lesson."""
    # The built-in challenges are validated by tests; only other ones are worth the time.
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
    """Store the lesson of a dream; the result is a rejection if memory did not accept it."""
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
    """Return the ids of lessons from self-play that no later attempt has verified."""
    memory = home.open_memory(user=home.settings.user)
    drawn = [one for one in memory.list_lessons("self-play", limit=_MOST_TRIED) if one.source.startswith(_PLAYED)]
    return tuple(one.id for one in drawn if not one.verified and one.body is not None)


async def verify(home: Home, id: str, *, model: str = "") -> Dreamt:
    """Try a lesson again on the challenge it was extracted from; a verified one stays verified."""
    async with _open_player(home, model) as player:
        return _with_spent(await verify_with(home, id, SessionSolver(home, player)), player.budget)


async def verify_with(home: Home, id: str, solver: Solver) -> Dreamt:
    """Verify a lesson with the given solver."""
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
    """Solves challenges with our own agent in sessions that teach memory nothing else.

    The rollouts of a run are stored, so a run that continues after a killed process does not repeat them.
    """

    def __init__(self, home: Home, model: BudgetedModel, *, run: str = "") -> None:
        self._home = home
        self._model = model
        self._run = run or new_id()
        self._store = open_store(home)
        self._made = [one for one in self._store.rollouts(run=self._run) if one.counts]
        self._number = 0

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Rollout:
        """Return the next rollout of the run: the stored one, or a new attempt at the challenge."""
        # Rollouts are matched by their order, which is the same whenever a run is repeated.
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
    """Let a model invent a challenge about recent failures; store it in the home if it can tell right from wrong."""
    async with _open_player(home, model) as player:
        return await invent_with(home, player)


async def invent_with(home: Home, model: BudgetedModel) -> tuple[Task, TaskValidation]:
    """Invent a challenge with the given model."""
    failures = await asyncio.to_thread(_failures, home)
    made = await propose(failures, model=model, redactor=home.redactor)
    sound = await validate_task(home, made)
    if sound.is_sound:
        folder = home.settings.home / OWN
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{made.id}.toml").write_text(write_task(made), "utf-8")
    return made, sound


def _failures(home: Home) -> list[str]:
    """Return the latest failures that lessons in memory came from, with their signature."""
    memory = home.open_memory(user=home.settings.user)
    found = [one for one in memory.list_lessons(limit=200) if one.evidence.error_signature or one.evidence.detector]
    return [f"{one.text} [{one.evidence.error_signature or one.evidence.detector}]" for one in found[:20]]
