"""What one failed call and those after it show, case by case: the remedy, or how the failure ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from habitus.events import build_tool_call_event, build_tool_result_event
from habitus.learning.remedies.alignment import find_remedy_in_later_calls
from habitus.learning.remedies.calls import SessionCall
from tests.learning.test_remedies import ran

pytestmark = pytest.mark.req("EL-10")

# A line a case: the calls in their order, a failed one with its error behind `!`, one of the next turn with `@` before
# it; behind `=>` what they come to: an ending, or how the call that worked differs, what was wrong, what is right.
CASES = """
only what worked, within the window, with nothing after it that hides how it ended
  pytest ! pytest: command not found / uv run pytest ! boom => nothing
  pytest ! pytest: command not found / uv run pytest ! boom / poetry run pytest => instead: pytest → poetry run pytest
  pytest ! pytest: command not found / uv run pytest || true => left
the same again shows nothing by itself
  make ! boom => nothing
  make ! boom / @make => retried
  make test ! boom / make  test => retried
  make test ! boom / ls && make test => retried
  make test ! boom / mkdir y / @ls && make test => retried
  make test ! boom / mkdir y / @touch z && make test => left
  make test ! sh: 1: jest: not found / npm ci / @make test => retried
  git add -A && git commit -m x && git push ! boom / git commit -m x && git push => retried
  git push ! boom / vi x / git push mirror cart => left
  git push ! [rejected] / git push --force => guarded
what an error says to run
  tool sync ! run 'tool login' first / tool login / tool sync => first: tool sync → tool login
  tool sync ! run 'tool login' first / tool login / tool sync b => first: tool sync → tool login
  make ! do orm gen, orm seed / pnpm orm gen / pnpm orm seed / make => first: make → pnpm orm gen && pnpm orm seed
  tool sync ! run 'tool login' first / tool login ! no / tool sync => retried
  tool sync ! run 'tool login' first / tool login => bypassed
  tool go ! 'tool sign', 'tool init' / tool sign / tool init / tool go => first: tool go → tool sign && tool init
  make ! boom: frobnicate it / frobnicate all / rm x / make => first: make → frobnicate all
a fault of the moment or the work at hand teaches only what the error itself advises
  npm i ! timed out; try --slow / npm i --slow => flags: npm i → npm i --slow
  tool sync ! timed out: run 'tool login' / tool login / tool sync => first: tool sync → tool login
  npm i ! AssertionError / npm i --slow => left
  npm i ! timed out on prod / npm i --to prod => left
  grep cart src ! Exit code 1 / grep -i cart src => left
in another place, under other variables, after another step, through something else
  cd web && npm test ! enoent package.json / npm test => place: cd web && npm test → cd . && npm test
  npm test ! boom / cd web && CI=1 npm test => left
  python app.py ! KeyError: 'MODE' / MODE=dev python app.py => variable: python app.py → MODE=dev python app.py
  MODE=dev python app.py ! KeyError: 'MODE' / python app.py => left
  python app.py ! KeyError: 'MODE' / touch x / MODE=dev python app.py => left
  make test ! boom / make build && make test => instead: make test → make build && make test
  pytest a ! No module named 'x' / uv run pytest a => instead: pytest → uv run pytest
  pytest -q a ! No module named 'x' / uv run pytest a => instead: pytest → uv run pytest
  pytest -q a ! No module named 'x' / uv run pytest b => bypassed
  ./run.sh a ! ./run.sh: permission denied / bash run.sh a => instead: ./run.sh → bash run.sh
  ./run.sh a ! ./run.sh: permission denied / bash run.sh b => bypassed
  run.sh a ! run.sh: permission denied / bash run.sh a => bypassed
another program for one that is not there
  python a.py ! python: command not found / python3 a.py => instead: python → python3
  jest a ! jest: command not found / PATH=bin jest a => variable: jest → PATH=bin jest
  jest a ! jest: command not found / jest b => bypassed
  fd main ! fd: command not found / find -iname main => instead: fd → find -iname
  docker-compose up ! docker-compose: command not found / docker compose up => instead: docker-compose → docker compose
  fd main src ! fd: command not found / find src -name '*main*' => instead: fd → find
  fd main src ! fd: command not found / find src -name '*test*' => bypassed
  fd main src ! fd: command not found / touch x / find src -name '*main*' => bypassed
  fd -H ab ! fd: command not found / find . -name abc => bypassed
got further than the failed one, if what it has more is in a call that worked
  tf plan ! no account / A=ro tf plan ! no backend / tf init / A=ro tf plan => variable: tf plan → A=ro tf plan
  tf plan ! no account / A=ro tf plan ! no backend / tf init / tf plan => first: tf plan → tf init
  tf plan ! no account / A=ro tf plan ! no account / tf init / A=ro tf plan => left
  tf plan ! no account / A=ro tf plan ! unknown option --x / tf init / A=ro tf plan => left
  tf plan ! no account / A=ro tf plan ! no backend => nothing
the same task by another program, at once
  npm install ! ERESOLVE / pnpm install => instead: npm install → pnpm install
  npm install ! ERESOLVE / touch x / pnpm install => bypassed
  npm install ! ERESOLVE / pnpm install -D => bypassed
  npm install ! ERESOLVE / cd web && pnpm install => bypassed
  npm -v ! ERESOLVE / pnpm -v => bypassed
  make ! boom / ninja => bypassed
  npm install ! ERESOLVE / ls => nothing
  npm install ! ERESOLVE / ls / pnpm add x => nothing
  cat a ! boom / ls => bypassed
another mode of the program prepares
  cmake --build out ! boom / cmake -B out / cmake --build out => first: cmake --build → cmake -B out
  cmake --build out ! boom / cmake -B out / cmake --build out -j4 => first: cmake --build → cmake -B out
  cmake --build out ! boom / cmake -B out / @cmake --build out -j4 => retried
  cmake --build out ! boom / cmake -B out / cmake --build other => flags: cmake --build → cmake -B
  cmake --build out ! boom / cmake -B out ! no / cmake --build out => retried
  cmake --build out ! boom / cmake -B out / cd web && cmake --build out => flags: cmake --build → cmake -B
  tool go ! boom / tool go --quick / tool go => flags: tool go → tool go --quick
  tool --all ! boom / tool all / tool --all => left
flags at once or by the error's word, a name by its likeness, a subcommand
  tool go ! error: bad / tool go --quick => flags: tool go → tool go --quick
  tool go ! error: bad / tool foo ! no / tool go --quick => flags: tool go → tool go --quick
  tool go ! error: bad / touch x / tool go --quick => left
  tool go ! error: bad / @tool go --quick => left
  tool go ! error: bad / tool go --help => left
  tool go ! error: bad / tool go --to go --now => flags: tool go → tool go --to go --now
  tool go ! needs --quick / touch x / tool go --quick => flags: tool go → tool go --quick
  tool go --fast ! unknown option --fast / tool go => flags: tool go --fast → tool go
  tool go ! give --to prod / rm x / tool go --to prod => flags: tool go → tool go --to prod
  curl https://a.b ! needs -L / curl -L https://a.b => flags: curl https://a.b → curl -L https://a.b
  tool go ! target prod is needed / tool go prod => instead: tool go → tool go prod
  tool go ! needs a.txt and b.txt / tool go a.txt b.txt => flags: tool go → tool go a.txt b.txt
  tool go x.txt y.txt ! needs a.txt and b.txt / tool go a.txt b.txt => left
  npm run -s tests ! Missing script: "tests" / npm run -s test => name: npm run -s tests → npm run -s test
  npm run tests ! Missing script: "tests" / npm run lint => left
  npm run tests ! Missing script: "tests", not check / npm run check => name: npm run tests → npm run check
  cat a.yml ! cat: a.yml: No such file or directory / cat conf/a.yml => name: cat a.yml → cat conf/a.yml
  cat a.yml ! boom / cat conf/a.yml => left
  cp a b ! cp: a: No such file or directory / cp c d => bypassed
  tool x ! unknown command x / tool run x => instead: tool x → tool run x
  tool x ! unknown command x / touch y / tool run x => bypassed
after something that answers the error, or the one thing that prepares
  make test ! sh: 1: jest: not found / npm ci / touch x / make test => first: make test → npm ci
  make test ! sh: 1: jest: not found / npm ci / yarn install / make test => first: make test → yarn install
  python a.py ! No module named 'x' / pip install x / python a.py => first: python a.py → pip install x
  python a.py ! No module named 'x' / . bin/activate / touch x / python a.py => first: python a.py → . bin/activate
  npm test ! refused at localhost:5432 / podman start db / rm x / npm test => first: npm test → podman start db
  cat a.yml ! cat: a.yml: No such file or directory / touch a.yml / cat a.yml => first: cat a.yml → touch a.yml
  cat a.yml ! cat: a.yml: No such file or directory / sed -i s,x,y, a.yml / cat a.yml => left
  make ! boom / mkdir out / make => first: make → mkdir out
  make ! boom / sso relogin / make => first: make → sso relogin
  tool -it a.txt b.txt ! boom / mkdir out / tool -it a.txt b.txt => first: tool -it → mkdir out
  tool -n a.txt b.txt ! boom / mkdir out / tool -n a.txt b.txt => first: tool → mkdir out
  make ! boom in the lib / gen lib / touch x / make => left
  make ! boom / cd web && mkdir out / make => first: make → cd web && mkdir out
  cd web && make ! boom / cd web && mkdir out / cd web && make => first: make → mkdir out
  make ! boom / touch a / make => left
  make ! boom / mkdir out / mkdir in / make => left
  make ! boom / sed -i s,a,b, x / make => left
  make ! boom / mkdir out ! no / make => retried
  git pull ! please stash your changes / git stash / touch x / git pull => first: git pull → git stash
  make ! boom: config.mk is wrong / sed -i s,x,y, config.mk / touch x / make => left
"""


def test_a_failed_command_is_aligned_with_what_came_after_it() -> None:
    for case in (line.strip() for line in CASES.splitlines() if line.startswith("  ")):
        line, _, expected = case.partition(" => ")
        assert comes_to([_read(one.strip()) for one in line.split(" / ")]) == expected, case


def _read(written: str) -> SessionCall:
    command, _, error = written.partition(" ! ")
    return ran(command.removeprefix("@"), error, turn="2" if command.startswith("@") else "1")


def comes_to(calls: Sequence[SessionCall]) -> str:
    found = find_remedy_in_later_calls(calls, 0)
    remedy = found.remedy
    if remedy is None:
        return found.ending.value
    return f"{remedy.change.value}: {' '.join(remedy.wrong)} → {' '.join(remedy.right)}"


def test_only_the_same_tool_within_the_window_and_what_can_be_quoted_counts() -> None:
    failed, looks = ran("pytest", "pytest: command not found"), [ran(f"ls {number}") for number in range(40)]
    assert comes_to([failed, ran("uv run pytest", tool="Shell")]) == "nothing"
    assert comes_to([failed, *looks[:39], ran("uv run pytest")]) == "instead: pytest → uv run pytest"
    assert comes_to([failed, *looks, ran("uv run pytest")]) == "nothing"
    assert comes_to([ran("python app.py", "KeyError: 'MODE'"), ran(f"MODE={'x' * 170} python app.py")]) == "left"


def called(tool: str, error: str = "", **arguments: object) -> SessionCall:
    (made,) = SessionCall.list_from_events(
        (build_tool_call_event(tool, arguments), build_tool_result_event(tool, success=not error, error=error))
    )
    return replace(made, turn="1")


SLOW = called("Search", "mode must be slow", query="x", mode="fast")
MISSPELT = called("Read", "no such file src/mian.py", path="src/mian.py")
TOOLS: Mapping[str, list[list[SessionCall]]] = {
    "argument: path=src/mian.py → path=src/main.py": [[MISSPELT, called("Read", path="src/main.py")]],
    "argument: mode=fast → mode=slow": [[SLOW, called("Search", query="x", mode="slow")]],
    "argument: mode=fast → ": [
        [called("Search", "mode is not known", query="x", mode="fast"), called("Search", query="x")]
    ],
    "argument:  → mode=slow": [
        [called("Search", "mode is missing", query="x"), called("Search", query="x", mode="slow")]
    ],
    "left": [
        [MISSPELT, called("Read", path="README.md")],
        [SLOW, called("Write", a=1), called("Search", query="x", mode="slow")],
        [SLOW, called("Search", query="y", mode="slow")],
        [SLOW, called("Search", query="x", mode="a b c slow")],
        [called("Search", "mode must be slow", mode="fast"), called("Search", mode="slow")],
    ],
    "first:  → Read": [[called("Edit", "Read it first", path="a"), called("Read", path="a"), called("Edit", path="a")]],
    "first:  → open_it at=x": [
        [called("Edit", "open_it was not called", path="a"), called("open_it", at="x"), called("Edit", path="a")]
    ],
    "first:  → git init": [[called("Edit", "boom: run init", path="a"), ran("git init"), called("Edit", path="a")]],
}


def test_a_failed_call_of_another_tool_is_aligned_by_its_arguments() -> None:
    for expected, cases in TOOLS.items():
        for calls in cases:
            assert comes_to(calls) == expected, [call.arguments_summary for call in calls]
