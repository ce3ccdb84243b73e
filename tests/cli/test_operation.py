"""The doctor on what runs beside commands, and systems that Habitus does not run on."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import platform
import shutil
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from habitus.app import DATABASE, Habitus, read_settings
from habitus.app.operating.checking import run_doctor
from habitus.hosts.hook import NOTED_SESSIONS_FILE, SOCKET_FILE
from tests.cli.conftest import Direct
from tests.conftest import Cli
from tests.contracts import postgres
from tests.jobs.counting import until
from tests.web.test_up import program as asked_by_program

AWAY = {"HABITUS_DATABASE": "postgresql://ann:hunter2@127.0.0.1:9/none"}


def checks(direct: Direct, **more: object) -> dict[str, tuple[str, str]]:
    ran = direct("doctor", "--json", **more)  # type: ignore[arg-type]  # its environment
    return {check["name"]: (check["state"], check["detail"]) for check in json.loads(ran.out)["checks"]}


@pytest.mark.req("OP-02")
def test_what_is_in_use_has_a_line_and_what_is_not_has_none(direct: Direct) -> None:
    before = checks(direct)
    assert {"shared database", "outbox", "jobs", "hooks", "vault", "command lines", "backups", "telemetry"} & set(
        before
    ) == set()
    assert {"python", "home", "database", "search", "model", "sandbox: bubblewrap"} <= set(before)
    (direct.home / "spool").mkdir()
    (direct.home / "spool" / "waiting").write_bytes(b"0 {}\n0 {}\n")
    (direct.home / "spool" / "dropped").write_bytes(b"...")
    (direct.home / NOTED_SESSIONS_FILE).write_text("{}\n")
    (direct.home / SOCKET_FILE).touch()
    with closing(sqlite3.connect(direct.home / DATABASE)) as jobs, jobs:
        for state in ("done", "pending", "dead-lettered"):
            columns = "id, kind, given, state, priority, added_on, changed_on"
            jobs.execute(f"INSERT INTO jobs ({columns}) VALUES (?, 'x', '{{}}', ?, 1, 0, 0)", (state, state))
    direct.ok("db", "backup")
    direct.ok("skills", "new", "--cli", "greeter")
    found = checks(direct, env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert found["outbox"] == (
        "paused",
        "2 turns and judgements pending on disk, 3 counts or entries were dropped so far.",
    )
    assert found["jobs"] == ("paused", "1 to do, 1 need attention, 1 done")
    assert found["hooks"] == (
        "ok",
        "the next session starts the resident process, 1 transcripts pending",
    )
    assert found["backups"][1].startswith("1 in the home, the last of ")
    assert found["telemetry"][0] == "ok"
    assert found["command lines"][1].startswith("1 of 1 can be called: greeter")


@pytest.mark.req("OP-02", "OP-03")
def test_a_shared_database_that_is_away_is_said_with_its_hint_and_without_its_password(direct: Direct) -> None:
    ran = direct("doctor", env=AWAY)
    assert ran.code == 1
    assert "127.0.0.1" in ran.out
    assert "hunter2" not in ran.out


@pytest.mark.req("OP-02", "SB-09")
def test_where_there_is_no_sandbox_the_doctor_says_what_is_open(
    direct: Direct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine is probed once per search path.
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    for told, says in (("false", "off; needed to run code"), ("true", "off, but code runs anyway")):
        direct.ok("config", "set", "allow_weaker_sandbox", told)
        with Habitus.open(read_settings(direct.home, {"HOME": str(direct.home)})) as opened:
            found = {check.name: check for check in run_doctor(opened)}
        for name in ("files", "network", "limits"):
            assert found[f"sandbox: {name}"].detail.startswith(says)
            assert "allow_weaker_sandbox" in found[f"sandbox: {name}"].hint


EXAMPLES = Path(__file__).parents[2] / "examples" / "operations"


@pytest.mark.req("OP-02")
def test_the_examples_of_operation_name_commands_that_there_are(direct: Direct) -> None:
    yaml = importlib.import_module("yaml")
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    unit = (EXAMPLES / "habitus.service").read_text()
    ran = [service["command"] for service in compose["services"].values() if "command" in service]
    ran += [line.partition("=")[2].split()[1:] for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert len(ran) >= 3
    for words in ran:
        assert direct(*itertools.takewhile(str.isalpha, words), "--help").code == 0
    assert all(service.get("read_only") for name, service in compose["services"].items() if name != "database")


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_the_compose_file_of_a_team_works_as_it_is_written(run_cli: Cli, postgres_server: str) -> None:
    """Every service is started with its own words, environment and health check, in a home of its own; no container."""
    yaml = importlib.import_module("yaml")
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    database = postgres.new_schema(postgres_server)
    homes = {name: run_cli.cwd / name for name in services}

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

    def start(name: str) -> Popen[str]:
        environ = {**services[name]["environment"], "HABITUS_HOME": str(homes[name]), "HABITUS_DATABASE": database}
        words = [
            word.replace("${PUBLIC_NAME:-localhost:8765}", f"127.0.0.1:{port}") for word in services[name]["command"]
        ]
        words = ["127.0.0.1" if word == "0.0.0.0" else port if word == "8765" else word for word in words]
        return Popen([*run_cli.program, *words], cwd=run_cli.cwd, env=run_cli.environ(environ), stdout=PIPE, text=True)

    with start("migrate") as migrate:
        assert migrate.wait() == 0
    with start("web") as web, start("worker") as worker:
        try:
            assert web.stdout is not None
            said = [web.stdout.readline().strip() for _ in range(3)]
            with asked_by_program(said) as http:
                check = services["web"]["healthcheck"]["test"][1:]
                healthy = [word.replace("8765", port) for word in check[1:]]
                assert run([sys.executable, *healthy], check=False).returncode == 0
                job = http.post("/api/v1/jobs", json={"kind": "index"}).json()
                until(lambda: http.get(f"/api/v1/jobs/{job['id']}").json()["state"] == "done")
        finally:
            for process in (web, worker):
                process.terminate()
            worker.communicate()  # what it says last is read
    assert (web.returncode, worker.returncode) == (0, 0)


@pytest.mark.full
def test_systemd_and_docker_take_the_examples(tmp_path: Path) -> None:
    command = tmp_path / ".local" / "bin" / "habitus"
    command.parent.mkdir(parents=True)
    command.symlink_to(Path(sys.executable).with_name("habitus"))
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    taken = []
    if shutil.which("systemd-analyze"):
        taken.append(["systemd-analyze", "verify", "--user", str(EXAMPLES / "habitus.service")])
    if shutil.which("docker") and run(["docker", "compose", "version"], capture_output=True, check=False).stdout:
        taken.append(["docker", "compose", "-f", str(EXAMPLES / "compose.yaml"), "config", "-q"])
    if not taken:
        pytest.skip("needs systemd-analyze or docker compose")
    for words in taken:
        done = run(words, env={**environ, "DATABASE_PASSWORD": "x"}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_an_ordinary_user_needs_no_more_than_a_home_to_write_in(tmp_path: Path) -> None:
    """As in a container with a read-only root: not even /tmp can be written."""
    if not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap")
    (home := tmp_path / "home").mkdir()
    (script := tmp_path / "script.json").write_text(json.dumps([{"say": "Good."}]))
    walls = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(home), str(home)]
    walls += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--chdir", str(home)]
    environ = {"HOME": str(home), "HABITUS_HOME": str(home / ".habitus"), "PATH": os.environ["PATH"]}
    for words in (
        ("skills", "new", "tidy-inbox", "--description", "Empties an inbox."),
        ("skills", "search", "inbox"),
        ("lessons", "add", "Water has to boil."),
        ("chat", "hello", "--model", f"script:{script}"),
        ("db", "backup"),
        ("jobs", "add", "index"),
        ("jobs", "work", "--until-idle"),
        ("doctor",),
    ):
        command = [*walls, str(Path(sys.executable).with_name("habitus")), *words]
        done = run(command, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done.stderr)


FULL = """
habitus() { "$HABITUS" "$@"; }
habitus skills new tidy-inbox --description "Empties an inbox." > /dev/null
habitus lessons add "Water has to boil." > /dev/null
dd if=/dev/zero of="$HOME/filler" bs=1k 2> /dev/null
for words in "skills edit tidy-inbox --append More" "lessons add Milk" "db backup" "config set bot_name Robin"; do
  habitus $words > /dev/null 2> /dev/shm/said && exit 1
  cat /dev/shm/said
done
habitus skills list --layer user --json 2> /dev/null | grep -c tidy-inbox > /dev/null || exit 1
rm "$HOME/filler"
habitus skills edit tidy-inbox --append "2. Later." > /dev/null || exit 1
habitus lessons list --json | grep -q "Water has to boil." || exit 1
"""


@pytest.mark.full
def test_on_a_full_disk_each_command_says_so_in_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap")
    (home := tmp_path / "home").mkdir()
    walls = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm"]
    walls += ["--size", "3000000", "--tmpfs", str(home), "--chdir", str(home)]
    environ = {"HOME": str(home), "HABITUS_HOME": str(home / ".habitus"), "TMPDIR": "/dev/shm"}
    environ |= {"PATH": os.environ["PATH"], "HABITUS": str(Path(sys.executable).with_name("habitus"))}
    done = run([*walls, "sh", "-c", FULL], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(said := done.stdout.splitlines()) == 4
    assert all(line.startswith(f"habitus: No space is left in {home}") for line in said), said
