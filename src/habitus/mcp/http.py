"""The MCP server over HTTP: requires a token, applies each person's access, and refuses pages of other sites."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from habitus.errors import Invalid, UserError
from habitus.mcp.server import LazyHome, make_mcp_server
from habitus.mcp.server_options import McpServerOptions

HOST, MCP_PATH = "127.0.0.1", "/mcp"
LIVENESS_PATH, READINESS_PATH = "/healthz", "/readyz"


async def serve_mcp_http(scope: McpServerOptions, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` receives the address and the token."""
    # Imported only to serve HTTP.
    import uvicorn

    token, behind = secrets.token_urlsafe(24), await LazyHome(scope).refuse_unknown_layers()
    with open_listening_socket(HOST, port) as door:
        port = door.getsockname()[1]
        announce(f"Habitus listens on http://{HOST}:{port}{MCP_PATH}")
        announce(f"Send this header with every request: Authorization: Bearer {token}")
        hosts = [f"{name}:{port}" for name in (HOST, "localhost")]
        app = HealthMiddleware(make_guarded_app(behind, hosts, scope, token), behind)
        config = uvicorn.Config(app, log_level="warning", lifespan="on")
        try:
            await uvicorn.Server(config).serve(sockets=[door])
        finally:
            await behind.close()


def make_guarded_app(
    lazy_home: LazyHome, hosts: Sequence[str], scope: McpServerOptions, token: str, *, is_stateless: bool = False
) -> ASGIApp:
    """Return the SDK's application, which checks Host and Origin, behind the token check; `token` is the owner's.

    If `is_stateless`, each request may reach another process, and a person's calls to one process are a conversation.
    """
    origins = [f"{kind}://{host}" for kind in ("http", "https") for host in hosts]
    security = TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=origins)
    app = make_mcp_server(lazy_home).streamable_http_app(
        # A session outlives an idle turn, so a client that pauses keeps its conversation.
        streamable_http_path=MCP_PATH,
        transport_security=security,
        session_idle_timeout=None if is_stateless else scope.turn_idle_s * 2,
        stateless_http=is_stateless,
    )
    return TokenAndSessionEndMiddleware(app, token, lazy_home)


class TokenAndSessionEndMiddleware:
    """Middleware that requires a token and notices when a client ends its session."""

    def __init__(self, app: ASGIApp, token: str, lazy_home: LazyHome) -> None:
        self._app = app
        self._own = token.encode()
        self._behind = lazy_home

    async def __call__(self, asgi_scope: Asked, receive: Receive, send: Send) -> None:
        if asgi_scope["type"] != "http":
            await self._app(asgi_scope, receive, send)
            return
        headers = Headers(scope=asgi_scope)
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.encode("utf-8", "replace")
        # Compared in constant time, so the token can't be guessed byte by byte.
        is_own = secrets.compare_digest(given, self._own)
        try:
            person = None if is_own or not token else await self._behind.find_person_by_token(token)
        except UserError as error:
            await PlainTextResponse(f"{error.message} {error.hint}\n", status_code=503)(asgi_scope, receive, send)
            return
        if kind.lower() != "bearer" or (person is None and not is_own):
            said = "Send the token that Habitus printed as 'Authorization: Bearer TOKEN'.\n"
            refused = PlainTextResponse(said, status_code=401, headers={"WWW-Authenticate": "Bearer"})
            await refused(asgi_scope, receive, send)
            return
        asgi_scope.setdefault("state", {})["person"] = person
        # The SDK uses this to let only the client that began a session continue it.
        name = "" if person is None else person.name
        asgi_scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
        if asgi_scope["method"] == "DELETE" and (client := headers.get("mcp-session-id")):
            await self._behind.disconnect_client(person, client)
        await self._app(asgi_scope, receive, send)


class HealthMiddleware:
    """Middleware that answers liveness and readiness probes without a token."""

    def __init__(self, app: ASGIApp, lazy_home: LazyHome) -> None:
        self._app = app
        self._behind = lazy_home

    async def __call__(self, asgi_scope: Asked, receive: Receive, send: Send) -> None:
        path = asgi_scope["path"] if asgi_scope["type"] == "http" and asgi_scope["method"] in ("GET", "HEAD") else ""
        if path == LIVENESS_PATH:
            await JSONResponse({"status": "ok"})(asgi_scope, receive, send)
        elif path == READINESS_PATH:
            found = await self._behind.check_readiness()
            told = {"status": found.state, "reasons": found.reasons}
            await JSONResponse(told, status_code=200 if found.can_serve else 503)(asgi_scope, receive, send)
        else:
            await self._app(asgi_scope, receive, send)


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, so the address works as soon as it is printed; raise `Invalid` if the
    port is taken.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        # uvicorn's own default backlog.
        made.listen(2048)
    except OSError as error:
        made.close()
        raise Invalid(f"Can't listen on {host}:{port}: {error.strerror}.", hint="Choose another --port.") from None
    return made
