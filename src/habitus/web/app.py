"""Builds the web application: pages and REST behind the security middleware. Code that calls `app` runs in a thread."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from importlib.metadata import version

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from habitus.access import Access
from habitus.app.operating.people import open_user_accounts
from habitus.web.admission import AdmissionMiddleware
from habitus.web.api import events, skills, use_case_routes
from habitus.web.api.wording import API_ROOT
from habitus.web.data_changes import ChangeWatcher
from habitus.web.home_pool import HomePool, SnapshotFallbackMiddleware
from habitus.web.pages import (
    activity,
    chat,
    home,
    inbox,
    jobs,
    lists,
    model_choice,
    settings,
    shared_routes,
    signing_in,
    skill_tasks,
)
from habitus.web.pages import lessons as lesson_pages
from habitus.web.pages import skill as skill_page
from habitus.web.pages import skills as skill_pages
from habitus.web.problems import ERROR_RESPONSES, register_error_handlers
from habitus.web.routing import FastAPIWithAccessRules, RouteAccessRule
from habitus.web.security import SecurityMiddleware, SignInProxy, SignInService
from habitus.web.static_files import StaticFileApp

# Level 9 takes three times as long for 2 % less.
_GZIP_LEVEL = 5


def make_web_app(
    homes: HomePool,
    keys: SignInService,
    hosts: Collection[str],
    *,
    open_reading: bool = False,
    app: FastAPIWithAccessRules | None = None,
) -> ASGIApp:
    """Return the application for these homes.

    `hosts` are the names, with port, that it answers to; with `open_reading` anybody may read. `app` reuses routes
    built
    earlier and binds them to these homes.
    """
    app = app or build_application_without_home()
    app.require_rule_for_every_route()
    app.state.desks, app.state.keys, app.state.changes = homes, keys, ChangeWatcher(homes)
    # Users live in the database, so sign-in has to move with it when it is back.
    homes.add_reconnect_callback(lambda home: keys.switch_to_account_store(open_user_accounts(home)))
    web = homes.owner_home.settings.web
    proxy = SignInProxy(header=web.proxy_header, addresses=web.proxies)
    compressed = GZipMiddleware(SnapshotFallbackMiddleware(app, homes), minimum_size=1000, compresslevel=_GZIP_LEVEL)
    address = web.address or f"http://{min(hosts)}"
    checked = SecurityMiddleware(
        compressed, app.find_rule, keys, hosts, proxy, address=address, open_reading=open_reading
    )
    return AdmissionMiddleware(checked)


def build_application_without_home(*, is_description: bool = False) -> FastAPIWithAccessRules:
    """Return an application with every route, not yet bound to a home; `is_description`: one to make OpenAPI of."""
    app = FastAPIWithAccessRules(
        None if is_description else partial(build_application_without_home, is_description=True),
        title="Habitus",
        version=version("habitus"),
        summary="Skills that agents learn, prove and keep.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    # For the OpenAPI description, which FastAPI adds itself.
    app.set_last_route_rule(RouteAccessRule(access=Access.OPEN_READING))
    for part in (skills, events):
        part.router.add_routes_to(app, API_ROOT, responses=ERROR_RESPONSES)
    use_case_routes.build_router(is_description=is_description).add_routes_to(app, API_ROOT, responses=ERROR_RESPONSES)
    for pages in (
        shared_routes,
        signing_in,
        home,
        skill_pages,
        skill_page,
        skill_tasks,
        inbox,
        lesson_pages,
        activity,
        chat,
        jobs,
        model_choice,
        settings,
        lists,
    ):
        pages.router.add_routes_to(app, include_in_schema=False)
    app.mount("/static", StaticFileApp(), name="static")
    app.set_last_route_rule(RouteAccessRule(access=Access.PUBLIC))
    register_error_handlers(app)
    return app
