"""A service on this machine for the example skill `ticket-desk`: it keeps tickets for whoever knows its token.

TICKET_TOKEN=… python examples/services/tickets.py 8765
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Desk(ThreadingHTTPServer):
    def __init__(self, port: int, token: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = token
        self.tickets: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Desk

    def do_GET(self) -> None:
        self._answer(self.server.tickets)

    def do_POST(self) -> None:
        ticket = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self._is_known():
            self.server.tickets.append(ticket)
        self._answer({"number": len(self.server.tickets)})

    def _is_known(self) -> bool:
        return self.headers["Authorization"] == f"Bearer {self.server.token}"

    def _answer(self, value: object) -> None:
        body = json.dumps(value if self._is_known() else "wrong token").encode()
        self.send_response(200 if self._is_known() else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: whoever watches looks at the tickets."""


if __name__ == "__main__":
    with Desk(int(sys.argv[1]), os.environ["TICKET_TOKEN"]) as desk:
        print(f"Tickets on http://localhost:{desk.server_port}")
        desk.serve_forever()
