"""`habitus pause | resume`: the switch that stops learning and automatic change."""

from __future__ import annotations

import typer

from habitus.app.whose import refuse_unless_admin
from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson


def pause(context: typer.Context, as_json: AsJson = False) -> None:
    """Stop learning and automatic change at once, in every process on this home."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        refuse_unless_admin(habitus, "pause everybody")
        was_paused = habitus.pause.state() is not None
        state = habitus.pause.pause(habitus.settings.signature)
        said = f"Paused since {moments.shown(state.since)}. What people change themselves still works."
        data = {"paused": True, "since": state.since, "by": state.by}
        output.done(context, as_json, data, said, undo=() if was_paused else ("resume",))


def resume(context: typer.Context, as_json: AsJson = False) -> None:
    """Let learning and automatic change go on."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        refuse_unless_admin(habitus, "let everybody go on")
        was_paused = habitus.pause.resume()
        said = "Learning goes on." if was_paused else "Nothing was paused."
        output.done(context, as_json, {"paused": False, "was_paused": was_paused}, said)
