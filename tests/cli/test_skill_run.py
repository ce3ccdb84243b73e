"""`habitus skills run`: command lines of skills from a shell, behind every gate, with what was granted and no more."""

from __future__ import annotations

import json
import runpy
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from habitus.sandbox.machine import probe_machine
from tests.cli.conftest import Direct
from tests.skills.formats.made import write_files

pytestmark = pytest.mark.req("SB-10")

KEY = {"HABITUS_VAULT_KEY": "a-long-random-text-of-a-variable"}
SECRET = "tr0ub4dor-and-three"
ENV = [
    {"var": "MAIL_PASSWORD", "from": "config", "config_path": "mail.password", "sensitive": True},
    {"var": "BANK_PIN", "from": "secret", "service": "bank", "key": "pin", "sensitive": True},
    {"var": "WHO", "from": "user_id"},
]
MODULE = """
import argparse, json, os
from .words import greeting

def build_parser():
    parser = argparse.ArgumentParser(prog="pdf_mailer")
    parser.add_argument("to")
    return parser

async def main():
    to = build_parser().parse_args().to
    found = {name: len(os.environ.get(name, "")) for name in ("MAIL_PASSWORD", "BANK_PIN")}
    print(json.dumps({"status": "ok", "said": greeting(to), "who": os.environ["WHO"], "lengths": found}))
"""


@pytest.fixture
def mailer(direct: Direct, tmp_path: Path) -> Direct:
    """A home into which a skill in Istota's layout was imported; its command line asks for two secrets."""
    front = f"name: pdf_mailer\ndescription: Mails a PDF file\ncli: true\nenv: {json.dumps(ENV)}"
    files = {
        "skill.md": f"---\n{front}\n---\n# Mail\n\nCall it.\n",
        "__init__.py": MODULE,
        "__main__.py": "import asyncio\n\nfrom . import main\n\nasyncio.run(main())\n",
        "words.py": "def greeting(to):\n    return f'Dear {to}'\n",
    }
    top = write_files(tmp_path / "skills", {f"pdf_mailer/{name}": text for name, text in files.items()})
    direct.ok("skills", "import", str(top))
    return direct


def refused(direct: Direct, *words: str) -> str:
    ran = direct("skills", "run", "pdf-mailer", *words, "--", "ben", env=KEY)
    assert (ran.code, ran.out) == (126, ""), ran
    return ran.err


def test_a_skill_of_istotas_layout_is_imported_granted_and_runs(mailer: Direct) -> None:
    assert "not trusted in its current version; see 'habitus review trust pdf-mailer'" in refused(mailer)
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    assert "asks for secrets, and was granted none" in refused(mailer)
    mailer.ok("secrets", "set", "mail.password", stdin=SECRET, env=KEY)
    mailer.ok("secrets", "grant", "mail.password", "pdf-mailer", env=KEY)
    ran = mailer("skills", "run", "pdf_mailer", "--", "ben", env=KEY)
    assert (ran.code, ran.err) == (0, "")
    # It asked for every secret, and has the one that it was granted.
    lengths = {"MAIL_PASSWORD": len(SECRET), "BANK_PIN": 0}
    said = json.loads(ran.out)
    assert said == {"status": "ok", "said": "Dear ben", "who": said["who"], "lengths": lengths}

    script = mailer.home / "skills/pdf-mailer/words.py"
    script.write_text(script.read_text() + "# changed\n")
    assert "not trusted in its current version" in refused(mailer)
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    assert "has changed since it was granted mail.password" in refused(mailer)
    mailer.ok("secrets", "grant", "--again", "pdf-mailer", env=KEY)
    assert mailer.ok("skills", "run", "pdf-mailer", "--", "ben", env=KEY)

    log = mailer.json("secrets", "log")["calls"]
    assert [(call["is_refused"], call["outcome"]["kind"]) for call in log] == [
        (False, "ok"),
        (True, "failed"),
        (True, "failed"),
        (False, "ok"),
        (True, "failed"),
        (True, "failed"),
    ]
    assert {call["caller"] for call in log} == {said["who"]}


CLI = """
import sys, json

def main():
    print(sys.stdin.read().upper(), end="")
    if "fail" in sys.argv:
        print(json.dumps({"status": "error", "error": "no such box"}))
    return int(sys.argv[-1])
"""


@pytest.mark.full
def test_a_new_one_runs_as_it_is_and_its_exit_code_and_input_are_passed_on(direct: Direct) -> None:
    assert "Try it: habitus skills run shouter -- greet you\n" in direct.ok("skills", "new", "--cli", "shouter")
    assert json.loads(direct.ok("skills", "run", "shouter", "--", "greet", "you"))["greeting"] == "Hello, you!"
    checks = {check["name"]: check["detail"] for check in json.loads(direct("doctor", "--json").out)["checks"]}
    assert checks["command lines"].startswith("1 of 1 can be called: shouter")
    (direct.home / "skills/shouter/scripts/cli.py").write_text(CLI)
    loud = direct("skills", "run", "shouter", "--input", "-", "--", "3", stdin="hello")
    assert (loud.code, loud.out) == (3, "HELLO")
    told = direct("skills", "run", "shouter", "--", "fail", "0")
    assert (told.code, json.loads(told.out)["error"]) == (1, "no such box")
    assert direct("skills", "run", "shouter", "--", "fail", "3").code == 3
    after = direct("skills", "run", "shouter", "--input", "-", "--", "fail", "0", stdin="connecting\n")
    assert (after.code, after.out.splitlines()[0]) == (1, "CONNECTING")


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("admin_only", "for administrators only"),
        ("experimental", "experimental; add 'skill_greeter' to [experimental] features"),
        ("", "switched off"),
    ],
)
def test_what_is_closed_for_somebody_can_not_be_called(direct: Direct, field: str, reason: str) -> None:
    direct.ok("skills", "new", "--cli", "greeter")
    (direct.home / "habitus.toml").write_text("[users.ann]\nadmin = false\n")
    if field:
        main = direct.home / "skills/greeter/SKILL.md"
        main.write_text(main.read_text().replace("metadata:\n", f'metadata:\n  habitus.{field}: "true"\n'))
    else:
        direct.ok("skills", "disable", "greeter")
    ran = direct("skills", "run", "greeter", "--", "greet", "you")
    assert (ran.code, ran.out) == (126, ""), ran
    assert reason in ran.err
    [call] = direct.json("secrets", "log")["calls"]
    assert (call["skill"], call["is_refused"]) == ("greeter", True)
    assert reason in call["outcome"]["reason"]


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def desk(direct: Direct) -> Iterator[Any]:
    """The service of the example, as its script runs it; it knows one token."""
    if probe_machine().bubblewrap is None:
        pytest.skip("bubblewrap is missing or does not work here")
    service = runpy.run_path(str(EXAMPLES / "services" / "tickets.py"))["Desk"](0, SECRET)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://localhost:{service.server_port}"
    (direct.home / "habitus.toml").write_text(f'[skill_config.ticket_desk]\nurl = "{url}"\n')
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


@pytest.mark.full
def test_the_example_reaches_its_service_once_that_is_granted(direct: Direct, desk: Any) -> None:
    shutil.copytree(EXAMPLES / "ticket-desk", direct.home / "skills/ticket-desk")
    direct.ok("secrets", "set", "ticket_desk.token", stdin=SECRET, env=KEY)
    direct.ok("secrets", "grant", "ticket_desk.token", "ticket-desk", env=KEY)
    call = ("skills", "run", "ticket-desk", "--", "file", "The lift stops.")
    ran = direct(*call, env=KEY)
    place = f"localhost:{desk.server_port}"
    assert json.loads(ran.out)["status"] == "error"
    assert f"habitus-skill: It may not reach {place}." in ran.err
    assert desk.tickets == []
    direct.ok("secrets", "grant", "--again", "--host", place, "ticket-desk", env=KEY)
    ran = direct(*call, env=KEY)
    assert (json.loads(ran.out), ran.err, ran.code) == ({"status": "ok", "desk": {"number": 1}}, "", 0)
    assert desk.tickets == ["The lift stops."]
