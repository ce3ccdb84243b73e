"""Pausing: the switch that stops learning and automatic changes."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home, refuse_unless_admin
from habitus.app.use_cases.declaration import Nothing, use_case
from habitus.pause import Paused


@dataclass(frozen=True, kw_only=True)
class PauseState:
    paused: Paused | None
    undo: tuple[str, ...] = ()


@use_case("", route="GET /pause", access=Access.VIEWER, example=Nothing())
def show(home: Home, wanted: Nothing) -> PauseState:
    """Show whether learning is paused, since when and by whom."""
    return PauseState(paused=home.pause.state())


@use_case("pause", route="PUT /pause", access=Access.ADMIN, example=Nothing(), undo="resume")
def pause(home: Home, wanted: Nothing) -> PauseState:
    """Stop learning and automatic changes at once, in every process on this home."""
    home.refuse_if_read_only()
    refuse_unless_admin(home, "pause everybody")
    was_paused = home.pause.state() is not None
    return PauseState(paused=home.pause.pause(home.settings.signature), undo=() if was_paused else ("resume",))


@use_case("resume", route="DELETE /pause", access=Access.ADMIN, example=Nothing(), undo="pause")
def resume(home: Home, wanted: Nothing) -> PauseState:
    """Resume learning and automatic changes."""
    home.refuse_if_read_only()
    refuse_unless_admin(home, "let everybody go on")
    return PauseState(paused=None, undo=("pause",) if home.pause.resume() else ())
