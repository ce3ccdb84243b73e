"""`habitus check`: another agent's skills and transcripts looked at in place, each finding with its mend."""

from __future__ import annotations

import os
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
from habitus.sandbox.credentials.vault import open_redactor
from habitus.screening.policy import read_policy


def check(
    context: typer.Context,
    agent: Annotated[
        str,
        typer.Option("--agent", help="Only this one: claude-code, codex, gemini-cli, opencode.", show_default=False),
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page to send to a colleague.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at the agents you have: what fails again and again, and what is wrong with their skills. Changes nothing."""
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
    for report in reports:
        _print(report)
    written = f"{html} was written" if html is not None else "nothing was written"
    output.say(f"Nothing was sent or spent, {written}.")


def _write(path: Path, text: str) -> None:
    try:
        given_path(str(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} can't be written: {error.strerror}.", mend="Name another file.") from None


def _print(report: AgentReport) -> None:
    counts = f"{output.counted(report.skills, 'skill')}, {output.counted(report.sessions, 'session')}"
    output.say(f"{report.label}: {counts}, {output.counted(report.calls, 'call')}.", style="bold")
    if not report.remarks:
        output.say("  Nothing to mend.")
    for remark in report.remarks:
        output.say(f"  {remark.topic.value}: {remark.what}")
        output.say(f"    {remark.mend}", style="green")
