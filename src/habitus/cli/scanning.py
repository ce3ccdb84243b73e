"""`habitus skills scan`: looking at content before it is taken in."""

from __future__ import annotations

from typing import Annotated

import typer

from habitus.app.library import scanning as use_case
from habitus.app.library.scanning import ScanReport
from habitus.cli import output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson
from habitus.screening.findings import Risk, by_kind


def scan(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A file, a directory or an archive.")],
    as_json: AsJson = False,
) -> None:
    """What is suspicious about skills, or any files, that are not here yet. Exit code 1 if an import would wait."""
    with opened(context) as habitus:
        report = use_case.look_at(habitus.screening, path)
    if as_json:
        output.print_json({"held": report.is_held, **output.plain(report)})
    else:
        _print_report(report)
    if report.is_held:
        raise typer.Exit(1)


def _print_report(report: ScanReport) -> None:
    for each in report.scanned:
        for kind in by_kind(each.findings):
            where = "" if kind.first.path == each.name else f"{each.name}/"
            style = "red" if kind.first.severity is Risk.HIGH else "yellow"
            output.say(f"{kind.first.severity.value}: {where}{kind}", style=style)
    for left in report.not_read:
        output.say(f"not read: {left.name or left.origin}: {left.reason}", style="yellow")
    held = sum(each.is_held for each in report.scanned)
    with_findings = sum(bool(each.findings) for each in report.scanned)
    told = f"findings in {with_findings}; {held} would wait for you." if with_findings else "nothing suspicious."
    output.say(f"{len(report.scanned)} scanned: {told}")
