"""Hostile requests at the real server: other names and sites, forged forms, paths that climb, floods, and secrets."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.conftest import Cli
from tests.web.test_up import up

KEY = "sk-hostile-0123456789abcdef0123456789abcdef"
SWITCH = "/api/v1/skills/brew-tea/disable"
CLIMBS = (
    "/static/../../../../etc/passwd",
    "/static/..%2f..%2f..%2fweb.key",
    "/static/%2e%2e/security.py",
    "/api/v1/skills/brew-tea/files/../../../web.key",
    "/api/v1/skills/brew-tea/files/..%2f..%2f..%2fweb.key",
    "/api/v1/skills/brew-tea/files//etc/passwd",
    "/api/v1/skills/..%2f..%2fweb.key",
    "/skills/..%2f..%2fweb.key?tab=files",
)


class Wire:
    """Requests as bytes, as no well-behaved client sends them."""

    def __init__(self, address: str) -> None:
        self.host = urlsplit(address).netloc

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> tuple[int, str]:
        given = {"Host": self.host, "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        name, _, port = self.host.partition(":")
        with socket.create_connection((name, int(port)), timeout=300) as door:
            door.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            answer = b"".join(iter(lambda: door.recv(65536), b"")).decode("utf-8", "replace")
        return int(answer.split(" ", 2)[1]), answer


@pytest.mark.req("CL-04", "SC-01")
def test_hostile_requests_reach_nothing(run_cli: Cli) -> None:
    assert run_cli("skills", "new", "brew-tea", "-d", "How tea is brewed").code == 0
    env = {"OPENAI_API_KEY": KEY, "HABITUS_BASE_URL": f"https://x:{KEY}@models.example/v1"}
    with up(run_cli, env=env) as said:
        wire = Wire(said[0].rpartition(" ")[2])
        token = {"Authorization": re.findall(r"Bearer \w+", said[2])[0]}
        _, entered = wire.ask("GET", said[1][said[1].index("/enter") :])
        cookie = {"Cookie": re.findall(r"set-cookie: ([^;]+)", entered, re.IGNORECASE)[0]}

        # No other name leads here, no other site and no form without our word may change anything.
        for host in ("evil.example", f"evil.example:{wire.host.partition(':')[2]}", wire.host.partition(":")[0]):
            assert wire.ask("GET", "/", {"Host": host, **cookie})[0] == 421
        assert wire.ask("GET", "/", {"Host": ""})[0] in (400, 421)
        assert wire.ask("POST", SWITCH, cookie)[0] == 403
        for origin in ("http://evil.example", "null", f"http://evil.{wire.host}"):
            assert wire.ask("POST", SWITCH, {**token, "Origin": origin})[0] == 403
            assert wire.ask("POST", "/mcp", {**token, "Origin": origin, "Content-Type": "application/json"})[0] == 403

        # No path leaves what is served, and no answer has a secret in it.
        secrets = (KEY, (run_cli.home / "web.key").read_bytes().decode("latin-1"), "root:", "def load_sign_in_service")
        for path in CLIMBS:
            status, answer = wire.ask("GET", path, token)
            assert status in (400, 404, 422), (path, status)
            assert not any(secret in answer for secret in secrets), path
        for path in ("/settings", "/doctor", "/api/v1/settings", "/api/v1/doctor", "/api/v1/nothing"):
            status, answer = wire.ask("GET", path, token)
            assert not any(secret in answer for secret in secrets), path
            policy = re.findall(r"content-security-policy: (.*)\r\n", answer, re.IGNORECASE)[0]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy

        # A hundred megabytes are refused unread, whether their length is said or hidden.
        form = {**token, "Content-Type": "multipart/form-data; boundary=x"}
        assert wire.ask("POST", "/api/v1/uploads", {**form, "Content-Length": str(100 * 2**20)})[0] == 413
        hidden = {**form, "Content-Length": "", "Transfer-Encoding": "chunked"}
        with suppress(OSError):  # who goes on sending is cut off
            assert wire.ask("POST", "/api/v1/uploads", hidden, (b"100000\r\n" + b"x" * 2**20 + b"\r\n") * 100)[0] == 400
        assert wire.ask("GET", "/api/v1/skills/brew-tea", token)[0] == 200
    assert "disabled" not in run_cli("skills", "list").out
