"""Mining: what was done again and again becomes a recipe that replays, and coincidence does not."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example
from hypothesis import given as given_examples
from hypothesis import strategies as st

from habitus.recipes.alignment import align_occurrences_into_recipe, can_recipe_replay_calls
from habitus.recipes.mining import MinedRecipe, mine_recipes, render_recipe_as_prose_steps
from habitus.recipes.sequences import ComparableToolCall, ObservedTurn
from habitus.redact import build_redaction_marker

pytestmark = pytest.mark.req("LA-03")

literals = st.text(max_size=12) | st.integers() | st.booleans() | st.lists(st.text(max_size=5), max_size=3)
arguments = st.one_of(
    st.tuples(st.just("literal"), literals),
    st.tuples(st.just("param"), st.sampled_from(["first", "second"])),
    st.tuples(st.just("within"), st.sampled_from(["first", "second"])),
    st.tuples(st.just("result"), st.just("")),
)
procedures = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), arguments, max_size=3), min_size=2, max_size=5)
Procedure = Sequence[Mapping[str, tuple[str, Any]]]


def run(procedure: Procedure, rng: random.Random) -> list[ComparableToolCall]:
    """The calls of a procedure, with new values for what varies."""
    params = {name: f"{name}{rng.randrange(10**9)}" for name in ("first", "second")}
    calls: list[ComparableToolCall] = []
    last = "nothing yet"
    for number, step in enumerate(procedure):
        given = {}
        for key, (kind, what) in step.items():
            if kind == "param":
                given[key] = params[what]
            elif kind == "within":
                given[key] = f"the {what} $ one: {params[what]}."
            else:
                given[key] = what if kind == "literal" else last
        last = f"id{rng.randrange(10**9)}" if number else last
        calls.append(ComparableToolCall(name=f"tool_{number}", arguments=given, result=json.dumps({"out": [last]})))
    return calls


def noise(rng: random.Random) -> ComparableToolCall:
    name = rng.choice(["look", "read", "wait", "tool_0", "tool_1"])
    return ComparableToolCall(
        name=name, arguments={"a": f"x{rng.randrange(10**9)}", "n": rng.randrange(3)}, result="fine"
    )


def journal(procedure: Procedure, rng: random.Random) -> list[ObservedTurn]:
    """Forty turns of anything, and five in which the procedure was done, with another call somewhere in between."""
    turns = [[noise(rng) for _ in range(rng.randint(1, 6))] for _ in range(40)]
    for _ in range(5):
        calls = run(procedure, rng)
        calls.insert(rng.randint(0, len(calls)), noise(rng))
        turns.insert(rng.randint(0, len(turns)), calls)
    return [ObservedTurn(session=f"s{n // 3}", turn=f"t{n}", calls=calls) for n, calls in enumerate(turns)]


@example([{}, {}, {"a": ("result", ""), "b": ("result", "")}], 23)  # its noise looks like a procedure of three steps
@given_examples(procedures, st.integers(0, 10**6))
def test_a_planted_procedure_is_found_and_does_runs_it_has_not_seen(procedure: Procedure, seed: int) -> None:
    kinds = [kind for step in procedure for kind, _ in step.values()]
    assume(kinds.count("literal") + kinds.count("result") >= 2 and len(procedure) > 2)
    rng = random.Random(seed)
    turns = journal(procedure, rng)
    (found,) = mine_recipes(turns)
    assert found.tools == tuple(f"tool_{number}" for number in range(len(procedure)))
    assert len(found.occurrences) == 5
    by_id = {turn.turn: turn for turn in turns}
    seen = [[by_id[one.turn].calls[place] for place in one.places] for one in found.occurrences]
    for one, calls in zip(found.occurrences, seen, strict=True):
        assert can_recipe_replay_calls(found.recipe, one.params, calls)
    again = align_occurrences_into_recipe(found.recipe.name, [*seen, run(procedure, rng), run(procedure, rng)])
    assert again.recipe.steps == found.recipe.steps


@pytest.mark.full
def test_nothing_is_found_where_the_calls_were_shuffled() -> None:
    step = {"a": ("literal", "x"), "b": ("within", "first"), "c": ("result", "")}
    found: list[MinedRecipe] = []
    for seed in range(40):
        rng = random.Random(seed)
        turns = journal([step, {"a": ("param", "first")}, step][: 2 + seed % 2], rng)
        calls = [call for turn in turns for call in turn.calls]
        rng.shuffle(calls)
        found += mine_recipes([replace(turn, calls=[calls.pop() for _ in turn.calls]) for turn in turns])
    assert found == []


def sale(month: str, number: int) -> list[ComparableToolCall]:
    return [
        ComparableToolCall(
            name="load", arguments={"file": f"sales-{month}.csv"}, result=json.dumps({"rows": [number, 7]})
        ),
        ComparableToolCall(
            name="add_up", arguments={"rows": [number, 7], "by": {"unit": "EUR", "digits": 2}}, result=f"{number + 7}"
        ),
        ComparableToolCall(name="mail", arguments={"to": "ann", "title": f"Sales of {month}"}, result="sent"),
    ]


MONTHS = ("2026-01", "2026-02", "2025-11")


def turns_of(*turns: Sequence[ComparableToolCall]) -> list[ObservedTurn]:
    return [ObservedTurn(session=f"s{n % 2}", turn=f"t{n}", calls=calls) for n, calls in enumerate(turns)]


def test_what_varies_is_a_parameter_what_came_back_a_reference_and_the_rest_a_literal() -> None:
    (found,) = mine_recipes(turns_of(*(sale(month, 1000 + n) for n, month in enumerate(MONTHS))))
    assert found.recipe.name == "load then add up then mail"
    assert found.recipe.params == {"month": "For example 2026-01, 2026-02"}
    assert found.recipe.steps == (
        {"tool": "load", "params": {"file": "sales-${month}.csv"}, "save_as": "load"},
        {"tool": "add_up", "params": {"rows": "${load.rows}", "by": {"unit": "EUR", "digits": 2}}},
        {"tool": "mail", "params": {"to": "ann", "title": "Sales of ${month}"}},
    )
    assert [one.params for one in found.occurrences] == [{"month": month} for month in MONTHS]
    assert (
        "1. Call `load`, and keep its result as `load`:\n  - file: `sales-${month}.csv`"
        in render_recipe_as_prose_steps(found.recipe)
    )


def test_two_turns_or_one_session_or_failures_are_no_habit() -> None:
    good = [sale(month, 1000 + n) for n, month in enumerate(MONTHS)]
    assert mine_recipes(turns_of(*good[:2])) == ()
    assert mine_recipes([replace(turn, session="one") for turn in turns_of(*good)]) == ()
    assert mine_recipes([replace(turn, ok=turn.turn != "t1") for turn in turns_of(*good)]) == ()
    failed = [[replace(call, success=call.name != "add_up") for call in calls] for calls in good]
    assert all("add_up" not in one.tools for one in mine_recipes(turns_of(*failed)))


def test_a_secret_is_never_a_literal_nor_a_link() -> None:
    secret = build_redaction_marker("known")
    turns = []
    for n, month in enumerate(MONTHS):
        login = ComparableToolCall(
            name="login", arguments={"key": secret, "site": "shop"}, result=json.dumps({"t": secret})
        )
        turns.append(
            [login, *(replace(c, arguments={**c.arguments, "token": f"B {secret}"}) for c in sale(month, 1000 + n))]
        )
    (found,) = mine_recipes(turns_of(*turns))
    assert "redacted" not in json.dumps([found.recipe.steps, found.recipe.params])
    assert found.recipe.steps[0]["params"] == {"key": "${key}", "site": "shop"}
    assert found.recipe.steps[1]["params"]["token"] == "${token}"


@pytest.mark.parametrize(
    "text", ["$HOME", "${x.y}", "a$$b", "- yes: no", "'\"\n\t#", "\x00\ue000", "é\u2028", "*x", "!tag"]
)
def test_literals_are_written_and_read_as_they_were(text: str) -> None:
    calls = [sale(month, 1000 + n) for n, month in enumerate(MONTHS)]
    odd = [[replace(call, arguments={**call.arguments, "odd": text}) for call in one] for one in calls]
    (found,) = mine_recipes(turns_of(*odd))
    assert "odd" not in found.recipe.params


def test_what_is_the_work_itself_makes_no_recipe() -> None:
    turns = [
        [
            ComparableToolCall(name="write", arguments={"text": f"{n} " * 400}),
            ComparableToolCall(name="save", arguments={"to": f"f{n}"}),
        ]
        for n in range(9)
    ]
    assert mine_recipes(turns_of(*turns)) == ()
