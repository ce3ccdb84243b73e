"""The challenges that come along, and those that people write."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.conversations.running_code import open_scratchpads, resolve_readable_folders
from habitus.app.tasks.validation import validate_task
from habitus.errors import Invalid
from habitus.learning.self_play import DOMAINS, list_bundled_challenges, parse_challenge, read_challenges
from habitus.tasks.checks import PythonValidatorCheck
from habitus.tasks.files import serialize_task
from habitus.tasks.model import Task, TaskSolution

# Every solution in a process and a folder of its own, all of them in one sandbox.
_DRIVER = """
import importlib, json, os, sys, tempfile
def passes(steps):
    child = os.fork()
    if child == 0:
        os.chdir(tempfile.mkdtemp(dir="."))
        sys.stderr = open(os.devnull, "w")
        try:
            for step in steps:
                importlib.invalidate_caches()
                exec(compile(step, "step", "exec"), {"__name__": "__main__"})
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
for name, *steps in json.loads(open("challenges.json").read()):
    if not passes(steps[:2] + steps[3:]):
        print(name, "reference")
    if passes([steps[0], steps[2], steps[3]]):
        print(name, "wrong")
    if passes([steps[0], steps[3]]):
        print(name, "nothing")
print("done")
"""


def _code(solution: TaskSolution | None) -> str:
    assert solution is not None
    return solution.code


@pytest.mark.full
@pytest.mark.req("LP-01")
async def test_every_starter_passes_its_reference_and_neither_its_wrong_solution_nor_none(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        pads = open_scratchpads(habitus, "pads", read=resolve_readable_folders(habitus.settings, [Path("/usr")]))
        steps = [[c.id, c.setup, _code(c.reference), _code(c.wrong), c.validator] for c in list_bundled_challenges()]
        try:
            await pads.execute_code("all", f"open('challenges.json', 'w').write({json.dumps(json.dumps(steps))})")
            ran = await pads.execute_code("all", _DRIVER, estimated_s=120)
        finally:
            await pads.close()
    assert (ran.error, ran.stdout.splitlines()) == (None, ["done"])


@pytest.mark.req("LP-01")
def test_there_are_three_for_every_domain() -> None:
    assert Counter(each.domain for each in list_bundled_challenges()) == dict.fromkeys(DOMAINS, 3)


@pytest.mark.req("LP-01")
def test_a_challenge_is_read_as_it_was_written(tmp_path: Path) -> None:
    for each in list_bundled_challenges():
        (tmp_path / f"{each.id}.toml").write_text(serialize_task(each))
    assert read_challenges(tmp_path) == tuple(sorted(list_bundled_challenges(), key=lambda each: each.id))


@pytest.mark.req("LP-01")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("task = 1", "'task' of .* is not text"),
        ("task = 't'\nvalidator = 'v'", "'domain' is missing"),
        ("domain = [", "is not TOML"),
        ("colour = 'red'", "no 'colour'"),
        ("domain='knitting'\ntask='t'\nvalidator='v'\nreference='r'\nwrong='w'", "'knitting' is no domain"),
    ],
)
def test_what_is_no_challenge_is_said_in_a_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(Invalid, match=told):
        read_challenges(tmp_path / "odd.toml")


@pytest.mark.full
@pytest.mark.req("LP-01")
async def test_an_exercise_that_can_t_tell_right_from_wrong_is_found_out(home: Path) -> None:
    row = {
        "domain": "algo",
        "task": "Write 1 to n.txt.",
        "validator": "assert open('n.txt').read() == '1'",
        "reference": "open('n.txt', 'w').write('1')",
        "wrong": "open('n.txt', 'w').write('2')",
    }
    good = parse_challenge(row, name="one", where="the test")

    def judged_by(code: str) -> Task:
        return replace(good, checks=(PythonValidatorCheck(code=code),))

    with Habitus.open(read_settings(home)) as habitus:
        always = await validate_task(habitus, judged_by("pass"))
        never = await validate_task(habitus, judged_by("assert False, 'no'"))
        broken = await validate_task(habitus, replace(good, setup="1 / 0"))
    assert (always.is_sound, always.reason) == (False, "its wrong solution passes")
    assert (never.is_sound, never.reason) == (False, "its reference solution does not pass: AssertionError: no")
    assert (broken.is_sound, broken.reason) == (False, "its setup failed: ZeroDivisionError: division by zero")
