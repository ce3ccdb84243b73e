"""Builds the web application: pages and REST behind the security middleware. Code that calls `app` runs in a thread."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version

from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from habitus.access import Access
from habitus.app.operating.people import open_people
from habitus.web.api import events, skills, use_case_routes
from habitus.web.api.use_case_routes import API
from habitus.web.homes_by_person import Desks, Rereading
from habitus.web.pages import activity, chat, every_page, home, inbox, jobs, lists, settings
from habitus.web.pages import lessons as lesson_pages
from habitus.web.pages import skill as skill_page
from habitus.web.pages import skills as skill_pages
from habitus.web.problems import DESCRIBED, handle
from habitus.web.rendering import STATIC
from habitus.web.routing import Application, RouteRule
from habitus.web.security import Guard, Keys, Proxy


def make_app(
    desks: Desks, keys: Keys, hosts: Collection[str], *, open_reading: bool = False, app: Application | None = None
) -> ASGIApp:
    """Return the application for these homes.

    `hosts` are the names, with port, that it answers to; with `open_reading` anybody may read. `app` reuses routes
    built
    earlier and binds them to these homes.
    """
    app = app or doors()
    app.check_rules()
    app.state.desks, app.state.keys = desks, keys
    # Users live in the database, so sign-in has to move with it when it is back.
    desks.when_back(lambda home: keys.read_from(open_people(home)))
    web = desks.own.settings.web
    proxy = Proxy(header=web.proxy_header, addresses=web.proxies)
    return Guard(Rereading(app, desks), app.find_rule, keys, hosts, proxy, open_reading=open_reading)


def doors() -> Application:
    """Return an application with every route, not yet bound to a home."""
    app = Application(
        title="Habitus",
        version=version("habitus"),
        summary="Skills that agents learn, prove and keep.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    # For the OpenAPI description, which FastAPI adds itself.
    app.declare(RouteRule(access=Access.OPEN_READING))
    for part in (skills, events):
        part.router.add_to(app, API, responses=DESCRIBED)
    use_case_routes.router().add_to(app, API, responses=DESCRIBED)
    for pages in (
        every_page,
        home,
        skill_pages,
        skill_page,
        inbox,
        lesson_pages,
        activity,
        chat,
        jobs,
        settings,
        lists,
    ):
        pages.router.add_to(app, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.declare(RouteRule(access=Access.PUBLIC))
    handle(app)
    return app
