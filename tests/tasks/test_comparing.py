"""Comparing results: a law over generated functions, tolerance, and what two runs don't agree on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from habitus.tasks.checks import ReplyEqualsCheck
from habitus.tasks.judging import (
    derive_expected_result,
    describe_first_differing_field,
    drop_fields_that_changed_since_recording,
    has_enough_distinct_results,
)
from habitus.tools.execution import is_using_time_or_random_numbers

Result = dict[str, Any]
Function = Callable[[int, int, int], Result]

small = st.integers(-50, 50)
inputs = st.lists(st.tuples(small, small, small), min_size=3, max_size=6, unique=True)
factors = st.tuples(*[small.filter(bool)] * 3)


def function(p: int, q: int, r: int, note: str) -> Function:
    return lambda a, b, c: {"x": p * a + q * b, "y": [r * c, {"half": r * c / 2}], "note": f"{note} {a}"}


def wrong_drafts(right: Function, first: tuple[int, int, int]) -> Mapping[str, Function]:
    def swapped(a: int, b: int, c: int) -> Result:
        found = right(a, b, c)
        return {**found, "x": found["y"][0], "y": [found["x"], found["y"][1]]}

    return {
        "constant": lambda a, b, c: right(*first),
        "swaps two fields": swapped,
        "off by one": lambda a, b, c: {**(found := right(a, b, c)), "x": found["x"] + 1},
        "ignores an input": lambda a, b, c: right(a, first[1], c),
    }


def printed(result: Result) -> str:
    return json.dumps(result) + "\n"


@pytest.mark.req("LA-04")
@given(factors, st.text(max_size=5), inputs)
def test_a_trial_passes_the_right_draft_and_refuses_each_wrong_one(
    given_factors: tuple[int, int, int], note: str, cases: list[tuple[int, int, int]]
) -> None:
    right = function(*given_factors, note)
    recorded = [derive_expected_result([printed(right(*case))]) for case in cases]
    expected = [one for one in recorded if one is not None]
    assert len(expected) == len(cases)
    assume(has_enough_distinct_results(expected))

    def passes(draft: Function) -> bool:
        return not any(
            describe_first_differing_field(one, printed(draft(*case)))
            for one, case in zip(expected, cases, strict=True)
        )

    assert passes(right)
    for draft in wrong_drafts(right, cases[0]).values():
        is_other = any(draft(*case) != right(*case) for case in cases)  # else the inputs can't tell
        assert passes(draft) is not is_other
    assert not passes(wrong_drafts(right, cases[0])["constant"])
    assert not passes(wrong_drafts(right, cases[0])["off by one"])


@pytest.mark.req("SB-06")
def test_values_are_compared_within_a_tolerance_and_by_type() -> None:
    for before, after, is_same in (
        ("0.30000000000000004", "0.3", True),
        ("3", "3.0", True),
        ("3", "4", False),
        ("true", "1", False),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', True),
        ('{"a": null}', "{}", False),
        ("[1, 2]", "[2, 1]", False),
        ("just text", "just  text", False),
        ("1e400", "1e400", True),
    ):
        expected = derive_expected_result([before])
        assert expected is not None
        assert (describe_first_differing_field(expected, after) == "") is is_same, (before, after)


def test_what_runs_do_not_agree_on_and_what_was_secret_is_apart() -> None:
    key = "sk-ant-" + "a1B2" * 10
    first, second = (json.dumps({"total": 12, "at": at, "key": key, "rows": rows}) for at, rows in ((1, [1]), (2, [])))
    hidden = first.replace(key, "[redacted:api_key]")
    expected = derive_expected_result([first, second], redacted=lambda text: text.replace(key, "[redacted:api_key]"))
    assert expected is not None
    assert (expected.apart, hidden) == (("at", "key", "rows"), json.dumps(expected.value))
    assert describe_first_differing_field(expected, second) == ""
    assert describe_first_differing_field(expected, '{"total": 13}') == "total is 13, and should be 12"
    assert derive_expected_result(["1", "2"]) is None
    assert derive_expected_result(["x" * 100_000]) is None
    moved = derive_expected_result(["[1, 5]", "[1, 5]"], before=["[1, 4]"])
    assert moved == ReplyEqualsCheck(value=[1, 5], moved=("1",))
    assert drop_fields_that_changed_since_recording(moved) == ReplyEqualsCheck(value=[1, 5], apart=("1",))


def test_three_results_that_differ_where_they_are_compared_are_enough() -> None:
    known = [
        derive_expected_result([f'{{"n": {n}, "at": {at}}}', f'{{"n": {n}, "at": 0}}'])
        for n, at in ((1, 1), (1, 2), (2, 3), (3, 4))
    ]
    found = [one for one in known if one is not None]
    assert (has_enough_distinct_results(found), has_enough_distinct_results(found[:3])) == (True, False)


def test_a_program_that_asks_for_the_time_proves_nothing_about_tomorrow() -> None:
    assert is_using_time_or_random_numbers("from datetime import date\nprint(date.today())")
    assert is_using_time_or_random_numbers("import time\nprint(time.strftime('%Y'))")
    assert not is_using_time_or_random_numbers("from datetime import date\nprint(date.fromisoformat('2026-01-01'))")
