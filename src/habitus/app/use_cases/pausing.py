"""Pausing: the switch that stops learning and automatic changes."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home, refuse_if_read_only, refuse_non_admin_on_shared_database
from habitus.app.use_cases.declaration import use_case
from habitus.pause import PauseDetails


@dataclass(frozen=True, kw_only=True)
class LearningPauseStatus:
    paused: PauseDetails | None
    undo: tuple[str, ...] = ()


@use_case("", route="GET /pause", access=Access.VIEWER)
def show_pause_status(home: Home) -> LearningPauseStatus:
    """Show whether learning is paused, since when and by whom."""
    return LearningPauseStatus(paused=home.pause.get_pause_details())


@use_case("learn pause", route="PUT /pause", access=Access.ADMIN, undo="learn resume")
def pause_learning(home: Home) -> LearningPauseStatus:
    """Stop learning and automatic changes at once, in every process on this home."""
    refuse_if_read_only(home)
    refuse_non_admin_on_shared_database(home, "pause learning for all users")
    was_paused = home.pause.get_pause_details() is not None
    return LearningPauseStatus(
        paused=home.pause.pause(home.settings.author_name), undo=() if was_paused else ("learn", "resume")
    )


@use_case("learn resume", route="DELETE /pause", access=Access.ADMIN, undo="learn pause")
def resume_learning(home: Home) -> LearningPauseStatus:
    """Resume learning and automatic changes."""
    refuse_if_read_only(home)
    refuse_non_admin_on_shared_database(home, "resume learning for all users")
    return LearningPauseStatus(paused=None, undo=("learn", "pause") if home.pause.resume() else ())
