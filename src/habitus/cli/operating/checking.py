"""`habitus doctor`: checks what works and what does not."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.learning.usage import correct_usage_counters
from habitus.app.operating import checking as use_case
from habitus.app.use_cases import settings
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import print_use_case_result
from habitus.errors import StorageFailed, UserError


def run_doctor(
    context: typer.Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Correct wrong counters of uses first, from the recorded uses.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check what works and what is missing, each with its fix. Exits with 1 if something in use is broken."""
    try:
        with open_habitus(context) as habitus:
            if fix:
                correct_usage_counters(habitus)
            found = settings.check_health(habitus)
    except UserError as error:
        found = settings.HealthReport(checks=use_case.list_checks_for_unusable_home(error))
    # A damaged home can raise anything, and this command exists to report it.
    except Exception as error:
        said = f"The home can't be read: {type(error).__name__}: {error}."
        unread = StorageFailed(said, hint="Restore a backup; skills on disk stay.")
        found = settings.HealthReport(checks=use_case.list_checks_for_unusable_home(unread))
    print_use_case_result(context, found, _print_checks, as_json=as_json)


def _print_checks(context: typer.Context, result: settings.HealthReport) -> None:
    rows = [(check.name, check.state, f"{check.detail} {check.hint}".strip()) for check in result.checks]
    output.print_table(("check", "state", "detail"), rows, wide="detail")
