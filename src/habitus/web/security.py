"""Security at the door: who may ask, from which site, how much may be sent, and what an answer may do in a browser."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus.web.problems import refusal

KEY_FILE = "web.key"
SIGNED_IN_FOR = 30 * 24 * 3600  # seconds
SMALL, LARGE = 2 * 1024 * 1024, 20 * 1024 * 1024  # bytes of a request, and of one that uploads
UPLOADS = ("/api/v1/uploads", "/new/")
# What people said to an agent is read by whoever is signed in, not by every account of the machine.
PRIVATE = ("/activity", "/api/v1/sessions", "/api/v1/turns")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Keys:
    """What signs people in: a key that only the home's owner can read, so that a restart signs nobody out."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock
        self._links: set[str] = set()
        self.cookie = f"habitus-{self._sign('name')[:8]}"  # one browser may know several homes
        self.bearer = self._sign("bearer")

    def new_link(self) -> str:
        """A word that lets one browser in, once."""
        link = secrets.token_urlsafe(24)
        self._links.add(link)
        return link

    def entered(self, link: str) -> str | None:
        """The cookie that a link gives, if it is one that nobody has used."""
        if link not in self._links:
            return None
        self._links.discard(link)
        told = f"{int(self._clock()) + SIGNED_IN_FOR}.{secrets.token_hex(8)}"
        return f"{told}.{self._sign(told)}"

    def is_signed_in(self, cookie: str) -> bool:
        told, _, signature = cookie.rpartition(".")
        until = told.partition(".")[0]
        is_ours = hmac.compare_digest(signature.encode(), self._sign(told).encode())
        return is_ours and until.isdecimal() and int(until) > self._clock()

    def csrf(self, cookie: str) -> str:
        """What only a page that we gave to this browser can say."""
        return self._sign(f"csrf {cookie}")

    def is_bearer(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.bearer.encode())

    def _sign(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:40]


def keys_of(home: Path) -> Keys:
    """The keys of a home; where it can't be written they last as long as the process."""
    file = home / KEY_FILE
    with suppress(OSError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as made:
            made.write(secrets.token_bytes(32))
    with suppress(OSError):
        if len(key := file.read_bytes()) >= 32:
            return Keys(key)
    return Keys(secrets.token_bytes(32))


class Guard:
    """Stands before the application: refuses other hosts and sites, strangers, forged forms and too large a body."""

    def __init__(self, app: ASGIApp, keys: Keys, hosts: Collection[str]) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookie = _cookie(headers, self._keys.cookie)
        is_known = self._keys.is_signed_in(cookie)
        scope.setdefault("state", {})["csrf"] = self._keys.csrf(cookie) if is_known else ""
        body = _Bounded(receive, LARGE if scope["path"].startswith(UPLOADS) else SMALL)
        answer = self._objection(scope, headers, cookie if is_known else "") or body.objection(scope, headers)
        await (answer or self._app)(scope, body, _adding(send))

    def _objection(self, scope: Scope, headers: Headers, cookie: str) -> ASGIApp | None:
        method, path = scope["method"], scope["path"]
        if headers.get("host", "") not in self._hosts:
            mend = f"Open http://{min(self._hosts)} itself."
            return refusal(path, HTTPStatus.MISDIRECTED_REQUEST, "This name does not lead here.", mend)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_foreign = origin is not None and origin not in {f"http://{host}" for host in self._hosts}
        if is_foreign or (method not in SAFE and site not in ("none", "same-origin")):
            return refusal(path, HTTPStatus.FORBIDDEN, "Another site asked for this.", "Do it on the page itself.")
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return None if self._keys.is_bearer(token) else _stranger(path, "This token is not known.")
        if method in SAFE and not path.startswith(PRIVATE):
            return None
        if not cookie:
            return _stranger(path, "You are not signed in.")
        given = headers.get("x-csrf", "").encode("utf-8", "replace")
        if method not in SAFE and not hmac.compare_digest(given, self._keys.csrf(cookie).encode()):
            return refusal(path, HTTPStatus.FORBIDDEN, "This form is not from this page.", "Reload the page.")
        return None


def _stranger(path: str, what: str) -> ASGIApp:
    mend = "Open the link that 'habitus up' printed; a program sends the token as 'Authorization: Bearer TOKEN'."
    return refusal(path, HTTPStatus.UNAUTHORIZED, what, mend, {"WWW-Authenticate": "Bearer"})


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


class _Bounded:
    """The body of a request, up to its limit: beyond it nothing is read."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0

    def objection(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        told = headers.get("content-length", "")
        return self._refused(scope["path"]) if told.isdecimal() and int(told) > self._most else None

    def _refused(self, path: str) -> ASGIApp:
        mend = f"At most {self._most // 1024 // 1024} MB may be sent."
        return refusal(path, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too large.", mend, {"Connection": "close"})

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        # A sender that hides the length is treated as one that has gone.
        return message if self._read <= self._most else {"type": "http.disconnect"}


def _adding(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return add
