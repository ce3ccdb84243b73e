"""`habitus undo | rollback` and `pause | resume`: going back to what was, and stopping automatic change."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from habitus.app.library import undoing
from habitus.app.library import undoing as use_case
from habitus.app.library.undoing import WayBack
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.pausing import PauseState
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Reason, Yes
from habitus.cli.opening import open_habitus
from habitus.skills.layers.layer import USER


def rollback(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="A moment: 2026-05-01, '2026-05-01 14:30', 14:30, 2h, '3 days ago'.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Return your lessons, and your skills in every layer you can write, to a moment; nothing is lost by it."""
    with open_habitus(context) as habitus:
        now = habitus.clock()
        moment = inputs.parse(to, now)
        if moment > now:
            raise typer.BadParameter(f"{to} lies in the future.", param_hint="--to")
        reason = f"back to {inputs.show_moment(moment)}"
        way = use_case.return_to(habitus, moment, reason, dry_run=True)
        what = _count_steps(way)
        if not as_json:
            _print_steps(way)
        is_asked = not (dry_run or yes or as_json) and bool(what) and sys.stdin.isatty()
        if is_asked and not typer.confirm(f"Return {what} to {inputs.show_moment(moment)}?"):
            raise typer.Abort
        if not dry_run:
            way = use_case.return_to(habitus, moment, reason, dry_run=False)
        told = [{"layer": layer, **dataclasses.asdict(step)} for layer, step in way.skills]
        data = {"to": moment, "dry_run": dry_run, "steps": told, "lessons": way.lessons}
        if not what:
            output.say_done(context, as_json, data, f"Nothing has changed since {inputs.show_moment(moment)}.", undo=())
        elif dry_run:
            output.say_done(context, as_json, data, undo=())
        else:
            are = "is as it was" if what in ("1 skill", "1 lesson") else "are as they were"
            output.say_done(context, as_json, data, f"{what} {are} at {inputs.show_moment(moment)}.", undo=way.undo)


def _print_steps(way: WayBack) -> None:
    for layer, step in way.skills:
        name = step.name if layer == USER else f"{step.name}@{layer}"
        output.say(f"{step.action:<8} {name}" + (f" (version {step.version})" if step.version else ""))
    for lesson in way.lessons:
        output.say(f"{lesson.action:<8} lesson {lesson.id}: {lesson.text}")


def _count_steps(way: WayBack) -> str:
    skills = {(layer, step.name) for layer, step in way.skills}
    found = ((len(skills), "skill"), (len(way.lessons), "lesson"))
    return " and ".join(output.count_of(number, thing) for number, thing in found if number)


def undo(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="WHAT...", help="What a change printed: NAME@LAYER:VERSION, LESSON:VERSION or an id."),
    ],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Take back one change, and nothing that was done before or since."""
    with open_habitus(context) as habitus:
        found = undoing.undo(habitus, targets, reason)
        output.say_done(context, as_json, found, *found.said, undo=found.undo)
        for kept in found.kept if not as_json else ():
            output.complain(f"habitus: {kept}")
        if found.kept:
            raise typer.Exit(1)


def pause(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    since = "" if done.paused is None else inputs.show_moment(done.paused.since)
    output.say(f"Paused since {since}. What people change themselves still works.")


def resume(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    output.say("Learning goes on." if done.undo else "Nothing was paused.")
