"""`habitus doctor` and `habitus skills lint`: finding out what works, and what is odd about skills."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.operating import checking as use_case
from habitus.app.use_cases import settings
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.settings import HealthReport
from habitus.cli import completion, output
from habitus.cli.completion import AsJson
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import finish
from habitus.errors import StorageFailed, UserError
from habitus.skills.model import Severity


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """What works, what is missing, and the exact mend. Exit code 1 when something in use is broken."""
    try:
        with open_habitus(context) as habitus:
            found = settings.doctor(habitus, Nothing())
    except UserError as error:
        found = HealthReport(checks=use_case.unusable(error))
    except Exception as error:  # whatever a home in disorder leads to, this is the command that has to say so
        said = f"The home can't be read: {type(error).__name__}: {error}."
        unread = StorageFailed(said, mend="Put a backup in its place; skills on disk stay.")
        found = HealthReport(checks=use_case.unusable(unread))
    finish(context, Nothing(), found, _print_checks, as_json=as_json)


def _print_checks(context: typer.Context, wanted: Nothing, done: HealthReport) -> None:
    rows = [(check.name, check.state, f"{check.detail} {check.mend}".strip()) for check in done.checks]
    output.table(("check", "state", "detail"), rows, wide="detail")


def lint(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Skills or directories; everything you can write by default.",
            autocompletion=completion.skill_names,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What is wrong or odd with skills, one by one and as a set, each with its mend. Exit code 1 for broken ones."""
    with open_habitus(context) as habitus:
        with output.counting(is_quiet=as_json) as progress:
            report = use_case.lint(habitus, targets or (), progress)
        if as_json:
            output.print_json(report)
        else:
            for skill in report.skills:
                for found in skill.diagnostics:
                    style = "red" if found.severity is Severity.ERROR else "yellow"
                    output.say(f"{found.severity.value}: {skill.name}: {found.what} {found.mend}", style=style)
            for finding in report.set:
                output.say(f"{finding.severity.value}: {finding.what} {finding.mend}", style="yellow")
            for rule, why in habitus.screening.silence.items():
                output.say(f"silenced: {rule}: {why}")
            output.say(
                f"{output.count_of(len(report.skills), 'skill')} looked at, {report.odd} with something to say, "
                f"{report.broken} can't be loaded."
            )
        if report.broken:
            raise typer.Exit(1)
