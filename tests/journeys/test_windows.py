"""On Windows everything works but running untrusted code, which refuses in one line; here its branches run on Linux."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.req("OP-09")


class Person:
    """Somebody at a machine with Windows, with a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environ = {
            **kept, "HOME": str(folder), "HABITUS_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tests" / "windows"),
            "PYTHONIOENCODING": "cp1252",
        }  # fmt: skip

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command and return what it printed; what it complained about, if it has to fail."""
        command = [sys.executable, "-m", "habitus", *words]
        done = subprocess.run(command, env=self.environ, cwd=self.folder, capture_output=True, check=False)
        complaint = done.stderr.decode("cp1252")
        assert done.returncode == code, (words, complaint)
        return complaint if code else done.stdout.decode("cp1252")

    def python(self, program: str) -> str:
        """Run a program there."""
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, env=self.environ, cwd=self.folder, input='{"session_id": "s1"}', capture_output=True, text=True,
            check=True,
        ).stdout  # fmt: skip


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_what_windows_lacks_is_missing_there(person: Person) -> None:
    program = (
        "from habitus import cli, operating_system\n"
        "os = vars(operating_system)['os']\n"
        "print([name for name in ('fork', 'getuid', 'setsid', 'killpg', 'O_NOFOLLOW') if hasattr(os, name)])\n"
        "print(operating_system.CAN_SHARE_SOCKETS)\n"
        "exec('import fcntl', {'__name__': 'habitus.trial'})\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=person.environ, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\nFalse\n"
    assert "No module named 'fcntl' on Windows" in done.stderr


def test_a_library_is_kept_and_used(person: Person) -> None:
    model = person.folder / "model.json"
    model.write_text(json.dumps([{"say": "It is 42."}]))
    person.run("skills", "new", "tidy-inbox", "--description", "Empties an inbox.", "--when", "The inbox is full")
    assert "tidy-inbox" in person.run("skills", "search", "a full inbox")
    assert "Empties an inbox." in person.run("skills", "show", "tidy-inbox")
    packed = person.folder / "given" / "water-roses"
    packed.mkdir(parents=True)
    (packed / "SKILL.md").write_text("---\nname: water-roses\ndescription: Waters roses.\n---\n\n1. Take a can.\n")
    person.run("skills", "add", str(packed.parent))
    assert "water-roses" in person.run("skills", "list")
    assert "It is 42." in person.run("chat", "What is 6 * 7?", "--model", f"script:{model}")
    session = json.loads(person.run("sessions", "list", "--json"))["sessions"][0]
    assert (session["user"], session["turns"]) == ("somebody", 1)
    (turn,) = json.loads(person.run("sessions", "show", session["id"], "--json"))["turns"]
    person.run("sessions", "outcome", turn["id"], "--ok")
    person.run("lessons", "add", "The roses are watered in the morning.")
    person.run("jobs", "add", "curate")
    person.run("jobs", "work", "--until-idle")
    assert "done" in person.run("jobs", "list", "--all")
    assert "No agent keeps skills or transcripts here" in person.run("check", code=1)
    person.run("skills", "export", "tidy-inbox", "--to", str(person.folder / "out"))
    assert (person.folder / "out" / "tidy-inbox" / "SKILL.md").is_file()
    person.run("db", "backup", str(person.folder / "backup.tar.gz"))
    person.run("db", "restore", str(person.folder / "backup.tar.gz"), "--yes")
    assert "tidy-inbox" in person.run("skills", "list")


def test_untrusted_code_is_refused_in_one_line_and_the_doctor_says_why(person: Person) -> None:
    # What macOS may do, Windows can't.
    person.run("config", "set", "allow_weaker_sandbox", "true")
    refused = person.run("tools", "scratchpad", "exec", "sums", "1 + 1", code=1)
    assert refused.count("\n") == 1
    assert "can't hold untrusted code: no protection of files, network, limits" in refused
    checked = json.loads(person.run("doctor", "--json"))["checks"]
    missing = {check["name"]: check["hint"] for check in checked if check["state"] != "ok"}
    assert {"sandbox: files", "sandbox: network", "sandbox: limits"} <= missing.keys()
    assert "WSL 2" in missing["sandbox: files"]


def test_a_page_is_served_and_several_processes_are_refused(person: Person) -> None:
    person.run("lessons", "add", "The roses are watered in the morning.")
    assert "can't serve one port" in person.run("up", "--workers", "2", code=1)
    command = [sys.executable, "-m", "habitus", "up", "--port", "0"]
    with subprocess.Popen(command, env=person.environ, cwd=person.folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            link = next(line for line in server.stdout if "/enter?key=" in line)
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open("http://" + link.partition("http://")[2].strip()) as page:
                assert page.status == 200
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
        finally:
            server.kill()


def test_hooks_reach_their_process_over_the_loopback(person: Person) -> None:
    person.run("lessons", "add", "The roses are watered in the morning.")
    program = f"""
import sys
from habitus.hosts import hook
sys.platform = "win32"
hook.main({{event!r}}, {str(person.home)!r}, sys.executable)
"""
    try:
        person.python(program.format(event="SessionStart"))
        port, token = (person.home / "hooks.socket").read_text().split()
        assert port.isdecimal()
        assert len(token) == 64
        checks = json.loads(person.run("doctor", "--json"))["checks"]
        assert "the resident process runs" in next(one["detail"] for one in checks if one["name"] == "hooks")
    finally:
        (person.home / "hooks.socket").unlink()
