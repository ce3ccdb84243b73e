"""`habitus pause | resume`: the words of its commands. `app/use_cases/pausing.py` does the work."""

from __future__ import annotations

import typer

from habitus.app.declaring import Nothing
from habitus.app.use_cases.pausing import PauseState
from habitus.cli import inputs, output


def pause(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    since = "" if done.paused is None else inputs.show_moment(done.paused.since)
    output.say(f"Paused since {since}. What people change themselves still works.")


def resume(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    output.say("Learning goes on." if done.undo else "Nothing was paused.")
