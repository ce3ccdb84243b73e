"""`habitus chat`, `ask` and `sessions`: real processes, at a terminal and in pipes; the model reads a script."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from habitus.sandbox.machine import probe_machine
from tests.cli.conftest import Direct
from tests.cli.pseudo_terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, PseudoTerminal, at_a_terminal
from tests.conftest import Cli
from tests.wheels import write_wheel

pytestmark = pytest.mark.req("AG-07")

DRAFT = {
    "label": "add_numbers",
    "name": "Add numbers",
    "description": "Adds numbers.",
    "when_to_use": "Somebody wants a sum",
    "declarative_md": "1. Read them.\n2. Add them.",
}
CREATE = {"name": "brew-tea", "title": "Brew tea", "description": "Brews tea.", "content": "1. Boil water."}


def _script(cli: Cli, *steps: dict[str, Any], name: str = "model.json") -> str:
    (cli.cwd / name).write_text(json.dumps(steps))
    return f"script:{name}"


def _chat(cli: Cli, *args: str, **more: Any) -> AbstractContextManager[PseudoTerminal]:
    return at_a_terminal([*cli.program, "chat", *args], env=cli.environ(), cwd=cli.cwd, **more)


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _sessions(cli: Cli) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(cli("sessions", "list", "--json").out)["sessions"]
    return listed


# At a terminal


@pytest.mark.full
def test_a_person_talks_and_leaves(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Hello **there**.\n\n1. one\n2. two"}, {"say": "A\x1b[2J\x07\x9bB"})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("habitus  script:model.json  /help")
        terminal.wait_for("› ")
        terminal.type(f"hi{ENTER}")
        terminal.wait_for("Hello there.")
        terminal.wait_for(" 2 two")
        terminal.wait_for(" tokens · ")
        terminal.wait_for("› ")
        terminal.type(f"more{ENTER}")
        terminal.wait_for("A[2JB")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.wait_for("Continue with: habitus chat --resume ")
        assert terminal.ended() == 0
        assert "\x07" not in terminal.shown
        assert "\x9b" not in terminal.shown


@pytest.mark.req("AG-05")
def test_ctrl_c_stops_the_turn_and_not_the_chat(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Let me think ", "hang": True}, {"say": "Back again."})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"think hard{ENTER}")
        terminal.wait_for("Let me think")
        terminal.type(CTRL_C)
        terminal.wait_for("Cancelled.")
        terminal.wait_for("› ")
        terminal.type(f"and now?{ENTER}")
        terminal.wait_for("Back again.")
        terminal.wait_for("› ")
        terminal.type(f"half a line{CTRL_C}")  # only clears the line
        terminal.type(CTRL_C)
        terminal.wait_for("Press Ctrl-C again or Ctrl-D to quit.")
        terminal.type(CTRL_C)
        assert terminal.ended() == 0
    (session,) = _sessions(run_cli)
    assert (session["turns"], session["title"]) == (2, "think hard")


@pytest.mark.full
@pytest.mark.req("AG-05")
def test_ctrl_c_stops_a_cell_that_runs(run_cli: Cli) -> None:
    cell = {"action": "exec", "code": "import time\nprogress('row 7')\ntime.sleep(60)", "one_line_description": "wait"}
    model = _script(run_cli, {"call": "scratchpad", "arguments": cell}, {"say": "Fine."})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"wait for it{ENTER}")
        terminal.wait_for("scratchpad  wait")
        terminal.wait_for("row 7")
        terminal.type(CTRL_C)
        terminal.wait_for("– scratchpad  wait  cancelled")
        terminal.wait_for("› ")
        terminal.type(f"and now?{ENTER}")
        terminal.wait_for("Fine.")
        terminal.wait_for("› ")
        terminal.type(f"/quit{ENTER}")
        assert terminal.ended() == 0


@pytest.mark.full
@pytest.mark.req("SK-21")
def test_a_change_of_the_agent_is_shown_and_asked_about(run_cli: Cli) -> None:
    create = {"call": "create_skill", "arguments": CREATE}
    model = _script(
        run_cli, create, {"say": "Kept."}, create | {"arguments": CREATE | {"name": "two"}}, {"say": "Well."}
    )
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"remember how to brew tea{ENTER}")
        shown = terminal.wait_for("Save the skill 'brew-tea'? yes, no or later › ")
        assert "+1. Boil water." in shown
        terminal.type(f"maybe{ENTER}")  # is no answer
        terminal.wait_for("yes, no or later › ")
        terminal.type(f"y{ENTER}")
        terminal.wait_for("✓ create_skill  brew-tea")
        terminal.wait_for("Undo: /undo brew-tea:1")
        terminal.wait_for("› ")
        terminal.type(f"and another{ENTER}")
        terminal.wait_for("Save the skill 'two'? yes, no or later › ")
        terminal.type(f"later{ENTER}")
        terminal.wait_for("1 change pending review: /review list")
        terminal.wait_for("› ")
        terminal.type(f"/review approve 1{ENTER}")
        terminal.wait_for("Approved: write two@user, now version 1.")
        terminal.wait_for("Undo: /review reopen 1")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert sorted(path.name for path in (run_cli.home / "skills").iterdir()) == ["brew-tea", "two"]


@pytest.mark.full
def test_what_is_said_to_be_run_next_is_on_the_same_home(run_cli: Cli) -> None:
    model = _script(run_cli, {"call": "create_skill", "arguments": CREATE}, {"say": "Proposed."}, {"say": "Hello."})
    home = str(run_cli.home)
    ran = run_cli("--home", home, "chat", "remember how to brew tea", "-m", model)
    assert ran.err.endswith(f"1 change pending review: habitus --home {home} review list\n")
    command = [*run_cli.program, "--home", home, "chat", "-m", _script(run_cli, {"say": "Hello."})]
    with at_a_terminal(command, env=run_cli.environ(), cwd=run_cli.cwd, columns=200) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"hi{ENTER}")
        terminal.wait_for("Hello.")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        terminal.wait_for(f"Continue with: habitus --home {home} chat --resume ")
        assert terminal.ended() == 0


@pytest.mark.full
@pytest.mark.req("SK-21")
def test_what_ask_changed_is_taken_back_on_the_command_line(run_cli: Cli) -> None:
    model = _script(run_cli, {"call": "create_skill", "arguments": CREATE}, {"say": "Kept."})
    home = str(run_cli.home)
    command = [*run_cli.program, "--home", home, "chat", "remember how to brew tea", "-m", model]
    with at_a_terminal(command, env=run_cli.environ(), cwd=run_cli.cwd, columns=200) as terminal:
        terminal.wait_for("Save the skill 'brew-tea'? yes, no or later › ")
        terminal.type(f"y{ENTER}")
        terminal.wait_for(f"Undo: habitus --home {home} undo brew-tea:1")
        assert terminal.ended() == 0
    assert "brew-tea@user is in the archive" in run_cli("--home", home, "undo", "brew-tea:1").out


@pytest.mark.full
def test_ctrl_c_at_a_question_stops_the_turn(run_cli: Cli) -> None:
    model = _script(run_cli, {"call": "create_skill", "arguments": CREATE}, {"say": "Fine."})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"remember tea{ENTER}")
        terminal.wait_for("yes, no or later › ")
        terminal.type(CTRL_C)
        terminal.wait_for("Cancelled.")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert not (run_cli.home / "skills" / "brew-tea").exists()
    assert json.loads(run_cli("review", "list", "--json").out)["proposals"] == []


@pytest.mark.full
def test_a_skill_is_saved_from_a_conversation(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Three."}, {"answer": DRAFT | {"declarative_md": ""}}, {"answer": DRAFT})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"/skill save{ENTER}")
        terminal.wait_for("There is nothing to save yet.")
        terminal.type(f"add one and two{ENTER}")
        terminal.wait_for("Three.")
        terminal.wait_for("› ")
        terminal.type(f"/skill save{ENTER}")
        terminal.wait_for("The draft has no steps.")
        terminal.type(f"/skill save the adding{ENTER}")
        terminal.wait_for("Somebody wants a sum")
        terminal.wait_for("Save it as 'add-numbers'? yes, no or later › ")
        terminal.type(f"yes{ENTER}")
        terminal.wait_for("Saved add-numbers, version 1.\nUndo: /undo add-numbers:1")
        terminal.type(f"/skill show add-nubers{ENTER}")
        terminal.wait_for("showing the closest, 'add-numbers'")
        terminal.wait_for("Somebody wants a sum")
        terminal.type(f"/skill remove add-numbers{ENTER}")
        terminal.wait_for("Undo: /skill restore add-numbers@user")
        terminal.type(f"/skill restore add-numbers@user{ENTER}")
        terminal.wait_for("add-numbers@user was restored.")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert "1. Read them." in (run_cli.home / "skills/add-numbers/SKILL.md").read_text()


@pytest.mark.req("SK-21")
def test_what_is_saved_in_a_pipe_is_there_at_once_under_names_of_their_own(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Three."}, {"answer": DRAFT}, {"answer": DRAFT})
    ran = run_cli("chat", "--json", "--model", model, stdin="add one and two\n/skill save\n/skill save the adding\n")
    saved = [(row["name"], row["version"], row["proposal"]) for row in _rows(ran.out) if row["type"] == "saved"]
    assert saved == [("add-numbers", 1, None), ("add-numbers-2", 1, None)]
    assert "1. Read them." in (run_cli.home / "skills/add-numbers-2/SKILL.md").read_text()


@pytest.mark.full
def test_lines_history_and_the_tab_key(run_cli: Cli) -> None:
    secret = "sk-ant-api03-" + "A1b2C3d4" * 6
    model = _script(run_cli, {"say": "Seen."}, {"say": "Again."})
    with _chat(run_cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"first{ALT_ENTER}second {secret}{ENTER}")
        terminal.wait_for("Seen.")
        terminal.wait_for("› ")
        terminal.type(f"\x1b[200~pasted\nlines\x1b[201~{ENTER}")
        terminal.wait_for("Again.")
        terminal.wait_for("› ")
        terminal.type("/hel")
        terminal.wait_for("Show the commands.")  # offered
        terminal.type(f"{TAB}{ENTER}{ENTER}")  # taken, and sent
        terminal.wait_for("Call a skill; $ARGUMENTS")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    history = run_cli.home / "chat-history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+first\n+second [redacted:" in history.read_text()
    assert secret not in history.read_text()
    (session,) = _sessions(run_cli)
    turns = json.loads(run_cli("sessions", "show", session["id"], "--json").out)["turns"]
    assert [turn["request"].splitlines()[0] for turn in turns] == ["first", "pasted"]
    assert turns[1]["request"] == "pasted\nlines"


@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.full)])
def test_a_long_answer_keeps_to_the_width(run_cli: Cli, columns: int) -> None:
    model = _script(run_cli, {"say": "word " * 80 + "\n\n- " + "item " * 80})
    with _chat(run_cli, "--model", model, columns=columns) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"talk{ENTER}")
        terminal.wait_for(" tokens · ")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        lines = [line for line in terminal.shown.splitlines() if "word word" in line or "item item" in line]
    assert lines
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= min(columns, 100)


@pytest.mark.full
@pytest.mark.req("AG-10")
def test_a_session_is_resumed_by_its_id_or_as_the_last(run_cli: Cli) -> None:
    first = _script(run_cli, {"say": "Nice to meet you, Ann."}, name="a.json")
    assert run_cli("chat", "I am Ann", "--model", first).out == "Nice to meet you, Ann.\n"
    assert run_cli("chat", "another one", "--model", first).code == 0
    other, earlier = (session["id"] for session in _sessions(run_cli))
    again = _script(run_cli, {"say": "You are Ann."}, name="b.json")
    with _chat(run_cli, "--resume", earlier[:8], "--model", again) as terminal:
        terminal.wait_for(f"Resumed {earlier}, 1 turn; last: I am Ann")
        terminal.wait_for("› ")
        terminal.type(f"who am I?{ENTER}")
        terminal.wait_for("You are Ann.")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    piped = run_cli("chat", "--resume", "--json", "--model", again, stdin="and now?\n")
    assert _rows(piped.out)[0] == {"type": "session", "id": earlier, "model": "script:b.json"}
    assert {session["id"]: session["turns"] for session in _sessions(run_cli)} == {earlier: 3, other: 1}


# In pipes


def test_every_event_of_a_piped_chat_is_a_line_of_json(run_cli: Cli) -> None:
    model = _script(
        run_cli,
        {"say": "Let me see.", "call": "search_skills", "arguments": {"query": "tea"}},
        {"say": "Nothing \x1b[2J."},
        {"call": "create_skill", "arguments": CREATE},
        {"say": "It waits."},
    )
    ran = run_cli("chat", "--json", "--model", model, stdin="tea?\n\n/skills\n/why\n/good\nkeep it\n/quit\nnever\n")
    rows = _rows(ran.out)
    assert (ran.code, ran.err) == (0, "1 change pending review: habitus review list\n")
    assert [row["type"] for row in rows if row["type"] != "text"] == [
        *("session", "tool_started", "tool_finished", "done", "command", "why", "judged"),
        *("tool_started", "tool_finished", "done"),
    ]
    done = [row for row in rows if row["type"] == "done"]
    assert [(row["reply"], row["outcome"]["kind"], row["pending"]) for row in done] == [
        ("Nothing \x1b[2J.", "ok", 0),
        ("It waits.", "ok", 1),
    ]
    assert "\x1b" not in ran.out
    (command,) = [row for row in rows if row["type"] == "command"]
    assert command["command"] == "skills list"
    assert "write-a-skill" in {skill["name"] for skill in command["output"]["skills"]}


def test_a_piped_chat_without_json_prints_the_answers(run_cli: Cli) -> None:
    model = _script(run_cli, {"call": "list_skills"}, {"say": "One.\x07"}, {"say": "Two."})
    ran = run_cli("chat", "--model", model, stdin="first\nthe second\n")
    assert (ran.code, ran.out) == (0, "One.\nTwo.\n")
    assert re.fullmatch(r"  ✓ list_skills    (?:\d+ ms|\d\.\d s)\n", ran.err)


def test_what_fails_in_a_pipe_is_the_exit_code(run_cli: Cli) -> None:
    model = _script(run_cli, {"fail": "The provider is down."}, {"say": "Fine."})
    ran = run_cli("chat", "--json", "--model", model, stdin="one\n/nope\ntwo\n")
    rows = [row for row in _rows(ran.out) if row["type"] != "text"]
    assert ran.code == 1
    assert [row["type"] for row in rows] == ["session", "notice", "done", "error", "done"]
    assert rows[2]["outcome"] == {"kind": "infra", "reason": "The provider is down."}
    assert rows[3] == {"type": "error", "error": "There is no command '/nope'.", "hint": "See /help."}
    assert rows[4]["outcome"]["kind"] == "ok"


@pytest.mark.full
def test_ask_reads_its_argument_or_standard_input(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Yes."})
    (run_cli.cwd / "note.txt").write_text("the number is 7")
    for args, stdin in ((("is it?",), ""), (("-",), "is\nit?\n"), ((), "is it?")):
        ran = run_cli("chat", *args, "--model", model, "--attach", "note.txt", stdin=stdin)
        assert (ran.code, ran.out, ran.err) == (0, "Yes.\n", "")
    rows = _rows(run_cli("chat", "is it?", "--json", "--model", model).out)
    assert [row["type"] for row in rows] == ["text", "done"]
    turn = json.loads(run_cli("sessions", "show", _sessions(run_cli)[1]["id"], "--json").out)["turns"][0]
    assert "the number is 7" in json.dumps(turn["messages"])


@pytest.fixture
def local_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server like those that run models on this machine."""

    class Lists(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data": [{"id": "qwen3:4b"}]}' if self.path == "/v1/models" else b"no"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Lists) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.req("CL-01")
def test_without_a_model_three_lines_say_what_to_do_next(direct: Direct, local_model: str) -> None:
    nowhere = dict.fromkeys(("OLLAMA_HOST", "LLAMACPP_BASE_URL", "VLLM_BASE_URL"), "127.0.0.1:9") | {"PATH": ""}
    none, one = (
        direct("chat", "x", env=nowhere | more).err.splitlines() for more in ({}, {"OLLAMA_HOST": local_model})
    )
    assert none[0].startswith("habitus: No model is set. Set a key (ANTHROPIC_API_KEY, ")
    assert none[1:] == [
        "  Or run one on this machine: 'ollama serve' is one way.",
        "  Without any, see what Habitus does: habitus tour",
    ]
    assert one[1] == "  One runs on this machine: export HABITUS_MODEL=ollama:qwen3:4b"


@pytest.mark.full
@pytest.mark.req("CL-01")
def test_bad_input_is_one_line_with_its_hint(direct: Direct) -> None:
    cwd = direct.cli.cwd
    (cwd / "bad.json").write_text('[{"sya": "x"}]')
    (cwd / "good.json").write_text('[{"say": "x"}]')
    for args, said in (
        (("chat", "x", "-m", "openai:gpt-5"), "No key for openai: OPENAI_API_KEY is not set."),
        (("chat", "x", "-m", "opnai:gpt-5"), "No provider 'opnai'. Did you mean 'openai'?"),
        (("chat", "x", "-m", "script:none.json"), "There is no script none.json."),
        (("chat", "x", "-m", "script:bad.json"), "bad.json is not a script: steps.0.sya"),
        (("chat", " ", "-m", "script:good.json"), "The message is empty."),
        (("chat", "x", "-m", "script:good.json", "-a", "none.txt"), f"Can't attach {cwd / 'none.txt'}"),
        (("chat", "--resume", "-m", "script:good.json"), "There are no sessions yet."),
        (("sessions", "show", "x"), "There are no sessions yet."),
    ):
        ran = direct(*args)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), ran
        assert ran.err.startswith(f"habitus: {said}")
        if args[0] == "chat":
            as_json = direct(*args, "--json")
            (row,) = _rows(as_json.out)
            assert (as_json.code, row["type"]) == (1, "error")
            assert f"{row['error']} {row['hint']}".startswith(said)
    assert direct("chat", "what?", "--resmue").code == 2


@pytest.fixture
def two(run_cli: Cli) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two chats on one home that wait for their lines."""
    started = [
        subprocess.Popen(
            [*run_cli.program, "chat", "--json", "--model", _script(run_cli, {"say": f"I am {n}."}, name=f"{n}.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=run_cli.cwd,
            env=run_cli.environ(),
        )
        for n in (1, 2)
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.req("AG-10")
def test_two_chats_on_one_home_keep_apart(run_cli: Cli, two: list[subprocess.Popen[bytes]]) -> None:
    opened = [json.loads(process.stdout.readline()) for process in two if process.stdout]
    outs = [process.communicate(f"I am person {n}\n".encode())[0] for n, process in enumerate(two, 1)]
    assert [_rows(out.decode())[-1]["reply"] for out in outs] == ["I am 1.", "I am 2."]
    assert [process.returncode for process in two] == [0, 0]
    titles = {session["id"]: session["title"] for session in _sessions(run_cli)}
    assert titles == {row["id"]: f"I am person {n}" for n, row in enumerate(opened, 1)}


def test_a_piped_chat_that_is_interrupted_ends(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Well, now", "hang": True})
    with subprocess.Popen(
        [*run_cli.program, "chat", "--json", "--model", model],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=run_cli.cwd, env=run_cli.environ(),
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"hang\n")
        process.stdin.flush()
        while b'"text"' not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert _sessions(run_cli)[0]["title"] == "hang"


# Sessions


@pytest.mark.req("AG-10", "CL-01")
def test_sessions_are_listed_shown_and_exported(run_cli: Cli, direct: Direct) -> None:
    cell = {"action": "exec", "code": "print(6 * 7)"}
    model = _script(run_cli, {"say": "Let me see.", "call": "scratchpad", "arguments": cell}, {"say": "It is 42."})
    assert run_cli("chat", "--json", "--model", model, stdin="what is 6 * 7?\n/good\n").code == 0
    (session,) = _sessions(run_cli)
    listed = direct.ok("sessions", "list").splitlines()
    assert listed[1].split()[0] == session["id"]
    assert listed[1].endswith("what is 6 * 7?")
    shown = direct.ok("sessions", "show", session["id"][:6])
    assert direct.ok("sessions", "export", session["id"]) == shown
    for part in (f"# Session {session['id']}", "> what is 6 * 7?", "Let me see.", "`scratchpad` {", "```\n42\n```"):
        assert part in shown
    assert re.search(r"It is 42\.\n\n\*succeeded \(ok by user\), [\d,]+ → [\d,]+ tokens\*", shown)
    exported = json.loads(direct.ok("sessions", "export", session["id"], "--format", "json"))
    assert exported["session"] == session["id"]
    assert [message["role"] for message in exported["turns"][0]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    said = direct.ok("sessions", "export", session["id"], "--to", "talk.md")
    assert said == f"Wrote 1 turn of {session['id']} to talk.md.\n"
    assert (run_cli.cwd / "talk.md").read_text() == shown
    for args, wrong in (
        (("export", session["id"], "--format", "jsn"), "Did you mean 'json'?"),
        (("show", "nothing"), "There is no session 'nothing'."),
        (("export", session["id"], "--to", "no/such/place.md"), "Can't write no/such/place.md"),
    ):
        ran = direct("sessions", *args)
        assert ran.code != 0
        assert wrong in ran.err


def test_a_home_without_sessions_says_so(direct: Direct) -> None:
    assert direct.ok("sessions", "list") == "No sessions yet. Start one: habitus chat\n"


@pytest.mark.full
@pytest.mark.req("SC-01")
def test_a_damaged_session_is_shown_as_far_as_it_can_be_read(direct: Direct) -> None:
    model = _script(direct.cli, {"call": "list_skills"}, {"say": "Done."})
    assert direct("chat", "what is there?", "-m", model).code == 0
    with contextlib.closing(sqlite3.connect(direct.home / "habitus.db")) as database:
        database.execute("UPDATE turn_messages SET content = '[{]' WHERE number = 2")
        database.execute("UPDATE turn_messages SET content = '7' WHERE number = 3")
        database.execute("UPDATE turns SET usage = 'none'")
        database.commit()
    (session,) = direct.json("sessions", "list")["sessions"]
    shown = direct.ok("sessions", "show", session["id"])
    assert "> what is there?" in shown
    assert "Done." in shown
    assert direct.json("sessions", "export", session["id"])["turns"][0]["request"] == "what is there?"


@pytest.mark.full
@pytest.mark.req("SC-01")
def test_a_request_and_a_key_that_are_no_text_and_a_closed_input_are_ordinary(run_cli: Cli) -> None:
    model = _script(run_cli, {"say": "Hello."}, {"say": "Again."})
    said = run_cli("chat", "-m", model, b"caf\xe9 au lait", env={"SHOP_KEY": "\udcff\udcfesecret-value"})
    assert (said.code, said.out, said.err) == (0, "Hello.\n", "")
    (session,) = _sessions(run_cli)
    assert session["title"] == "caf\N{REPLACEMENT CHARACTER} au lait"
    closed = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', *run_cli.command, "chat", "-", "-m", model],
        env=run_cli.environ(),
        cwd=run_cli.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (closed.returncode, closed.stderr.count("\n")) == (1, 1)
    assert "The message is empty." in closed.stderr


@pytest.mark.req("SC-01", "OP-03")
def test_what_goes_wrong_beside_an_answer_is_one_line(direct: Direct, run_cli: Cli) -> None:
    model = _script(direct.cli, {"say": "Hello."})
    assert direct("skills", "list").code == 0
    with contextlib.closing(sqlite3.connect(direct.home / "habitus.db")) as database:
        database.execute("ALTER TABLE turn_messages RENAME TO lost")
        database.commit()
    said = run_cli("chat", "hi", "-m", model)
    assert (said.code, said.out) == (0, "Hello.\n")
    assert "Traceback" not in said.err
    assert "no such table" in said.err


def test_starting_imports_nothing_that_only_later_steps_need(run_cli: Cli) -> None:
    early = ("asyncio", "sqlalchemy", "pydantic", "rich", "numpy")
    late = ("habitus.screening.scanner", "pydantic_ai", "alembic", "numpy")
    code = (
        f"import sys; from habitus.cli import main; found = [name for name in {early!r} if name in sys.modules];"
        "import habitus.app.conversations.sessions;"
        f"print(found + [name for name in {late!r} if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=run_cli.environ(), capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


@pytest.mark.full
@pytest.mark.req("AG-12")
def test_what_a_turn_taught_is_told_with_its_undo_and_can_be_taken_back(run_cli: Cli) -> None:
    fails = {"call": "scratchpad", "arguments": {"action": "exec", "code": "1 / 0", "one_line_description": "share"}}
    model = _script(run_cli, fails, fails, fails, {"say": "I can't."}, {"say": "Still not."})
    ran = run_cli("chat", "-m", model, stdin="share it\n" + "/undo\n" * 4)
    learned = [line for line in ran.err.splitlines() if line.startswith("learned: ")]
    ids = [found[1] for line in learned if (found := re.search(r"\(undo: /lessons remove (\S+)\)$", line))]
    assert len(ids) == len(learned) > 0
    assert "There is nothing to undo in this chat." in ran.err
    assert json.loads(run_cli("lessons", "list", "--scope", "all", "--json").out)["lessons"] == []
    assert all(id in run_cli("lessons", "archive", "--json").out for id in ids)


@pytest.mark.req("AG-12")
def test_changes_of_a_chat_are_taken_back_one_after_another(run_cli: Cli) -> None:
    assert run_cli("skills", "new", "brew-tea", "-d", "Brews tea.").code == 0
    model = _script(run_cli, {"say": "Hello."})
    ran = run_cli("chat", "-m", model, stdin="/skill disable brew-tea\n/skill remove brew-tea\n/undo\n/undo\n")
    assert ran.err == ""
    (skill,) = [
        each for each in json.loads(run_cli("skills", "list", "--json").out)["skills"] if each["layer"] == "user"
    ]
    assert (skill["name"], skill["state"]) == ("brew-tea", "ok")


@pytest.mark.req("AG-07")
def test_a_chat_says_its_cost_changes_its_model_and_goes_on_with_another_session(run_cli: Cli) -> None:
    one, two = _script(run_cli, {"say": "One."}, {"say": "One more."}), _script(run_cli, {"say": "Two."}, name="b.json")
    first = _rows(run_cli("chat", "-m", one, "--json", stdin="first of all\n").out)[0]["id"]
    lines = ["hello", "/cost", f"/model {two}", "hello again", "/model", f"/resume {first}", "/skill stats", "/resume"]
    rows = _rows(run_cli("chat", "-m", one, "--json", stdin="\n".join(lines) + "\n").out)
    by_type = {row["type"]: row for row in rows}
    assert "".join(row["text"] for row in rows if row["type"] == "text") == "One.Two."
    assert by_type["cost"]["output_tokens"] >= 0
    assert by_type["model"]["model"] == two
    assert [row["id"] for row in rows if row["type"] == "session"][-1] == first
    assert [row["command"] for row in rows if row["type"] == "command"] == ["skills stats", "sessions list"]


def test_why_a_call_failed_is_told_once(run_cli: Cli) -> None:
    model = _script(run_cli, {"call": "recall_skill", "arguments": {"name": "nothing-like-it"}}, {"say": "Sorry."})
    ran = run_cli("chat", "-m", model, "remember it")
    assert ran.err.count("nothing-like-it'") == 1
    assert "failed: the last tool call failed" in ran.err


@pytest.mark.req("AG-11")
def test_ask_attaches_a_file_and_reads_a_folder(run_cli: Cli) -> None:
    if probe_machine().bubblewrap is None:
        pytest.skip("without bubblewrap the path depends on the session")
    (run_cli.cwd / "data").mkdir()
    (run_cli.cwd / "data" / "rates.txt").write_text("north 2\n")
    (run_cli.cwd / "umsatz.csv").write_bytes("Gebiet;Stück\nMünchen;3\n".encode("latin-1") * 50_000)
    code = (
        "rows = open('/given/attached/umsatz.csv', encoding='cp1252').readlines()\n"
        f"print(len(rows), rows[1].strip(), open('{run_cli.cwd}/data/rates.txt').read())"
    )
    model = _script(
        run_cli, {"call": "scratchpad", "arguments": {"action": "exec", "code": code}}, {"say": "Three in Munich."}
    )
    ran = run_cli("chat", "how many?", "--model", model, "--attach", "umsatz.csv", "--read", "data", "--json")
    rows = {row["type"]: row for row in _rows(ran.out)}
    assert rows["tool_finished"]["content"] == "100000 München;3 north 2"
    where = "read-only at /given/attached/umsatz.csv"
    assert rows["notice"]["text"] == f"umsatz.csv, 1.1 MB, {where}: the model sees a preview."
    assert rows["done"]["usage"]["input_tokens"] < 12_000
    assert run_cli("chat", "x", "--model", model, "--read", "nowhere").err.startswith("habitus: There is no folder ")


@pytest.mark.full
@pytest.mark.req("AG-11", "SB-03")
def test_a_package_is_asked_about_once_for_a_project(run_cli: Cli, tmp_path: Path) -> None:
    write_wheel(tmp_path, "habitus_greeting", "HELLO = 'hello'\n")
    shelf = {"UV_FIND_LINKS": str(tmp_path), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "uv")}
    cli = replace(run_cli, env=shelf)
    cell = {"action": "exec", "code": "import habitus_greeting\nprint(habitus_greeting.HELLO)"}
    model = _script(cli, {"call": "scratchpad", "arguments": cell}, {"say": "Greeted."})
    with _chat(cli, "--model", model) as terminal:
        terminal.wait_for("› ")
        terminal.type(f"greet{ENTER}")
        terminal.wait_for("Install the package 'habitus_greeting'? yes, no or always for this project › ")
        terminal.type(f"later{ENTER}")  # is no answer here
        terminal.wait_for("or always for this project › ")
        terminal.type(f"always{ENTER}")
        terminal.wait_for("Greeted.")
        terminal.wait_for("› ")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    rows = {row["type"]: row for row in _rows(cli("chat", "greet", "--model", model, "--json").out)}
    assert rows["tool_finished"]["content"] == "hello", "there from the first cell on, and nobody was asked"
    assert "habitus-greeting" in cli("review", "trust", "--list").out
    revoked = cli("review", "trust", "--revoke", "habitus-greeting").out
    assert revoked == "No longer trusted: habitus-greeting.\nUndo: habitus review trust habitus-greeting\n"
    assert cli("review", "trust", "--list").out == "Nothing is trusted yet.\n"
