"""PostgreSQL that is slow, cut off, restarted, full, or not ours to use: nothing is lost or half done."""

from __future__ import annotations

import gc
import os
import re
import secrets
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import OUTBOX_DIR
from habitus.app.sharing import offline_snapshot
from habitus.app.sharing.availability import ProcessReadiness, check_readiness
from habitus.errors import StorageFailed
from habitus.journal.outbox import JournalOutbox
from habitus.skills.model import Skill, Stage
from tests.contracts.lines import Line
from tests.contracts.test_two_hosts import soon
from tests.homes import furnish
from tests.usage import record_use

TEA = Skill(name="brew-tea", description="Brews tea.", body="1. Boil.")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a machine that is busy with other tests."""
    for module in ("habitus.sql.outage", "habitus.app.sharing.availability"):
        monkeypatch.setattr(f"{module}.PROBE_TIMEOUT_S", 0.5)


def opened(tmp_path: Path, url: str) -> Habitus:
    home = furnish(tmp_path / "home")
    return Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": url}))


def uses(habitus: Habitus) -> int:
    counted = habitus.skills.read_counters("brew-tea")
    return counted[Stage.STEPS].used if counted else 0


HOLD = (
    "import os, signal, sys; from habitus import sql; from habitus.sql import engines\n"
    "engines._IDLE_IN_TRANSACTION_S = float(sys.argv[2])\n"
    "with sql.write_transaction(sql.create_engine(sys.argv[1]), lock='memory'):\n"
    "    print('held', flush=True)\n"
    "    os.kill(os.getpid(), signal.SIGSTOP)\n"
)


@pytest.mark.req("OP-01", "OP-05")
def test_a_host_that_stands_still_in_the_middle_of_a_change_does_not_stop_the_others(
    tmp_path: Path, url: str, python: str
) -> None:
    with opened(tmp_path, url) as habitus:
        with sql.write_transaction(habitus.shared) as connection:
            bound = connection.execute(sa.text("SHOW idle_in_transaction_session_timeout")).scalar_one()
        assert bound == "1min"
        with subprocess.Popen([python, "-c", HOLD, url, "2"], stdout=subprocess.PIPE, text=True) as still:
            try:
                assert still.stdout is not None
                assert still.stdout.readline() == "held\n"
                added = habitus.memory.add("Boil the water first.")  # waits for the lock no longer than 30 s
                assert added.engram is not None
            finally:
                still.kill()


@pytest.mark.req("SK-06", "SK-08", "OP-03")
def test_what_was_written_before_a_cut_is_there_and_what_was_refused_is_not(tmp_path: Path, line: Line) -> None:
    with opened(tmp_path, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        record_use(habitus, "brew-tea", succeeded=True)
        line.cut()
        for _ in range(3):
            with pytest.raises(StorageFailed, match="The database is unreachable"):
                record_use(habitus, "brew-tea", succeeded=True)
        with pytest.raises(StorageFailed, match="The database is unreachable"):
            habitus.skills.remove("brew-tea", habitus.build_author())
        line.restore()
        record_use(habitus, "brew-tea", succeeded=True)
        assert uses(habitus) == 2
        assert [version.number for version in habitus.skills.get_layer("user").store.list_versions("brew-tea")] == [1]


@pytest.mark.req("OP-01")
def test_an_engine_that_nobody_has_any_more_closes_its_connections(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what a cut connection left of the tests before

    def use() -> int:
        engine = sql.create_engine(url, dedicated=True)
        with engine.connect() as connection:
            return int(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())

    gone = use()
    gc.collect()  # with a warning, which would be an error here, unless the driver knows that it is one of a pool
    with psycopg.connect(url, autocommit=True) as admin:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
        assert soon(lambda: admin.execute(query, (gone,)).fetchone() == (0,))


@pytest.mark.full
@pytest.mark.req("SK-06", "SK-08", "OP-03")
def test_counting_under_cuts_counts_what_it_says(tmp_path: Path, line: Line) -> None:
    """Who was told that it is counted, is; a cut during the commit may count one more than was told."""
    told, cuts = 0, 0
    with opened(tmp_path, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        for number in range(300):
            if number % 30 == 29:
                cutting = threading.Timer(0.002, line.cut)
                cutting.start()
                cuts += 1
            with suppress(StorageFailed):
                record_use(habitus, "brew-tea", succeeded=True)
                told += 1
            if number % 30 == 0 and number:
                cutting.join()
                line.restore()
        cutting.join()
        line.restore()
        assert told <= uses(habitus) <= told + cuts


@pytest.mark.req("OP-03")
def test_a_slow_server_is_waited_for(tmp_path: Path, line: Line) -> None:
    with opened(tmp_path, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        line.delay = 0.02
        record_use(habitus, "brew-tea", succeeded=True)
        assert uses(habitus) == 1


@pytest.mark.full
@pytest.mark.req("SK-06", "OP-03")
def test_a_server_that_is_restarted_under_load_loses_no_count(tmp_path: Path, url: str) -> None:
    """As a restart looks to its clients: every connection is ended, again and again, and opened anew."""
    told, name = 0, f"restarted-{os.getpid()}"  # others use the same server
    mine = sa.make_url(url).update_query_dict({"application_name": name}).render_as_string(hide_password=False)
    admin = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with opened(tmp_path, mine) as habitus, admin.connect() as connection:
        habitus.skills.create(TEA, habitus.build_author())
        for number in range(100):
            if number % 10 == 5:
                end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name"
                assert connection.execute(sa.text(end), {"name": name}).all()
            with suppress(StorageFailed):
                record_use(habitus, "brew-tea", succeeded=True)
                told += 1
        assert told == 100  # a connection that was ended is noticed before it is used
        assert uses(habitus) == told
    admin.dispose()


# What somebody says instead of letting one in, what is made of it, and whether it may be over soon.
TURNED_AWAY = (
    ("28P01", 'password authentication failed for user "ann"', "does not let this role in: password", False),
    ("28000", 'no pg_hba.conf entry for host "10.0.0.9", user "ann", no encryption', "Set sslmode", False),
    ("3D000", 'database "habitus" does not exist', "or create the database", False),
    ("53300", "sorry, too many clients already", "The database is unreachable", True),
    ("57P03", "the database system is starting up", "The database is unreachable", True),
    ("08P01", "server login has been failing, cached error: connect failed", "The database is unreachable", True),
)


@pytest.mark.req("OP-03")
def test_who_is_not_let_in_says_so_in_one_line_or_works_from_what_was_seen_last(tmp_path: Path, line: Line) -> None:
    with opened(tmp_path, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        offline_snapshot.refresh_snapshot(habitus)
    for *said, told, may_be_over in TURNED_AWAY:
        line.abandon(*said)
        with pytest.raises(StorageFailed) as caught:
            sql.open_engine_with_current_schema(line.url)
        assert (told in str(caught.value), "\n" in str(caught.value)) == (True, False)
        if not may_be_over:
            with pytest.raises(StorageFailed, match=re.escape(str(caught.value))):
                opened(tmp_path, line.url)
            continue
        with opened(tmp_path, line.url) as habitus:
            assert habitus.is_offline
            assert "brew-tea" in {item.name for item in habitus.skills.list_skills()}
    line.abandon()  # a balancer with nobody behind it
    with opened(tmp_path, line.url) as habitus:
        assert habitus.is_offline
    wants_more = line.url.replace("sslmode=disable", "sslmode=require")
    line.restore()
    with pytest.raises(StorageFailed, match=r"does not support SSL.*Set sslmode"):
        sql.open_engine_with_current_schema(wants_more)


# What a server that is there may say to whoever writes.
REFUSED = {
    "53100": "No space left for",
    "25006": "takes no changes",  # a standby
    "42501": "does not let this role in",
    "55P03": "has been busy for 3 s",
    "57P01": "The database is unreachable",
}


@contextmanager
def refusing(url: str, state: str) -> Iterator[None]:
    """Nothing can be written down of a turn."""
    with psycopg.connect(url, autocommit=True) as admin:
        raised = f"BEGIN RAISE EXCEPTION 'as it was told' USING ERRCODE = '{state}'; END"
        admin.execute(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {raised} $$")
        admin.execute("CREATE TRIGGER refused BEFORE INSERT OR UPDATE ON turns EXECUTE FUNCTION refuse()")
        try:
            yield
        finally:
            admin.execute("DROP FUNCTION refuse() CASCADE")


def asked(habitus: Habitus, text: str) -> tuple[str, ...]:
    """What a turn tells, which has the skill whatever happens."""
    with habitus.turn(text, conversation="c") as turn:
        assert "brew-tea" in turn.system
        turn.done("Boil it.")
    return turn.notices


def kept(habitus: Habitus) -> tuple[list[str], int]:
    """The turns that were written down, in their order, and how many still wait."""
    waiting = JournalOutbox(habitus.writable_dir / OUTBOX_DIR, habitus.redactor).pending_count
    return [turn.request for turn in habitus.journal.list_session_turns("c")], waiting


@pytest.mark.req("OP-03")
def test_a_server_that_lets_nobody_write_loses_no_turn(tmp_path: Path, url: str) -> None:
    with opened(tmp_path, url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        for state, told in REFUSED.items():
            with refusing(url, state):
                (said,) = asked(habitus, f"while {state}")
                assert (told in said, "\n" in said) == (True, False)
                assert asked(habitus, f"still {state}") == ()  # it was said
            assert asked(habitus, f"after {state}") == ()
        wanted = [f"{when} {state}" for state in REFUSED for when in ("while", "still", "after")]
        assert kept(habitus) == (wanted, 0)


@pytest.mark.full
@pytest.mark.req("OP-03")
def test_behind_a_pooler_whose_server_is_slow_turns_go_on_and_nothing_is_lost(tmp_path: Path, line: Line) -> None:
    with opened(tmp_path, line.url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        assert asked(habitus, "first") == ()
        line.delay = 0.55
        (said,) = asked(habitus, "second")
        assert said.startswith(
            "The database is unreachable (no answer within 500 ms). This turn used the last known state"
        )
        assert asked(habitus, "third") == ()
        found = check_readiness(habitus.settings)
        assert (found.state, found.reasons[0]) == (
            ProcessReadiness.DEGRADED,
            "The database is unreachable (no answer within 500 ms).",
        )
        line.delay = 0.0
        assert asked(habitus, "fourth") == ()
        assert kept(habitus) == (["first", "second", "third", "fourth"], 0)
        assert check_readiness(habitus.settings).state is ProcessReadiness.READY


@pytest.mark.req("OP-01")
def test_what_a_server_refuses_is_said_in_one_line(tmp_path: Path, url: str, postgres_server: str) -> None:
    nobody = f"nobody_{secrets.token_hex(4)}"
    owner = sql.create_engine(url)
    with owner.begin() as connection:
        connection.execute(sa.text(f"CREATE ROLE {nobody} LOGIN"))
    address = sa.make_url(url)
    for wrong, told in (
        (address.set(username=nobody), "does not let this role in"),
        (address.set(database="not_there"), 'database "not_there" does not exist'),
        (address.set(host="127.0.0.1", port=1, query={}), "The database is unreachable"),
    ):
        with pytest.raises(StorageFailed) as caught:
            opened(tmp_path, wrong.render_as_string(hide_password=False)).close()
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    owner.dispose()


@pytest.fixture
def small_disk(url: str) -> Iterator[None]:
    """What the history keeps lies on a small file system of its own; only where one can be mounted."""
    server = sa.make_url(url).query["host"]
    place = Path(tempfile.mkdtemp(prefix="habitus-small-", dir="/tmp"))
    options = f"size=6m,mode=700,uid={Path(str(server)).stat().st_uid}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    engine = sql.create_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text(f"CREATE TABLESPACE {place.name.replace('-', '_')} LOCATION '{place}'"))
        connection.execute(sa.text(f"ALTER TABLE blobs SET TABLESPACE {place.name.replace('-', '_')}"))
        yield
        connection.execute(sa.text("ALTER TABLE blobs SET TABLESPACE pg_default"))
        connection.execute(sa.text(f"DROP TABLESPACE {place.name.replace('-', '_')}"))
    engine.dispose()
    subprocess.run(["umount", place], check=True)
    place.rmdir()


@pytest.mark.full
@pytest.mark.req("OP-01", "SK-12")
@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_is_full_on_the_server_is_said_and_loses_nothing(tmp_path: Path, url: str) -> None:
    with opened(tmp_path, url) as habitus:
        habitus.skills.create(TEA, habitus.build_author())
        big = [Skill(name=f"big-{n}", description="Big.", body=secrets.token_hex(400_000)) for n in range(20)]
        with pytest.raises(StorageFailed, match=r"No space left for .*; nothing was changed"):
            _ = [habitus.skills.create(skill, habitus.build_author()) for skill in big]
        assert habitus.skills.load("brew-tea").body == TEA.body
        record_use(habitus, "brew-tea", succeeded=True)
        assert uses(habitus) == 1
