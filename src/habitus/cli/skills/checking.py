"""`habitus skills scan` and `lint`: screens skills before they are imported, and checks those in the library."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations.models import open_main_and_cheap_models as models_of
from habitus.app.library.uploading import ImportPreview, ModelSecurityOpinion, ask_model_about_scanned_skills
from habitus.app.operating import checking
from habitus.app.use_cases import sources
from habitus.cli import output
from habitus.cli.opening import open_habitus
from habitus.learning.budget import BudgetReachedError
from habitus.llm.model import ProviderError, UnusableAnswerError
from habitus.screening.findings import RiskLevel
from habitus.skills.model import Severity

SecondOpinionOption = Annotated[
    bool, typer.Option("--second-look", help="Also ask your model for a second opinion; it decides nothing.")
]


def perform_scan_skills(habitus: Habitus, path: str, second_look: SecondOpinionOption = False) -> ImportPreview:
    """Scan the path, with the second opinion of a model if requested."""
    found = sources.scan_skills(habitus, path=path)
    return (
        replace(found, second_opinions=asyncio.run(_ask_model_for_second_opinions(habitus, path)))
        if second_look
        else found
    )


async def _ask_model_for_second_opinions(habitus: Habitus, path: str) -> tuple[ModelSecurityOpinion, ...]:
    """Return the model's second opinions; empty, with a line on standard error, if the model fails."""
    models = models_of(habitus.settings, os.environ)
    try:
        return tuple(await ask_model_about_scanned_skills(habitus, path, models.main))
    # A second opinion is extra: if the model fails, the scan's own result stands.
    except (BudgetReachedError, ProviderError, UnusableAnswerError, TimeoutError) as fault:
        output.print_line_to_stderr(f"No second opinion: {str(fault) or 'the model did not answer in time.'}")
        return ()
    finally:
        await models.close()


def print_result_of_scan_skills(context: typer.Context, result: ImportPreview) -> None:
    for each in result.scanned:
        for found in each.findings:
            where = "" if found.path == each.name else f"{each.name}/"
            style = "red" if found.severity is RiskLevel.HIGH else "yellow"
            output.print_line(f"{found.severity.value}: {where}{found}", style=style)
    for left in result.unreadable:
        output.print_line(f"not read: {left.name or left.origin}: {left.reason}", style="yellow")
    held = sum(each.is_held for each in result.scanned)
    with_findings = sum(bool(each.findings) for each in result.scanned)
    told = f"findings in {with_findings}; {held} would need review." if with_findings else "nothing suspicious."
    output.print_line(f"{len(result.scanned)} scanned: {told}")
    if result.second_opinions is not None:
        _print_second_opinions(result.second_opinions)


def _print_second_opinions(again: tuple[ModelSecurityOpinion, ...]) -> None:
    for each in again:
        for doubt in each.doubts:
            where = f"{each.name}/{doubt.path}:{doubt.line}"
            output.print_line(f"{doubt.model} (a model's verdict): {where}: {doubt.why} “{doubt.quote}”", style="dim")
        if each.is_cut:
            output.print_line(
                f"The model was shown only a part of {each.name}: it is too long, or the day's tokens are spent."
            )
    count = sum(len(each.doubts) for each in again)
    output.print_line(
        f"Second opinion: {output.format_quantity(count, 'line')} questioned. You decide; nothing is held for it."
    )


def perform_lint_skills(habitus: Habitus, targets: tuple[str, ...]) -> checking.LintReport:
    with output.show_progress_counter() as progress:
        return checking.lint_skills(habitus, targets, progress)


def print_result_of_lint_skills(context: typer.Context, result: checking.LintReport) -> None:
    for skill in result.skills:
        for found in skill.diagnostics:
            style = "red" if found.severity is Severity.ERROR else "yellow"
            output.print_line(f"{found.severity.value}: {skill.name}: {found.message} {found.hint}", style=style)
    for finding in result.set:
        output.print_line(f"{finding.severity.value}: {finding.message} {finding.hint}", style="yellow")
    with open_habitus(context) as habitus:
        for rule, why in habitus.screening.silence.items():
            output.print_line(f"silenced: {rule}: {why}")
    skills = output.format_quantity(len(result.skills), "skill")
    output.print_line(f"{skills} checked, {result.flagged_count} with findings, {result.error_count} can't be loaded.")
