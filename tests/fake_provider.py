"""A provider on loopback that gives the answers of a test and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    then: str = ""  # after the body: "hang", "drop" (break the connection), or "" to end well


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: Any


def sse(*events: object, done: bool = False) -> Reply:
    """Events as OpenAI and Google write them; a pair is a named event, as Anthropic writes it."""
    lines = []
    for event in events:
        if isinstance(event, tuple):
            lines.append(f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n")
        else:
            lines.append(f"data: {json.dumps(event)}\n\n")
    if done:
        lines.append("data: [DONE]\n\n")
    return Reply(headers={"Content-Type": "text/event-stream"}, body="".join(lines).encode())


def fails(status: int, body: object, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers={"Content-Type": "application/json", **named}, body=json.dumps(body).encode())


class FakeProvider:
    """Gives its replies in order, the last one again and again."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.address = f"http://127.0.0.1:{server.server_port}"
        self.replies: list[Reply] = []
        self.models: list[str] = []
        self.requests: list[Request] = []
        self.was_left = threading.Event()  # the other side went away in the middle of an answer

    def gives(self, *replies: Reply) -> None:
        self.replies = list(replies)

    @property
    def asked(self) -> Any:
        """The body of the only request."""
        (request,) = self.requests
        return request.body

    def next(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    provider = _Handler.providers[server.server_port] = FakeProvider(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.was_left.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    providers: dict[int, FakeProvider] = {}  # noqa: RUF012  # by port: a handler knows only its server

    def do_GET(self) -> None:
        listing = json.dumps({"data": [{"id": name} for name in self.provider.models]}).encode()
        self._send(Reply(headers={"Content-Type": "application/json"}, body=listing))

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.provider.requests.append(Request(path=self.path, headers=headers, body=json.loads(sent)))
        self._send(self.provider.next())

    @property
    def provider(self) -> FakeProvider:
        assert isinstance(self.server, ThreadingHTTPServer)
        return self.providers[self.server.server_port]

    def _send(self, reply: Reply) -> None:
        self.close_connection = True
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        length = len(reply.body) + (1 if reply.then else 0)  # one byte that never comes
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()
        if reply.then == "hang" and not self.connection.recv(1):
            self.provider.was_left.set()

    def log_message(self, format: str, *args: object) -> None:
        pass
