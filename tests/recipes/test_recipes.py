"""Recipes: checked line by line, run through the dispatcher of a session, offered by name, counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as given_examples
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.events import ToolResult, build_failed_outcome
from habitus.recipes.catalogue import parse_recipe_plans
from habitus.recipes.execution import MAX_CALLS, RecipePlan, execute_plan, replace_references_with_values
from habitus.skills.formats import recipes_md
from habitus.skills.formats.foreign_values import DiagnosticCollector

pytestmark = pytest.mark.req("LA-02")

REPORT = """# Recipes

## monthly report

Adds up a month.

```yaml
params:
  month: Which month, as YYYY-MM
  top: 3
steps:
  - tool: load
    params: {file: "sales-${month}.csv", options: {limit: $top}}
    save_as: rows
  - tool: mail
    when: {rows.count: 0}
    params: {text: "Nothing in $month for $$5"}
  - tool: add
    params: {rows: $rows, label: "$rows"}
    on_fail: slow
  - branch: end
branches:
  slow:
    - tool: add_slowly
      params: {rows: "${rows.items}"}
  end:
    - tool: mail
      optional: true
      when: {rows.outcome: ok}
```
"""


def plan_of(text: str) -> RecipePlan:
    ((made, problems),) = parse_recipe_plans(text.encode())
    assert problems == ()
    return made


class Desk:
    """Runs tools by a table, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any]] = []

    async def run(self, name: str, arguments: str) -> ToolResult:
        self.calls.append((name, json.loads(arguments)))
        answer = self.answers.get(name, "done")
        if isinstance(answer, Exception):
            return ToolResult(content="Error", outcome=build_failed_outcome(str(answer)))
        return ToolResult(content=answer if isinstance(answer, str) else json.dumps(answer))


async def test_parameters_results_conditions_and_branches() -> None:
    desk = Desk(load={"count": 2, "items": [1, 2]}, add=ValueError("too many"))
    done = await execute_plan(plan_of(REPORT), desk.run, {"month": "2026-10"})
    assert done.outcome.is_ok
    assert desk.calls == [
        ("load", {"file": "sales-2026-10.csv", "options": {"limit": 3}}),
        ("add", {"rows": {"count": 2, "items": [1, 2]}, "label": {"count": 2, "items": [1, 2]}}),
        ("add_slowly", {"rows": [1, 2]}),
        ("mail", {}),
    ]
    assert [step.outcome.is_ok for step in done.steps] == [True, False, True, True]
    empty = Desk(load={"count": 0, "items": []})
    await execute_plan(plan_of(REPORT), empty.run, {"month": "2026-11", "top": 1})
    assert empty.calls[1] == ("mail", {"text": "Nothing in 2026-11 for $5"})


async def test_a_missing_or_strange_parameter_is_an_error_before_the_first_step() -> None:
    desk = Desk()
    for params, said in (({}, "needs month"), ({"month": "x", "mnth": 1}, "has no parameter 'mnth'")):
        with pytest.raises(Invalid, match=said):
            await execute_plan(plan_of(REPORT), desk.run, params)
    assert desk.calls == []


async def test_a_failure_that_nothing_answers_stops_it_with_the_step() -> None:
    desk = Desk(load=ValueError("no such file"))
    done = await execute_plan(plan_of(REPORT), desk.run, {"month": "x"})
    assert (done.outcome.is_ok, done.outcome.reason) == (False, "step 1, load: no such file")
    assert len(desk.calls) == 1


async def test_what_never_ends_is_stopped() -> None:
    steps = "\n".join(f"  - tool: t{number}" for number in range(MAX_CALLS + 5))
    desk = Desk()
    done = await execute_plan(plan_of(f"## long\n```yaml\nsteps:\n{steps}\n```\n"), desk.run, {})
    assert (done.outcome.is_ok, len(desk.calls)) == (False, MAX_CALLS)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("steps: []", "it has no steps"),
        ("- tool: x\n  params: {a: $b}", "line 3: 'b' is neither a parameter nor saved by a step"),
        ("- tool: x\n- tol: y", "line 4: a step names either a tool or a branch"),
        ("- tool: x\n  branch: y", "line 3: a step names either a tool or a branch"),
        ("- branch: y", "line 3: there is no branch 'y'"),
        ("- tool: x\n  on_fail: y", "line 3: 'on_fail' names no branch: 'y'"),
        ("- tool: my_recipe", "line 3: it calls itself"),
        ("steps: [{branch: a}]\nbranches: {a: [{branch: b}], b: [{branch: a}]}", "the branch 'a' comes back to itself"),
        ("- tool: x\n  save_as: a b", "line 3: 'a b' can't be a name to save under"),
        ("- tool: 3", "line 3: 'tool' is not text"),
        ("params: {x: {type: date}}\nsteps: [{tool: t}]", "the parameter 'x' has the type 'date'"),
        ("- tool: x\n  retry: 3", "line 3: a step has no 'retry'"),
        ("steps: [\n", "can't be read, line "),
        ("a: &x [1]\nb: *x", "references"),
        ("just words", "neither a list of steps nor fields"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(block: str, problem: str) -> None:
    ((_, problems),) = parse_recipe_plans(f"## my recipe\n```yaml\n{block}\n```\n".encode())
    assert problem in " | ".join(map(str, problems))


values = st.recursive(
    st.text(max_size=20) | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@pytest.mark.full
@given_examples(values)
def test_what_has_no_references_is_left_as_it_is(value: Any) -> None:
    if not recipes_md.list_referenced_variable_names(value) and "$" not in json.dumps(value):
        assert replace_references_with_values(value, {}) == value


def test_a_bare_list_is_read_and_written_anew_as_a_block() -> None:
    (recipe,) = recipes_md.parse_recipes(b"## old\n```yaml\n- tool: x\n```\n", DiagnosticCollector(""))
    assert b"steps:\n- tool: x\n" in recipes_md.render_recipes([recipe])
