"""`habitus skills search`: which skill fits a request, without waiting for the imports of the other commands."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app import json_of
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson, Wide


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What somebody would ask for.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many.")] = 10,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Find skills by what a request says, not only by its words."""
    with open_habitus(context) as habitus:
        with output.counting(is_quiet=as_json, doing="Indexing") as progress:
            habitus.finder.catch_up(progress)
        results = habitus.finder.search(query, k=k)
        listing = {item.name: item for item in habitus.skills.listing()}
        if as_json:
            output.print_json(json_of.results(results))
            return
        if not results.hits:
            output.say("Nothing matches.")
            return
        if not results.fits:
            output.say("Nothing fits well; the nearest:", style="yellow")
        rows = []
        for hit in results.hits:
            summary = listing[hit.id].summary if hit.id in listing else None
            made_of = ", ".join(f"{name} {value:+.2f}" for name, value in list(hit.parts.items())[:3])
            rows.append((hit.id, f"{hit.score:.2f}", summary.cue if summary else "", made_of))
        columns = ("name", "score", "use it", "made of") if wide else ("name", "score", "use it")
        output.table(columns, [row[: len(columns)] for row in rows], wide="use it", is_cut=not wide)
