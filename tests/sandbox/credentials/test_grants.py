"""What a command line gets: nothing that was not granted to it by name, whatever its skill declares."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.sandbox.credentials.grants import ComesFrom, EnvSpec, Grant, Granted, GrantKind, Values, read_env, resolve

VAULT = {"mail.password": "hunter2-of-mail", "db.url": "postgres://me@host"}
HOST = {"MAIL_TOKEN": "token-of-this-host", "PATH": "/usr/bin", "SHORT": "pin"}
CONFIG = {"mail": {"host": "mail.example.org", "port": 587, "enabled": True}, "flat.name": "flat"}


def granted_names(*names: str, hosts: tuple[str, ...] = ()) -> list[Grant]:
    kinds = [*((GrantKind.SECRET, name) for name in names), *((GrantKind.HOST, host) for host in hosts)]
    now = datetime(2026, 5, 1, tzinfo=UTC)
    return [
        Grant(user="", skill="mailer", kind=kind, what=what, content_hash="h", granted_on=now, granted_by="ann")
        for kind, what in kinds
    ]


def values(asked: list[str] | None = None) -> Values:
    def secret(name: str) -> str | None:
        if asked is not None:
            asked.append(name)
        return VAULT.get(name)

    def own_file(path: str) -> Path | None:
        return Path("/own") / path if path == "assets/rules.toml" else None

    return Values(user="ann", config=CONFIG, secret=secret, environ=HOST, file=own_file)


def resolved(declared: list[dict[str, Any]], *names: str, hosts: tuple[str, ...] = ()) -> Granted:
    return resolve("mailer", read_env(declared).specs, granted_names(*names, hosts=hosts), values())


@pytest.mark.req("SB-11")
def test_every_source_gives_its_value() -> None:
    declared: list[dict[str, Any]] = [
        {"var": "MAIL_HOST", "from": "config", "config_path": "mail.host", "when": "mail.enabled"},
        {"var": "MAIL_PORT", "from": "config", "name": "mail.port", "when": ["mail.enabled", "mail.host"]},
        {"var": "MAIL_PASSWORD", "from": "secret", "service": "mail", "key": "password", "sensitive": True},
        {"var": "DB_URL", "from": "config", "name": "db.url", "sensitive": True},
        {"var": "MAIL_TOKEN", "from": "secret", "name": "mail.token", "fallback_var": "MAIL_TOKEN"},
        {"var": "RULES", "from": "template_file", "template": "assets/rules.toml"},
        {"var": "flat_name", "from": "setup_env", "name": "flat.name"},
        {"var": "WHO", "from": "user_id"},
        {"var": "LEFT_OUT", "from": "config", "name": "mail.host", "when": "mail.disabled"},
    ]
    found = resolved(declared, "mail.password", "db.url", "MAIL_TOKEN", hosts=("mail.example.org",))
    assert found == Granted(
        variables={
            "MAIL_HOST": "mail.example.org",
            "MAIL_PORT": "587",
            "MAIL_PASSWORD": "hunter2-of-mail",
            "DB_URL": "postgres://me@host",
            "MAIL_TOKEN": "token-of-this-host",
            "RULES": "/own/assets/rules.toml",
            "flat_name": "flat",
            "WHO": "ann",
        },
        sensitive=frozenset({"hunter2-of-mail", "postgres://me@host", "token-of-this-host"}),
        secrets=("mail.password", "db.url", "MAIL_TOKEN"),
        hosts=("mail.example.org",),
        readable=(Path("/own/assets/rules.toml"),),
    )


@pytest.mark.req("SB-11")
def test_what_is_missing_is_said_with_the_command_that_mends_it() -> None:
    declared = [
        {"var": "A", "from": "secret", "name": "mail.password"},
        {"var": "B", "from": "secret", "name": "mail.token"},
        {"var": "C", "from": "config", "name": "mail.name"},
        {"var": "D", "from": "template_file", "name": "../../etc/passwd"},
    ]
    assert resolved(declared, "mail.token") == Granted(
        waiting=("mail.password",),
        missing=(
            "The secret 'mail.password' is not granted: habitus secrets grant mail.password mailer",
            "The secret 'mail.token' is not set: habitus secrets set mail.token",
            "C is to be the setting 'mail.name': set it in habitus.toml, under [skill_config].",
            "D is to name its file '../../etc/passwd', which it does not have.",
        ),
    )


_names = st.sampled_from([*VAULT, *HOST, "mail.host", "flat.name", "mail", ""])
_declared = st.fixed_dictionaries(
    {"var": st.sampled_from(["A", "B", "C"]), "from": st.sampled_from([*ComesFrom, "user_id", "resource"])},
    optional={
        "name": _names,
        "sensitive": st.sampled_from([True, False, "true", "no", None]),
        "fallback": _names,
        "when": st.one_of(_names, st.lists(_names, max_size=2)),
    },
)


@pytest.mark.req("SB-11")
@given(declared=st.lists(_declared, max_size=5), names=st.sets(_names))
def test_no_declaration_gets_a_value_that_was_not_granted_by_its_name(
    declared: list[dict[str, Any]], names: set[str]
) -> None:
    asked: list[str] = []
    found = resolve("mailer", read_env(declared).specs, granted_names(*names), values(asked))
    secret = {value: name for name, value in {**VAULT, **HOST}.items()}
    assert {secret[value] for value in found.variables.values() if value in secret} <= names
    assert set(asked) <= names  # the vault is not even asked for others
    assert found.sensitive == {value for value in found.variables.values() if value in secret}
    assert set(found.secrets) <= names


@pytest.mark.req("SB-11")
@pytest.mark.parametrize(
    "var", ["PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "HABITUS_HOME", "https_proxy", "HOME", "A=B", "", "1A"]
)
def test_no_skill_sets_what_decides_how_a_process_runs(var: str) -> None:
    declared = read_env([{"var": var, "from": "config", "name": "mail.host"}])
    assert (declared.specs, len(declared.problems)) == ((), 1)


def test_a_source_that_nobody_knows_is_said() -> None:
    declared = read_env([{"var": "A", "from": "resource"}, {"var": "B", "from": "user"}])
    assert declared.specs == (EnvSpec(var="B", source=ComesFrom.USER),)
    assert declared.problems == ("A comes from 'resource'; there are: config, secret, setup, template_file, user.",)
