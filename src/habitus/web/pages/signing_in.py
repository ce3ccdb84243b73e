"""Signing in, by a one-time link or at a provider of OpenID Connect, and signing out."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from habitus.access import Access
from habitus.app.operating.identity_provider import (
    ATTEMPT_SECONDS,
    CALLBACK_PATH,
    IdentityProvider,
    ProviderUnavailable,
)
from habitus.app.operating.people import UserAccount
from habitus.errors import NotFound, Refused
from habitus.web.rendering import render_standalone_problem_page
from habitus.web.routing import AccessRouter
from habitus.web.security import SESSION_SECONDS, SIGN_IN_PATH, SignInService, read_habitus_cookies

router = AccessRouter()
_ATTEMPT_COOKIE = "habitus_oidc"


@router.get("/enter", access=Access.PUBLIC)
def sign_in(request: Request, key: str = "") -> Response:
    """Exchange a one-time link for a session cookie."""
    # Login CSRF: another site must not sign a person in under a different account.
    if request.state.csrf and request.headers.get("sec-fetch-site") == "cross-site":
        hint = "To sign in as another user, paste the link into the address bar."
        return render_standalone_problem_page(HTTPStatus.FORBIDDEN, "You are signed in already.", hint)
    keys: SignInService = request.app.state.keys
    cookie = keys.exchange_sign_in_key_for_cookie(key)
    if cookie is None:
        hint = "A link works once. Restart 'habitus up' for a new one; existing sign-ins stay valid."
        return render_standalone_problem_page(HTTPStatus.FORBIDDEN, "This link was used already.", hint)
    return _redirect_with_session_cookie(request, "/", cookie)


@router.get(SIGN_IN_PATH, access=Access.PUBLIC)
def begin_provider_sign_in(request: Request, path: str = "/") -> Response:
    """Send the browser to the provider; it comes back to `path`."""
    # A path of this server alone: browsers read '//host' and '/\\host' as another one.
    is_own = path.startswith("/") and not path.startswith(("//", "/\\"))
    attempt = _require_provider(request).begin_sign_in(path if is_own else "/")
    answer = RedirectResponse(attempt.url, status_code=HTTPStatus.SEE_OTHER)
    is_secure = _is_served_by_https(request)
    answer.set_cookie(
        _ATTEMPT_COOKIE,
        attempt.sealed,
        max_age=ATTEMPT_SECONDS,
        path=CALLBACK_PATH,
        secure=is_secure,
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get(CALLBACK_PATH, access=Access.PUBLIC)
def finish_provider_sign_in(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
    """Exchange the provider's code for a session cookie."""
    if error:
        raise Refused(f"The provider did not sign you in: {error[:80]}.", hint="Sign in again.")
    keys: SignInService = request.app.state.keys
    sealed = request.cookies.get(_ATTEMPT_COOKIE, "")
    found, path = _require_provider(request).finish_sign_in(sealed, code, state)
    answer = _redirect_with_session_cookie(
        request, path, keys.make_session_cookie_for_person(keys.people.admit_account_from_provider(found))
    )
    answer.delete_cookie(_ATTEMPT_COOKIE, path=CALLBACK_PATH)
    return answer


@router.post("/sign-out", access=Access.VIEWER)
def sign_out(request: Request) -> Response:
    """End the session on all replicas; an account of the provider is signed out there as well."""
    keys: SignInService = request.app.state.keys
    # Replicas name their cookies differently, and each accepts those of the others.
    ended = [name for name, cookie in read_habitus_cookies(request.headers).items() if keys.end_session(cookie)]
    answer = Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": _build_sign_out_target(request)})
    for name in ended:
        answer.delete_cookie(name)
    return answer


def _build_sign_out_target(request: Request) -> str:
    """Return the address that ends the person's session at the provider; this server's if there is none."""
    keys: SignInService = request.app.state.keys
    person: UserAccount | None = request.state.person
    if person is not None and person.subject and (provider := keys.people.provider) is not None:
        with suppress(ProviderUnavailable):
            return provider.build_sign_out_url(person.provider_tokens)
    return "/"


def _require_provider(request: Request) -> IdentityProvider:
    keys: SignInService = request.app.state.keys
    if keys.people.provider is None:
        raise NotFound("No provider is set.", hint="Sign in with the link that you were given.")
    return keys.people.provider


def _redirect_with_session_cookie(request: Request, path: str, cookie: str) -> Response:
    keys: SignInService = request.app.state.keys
    answer = RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)
    # Lax, not strict: following a link from a mail should find the person signed in.
    answer.set_cookie(
        keys.cookie, cookie, max_age=SESSION_SECONDS, secure=_is_served_by_https(request), httponly=True, samesite="lax"
    )
    return answer


def _is_served_by_https(request: Request) -> bool:
    """Return whether people reach this server by https; a proxy that ends it speaks plain HTTP to us."""
    # Browsers take such a cookie from a loopback address as well, where the owner of a replica signs in.
    address: str = request.app.state.desks.owner_home.settings.web.address
    return address.startswith("https:")
