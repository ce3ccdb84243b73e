"""`habitus recipes mine`: what was done again and again here, as recipes and skills to decide about."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from habitus.app.growth import studying
from habitus.app.growth.mining import Mining, MiningReport
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson
from habitus.errors import Refused
from habitus.llm.model import Models


def mine(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts of other agents; our own journal by default.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Propose what is found; it waits for your review.")] = False,
    model: Annotated[str, typer.Option("--model", help="Let provider:model draft skills of similar requests.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what you had done again and again: calls that make a recipe, requests that want a skill."""
    with open_habitus(context) as habitus:
        models = studying.open_models(habitus.settings, habitus.pause, model) if model else None
        mining = Mining(habitus)
        if files:
            mining.read(studying.found_files(files))
        mining.look()
        if models is not None and mining.requests_to_draft and _may_send(mining, model, yes, as_json):
            _draft(mining, models)
        if apply:
            mining.propose()
        report = mining.report()
        if as_json:
            output.print_json(report)
        else:
            _print(context, report, applied=apply)


def _may_send(mining: Mining, model: str, yes: bool, as_json: bool) -> bool:
    requests = output.count_of(len(mining.requests_to_draft), "group")
    told = f"{requests} of requests, about {mining.tokens_to_send:,} tokens,"
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise Refused(f"{told} would go to {model}.", mend="Nothing was sent or kept. Say --yes to send.")
    return typer.confirm(f"{told} would go to {model}, without the secrets. Send them?")


def _draft(mining: Mining, models: Models) -> None:
    async def ask() -> None:
        try:
            await mining.draft(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print(context: typer.Context, report: MiningReport, *, applied: bool) -> None:
    for one in report.suggestions:
        output.say(f"{one.kind.value}: {one.name} (skill {one.skill})", style="bold")
        for line in one.evidence:
            output.say(f"  {line}", style="dim")
        output.say("\n".join(f"    {line}".rstrip() for line in one.text.strip().splitlines()), style="green")
    found = output.count_of(len(report.suggestions), "thing")
    output.say(f"Looked at {output.count_of(report.turns, 'turn')} of your own: {found} done again and again.")
    if report.stopped:
        output.say(report.stopped, style="yellow")
    if report.spent:
        output.say(f"{report.spent}.", style="dim")
    if report.suggestions:
        waits = f"They wait for you: {output.command(context, 'review', 'list')}"
        output.say(waits if applied else "Nothing was kept; --apply puts it before you as proposals.")
