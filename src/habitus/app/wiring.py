"""Wiring: a home opened from its settings, and its larger parts put together from concrete classes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from habitus import sql
from habitus.app import home_directory
from habitus.app.home import Clock, Home
from habitus.app.library.finding import open_finder
from habitus.app.library.layers import open_library
from habitus.app.operation.tombstones import missing_tombstones
from habitus.app.review.reviewing import open_review
from habitus.app.sharing import standing_in
from habitus.app.sharing.carrying import catch_up
from habitus.settings import Settings
from habitus.skills.finding import Finder
from habitus.skills.formats.base import PlaybookLesson
from habitus.skills.importing import Importer, Result
from habitus.skills.library import Library
from habitus.skills.review import Review

if TYPE_CHECKING:
    from habitus.memory.cortex import Cortex
    from habitus.recipes.catalogue import RecipeCatalogue
    from habitus.sandbox.scratchpads import Scratchpads
    from habitus.tools.tools import Tools

log = logging.getLogger(__name__)

AnyHome = TypeVar("AnyHome", bound=Home)


def utc_now() -> datetime:
    return datetime.now(UTC)


def open_home(
    settings: Settings | None = None,
    *,
    clock: Clock = utc_now,
    has_pages: bool = True,
) -> Home:
    """Open the home that the settings name, creating it where it is new; its pages of memory are the owner's."""
    return open_home_as(Home, settings, clock=clock, has_pages=has_pages)


def open_home_as(kind: Callable[..., AnyHome], settings: Settings | None, *, clock: Clock, has_pages: bool) -> AnyHome:
    settings = settings or home_directory.read_settings()
    there = home_directory.enter(settings.home)
    with ExitStack() as failing:
        failing.callback(there.leaving.close)
        local = sql.open_engine(sql.sqlite_url(there.place / home_directory.DATABASE))
        failing.callback(local.dispose)
        shared = standing_in.open_shared(settings, local)
        if not there.is_read_only:
            home_directory.keep_private(settings.home)
        home = kind(
            settings, local=local, shared=shared, clock=clock, there=there, wiring=_Parts(), has_pages=has_pages
        )
        if missing := missing_tombstones(home):
            from habitus.app.operation.forgetting import forget_again  # every table there is, for the rare case

            log.info("Forgetting again whom a backup or another host brought back: %d.", len(missing))
            forget_again(home, missing)
        catch_up(home)
        failing.pop_all()
        return home


class _Parts:
    """The concrete classes; what only some need is imported when it is asked for."""

    def library(self, home: Home) -> Library:
        return open_library(home)

    def finder(self, home: Home) -> Finder:
        return open_finder(home)

    def review(self, home: Home) -> Review:
        return open_review(home)

    def importer(self, home: Home) -> Importer:
        def accept_lesson(lesson: PlaybookLesson) -> Result:
            from habitus.app.library.updating import landed  # memory and every layout, for those who import

            return landed(home, lesson)

        return Importer(
            home.skills,
            home.review,
            home.trust,
            home.shared,
            clock=home.clock,
            scan=home.scan,
            land=accept_lesson,
        )

    def memory(self, home: Home, user: str, all_users: bool) -> Cortex:
        from habitus.app.growth.memory import open_memory  # the rules of its gate, for those who remember

        return open_memory(home, user=user, all_users=all_users)

    def tools(self, home: Home) -> Tools:
        from habitus.app.conversations.running_code import open_tools  # the sandbox, for those who run code

        return open_tools(home)

    def recipes(self, home: Home) -> RecipeCatalogue:
        from habitus.app.library.recipes import open_recipes

        return open_recipes(home)

    def scratchpads(self, home: Home) -> Scratchpads:
        from habitus.app.conversations.running_code import open_scratchpads

        return open_scratchpads(home, "pads")
