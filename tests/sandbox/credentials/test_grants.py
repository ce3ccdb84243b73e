"""What a command line gets: nothing that was not granted to it by name, whatever its skill declares."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus import sql
from habitus.sandbox.credentials.grants import (
    ALL_USERS,
    EnvVariableSpec,
    Grant,
    GrantedCredentials,
    GrantStore,
    GrantTargetKind,
    VariableOrigin,
    VariableValueSources,
    parse_env_declarations,
    resolve_credentials,
)
from tests.homes import migrated

NOW = datetime(2026, 5, 1, tzinfo=UTC)
VAULT = {"mail.password": "hunter2-of-mail", "db.url": "postgres://me@host"}
HOST = {"MAIL_TOKEN": "token-of-this-host", "PATH": "/usr/bin", "SHORT": "pin"}
CONFIG = {"mail": {"host": "mail.example.org", "port": 587, "enabled": True}, "flat.name": "flat"}


def granted_names(*names: str, hosts: tuple[str, ...] = ()) -> list[Grant]:
    kinds = [*((GrantTargetKind.SECRET, name) for name in names), *((GrantTargetKind.HOST, host) for host in hosts)]
    return [
        Grant(user="", skill="mailer", kind=kind, what=what, content_hash="h", granted_on=NOW, granted_by="ann")
        for kind, what in kinds
    ]


def values(asked: list[str] | None = None) -> VariableValueSources:
    def secret(name: str) -> str | None:
        if asked is not None:
            asked.append(name)
        return VAULT.get(name)

    def own_file(path: str) -> Path | None:
        return Path("/own") / path if path == "assets/rules.toml" else None

    return VariableValueSources(user="ann", config=CONFIG, secret=secret, environ=HOST, file=own_file)


def resolved(declared: list[dict[str, Any]], *names: str, hosts: tuple[str, ...] = ()) -> GrantedCredentials:
    return resolve_credentials(
        "mailer", parse_env_declarations(declared).specs, granted_names(*names, hosts=hosts), values()
    )


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
    assert found == GrantedCredentials(
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
def test_what_is_missing_is_said_with_the_command_that_fixes_it() -> None:
    declared = [
        {"var": "A", "from": "secret", "name": "mail.password"},
        {"var": "B", "from": "secret", "name": "mail.token"},
        {"var": "C", "from": "config", "name": "mail.name"},
        {"var": "D", "from": "template_file", "name": "../../etc/passwd"},
    ]
    assert resolved(declared, "mail.token") == GrantedCredentials(
        pending=("mail.password",),
        missing=(
            "The secret 'mail.password' is not granted: habitus secrets grant mail.password mailer",
            "The secret 'mail.token' is not set: habitus secrets set mail.token",
            "C is to be the setting 'mail.name': set it in habitus.toml, under [skill_config].",
            "D is to name its file '../../etc/passwd', which it does not have.",
        ),
    )


@pytest.mark.req("SB-11")
def test_a_secret_opens_a_variable_only_when_it_is_granted_and_set() -> None:
    declared = [
        {"var": "GRANTED_AND_SET", "from": "user", "when": "mail.password"},
        {"var": "ONLY_SET", "from": "user", "when": "db.url"},
        {"var": "ONLY_GRANTED", "from": "user", "when": "mail.token"},
    ]
    assert resolved(declared, "mail.password", "mail.token").variables == {"GRANTED_AND_SET": "ann"}


@pytest.mark.req("SB-11")
def test_a_variable_of_this_host_is_granted_by_name_and_only_where_it_is_long_enough_to_be_redacted() -> None:
    declared = [{"var": var, "from": "secret", "name": "no.such", "fallback": var} for var in ("MAIL_TOKEN", "SHORT")]
    found = resolved(declared, "SHORT", "MAIL_TOKEN")
    assert (found.variables, found.secrets) == ({"MAIL_TOKEN": "token-of-this-host"}, ("MAIL_TOKEN",))
    assert resolved(declared, "SHORT").variables == {}


@pytest.mark.req("SB-11")
def test_grants_are_bound_to_a_user_a_skill_and_its_content(tmp_path: Path) -> None:
    grants = GrantStore(
        sql.open_engine_with_current_schema(sql.build_sqlite_url(migrated(tmp_path / "habitus.db"))), lambda: NOW
    )
    ann = {"user": "ann", "by": "ann"}
    grants.grant_secrets_and_hosts("mailer", "hash-1", **ann, secrets=["mail.password"], hosts=["a.example"])
    grants.grant_secrets_and_hosts("other", "hash-2", **ann, secrets=["db.url"], hosts=[])
    grants.grant_secrets_and_hosts("mailer", "hash-3", user=ALL_USERS, by="root", secrets=[], hosts=["b.example"])
    assert [grant.what for grant in grants.list_for_skill("mailer", "ann")] == [
        "b.example",
        "a.example",
        "mail.password",
    ]
    assert [grant.what for grant in grants.list_for_skill("mailer", "bob")] == ["b.example"]

    made = grants.grant_secrets_and_hosts(
        "mailer", "hash-4", **ann, secrets=["db.url", "mail.password", "db.url"], hosts=[]
    )
    assert [(grant.kind, grant.what, grant.content_hash) for grant in made] == [
        (GrantTargetKind.SECRET, "db.url", "hash-4"),
        (GrantTargetKind.SECRET, "mail.password", "hash-4"),
    ]
    assert {(grant.user, grant.skill, grant.what) for grant in grants.list_all_grants()} == {
        ("ann", "mailer", "db.url"),
        ("ann", "mailer", "mail.password"),
        ("ann", "other", "db.url"),
        (ALL_USERS, "mailer", "b.example"),
    }

    removed = grants.revoke_grants("mailer", user="ann", secrets=["db.url"], hosts=["b.example"])
    assert [(grant.user, grant.what) for grant in removed] == [("ann", "db.url")]
    assert [grant.what for grant in grants.list_for_skill("mailer", "ann")] == ["b.example", "mail.password"]
    assert [grant.what for grant in grants.revoke_grants("mailer", user="ann", secrets=[], hosts=[])] == [
        "mail.password"
    ]
    assert [(grant.user, grant.skill) for grant in grants.list_all_grants()] == [
        (ALL_USERS, "mailer"),
        ("ann", "other"),
    ]


_names = st.sampled_from([*VAULT, *HOST, "mail.host", "flat.name", "mail", ""])
_declared = st.fixed_dictionaries(
    {"var": st.sampled_from(["A", "B", "C"]), "from": st.sampled_from([*VariableOrigin, "user_id", "resource"])},
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
    found = resolve_credentials("mailer", parse_env_declarations(declared).specs, granted_names(*names), values(asked))
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
    declared = parse_env_declarations([{"var": var, "from": "config", "name": "mail.host"}])
    assert (declared.specs, len(declared.problems)) == ((), 1)


def test_a_source_that_nobody_knows_is_said() -> None:
    declared = parse_env_declarations([{"var": "A", "from": "resource"}, {"var": "B", "from": "user"}])
    assert declared.specs == (EnvVariableSpec(var="B", source=VariableOrigin.USER),)
    assert declared.problems == ("A comes from 'resource'; there are: config, secret, setup, template_file, user.",)


def test_a_problem_quotes_at_most_forty_characters() -> None:
    declared = parse_env_declarations([{"var": "1" * 99, "from": "user"}, {"var": "A", "from": "x" * 99}])
    assert declared.problems[0] == f"'{'1' * 40}' is not a name of a variable."
    assert declared.problems[1].startswith(f"A comes from '{'x' * 40}';")


def test_a_secret_is_named_by_service_and_key_or_else_by_name_or_variable() -> None:
    secret = {"from": "secret"}
    declared = [
        {"var": "A", "service": "mail", "key": "password", "name": "unused", **secret},
        {"var": "B", "service": "mail", "name": "db.url", **secret},
        {"var": "C", "key": "password", **secret},
    ]
    assert [spec.name for spec in parse_env_declarations(declared).specs] == ["mail.password", "db.url", "C"]
