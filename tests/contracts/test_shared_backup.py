"""`db backup` of a host with a shared database: all of it comes back into an empty one, but who was forgotten."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.operating import backing_up
from habitus.app.operating.erasure import erase_user
from habitus.app.operating.jobs import open_job_queue, submit_job
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.sharing.copying import reflect_data_tables
from habitus.settings import Settings
from habitus.skills.model import Skill
from tests.contracts import postgres
from tests.homes import furnish

NOW = datetime(2030, 1, 2, tzinfo=UTC)
# What only one database has, and what the first look at a new one writes.
OF_EACH = {"signing_keys", "indexed_skills", "search_collections", "search_documents", "search_vectors"}

MakeUrl = Callable[[str], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeUrl]:
    """The address of an empty database by a name."""
    with ExitStack() as stack:

        def make(name: str) -> str:
            if request.param == "sqlite":
                return f"sqlite:///{tmp_path / name}.db"
            server = request.getfixturevalue("postgres_server")
            return stack.enter_context(postgres.schema(server)) if name == "old" else postgres.new_schema(server)

        yield make


def settings_of(home: Path, url: str, user: str = "root") -> Settings:
    (furnish(home) / "habitus.toml").write_text("[users.root]\nadmin = true\n")
    environ = {"HOME": str(home.parent), "HABITUS_USER": user, "HABITUS_DATABASE": url}
    return read_settings(home, environ).model_copy(update={"cwd": home.parent})


def live(settings: Settings) -> None:
    """Two people's lessons and turns, a skill with two versions, somebody who may sign in, and a job."""
    for user, text in (("ann", "Ann keeps her keys under the mat."), ("bob", "Bob keeps his shovel in the shed.")):
        with Habitus.open(settings.model_copy(update={"user": user})) as habitus:
            habitus.memory.add(text)
            with habitus.turn(f"what about it: {text}") as turn:
                turn.done("Noted.")
    with Habitus.open(settings) as habitus:
        tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")
        habitus.skills.create(tea, habitus.build_author())
        habitus.skills.remove("brew-tea", habitus.build_author())
        habitus.skills.create(tea, habitus.build_author())
        open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.VIEWER)
        submit_job(habitus, open_job_queue(habitus), "curate")


def rows(url: str) -> dict[str, list[Any]]:
    engine = sql.open_engine_with_current_schema(url)
    with sql.read_transaction(engine) as connection:
        tables = {name: table for name, table in reflect_data_tables(connection).items() if name not in OF_EACH}
        found = {name: sorted(map(repr, connection.execute(sa.select(each)))) for name, each in tables.items()}
    engine.dispose()
    return found


@pytest.mark.some(1)
@pytest.mark.req("OP-06", "OP-04")
def test_a_backup_of_a_shared_database_restores_everything_but_who_was_forgotten(
    tmp_path: Path, url_of: MakeUrl
) -> None:
    settings = settings_of(tmp_path / "home", old := url_of("old"))
    live(settings)
    before = rows(old)
    assert min(len(before[name]) for name in ("turns", "engrams", "skill_versions", "sign_ins", "jobs")) >= 1
    made = backing_up.create_backup(settings, tmp_path / "all.tar.gz", now=NOW)
    kept = backing_up.restore_backup(settings, made.file, now=NOW)
    assert "left as it is" in kept.note  # it is in use
    elsewhere = settings_of(tmp_path / "second" / "home", new := url_of("new"))
    assert backing_up.restore_backup(elsewhere, made.file, now=NOW).note == ""
    after = rows(new)
    assert {name for name in before if before[name] != after[name]} == set()
    with Habitus.open(elsewhere) as habitus:
        assert habitus.skills.load("brew-tea").body.startswith("1. Boil water.")
        engram = habitus.memory.add("Numbers go on.").engram
        assert engram is not None
        habitus.skills.create(Skill(name="more", description="More.", body="1. More."), habitus.build_author())
        assert erase_user(habitus, "ann").left == ()
    third = settings_of(elsewhere.home, newest := url_of("newest"))
    backing_up.restore_backup(third, made.file, now=NOW)  # the home knows that ann was forgotten
    texts = repr(rows(newest))
    assert ("under the mat" in texts, "in the shed" in texts) == (False, True)


@pytest.mark.full
@pytest.mark.req("OP-06", "SC-04")
def test_who_is_no_admin_backs_up_the_home_alone(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home", f"sqlite:///{tmp_path / 'old.db'}")
    live(settings)
    made = backing_up.create_backup(settings_of(settings.home, settings.database or "", "ann"), now=NOW)
    assert "only an admin" in made.note
    with tarfile.open(made.file) as archive:
        assert "habitus-shared.db" not in archive.getnames()
    elsewhere = settings_of(tmp_path / "second" / "home", f"sqlite:///{tmp_path / 'new.db'}")
    backing_up.restore_backup(elsewhere, made.file, now=NOW)
    assert rows(f"sqlite:///{tmp_path / 'new.db'}")["turns"] == []
