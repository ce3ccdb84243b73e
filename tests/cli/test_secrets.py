"""`habitus secrets`: values go in and never come out; a skill gets what a person granted it as it is, and no more."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from keyring.backends.fail import Keyring as NoKeyring

from habitus.app import Habitus, read_settings
from habitus.app.conversations.command_lines import UserSkillCommandLineRegistry
from habitus.app.conversations.secrets import open_command_line_call_log
from habitus.errors import UserError
from habitus.events import OK, OutcomeKind, build_failed_outcome
from habitus.operating_system import get_account_name
from habitus.sandbox.credentials.grants import CommandLineCall, GrantedCredentials
from tests.cli.conftest import Direct
from tests.cli.pseudo_terminal import ENTER, PseudoTerminal, at_a_terminal
from tests.conftest import Cli
from tests.homes import furnish
from tests.skills.formats.made import write_files

KEY = {"HABITUS_VAULT_KEY": "a-long-random-text-of-a-variable"}
SECRET = "tr0ub4dor-and-three"
CLI = "import argparse, json, os\n\ndef main():\n    print(json.dumps({'status': 'ok'}))\n"
ENV = [
    {"var": "SMTP_HOST", "from": "config", "config_path": "email.smtp_host"},
    {"var": "SMTP_PASSWORD", "from": "config", "config_path": "email.password", "sensitive": True},
    {"var": "NTFY_TOKEN", "from": "secret", "service": "ntfy", "key": "token", "sensitive": True},
    {"var": "PLACE", "from": "resource"},
]
ODD = "PLACE comes from 'resource'; there are: config, secret, setup, template_file, user."


@pytest.fixture(scope="module")
def imported(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which a skill in Istota's layout was imported, with a command line that asks for two secrets."""
    place = tmp_path_factory.mktemp("imported")
    front = f"name: pdf_mailer\ndescription: Mails a PDF file\ncli: true\nenv: {json.dumps(ENV)}"
    files = {"skill.md": f"---\n{front}\n---\n# Mail\n\nCall it.\n", "__init__.py": CLI, "__main__.py": "main()\n"}
    top = write_files(place / "skills", {f"pdf_mailer/{name}": text for name, text in files.items()})
    cli = Cli(home=furnish(place / "home"), user_home=place, cwd=place, program=(str(program),))
    assert "1 skill asks for secrets; see 'habitus secrets list'." in cli("skills", "import", str(top)).out
    return cli.home


@pytest.fixture
def mailer(direct: Direct, imported: Path) -> Direct:
    shutil.copytree(imported, direct.home, dirs_exist_ok=True)
    return direct


def keep(direct: Direct, name: str = "email.password", value: str = SECRET) -> None:
    direct.ok("secrets", "set", name, stdin=f"{value}\n", env=KEY)


def opened(direct: Direct, patch: pytest.MonkeyPatch) -> Habitus:
    for name, value in direct.cli.environ(KEY).items():
        patch.setenv(name, value)
    return Habitus.open(read_settings().model_copy(update={"cwd": direct.cli.cwd}))


def called(direct: Direct, patch: pytest.MonkeyPatch, *, user: str | None = None) -> GrantedCredentials:
    """What its command line would get in a session of somebody."""
    with opened(direct, patch) as habitus:
        return (
            UserSkillCommandLineRegistry(habitus, habitus.get_user(user)).get_checked_command_line("pdf-mailer").granted
        )


def standing(direct: Direct) -> dict[str, str]:
    return {each["secret"]: each["status"] for each in direct.json("secrets", "list", env=KEY)["requests"]}


@pytest.mark.req("SB-11")
def test_a_value_goes_in_by_standard_input_and_never_comes_out(direct: Direct) -> None:
    keep(direct)
    shown = direct.ok("secrets", "list", env=KEY)
    assert "email.password" in shown
    assert direct.json("secrets", "list", env=KEY)["secrets"] == [{"name": "email.password", "granted_to": []}]
    for words in (("email.password", SECRET), (f"email.password={SECRET}",)):
        ran = direct("secrets", "set", *words, env=KEY)
        assert (ran.code, ran.out) == (1, "")
        assert "A value is never an argument" in ran.err
        assert SECRET not in ran.err
    forms = (SECRET.encode(), base64.b64encode(SECRET.encode()).rstrip(b"="))
    assert [
        path for path in direct.home.rglob("*") if path.is_file() and any(f in path.read_bytes() for f in forms)
    ] == []


@pytest.mark.req("SB-11")
def test_the_doctor_says_whether_the_key_of_the_vault_is_at_hand(direct: Direct) -> None:
    keep(direct)
    wrong = {"HABITUS_VAULT_KEY": "another-long-random-text"}
    for key, told in (
        (KEY, ("ok", "1 secrets, and its key is available")),
        ({}, ("missing", f"{direct.home}/vault.json is locked.")),
        (wrong, ("missing", f"That is not the key of {direct.home}/vault.json.")),
    ):
        assert checked(direct, key)["vault"] == told


@pytest.mark.req("SB-11", "OP-02")
def test_the_doctor_says_which_command_line_would_be_refused_and_that_secrets_have_no_key(
    mailer: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyring.core._keyring_backend", NoKeyring())  # type: ignore[no-untyped-call]  # the library has no types
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    before = checked(mailer, {})
    assert before["vault"] == ("missing", "There is no keyring here, and no key for the vault.")
    assert before["command lines"][1].endswith("'pdf-mailer' asks for secrets, and was granted none.")
    keep(mailer)
    mailer.ok("secrets", "grant", "email.password", "pdf-mailer", env=KEY)
    assert "1 of 1 can be called: pdf-mailer" in checked(mailer, KEY)["command lines"][1]
    mailer.ok("skills", "edit", "pdf-mailer", "--append", "It is polite.")
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    state, detail = checked(mailer, KEY)["command lines"]
    refused = "0 of 1 can be called; 'pdf-mailer' has changed since it was granted email.password."
    assert (state, detail) == ("missing", refused)


def checked(direct: Direct, env: dict[str, str]) -> dict[str, tuple[str, str]]:
    ran = direct("doctor", "--json", env=env)
    return {check["name"]: (check["state"], check["detail"]) for check in json.loads(ran.out)["checks"]}


@pytest.mark.req("SB-11")
def test_a_secret_is_forgotten_only_when_a_person_says_so(direct: Direct) -> None:
    keep(direct)
    refused = direct("secrets", "remove", "email.password", env=KEY)
    assert (refused.code != 0, "add --yes" in refused.err) == (True, True)
    assert direct.json("secrets", "remove", "email.password", "--yes", env=KEY) == {"removed": "email.password"}
    assert "No secrets yet" in direct.ok("secrets", "list")
    gone = direct("secrets", "remove", "email.password", "--yes")
    assert (gone.code, "has no secret 'email.password'" in gone.err) == (1, True)


@pytest.mark.req("SB-11")
def test_an_imported_declaration_is_a_request_until_a_person_grants_it(
    mailer: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(mailer)
    assert standing(mailer) == {"email.password": "untrusted", "ntfy.token": "untrusted"}
    assert "trust pdf-mailer" in mailer("secrets", "grant", "email.password", "pdf-mailer", env=KEY).err
    with pytest.raises(UserError, match=r"not trusted in its current version.*habitus review trust pdf-mailer"):
        called(mailer, monkeypatch)

    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    assert standing(mailer) == {"email.password": "pending", "ntfy.token": "pending"}
    asked = "pdf-mailer asks for email.password (pending): habitus secrets grant email.password pdf-mailer"
    assert f"{asked}\n" in (listed := mailer.ok("secrets", "list", env=KEY))
    assert f"pdf-mailer: {ODD}" in listed
    with pytest.raises(UserError, match=r"granted none. Run: habitus secrets grant email.password ntfy.token pdf"):
        called(mailer, monkeypatch)

    (mailer.home / "habitus.toml").write_text('[skill_config.email]\nsmtp_host = "mail.example.org"\n')
    said = mailer.ok("secrets", "grant", "email.password", "pdf-mailer", "--host", "mail.example.org:587", env=KEY)
    assert "may use email.password and reach mail.example.org:587, as it is now" in said
    assert standing(mailer) == {"email.password": "granted", "ntfy.token": "pending"}
    assert called(mailer, monkeypatch) == GrantedCredentials(
        variables={"SMTP_HOST": "mail.example.org", "SMTP_PASSWORD": SECRET},
        sensitive=frozenset({SECRET}),
        secrets=("email.password",),
        hosts=("mail.example.org:587",),
        pending=("ntfy.token",),
        missing=("The secret 'ntfy.token' is not granted: habitus secrets grant ntfy.token pdf-mailer", ODD),
    )


@pytest.mark.req("SB-11")
def test_a_skill_that_changed_after_its_grant_waits_again(mailer: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(mailer)
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    mailer.ok("secrets", "grant", "--all", "--yes", "--host", "mail.example.org", "pdf-mailer", env=KEY)
    assert standing(mailer) == {"email.password": "granted", "ntfy.token": "not set"}
    script = mailer.home / "skills" / "pdf-mailer" / "__init__.py"
    script.write_text(CLI + "# and a line more\n")
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    assert standing(mailer) == {"email.password": "changed", "ntfy.token": "changed"}
    with pytest.raises(UserError, match=r"changed since it was granted.*habitus secrets grant --again pdf-mailer"):
        called(mailer, monkeypatch)
    mailer.ok("secrets", "grant", "--again", "pdf-mailer", env=KEY)
    found = called(mailer, monkeypatch)
    assert (found.secrets, found.hosts) == (("email.password",), ("mail.example.org",))
    script.write_text(CLI)  # as it was when it was first granted
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    with pytest.raises(UserError, match="changed since"):
        called(mailer, monkeypatch)


@pytest.mark.req("SB-11")
def test_a_grant_can_be_taken_back_and_is_for_ones_own_sessions(
    mailer: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(mailer)
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    said = mailer.ok("secrets", "grant", "email.password", "pdf-mailer", env=KEY)
    assert "Undo: habitus secrets revoke email.password pdf-mailer" in said
    with pytest.raises(UserError, match="was granted none"):
        called(mailer, monkeypatch, user="bob")
    seen_by_bob = mailer.json("secrets", "list", env={**KEY, "HABITUS_USER": "bob"})["requests"]
    assert [request["status"] for request in seen_by_bob] == ["pending", "pending"]
    assert "may no longer use email.password" in mailer.ok("secrets", "revoke", "pdf-mailer")
    with pytest.raises(UserError, match="was granted none"):
        called(mailer, monkeypatch)
    mailer.ok("secrets", "grant", "--everybody", "email.password", "pdf-mailer", env=KEY)
    assert called(mailer, monkeypatch, user="bob").secrets == ("email.password",)


@pytest.mark.req("SB-11")
def test_only_what_a_skill_asks_for_is_granted(mailer: Direct) -> None:
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    for words, said in (
        (("aws", "pdf-mailer"), "does not ask for 'aws'. It asks for: email.password, ntfy.token."),
        (("email.pasword", "pdf-mailer"), "Did you mean 'email.password'?"),
        (("pdf-mailer", "--host", "http://x/y"), "'http://x/y' is not a host. Write example.org"),
        (("pdf-mailer",), "Name a secret before the skill"),
        (("email.password", "pdf-maile"), "No skill 'pdf-maile'. Did you mean 'pdf-mailer'?"),
        (("--all", "pdf-mailer"), "'pdf-mailer' asks for email.password, ntfy.token."),
    ):
        ran = mailer("secrets", "grant", *words)
        assert ran.code != 0
        assert said in " ".join(ran.err.replace("│", "").split())
    assert mailer.json("secrets", "list")["grants"] == []


@pytest.mark.req("SB-11")
def test_who_is_no_admin_leaves_the_vault_alone(direct: Direct) -> None:
    (direct.home / "habitus.toml").write_text("[users.ann]\nadmin = true\n[users.bob]\nadmin = false\n")
    for words, said in ((("set", "a"), "change the vault"), (("grant", "a", "b"), "grant secrets")):
        ran = direct("secrets", *words, stdin=SECRET, env={**KEY, "HABITUS_USER": "bob"})
        assert (ran.code, f"Only an admin may {said}" in ran.err) == (1, True)


@pytest.mark.req("SB-11")
def test_the_log_tells_who_called_what_and_keeps_no_secret(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(direct)
    with opened(direct, monkeypatch) as habitus:
        open_command_line_call_log(habitus).record(
            CommandLineCall(
                caller="bob",
                skill="pdf-mailer",
                arguments=("send", f"--password={SECRET}"),
                outcome=build_failed_outcome(f"it said {SECRET}"),
                is_refused=True,
                secrets=("email.password",),
                timestamp=habitus.clock(),
            )
        )
    ((call,), *_) = direct.json("secrets", "log", env=KEY).values()
    del call["timestamp"]
    assert call == {
        "caller": "bob",
        "skill": "pdf-mailer",
        "arguments": ["send", "--password=[redacted:known]"],
        "outcome": {"kind": OutcomeKind.FAILED.value, "reason": "it said [redacted:known]"},
        "is_refused": True,
        "secrets": ["email.password"],
    }
    assert "pdf-mailer send --password=[redacted:known]" in direct.ok("secrets", "log", "--since", "1h", env=KEY)
    assert "No calls yet" in direct.ok("secrets", "log", "--since", "2100-01-01", env=KEY)


@pytest.mark.req("SB-11", "SB-14")
def test_what_is_in_the_vault_is_taken_out_of_whatever_is_kept(direct: Direct) -> None:
    keep(direct)
    encoded = base64.b64encode(SECRET.encode()).decode()
    said = direct.ok("lessons", "add", f"The mail server takes {SECRET} or {encoded}.", env=KEY)
    assert SECRET not in said
    told: Mapping[str, Any] = direct.json("lessons", "list", env=KEY)["lessons"][0]
    assert told["text"] == "The mail server takes [redacted:known] or [redacted:known]."


@pytest.mark.req("SB-11", "SC-04")
def test_forgetting_somebody_takes_their_grants_and_calls_along(
    mailer: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(mailer)
    mailer.ok("review", "trust", "pdf-mailer", "--yes")
    as_bob = {**KEY, "HABITUS_USER": "bob"}
    mailer.ok("secrets", "grant", "email.password", "pdf-mailer", env=as_bob)
    mailer.ok("secrets", "grant", "--everybody", "ntfy.token", "pdf-mailer", env=as_bob)
    with opened(mailer, monkeypatch) as habitus:
        call = CommandLineCall(
            caller="bob, session 7", skill="pdf-mailer", arguments=(), outcome=OK, timestamp=habitus.clock()
        )
        open_command_line_call_log(habitus).record(call)
        open_command_line_call_log(habitus).record(replace(call, caller="bobby"))
    mailer.ok("users", "forget", "bob", "--yes", env=KEY)
    (grant,) = mailer.json("secrets", "list", env=KEY)["grants"]
    assert (grant["what"], "bob" in grant["granted_by"]) == ("ntfy.token", False)
    assert [call["caller"] for call in mailer.json("secrets", "log", env=KEY)["calls"]] == ["bobby"]


@pytest.mark.full
@pytest.mark.req("SB-11", "SB-14")
def test_at_a_terminal_value_and_password_are_typed_unseen(run_cli: Cli) -> None:
    assert run_cli("secrets", "set", "other", stdin="another value", env=KEY).code == 0
    (run_cli.cwd / "model.json").write_text(json.dumps([{"say": f"It is {SECRET}."}]))
    (password,) = KEY.values()

    def terminal(*words: str) -> AbstractContextManager[PseudoTerminal]:
        return at_a_terminal([*run_cli.program, *words], env=run_cli.environ(), cwd=run_cli.cwd)

    with terminal("secrets", "set", "email.password") as typing:
        typing.wait_for("Value of email.password: ")
        typing.type(f"{SECRET}\n")
        typing.wait_for("Password of the vault (Enter to continue without): ")
        typing.type(f"{password}\n")
        typing.wait_for("'email.password' was stored.")
        assert typing.ended() == 0
    with terminal("chat", "--model", "script:model.json") as chat:
        chat.wait_for("Password of the vault (Enter to continue without): ")
        chat.type(f"{password}\n")
        chat.wait_for("› ")
        chat.type(f"what is it?{ENTER}")
        chat.wait_for("It is [redacted:known].")
    for shown in (typing.shown, chat.shown):
        assert SECRET not in shown
        assert password not in shown


EVERY_SOURCE = [
    {"var": "RULES", "from": "template_file", "name": "assets/rules.txt"},
    {"var": "WHO", "from": "user"},
    {"var": "PLACE", "from": "setup"},
    {"var": "UNIT", "from": "config", "name": "scale.unit", "when": "scale.on"},
    {"var": "COLOUR", "from": "config", "name": "scale.unit", "when": "scale.off"},
    {"var": "TOKEN", "from": "secret", "name": "scale.token", "sensitive": True, "fallback": "SCALE_TOKEN"},
]
SHOW = """
import json, os, pathlib

def main():
    found = {name: os.environ.get(name) for name in ("WHO", "PLACE", "UNIT", "COLOUR", "TOKEN")}
    print(json.dumps(found | {"rules": pathlib.Path(os.environ["RULES"]).read_text()}))
"""


@pytest.mark.req("SB-10", "SB-11")
def test_a_command_line_has_every_kind_of_variable_and_nothing_else_of_this_host(direct: Direct) -> None:
    front = f"name: weigh\ndescription: Weighs.\ncli: true\nenv: {json.dumps(EVERY_SOURCE)}"
    files = {"SKILL.md": f"---\n{front}\n---\n\nCall it.\n", "scripts/cli.py": SHOW, "assets/rules.txt": "as it came"}
    write_files(direct.home / "skills" / "weigh", files)
    (direct.home / "habitus.toml").write_text(
        'skill_config = { PLACE = "kitchen", "scale.unit" = "kg", scale = { on = true } }\n'
    )
    host = {**KEY, "SCALE_TOKEN": SECRET}
    assert "granted none" in direct("skills", "run", "weigh", env=host).err
    assert "habitus secrets grant scale.token weigh" in direct.ok("secrets", "list", env=host)
    direct.ok("secrets", "grant", "SCALE_TOKEN", "weigh", env=host)
    told = {"WHO": get_account_name(), "PLACE": "kitchen", "UNIT": "kg", "COLOUR": None, "TOKEN": "[redacted:known]"}
    ran = direct("skills", "run", "weigh", env=host)
    assert json.loads(ran.out) == {**told, "rules": "as it came"}
    assert "It printed a secret, which was removed." in ran.err
    (own,) = (direct.home / "skill-files").rglob("rules.txt")
    own.write_text("as I like it")
    assert json.loads(direct("skills", "run", "weigh", env=host).out)["rules"] == "as I like it"
