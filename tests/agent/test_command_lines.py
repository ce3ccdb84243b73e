"""Command lines of skills in a session: a model reads how to call one, and its code reaches it, and no secret."""

from __future__ import annotations

import json

import pytest

from habitus.agent.session import Session
from habitus.agent.stream import ToolFinished
from habitus.app import Habitus
from habitus.app.conversations import secrets
from habitus.app.use_cases import secrets as granting
from habitus.files import build_tree_file
from habitus.llm.model import AssistantMessage
from habitus.llm.scripted import calls, says
from habitus.sandbox.machine import probe_machine
from habitus.skills.model import Manifest, Skill
from tests.agent.conftest import Talk

pytestmark = pytest.mark.req("SB-10")

SECRET = "tr0ub4dor-and-three"
CLI = b"""
import json, os, sys

def main():
    secret = os.environ["DESK_TOKEN"]
    if sys.argv[1:] == ["leak"]:
        print(secret)
    elif sys.argv[1:] == ["look"]:
        print(json.dumps({"pad": os.path.exists("/sandbox/notes.txt"), "files": os.listdir("/sandbox")}))
    else:
        print(json.dumps({"status": "ok", "length": len(secret), "said": sys.argv[1:] + [sys.stdin.read()]}))
"""
ASKS = ({"var": "DESK_TOKEN", "from": "secret", "name": "desk.token"},)


@pytest.fixture
def desk(habitus: Habitus, monkeypatch: pytest.MonkeyPatch) -> Habitus:
    """A home with a skill whose command line was granted a secret."""
    monkeypatch.setenv("HABITUS_VAULT_KEY", "a-long-random-text-of-a-variable")
    skill = Skill(name="desk", description="Files tickets", body="File it.", manifest=Manifest(cli=True, env=ASKS))
    habitus.skills.create(skill, habitus.build_author(), files={"scripts/cli.py": build_tree_file(CLI)})
    habitus.vault.set("desk.token", SECRET)
    granting.grant_secrets(habitus, granting.GrantSecretsRequest(names=("desk.token", "desk")))
    return habitus


CELL = """
import json, os, subprocess

def command(*words, stdin=""):
    ran = subprocess.run(["habitus-skill", *words], input=stdin, capture_output=True, text=True)
    return [ran.returncode, ran.stdout, ran.stderr]

def asked(*words, stdin=""):
    ran = skills.run(*words, stdin=stdin)
    return [ran.code, ran.stdout, ran.stderr]

open("notes.txt", "w").write("mine")
has_command = os.path.exists(os.environ["GIVEN"] + "/.bin")
for call in (asked, command) if has_command else (asked,):
    for words in (["desk", "file", "k\u00e4se"], ["desk", "look"], ["desk", "leak"], ["mail", "x"]):
        print(json.dumps(call(*words, stdin="body")))
print(sorted(name for name in os.environ if "TOKEN" in name))
"""


def cell(code: str) -> AssistantMessage:
    return calls("scratchpad", {"action": "exec", "code": code})


async def contents(session: Session) -> list[str]:
    """What each call of a turn came to."""
    return [event.content async for event in session.turn_stream("file it") if isinstance(event, ToolFinished)]


@pytest.mark.full
async def test_a_cell_calls_a_command_line_and_sees_no_secret(desk: Habitus, talk: Talk) -> None:
    session, model = talk([calls("recall_skill", {"name": "desk"}), cell(CELL), says("done")])
    recalled, ran = await contents(session)
    assert "`skills.run('desk', '--help')` gives its stdout, stderr and code" in recalled
    *answers, variables = ran.splitlines()
    assert variables == "[]"
    assert len(answers) == (8 if probe_machine().bubblewrap else 4)
    done, looked, leaked, unknown = map(json.loads, answers[:4])
    assert [json.loads(line) for line in answers[4:]] in ([], [done, looked, leaked, unknown])
    filed = {"status": "ok", "length": len(SECRET), "said": ["file", "käse", "body"]}
    assert (done[0], json.loads(done[1]), done[2]) == (0, filed, "")
    assert json.loads(looked[1]) == {"pad": False, "files": ["tool.py"]}  # it has no part in the scratchpad
    assert leaked[1:] == ["[redacted:known]\n", "habitus-skill: It printed a secret, which was removed.\n"]
    assert unknown[0] == 127
    assert unknown[2] == "habitus-skill: No command line 'mail' may be called here. There are: desk.\n"
    assert SECRET not in str(model.asked) + ran
    log = secrets.open_command_line_call_log(desk).list_logged_calls()
    assert len(log) == len(answers)
    assert {call.caller for call in log} == {f"ann, session {session.id}"}
    await session.close()
    assert not list(desk.settings.home.rglob("socket"))


TOOL = """
import json, subprocess
try:
    print(json.dumps([skills.run("desk", "x").code, subprocess.run(["habitus-skill", "desk", "x"]).returncode]))
except (LookupError, OSError) as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.full
async def test_a_tool_calls_it_as_a_cell_does(desk: Habitus, talk: Talk) -> None:
    if not probe_machine().bubblewrap:
        pytest.skip("bubblewrap is missing or does not work here")
    await desk.tools.create("filer", "Files it.", {"type": "object"}, TOOL, {}, desk.build_author())
    session, _ = talk([calls("filer", {}), says("done")])
    [said] = await contents(session)
    assert said.splitlines()[-1] == "[0, 0]"


async def test_the_list_is_fixed_and_the_gates_are_not(desk: Habitus, talk: Talk) -> None:
    """What is made in a session can't be called in it; what was switched off meanwhile can't be called any more."""

    def switched(ask: object) -> AssistantMessage:
        other = Skill(name="other", description="Other", body="x", manifest=Manifest(cli=True))
        desk.skills.create(other, desk.build_author(), files={"scripts/cli.py": build_tree_file(CLI)})
        desk.skills.set_enabled("desk", False, desk.build_author())
        return cell("print(skills.run('desk', 'x').stderr, skills.run('other', 'x').stderr)")

    first = cell("print(skills.run('desk', 'x').code)")
    session, _ = talk([first, switched, says("done")])
    before, after = await contents(session)
    assert before == "0"
    assert "'desk' can't be called: switched off." in after
    assert "No command line 'other' may be called here. There are: desk." in after


async def test_what_only_practises_acts_on_no_account(desk: Habitus, talk: Talk) -> None:
    session, _ = talk([cell("print(skills.run('desk', 'x').stderr)"), says("done")], source_type="dream")
    [said] = await contents(session)
    assert "There are none." in said
