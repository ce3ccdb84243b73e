"""Every promise is proved by a test, or written down as open with the reason."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = ROOT / "docs" / "requirements.md"

_BULLET = re.compile(r"^- (?P<id>[A-Z]{2}-\d{2})\b(?P<open> \[open(?P<colon>:)?(?P<reason>[^\]]*)\])?", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    id: str
    is_open: bool
    reason: str


def read_promises(text: str) -> list[Promise]:
    """The bullets `- SK-01 (E) …` and `- SK-08 [open: reason] (M) …`."""
    return [
        Promise(id=found["id"], is_open=found["open"] is not None, reason=(found["reason"] or "").strip())
        for found in _BULLET.finditer(text)
    ]


def read_marks(source: str) -> Iterator[str]:
    """The ids in `pytest.mark.req(…)` of tests that `make test` runs everywhere, wherever in a test file it stands."""
    return _marks(ast.parse(source))


def _marks(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "req":
        for argument in node.args:
            assert isinstance(argument, ast.Constant), "an id is written out, so that it can be found"
            yield str(argument.value)
    decorators = [ast.unparse(one) for one in getattr(node, "decorator_list", ())]
    if not any(one.startswith(("pytest.mark.full", "pytest.mark.skip")) for one in decorators):
        for child in ast.iter_child_nodes(node):
            yield from _marks(child)


def problems(promises: list[Promise], marked: set[str]) -> list[str]:
    known = {promise.id for promise in promises}
    found = [f"{name} is in a test and not in the requirements" for name in sorted(marked - known)]
    for promise in promises:
        if promise.is_open and not promise.reason:
            found.append(f"{promise.id} is open without a reason")
        if not promise.is_open and promise.id not in marked:
            found.append(f"{promise.id} is proved by no test and not open")
    twice = {promise.id for promise in promises if [p.id for p in promises].count(promise.id) > 1}
    return found + [f"{name} stands twice" for name in sorted(twice)]


def test_every_promise_is_proved_or_open_with_a_reason() -> None:
    assert PROMISES.is_file(), "docs/requirements.md is missing"
    promises = read_promises(PROMISES.read_text())
    assert promises, "docs/requirements.md has no line '- SK-01 (E) …'"
    marked = {name for path in sorted((ROOT / "tests").rglob("*.py")) for name in read_marks(path.read_text())}
    assert problems(promises, marked) == []
    begun = sorted(promise.id for promise in promises if promise.is_open and promise.id in marked)
    if begun:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"open, though tests prove a part of them: {', '.join(begun)}", stacklevel=1)


EXAMPLE = """
# Requirements
- SK-01 (E) Proved.
  SK-99 in running text is no bullet.
- SK-02 [open: needs the web] (M) Open.
- SK-03 [open] (M) Open for no reason.
- SK-04 [open: ] (M) Open for no reason either.
- SK-05 (M) Forgotten.
- CL-01 Without a source.
"""


def test_the_check_finds_what_it_is_for() -> None:
    promises = read_promises(EXAMPLE)
    assert [promise.id for promise in promises] == ["SK-01", "SK-02", "SK-03", "SK-04", "SK-05", "CL-01"]
    assert promises[1] == Promise(id="SK-02", is_open=True, reason="needs the web")
    assert problems(promises, {"SK-01", "SK-77"}) == [
        "SK-77 is in a test and not in the requirements",
        "SK-03 is open without a reason",
        "SK-04 is open without a reason",
        "SK-05 is proved by no test and not open",
        "CL-01 is proved by no test and not open",
    ]


def test_marks_are_found_wherever_they_stand() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.req("SK-01")]
@pytest.mark.req("SK-02", "SK-03")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.req("SK-04"))])
def test_x(x): ...
@pytest.mark.full
@pytest.mark.req("SK-05")
def test_only_in_test_full(): ...
@pytest.mark.req("SK-06")
@pytest.mark.skipif(True, reason="not here")
def test_not_everywhere(): ...
"""
    assert sorted(read_marks(source)) == ["SK-01", "SK-02", "SK-03", "SK-04"]
    with pytest.raises(AssertionError, match="written out"):
        list(read_marks("pytest.mark.req(name)"))
