"""`habitus curate`: what has aged, and sending it to the archive."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from habitus.app.growth import curating
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson


def curate(
    context: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; what goes can be restored.")] = False,
    model: Annotated[str, typer.Option("--model", help="Let provider:model draft what climbs to its next stage.")] = "",
    as_json: AsJson = False,
) -> None:
    """Look after what was learned: what has aged goes, what fails is tested, what has served climbs to its next stage.

    Without --apply it only says what it would do, and why. Changes of skills wait for your review.
    """
    with open_habitus(context) as habitus:
        found = asyncio.run(curating.curate(habitus, apply=apply, model=model))
    rows = [(step.action.value, step.item, step.reason, step.text) for step in found.steps]
    output.say_list(as_json, found, ("what", "item", "why", "text"), rows, wide="text", empty="Nothing has aged.")
    if as_json:
        return
    if found.spent:
        output.say(f"{found.spent}.")
    if not found.steps:
        return
    if not found.is_done:
        output.say("Nothing was changed; --apply does it.")
        return
    lessons = [step.item for step in found.steps if step.undo[:1] == ("lessons",)]
    if lessons:
        output.say_undo(context, "lessons", "restore", *lessons)
    for step in found.steps:
        if step.undo[:1] == ("tools",):
            output.say_undo(context, *step.undo)
