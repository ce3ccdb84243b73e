"""Scope of a server: whose skills it shows, which tools it offers, and whether anything may be changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.app.operating.people import Person

IDLE_S = 600.0  # without a call, after which a turn is over


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    home: Path | None = None
    person: Person | None = None  # one of the home's people, with their role; without, whoever started the server
    user: str = ""  # without a name, the one of the settings
    profile: str = "default"
    read_only: bool = False
    layers: tuple[str, ...] = ()  # all without
    idle_s: float = IDLE_S
    most_calls: int = 200  # of one turn, which holds on to all of them until it ends
    serves_many: bool = False  # over HTTP, with more connections to a shared database
    look_s: float = 2.0  # between two looks for what others have changed
