"""A process that is killed in the middle of a turn loses neither the question nor the conversation."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli


@pytest.mark.req("SC-02", "AG-10")
def test_what_was_asked_is_there_after_a_kill_and_the_session_goes_on(run_cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"say": "Let me think ", "hang": True}]))
    process = subprocess.Popen(
        [*run_cli.program, "chat", "--model", f"script:{script}", "--json"],
        env=run_cli.environ(),
        cwd=run_cli.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("what is the answer?\n")
    process.stdin.flush()
    assert any("Let" in line for line in process.stdout)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    (session,) = json.loads(run_cli("sessions", "list", "--json").out)["sessions"]
    assert session["title"] == "what is the answer?"
    script.write_text(json.dumps([{"say": "It is 42."}]))
    again = run_cli("chat", "--resume", session["id"], "--model", f"script:{script}", stdin="and now?\n")
    assert "It is 42." in again.out
    shown = run_cli("sessions", "show", session["id"]).out
    assert shown.index("what is the answer?") < shown.index("and now?") < shown.index("It is 42.")
