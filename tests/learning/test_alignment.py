"""What one failed call and those after it show, case by case: the remedy, or how the failure ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from habitus.events import tool_called, tool_returned
from habitus.learning.remedies.alignment import align_failure
from habitus.learning.remedies.calls import Call
from tests.learning.test_remedies import NOT_FOUND, ran

pytestmark = pytest.mark.req("EL-10")

NO_PYTEST, NO_JEST = ran("pytest", NOT_FOUND.format("pytest")), ran("make test", "sh: 1: jest: not found")
NO_X, NO_FILE = "No module named 'x'", "cat: a.yml: No such file or directory"
SYNC = ran("tool sync", "run 'tool login' first")
BAD = ran("tool go", "error: bad")
MISSING = 'npm error Missing script: "tests"'
BOOM = ran("make", "boom")
LOOKS = [ran(f"ls {number}") for number in range(40)]


def called(tool: str, arguments: Mapping[str, object], error: str = "") -> Call:
    (made,) = Call.read((tool_called(tool, arguments), tool_returned(tool, success=not error, error=error)))
    return replace(made, turn="1")


SLOW = called("Search", {"query": "x", "mode": "fast"}, "mode must be slow")

# The failed call, those after it, and what they come to: `change: wrong → right`, or the ending.
CASES: tuple[tuple[str, Call, list[Call]], ...] = (
    # Only what worked, with the same tool, within the window.
    ("nothing", NO_PYTEST, [ran("uv run pytest", "boom")]),
    ("nothing", NO_PYTEST, [ran("uv run pytest", tool="Shell")]),
    ("left", NO_PYTEST, [ran("uv run pytest || true")]),
    ("instead: pytest → poetry run pytest", NO_PYTEST, [ran("uv run pytest", "boom"), ran("poetry run pytest")]),
    ("instead: pytest → uv run pytest", NO_PYTEST, [*LOOKS[:39], ran("uv run pytest")]),
    ("nothing", NO_PYTEST, [*LOOKS, ran("uv run pytest")]),
    # The same again shows nothing by itself.
    ("retried", BOOM, [replace(ran("make"), turn="2")]),
    ("retried", ran("make test", "boom"), [ran("make  test")]),
    ("retried", ran("git add -A && git commit -m x && git push", "boom"), [ran("git commit -m x && git push")]),
    ("retried", NO_JEST, [ran("npm ci"), replace(ran("make test"), turn="2")]),
    ("nothing", BOOM, []),
    ("left", ran("git push", "boom"), [ran("vi x"), ran("git push mirror cart")]),
    ("guarded", ran("git push", "! [rejected]"), [ran("git push --force")]),
    # What an error says to run.
    ("first: tool sync → tool login", SYNC, [ran("tool login"), ran("tool sync")]),
    ("first: tool sync → tool login", SYNC, [ran("tool login"), ran("tool sync b")]),
    ("retried", SYNC, [ran("tool login", "no"), ran("tool sync")]),
    ("nothing", SYNC, [ran("tool login")]),
    (
        "first: tool sync → tool login && tool init",
        ran("tool sync", "run 'tool login' and 'tool init' first"),
        [ran("tool login"), ran("tool init"), ran("tool sync")],
    ),
    (
        "first: make → frobnicate all",
        ran("make", "boom: frobnicate it"),
        [ran("frobnicate all"), ran("rm x"), ran("make")],
    ),
    # A fault of the moment or the work at hand teaches only what the error itself advises.
    ("flags: npm i → npm i --slow", ran("npm i", "timed out; try --slow"), [ran("npm i --slow")]),
    (
        "first: tool sync → tool login",
        ran("tool sync", "timed out: run 'tool login'"),
        [ran("tool login"), ran("tool sync")],
    ),
    ("left", ran("npm i", "AssertionError"), [ran("npm i --slow")]),
    ("left", ran("grep cart src", "Exit code 1"), [ran("grep -i cart src")]),
    ("left", ran("python app.py", "KeyError: 'MODE'"), [ran(f"MODE={'x' * 170} python app.py")]),
    # The same in another place, under other variables, after another step, through something else.
    (
        "place: cd web && npm test → cd . && npm test",
        ran("cd web && npm test", "enoent package.json"),
        [ran("npm test")],
    ),
    ("left", ran("npm test", "boom"), [ran("cd web && CI=1 npm test")]),
    ("left", ran("MODE=dev python app.py", "KeyError: 'MODE'"), [ran("python app.py")]),
    ("left", ran("python app.py", "KeyError: 'MODE'"), [ran("touch x"), ran("MODE=dev python app.py")]),
    ("instead: make test → make build && make test", ran("make test", "boom"), [ran("make build && make test")]),
    ("instead: pytest → uv run pytest", ran("pytest a", NO_X), [ran("uv run pytest a")]),
    ("instead: pytest → uv run pytest", ran("pytest -q a", NO_X), [ran("uv run pytest a")]),
    ("nothing", ran("pytest -q a", NO_X), [ran("uv run pytest b")]),
    ("instead: ./run.sh → bash run.sh", ran("./run.sh a", "./run.sh: permission denied"), [ran("bash run.sh a")]),
    ("nothing", ran("./run.sh a", "./run.sh: permission denied"), [ran("bash run.sh b")]),
    ("nothing", ran("run.sh a", "run.sh: permission denied"), [ran("bash run.sh a")]),
    # For a program that is not there, another one.
    ("instead: python → python3", ran("python a.py", NOT_FOUND.format("python")), [ran("python3 a.py")]),
    ("variable: jest → PATH=bin jest", ran("jest a", NOT_FOUND.format("jest")), [ran("PATH=bin jest a")]),
    ("nothing", ran("jest a", NOT_FOUND.format("jest")), [ran("jest b")]),
    ("instead: fd → find -iname", ran("fd main", NOT_FOUND.format("fd")), [ran("find -iname main")]),
    (
        "instead: docker-compose → docker compose",
        ran("docker-compose up -d", NOT_FOUND.format("docker-compose")),
        [ran("docker compose up -d")],
    ),
    # Other words: flags at once or by the error's word, a name by its likeness, a subcommand.
    ("flags: tool go → tool go --quick", BAD, [ran("tool go --quick")]),
    ("flags: tool go → tool go --quick", BAD, [ran("tool foo", "no"), ran("tool go --quick")]),
    ("left", BAD, [ran("touch x"), ran("tool go --quick")]),
    ("left", BAD, [replace(ran("tool go --quick"), turn="2")]),
    ("left", BAD, [ran("tool go --help")]),
    (
        "flags: tool go → tool go --quick",
        ran("tool go", "error: needs --quick"),
        [ran("touch x"), ran("tool go --quick")],
    ),
    ("flags: tool go --fast → tool go", ran("tool go --fast", "error: unknown option --fast"), [ran("tool go")]),
    ("flags: tool go → tool go --to prod", ran("tool go", "give --to prod"), [ran("rm x"), ran("tool go --to prod")]),
    (
        "flags: curl https://a.b → curl -L https://a.b",
        ran("curl https://a.b", "needs -L"),
        [ran("curl -L https://a.b")],
    ),
    ("instead: tool go → tool go prod", ran("tool go", "error: target prod is needed"), [ran("tool go prod")]),
    (
        "name: npm run --silent tests → npm run --silent test",
        ran("npm run --silent tests", MISSING),
        [ran("npm run --silent test")],
    ),
    ("left", ran("npm run tests", MISSING), [ran("npm run lint")]),
    (
        "name: npm run tests → npm run check",
        ran("npm run tests", f"{MISSING}. Did you mean check?"),
        [ran("npm run check")],
    ),
    ("name: cat a.yml → cat conf/a.yml", ran("cat a.yml", NO_FILE), [ran("cat conf/a.yml")]),
    ("nothing", ran("cat a.yml", "boom"), [ran("cat conf/a.yml")]),
    ("nothing", ran("cp a b", "cp: a: No such file or directory"), [ran("cp c d")]),
    ("instead: tool x → tool run x", ran("tool x", "error: unknown command x"), [ran("tool run x")]),
    ("nothing", ran("tool x", "error: unknown command x"), [ran("touch y"), ran("tool run x")]),
    # The same, after something that answers the error, or the one thing that prepares.
    ("first: make test → npm ci", NO_JEST, [ran("npm ci"), ran("touch x"), ran("make test")]),
    ("first: make test → yarn install", NO_JEST, [ran("npm ci"), ran("yarn install"), ran("make test")]),
    ("first: python a.py → pip install x", ran("python a.py", NO_X), [ran("pip install x"), ran("python a.py")]),
    (
        "first: python a.py → source .venv/bin/activate",
        ran("python a.py", NO_X),
        [ran("source .venv/bin/activate"), ran("touch x"), ran("python a.py")],
    ),
    (
        "first: npm test → docker compose up -d",
        ran("npm test", "refused at localhost:5432"),
        [ran("docker compose up -d"), ran("touch x"), ran("npm test")],
    ),
    ("first: cat a.yml → touch a.yml", ran("cat a.yml", NO_FILE), [ran("touch a.yml"), ran("cat a.yml")]),
    ("left", ran("cat a.yml", NO_FILE), [ran("sed -i s/x/y/ a.yml"), ran("cat a.yml")]),
    ("first: make → mkdir out", BOOM, [ran("mkdir out"), ran("make")]),
    ("first: make → cd web && mkdir out", BOOM, [ran("cd web && mkdir out"), ran("make")]),
    ("first: make → mkdir out", ran("cd web && make", "boom"), [ran("cd web && mkdir out"), ran("cd web && make")]),
    ("left", BOOM, [ran("touch a"), ran("make")]),
    ("left", BOOM, [ran("mkdir out"), ran("mkdir in"), ran("make")]),
    ("left", BOOM, [ran("sed -i s/a/b/ x"), ran("make")]),
    ("retried", BOOM, [ran("mkdir out", "no"), ran("make")]),
    (
        "first: git pull → git stash",
        ran("git pull", "error: please stash your changes"),
        [ran("git stash"), ran("touch x"), ran("git pull")],
    ),
    ("left", ran("make", "boom: config.mk is wrong"), [ran("sed -i s/x/y/ config.mk"), ran("touch x"), ran("make")]),
    # Arguments of tools that are no shell.
    (
        "argument: path=src/mian.py → path=src/main.py",
        called("Read", {"path": "src/mian.py"}, "no such file src/mian.py"),
        [called("Read", {"path": "src/main.py"})],
    ),
    ("left", called("Read", {"path": "src/mian.py"}, "no file src/mian.py"), [called("Read", {"path": "README.md"})]),
    ("argument: mode=fast → mode=slow", SLOW, [called("Search", {"query": "x", "mode": "slow"})]),
    ("left", SLOW, [called("Write", {"a": 1}), called("Search", {"query": "x", "mode": "slow"})]),
    ("left", SLOW, [called("Search", {"query": "y", "mode": "slow"})]),
    ("left", SLOW, [called("Search", {"query": "x", "mode": "a b c slow"})]),
    ("left", called("Search", {"mode": "fast"}, "mode must be slow"), [called("Search", {"mode": "slow"})]),
    (
        "argument: mode=fast → ",
        called("Search", {"query": "x", "mode": "fast"}, "mode is not known"),
        [called("Search", {"query": "x"})],
    ),
    (
        "argument:  → mode=slow",
        called("Search", {"query": "x"}, "mode is missing"),
        [called("Search", {"query": "x", "mode": "slow"})],
    ),
    (
        "first:  → Read",
        called("Edit", {"path": "a"}, "Read it first"),
        [called("Read", {"path": "a"}), called("Edit", {"path": "a"})],
    ),
    (
        "first:  → open_project at=x",
        called("Edit", {"path": "a"}, "open_project was not called"),
        [called("open_project", {"at": "x"}), called("Edit", {"path": "a"})],
    ),
    (
        "first:  → git init",
        called("Edit", {"path": "a"}, "boom: run init"),
        [ran("git init"), called("Edit", {"path": "a"})],
    ),
)


def test_a_failed_call_is_aligned_with_what_came_after_it() -> None:
    for expected, failed, later in CASES:
        assert comes_to(failed, later) == expected, (failed.command or failed.summary, [one.command for one in later])


def comes_to(failed: Call, later: list[Call]) -> str:
    found = align_failure([failed, *later], 0)
    remedy = found.remedy
    if remedy is None:
        return found.ending.value
    return f"{remedy.change.value}: {' '.join(remedy.wrong)} → {' '.join(remedy.right)}"
