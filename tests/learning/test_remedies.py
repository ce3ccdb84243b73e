"""What failed, and what worked next: the laws of alignment, and what many sessions make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.app import Habitus
from habitus.app.learning.learning import find_known_remedy_for_failure
from habitus.events import build_tool_call_event, build_tool_result_event
from habitus.learning.remedies import wording
from habitus.learning.remedies.alignment import NoRemedyReason, find_remedy_in_later_calls
from habitus.learning.remedies.calls import SessionCall, parse_shell_commands
from habitus.learning.remedies.findings import RemedyFindings, collect_remedy_findings
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsCollector
from habitus.learning.transcripts.model import TranscriptTurn, UserStopKind, UserUtterance

NOW = datetime(2026, 6, 1, tzinfo=UTC)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NOT_FOUND = "Exit code 127\n/bin/bash: line 1: {}: command not found"


def ran(command: str, error: str = "", *, turn: str = "1", tool: str = "Bash", cwd: str = "") -> SessionCall:
    events = (
        build_tool_call_event(tool, {"command": command}, cwd=cwd),
        build_tool_result_event(tool, success=not error, error=error),
    )
    (made,) = SessionCall.list_from_events(events)
    return replace(made, turn=turn)


def session(
    number: int, *calls: SessionCall, said: Sequence[UserUtterance] = (), project: str = "/srv/shop"
) -> FailuresAndCorrectionsCollector:
    """As a transcript would tell it."""
    events = []
    for index, call in enumerate(calls):
        at = f"2026-05-{number:02}T10:{index:02}:00Z"
        args = {"command": call.command}
        events.append(
            build_tool_call_event(call.name, args, call_id=str(index), at=at, cwd=f"{project}/{call.cwd}".rstrip("/"))
        )
        events.append(
            build_tool_result_event(call.name, success=call.success, error=call.error, call_id=str(index), at=at)
        )
    reader = FailuresAndCorrectionsCollector(session=str(number), project=project)
    reader.add_turn(TranscriptTurn(id="1", events=tuple(events), utterances=tuple(said)))
    return reader


def found(*sessions: FailuresAndCorrectionsCollector) -> RemedyFindings:
    return collect_remedy_findings(each.build_facts() for each in sessions)


def lessons(*sessions: FailuresAndCorrectionsCollector) -> list[str]:
    return [
        f"{wording.describe_remedy_lesson(each)} ({wording.describe_frequency_and_last_seen(each, NOW)})"
        for each in found(*sessions).lessons
    ]


NEXT = {
    "through what runs it": (
        [ran("pytest -q", NOT_FOUND.format("pytest")), ran("uv run pytest -x tests")],
        "In this project run `uv run pytest`; `pytest` alone is not found. (2 sessions, last in May)",
    ),
    "another directory": (
        [ran("npm test", "npm error enoent Could not read package.json"), ran("cd web && npm test")],
        "In this project run `cd web && npm test`; `npm test` does not find a file. (2 sessions, last in May)",
    ),
    "a variable": (
        [ran("python app.py", "KeyError: 'MODE'"), ran("MODE=dev python app.py")],
        'In this project run `MODE=dev python app.py` when `python app.py` says "KeyError". (2 sessions, last in May)',
    ),
    "after another call": (
        [ran("make test", "sh: 1: jest: not found"), ran("npm ci"), ran("make test")],
        "In this project run `npm ci` first when `make test` does not find the program `jest`. "
        "(2 sessions, last in May)",
    ),
    "another word": (
        [ran("npm run tests", 'npm error Missing script: "tests"'), ran("npm run test")],
        "In this project run `npm run test`; `npm run tests` is not known. (2 sessions, last in May)",
    ),
}


@pytest.mark.parametrize(
    ("call", "errors", "remedy"),
    [
        (
            "npm install",
            ("npm error ERESOLVE unable to resolve dependency tree", "npm error Invalid Version: x"),
            "pnpm install",
        ),
        ("python app.py", ("KeyError: 'MODE'", "RuntimeError: the mode is not set"), "MODE=dev python app.py"),
    ],
)
def test_two_errors_are_two_remedies_each_with_its_condition(call: str, errors: tuple[str, str], remedy: str) -> None:
    each = [session(number, ran(call, error), ran(remedy)) for number, error in enumerate(errors * 2, start=1)]
    told = lessons(*each)
    assert len(told) == 2
    assert all(" says " in one for one in told)


NO_ROLLBACK = "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
NO_CACHE = "Error: not a CMake build directory (missing CMakeCache.txt)"
REFUSED = "psql: error: connection to server at localhost, port 5433 failed: Connection refused"
NO_BACKEND = 'Error: Backend initialization required, please run "terraform init"'
NO_LOGIN = "error: You must be logged in to the server (Unauthorized)"
NEXT |= {
    "with its condition": (
        [ran("helm upgrade api ./chart", NO_ROLLBACK), ran("helm rollback api"), ran("helm upgrade api ./chart")],
        'In this project run `helm rollback api` first when `helm upgrade api` says "another operation is in progress".'
        " (2 sessions, last in May)",
    ),
    "a preparation by the same program": (
        [ran("cmake --build out", NO_CACHE), ran("cmake -B out"), ran("cmake --build out -j4")],
        'In this project run `cmake -B out` first when `cmake --build` says "not a CMake build directory".'
        " (2 sessions, last in May)",
    ),
    "a command with an option before its subcommand": (
        [
            ran("kubectl -n shop get pods", "error: You must be logged in to the server (Unauthorized)"),
            ran("aws sso login --profile shop"),
            ran("kubectl -n shop get pods"),
        ],
        'In this project run `aws sso login --profile shop` first when `kubectl` says "You must be logged in to the'
        ' server". (2 sessions, last in May)',
    ),
    "the same goal by another program": (
        [ran("npm install", "npm error ERESOLVE unable to resolve dependency tree"), ran("pnpm install")],
        "In this project run `pnpm install` when `npm install` says"
        ' "npm error ERESOLVE unable to resolve dependency tree". (2 sessions, last in May)',
    ),
    "the same search by another program": (
        [ran("fd settings src", NOT_FOUND.format("fd")), ran("find src -name '*settings*'")],
        "In this project run `find`; `fd` is not found. (2 sessions, last in May)",
    ),
    "through a program that nobody knows": (
        [ran("terraform plan", "Error: No valid credential sources found"), ran("vault exec dev -- terraform plan")],
        "In this project run `vault exec dev -- terraform plan` when `terraform plan` says"
        ' "No valid credential sources found". (2 sessions, last in May)',
    ),
    "inside a container, with fewer words": (
        [
            ran("psql -h localhost -U shop", "could not connect to localhost: Connection refused"),
            ran("docker compose exec db psql -U shop"),
        ],
        "In this project run `docker compose exec db psql`; `psql` alone finds no server running."
        " (2 sessions, last in May)",
    ),
    "as far as the test that is red": (
        [
            ran("go test ./a", "go: go.mod requires go >= 1.24.0 (running go 1.22.5)"),
            ran("GOTOOLCHAIN=auto go test ./a", "--- FAIL: TestLimit (0.00s)"),
        ],
        'In this project run `GOTOOLCHAIN=auto go test` when `go test` says "requires go". (2 sessions, last in May)',
    ),
    "more options": (
        [ran("terraform plan", "Error: No value for required variable"), ran("terraform plan -var-file=a -out plan")],
        "In this project run `terraform plan -var-file=a -out plan` when `terraform plan` says"
        ' "No value for required variable". (2 sessions, last in May)',
    ),
    "variables from a file": (
        [
            ran("mix test", "FATAL 28P01 password authentication failed for user app"),
            ran("set -a && . ./.env.test && mix test"),
        ],
        "In this project run `set -a && . ./.env.test && mix test` when `mix test` says"
        ' "password authentication failed for user app". (2 sessions, last in May)',
    ),
    "an option that both calls have": (
        [
            ran("pio test -e native", "src/crc.cpp:3:10: fatal: Arduino.h: No such file or directory"),
            ran("pio test -e native --filter host"),
        ],
        "In this project run `pio test -e native --filter host`; `pio test -e native` does not find `Arduino.h`."
        " (2 sessions, last in May)",
    ),
    "an option whose value is another argument": (
        [
            ran("helm upgrade api charts", "Error: release: not found in namespace"),
            ran("helm upgrade -n api api charts"),
        ],
        'In this project run `helm upgrade -n api` when `helm upgrade` says "not found in namespace".'
        " (2 sessions, last in May)",
    ),
}


@pytest.mark.req("EL-10")
@pytest.mark.parametrize("case", NEXT)
def test_what_worked_next_in_two_sessions_is_a_lesson_and_in_one_a_candidate(case: str) -> None:
    calls, text = NEXT[case]
    assert lessons(session(1, *calls), session(2, *calls)) == [text]
    once = found(session(1, *calls))
    assert (once.lessons, [wording.describe_remedy_lesson(each) for each in once.candidates]) == (
        (),
        [text.partition(" (")[0]],
    )


@pytest.mark.req("EL-10")
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            [ran("helm upgrade api x", NO_ROLLBACK), ran("helm rollback api 4 -n eu"), ran("helm upgrade api x")],
            [ran("helm upgrade web y", NO_ROLLBACK), ran("helm rollback web -n us"), ran("helm upgrade web y")],
            'run `helm rollback … -n …` first when `helm upgrade` says "another operation is in progress"',
        ),
        (
            [ran("psql -c 1", REFUSED), ran("docker compose up -d db && sleep 3"), ran("psql -c 1")],
            [ran("psql -l", REFUSED), ran("docker compose up --detach db"), ran("psql -l")],
            "run `docker compose up … db` first when `psql` finds no server running",
        ),
        (
            [ran("terraform plan", NO_BACKEND), ran("terraform init -backend-config=eu.hcl"), ran("terraform plan")],
            [ran("terraform state", NO_BACKEND), ran("terraform init -backend-config=us.hcl"), ran("terraform state")],
            'run `terraform init -backend-config=…` first when `terraform` says "Backend initialization required"',
        ),
        (
            [ran("kubectl get pods", NO_LOGIN), ran("aws eks update-kubeconfig --name eu"), ran("kubectl get pods")],
            [ran("kubectl top pods", NO_LOGIN), ran("aws eks update-kubeconfig --name eu"), ran("kubectl top pods")],
            'run `aws eks update-kubeconfig --name eu` first when `kubectl` says "You must be logged in to the server"',
        ),
    ],
)
def test_a_preparation_is_one_remedy_whatever_its_arguments(
    first: list[SessionCall], second: list[SessionCall], text: str
) -> None:
    assert lessons(session(1, *first), session(2, *second)) == [f"In this project {text}. (2 sessions, last in May)"]


FAILED = ran("flash board", "probe: somebody else holds the device")
UNREACHED = ran("python report.py", "HTTPConnectionError: connection refused by 10.0.0.7")
CONFIRMED = {
    "a step of the same line": (
        [[ran("west build", NOT_FOUND.format("west")), ran("source env/activate; west build -p always")]],
        [[ran("west build", NOT_FOUND.format("west")), ran("which west"), ran(". env/activate && west flash")]],
        "run `. env/activate && west`; `west` alone is not found",
    ),
    "one of several steps": (
        [[FAILED, ran("mkdir -p out"), ran("systemctl stop agent"), ran("flash board")]],
        [[FAILED, ran("systemctl stop agent; sync; flash board --slow")]],
        'run `systemctl stop agent` first when `flash board` says "somebody else holds the device"',
    ),
    "two steps that both had": (
        [[FAILED, ran("usb kill-server"), ran("usb start-server"), ran("flash board")]],
        [[FAILED, ran("usb kill-server && usb start-server && flash board")]],
        'run `usb kill-server && usb start-server` first when `flash board` says "somebody else holds the device"',
    ),
    "what starts what refused": (
        [[UNREACHED, ran("docker compose -f ~/stack/dev.yaml up -d db"), ran("python report.py")]],
        [[UNREACHED, ran("docker compose -f ~/stack/dev.yaml up -d db && sleep 2 && python report.py --all")]],
        'run `docker compose -f ~/stack/dev.yaml up -d db` first when `python report.py` says "connection refused by"',
    ),
    "one of several flags": (
        [[ran("west build -b x", "fatal: the board has changed"), ran("west build -p always -b x -t run")]],
        [[ran("west build -b y", "fatal: the board has changed"), ran("west build -p always -b y")]],
        'run `west build -p always` when `west build` says "the board has changed"',
    ),
}


@pytest.mark.req("EL-10", "CL-08")
@pytest.mark.parametrize("case", CONFIRMED)
def test_what_one_session_leaves_open_another_confirms(case: str) -> None:
    first, second, expected = CONFIRMED[case]
    (told,) = lessons(*(session(number, *calls) for number, calls in enumerate((*first, *second), start=1)))
    assert told == f"In this project {expected}. (2 sessions, last in May)"


@pytest.mark.req("EL-10", "CL-08")
def test_steps_that_differ_each_time_confirm_nothing() -> None:
    between = ("mkdir -p out", "systemctl stop agent", "npm install")
    told = found(*(session(day, FAILED, ran(step), ran("flash board")) for day, step in enumerate(between)))
    assert [each.remedy.right for each in told.lessons] == []


@pytest.mark.req("EL-10", "CL-08")
def test_what_worked_without_the_step_too_is_no_remedy() -> None:
    calls = [FAILED, ran("mkdir -p out"), ran("systemctl stop agent"), ran("flash board")]
    told = found(session(1, *calls), session(2, *calls), session(3, FAILED, ran("flash board")))
    assert told.lessons == ()


@pytest.mark.req("CL-08")
def test_a_step_that_deletes_a_lock_is_known_as_such() -> None:
    calls = [ran("tar_make", "error: another pipeline holds the lock"), ran("rm meta/process"), ran("tar_make")]
    told = found(session(1, *calls), session(2, *calls))
    assert [each.has_destructive_step for each in told.lessons] == [True]


NOT_NEXT = {
    "a failing test": [ran("pytest", "1 failed, 3 passed"), ran("uv run pytest")],
    "a transient fault": [ran("npm i", "npm error ETIMEDOUT"), ran("npm i --prefer-offline")],
    "a flaky retry": [ran("make", "boom"), ran("make")],
    "another goal": [ran("npm run tests", 'npm error Missing script: "tests"'), ran("npm run lint")],
    "another target": [ran("cat a.yml", "cat: a.yml: No such file or directory"), ran("cat README.md")],
    "asking for help": [ran("tool go", "error: bad"), ran("tool go --help")],
    "going round a guard": [ran("git push", "! [rejected] main"), ran("git push --force")],
    "an edit": [ran("make", "boom"), ran("sed -i s/a/b/ x"), ran("make")],
    "an answer without a word": [ran("grep -r cart src", "Exit code 1"), ran("grep -ri cart src")],
    "a server far away": [ran("kubectl get po", "rpc error: code = Unavailable desc = EOF"), ran("kubectl get po -A")],
    "an address from elsewhere": [ran("pip install x", "No matching x"), ran("pip install -i https://a.example x")],
    "another program for something else": [ran("npm run lint", "boom happened"), ran("git status")],
    "a quick look in between": [ran("cmake --build out", "boom happened"), ran("cmake --version"), ran("make lint")],
    "what a check found": [ran("terraform fmt --check", "main.tf"), ran("terraform fmt")],
    "hidden by a pipe": [ran("pytest", NOT_FOUND.format("pytest")), ran("uv run pytest || true")],
}


@pytest.mark.req("EL-10")
@pytest.mark.parametrize("case", NOT_NEXT)
def test_what_is_no_remedy_never_becomes_one(case: str) -> None:
    told = found(*(session(number, *NOT_NEXT[case]) for number in (1, 2, 3)))
    assert (told.lessons, told.candidates) == ((), ())


@pytest.mark.full
@pytest.mark.req("EL-10")
def test_remedies_of_kinds_that_the_rules_were_not_written_for_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _failures import FAMILIES, read_kinds, score_hints, score_remedies

    for family in FAMILIES:
        found = score_remedies(read_kinds(family))
        assert (found.precision >= 0.95, found.recall >= 0.7) == (True, True), found
    hints = score_hints(read_kinds("unseen"), tmp_path)
    assert (hints.precision >= 0.9, hints.recall >= 0.7) == (True, True), hints


@pytest.mark.req("EL-10")
def test_that_nothing_has_worked_is_said_only_when_nothing_did() -> None:
    """Each line of a session that failed, and whether something like it worked afterwards."""
    push = ran("git add -A && git commit -qm x && git push", "fatal: The current branch has no upstream branch.")
    ways = {
        "another way": [push, ran("git push -u origin HEAD")],
        "no lesson, and yet": [push, ran("vi .git/config"), ran("rm x"), ran("git push mirror cart")],
        "round a guard": [push, ran("git push --force")],
        "again": [push, ran("git push")],
    }
    for case, calls in ways.items():
        told = found(*(session(number, *calls) for number in range(1, 11)))
        assert [each.is_open for each in told.failures] == [False], case
    (lesson,) = found(*(session(number, *ways["another way"]) for number in range(1, 11))).lessons
    assert wording.describe_remedy_lesson(lesson) == (
        "In this project run `git push -u origin HEAD` when `git push` says "
        '"The current branch has no upstream branch".'
    )
    assert found(session(1, push, ran("ls")), session(2, push)).failures[0].is_open


@pytest.mark.req("EL-10")
def test_a_hint_is_given_for_the_error_it_was_learned_from_alone(habitus: Habitus) -> None:
    calls, text = NEXT["with its condition"]
    (held,) = found(session(1, *calls), session(2, *calls)).lessons
    draft = wording.draft_remedy_or_correction_lesson(replace(held, project=habitus.project), now=NOW, user="ann")
    assert habitus.memory.encode(draft).engram is not None
    command = {"command": "helm upgrade api ./chart --wait"}
    assert find_known_remedy_for_failure(habitus, "Bash", command, NO_ROLLBACK) == text.partition(" (")[0]
    for other in ("Error: UPGRADE FAILED: timed out waiting for hooks", "Error: chart requires kubeVersion: >=1.30"):
        assert find_known_remedy_for_failure(habitus, "Bash", command, other) == ""


@pytest.mark.req("EL-10")
def test_another_program_is_told_with_the_script_that_it_is_right_for() -> None:
    failed = ran("sh scripts/check.sh", 'scripts/check.sh: 2: Syntax error: "(" unexpected')
    calls = [failed, ran("bash scripts/check.sh")]
    (told,) = lessons(session(1, *calls), session(2, *calls))
    assert told.startswith("In this project run `bash scripts/check.sh` when `sh scripts/check.sh` says ")


@pytest.mark.req("EL-10")
def test_two_errors_of_one_command_have_a_remedy_each() -> None:
    calls, _ = NEXT["with its condition"]
    missing = "Error: the previous rollback was not finished"
    other = [ran("helm upgrade api ./chart", missing), ran("helm rollback api"), ran("helm upgrade api ./chart")]
    told = lessons(*(session(number, *calls) for number in (1, 2)), *(session(number, *other) for number in (3, 4)))
    assert [each.partition("says ")[2].partition(" (")[0] for each in told] == [
        '"another operation is in progress".',
        '"the previous rollback was not finished".',
    ]


@pytest.mark.req("EL-10")
def test_nothing_has_worked_is_not_said_when_the_next_call_succeeded() -> None:
    yarn = [ran("yarn build", "error Couldn't find a package"), ran("npm run build")]
    (told,) = found(session(1, *yarn), session(2, *yarn)).failures
    assert (told.is_open, told.has_worked_later) == (False, False)
    lint = ran("lint run", 'level=error msg="no export data for \\"net/http2\\""')
    (told,) = found(*(session(number, lint, ran("lint cache clean"), lint) for number in (1, 2))).failures
    assert (told.is_open, told.signature) == (True, "no export data for <str>")


@pytest.mark.req("EL-10")
def test_what_works_anyway_elsewhere_contradicts_it() -> None:
    calls, _ = NEXT["through what runs it"]
    assert lessons(session(1, *calls), session(2, *calls), session(3, ran("pytest tests"))) == []


@pytest.mark.req("EL-10")
def test_failures_are_ranked_by_what_they_cost() -> None:
    cheap = [ran("make", "boom"), ran("ls")]
    dear = [
        ran("npm test", "npm error enoent package.json"),
        *[ran(f"ls {n}") for n in range(5)],
        ran("cd web && npm test"),
    ]
    told = found(session(1, *cheap), session(2, *dear)).failures
    assert [(each.command, each.calls) for each in told] == [("npm test", 1), ("make", 1)]
    assert [sum(row.calls for row in each.rows) for each in told] == [6, 1]  # spent, with the failed one


@pytest.mark.req("EL-10")
def test_a_correction_is_a_rule_in_the_persons_words_and_goes_up_when_said_again() -> None:
    never = UserUtterance(text="No! don't ever force-push to main.", after=UserStopKind.REFUSED)
    again = UserUtterance(text="Stop, don't ever force-push to main", after=UserStopKind.INTERRUPTED)
    pgpass = UserUtterance(text="Undo that. Always use the .pgpass.")
    told = found(session(1, said=[pgpass]), session(2, said=[never]), session(3, said=[again])).rules
    assert [(rule.correction.text, rule.correction.kind.value, rule.sessions) for rule in told] == [
        ("Don't ever force-push to main.", "never", 2),
        ("Always use the .pgpass.", "always", 1),
    ]
    plain = UserUtterance(text="Always use tabs in this project.")
    assert found(session(1, said=[plain])).rules == ()  # nothing was stopped: it is a request


SAID_TWICE = {
    "Never push to main directly, open a PR instead.": (
        "good. commit it. and never push to main directly, open a PR instead.",
        "No! Never push straight to main.",
    ),
    "Run make fmt before you commit, always.": (
        "run make fmt before you commit, always. CI rejects unformatted code",
        "you forgot make fmt before committing, CI is red. Always run it before a commit.",
    ),
    "Don't sprinkle print() around for debugging, use the logger.": (
        "please don't sprinkle print() around for debugging, use the logger",
        "why is there a print in psp.py again? no prints for debugging, use the logger.",
    ),
    "Never run terraform apply yourself. Give me the command instead.": (
        "Never run terraform apply yourself. Give me the command instead.",
        "plan is fine. as I said: you never run apply, you give me the command",
    ),
    "In diesem Repo immer pnpm benutzen, nie npm.": (
        "nimm pnpm, nicht npm, in diesem Repo",
        "wieder npm! in diesem Repo immer pnpm benutzen, nie npm",
    ),
    "Ask me before you install a new dependency.": (
        "Ask me before you install a new dependency.",
        "don't add dependencies without asking me",
    ),
    "Never loosen the assertions to get a test green.": (
        "Don't weaken a test so that it passes.",
        "Never loosen the assertions to get a test green.",
    ),
    "All timestamps must be stored in UTC, never local time.": (
        "Always store times as UTC, not in local time.",
        "All timestamps must be stored in UTC, never local time.",
    ),
    "No default exports, always named ones.": (
        "Use named exports, never default exports.",
        "No default exports, always named ones.",
    ),
    "Never run migrations on my database.": (
        "Never run migrations on my database.",
        "You must not run migrations.",
    ),
}
SAID_TWICE |= {
    "Don't ever commit csv or parquet files, the repo must stay free of data.": (
        "Don't ever commit csv or parquet files, the repo must stay free of data.",
        "there is a parquet in the commit, take it out. Data never goes into git.",
    ),
    "Static storage only please, we never touch the heap at runtime on these boards.": (
        "Static storage only please, we never touch the heap at runtime on these boards.",
        "that vector has to go. In firmware nothing gets allocated after init, use static buffers",
    ),
}
SAID_TWICE |= {
    "Never edit a migration that is merged; write a new one.": (
        "once more: never edit a merged migration, write a new one",
        "Never edit a migration that is merged; write a new one.",
    ),
    "Always run --check before you change a server.": (
        "Always run --check before you change a server.",
        "You forgot: always run --check before you change a server.",
    ),
    "Before you change an API contract, ask me.": (
        "Before you change an API contract, ask me.",
        "Remember: before you change an API contract, ask me.",
    ),
    "Don't touch the pin table.": ("don't touch the pin table", "Thanks. Remember: don't touch the pin table."),
}
NO_RULE = {
    "two requests": ("Throttle per tenant and not globally.", "Throttle should give up and not hang."),
    "a report": ("the import never finishes on the October file", "it always shows the October file twice"),
    "for the moment": ("don't commit yet", "don't commit it yet, I want to look"),
    "for a few days": ("never touch the register until Monday", "please never touch the register until monday"),
    "for a few days, in Spanish": ("no toques nunca el padrón hasta el lunes", "nunca toques el padrón hasta el lunes"),
    "for once, in German": ("heute niemals den Server anfassen", "niemals den Server anfassen, heute nicht"),
    "a request": ("run the tests now", "run the tests now"),
    "a log": ("see:\n2026-10-20 12:00:01 never retry this job", "again:\n2026-10-20 12:00:01 never retry this job"),
    "pasted code": ("```\n// never call this twice\n```", "```\n// never call this twice\n```"),
    "the opposite": ("Always squash the commits of a branch", "Never squash the commits of a branch"),
    "a brief": tuple(["Never answer in prose. " + "Here is what to do. " * 15] * 2),
    "half of one": ("Always run it.", "Always run it."),
    "another thing": ("Always run the linter before you commit", "Always run the tests before you commit"),
    "another deed": ("Don't read .env files, never.", "Don't write .env files, never."),
    "the other way round": ("Use the staging cluster, never production", "Use production, never the staging cluster"),
    "another ending": ("Never lock the settings file", "Never unlock the settings file"),
    "asked or not": ("Always ask me before you deploy", "Never ask me before you deploy"),
    "one condition": ("Don't merge before I have reviewed it", "Always squash before merging"),
    "what only small words have in common": ("Öffnen Sie die Tore immer nach acht.", "Frag nie nach."),
    "sentences of somebody else": (
        'the banner says "We use cookies. Always accept all of them."',
        'and the mail: "We use cookies. Always accept all of them."',
    ),
    "only some": ("Don't write comments that repeat the code", "Don't write comments"),
}


@pytest.mark.req("CL-08", "EL-10")
@pytest.mark.parametrize("rule", SAID_TWICE)
def test_what_a_person_said_in_two_sessions_is_a_rule_though_nothing_was_stopped(rule: str) -> None:
    first, second = (UserUtterance(text=text) for text in SAID_TWICE[rule])
    (told,) = found(session(1, said=[first]), session(2, said=[second])).rules
    assert (told.correction.text, told.sessions, told.is_worth_proposing) == (rule, 2, True)
    assert wording.describe_frequency_and_last_seen(told, NOW) == "said in 2 sessions"
    assert found(session(1, said=[first, second])).rules == ()


@pytest.mark.req("CL-08", "EL-10")
@pytest.mark.parametrize("case", NO_RULE)
def test_what_is_said_twice_and_is_no_order_is_no_rule(case: str) -> None:
    said = [[UserUtterance(text=text)] for text in NO_RULE[case]]
    assert found(*(session(number, said=each) for number, each in enumerate(said, 1))).rules == ()


@pytest.mark.req("EL-10")
def test_what_a_subagent_is_asked_is_no_rule_of_the_person() -> None:
    told = UserUtterance(text="Never edit any files, only report what you find.")
    readers = [FailuresAndCorrectionsCollector(session=str(number), project="/srv/shop") for number in (1, 2)]
    for reader in readers:
        reader.add_turn(TranscriptTurn(id="1", events=(), utterances=(told,), is_sidechain=True))
    assert found(*readers).rules == ()


_WORDS = st.sampled_from(
    ["pytest", "uv", "run", "npm", "test", "-q", "--fix", "web", "a.py", "&&", "cd", "|", "X=1", "'a b'", ";"]
)
_LINES = st.lists(_WORDS, min_size=1, max_size=6).map(" ".join) | st.text(max_size=40)
_ERRORS = st.sampled_from(
    ["boom", NOT_FOUND.format("pytest"), "No module named 'x'", "a.py: No such file or directory"]
)
_CALLS = st.lists(st.builds(ran, _LINES, st.just("") | _ERRORS), max_size=6)


@given(_LINES)
def test_any_line_can_be_taken_apart(line: str) -> None:
    for command in parse_shell_commands(line):
        assert command.program
        assert command.runner_and_program_words + command.args == command.words


@given(_LINES, _ERRORS, _CALLS)
def test_a_remedy_says_only_what_later_calls_did(line: str, error: str, later: list[SessionCall]) -> None:
    remedy = find_remedy_in_later_calls([ran(line, error), *later], 0).remedy
    if remedy is not None:
        written = " ".join(call.command for call in later if call.success)
        assert all(word.strip("'") in written for word in remedy.right if word not in ("cd", ".", "&&"))


@given(_LINES, st.sampled_from(["1 failed, 2 passed", "AssertionError", "Connection reset by peer", "429"]), _CALLS)
def test_the_work_at_hand_and_transient_faults_teach_nothing(line: str, error: str, later: list[SessionCall]) -> None:
    assert find_remedy_in_later_calls([ran(line, error), *later], 0).remedy is None


@given(_LINES, _ERRORS)
def test_the_same_call_again_is_no_remedy(line: str, error: str) -> None:
    again = find_remedy_in_later_calls([ran(line, error), ran("ls"), ran(line)], 0)
    assert again.remedy is None
    assert again.ending in (NoRemedyReason.RETRIED, NoRemedyReason.LEFT, NoRemedyReason.NOTHING)


@given(_LINES, _ERRORS, _CALLS)
def test_looking_around_changes_nothing(line: str, error: str, later: list[SessionCall]) -> None:
    calls = [ran(line, error), *later]
    looked = [part for call in calls for part in (call, replace(ran("ls"), turn=call.turn))]
    assert find_remedy_in_later_calls(looked, 0).remedy == find_remedy_in_later_calls(calls, 0).remedy
