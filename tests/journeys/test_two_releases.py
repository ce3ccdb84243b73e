"""This release and the next one on one PostgreSQL, each a process with code of its own: side by side, or refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

import habitus as this_release
from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import OUTBOX_DIR
from habitus.errors import StorageFailed
from habitus.journal.outbox import JournalOutbox
from habitus.skills.model import Skill
from tests.homes import furnish
from tests.jobs.counting import until
from tests.web.test_up import program

MIGRATION = """
import os, pathlib, time
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "{number}", "{before}", None, None

def upgrade():
    op.create_table("of_{number}", sa.Column("name", sa.String, primary_key=True))
    op.add_column("turns", sa.Column("of_{number}", sa.String, nullable=False, server_default="calm"))
    if "PAUSE" in os.environ:  # in the middle
        pathlib.Path(os.environ["PAUSE"]).touch()
        time.sleep(60)
    op.execute("INSERT INTO schema_compatibility VALUES ('{number}', '{oldest}')")
"""

# Does what it is told, line by line, with the release that it finds.
WORK = """
import json, sys
from pathlib import Path
from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.sharing import database
from habitus.errors import UserError
from habitus.skills.model import Skill

home, url, name = sys.argv[1:]
settings = read_settings(Path(home), {"HOME": home, "USER": "ann", "HABITUS_DATABASE": url})

def write(habitus, number):
    habitus.skills.create(Skill(name=f"{name}-{number}", description="Of a release.", body="."), habitus.build_author())
    habitus.memory.add(f"{name} number {number} has its own lesson about kettle {number}{name}.")

def turn(habitus, number):
    with habitus.turn(f"{name} {number}", conversation="all") as turn:
        turn.done("ok")

def job(habitus, number):
    from habitus.app.operating import jobs
    queue = jobs.open_job_queue(habitus)
    jobs.submit_job(habitus, queue, "curate")

def told(words):
    if words[0] == "migrate":
        return database.migrate_database(settings, force="force" in words).after
    with Habitus.open(settings) as habitus:
        for number in range(int(words[1])):
            globals()[words[0]](habitus, number)
    return "done"

print(json.dumps(sql.HEAD), flush=True)
for line in sys.stdin:
    try:
        answer = told(line.split())
    except UserError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""


class Release:
    """A process of a release; what it is asked it answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.head = self.heard()

    def asked(self, *words: str) -> str:
        self.say(*words)
        return self.heard()

    def say(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def heard(self) -> str:
        assert self.process.stdout is not None
        answer: str = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def running(code: Path, home: Path, url: str, name: str, **more: str) -> Iterator[Release]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "LANG": "C.UTF-8", **more}
    command = [sys.executable, "-c", WORK, str(home), url, name]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environ, **pipes) as process:
        try:
            yield Release(process)
        finally:
            process.communicate()


@contextmanager
def command(code: Path, home: Path, url: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command of a release, which is asked to stop in the end."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "HOME": str(home), "USER": "ann"}
    environ |= {"LANG": "C.UTF-8", "HABITUS_HOME": str(home), "HABITUS_DATABASE": url}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-m", "habitus", *words], env=environ, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def job_states(url: str) -> Counter[str]:
    with psycopg.connect(url) as connection:
        query = "SELECT state, count(*) FROM jobs GROUP BY state"
        return Counter(dict(connection.execute(query).fetchall()))


THIS = Path(this_release.__path__[0]).parent


def next_release(folder: Path, *steps: tuple[str, str]) -> Path:
    """This one with more migrations, each a number and the oldest schema whose code may use it."""
    package, before = folder / "habitus", sql.HEAD
    for own in ("migrations", "sql"):
        shutil.copytree(THIS / "habitus" / own, package / own)
    for path in (THIS / "habitus").iterdir():
        if path.name not in ("migrations", "sql", "__pycache__"):
            (package / path.name).symlink_to(path)
    for number, oldest in steps:
        step = MIGRATION.format(number=number, before=before, oldest=oldest)
        (package / "migrations" / "versions" / f"{number}_next.py").write_text(step)
        before = number
    schema = package / "sql" / "schema.py"
    schema.write_text(schema.read_text().replace(f'HEAD = "{sql.HEAD}"', f'HEAD = "{before}"'))
    return folder


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    """A database of its own: who uses it is counted."""
    name = f"releases_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield sa.make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def found(url: str) -> tuple[str, Counter[str]]:
    """The schema, and how many there are of what both releases write."""
    counts = ("skills", "engrams", "turns")
    with psycopg.connect(url) as connection:
        schema = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in counts}
    assert schema is not None
    return schema[0], Counter({name: row[0] if row else 0 for name, row in rows.items()})


def asked(habitus: Habitus, text: str) -> str:
    """What a turn tells, which knows the skill whatever happens."""
    with habitus.turn(text, conversation="all") as turn:
        assert "brew-tea" in turn.system
        turn.done("ok")
    return " ".join(turn.notices)


@pytest.mark.full
@pytest.mark.req("OP-03")
def test_the_next_release_works_beside_this_one_or_waits_until_it_has_gone(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("habitus.sql.outage.PROBE_TIMEOUT_S", 5.0)  # a busy machine is not a slow server
    settings = read_settings(furnish(tmp_path / "one"), {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": url})
    next_one, after_it = ("9001", sql.HEAD), ("9002", "9002")
    with Habitus.open(settings) as habitus:
        habitus.skills.create(Skill(name="brew-tea", description="How tea is brewed", body="."), habitus.build_author())
        assert asked(habitus, "first") == ""
        with running(next_release(tmp_path / "next", next_one), tmp_path / "two", url, "next") as other:
            assert (other.head, "needs 9001" in other.asked("write", "2")) == ("9001", True)
            assert (other.asked("migrate"), other.asked("write", "2")) == ("9001", "done")
        assert {"next-0", "next-1"} < {item.name for item in habitus.skills.list_skills()}
        habitus.skills.create(Skill(name="mine", description="Made meanwhile", body="."), habitus.build_author())
        assert asked(habitus, "second") == ""
        assert found(url) == ("9001", Counter(skills=4, engrams=2, turns=2))

        with running(next_release(tmp_path / "after", next_one, after_it), tmp_path / "two", url, "after") as other:
            told = "1 older Habitus process uses {}, and could not go on at schema 9002; nothing was changed."
            assert other.asked("migrate").startswith(told.format(sql.describe_database(habitus.shared)))
            assert (found(url)[0], asked(habitus, "third")) == ("9001", "")
            assert (other.asked("migrate", "force"), other.asked("write", "1")) == ("9002", "done")
        assert "was written by a newer Habitus (schema 9002" in asked(habitus, "fourth")
        assert asked(habitus, "fifth") == ""  # it was said
        with pytest.raises(StorageFailed, match="newer Habitus"):
            habitus.skills.remove("brew-tea", habitus.build_author())
        assert found(url) == ("9002", Counter(skills=5, engrams=3, turns=3))
        assert (
            JournalOutbox(habitus.writable_dir / OUTBOX_DIR, habitus.redactor).pending_count == 2
        )  # for whoever runs here after the upgrade


@pytest.mark.full
@pytest.mark.req("OP-01", "OP-03")
def test_a_session_a_worker_and_a_page_go_on_while_the_next_release_migrates(tmp_path: Path, url: str) -> None:
    sql.open_engine_with_current_schema(url).dispose()
    next_one, after_it = ("9001", sql.HEAD), ("9002", "9002")
    code, last = next_release(tmp_path / "next", next_one), next_release(tmp_path / "after", next_one, after_it)
    one, two = tmp_path / "one", tmp_path / "two"
    with (
        command(THIS, one, url, "jobs", "work", "--queues", "curate"),
        command(THIS, tmp_path / "page", url, "up", "--port", "0") as page,
        ExitStack() as ends,
        running(THIS, one, url, "this") as session,
        running(code, two, url, "next") as other,
    ):
        assert page.stdout is not None
        http = ends.enter_context(program([page.stdout.readline().strip() for _ in range(3)]))
        session.say("turn", "10")  # while the other one migrates
        assert (other.asked("migrate"), session.heard()) == ("9001", "done")
        for what, many in (("write", "5"), ("turn", "5"), ("job", "3")):
            session.say(what, many)
            other.say(what, many)
            assert (session.heard(), other.heard()) == ("done", "done")
        assert found(url) == ("9001", Counter(skills=10, engrams=10, turns=20))
        listed = http.get("/api/v1/skills?limit=100").json()["skills"]
        assert sum(item["name"].startswith(("this-", "next-")) for item in listed) == 10
        until(lambda: job_states(url) == Counter(done=6))

        with running(last, two, url, "after") as newest:
            assert "2 older Habitus processes use" in newest.asked("migrate")  # the worker and the page
            assert newest.asked("migrate", "force") == "9002"
            assert "newer Habitus" in session.asked("write", "1")
            assert newest.asked("job", "3") == "done"
            assert http.get("/api/v1/skills").status_code == 503
            with command(last, two, url, "jobs", "work", "--until-idle") as worker:
                worker.wait()
        assert job_states(url) == Counter(done=9)
        assert found(url) == ("9002", Counter(skills=10, engrams=10, turns=20))


@pytest.mark.full
@pytest.mark.req("OP-03")
def test_a_migration_that_is_killed_leaves_nothing_and_two_at_once_make_one(tmp_path: Path, url: str) -> None:
    sql.open_engine_with_current_schema(url).dispose()
    code, mark = next_release(tmp_path / "next", ("9001", sql.HEAD)), tmp_path / "paused"
    with running(code, tmp_path / "one", url, "killed", PAUSE=str(mark)) as other:
        other.say("migrate")
        until(mark.exists)
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
    assert found(url)[0] == sql.HEAD
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('of_9001')").fetchone() == (None,)
    with running(code, tmp_path / "one", url, "a") as one, running(code, tmp_path / "two", url, "b") as two:
        one.say("migrate")
        two.say("migrate")
        assert (one.heard(), two.heard()) == ("9001", "9001")
        assert (one.asked("write", "3"), two.asked("write", "3")) == ("done", "done")
    assert found(url) == ("9001", Counter(skills=6, engrams=6))
