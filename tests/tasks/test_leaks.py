"""The leak guard: an edit that gives away the answer of a hidden task, by any kind of check."""

from __future__ import annotations

import pytest

from habitus.tasks.checks import (
    CalledCheck,
    Check,
    ContainsCheck,
    EqualsCheck,
    FileExistsCheck,
    MatchesCheck,
    ShapeCheck,
    TableEqualsCheck,
)
from habitus.tasks.leaks import count_named_answers, find_copied_words
from habitus.tasks.model import Task


def task(*checks: Check, request: str = "Which town is it?") -> Task:
    return Task(id="t", request=request, checks=checks)


@pytest.mark.req("IM-04")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        (ContainsCheck(text="Altberg"), "The town is Altberg."),
        (MatchesCheck(pattern=r"^Altberg\b.*$"), "Answer Altberg."),
        (EqualsCheck(value=42), "Answer 42."),
        (EqualsCheck(value={"towns": ["Altberg", "Neudorf"]}), "Mention Neudorf."),
        (ShapeCheck(schema={"type": "object", "required": ["total", "rows"]}), "Give total, rows."),
        (FileExistsCheck(path="out/towns.csv"), "Write out/towns.csv."),
        (TableEqualsCheck(path="a.csv", table="name,sum\nAda,7"), "The row is Ada, 7."),
        (CalledCheck(tool="look_up"), "Call look_up."),
        (CalledCheck(command="git bisect"), "Run git bisect first."),
    ],
)
def test_an_answer_is_a_leak_whatever_checks_it_and_not_where_it_is_known(check: Check, said: str) -> None:
    assert find_copied_words(said, task(check))
    assert not find_copied_words(said, task(check), known=said)
    assert not find_copied_words("3. Write it in capitals, and be brief.", task(check))


@pytest.mark.req("IM-04")
def test_a_reply_that_lists_many_answers_is_told_from_one_that_answers() -> None:
    towns = [task(ContainsCheck(text=town)) for town in ("Altberg", "Neudorf", "Seeheim", "Waldau")]
    assert count_named_answers("Altberg, Neudorf, Seeheim or Waldau", towns[0], towns[1:]) == 3
    assert count_named_answers("It is Altberg.", towns[0], towns[1:]) == 0
