"""`habitus curate`: what has aged, and sending it to the archive."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.cli import output
from habitus.cli.opening import opened


def curate(
    context: typer.Context,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; what goes can be restored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Retire degraded tools, compact rules, prune lessons that never helped, and test tools whose proof is stale."""
    import asyncio

    from habitus.app import curating

    with opened(context) as habitus:
        found = asyncio.run(curating.curate(habitus, apply=apply))
    if as_json:
        output.print_json(found)
        return
    if not found.steps:
        output.say("Nothing has aged.")
        return
    rows = [(step.action.value, step.item, step.reason, step.text) for step in found.steps]
    output.table(("what", "item", "why", "text"), rows, wide="text")
    if not found.is_done:
        output.say("Nothing was changed; --apply does it.")
        return
    lessons = [step.item for step in found.steps if step.undo[:1] == ("lessons",)]
    if lessons:
        output.undo(context, "lessons", "restore", *lessons)
    for step in found.steps:
        if step.undo[:1] == ("tools",):
            output.undo(context, *step.undo)
