"""`habitus pause | resume`: the switch that stops learning and automatic change."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.cli import moments, output
from habitus.cli.opening import opened

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pause(context: typer.Context, as_json: AsJson = False) -> None:
    """Stop learning and automatic change at once, in every process on this home."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        state = habitus.pause.pause(habitus.settings.user)
        if as_json:
            output.print_json({"paused": True, "since": state.since, "by": state.by})
            return
        output.say(f"Paused since {moments.shown(state.since)}. What people change themselves still works.")
        output.undo(context, "resume")


def resume(context: typer.Context, as_json: AsJson = False) -> None:
    """Let learning and automatic change go on."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        was_paused = habitus.pause.resume()
        if as_json:
            output.print_json({"paused": False, "was_paused": was_paused})
        else:
            output.say("Learning goes on." if was_paused else "Nothing was paused.")
