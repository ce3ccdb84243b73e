"""A cycle of self-play with a solver that does as it is told: which lessons are believed, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.events import OK, Outcome, OutcomeKind, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.learning.self_play import Dreamer, DreamResult, DreamVerdict, ExtractedLesson, find_lesson_objection
from habitus.memory.model import PLAYBOOK_HEADING, SelfPlayLessonBody
from habitus.tasks.checks import PythonValidatorCheck
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit

CHALLENGE = Task(
    id="sum-of-prices",
    domain="data_analysis",
    request="The file prices.csv has the columns item and price; write their sum to total.txt.",
    setup="open('prices.csv', 'w').write('item,price\\nRose-17B,12450\\n')",
    checks=(PythonValidatorCheck(code="assert open('total.txt').read() == '98765'"),),
)
GOOD = SelfPlayLessonBody(
    trigger="When numbers are read from text",
    anti_pattern="taking every field for a number",
    correct_pattern="convert with a check, and leave out what is none",
    domains=("data_analysis",),
)


@dataclass
class Scripted:
    """Comes to these outcomes, one after the other."""

    outcomes: list[Outcome]
    playbooks: list[str] = field(default_factory=list)

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Rollout:
        self.playbooks.append(playbook)
        planned = Rollout(run="r1", side=TaskSplit.PRACTICE, round=0, task=challenge.id, is_new=False)
        return planned.with_outcome(self.outcomes[len(self.playbooks) - 1], "did")


async def run(outcomes: Sequence[Outcome], lesson: SelfPlayLessonBody = GOOD) -> tuple[DreamResult, Scripted]:
    async def extract(challenge: Task, attempts: Sequence[Rollout]) -> ExtractedLesson:
        return ExtractedLesson(lesson=lesson, confidence=0.7)

    solver = Scripted(list(outcomes))
    return await Dreamer(solver=solver, extract=extract).dream(CHALLENGE), solver


NO, AWAY = build_failed_outcome("AssertionError"), build_infrastructure_failure_outcome("the provider is away")


@pytest.mark.req("LP-01", "LP-03")
@pytest.mark.parametrize(
    ("outcomes", "verdict", "reason"),
    [
        ((OK,), DreamVerdict.NOTHING, "solved at once"),
        ((NO, NO, NO, OK, NO), DreamVerdict.VERIFIED, "failed before, passed at once with it, and failed without it"),
        ((NO, OK, OK, NO), DreamVerdict.VERIFIED, "passed at attempt 2 before"),
        ((NO, NO, NO, OK, OK), DreamVerdict.CANDIDATE, "as well without it"),  # luck
        ((NO, NO, NO, NO), DreamVerdict.CANDIDATE, "no better with it"),  # of no use
        ((NO, NO, NO, AWAY), DreamVerdict.CANDIDATE, "could not be tried"),
        ((NO, NO, NO, OK, AWAY), DreamVerdict.CANDIDATE, "there is no control"),
        ((AWAY,), DreamVerdict.INFRA, "the provider is away"),
        ((NO, AWAY), DreamVerdict.INFRA, "the provider is away"),
    ],
)
async def test_a_lesson_is_verified_only_where_it_helped_and_its_control_failed(
    outcomes: tuple[Outcome, ...], verdict: DreamVerdict, reason: str
) -> None:
    dreamt, solver = await run(outcomes)
    assert (dreamt.verdict, reason in dreamt.reason) == (verdict, True), dreamt
    assert len(solver.playbooks) == len(outcomes)  # no attempt more than it takes
    with_it = [each for each in solver.playbooks if each]
    assert all(each == f"{PLAYBOOK_HEADING}\n- {GOOD.text}" for each in with_it)
    if verdict is DreamVerdict.VERIFIED:
        assert solver.playbooks[-2:] == [with_it[0], ""]  # with it, and then the control


@pytest.mark.req("LP-03")
@given(st.lists(st.sampled_from([OK, NO, AWAY]), min_size=5, max_size=5))
async def test_whatever_happens_nothing_is_verified_that_was_not_seen_to_help(outcomes: list[Outcome]) -> None:
    dreamt, solver = await run(outcomes)
    seen = outcomes[: len(solver.playbooks)]
    if dreamt.verdict is DreamVerdict.VERIFIED:
        assert seen[-2].is_ok
        assert seen[-1].kind is OutcomeKind.FAILED
        assert not seen[0].is_ok


@pytest.mark.req("LP-02")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"trigger": " "}, "does not say when"),
        ({"correct_pattern": ""}, "does not say what to do"),
        ({"domains": ()}, "names no domain"),
        ({"domains": ("data_analysis", "knitting")}, "'knitting' is no domain"),
        ({"trigger": "When prices.csv has the columns item and price in it"}, "repeats the exercise"),
        ({"correct_pattern": "write 98765 to the file"}, "copies '98765'"),
        ({"anti_pattern": "forgetting Rose-17B"}, "copies 'Rose-17B'"),
    ],
)
async def test_the_guard_turns_away_what_is_empty_or_copied(changed: dict[str, object], why: str) -> None:
    lesson = replace(GOOD, **changed)  # type: ignore[arg-type]
    assert why in find_lesson_objection(lesson, CHALLENGE)
    dreamt, _ = await run((NO, NO, NO), lesson)
    assert (dreamt.verdict, why in dreamt.reason) == (DreamVerdict.REJECTED, True)


@pytest.mark.req("LP-02")
@given(st.integers(0, 8))
def test_words_in_a_row_count_as_a_copy_from_six_on(words: int) -> None:
    copied = " ".join(CHALLENGE.request.split()[:words])
    lesson = replace(GOOD, trigger=f"Whenever {copied} something")
    assert bool(find_lesson_objection(lesson, CHALLENGE)) is (words >= 6 or "prices.csv" in copied.split()), copied
