"""The application: pages, REST and what they look like, behind the guard. What calls `app` runs in a thread."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from habitus.app.operating.people import open_people
from habitus.web.api import jobs as jobs_api
from habitus.web.api import sessions, skills, use_case_routes
from habitus.web.api import settings as settings_api
from habitus.web.homes_by_person import Desks, Rereading
from habitus.web.pages import activity, chat, every_page, home, inbox, jobs, lists, settings
from habitus.web.pages import lessons as lesson_pages
from habitus.web.pages import skill as skill_page
from habitus.web.pages import skills as skill_pages
from habitus.web.problems import DESCRIBED, handle
from habitus.web.rendering import STATIC
from habitus.web.security import Guard, Keys, Proxy


def make_app(
    desks: Desks, keys: Keys, hosts: Collection[str], *, open_reading: bool = False, app: FastAPI | None = None
) -> ASGIApp:
    """`hosts` are the names, with their port, under which it answers; with `open_reading` anybody may look.

    `app` are doors that stand already; whoever was behind them before is there no longer.
    """
    app = app or doors()
    app.state.desks, app.state.keys = desks, keys
    desks.when_back(lambda home: keys.read_from(open_people(home)))
    web = desks.own.settings.web
    proxy = Proxy(header=web.proxy_header, addresses=web.proxies)
    return Guard(Rereading(app, desks), keys, hosts, proxy, open_reading=open_reading)


def doors() -> FastAPI:
    """Every address there is, with nothing behind it yet."""
    app = FastAPI(
        title="Habitus",
        version=version("habitus"),
        summary="Skills that agents learn, prove and keep.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    rest = APIRouter(prefix="/api/v1", responses=DESCRIBED)
    for part in (skills, sessions, jobs_api, settings_api):
        rest.include_router(part.router)
    rest.include_router(use_case_routes.router())
    app.include_router(rest)
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
        app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    handle(app)
    return app
