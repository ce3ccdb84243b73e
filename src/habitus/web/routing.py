"""Registers every page and REST route with the access it requires and the largest body it accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from habitus.access import Access

# The largest body of an ordinary request, and of one that uploads files.
SMALL_BODY_BYTES, LARGE_BODY_BYTES = 2 * 1024 * 1024, 20 * 1024 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteAccessRule:
    """The access that a route requires and the largest body it accepts; checked before the body is read."""

    access: Access
    max_bytes: int = SMALL_BODY_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class _RouteRegistration:
    path: str
    build_endpoint: Callable[[], Callable[..., Any]]
    rule: RouteAccessRule
    options: dict[str, Any]


class _DeferredApiRoute:
    """An ASGI application that builds FastAPI's route at its first request.

    Building all of them, and the models of what they take, is a fifth of what the start of a server costs.
    """

    def __init__(self, path: str, build_endpoint: Callable[[], Callable[..., Any]], options: dict[str, Any]) -> None:
        self._path, self._build_endpoint, self._options = path, build_endpoint, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Set as FastAPI does for a route that it matched itself.
        scope["route"] = self._route
        await self._route.app(scope, receive, send)

    @cached_property
    def _route(self) -> APIRoute:
        router = APIRouter()
        router.add_api_route(self._path, self._build_endpoint(), **self._options)
        (route,) = (one for one in router.routes if isinstance(one, APIRoute))
        return route


class AccessRouter:
    """Collects the routes of one module; `defaults` are FastAPI options that all of them share."""

    def __init__(self, **defaults: Any) -> None:
        self._defaults = defaults
        self._registered: list[_RouteRegistration] = []

    def get(self, path: str, *, access: Access, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.register_route("GET", path, access=access, **options)

    def post(
        self, path: str, *, access: Access, max_bytes: int = SMALL_BODY_BYTES, **options: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self.register_route("POST", path, access=access, max_bytes=max_bytes, **options)

    def put(self, path: str, *, access: Access, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.register_route("PUT", path, access=access, **options)

    def delete(self, path: str, *, access: Access, **options: Any) -> Callable[[Endpoint], Endpoint]:
        return self.register_route("DELETE", path, access=access, **options)

    def register_route(
        self, method: str, path: str, *, access: Access, max_bytes: int = SMALL_BODY_BYTES, **options: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """Register a function for requests with this method and path."""

        def register(endpoint: Endpoint) -> Endpoint:
            self.register_deferred_route(
                method, path, lambda: endpoint, access=access, max_bytes=max_bytes, name=endpoint.__name__, **options
            )
            return endpoint

        return register

    def register_deferred_route(
        self,
        method: str,
        path: str,
        build_endpoint: Callable[[], Callable[..., Any]],
        *,
        access: Access,
        max_bytes: int = SMALL_BODY_BYTES,
        **options: Any,
    ) -> None:
        """Register a function that is built at the first request with this method and path."""
        rule = RouteAccessRule(access=access, max_bytes=max_bytes)
        given = {**self._defaults, **options, "methods": [method]}
        self._registered.append(_RouteRegistration(path=path, build_endpoint=build_endpoint, rule=rule, options=given))

    def add_routes_to(self, app: FastAPIWithAccessRules, prefix: str = "", **options: Any) -> None:
        """Add the collected routes, each with its rule, to an application."""
        for one in self._registered:
            path, given = prefix + one.path, options | one.options
            if app.is_description:
                app.router.add_api_route(path, one.build_endpoint(), **given)
            else:
                # Results are sent unvalidated: only a description needs their models, which take long to build.
                deferred = _DeferredApiRoute(path, one.build_endpoint, given | {"response_model": None})
                route = Route(path, deferred, name=given["name"])
                route.methods = set(given["methods"])  # without HEAD, which starlette adds
                app.router.routes.append(route)
            app.set_last_route_rule(one.rule)


class FastAPIWithAccessRules(FastAPI):
    """A FastAPI application that knows the rule of each of its routes.

    Without `build_description`, which returns the application that describes it, it describes itself.
    """

    def __init__(self, build_description: Callable[[], FastAPI] | None, **given: Any) -> None:
        super().__init__(**given)
        self.rules: list[tuple[BaseRoute, RouteAccessRule]] = []
        self._build_description = build_description

    @property
    def is_description(self) -> bool:
        """Whether it only describes its routes."""
        return self._build_description is None

    def openapi(self) -> dict[str, Any]:
        if self._build_description is None:
            return super().openapi()
        if self.openapi_schema is None:
            self.openapi_schema = self._build_description().openapi()
        return self.openapi_schema

    def set_last_route_rule(self, rule: RouteAccessRule) -> None:
        """Set the rule of the route that was added last; a route that changes something requires a signed-in user."""
        route = self.routes[-1]
        methods = getattr(route, "methods", None) or SAFE_METHODS
        if rule.access < Access.VIEWER and not methods <= SAFE_METHODS:
            raise ValueError(f"{route} changes something, so nobody uses it without signing in.")
        self.rules.append((route, rule))

    def require_rule_for_every_route(self) -> None:
        """Raise `ValueError` if a route has no rule."""
        declared = [route for route, _ in self.rules]
        for route in self.routes:
            # Compared by identity: two routes with the same path are equal but need a rule each.
            if not any(route is one for one in declared):
                raise ValueError(f"{route} does not declare who may use it: add access=Access.…")

    def find_rule(self, scope: Scope) -> RouteAccessRule | None:
        """Return the rule of the route that will answer a request, or None if none does."""
        return next((rule for route, rule in self.rules if route.matches(scope)[0] is Match.FULL), None)
