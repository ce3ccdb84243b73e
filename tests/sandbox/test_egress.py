"""Egress by allow-list: what a request asks for, what a grant covers, and a call that tries to reach more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.sandbox.egress import EgressProxy, EgressTarget, is_target_granted, parse_request_target
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import MachineCapabilities

pytestmark = pytest.mark.req("SB-10")


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path} of {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[int]:
    """The port of a service on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


TRIES = """
import http.client, socket, sys, urllib.error, urllib.request
port = sys.argv[1]
for url in (f"http://localhost:{port}/a?b=1", f"http://127.0.0.1:{port}/", "https://elsewhere.example/"):
    try:
        print(urllib.request.urlopen(url, timeout=300).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except urllib.error.URLError as error:
        print(error.reason)
line = http.client.HTTPConnection("127.0.0.1", 3128, timeout=300)
line.set_tunnel("localhost", int(port))
line.request("GET", "/through")
print(line.getresponse().read().decode())
for place in (("127.0.0.1", int(port)), ("elsewhere.example", 443)):
    try:
        socket.create_connection(place, timeout=300)
    except OSError as error:
        print(type(error).__name__)
"""


async def test_a_call_reaches_the_host_it_was_granted_and_no_other(
    machine: MachineCapabilities, tmp_path: Path, service: int
) -> None:
    if machine.bubblewrap is None:
        pytest.skip("bubblewrap is missing or does not work here")
    egress = EgressProxy([f"localhost:{service}"])
    async with ForkServerPool(machine, tmp_path / "run") as warm:
        run = await warm.run_program(SandboxedProgram(code=TRIES), [str(service)], egress=egress)
    assert run.stdout.splitlines() == [
        f"/a?b=1 of localhost:{service}",
        f"403 127.0.0.1:{service} was not granted to this command line.",
        "Tunnel connection failed: 403 Host Not Granted",
        f"/through of localhost:{service}",
        "ConnectionRefusedError",  # the loopback is the call's own
        "gaierror",  # and there is nobody to ask for a name
    ]
    assert egress.refused == [f"127.0.0.1:{service}", "elsewhere.example:443"]


@pytest.mark.parametrize(
    ("granted", "wanted", "is_covered"),
    [
        ("example.org", "example.org:443", True),
        ("example.org", "example.org:80", True),
        ("example.org", "example.org:22", False),
        ("example.org:22", "example.org:22", True),
        ("example.org:22", "example.org:443", False),
        ("example.org", "EXAMPLE.org.:443", True),
        ("example.org", "notexample.org:443", False),
        ("example.org", "sub.example.org:443", False),
        ("*.example.org", "a.b.example.org:443", True),
        ("*.example.org", "example.org:443", False),
        ("10.0.0.1", "10.0.0.1:443", True),
        ("*.0.0.1", "10.0.0.1:443", False),
        ("[::1]:8080", "[::1]:8080", True),
        ("example.org:99999", "example.org:443", False),
    ],
)
def test_a_grant_is_a_name_an_ending_and_perhaps_a_port(granted: str, wanted: str, is_covered: bool) -> None:
    assert (
        is_target_granted(parse_request_target(f"CONNECT {wanted} HTTP/1.1\r\n\r\n".encode()), [granted]) is is_covered
    )


def test_a_request_goes_to_its_address_whatever_its_fields_say() -> None:
    head = b"GET http://User@One.example:8080/x?y HTTP/1.1\r\nHost: two.example\r\nProxy-Connection: x\r\nA: b\r\n\r\n"
    first = b"GET /x?y HTTP/1.1\r\nHost: One.example:8080\r\nConnection: close\r\nA: b\r\n\r\n"
    assert parse_request_target(head) == EgressTarget(host="one.example", port=8080, first=first)


@given(st.binary(max_size=200) | st.text(max_size=60).map(lambda text: f"GET {text} HTTP/1.1\r\n\r\n".encode()))
def test_what_is_no_request_is_no_target(head: bytes) -> None:
    try:
        target = parse_request_target(head)
    except ValueError:
        return
    assert target.host
    assert not is_target_granted(target, ["example.org"]) or target.host == "example.org"
