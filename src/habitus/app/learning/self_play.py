"""Self-play: run challenges with our own session as the solver, and store the lessons they teach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from habitus.agent.session import generate_turn_or_session_id
from habitus.app.conversations import models
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.solving import run_own_agent_rollout
from habitus.app.tasks.validation import TaskValidation, validate_task
from habitus.improve.rollouts import run_and_store_rollout
from habitus.learning.budget import BudgetedModel, RunBudget, RunLimits
from habitus.learning.self_play import (
    ChallengeSolver,
    Dreamer,
    DreamResult,
    DreamVerdict,
    extract_lesson,
    generate_challenge,
    list_bundled_challenges,
    read_challenges,
    verify_lesson_against_control_attempt,
)
from habitus.llm.model import ProviderError, UnusableAnswerError
from habitus.memory.model import (
    LessonDraft,
    LessonDraftOutcome,
    LessonKind,
    LessonProducer,
    LessonProvenance,
    LessonScope,
)
from habitus.settings import Settings
from habitus.tasks.files import serialize_task
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit

# The prefix of a lesson's source, in front of the name of its challenge.
_SOURCE_PREFIX = "self-play: "
# The folder of the home with the user's own challenges.
CHALLENGES_FOLDER = "challenges"
# Lessons looked at in one run.
_MAX_LESSONS = 200


def list_challenges(settings: Settings, path: Path | None = None) -> tuple[Task, ...]:
    """Return the challenges of a file or folder.

    Without a path, the built-in ones and the home's own, which win by name.
    """
    if path is not None:
        return read_challenges(path)
    own = settings.home / CHALLENGES_FOLDER
    found = {each.id: each for each in (*list_bundled_challenges(), *(read_challenges(own) if own.is_dir() else ()))}
    return tuple(found.values())


@asynccontextmanager
async def _open_budgeted_model(home: Home, model: str, limits: RunLimits | None = None) -> AsyncIterator[BudgetedModel]:
    """Open the named or configured model within the token budget of the day; refused while learning is paused."""
    refuse_if_read_only(home)
    home.pause.refuse_if_paused()
    opened = models.open_session_models_for_name(home.settings, model) if model else home.models
    try:
        yield RunBudget(limits, day=home.spending).wrap_model(opened.main)
    finally:
        await opened.close()


async def learn_lesson_from_challenge(
    home: Home, challenge: Task, *, key: str, model: str = "", limits: RunLimits | None = None
) -> DreamResult:
    """Run one cycle over a challenge and store its lesson; do nothing if it has taught one before."""
    if challenge.hash in list_hashes_of_taught_challenges(home):
        reason = "its lesson is stored or pending review"
        return DreamResult(challenge=challenge.id, verdict=DreamVerdict.NOTHING, reason=reason)
    async with _open_budgeted_model(home, model, limits) as player:
        dreamt = await learn_from_challenge_with_solver(
            home, challenge, ChallengeSessionSolver(home, player, run=key), player, key=key
        )
        return _add_spending_to_result(dreamt, player.budget)


def list_hashes_of_taught_challenges(home: Home) -> frozenset[str]:
    """Return the hashes of the challenges whose lesson is stored or pending."""
    user = home.settings.user
    memory = home.open_memory(user=user)
    lessons = (*memory.list_lessons("self-play", limit=_MAX_LESSONS), *memory.list_pending_lessons(user=user))
    return frozenset(one.body.source_challenge_hash for one in lessons if one.body is not None)


def _add_spending_to_result(dreamt: DreamResult, budget: RunBudget) -> DreamResult:
    return replace(
        dreamt,
        tokens=budget.tokens,
        requests=budget.requests,
        dollars=budget.usage.cost or 0.0,
        is_spent=budget.is_reached,
    )


async def learn_from_challenge_with_solver(
    home: Home, challenge: Task, solver: ChallengeSolver, model: BudgetedModel, *, key: str
) -> DreamResult:
    """Run one cycle with the given solver; `model` extracts the lesson."""
    # The built-in challenges are validated by tests; only other ones are worth the time.
    if challenge not in list_bundled_challenges():
        sound = await validate_task(home, challenge)
        if not sound.is_sound:
            return DreamResult(challenge=challenge.id, verdict=DreamVerdict.UNSOUND, reason=sound.reason)
    draw = partial(extract_lesson, model=model, redactor=home.redactor)
    try:
        dreamt = await Dreamer(solver=solver, extract=draw).dream(challenge)
    except (UnusableAnswerError, ProviderError, TimeoutError) as fault:
        return DreamResult(challenge=challenge.id, verdict=DreamVerdict.INFRA, reason=str(fault) or "it took too long")
    return await asyncio.to_thread(_store_dream_lesson, home, challenge, dreamt, key)


def _store_dream_lesson(home: Home, challenge: Task, dreamt: DreamResult, key: str) -> DreamResult:
    """Store the lesson of a dream; the result is a rejection if memory did not accept it."""
    if dreamt.lesson is None or not dreamt.is_lesson_kept:
        return dreamt
    encoded = home.open_memory(user=home.settings.user).encode(
        LessonDraft(
            text=dreamt.lesson.text,
            kind=LessonKind.LESSON,
            scope=LessonScope.USER,
            confidence=dreamt.confidence,
            topic=challenge.domain,
            source=f"{_SOURCE_PREFIX}{challenge.id}",
            evidence=LessonProvenance(trace=key, user=home.settings.user),
            body=dreamt.lesson,
            user=home.settings.user,
            produced_by=LessonProducer.DREAM,
            verified=dreamt.verdict is DreamVerdict.VERIFIED,
        )
    )
    if encoded.status in (LessonDraftOutcome.STORED, LessonDraftOutcome.REINFORCED, LessonDraftOutcome.PENDING):
        return dreamt
    return DreamResult(challenge=challenge.id, verdict=DreamVerdict.REJECTED, reason=f"memory: {encoded.reason}")


def list_unverified_self_play_lesson_ids(home: Home) -> tuple[str, ...]:
    """Return the ids of lessons from self-play that no later attempt has verified."""
    memory = home.open_memory(user=home.settings.user)
    drawn = [
        one for one in memory.list_lessons("self-play", limit=_MAX_LESSONS) if one.source.startswith(_SOURCE_PREFIX)
    ]
    return tuple(one.id for one in drawn if not one.verified and one.body is not None)


async def verify_lesson_on_its_challenge(home: Home, id: str, *, model: str = "") -> DreamResult:
    """Try a lesson again on the challenge it was extracted from; a verified one stays verified."""
    async with _open_budgeted_model(home, model) as player:
        return _add_spending_to_result(
            await verify_lesson_with_solver(home, id, ChallengeSessionSolver(home, player)), player.budget
        )


async def verify_lesson_with_solver(home: Home, id: str, solver: ChallengeSolver) -> DreamResult:
    """Verify a lesson with the given solver."""
    lesson = await asyncio.to_thread(home.open_memory(user=home.settings.user).get, id)
    name = lesson.source.removeprefix(_SOURCE_PREFIX)
    found = {each.id: each for each in list_challenges(home.settings)}
    tried = DreamResult(challenge=name, verdict=DreamVerdict.NOTHING, reason="it is verified already")
    if lesson.verified or lesson.body is None:
        return tried
    if name not in found:
        return replace(tried, verdict=DreamVerdict.INFRA, reason="its challenge is not there any more")
    drawn = replace(tried, lesson=lesson.body, confidence=lesson.confidence, reason="")
    dreamt = await verify_lesson_against_control_attempt(found[name], solver, lesson.body, drawn)
    if dreamt.verdict is not DreamVerdict.VERIFIED:
        return dreamt
    return await asyncio.to_thread(_store_dream_lesson, home, found[name], dreamt, lesson.evidence.trace)


class ChallengeSessionSolver:
    """Solves challenges with our own agent in sessions that teach memory nothing else.

    The rollouts of a run are stored, so a run that continues after a killed process does not repeat them.
    """

    def __init__(self, home: Home, model: BudgetedModel, *, run: str = "") -> None:
        self._home = home
        self._model = model
        self._run = run or generate_turn_or_session_id()
        self._store = open_improve_store(home)
        self._made = [one for one in self._store.list_rollouts(run=self._run) if one.is_counted]
        self._number = 0

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Rollout:
        """Return the next rollout of the run: the stored one, or a new attempt at the challenge."""
        # Rollouts are matched by their order, which is the same whenever a run is repeated.
        self._number += 1
        if self._number <= len(self._made):
            return self._made[self._number - 1]
        side, is_new = TaskSplit.PRACTICE, bool(playbook)
        planned = Rollout(run=self._run, side=side, round=self._number, task=challenge.id, is_new=is_new)
        request = _compose_challenge_request(challenge, playbook, feedback)
        attempt = partial(run_own_agent_rollout, self._home, model=self._model, source_type="dream", request=request)
        return await run_and_store_rollout(self._store, planned, attempt, challenge)


def _compose_challenge_request(challenge: Task, playbook: str, feedback: str) -> str:
    parts = [
        playbook,
        challenge.request,
        f"An earlier attempt, of which nothing is left, was not accepted: {feedback}" if feedback else "",
    ]
    return "\n\n".join(part for part in parts if part)


async def invent_and_store_challenge(home: Home, *, model: str = "") -> tuple[Task, TaskValidation]:
    """Let a model invent a challenge about recent failures; store it in the home if it can tell right from wrong."""
    async with _open_budgeted_model(home, model) as player:
        return await invent_and_store_challenge_with_model(home, player)


async def invent_and_store_challenge_with_model(home: Home, model: BudgetedModel) -> tuple[Task, TaskValidation]:
    """Invent a challenge with the given model."""
    failures = await asyncio.to_thread(_list_failures_behind_recent_lessons, home)
    made = await generate_challenge(failures, model=model, redactor=home.redactor)
    sound = await validate_task(home, made)
    if sound.is_sound:
        folder = home.settings.home / CHALLENGES_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{made.id}.toml").write_text(serialize_task(made), "utf-8")
    return made, sound


def _list_failures_behind_recent_lessons(home: Home) -> list[str]:
    """Return the latest failures that lessons in memory came from, with their signature."""
    memory = home.open_memory(user=home.settings.user)
    found = [one for one in memory.list_lessons(limit=200) if one.evidence.error_signature or one.evidence.detector]
    return [f"{one.text} [{one.evidence.error_signature or one.evidence.detector}]" for one in found[:20]]
