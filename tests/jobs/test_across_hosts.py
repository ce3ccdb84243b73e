"""Jobs on PostgreSQL, which workers on many hosts share: killed, cut off, stopped and restarted, counted exactly."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.operating import jobs
from habitus.app.operating.jobs import Scheduler
from habitus.errors import NotFound
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import WorkerConfig, run_worker_until_block_ends
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, LessonScope, SelfPlayLessonBody
from habitus.sql.change_notifications import ChangeFeed, ChangeTopic
from tests.contracts import postgres
from tests.contracts.lines import line_to
from tests.homes import furnish
from tests.jobs.conftest import Nursed
from tests.jobs.counting import GONE_S, Counting, begun, check, counting, queue_at, until


@pytest.fixture
def address(postgres_server: str) -> str:
    """A schema of its own, and a name by which the server knows who is connected to it."""
    named = {"application_name": f"jobs-{secrets.token_hex(4)}"}
    url = sa.make_url(postgres.new_schema(postgres_server)).update_query_dict(named)
    return url.render_as_string(hide_password=False)


@pytest.fixture
def shared(postgres_server: str) -> Iterator[str]:
    """The same with every table of ours."""
    with postgres.schema(postgres_server) as url:
        named = sa.make_url(url).update_query_dict({"application_name": f"jobs-{secrets.token_hex(4)}"})
        yield named.render_as_string(hide_password=False)


@pytest.fixture
def queue(root: Path, address: str) -> Iterator[JobQueue]:
    (root / "url").write_text(address)
    with queue_at(address) as opened:
        yield opened


def _add(queue: JobQueue, number: int, *deaths: str, takes_s: float = 0.0) -> None:
    parts = [{"die": die, "takes_s": takes_s} for die in deaths]
    queue.add_job("count", {"job": f"job-{number}", "parts": parts}, id=f"job-{number}")


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_workers_killed_at_random_lose_no_job_and_repeat_no_part_that_was_kept(
    root: Path, queue: JobQueue, nursed: Nursed, is_thorough: bool
) -> None:
    count, parts = (120, 20) if is_thorough else (3, 5)
    for number in range(count):
        _add(queue, number, *["after" if number == 0 and part == 2 else "" for part in range(parts)], takes_s=0.05)
    with nursed(kills_s=4.0 if is_thorough else 0.0):
        until(lambda: not queue.count_unfinished_jobs(), longest_s=600)
    check(root, queue.list_jobs())


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_connections_cut_under_load_cost_nothing(root: Path, queue: JobQueue, address: str) -> None:
    for number in range(2):
        _add(queue, number, *[""] * 6, takes_s=0.05)
    admin = sql.create_engine(str(sa.make_url(address).difference_update_query(["application_name"])))
    cut = sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name")
    with counting(root):
        for done in (1, 4, 8):
            until(lambda done=done: len(begun(root) if (root / "began").exists() else []) > done)  # type: ignore[misc]  # the loop's own value
            with admin.begin() as connection:
                connection.execute(cut, {"name": sa.make_url(address).query["application_name"]})
        until(lambda: not queue.count_unfinished_jobs())
    admin.dispose()
    check(root, queue.list_jobs())


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_worker_has_three_connections_however_many_jobs_it_does_at_a_time(
    home: Path, tmp_path: Path, shared: str
) -> None:
    environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": shared}
    admin = sql.create_engine(str(sa.make_url(shared).difference_update_query(["application_name"])))
    count = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
    most = 0
    with (
        Habitus.open(read_settings(home, environ)) as habitus,
    ):
        queue = jobs.open_job_queue(habitus)
        for _ in range(6):
            jobs.submit_job(habitus, queue, "index")
        with jobs.run_home_worker(habitus, queue, concurrency=2):
            while queue.count_unfinished_jobs():
                with admin.begin() as connection:
                    name = {"name": sa.make_url(shared).query["application_name"]}
                    most = max(most, connection.execute(count, name).scalar_one())
        assert {job.state.value for job in queue.list_jobs()} == {"done"}
    admin.dispose()
    assert 1 <= most <= 2 + 1


@pytest.mark.full
@pytest.mark.req("OP-01", "SC-04")
def test_a_job_is_done_in_the_name_of_its_user_and_where_its_files_are(tmp_path: Path, shared: str) -> None:
    def opened(user: str) -> Habitus:
        home = furnish(tmp_path / user)
        (home / "habitus.toml").write_text("[users.ann]\nadmin = false\n[users.ben]\nadmin = true\n")
        return Habitus.open(read_settings(home, {"HOME": str(home), "USER": user, "HABITUS_DATABASE": shared}))

    with opened("ann") as anns, opened("ben") as bens:
        candidate = anns.memory.encode(_CANDIDATE).engram
        assert candidate is not None
        anns.memory.approve(candidate.id, by="ann")
        queue = jobs.open_job_queue(anns)
        local = jobs.submit_job(anns, queue, "learn", ["one.jsonl"])
        hers = jobs.submit_job(anns, queue, "verify")
        everybodys = jobs.open_job_queue(bens)
        his = jobs.submit_job(bens, everybodys, "verify")
        with jobs.run_home_worker(bens, everybodys):
            until(lambda: jobs.is_queue_idle(bens.settings, everybodys))
        assert {job.id: job.parts_total for job in everybodys.list_jobs()} == {his: 0, hers: 1, local: None}
        assert {job.id for job in queue.list_jobs()} == {hers, local}
        with pytest.raises(NotFound, match=f"There is no job '{his}'"):
            queue.cancel(his)
        assert not [page for page in (tmp_path / "ben" / "memory").glob("*.md") if candidate.id in page.read_text()]


@pytest.mark.req("OP-01", "OP-08")
def test_a_host_that_runs_no_jobs_of_others_still_runs_those_that_only_it_can(tmp_path: Path, shared: str) -> None:
    homes = [furnish(tmp_path / name) for name in ("one", "two")]
    settings = [read_settings(home, {"HOME": str(home), "USER": "ann", "HABITUS_DATABASE": shared}) for home in homes]
    with Habitus.open(settings[0]) as one, Habitus.open(settings[1]) as two:
        queue = jobs.open_job_queue(one)
        own, everybodys = (jobs.submit_job(one, queue, kind) for kind in ("index", "curate"))
        host = queue.get(own).host
        with jobs.run_background_worker(lambda: two, only_own_home=True):
            assert queue.get(everybodys).waits_for == "a worker: none is running"
            with jobs.run_background_worker(lambda: one, only_own_home=True):
                until(lambda: queue.get(own).state.is_over)
            assert (queue.get(own).reason, queue.list_workers()) == ("", [])
        again = jobs.submit_job(one, queue, "index")
        with jobs.run_home_worker(two, jobs.open_job_queue(two)):
            until(lambda: queue.get(everybodys).state.is_over)
            waits = queue.get(again)
        assert (waits.state.value, waits.waits_for) == (
            "pending",
            f"a process of the home {host}, which alone has what it needs",
        )


_CANDIDATE = LessonDraft(
    text="When texts are joined: sort them first",
    kind=LessonKind.LESSON,
    scope=LessonScope.USER,
    source="self-play: join-the-names",
    body=SelfPlayLessonBody(
        trigger="When texts are joined", anti_pattern="", correct_pattern="sort them first", domains=("algo",)
    ),
    user="ann",
    produced_by=LessonProducer.DREAM,
)


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_hosts_whose_clocks_are_hours_apart_start_what_is_due_once_by_the_clock_of_the_database(
    tmp_path: Path, shared: str
) -> None:
    def opened(name: str, hours: int) -> Habitus:
        home = furnish(tmp_path / name)
        (home / "habitus.toml").write_text('[schedule]\ncurate = "hourly"\nlearn = "off"\nmine = "off"\n')
        settings = read_settings(home, {"HOME": str(home), "USER": "ann", "HABITUS_DATABASE": shared})
        return Habitus.open(settings, clock=lambda: datetime.now(UTC) + timedelta(hours=hours))

    with opened("early", 5) as early, opened("late", -5) as late:
        queue = jobs.open_job_queue(early)
        queue.add_job("curate", {"user": "ann"}, id="scheduled-curate-ann-2020-01-01T00")  # it was followed before
        began = datetime.now(UTC)
        for habitus in (early, late, early, late):
            Scheduler(habitus, queue).add_due_jobs()
        keys = {f"scheduled-curate-ann-{timestamp:%Y-%m-%dT%H}" for timestamp in (began, datetime.now(UTC))}
        added = {job.id for job in queue.list_jobs()} - {"scheduled-curate-ann-2020-01-01T00"}
        assert added
        assert added <= keys  # two if the hour was over meanwhile


@contextmanager
def _counter(root: Path, *before: str, gone_s: float = GONE_S) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that counts, as a process of its own; in the end it is killed."""
    code = (
        "import sys, pathlib, threading, time\n"
        "time.sleep = lambda seconds: threading.Event().wait(seconds)\n"  # whose clock faketime leaves alone
        "from tests.jobs.counting import _work; _work(pathlib.Path(sys.argv[1]), float(sys.argv[2]))"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd()), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    command = [*before, sys.executable, "-c", code, str(root), str(gone_s)]
    with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # some of those that start it stay before it


@pytest.mark.full
@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.req("OP-01")
def test_workers_whose_clocks_are_hours_apart_try_again_when_it_is_time(root: Path, queue: JobQueue) -> None:
    for number in range(6):
        parts = [{"die": "", "stumbles": number == 0 and part == 2, "takes_s": 0.05} for part in range(5)]
        queue.add_job("count", {"job": f"job-{number}", "parts": parts}, id=f"job-{number}")
    alive = partial(_counter, root, gone_s=600)  # nobody dies here, and who is slow must not lose a job
    with alive("faketime", "-f", "+1h"), alive("faketime", "-f", "-1h"):
        until(lambda: queue.get("job-0").reason != "")
        (root / "fixed").touch()
        until(lambda: not queue.count_unfinished_jobs())
    check(root, queue.list_jobs())


@pytest.mark.req("OP-08")
def test_a_job_that_is_added_wakes_a_worker_that_sleeps(root: Path, queue: JobQueue, address: str) -> None:
    looks, number = 0, 12

    def look() -> None:
        nonlocal looks
        looks += 1

    listening = sql.create_engine(address)
    feed = ChangeFeed(listening)
    config = WorkerConfig(feed=feed, poll_interval_s=0.001, on_poll=look)
    with run_worker_until_block_ends(queue.engine, {"count": Counting(root)}, config):
        until(lambda: feed.get_token_of_announced_changes(ChangeTopic.JOBS) is not None)
        looks, began = 0, time.monotonic()
        for each in range(number):
            _add(queue, each, "")
            until(lambda each=each: queue.get(f"job-{each}").state.is_over)  # type: ignore[misc]  # the loop's own value
        took = time.monotonic() - began
        (worker,) = queue.list_workers()
        assert (worker.host, worker.version, worker.jobs) == (socket.gethostname(), version("habitus"), ())
    listening.dispose()
    assert looks < 12 * number  # it sleeps, though it would poll a thousand times a second
    assert took < 5 * number  # and it does not sleep on for ten seconds
    assert queue.list_workers() == []


@pytest.fixture
def namespace() -> Iterator[tuple[str, str, str]]:
    """Another host: its name, the link to it, and this one's address as it sees it; only where one can be made."""
    name, near, far = f"habitus-{os.getpid()}", f"hn{os.getpid()}", f"hf{os.getpid()}"
    part = os.getpid() % 250
    here, there = f"10.213.{part}.1", f"10.213.{part}.2"
    steps = (
        f"ip netns add {name}",
        f"ip link add {near} type veth peer name {far} netns {name}",
        f"ip addr add {here}/24 dev {near}",
        f"ip link set {near} up",
        f"ip netns exec {name} ip addr add {there}/24 dev {far}",
        f"ip netns exec {name} ip link set {far} up",
    )
    try:
        for step in steps:
            if shutil.which("ip") is None or subprocess.run(step.split(), capture_output=True, check=False).returncode:
                pytest.skip("no network namespace can be made here")
        yield name, near, here
    finally:
        if shutil.which("ip"):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.mark.full
@pytest.mark.req("OP-01", "OP-03")
def test_a_host_whose_network_goes_loses_its_jobs_to_another_and_none_is_lost(
    root: Path, queue: JobQueue, address: str, namespace: tuple[str, str, str]
) -> None:
    name, link, here = namespace
    for number in range(4):
        _add(queue, number, *[""] * 30, takes_s=0.1)
    with line_to(address, at=here) as line:
        (root / "url").write_text(line.url)
        with _counter(root, "ip", "netns", "exec", name):
            until(lambda: queue.get("job-0").parts_done > 2)
            subprocess.run(["ip", "link", "set", link, "down"], check=True)
            (root / "url").write_text(address)
            with counting(root):
                at = queue.get("job-0").parts_done
                until(lambda: queue.get("job-0").parts_done > at + 3)  # it was taken over
                subprocess.run(["ip", "link", "set", link, "up"], check=True)
                until(lambda: not queue.count_unfinished_jobs())
    check(root, queue.list_jobs())


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_worker_that_stood_still_and_wakes_up_finds_its_job_taken(root: Path, queue: JobQueue) -> None:
    _add(queue, 0, *[""] * 40, takes_s=0.1)
    with _counter(root) as sleeper:
        until(lambda: queue.get("job-0").parts_done > 2)
        os.kill(sleeper.pid, signal.SIGSTOP)
        with counting(root):
            at = queue.get("job-0").parts_done
            until(lambda: queue.get("job-0").parts_done > at + 3)
            os.kill(sleeper.pid, signal.SIGCONT)
            until(lambda: not queue.count_unfinished_jobs())
    check(root, queue.list_jobs())


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_server_that_is_restarted_under_load_costs_nothing(root: Path, nursed: Nursed) -> None:
    with TemporaryDirectory(prefix="habitus-pg-", dir="/tmp") as place, ExitStack() as server:
        url = server.enter_context(postgres.running(Path(place)))
        (root / "url").write_text(url)
        with queue_at(url) as queue:
            for number in range(20):
                _add(queue, number, *[""] * 5, takes_s=0.1)
            with nursed():
                for done in (10, 30, 50):
                    until(lambda done=done: len(list((root / "effects").iterdir())) > done)  # type: ignore[misc]  # as above
                    server.close()
                    assert server.enter_context(postgres.running(Path(place))) == url
                until(lambda: not queue.count_unfinished_jobs())
            check(root, queue.list_jobs())
