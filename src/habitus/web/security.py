"""Security in front of the application: identity, origin, body size, and response headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus import operating_system, tracing
from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.app.home import DATABASE_AWAY, Home
from habitus.app.operating.people import UserAccount, UserAccountStore, UserRole, open_user_accounts
from habitus.errors import DatabaseUnavailable, Refused, StorageFailed
from habitus.web.problems import make_refusal_app
from habitus.web.routing import SAFE_METHODS, RouteAccessRule

KEY_FILE = "web.key"
SIGN_IN_PATH = "/oidc/sign-in"
COOKIE_PREFIX = "habitus-"
# Seconds that a sign-in lasts.
SESSION_SECONDS = 30 * 24 * 3600
# Seconds that an unused sign-in link of the owner lasts.
LINK_SECONDS = 24 * 3600

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestIdentity:
    """The sender of a request and their access; `person` is None for the owner, who is not in the list of users."""

    person: UserAccount | None
    access: Access


OWNER_IDENTITY = RequestIdentity(person=None, access=Access.OWNER)
# Somebody who isn't signed in looks as a viewer with a name that no account can have, so nothing they see is anyone's.
ANONYMOUS_PERSON = UserAccount(name="(not signed in)", role=UserRole.VIEWER)


def _build_identity_of_person(person: UserAccount | None) -> RequestIdentity | None:
    """Return the identity of a person with the access of their role, or None."""
    return None if person is None else RequestIdentity(person=person, access=person.role.access)


class SignInService:
    """Signs people in: the owner with a key stored in this home, other users with the key that all hosts share."""

    def __init__(
        self,
        key: bytes,
        people: UserAccountStore,
        clock: Callable[[], float] = time.time,
        *,
        used: Path | None = None,
    ) -> None:
        """`used` is a folder for the owner's used links and ended sessions; all processes of this home share it."""
        self._own = key
        self._shared = b""
        self.people = people
        self._clock = clock
        self._used = used
        self._used_here: dict[str, object] = {}
        # Named after the key, because one browser may be signed in to several homes.
        self.cookie = f"{COOKIE_PREFIX}{_sign_text(key, 'name')[:8]}"
        self.owner_token = _sign_text(key, "bearer")
        self.metrics_token = _sign_text(key, "metrics")

    def switch_to_account_store(self, people: UserAccountStore) -> None:
        """Use the users of another database and its signing key from now on."""
        self.people, self._shared = people, b""

    def create_owner_sign_in_key(self) -> str:
        """Return a key for a sign-in link of the owner, which works once, in any process of this home."""
        told = f"{int(self._clock()) + LINK_SECONDS}.{secrets.token_hex(12)}"
        return f"{told}.{_sign_text(self._own, f'link {told}')}"

    def exchange_sign_in_key_for_cookie(self, link: str) -> str | None:
        """Return the session cookie for an unused sign-in key, else None."""
        if self._use_up_owner_link_if_valid(link):
            return self._make_session_cookie(self._own)
        now = datetime.fromtimestamp(self._clock(), UTC)
        person = self.people.redeem_sign_in_link(link) or self.people.redeem_first_admin_link(link, now)
        return None if person is None else self.make_session_cookie_for_person(person)

    def make_session_cookie_for_person(self, person: UserAccount) -> str:
        """Return the session cookie of a person who has just proved who they are."""
        return self._make_session_cookie(self._get_shared_signing_key(), person.key, person.name)

    def _make_session_cookie(self, signing_key: bytes, key: str = "", name: str = "") -> str:
        told = f"{int(self._clock()) + SESSION_SECONDS}.{secrets.token_hex(8)}.{key}.{name}"
        return f"{told}.{_sign_text(signing_key, told)}"

    def _use_up_owner_link_if_valid(self, link: str) -> bool:
        """Return whether this is an unused link of the owner, which is then used."""
        told, _, signature = link.rpartition(".")
        until = told.partition(".")[0]
        if not until.isdecimal() or len(until) > 15 or int(until) <= self._clock():
            return False
        if not _has_valid_signature(self._own, f"link {told}", signature):
            return False
        return self._mark_link_or_session_as_used(told)

    def _mark_link_or_session_as_used(self, told: str) -> bool:
        """Mark a link or a session of the owner as used; False if it is already."""
        try:
            if self._used is not None:
                self._used.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Of two simultaneous requests, whichever process has them, only one makes the file.
                (self._used / told).touch(exist_ok=False)
                return True
        except FileExistsError:
            return False
        # The home is read-only.
        except OSError:
            pass
        mine = object()
        return self._used_here.setdefault(told, mine) is mine

    def _is_link_or_session_used(self, told: str) -> bool:
        return told in self._used_here or (self._used is not None and (self._used / told).exists())

    def end_session(self, cookie: str) -> bool:
        """End the session of a cookie in all processes and replicas; False if the cookie is no valid session."""
        if (asker := self.identify_by_cookie(cookie)) is None:
            return False
        told = cookie.rpartition(".")[0]
        if asker.person is None:
            self._mark_link_or_session_as_used(told)
        else:
            until, now = (datetime.fromtimestamp(at, UTC) for at in (int(told.partition(".")[0]), self._clock()))
            self.people.end_session(asker.person, told, until, now)
        return True

    def identify_by_cookie(self, cookie: str) -> RequestIdentity | None:
        """Return the identity behind a session cookie, or None if it is invalid, expired or the user was removed."""
        told, _, signature = cookie.rpartition(".")
        until, _, rest = told.partition(".")
        # A longer number is no time, and Python refuses to convert one of thousands of digits.
        if not until.isdecimal() or len(until) > 15 or int(until) <= self._clock():
            return None
        is_own = _has_valid_signature(self._own, told, signature)
        # A cookie with fewer parts gets an empty key, which matches no user.
        _, key, name = rest.split(".", 2) if rest.count(".") > 1 else ("", "", rest)
        if not name:
            return OWNER_IDENTITY if is_own and not self._is_link_or_session_used(told) else None
        if not is_own and not _has_valid_signature(self._get_shared_signing_key(), told, signature):
            return None
        person = self.people.find_account_by_name(name)
        if person is None or not hmac.compare_digest(person.key, key) or self.people.is_session_ended(told):
            return None
        return _build_identity_of_person(self.people.confirm_account_with_provider(person))

    def identify_by_proxy_name(self, name: str) -> RequestIdentity:
        """Return the identity of a user whom a proxy has signed in; raise `Refused` for an unknown one."""
        if (person := self.people.find_account_by_name(name)) is None or (
            person := self.people.confirm_account_with_provider(person)
        ) is None:
            self.refuse_if_accounts_are_outdated()
            raise Refused(f"'{name}' can't sign in here.", hint="Ask an admin for 'habitus users add'.")
        return RequestIdentity(person=person, access=person.role.access)

    def refuse_if_accounts_are_outdated(self) -> None:
        """Raise `DatabaseUnavailable` if an unknown sender may have an account that is not known here yet."""
        if self.people.may_be_outdated:
            raise DatabaseUnavailable(
                f"{DATABASE_AWAY} Whether you are signed in is known again when it is back.", hint="Retry then."
            )

    def identify_by_token(self, token: str) -> RequestIdentity | None:
        """Return the identity behind a bearer token, or None."""
        if hmac.compare_digest(token.encode("utf-8", "replace"), self.owner_token.encode()):
            return OWNER_IDENTITY
        return _build_identity_of_person(self.people.find_account_by_token(token))

    def record_last_seen(self, asker: RequestIdentity | None) -> None:
        """Record when a user was last seen."""
        if asker is not None and asker.person is not None:
            self.people.record_activity(asker.person, datetime.fromtimestamp(self._clock(), UTC))

    def make_csrf_token(self, cookie: str) -> str:
        """Return the CSRF token that belongs to this cookie, masked anew each time.

        Pages are compressed: an attacker who can measure responses could guess a token that stays the same (BREACH).
        """
        key = self._own
        # Without the database nothing can be changed, and the owner may still read.
        with suppress(DatabaseUnavailable):
            key = self._get_shared_signing_key()
        token = bytes.fromhex(_sign_text(key, f"csrf {cookie}"))
        mask = secrets.token_bytes(len(token))
        return (mask + _xor_bytes(mask, token)).hex()

    def _get_shared_signing_key(self) -> bytes:
        self._shared = self._shared or self.people.get_or_create_signing_key()
        return self._shared or self._own


def _sign_text(key: bytes, text: str) -> str:
    """Return an HMAC signature of a text."""
    return hmac.new(key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:40]


def _xor_bytes(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _unmask_csrf_token(masked: str) -> bytes:
    """Return a CSRF token without its mask, or nothing if it is none."""
    with suppress(ValueError):
        given = bytes.fromhex(masked)
        if len(given) % 2 == 0:
            return _xor_bytes(given[: len(given) // 2], given[len(given) // 2 :])
    return b""


def _has_valid_signature(key: bytes, text: str, signature: str) -> bool:
    return hmac.compare_digest(signature.encode("utf-8", "replace"), _sign_text(key, text).encode())


def load_sign_in_service(home: Home) -> SignInService:
    """Load or create the home's keys; if the home is read-only, the owner's key lasts as long as the process."""
    file, people = home.settings.home / KEY_FILE, open_user_accounts(home)
    # A provider that isn't configured completely should stop the server when it starts.
    people.provider  # noqa: B018
    with suppress(OSError):
        # O_EXCL: of two servers starting at once, both use the key of the first. Only the owner may read it.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o600)
        with os.fdopen(descriptor, "wb") as made:
            made.write(secrets.token_bytes(32))
    with suppress(OSError):
        if len(key := file.read_bytes()) >= 32:
            return SignInService(key, people, used=home.settings.home / "cache" / "used-links")
    return SignInService(secrets.token_bytes(32), people)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInProxy:
    """A reverse proxy that signs people in and names them in a header; only its addresses may send that header."""

    header: str = ""
    addresses: tuple[str, ...] = ()

    def get_signed_in_name(self, scope: Scope, headers: Headers) -> str:
        """Return the name in the proxy's header, or nothing; raise `Refused` if anybody else sends it."""
        said = headers.getlist(self.header) if self.header else []
        if not said:
            return ""
        if len(said) > 1 or not self._is_trusted_proxy_address((scope.get("client") or ("", 0))[0]):
            raise Refused(
                f"{self.header} may only be sent by the proxy.",
                hint="Remove the header, or add the proxy to web.proxies.",
            )
        return said[0]

    def _is_trusted_proxy_address(self, address: str) -> bool:
        with suppress(ValueError):
            from_where = ipaddress.ip_address(address)
            return any(from_where in ipaddress.ip_network(known) for known in self.addresses)
        return False


class SecurityMiddleware:
    """Middleware that refuses foreign hosts and origins, forged forms, large bodies and insufficient access.

    `find_rule` returns the rule of the route that would answer; people open `address`.
    """

    def __init__(
        self,
        app: ASGIApp,
        find_rule: Callable[[Scope], RouteAccessRule | None],
        keys: SignInService,
        hosts: Collection[str],
        proxy: SignInProxy,
        *,
        address: str,
        open_reading: bool = False,
    ) -> None:
        self._address = address
        self._strangers = Access.OPEN_READING if open_reading else Access.PUBLIC
        self._app = app
        self._rules = find_rule
        self._keys = keys
        self._hosts = frozenset(hosts)
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            asker, csrf = await run_in_thread(lambda: self._identify_sender_and_record_last_seen(scope, headers))
        except (StorageFailed, Refused) as error:
            status = HTTPStatus.FORBIDDEN if isinstance(error, Refused) else HTTPStatus.SERVICE_UNAVAILABLE
            await make_refusal_app(scope["path"], status, error.message, error.hint)(
                scope, receive, _wrap_send_to_add_security_headers(send)
            )
            return
        if asker is None:
            # A wrong token must be reported, not silently downgraded to open reading.
            level = Access.PUBLIC if "authorization" in headers else self._strangers
            asker = RequestIdentity(person=ANONYMOUS_PERSON, access=level)
        scope.setdefault("state", {}).update(
            csrf=csrf,
            access=asker.access,
            person=asker.person,
            has_session_cookie=bool(read_habitus_cookies(headers)),
        )
        # An address that no route has is for those who are signed in to find out.
        rule = self._rules(scope) or RouteAccessRule(access=Access.VIEWER)
        body = _SizeLimitedRequestBody(receive, rule.max_bytes)
        answer = self._find_refusal(
            scope, headers, asker, csrf, rule.access
        ) or body.build_refusal_if_declared_too_large(scope, headers)
        # Not the path, which names skills and people.
        with tracing.trace_span("request", method=scope["method"]):
            await (answer or self._app)(scope, body, _wrap_send_to_add_security_headers(send))

    def _identify_sender_and_record_last_seen(
        self, scope: Scope, headers: Headers
    ) -> tuple[RequestIdentity | None, str]:
        """Identify the sender and record that they were seen."""
        asker, csrf = self._get_sender_identity_and_csrf_token(scope, headers)
        has_credentials = "authorization" in headers or bool(read_habitus_cookies(headers))
        if asker is None and has_credentials:
            self._keys.refuse_if_accounts_are_outdated()
        self._keys.record_last_seen(asker)
        return asker, csrf

    def _get_sender_identity_and_csrf_token(self, scope: Scope, headers: Headers) -> tuple[RequestIdentity | None, str]:
        """Return the sender's identity and their CSRF token; a program with a bearer token needs none."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._keys.identify_by_token(token), ""
        if name := self._proxy.get_signed_in_name(scope, headers):
            return self._keys.identify_by_proxy_name(name), self._keys.make_csrf_token(name)
        for cookie in read_habitus_cookies(headers).values():
            if (asker := self._keys.identify_by_cookie(cookie)) is not None:
                return asker, self._keys.make_csrf_token(cookie)
        return None, ""

    def _find_refusal(
        self, scope: Scope, headers: Headers, asker: RequestIdentity, csrf: str, required_access: Access
    ) -> ASGIApp | None:
        """Return a refusal if host, origin, CSRF token or access don't allow the request, else None."""
        method, path = scope["method"], scope["path"]
        # Checking the host stops DNS rebinding, where a foreign name resolves to this server.
        if headers.get("host", "") not in self._hosts:
            hint = f"Open {self._address}; a proxy passes on the header Host unchanged."
            return make_refusal_app(
                path, HTTPStatus.MISDIRECTED_REQUEST, "This server doesn't answer to that host name.", hint
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        # Browsers send Origin or Sec-Fetch-Site on cross-site requests; programs send neither.
        is_foreign = origin is not None and origin.partition("://")[2] not in self._hosts
        if is_foreign or (method not in SAFE_METHODS and site not in ("none", "same-origin")):
            return make_refusal_app(
                path, HTTPStatus.FORBIDDEN, "Request from another site refused.", "Do it on this page."
            )
        if asker.access < Access.VIEWER:
            if asker.access >= required_access:
                return None
            what = "Unknown token." if "authorization" in headers else "Sign in first."
            return _make_sign_in_refusal(path, what, has_provider=self._keys.people.provider is not None)
        given = _unmask_csrf_token(headers.get("x-csrf", "")) if csrf else b""
        if method not in SAFE_METHODS and not hmac.compare_digest(given, _unmask_csrf_token(csrf)):
            return make_refusal_app(path, HTTPStatus.FORBIDDEN, "The form has expired.", "Reload the page.")
        if asker.access < required_access:
            who = "the owner" if required_access is Access.OWNER else "an admin"
            hint = f"Your role is {asker.access.name.lower()}; ask {who}."
            return make_refusal_app(path, HTTPStatus.FORBIDDEN, "You may not change this.", hint)
        return None


def _make_sign_in_refusal(path: str, what: str, *, has_provider: bool) -> ASGIApp:
    """Return a refusal that asks to sign in."""
    headers = {"WWW-Authenticate": "Bearer"}
    program_hint = "a program sends the token as 'Authorization: Bearer TOKEN'."
    if has_provider:
        url = f"{SIGN_IN_PATH}?{urlencode({'path': path})}"
        return make_refusal_app(path, HTTPStatus.UNAUTHORIZED, what, f"In a browser; {program_hint}", headers, url)
    hint = f"Open the link that 'habitus up' printed; {program_hint}"
    return make_refusal_app(path, HTTPStatus.UNAUTHORIZED, what, hint, headers)


def read_habitus_cookies(headers: Headers) -> dict[str, str]:
    """Return all Habitus cookies by name, whichever host or replica behind this address set them."""
    try:
        found = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: one.value for name, one in found.items() if name.startswith(COOKIE_PREFIX)}


class _SizeLimitedRequestBody:
    """A request body that ends the connection when it exceeds its limit."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0

    def build_refusal_if_declared_too_large(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """Return a refusal if the declared length exceeds the limit, else None."""
        told = headers.get("content-length", "")
        is_too_large = told.isdecimal() and (len(told) > 15 or int(told) > self._most)
        return self._make_size_refusal(scope["path"]) if is_too_large else None

    def _make_size_refusal(self, path: str) -> ASGIApp:
        hint = f"At most {self._most // 1024 // 1024} MB may be sent."
        return make_refusal_app(
            path, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large.", hint, {"Connection": "close"}
        )

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        # A sender that hides the length is treated as one that has gone.
        return message if self._read <= self._most else {"type": "http.disconnect"}


def _wrap_send_to_add_security_headers(send: Send) -> Send:
    """Wrap `send` to add the security headers to each response."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return add
