"""Turns errors into responses: problem+json for programs, a page or a notice for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.app.operating.identity_provider import ProviderUnavailable
from habitus.errors import DatabaseUnavailable, Invalid, NotFound, Refused, Stale, StorageFailed, ToolFailed, UserError
from habitus.web import site_map
from habitus.web.api.wording import API_ROOT, replace_commands_by_routes
from habitus.web.rendering import is_htmx_request, make_error_notice, render_page, render_standalone_problem_page

log = logging.getLogger(__name__)

API_PREFIX = "/api/"
# The first class that fits says which status an error has.
ERROR_STATUS: Mapping[type[Exception], HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    Stale: HTTPStatus.PRECONDITION_FAILED,
    Refused: HTTPStatus.CONFLICT,
    StorageFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    ProviderUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    UserError: HTTPStatus.BAD_REQUEST,
    ToolFailed: HTTPStatus.UNPROCESSABLE_ENTITY,
}


class PreconditionRequired(UserError):
    """The change doesn't say which version it is based on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemDetails:
    """An error response by RFC 9457; `detail` is the hint."""

    title: str
    status: int
    type: str = "about:blank"
    detail: str = ""


_SCHEMA_HINT = f"GET {API_ROOT}/openapi.json has the fields of every request, with their types and limits."
_PROBLEM_MEDIA_TYPE = "application/problem+json"
# How the description of REST says that any request may be answered with one.
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "The error and a hint.",
        "content": {_PROBLEM_MEDIA_TYPE: {"schema": TypeAdapter(ProblemDetails).json_schema()}},
    }
}


def make_problem_response(
    status: HTTPStatus, message: str, hint: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as problem+json."""
    # Without a hint of its own, an invalid request is best compared with its schema.
    detail = replace_commands_by_routes(hint) or (_SCHEMA_HINT if status is HTTPStatus.UNPROCESSABLE_ENTITY else "")
    title = replace_commands_by_routes(message)
    told = json.dumps(asdict(ProblemDetails(title=title, status=status.value, detail=detail)))
    return Response(told, status_code=status, media_type=_PROBLEM_MEDIA_TYPE, headers=dict(headers or {}))


def make_refusal_app(
    path: str,
    status: HTTPStatus,
    message: str,
    hint: str,
    headers: Mapping[str, str] | None = None,
    sign_in_url: str = "",
) -> ASGIApp:
    """Return an application that answers with an error: problem+json, a notice on an open page, or a
    page of its own.
    """
    if path.startswith(API_PREFIX):
        return make_problem_response(status, message, hint, headers)

    async def say(scope: Scope, receive: Receive, send: Send) -> None:
        is_open = is_htmx_request(Request(scope))
        answer = (
            make_error_notice(message, hint, status)
            if is_open
            else render_standalone_problem_page(status, message, hint, sign_in_url)
        )
        answer.headers.update(headers or {})
        await answer(scope, receive, send)

    return say


def register_error_handlers(app: FastAPI) -> None:
    """Register a handler for every error that can reach the application."""

    async def answer(request: Request, status: HTTPStatus, what: str, hint: str) -> Response:
        if request.url.path.startswith(API_PREFIX):
            return make_problem_response(status, what, hint)
        told = site_map.replace_commands_by_pages(hint)
        if is_htmx_request(request):
            return make_error_notice(site_map.replace_commands_by_pages(what), told, status)
        # The full page needs the home, which may be what failed, or data the sender may not see.
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or request.state.access < Access.VIEWER:
            return render_standalone_problem_page(status, what, told)
        return await run_in_thread(
            lambda: _render_problem_page(request, status, site_map.replace_commands_by_pages(what), told)
        )

    async def of_user(request: Request, error: Exception) -> Response:
        assert isinstance(error, (UserError, ToolFailed))
        request.state.is_away = isinstance(error, DatabaseUnavailable)
        what, hint = (error.message, error.hint) if isinstance(error, UserError) else (str(error), "")
        return await answer(request, get_error_status(error), what, hint)

    async def of_values(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        # The first part says query, path or body, which a person doesn't need.
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return await answer(
            request, HTTPStatus.UNPROCESSABLE_ENTITY, f"'{where}': {first['msg'].removeprefix('Value error, ')}.", ""
        )

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        what = "Page not found." if status is HTTPStatus.NOT_FOUND else str(error.detail)
        return await answer(request, status, what, "")

    async def of_bug(request: Request, error: Exception) -> Response:
        log.error("A request failed: %s %s", request.method, request.url.path, exc_info=error)
        return await answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error.", "It has been logged.")

    app.add_exception_handler(UserError, of_user)
    app.add_exception_handler(ToolFailed, of_user)
    app.add_exception_handler(RequestValidationError, of_values)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_bug)


def _render_problem_page(request: Request, status: HTTPStatus, what: str, hint: str) -> Response:
    """Return an error page with the navigation and related pages."""
    advice = site_map.list_related_pages(request.url.path)
    try:
        return render_page(request, "problem.html", status=status, what=what, hint=hint, advice=advice)
    # The home can't be read either, so the page has to do without it.
    except UserError:
        return render_standalone_problem_page(status, what, hint)


def get_error_status(error: Exception) -> HTTPStatus:
    """Return the HTTP status of an error."""
    if isinstance(error, PreconditionRequired):
        return HTTPStatus.PRECONDITION_REQUIRED
    return next(status for kind, status in ERROR_STATUS.items() if isinstance(error, kind))
