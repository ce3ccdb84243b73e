"""Patterns of checks: a stranger's can't hold up the process, and they mean what they mean in Python."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.app import Habitus, read_settings
from habitus.app.tasks.mining import find_paths_in_request
from habitus.app.use_cases.tasks import list_tasks
from habitus.errors import Invalid, ToolFailed
from habitus.files import build_tree_file
from habitus.tasks.checks import parse_check
from habitus.tasks.files import parse_tasks_toml
from habitus.tasks.judging import judge_submission
from habitus.tasks.model import Submission, Task
from habitus.tasks.patterns import has_pattern_match
from habitus.tasks.schema import fits_schema, validate_result_schema

_PARTS = (
    *("a", "é", "x", "1", "$", ".", "\n", r"\d", r"\w", r"\s", r"\W", r"\S", r"\D", r"\Z", r"\$", r"\\", r"\u00e9"),
    *("[a-z]", "[^a]", "[$]", "[]a]", r"[\w-]", r"[\d.]", "(?:a|x)", "(a)", "a*", "a+?", "x?", "a{2,3}", "^", "|"),
)
# Boundaries are those of ASCII, and look-around has no linear-time form.
_TEXTS = st.text(alphabet="aéx1 $.\n-_]\\٣", max_size=12)


@pytest.mark.req("IM-01")
async def test_a_pattern_that_backtracks_for_ever_is_answered_at_once() -> None:
    began = time.monotonic()
    for pattern in ("(a+)+$", "(a|aa)+$", "^(a|a?)+$", "(.*a){20}$"):
        check = parse_check({"kind": "matches", "pattern": pattern}, "the test")
        judged = await judge_submission(Task(id="1", request="x", checks=(check,)), Submission(reply="a" * 5_000 + "!"))
        assert not judged.outcome.is_ok
    assert not fits_schema({"type": "string", "pattern": "^(a|aa)+$"}, "a" * 5_000 + "!")
    assert time.monotonic() - began < 20


@pytest.mark.req("IM-01", "IM-02")
def test_patterns_that_would_compile_for_hours_are_refused_with_their_file() -> None:
    with pytest.raises(Invalid, match=r"pattern too large.*Use smaller repetitions"):
        parse_check({"kind": "matches", "pattern": r"[\pL]{0,1000}z"}, "the test")
    task = "[[task]]\nrequest = '{}'\nmatches = '{}'\n"
    many = "".join(task.format(number, rf"[\pL]{{0,{500 + number}}}") for number in range(50))
    with pytest.raises(Invalid, match="The patterns of a file are too large together"):
        parse_tasks_toml(many, about="a file")
    ordinary = "".join(task.format(number, rf"(?i)\b{number} (total|sum)s?\b\D{{0,20}}\d+") for number in range(500))
    assert len(parse_tasks_toml(ordinary, about="a file")) == 500


@pytest.mark.req("IM-01")
@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)"])
def test_what_has_no_linear_time_form_is_refused_with_a_hint(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid, match="Look-around and back-references are not supported"):
        parse_check({"kind": "matches", "pattern": pattern}, "the test")
    with pytest.raises(ToolFailed, match="look-around and back-references are not supported"):
        validate_result_schema({"type": "string", "pattern": pattern.replace("?P<", "?<").replace("?P=x", "?=x")})
    assert capfd.readouterr() == ("", "")


@pytest.mark.req("IM-01")
@given(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=4).map("".join), _TEXTS)
def test_a_pattern_means_what_it_means_in_python(pattern: str, text: str) -> None:
    try:
        expected = re.search(pattern, text) is not None
    except re.error:
        return
    # What follows `$` would have to match the newline that it left.
    if re.search(r"(?<!\\)\$(?!$)", pattern.replace("[$]", "")):
        return
    try:
        assert has_pattern_match(pattern, text) is expected
    except Invalid:
        assert re.search(r"\*\?|\+\?|[*+?}^$|][*+?{]|\\Z[*+?{]", pattern)  # which the engine reads more strictly


@pytest.mark.req("IM-01")
def test_the_engine_is_loaded_only_for_patterns() -> None:
    code = "import sys, habitus.tasks.judging; print('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.req("IM-01")
def test_the_patterns_of_all_files_of_a_skill_are_bounded_together(home: Path) -> None:
    rows = [{"prompt": f"Say {number}.", "matches": r"\w{500}" + str(number)} for number in range(90)]
    with Habitus.open(read_settings(home)) as habitus:
        tree = {
            "SKILL.md": build_tree_file(b"---\nname: say-it\ndescription: Says it.\n---\n1. Say it.\n"),
            "evals/evals.json": build_tree_file(json.dumps(rows).encode()),
        }
        habitus.skills.write_tree("user", "say-it", tree, habitus.build_author())
        with pytest.raises(Invalid, match="too large together"):
            list_tasks(habitus, "say-it")


@pytest.mark.req("IM-02")
def test_paths_in_a_long_request_are_found_in_time_that_grows_with_it() -> None:
    said = "Add up ./notes.csv and ~/data/more.txt, please."
    assert list(find_paths_in_request(said)) == ["./notes.csv", "~/data/more.txt"]
    began = time.process_time()
    assert list(find_paths_in_request("a-" * 50_000 + " " + "b." * 50_000)) == []
    assert time.process_time() - began < 5
