"""`habitus skills scan` and `lint`: screens skills before they are imported, and checks those in the library."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations.models import models as models_of
from habitus.app.library.uploading import Looked, LookedAgain, look_again
from habitus.app.operating import checking
from habitus.app.operating.checking import LintReport
from habitus.app.use_cases import sources
from habitus.app.use_cases.sources import LintRequest, ScanRequest
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.learning.budget import CapReached
from habitus.llm.model import NoUsableAnswer, ProviderFault
from habitus.screening.findings import Risk
from habitus.skills.model import Severity

SecondLook = Annotated[
    bool, typer.Option("--second-look", help="Also ask your model about what rules can't see; it decides nothing.")
]


def perform_scan(habitus: Habitus, wanted: ScanRequest, second_look: SecondLook = False) -> Looked:
    """Scan the path, with the second opinion of a model if requested."""
    found = sources.scan(habitus, wanted)
    return replace(found, second_look=asyncio.run(_look_again(habitus, wanted.path))) if second_look else found


async def _look_again(habitus: Habitus, path: str) -> tuple[LookedAgain, ...]:
    """Return the model's second opinions; empty, with a line on standard error, if the model fails."""
    models = models_of(habitus.settings, os.environ)
    try:
        return tuple(await look_again(habitus, path, models.main))
    # A second opinion is extra: if the model fails, the scan's own result stands.
    except (CapReached, ProviderFault, NoUsableAnswer, TimeoutError) as fault:
        output.complain(f"No second look: {str(fault) or 'the model did not answer in time.'}")
        return ()
    finally:
        await models.close()


def scan(context: typer.Context, wanted: ScanRequest, done: Looked) -> None:
    for each in done.scanned:
        for found in each.findings:
            where = "" if found.path == each.name else f"{each.name}/"
            style = "red" if found.severity is Risk.HIGH else "yellow"
            output.say(f"{found.severity.value}: {where}{found}", style=style)
    for left in done.not_read:
        output.say(f"not read: {left.name or left.origin}: {left.reason}", style="yellow")
    held = sum(each.is_held for each in done.scanned)
    with_findings = sum(bool(each.findings) for each in done.scanned)
    told = f"findings in {with_findings}; {held} would wait for you." if with_findings else "nothing suspicious."
    output.say(f"{len(done.scanned)} scanned: {told}")
    if done.second_look is not None:
        _print_second_look(done.second_look)


def _print_second_look(again: tuple[LookedAgain, ...]) -> None:
    for each in again:
        for doubt in each.doubts:
            where = f"{each.name}/{doubt.path}:{doubt.line}"
            output.say(f"{doubt.model} (a model's verdict): {where}: {doubt.why} “{doubt.quote}”", style="dim")
        if each.is_cut:
            output.say(
                f"The model was shown only a part of {each.name}: it is too long, or the day's tokens are spent."
            )
    count = sum(len(each.doubts) for each in again)
    output.say(f"Second look: {output.count_of(count, 'line')} doubted. You decide; nothing is held for it.")


def perform_lint(habitus: Habitus, wanted: LintRequest) -> LintReport:
    with output.counting() as progress:
        return checking.lint(habitus, wanted.targets, progress)


def lint(context: typer.Context, wanted: LintRequest, done: LintReport) -> None:
    for skill in done.skills:
        for found in skill.diagnostics:
            style = "red" if found.severity is Severity.ERROR else "yellow"
            output.say(f"{found.severity.value}: {skill.name}: {found.what} {found.hint}", style=style)
    for finding in done.set:
        output.say(f"{finding.severity.value}: {finding.what} {finding.hint}", style="yellow")
    with open_habitus(context) as habitus:
        for rule, why in habitus.screening.silence.items():
            output.say(f"silenced: {rule}: {why}")
    skills = output.count_of(len(done.skills), "skill")
    output.say(f"{skills} looked at, {done.odd} with something to say, {done.broken} can't be loaded.")
