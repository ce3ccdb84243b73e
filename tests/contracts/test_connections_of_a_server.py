"""The connections that `habitus up` has to a shared database, as its server counts them: those that are documented."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from tests.conftest import Cli
from tests.contracts.test_reads_while_away import wait_until
from tests.web.test_up import program, up


@pytest.mark.req("OP-01")
@pytest.mark.parametrize(("options", "most"), [((), 3), pytest.param(("--no-jobs",), 3, marks=pytest.mark.full)])
def test_a_server_has_the_connections_of_its_setting_and_one_for_its_worker(
    run_cli: Cli, url: str, options: tuple[str, ...], most: int
) -> None:
    called = sa.make_url(url).update_query_dict({"application_name": "the server"})
    address = called.render_as_string(hide_password=False)
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the server'"
    env = {"HABITUS_DATABASE": address, "HABITUS_DATABASE_CONNECTIONS": "2"}
    with up(run_cli, *options, env=env) as said, program(said) as http, psycopg.connect(url, autocommit=True) as admin:

        def count() -> int:
            return int((admin.execute(query).fetchone() or (0,))[0])

        def ask(number: int) -> int:
            text = f"Loft {number} keeps {number} boxes of books."
            asked = http.post("/api/v1/lessons", json={"text": text}) if number % 2 else http.get("/skills")
            return int(asked.status_code)

        with ThreadPoolExecutor(8) as many:
            answers = [many.submit(ask, number) for number in range(16)]
            seen = [count() for one in answers if one.result() < 300]
        assert len(seen) == len(answers)
        wait_until(lambda: count() == most)
        assert max(seen) <= most
