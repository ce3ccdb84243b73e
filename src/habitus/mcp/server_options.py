"""Options of an MCP server: whose skills it serves, which tools it offers, and whether it may change anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.app.operating.people import UserAccount

# A turn ends after this long without a call.
TURN_IDLE_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServerOptions:
    """What one MCP server serves, to whom, and within which limits."""

    home: Path | None = None
    # One of the home's users, with their role; None is the owner, who started the server.
    person: UserAccount | None = None
    # Empty is the user of the settings.
    user: str = ""
    profile: str = "default"
    read_only: bool = False
    # Empty means all layers.
    layers: tuple[str, ...] = ()
    turn_idle_s: float = TURN_IDLE_S
    # A turn holds all its calls in memory until it ends.
    max_calls_per_turn: int = 200
    # Over HTTP, with more connections to a shared database.
    is_http: bool = False
    # Seconds between two checks for changes made elsewhere.
    poll_interval_s: float = 2.0
