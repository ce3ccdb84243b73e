"""`habitus skills search`: which skill fits a request, without waiting for the imports of the other commands."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.library.listing_cache import keep_listing
from habitus.cli import output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.cli.skills.words import print_found
from habitus.search.model import results_as_json


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
        keep_listing(habitus)
        if as_json:
            output.print_json(results_as_json(results))
            return
        listing = {item.name: item for item in habitus.skills.listing()}
        found = {hit.id: listing[hit.id].summary for hit in results.hits if hit.id in listing}
        print_found(results, {name: summary.cue for name, summary in found.items() if summary}, wide=wide)
