"""`habitus up` as a person starts it: the link, the page, agents, and a stop that loses nothing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from habitus.mcp.http import listening
from tests.conftest import Cli


@contextmanager
def up(cli: Cli, *options: str, **more: str) -> Iterator[list[str]]:
    """What it says when it is ready; at the end it is asked to stop, and does."""
    command = [*cli.program, "up", "--port", "0", *options]
    with subprocess.Popen(command, cwd=cli.cwd, env=cli.environ(more), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [process.stdout.readline().strip() for _ in range(3)]
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.req("CL-04", "CL-03")
async def test_the_link_signs_in_once_and_a_restart_signs_nobody_out(run_cli: Cli) -> None:
    assert run_cli("skills", "new", "brew-tea", "-d", "How tea is brewed").code == 0
    with up(run_cli) as said, httpx2.Client() as http:
        address = said[0].rpartition(" ")[2]
        link, token = said[1].rpartition(" ")[2], re.findall(r"Bearer (\w+)", said[2])[0]
        assert http.get(f"{address}/api/v1/skills/brew-tea").json()["name"] == "brew-tea"
        assert http.post(f"{address}/api/v1/skills/brew-tea/disable").status_code == 401
        entered = http.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert http.get(link).status_code == 403
        signed_in = http.cookies
        bearer = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=bearer) as web,
            Client(streamable_http_client(f"{address}/mcp", http_client=web)) as client,
        ):
            assert len((await client.list_tools()).tools) == 8
        assert http.post(f"{address}/mcp", json={}).status_code == 401
    believed = {"HABITUS_WEB_PROXY_HEADER": "X-User", "HABITUS_WEB_PROXIES": "10.0.0.1"}
    with up(run_cli, **believed) as said, httpx2.Client(cookies=signed_in) as http:
        address = said[0].rpartition(" ")[2]
        forged = {"X-User": "ann", "X-Forwarded-For": "10.0.0.1"}
        assert http.get(f"{address}/skills", headers=forged).status_code == 403
        assert http.get(f"{address}/api/v1/sessions").status_code == 200
        assert http.get(f"{address}/api/v1/skills/brew-tea").json()["version"] == 1
        assert http.post(f"{address}/api/v1/skills/brew-tea/disable", headers=bearer).json()["state"] == "disabled"


@pytest.mark.req("OP-01")
def test_it_does_jobs_beside_the_page_unless_it_is_told_not_to(run_cli: Cli) -> None:
    id = json.loads(run_cli("jobs", "add", "index", "--json").out)["id"]
    with up(run_cli, "--no-jobs"):
        assert json.loads(run_cli("jobs", "show", id, "--json").out)["state"] == "waiting"
    with up(run_cli):
        assert "index, done" in run_cli("jobs", "show", id, "--follow").out


@pytest.mark.req("CL-04")
def test_a_port_that_is_taken_is_said_in_one_line(run_cli: Cli) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        ran = run_cli("up", "--port", str(port))
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert f"Can't listen on 127.0.0.1:{port}" in ran.err
    assert "--port" in ran.err


@pytest.mark.req("CL-04")
def test_an_address_that_others_reach_is_refused_in_one_line(run_cli: Cli) -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        ran = run_cli("up", "--host", host)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "habitus users add NAME" in ran.err
    added = run_cli("users", "add", "ben", "--role", "reviewer", "--at", "http://shop.example:80")
    assert "http://shop.example:80/enter?key=" in added.out
    assert run_cli("users", "list").out.split() == ["name", "role", "ben", "reviewer"]
    assert run_cli("users", "remove", "ben").code == 0
    assert run_cli("users", "remove", "ben").code == 1
