"""`habitus check`: another agent's skills and transcripts looked at in place, each finding with its mend."""

from __future__ import annotations

import os
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.other_agents.examining import AgentReport, Examiner
from habitus.cli import output
from habitus.cli.check_page import page
from habitus.cli.options import AsJson
from habitus.errors import StorageFailed
from habitus.files import given_path
from habitus.hosts.table import STUDIED
from habitus.sandbox.credentials.vault import open_redactor
from habitus.screening.findings import read_policy

LINES, WIDTH = 24, 80  # of the first look


def check(
    context: typer.Context,
    agent: Annotated[
        str,
        typer.Option("--agent", help=f"Only this one: {', '.join(STUDIED)}.", show_default=False),
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page to send to a colleague.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Everything, in full.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what keeps failing in your agents, and faults of their skills. Changes nothing."""
    settings = read_settings(context.find_root().obj)
    with output.counting(is_quiet=as_json, doing="reading transcripts") as progress:
        examiner = Examiner(
            home=Path.home(),
            environ=os.environ,
            cwd=settings.cwd,
            now=datetime.now(UTC),
            redactor=open_redactor(settings.home, os.environ),
            policy=read_policy(settings.home),
            progress=progress,
        )
        reports = examiner.examine(agent)
    if html is not None:
        _write(html, page(reports, datetime.now(UTC)))
    if as_json:
        output.print_json({"agents": reports})
        return
    left = LINES - 1
    for number, report in enumerate(reports):
        left -= _print_whole(report) if verbose else _print(report, left // (len(reports) - number))
    written = f"{html} was written" if html is not None else "nothing was written"
    output.say(f"Nothing was sent or spent, {written}.")


def _write(path: Path, text: str) -> None:
    try:
        given_path(str(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} can't be written: {error.strerror}.", mend="Name another file.") from None


def _print(report: AgentReport, room: int) -> int:
    """Within the room there is, the most costly first; how many lines it took."""
    _print_counts(report)
    used = 1
    for number, remark in enumerate(report.remarks):
        lines = textwrap.wrap(f"{remark.topic.value}: {remark.what}", WIDTH - 2, max_lines=2, placeholder=" …")
        lines = [f"  {line}" for line in lines]
        lines += [f"    {remark.mend}"] if len(remark.mend) <= WIDTH - 4 else []
        if used + len(lines) >= room:
            output.say(f"  And {len(report.remarks) - number} more: habitus check --verbose", style="dim")
            return used + 1
        used += len(lines)
        output.say("\n".join(lines))
    return used


def _print_whole(report: AgentReport) -> int:
    _print_counts(report)
    for remark in report.remarks:
        output.say(f"  {remark.topic.value}: {remark.what}")
        output.say(f"    {remark.mend}", style="green")
    return 0


def _print_counts(report: AgentReport) -> None:
    counts = f"{output.count_of(report.skills, 'skill')}, {output.count_of(report.sessions, 'session')}"
    nothing = "" if report.remarks else " Nothing to mend."
    output.say(f"{report.label}: {counts}, {output.count_of(report.calls, 'call')}.{nothing}", style="bold")
