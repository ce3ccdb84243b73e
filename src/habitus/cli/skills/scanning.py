"""`habitus skills scan`: looking at content before it is taken in."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from habitus.app.conversations.models import models as models_of
from habitus.app.home import Home
from habitus.app.library import uploading as use_case
from habitus.app.library.uploading import Looked, LookedAgain
from habitus.cli import output
from habitus.cli.completion import AsJson
from habitus.cli.opening import open_habitus
from habitus.learning.budget import CapReached
from habitus.llm.model import NoUsableAnswer, ProviderFault
from habitus.screening.findings import Risk


def scan(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A file, a directory or an archive.")],
    second_look: Annotated[
        bool, typer.Option("--second-look", help="Also ask your model about what rules can't see; it decides nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What is suspicious about skills, or any files, that are not here yet. Exit code 1 if an import would wait."""
    with open_habitus(context) as habitus:
        report = use_case.look_at(habitus.skills, habitus.screening, path)
        again = asyncio.run(_ask(habitus, path)) if second_look else None
    if as_json:
        said = {} if again is None else {"second_look": output.plain(again)}
        output.print_json({**output.plain(report), **said})
    else:
        _print_report(report)
        _print_second_look(again)
    if report.held:
        raise typer.Exit(1)


async def _ask(home: Home, path: str) -> list[LookedAgain]:
    """What the person's own model doubts; a fault or the cap is one line, and the scan stands as it is."""
    models = models_of(home.settings, os.environ)
    try:
        return await use_case.look_again(home, path, models.main)
    except (CapReached, ProviderFault, NoUsableAnswer, TimeoutError) as fault:
        output.complain(f"No second look: {str(fault) or 'the model did not answer in time.'}")
        return []
    finally:
        await models.close()


def _print_second_look(again: list[LookedAgain] | None) -> None:
    for each in again or ():
        for doubt in each.doubts:
            where = f"{each.name}/{doubt.path}:{doubt.line}"
            output.say(f"{doubt.model} (a model's verdict): {where}: {doubt.why} “{doubt.quote}”", style="dim")
        if each.is_cut:
            output.say(
                f"The model was shown only a part of {each.name}: it is too long, or the day's tokens are spent."
            )
    if again is not None:
        count = sum(len(each.doubts) for each in again)
        output.say(f"Second look: {output.count_of(count, 'line')} doubted. You decide; nothing is held for it.")


def _print_report(report: Looked) -> None:
    for each in report.scanned:
        for found in each.findings:
            where = "" if found.path == each.name else f"{each.name}/"
            output.say(
                f"{found.severity.value}: {where}{found}", style="red" if found.severity is Risk.HIGH else "yellow"
            )
    for left in report.not_read:
        output.say(f"not read: {left.name or left.origin}: {left.reason}", style="yellow")
    held = sum(each.is_held for each in report.scanned)
    with_findings = sum(bool(each.findings) for each in report.scanned)
    told = f"findings in {with_findings}; {held} would wait for you." if with_findings else "nothing suspicious."
    output.say(f"{len(report.scanned)} scanned: {told}")
