"""`habitus outcome`: say how a turn went, also long after it."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.growth.learning import judge
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson


def outcome(
    context: typer.Context,
    turn: Annotated[str, typer.Argument(help="A turn's id, or the one that the program gave it.")],
    ok: Annotated[bool | None, typer.Option("--ok/--failed", help="Whether it did what was asked.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, in a line.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who says so; the same one corrects itself.")] = "user",
    as_json: AsJson = False,
) -> None:
    """Say how a turn went, whoever ran it; what served a good one gets the credit."""
    if ok is None:
        raise typer.BadParameter("Say --ok or --failed.")
    with open_habitus(context) as habitus:
        judged = judge(habitus, turn, ok=ok, by=by, reason=reason)
        request = output.clean(" ".join(judged.request.split()))[:60]
        which = f"{judged.turn} ({request})" if request else judged.turn
        output.say_done(context, as_json, judged, f"{which}: {judged.outcome.kind.value}, says {by}.")
