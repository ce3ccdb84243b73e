"""Tasks: read and written as files, and judged by every kind of check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.events import OK, Outcome, OutcomeKind, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.tasks.checks import CHECK_TYPES, Check, RubricCheck, check_to_row, parse_check
from habitus.tasks.files import parse_task, parse_tasks_toml, serialize_tasks
from habitus.tasks.judging import TaskJudgement, judge_submission
from habitus.tasks.model import Submission, Task, TaskOrigin, TaskOriginKind, TaskSolution, ToolCallOfAttempt

SCHEMA = {"type": "object", "required": ["total"]}
# kind → fields, a reply that passes, one that does not
OF_REPLY: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "contains": ({"text": "Total:  12"}, "the total: 12 EUR", "the total is 12"),
    "matches": ({"pattern": r"\b12\b"}, "it is 12.", "it is 120."),
    "equals": ({"path": "$.rows[0].sum", "value": 0.3}, '{"rows": [{"sum": 0.30000000000000004}]}', '{"rows": []}'),
    "shape": ({"schema": SCHEMA}, '{"total": 1}', '{"sum": 1}'),
}
TABLE = "region,revenue\nEU,10.5\nUS,20\n"
OF_FILE: Mapping[str, tuple[dict[str, Any], dict[str, str], dict[str, str]]] = {
    "file_exists": ({"path": "out/a.txt"}, {"out/a.txt": ""}, {}),
    "file_equals": ({"path": "a.txt", "content": "one\ntwo"}, {"a.txt": "one\r\ntwo\n"}, {"a.txt": "one"}),
    "table_equals": (
        {"path": "a.csv", "table": TABLE, "tolerance": 0.01},
        {"a.csv": "revenue,region\n10.504,EU\n20.0,US"},
        {"a.csv": "region,revenue\nEU,10.6\nUS,20"},
    ),
    "validator": ({"code": "check"}, {"passes": ""}, {}),
}


@dataclass
class Folder:
    files: Mapping[str, str] = field(default_factory=dict)

    async def read_file(self, path: str) -> bytes | None:
        return self.files[path].encode() if path in self.files else None

    async def run_code(self, code: str) -> Outcome:
        return OK if "passes" in self.files else build_failed_outcome("AssertionError")


def task(*rows: Mapping[str, Any]) -> Task:
    return parse_task({"request": "Sum it up.", "check": list(rows)}, "the test")


async def judged(row: Mapping[str, Any], submission: Submission) -> TaskJudgement:
    return await judge_submission(task(row), submission)


@pytest.mark.req("IM-01")
@pytest.mark.parametrize("kind", OF_REPLY)
async def test_what_is_said_is_judged(kind: str) -> None:
    row, good, bad = OF_REPLY[kind]
    passed = await judged({"kind": kind, **row}, Submission(reply=good))
    missed = await judged({"kind": kind, **row}, Submission(reply=bad))
    assert (passed.outcome.kind, passed.score) == (OutcomeKind.OK, 1.0), passed
    assert (missed.outcome.kind, missed.score) == (OutcomeKind.FAILED, 0.0), missed
    assert missed.outcome.reason


@pytest.mark.req("IM-01")
@pytest.mark.parametrize("kind", OF_FILE)
async def test_what_is_left_behind_is_judged(kind: str) -> None:
    row, good, bad = OF_FILE[kind]
    passed = await judged({"kind": kind, **row}, Submission(workspace=Folder(good)))
    missed = await judged({"kind": kind, **row}, Submission(workspace=Folder(bad)))
    nowhere = await judged({"kind": kind, **row}, Submission())
    assert [one.outcome.kind for one in (passed, missed, nowhere)] == ["ok", "failed", "infra"]


@pytest.mark.req("IM-01")
async def test_what_was_called_is_judged() -> None:
    made = Submission(
        calls=(ToolCallOfAttempt(tool="bash", command="cd src && git  rebase main"), ToolCallOfAttempt(tool="sql"))
    )
    for row, is_met in (
        ({"tool": "sql"}, True),
        ({"tool": "sq"}, False),
        ({"command": "git rebase"}, True),
        ({"command": "git reb"}, False),
    ):
        assert (await judged({"kind": "called", **row}, made)).outcome.is_ok is is_met, row


@pytest.mark.req("IM-01")
async def test_a_rubric_weighs_less_and_decides_only_alone() -> None:
    async def never(task: Task, rubric: RubricCheck, submission: Submission) -> Outcome:
        return build_failed_outcome("the model does not like it")

    async def away(task: Task, rubric: RubricCheck, submission: Submission) -> Outcome:
        return build_infrastructure_failure_outcome("the provider is away")

    rubric = {"kind": "rubric", "text": "It is polite."}
    both, alone, said = task({"kind": "contains", "text": "12"}, rubric), task(rubric), Submission(reply="12")
    liked = await judge_submission(both, said, ask=never)
    assert (liked.outcome, liked.score, [one.outcome.is_ok for one in liked.results]) == (OK, 0.8, [True, False])
    assert (await judge_submission(both, said)).score == 1.0
    assert (await judge_submission(alone, said, ask=never)).outcome.kind is OutcomeKind.FAILED
    assert (await judge_submission(alone, said, ask=away)).outcome == build_infrastructure_failure_outcome(
        "the provider is away"
    )
    assert (await judge_submission(alone, said)).outcome.kind is OutcomeKind.INFRA


@pytest.mark.req("IM-01")
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"kind": "contians", "text": "12"}, "Did you mean 'contains'?"),
        ({"text": "12"}, "is not a check"),
        ({"kind": "contains", "txt": "12"}, "Did you mean 'text'?"),
        ({"kind": "contains"}, "needs 'text'"),
        ({"kind": "contains", "text": 12}, "is not text"),
        ({"kind": "contains", "text": " "}, "is empty"),
        ({"kind": "matches", "pattern": "("}, "is not a pattern"),
        ({"kind": "shape", "schema": {"type": 12}}, "not valid JSON Schema"),
        ({"kind": "shape", "schema": {"$ref": "#"}}, "refers to itself"),
        ({"kind": "file_exists", "path": "../a"}, "not a path inside"),
        ({"kind": "file_exists", "path": "/etc/passwd"}, "not a path inside"),
        ({"kind": "table_equals", "path": "a.csv", "table": "", "tolerance": 1}, "has no header"),
        ({"kind": "table_equals", "path": "a.csv", "table": "a", "tolerance": -1}, "is not a number"),
        ({"kind": "called"}, "one of them"),
    ],
)
def test_a_check_that_nobody_knows_or_could_ask_is_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as refused:
        task(row)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.req("IM-01")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[task]\n", "is not TOML"),
        ("tasks = []", "where \\[\\[task\\]\\] belongs"),
        ("[[task]]\nexpect = 'a'", "no 'request'"),
        ("[[task]]\nrequest = 'a'", "There is no check"),
        ("[[task]]\nrequest = 'a'\nexpects = 'a'", "Did you mean 'expect'"),
        ("[[task]]\nrequest = 'a'\nexpect = 'a'\nfiles = { '../a' = '' }", "not a path inside"),
        ("[[task]]\nrequest = 'a'\nexpect = 'a'\norigin = 'mars'", "'origin' of .* is unknown"),
        (
            "[[task]]\nid = 'x'\nrequest = 'a'\nexpect = 'a'\n[[task]]\nid = 'x'\nrequest = 'b'\nexpect = 'b'",
            "two tasks",
        ),
    ],
)
def test_a_file_that_can_t_be_read_says_why(text: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        parse_tasks_toml(text, about="tasks.toml")


@pytest.mark.req("IM-01")
def test_short_forms_and_foreign_rows_are_the_same_task() -> None:
    short = parse_task(
        {"query": "Sum.", "expect": ["12"], "matches": "EUR", "should_trigger": True}, "x", is_foreign=True
    )
    rows = [{"kind": "contains", "text": "12"}, {"kind": "matches", "pattern": "EUR"}]
    assert short == parse_task({"request": "Sum.", "check": rows}, "x")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=6,
)
_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
_CHECKS = st.one_of(
    _WORDS.map(lambda text: {"kind": "contains", "text": text}),
    st.tuples(_JSON, st.lists(_WORDS, max_size=2)).map(
        lambda two: {"kind": "equals", "value": two[0], "path": "a.0", "apart": two[1]}
    ),
    st.just({"kind": "table_equals", "path": "a.csv", "table": TABLE, "tolerance": 0.5}),
    st.sampled_from([{"kind": "called", "tool": "sql"}, {"kind": "shape", "schema": SCHEMA}]),
)


@pytest.mark.req("IM-01")
@given(
    st.lists(_CHECKS.map(lambda row: parse_check(row, "x")), min_size=1, max_size=3),
    _WORDS,
    _JSON,
    st.booleans(),
    _WORDS,
)
def test_a_task_is_read_as_it_was_written(
    checks: list[Check], words: str, payload: Any, is_for_tool: bool, setup: str
) -> None:
    written = Task(
        id="one",
        request="" if is_for_tool else words,
        payload=payload if is_for_tool else None,
        files={"a.txt": words},
        setup=setup,
        checks=tuple(checks),
        origin=TaskOrigin(kind=TaskOriginKind.SESSION, conversation="c1", user="ann"),
        reviewed_by="ann",
        reference=TaskSolution(reply=words, calls=("sql",)),
        wrong=TaskSolution(code="pass"),
    )
    (read,) = parse_tasks_toml(serialize_tasks([written]), about="tasks.toml")
    assert read == written
    assert parse_task(written.as_json(), "x") == written


def test_every_kind_of_check_is_tried_here() -> None:
    assert {*OF_REPLY, *OF_FILE, "called", "rubric"} == set(CHECK_TYPES)
    assert check_to_row(RubricCheck(text="a")) == {"kind": "rubric", "text": "a"}
