"""Self-play through the product: our session plays, memory keeps what helped, and a later session is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.agent.background import EventLoopThread
from habitus.app import Habitus, read_settings
from habitus.app.learning import self_play
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.operating.job_kinds import SelfPlayJob
from habitus.app.tasks.workspaces import PAD
from habitus.learning.budget import RunBudget
from habitus.learning.self_play import DreamVerdict, parse_challenge
from habitus.llm.model import CompletionRequest, PersonMessage, TextContent
from habitus.llm.providers import open_provider_model
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.memory.model import PLAYBOOK_HEADING, LessonDraft, LessonKind, LessonProducer, LessonProvenance, TrustLevel
from habitus.tasks.files import serialize_task
from tests.real_model import real_model

EXERCISE = {
    "domain": "python_general",
    "task": "Write the names of names.json to joined.txt, sorted, with a comma between them.",
    "setup": "open('names.json', 'w').write('[\"b\", \"a\"]')",
    "validator": "assert open('joined.txt').read() == 'a,b', 'the names are not in order'",
    "reference": "open('joined.txt', 'w').write('a,b')",
    "wrong": "open('joined.txt', 'w').write('b,a')",
}
CHALLENGE = parse_challenge(EXERCISE, name="join-the-names", where="the test")
LESSON = {
    "trigger": "When a list of texts is put together",
    "anti_pattern": "trusting the order of the input",
    "correct_pattern": "call sorted on it before joining",
    "domains": ["python_general"],
    "confidence": 0.8,
}
_RIGHT = "import json; open('joined.txt', 'w').write(','.join(sorted(json.load(open('names.json')))))"


def _said(ask: CompletionRequest) -> str:
    return "".join(
        part.text
        for one in ask.messages
        if isinstance(one, PersonMessage)
        for part in one.parts
        if isinstance(part, TextContent)
    )


def _knows_only_with_its_lesson(ask: CompletionRequest) -> ScriptStep:
    if not isinstance(ask.messages[-1], PersonMessage) or str(LESSON["trigger"]) not in _said(ask):
        return says("I can't.")
    return calls("scratchpad", {"action": "exec", "name": PAD, "code": _RIGHT})


@pytest.mark.req("LP-01", "LP-03", "LP-04", "IM-04")
async def test_a_lesson_that_helped_is_kept_and_stands_in_the_playbook_of_a_later_session(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        player = ScriptedModel(_knows_only_with_its_lesson)
        teacher = ScriptedModel([says(json.dumps(LESSON))])
        solver = self_play.ChallengeSessionSolver(habitus, RunBudget().wrap_model(player), run="job/0")
        dreamt = await self_play.learn_from_challenge_with_solver(
            habitus, CHALLENGE, solver, RunBudget().wrap_model(teacher), key="job/0"
        )

        assert (dreamt.verdict, dreamt.attempts) == (DreamVerdict.VERIFIED, 3), dreamt
        (kept,) = habitus.memory.list_lessons("self-play")
        assert (kept.verified, kept.trust, kept.evidence.trace) == (True, TrustLevel.VERIFIED, "job/0")
        assert "Judged: FileNotFoundError" in _said(teacher.asked[0])
        again = await self_play.learn_lesson_from_challenge(habitus, CHALLENGE, key="job/0")
        assert again.reason == "its lesson is stored or pending review"  # nobody is asked a second time

        tries = open_improve_store(habitus).list_rollouts(run="job/0")
        assert [one.outcome for one in tries] == ["failed", "failed", "failed", "ok", "failed"]
        assert all(one.tokens for one in tries)
        killed = self_play.ChallengeSessionSolver(
            habitus, RunBudget().wrap_model(ScriptedModel([])), run="job/0"
        )  # nobody to ask: it was tried
        attempts = [await killed.solve(CHALLENGE) for _ in tries]
        assert [one.is_ok for one in attempts] == [False, False, False, True, False]
        assert "joined.txt" in attempts[0].reason

        later = ScriptedModel([says("Yes.")])
        async with habitus.session(later) as session:
            await session.turn("How do I put a list of texts together?")
        told = _said(later.asked[0])
        assert told.count(kept.text) == 1  # under one heading only
        assert f"{PLAYBOOK_HEADING}\n- {kept.text}" in told


@pytest.mark.req("LP-03")
async def test_a_challenge_whose_lesson_waits_is_not_dreamt_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABITUS_MEMORY", "copilot")
    with Habitus.open(read_settings(home)) as habitus:
        (home / self_play.CHALLENGES_FOLDER).mkdir()
        (home / self_play.CHALLENGES_FOLDER / f"{CHALLENGE.id}.toml").write_text(serialize_task(CHALLENGE))
        clumsy = self_play.ChallengeSessionSolver(
            habitus, RunBudget().wrap_model(ScriptedModel(lambda ask: says("I can't.")))
        )
        teacher = ScriptedModel([says(json.dumps({**LESSON, "confidence": 0.3}))])
        own = next(one for one in self_play.list_challenges(habitus.settings) if one.id == CHALLENGE.id)
        await self_play.learn_from_challenge_with_solver(
            habitus, own, clumsy, RunBudget().wrap_model(teacher), key="job/0"
        )
        assert len(habitus.memory.list_pending_lessons()) == 1
        again = await self_play.learn_lesson_from_challenge(
            habitus, own, key="job/1"
        )  # no model is configured, and none is asked
        assert (again.verdict, again.tokens) == (DreamVerdict.NOTHING, 0)
        planned = SelfPlayJob(habitus, EventLoopThread("dreams")).plan_parts({"domain": "python_general"})
        assert CHALLENGE.id not in [part["challenge"]["id"] for part in planned]
        assert planned


@pytest.mark.full
@pytest.mark.req("LP-03")
async def test_a_candidate_is_verified_when_a_later_try_shows_that_it_helps(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        (home / self_play.CHALLENGES_FOLDER).mkdir()
        (home / self_play.CHALLENGES_FOLDER / f"{CHALLENGE.id}.toml").write_text(serialize_task(CHALLENGE))
        clumsy = self_play.ChallengeSessionSolver(
            habitus, RunBudget().wrap_model(ScriptedModel(lambda ask: says("I can't.")))
        )
        teacher = ScriptedModel([says(json.dumps(LESSON))])
        dreamt = await self_play.learn_from_challenge_with_solver(
            habitus, CHALLENGE, clumsy, RunBudget().wrap_model(teacher), key="job/0"
        )
        assert dreamt.verdict is DreamVerdict.CANDIDATE
        (candidate,) = self_play.list_unverified_self_play_lesson_ids(habitus)
        still = await self_play.verify_lesson_with_solver(habitus, candidate, clumsy)
        assert still.verdict is DreamVerdict.CANDIDATE
        able = self_play.ChallengeSessionSolver(
            habitus, RunBudget().wrap_model(ScriptedModel(_knows_only_with_its_lesson))
        )
        shown = await self_play.verify_lesson_with_solver(habitus, candidate, able)
        assert shown.verdict is DreamVerdict.VERIFIED, shown
        assert self_play.list_unverified_self_play_lesson_ids(habitus) == ()
        (kept,) = habitus.memory.list_lessons("self-play")
        assert (kept.id, kept.verified, kept.trust) == (candidate, True, TrustLevel.VERIFIED)
        again = await self_play.verify_lesson_with_solver(habitus, candidate, clumsy)
        assert again.reason == "it is verified already"


@pytest.mark.full
@pytest.mark.req("LP-01")
async def test_an_exercise_that_is_no_good_teaches_nothing_and_is_charged_to_nobody(home: Path) -> None:
    passes = dict.fromkeys(("validator", "reference", "wrong"), "pass")
    unsound = parse_challenge(
        {"domain": "algo", "task": "Do something.", **passes}, name="anything-goes", where="the test"
    )
    with Habitus.open(read_settings(home)) as habitus:
        nobody = ScriptedModel([])
        solver = self_play.ChallengeSessionSolver(habitus, RunBudget().wrap_model(nobody))
        dreamt = await self_play.learn_from_challenge_with_solver(
            habitus, unsound, solver, RunBudget().wrap_model(nobody), key="job/1"
        )
        assert (dreamt.verdict, dreamt.reason) == (DreamVerdict.UNSOUND, "its wrong solution passes")
        assert habitus.memory.list_lessons() == ()


@pytest.mark.req("LP-01")
async def test_a_challenge_is_made_of_what_failed_here_and_kept_when_it_tells_right_from_wrong(home: Path) -> None:
    answer = {**EXERCISE, "name": "../../Join Names"}  # whatever a model calls it, it stays in its folder
    teacher = ScriptedModel([says(json.dumps(answer))])
    with Habitus.open(read_settings(home)) as habitus:
        evidence = LessonProvenance(error_signature="KeyError: name")
        lesson = LessonDraft(
            text="Rows may lack a name.", kind=LessonKind.LESSON, produced_by=LessonProducer.DETECTOR, evidence=evidence
        )
        habitus.memory.encode(lesson)
        made, sound = await self_play.invent_and_store_challenge_with_model(habitus, RunBudget().wrap_model(teacher))
        assert (made.id, sound.is_sound, sound.reason) == ("join-names", True, "")
        assert "Rows may lack a name. [KeyError: name]" in _said(teacher.asked[0])
        assert made in self_play.list_challenges(habitus.settings)
        assert [path.name for path in (home / self_play.CHALLENGES_FOLDER).iterdir()] == ["join-names.toml"]


@pytest.mark.full
@pytest.mark.timeout(3600)  # six minutes of a processor, which others may want as well
@pytest.mark.req("LP-01", "LP-02")
async def test_a_cycle_with_a_real_model_comes_to_its_end_and_keeps_no_nonsense(home: Path) -> None:
    with real_model() as address, Habitus.open(read_settings(home)) as habitus:
        model = open_provider_model("openai:smollm2", {}, base_url=address)
        solver = self_play.ChallengeSessionSolver(habitus, RunBudget().wrap_model(model))
        dreamt = await self_play.learn_from_challenge_with_solver(
            habitus, CHALLENGE, solver, RunBudget().wrap_model(model), key="job/2"
        )
        assert not dreamt.passed
        assert dreamt.verdict in (DreamVerdict.REJECTED, DreamVerdict.CANDIDATE, DreamVerdict.INFRA), dreamt
        assert not any(lesson.verified for lesson in habitus.memory.list_lessons())
