"""What an admin who is not the owner of the machine can't reach: its files, its programs and its network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from habitus.agent.history import encode_message_for_journal
from habitus.agent.recording.outcomes import build_full_weight_outcome
from habitus.app import Habitus
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.events import OutcomeKind
from habitus.journal.model import JudgementSourceKind, SelectedSkill, SkillPlacementKind, Turn
from habitus.llm.model import AssistantMessage
from habitus.web.security import SignInService
from tests.planted import KEYS

API = "/api/v1"
SECRET = "the-owner-has-4711-apples"


@pytest.fixture
def guest(stranger: TestClient, habitus: Habitus) -> TestClient:
    """An admin of the page who is not the owner of the machine."""
    stranger.headers["Authorization"] = (
        f"Bearer {open_user_accounts(habitus).add_or_reinvite_user('eve', UserRole.ADMIN).token}"
    )
    return stranger


def ask_three_times(habitus: Habitus, user: str, request: str) -> None:
    """Record a request that was served with a skill in three conversations, and accepted."""
    for number in range(3):
        turn = Turn(
            id=f"{user}{number}",
            session=f"{user}-s{number}",
            request=request,
            started_on=habitus.clock(),
            ended_on=habitus.clock(),
            user=user,
            project=habitus.project,
            messages=(encode_message_for_journal(AssistantMessage(text="They come to 4242.")),),
            selected=(SelectedSkill(name="brew-tea", place=SkillPlacementKind.LOADED, reason="asked for"),),
            outcomes=(build_full_weight_outcome(OutcomeKind.OK, "user", JudgementSourceKind.PERSON),),
        )
        habitus.journal.record_complete_turn(turn)


@pytest.mark.req("CL-04", "IM-02")
def test_mining_opens_no_file_for_a_guest(guest: TestClient, habitus: Habitus, tmp_path: Path) -> None:
    credentials = tmp_path / ".claude" / ".credentials.json"
    credentials.parent.mkdir()
    credentials.write_text(SECRET)
    in_project = habitus.settings.cwd / "numbers.csv"
    in_project.write_text(SECRET)
    for number, path in enumerate((credentials, in_project)):
        ask_three_times(habitus.as_user("eve"), "eve", f"Please add up the numbers in {path} ({number})")
    answer = guest.post(f"{API}/tasks/mine", json={})
    assert (answer.status_code, answer.json()["found"]) == (200, [])
    refused = guest.post(f"{API}/tasks/mine", json={"source": "transcripts"})
    assert (refused.status_code, SECRET in refused.text) == (409, False)


@pytest.mark.req("IM-02")
@pytest.mark.parametrize("where", ["../elsewhere.csv", "{tmp}/elsewhere.csv", "./.env/keys.csv", "./link.csv"])
def test_mining_opens_only_files_of_the_project_for_the_owner(
    api: TestClient, habitus: Habitus, tmp_path: Path, where: str
) -> None:
    project = tmp_path / "work" / "project"
    (project / ".env").mkdir(parents=True)
    for path in (tmp_path / "elsewhere.csv", project.parent / "elsewhere.csv", project / ".env" / "keys.csv"):
        path.write_text(SECRET)
    (project / "link.csv").symlink_to(tmp_path / "elsewhere.csv")
    habitus.settings.__dict__["cwd"] = project  # as if it had been started there
    ask_three_times(habitus, habitus.settings.user, f"Please add up the numbers in {where.format(tmp=tmp_path)}")
    assert SECRET not in api.post(f"{API}/tasks/mine", json={}).text


@pytest.mark.req("IM-02")
def test_mining_opens_files_of_the_conversations_project_not_of_where_it_runs(
    api: TestClient, habitus: Habitus, tmp_path: Path
) -> None:
    here, there = tmp_path / "work" / "here", tmp_path / "work" / "there"
    for project, text in ((here, SECRET), (there, "1\n2\n")):
        project.mkdir(parents=True)
        (project / "sales.csv").write_text(text)
    habitus.settings.__dict__["cwd"] = there
    ask_three_times(habitus, habitus.settings.user, "Please add up the numbers in ./sales.csv")
    habitus.settings.__dict__["cwd"] = here
    (found,) = api.post(f"{API}/tasks/mine", json={}).json()["found"]
    assert found["task"]["files"] == {"sales.csv": "1\n2\n"}


@pytest.mark.req("IM-02", "SE-01")
def test_a_mined_file_is_redacted(api: TestClient, habitus: Habitus, tmp_path: Path) -> None:
    project = tmp_path / "work" / "project"
    project.mkdir(parents=True)
    habitus.settings.__dict__["cwd"] = project
    ask_three_times(habitus, habitus.settings.user, "Please add up the numbers in ./data/sales.csv")
    (project / "data").mkdir()
    file = project / "data" / "sales.csv"
    file.write_text("1\n2\n")
    (found,) = api.post(f"{API}/tasks/mine", json={}).json()["found"]
    assert found["task"]["files"] == {"sales.csv": "1\n2\n"}
    file.write_text(KEYS["openai"])
    assert KEYS["openai"] not in api.post(f"{API}/tasks/mine", json={}).text


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("review.somebody_else", "false"),
        # It would let through what their own agent proposes.
        ("review.auto", "true"),
        ("learning_tokens", "99999999"),
        ("retention.turn_days", "1"),
        ("model", "claude-code"),
        ("cheap_model", "codex:o3"),
        ("model", "script:/etc/passwd"),
    ],
)
def test_what_limits_admins_is_set_by_the_owner_alone(
    guest: TestClient, api: TestClient, habitus: Habitus, key: str, value: str
) -> None:
    doors = [
        guest.put(f"{API}/settings/{key}", json={"value": value}),
        guest.post(f"{API}/undo", json={"undo": ["config", "set", key, value]}),
    ]
    if key not in ("model", "cheap_model"):
        doors.append(guest.delete(f"{API}/settings/{key}"))
    assert [answer.status_code for answer in doors] == [409] * len(doors)
    assert guest.put(f"{API}/settings/bot_name", json={"value": "Ada"}).status_code == 200
    assert api.put(f"{API}/settings/retention.lessons", json={"value": "40"}).status_code == 200


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    "words", [{"solver": "claude-code"}, {"model": "claude-code"}, {"model": "script:/etc/passwd"}]
)
def test_a_guest_names_no_program_of_this_machine(guest: TestClient, words: dict[str, str]) -> None:
    answer = guest.post(f"{API}/skills/brew-tea/improvements", json=words)
    assert (answer.status_code, "Only the owner starts programs" in answer.text) == (409, True)


@pytest.mark.req("CL-04")
def test_a_cookie_of_thousands_of_digits_signs_nobody_in(stranger: TestClient, keys: SignInService) -> None:
    for value in ("9" * 5_000 + ".a.b.c.d", "9" * 5_000):
        answer = stranger.get(f"{API}/skills", headers={"Cookie": f"{keys.cookie}={value}"})
        assert answer.status_code == 401
    long = {"Content-Length": "9" * 5_000, "Authorization": f"Bearer {keys.owner_token}"}
    assert stranger.post(f"{API}/pause", headers=long).status_code in (405, 413)


@pytest.mark.req("CL-04")
def test_a_guest_adds_no_account_under_the_name_of_who_worked_here_without_one(
    guest: TestClient, habitus: Habitus
) -> None:
    """The owner's conversations would be listed for it, also those that are still to come."""
    ask_three_times(habitus, "yan", "How long does tea take?")
    for name in (habitus.settings.user, "yan"):
        told = guest.post(f"{API}/users", json={"name": name, "role": "viewer"})
        assert (told.status_code, "has worked here without an account" in told.text) == (409, True)
    assert guest.post(f"{API}/users", json={"name": "zoe", "role": "viewer"}).status_code < 300


@pytest.mark.req("CL-04", "CL-10")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_guest_fetches_without_the_sign_ins_of_the_owner(
    guest: TestClient, api: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them a guest would import the owner's private repositories."""
    asked, program = tmp_path / "asked", tmp_path / "bin" / "git"
    program.parent.mkdir()
    ask = f"printf 'protocol=https\\nhost=192.0.2.1\\n\\n' | {shutil.which('git')} credential fill"
    program.write_text(f"#!/bin/sh\n{{ {ask}; env; ls -a ~; }} > {asked} 2>&1\nexit 1\n")
    program.chmod(0o755)
    owner = tmp_path / "owner"
    owner.mkdir()
    (owner / ".netrc").write_text("machine 192.0.2.1 login ann password x\n")
    helper = f'"!f() {{ echo username=ann; echo password={SECRET}; }}; f"'
    (owner / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
    for name, value in {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(owner),
        "SSH_AUTH_SOCK": "/agent",
        "https_proxy": "http://proxy",
    }.items():
        monkeypatch.setenv(name, value)
    api.post(f"{API}/additions", json={"source": "https://1.1.1.1/skills.git"})
    assert SECRET in asked.read_text()
    asked.unlink()
    guest.post(f"{API}/additions", json={"source": "https://1.1.1.1/skills.git"})
    told = asked.read_text()
    assert "GIT_TERMINAL_PROMPT=0" in told
    assert [one for one in (SECRET, "/agent", ".netrc", "http://proxy") if one in told] == []
