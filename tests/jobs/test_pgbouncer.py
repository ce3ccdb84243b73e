"""PgBouncer itself, which gives every transaction another of two connections: nothing leaks, is missed or is lost."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
import sqlalchemy as sa

from habitus.app import Habitus, read_settings
from habitus.mcp.http import open_listening_socket
from habitus.skills.model import Skill, Stage
from habitus.sql.change_notifications import ChangeTopic, get_change_feed
from tests.contracts.test_two_hosts import LEARN, lists, soon
from tests.homes import furnish
from tests.jobs.conftest import Nursed
from tests.jobs.counting import check, queue_at, until
from tests.usage import record_use

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="PgBouncer is not installed"),
]
CONFIG = """
[databases]
* = host={socket} port=5432
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
"""


@pytest.fixture
def direct(postgres_server: str) -> Iterator[sa.URL]:
    """A database of its own, of a role that row-level security binds."""
    name = f"pooled_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        admin.execute(f"CREATE DATABASE {name} OWNER {name}")
        yield sa.make_url(postgres_server).set(database=name, username=name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def url(direct: sa.URL) -> Iterator[str]:
    """The same through PgBouncer in transaction mode, with two connections for all."""
    socket = Path(str(direct.query["host"]))
    with TemporaryDirectory(prefix="habitus-bouncer-", dir="/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        with open_listening_socket("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        (folder / "users").write_text(f'"{direct.username}" ""\n')
        (folder / "ini").write_text(CONFIG.format(socket=socket, port=port, folder=folder))
        # It does not run as root, and who owns the server's socket may use it.
        who = ["-u", pwd.getpwuid(socket.stat().st_uid).pw_name] if os.getuid() == 0 else []
        with subprocess.Popen(["pgbouncer", "-q", *who, str(folder / "ini")], stderr=subprocess.DEVNULL) as process:
            address = direct.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
            try:
                until(lambda: _answers(address))
                yield address
            finally:
                process.terminate()


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def opened(tmp_path: Path, url: str, user: str) -> Iterator[Habitus]:
    home = furnish(tmp_path / user)
    (home / "habitus.toml").write_text("[users.ann]\nadmin = false\n[users.ben]\nadmin = false\n")
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": user, "HABITUS_DATABASE": url})) as habitus:
        yield habitus


@pytest.mark.req("OP-01", "SC-04")
def test_names_do_not_leak_from_one_client_to_another(tmp_path: Path, url: str, direct: sa.URL) -> None:
    many = 15

    def work(habitus: Habitus) -> set[str]:
        user, seen = habitus.settings.user, set[str]()
        for number in range(many):
            with habitus.turn(f"{user} {number}", conversation=f"of-{user}") as turn:
                turn.done("ok")
            habitus.memory.add(f"{user} has kettle {number} of {user}.")
            record_use(habitus, "brew-tea", succeeded=True)
            seen |= set(habitus.journal.list_session_ids())
        return seen

    with opened(tmp_path, url, "ann") as anns, opened(tmp_path, url, "ben") as bens, ThreadPoolExecutor() as both:
        tea = Skill(name="brew-tea", description="Brews tea.", body="1. Boil.")
        anns.skills.create(tea, anns.build_author())
        assert [*both.map(work, (anns, bens))] == [{"of-ann"}, {"of-ben"}]
        for habitus, user in ((anns, "ann"), (bens, "ben")):
            turns = habitus.journal.list_session_turns(f"of-{user}")
            assert [turn.request for turn in turns] == [f"{user} {number}" for number in range(many)]
            lessons = [lesson.text for lesson in habitus.memory.list_lessons("all", limit=100)]
            assert sorted(lessons) == sorted(f"{user} has kettle {number} of {user}." for number in range(many))
        counted = anns.skills.read_counters("brew-tea")
        assert counted is not None
        assert counted[Stage.STEPS].used == 2 * many
        with psycopg.connect(url) as nobody:
            assert nobody.execute("SELECT count(*) FROM turns").fetchone() == (0,)
        with psycopg.connect(str(direct.render_as_string(hide_password=False)), autocommit=True) as admin:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            assert admin.execute(query).fetchone() in ((1,), (2,))


@pytest.mark.req("OP-01", "OP-03")
def test_who_is_told_nothing_asks_and_a_turn_goes_on(tmp_path: Path, url: str, python: str) -> None:
    with opened(tmp_path, url, "ann") as habitus:
        assert habitus.hosted_conversations is not None  # serving: whoever does listens
        with habitus.turn("first") as turn:
            turn.done("ok")
        assert turn.notices == ()
        subprocess.run([python, "-c", LEARN, str(furnish(tmp_path / "there")), url, "brew-tea"], check=True)
        assert soon(lists(habitus, "brew-tea"))
        assert get_change_feed(habitus.shared).get_token_of_announced_changes(ChangeTopic.SKILLS) is None


@pytest.mark.req("OP-01")
def test_workers_behind_it_lose_no_job_and_repeat_no_part(root: Path, url: str, nursed: Nursed) -> None:
    (root / "url").write_text(url)
    with queue_at(url) as queue:
        for number in range(10):
            parts = [{"die": "after" if (number, part) == (3, 1) else "", "takes_s": 0.02} for part in range(5)]
            queue.add_job("count", {"job": f"job-{number}", "parts": parts}, id=f"job-{number}")
        with nursed():
            until(lambda: not queue.count_unfinished_jobs(), longest_s=240)
        check(root, queue.list_jobs())
