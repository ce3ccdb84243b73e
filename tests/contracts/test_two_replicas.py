"""Two replicas of the page on one PostgreSQL, behind no sticky session: one is killed, one is of the next release."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from habitus import sql
from tests.contracts import postgres
from tests.homes import furnish

pytestmark = pytest.mark.full

# The next release: it knows a migration more, which only adds.
NEXT = "9999"
UPGRADED = f"import habitus.sql.schema as s; s.HEAD = {NEXT!r}; from habitus.cli.start import run; run()"
CURRENT = "from habitus.cli.start import run; run()"


@pytest.fixture
def address(postgres_server: str) -> Iterator[str]:
    with postgres.schema(postgres_server) as url:
        yield url


class Team:
    """Homes of several hosts on one database."""

    def __init__(self, root: Path, address: str) -> None:
        self._root, self._address = root, address

    def let_model_say(self, host: str, steps: Sequence[dict[str, Any]]) -> None:
        """Let the model of a host follow these steps, slowly."""
        (self._root / f"{host}.json").write_text(json.dumps({"pause": 0.3, "steps": steps}))

    def environ(self, host: str) -> dict[str, str]:
        home = self._root / host
        if not home.exists():
            furnish(home)
        own = {"HOME": str(self._root), "USER": "olga", "HABITUS_HOME": str(home), "HABITUS_DATABASE": self._address}
        script = self._root / f"{host}.json"
        return {**os.environ, **own, **({"HABITUS_MODEL": f"script:{script}"} if script.exists() else {})}

    def run(self, host: str, *words: str) -> str:
        command = [sys.executable, "-c", CURRENT, *words]
        return subprocess.run(command, env=self.environ(host), check=True, capture_output=True, text=True).stdout

    @contextmanager
    def up(self, host: str, *options: str, code: str = CURRENT) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A replica and its address."""
        command = [sys.executable, "-c", code, "up", "--port", "0", "--no-jobs", *options]
        with subprocess.Popen(command, env=self.environ(host), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process, process.stdout.readline().strip().rpartition(" ")[2]
            finally:
                process.send_signal(signal.SIGTERM)


@pytest.mark.req("OP-07")
def test_a_stream_resumes_on_another_replica_and_the_answer_of_a_killed_one_is_kept(
    tmp_path: Path, address: str
) -> None:
    team = Team(tmp_path, address)
    (bearer,) = re.findall(r"Bearer ([^']+)'", team.run("a", "users", "add", "ann", "--role", "admin"))
    skill = {"name": "make-soup", "title": "Soup", "description": "Soup", "content": "1. Cut leeks.\n"}
    steps: list[dict[str, Any]] = [
        {"call": "create_skill", "arguments": skill, "say": "I write it down."},
        {"say": "Saved, and "},
        {"say": "One, two, three, ", "hang": True},
    ]
    team.let_model_say("a", steps)
    team.let_model_say("b", [{"say": "Here I am."}])
    with ExitStack() as replicas:
        victim, first = replicas.enter_context(team.up("a"))
        _, second = replicas.enter_context(team.up("b"))
        runs, asks = (replicas.enter_context(client(base, bearer)) for base in (first, second))

        def say(replica: httpx2.Client, text: str, id: str = "") -> str:
            said = replica.post(f"/api/v1/sessions/{id}/say" if id else "/api/v1/sessions", json={"text": text})
            assert said.is_success, said.text
            return str(said.json()["id"])

        # The question of one replica is shown and answered on the other.
        id = say(runs, "Save that as a skill.")
        question = next(event for event in listen(asks, id) if event["kind"] == "ConsentRequested")
        number = question["number"]
        asks.post(f"/api/v1/sessions/{id}/answer", json={"number": number, "answer": "yes"}).raise_for_status()
        *_, end = listen(asks, id, after=number + 1)
        assert end["kind"] == "TurnEnd"
        assert asks.get("/api/v1/skills/make-soup").is_success
        # Whoever was reading at the replica that is killed reads on at the other, and nothing said is lost.
        began_at = len(list(listen(runs, id)))
        say(runs, "Count.", id)
        assert "An answer is still being written." in asks.post(f"/api/v1/sessions/{id}/say", json={"text": "?"}).text
        read = ""
        for event in listen(runs, id, after=began_at):
            read += event.get("text", "")
            began_at += 1
            if read == "One, ":
                break
        stream = listen(asks, id, after=began_at)
        read += next(event["text"] for event in stream if event["kind"] == "ReplyDelta")
        victim.kill()
        read += "".join(event.get("text", "") for event in stream)
        assert read == "One, two, three, "
        *_, counted = asks.get(f"/api/v1/sessions/{id}").json()["turns"]
        assert counted["outcomes"][0]["reason"] == "The process that answered has ended."
        assert "One, two, three, " in str(counted["messages"])
        # The conversation goes on there.
        say(asks, "Go on.", id)
        assert "".join(event.get("text", "") for event in listen(asks, id)) == "Here I am."


def listen(replica: httpx2.Client, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the events of a running turn that this replica streams."""
    with replica.stream("GET", f"/api/v1/sessions/{id}/events", params={"after": after}) as told:
        for line in told.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def client(address: str, token: str) -> httpx2.Client:
    return httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def post_once(bases: Sequence[str], token: str, number: int) -> int:
    """Send one request with a key until some replica answers, as a client behind a balancer does."""
    for attempt in range(300):
        try:
            with client(bases[(number + attempt) % len(bases)], token) as replica:
                said = replica.post(
                    "/api/v1/skills",
                    json={"name": f"kettle-{number}", "description": f"Kettle {number}."},
                    headers={"Idempotency-Key": f"kettle-{number}"},
                )
        except httpx2.TransportError:
            continue
        if said.is_success:
            return int(said.json()["version"])
        # Of one that was killed in the middle, another tells after a minute whether it had finished.
        assert said.status_code in (409, 503), said.text
        threading.Event().wait(0.5)
    raise AssertionError(f"Nobody answered request {number}.")


@pytest.mark.req("OP-07")
def test_one_replica_is_killed_and_one_upgraded_under_load_and_nothing_is_lost_or_done_twice(
    tmp_path: Path, address: str
) -> None:
    team = Team(tmp_path, address)
    said = team.run("a", "users", "add", "ann", "--role", "admin")
    (key,), (bearer,) = re.findall(r"key=(\S+)", said), re.findall(r"Bearer ([^']+)'", said)
    with ExitStack() as replicas, ThreadPoolExecutor(4) as load:
        _, first = replicas.enter_context(team.up("a", "--workers", "2"))
        victim, second = replicas.enter_context(team.up("b"))
        bases = [first, second]
        with httpx2.Client(follow_redirects=False, timeout=60) as browser:
            cookies = browser.get(f"{first}/enter", params={"key": key}).headers["set-cookie"].partition(";")[0]
            for base in bases:
                assert browser.get(f"{base}/activity", headers={"Cookie": cookies}).status_code == 200
                assert browser.get(f"{base}/enter", params={"key": key}).status_code == 403
        for base in bases:
            assert list_tools(base, bearer)
        work = [load.submit(post_once, bases, bearer, number) for number in range(40)]
        until_done(work, 10)
        victim.kill()
        migrate(address)
        _, third = replicas.enter_context(team.up("c", code=UPGRADED))
        bases.append(third)
        more = [load.submit(post_once, bases, bearer, number) for number in range(40, 80)]
        # A request that was done twice would be answered with a conflict, or make a second version.
        assert {each.result() for each in (*work, *more)} == {1}
        for base in (first, third):
            with client(base, bearer) as replica:
                listed = replica.get("/api/v1/skills", params={"layer": "user", "limit": 200}).json()["skills"]
            assert {one["name"] for one in listed} == {f"kettle-{number}" for number in range(80)}
        # What one replica did another undoes.
        with client(first, bearer) as replica:
            body = {"name": "brew-tea", "description": "How tea is brewed."}
            added = replica.post("/api/v1/skills", json=body).raise_for_status().json()
        with client(third, bearer) as replica:
            replica.post("/api/v1/undo", json={"undo": added["undo"]}).raise_for_status()
        with client(first, bearer) as replica:
            assert replica.get("/api/v1/skills/brew-tea").status_code == 404
        team.run("a", "users", "remove", "ann")
        for base in (first, third):
            with client(base, bearer) as replica:
                assert replica.get("/api/v1/skills").status_code == 401


def until_done(work: Sequence[Any], number: int) -> None:
    while sum(each.done() for each in work) < number:
        threading.Event().wait(0.05)


def migrate(address: str) -> None:
    """What the next release's migration does: it adds, and says that this release may go on."""
    engine = sql.create_engine(address)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE jobs ADD COLUMN IF NOT EXISTS colour text"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :next"), {"next": NEXT})
    engine.dispose()


def list_tools(base: str, token: str) -> list[str]:
    """Ask a replica for its tools without a session of MCP."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    with client(base, token) as replica:
        said = replica.post("/mcp", json=asked, headers=headers)
    said.raise_for_status()
    return re.findall(r'"name":\s*"(\w+)"', said.text)
