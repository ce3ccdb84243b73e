"""People who may sign in are those of the shared database: two hosts know the same, also while it is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.home import refuse_if_read_only_or_offline
from habitus.app.home_directory import OFFLINE_SNAPSHOT_FILE
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.sharing import offline_snapshot
from habitus.errors import DatabaseUnavailable
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import OWNER_IDENTITY, load_sign_in_service
from tests.contracts import postgres
from tests.contracts.lines import Line
from tests.homes import furnish
from tests.web.conftest import HOST


def open_host(place: Path, url: str) -> Habitus:
    settings = read_settings(furnish(place), {"HOME": str(place), "USER": "ann", "HABITUS_DATABASE": url})
    return Habitus.open(settings.model_copy(update={"cwd": place}))


@pytest.fixture(params=["sqlite", "postgresql"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Habitus, Habitus]]:
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(postgres.schema(request.getfixturevalue("postgres_server")))
        one, two = (stack.enter_context(open_host(tmp_path / name, url)) for name in ("one", "two"))
        yield one, two


@contextmanager
def page_of(habitus: Habitus) -> Iterator[TestClient]:
    desks = HomePool(habitus)
    app = make_web_app(desks, load_sign_in_service(habitus), {HOST})
    yield TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    desks.close()


@pytest.mark.some(1)
@pytest.mark.req("CL-04", "OP-01")
def test_who_is_let_in_on_one_host_signs_in_on_every_one_and_is_out_on_all(hosts: tuple[Habitus, Habitus]) -> None:
    one, two = hosts
    with page_of(one) as first, page_of(two) as second:
        invited = open_user_accounts(one).add_or_reinvite_user("ben", UserRole.VIEWER)
        token = {"Authorization": f"Bearer {invited.token}"}
        assert [page.get("/api/v1/skills", headers=token).status_code for page in (first, second)] == [200, 200]
        assert second.get(f"/enter?key={invited.link}").status_code == 303
        assert first.get(f"/enter?key={invited.link}").status_code == 403  # used up there, too
        first.cookies.update(second.cookies)
        assert [page.get("/activity").status_code for page in (first, second)] == [200, 200]
        open_user_accounts(two).add_or_reinvite_user(
            "ben", UserRole.VIEWER
        )  # another link: the old cookie and token are over
        assert [page.get("/activity").status_code for page in (first, second)] == [401, 401]
        assert first.get("/api/v1/skills", headers=token).status_code == 401


@pytest.mark.req("CL-04", "SC-04")
def test_the_owner_of_one_host_is_not_that_of_another(hosts: tuple[Habitus, Habitus]) -> None:
    one, two = (load_sign_in_service(host) for host in hosts)
    cookie = one.exchange_sign_in_key_for_cookie(one.create_owner_sign_in_key()) or ""
    assert (one.identify_by_cookie(cookie), two.identify_by_cookie(cookie)) == (OWNER_IDENTITY, None)
    assert (one.identify_by_token(one.owner_token), two.identify_by_token(one.owner_token)) == (OWNER_IDENTITY, None)


@pytest.mark.full
@pytest.mark.req("CL-04", "OP-03")
def test_while_the_database_is_away_people_are_known_and_nobody_new_is_let_in(tmp_path: Path, line: Line) -> None:
    with open_host(tmp_path / "one", line.url) as habitus, page_of(habitus) as page:
        people = open_user_accounts(habitus)
        invited, late = (
            people.add_or_reinvite_user("ben", UserRole.VIEWER),
            people.add_or_reinvite_user("eve", UserRole.VIEWER),
        )
        token = {"Authorization": f"Bearer {invited.token}"}
        assert page.get("/api/v1/skills", headers=token).status_code == 200
        offline_snapshot.refresh_snapshot(habitus)
        assert (habitus.settings.home / OFFLINE_SNAPSHOT_FILE).exists()
        line.cut()
        assert page.get("/api/v1/skills", headers=token).status_code == 200
        assert page.get(f"/enter?key={late.link}").status_code == 503
        with open_host(tmp_path / "one", line.url) as started:  # while it is away
            keys = load_sign_in_service(started)
            assert started.is_offline
            assert keys.identify_by_token(invited.token) is not None
            with pytest.raises(DatabaseUnavailable, match="The database is unreachable"):
                refuse_if_read_only_or_offline(started)
        line.restore()
        assert page.get(f"/enter?key={late.link}").status_code == 303


@pytest.mark.req("SC-04", "OP-01")
def test_on_postgresql_only_an_admins_transaction_lets_people_in(tmp_path: Path, url: str) -> None:
    with open_host(tmp_path / "one", url) as habitus:
        open_user_accounts(habitus).add_or_reinvite_user("ben", UserRole.VIEWER)
        role = "habitus_plain_people"
        with sql.write_transaction(habitus.as_system().shared) as connection:
            connection.execute(sa.text(f"CREATE ROLE {role}"))
            connection.execute(sa.text(f"GRANT USAGE ON SCHEMA {_schema(connection)} TO {role}"))
            connection.execute(sa.text(f"GRANT ALL ON sign_ins TO {role}"))
        member = sql.get_engine_for_user(habitus.shared, "bob", is_admin=False)
        try:
            with sql.write_transaction(member) as connection:
                connection.execute(sa.text(f"SET LOCAL ROLE {role}"))
                raised = connection.execute(sa.text("UPDATE sign_ins SET role = 'admin'")).rowcount
            assert raised == 0
        finally:
            with sql.write_transaction(habitus.as_system().shared) as connection:
                connection.execute(sa.text(f"DROP OWNED BY {role}"))
                connection.execute(sa.text(f"DROP ROLE {role}"))


def _schema(connection: sa.Connection) -> str:
    return str(connection.execute(sa.text("SELECT current_schema()")).scalar_one())
