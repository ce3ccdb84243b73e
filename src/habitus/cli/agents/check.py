"""`habitus check`: inspects other agents' skills and transcripts in place and prints each finding with its fix."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.other_agents.agent_skills import AgentRemark
from habitus.app.other_agents.examining import AgentExaminer, AgentReport
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.errors import StorageFailed
from habitus.files import parse_user_path
from habitus.hosts.known_agents import STUDIED_AGENTS
from habitus.sandbox.credentials.vault import open_redactor
from habitus.screening.findings import read_policy

# The first report fits on the smallest usual terminal.
MAX_LINES, MAX_WIDTH = 24, 80


def check_agents(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option("--agent", help=f"Only this one: {', '.join(STUDIED_AGENTS)}.", show_default=False)
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write an HTML report to share.", show_default=False)
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all findings in full.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find recurring failures of your agents and faults in their skills. Changes nothing."""
    settings = read_settings(context.find_root().obj)
    with output.show_progress_counter(is_quiet=as_json, label="reading transcripts") as progress:
        examiner = AgentExaminer(
            home=Path.home(),
            environ=os.environ,
            cwd=settings.cwd,
            now=datetime.now(UTC),
            redactor=open_redactor(settings.home, os.environ),
            policy=read_policy(settings.home),
            on_progress=progress,
        )
        reports = examiner.examine(agent)
    if html is not None:
        _write_html_report(html, render_html_report(reports, datetime.now(UTC)))
    if as_json:
        output.print_json({"agents": reports})
        return
    # Agents share the screen evenly; lines that one leaves over go to the next.
    left = MAX_LINES - 1
    for number, report in enumerate(reports):
        left -= _print_full_report(report) if verbose else _print_short_report(report, left // (len(reports) - number))
    written = f"{html} was written" if html is not None else "nothing was written"
    output.print_line(f"No data was sent, no tokens were spent, {written}.")


def _write_html_report(path: Path, text: str) -> None:
    try:
        parse_user_path(str(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} can't be written: {error.strerror}.", hint="Name another file.") from None


def _print_short_report(report: AgentReport, line_limit: int) -> int:
    """Print the costliest findings within the given number of lines; return how many lines were used."""
    _print_counts(report)
    used = 1
    for number, remark in enumerate(report.remarks):
        lines = textwrap.wrap(f"{remark.topic.value}: {remark.what}", MAX_WIDTH - 2, max_lines=2, placeholder=" …")
        lines = [f"  {line}" for line in lines]
        lines += [f"    {remark.hint}"] if len(remark.hint) <= MAX_WIDTH - 4 else []
        if used + len(lines) >= line_limit:
            output.print_line(f"  And {len(report.remarks) - number} more: habitus check --verbose", style="dim")
            return used + 1
        used += len(lines)
        output.print_line("\n".join(lines))
    return used


def _print_full_report(report: AgentReport) -> int:
    """Print every finding in full."""
    _print_counts(report)
    for remark in report.remarks:
        output.print_line(f"  {remark.topic.value}: {remark.what}")
        output.print_line(f"    {remark.hint}", style="green")
    return 0


def _print_counts(report: AgentReport) -> None:
    counts = f"{output.format_count(report.skills, 'skill')}, {output.format_count(report.sessions, 'session')}"
    nothing = "" if report.remarks else " Nothing to fix."
    output.print_line(f"{report.label}: {counts}, {output.format_count(report.calls, 'call')}.{nothing}", style="bold")


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2rem; } li { margin: .8rem 0; } code { background: #eee; padding: .1rem .3rem; word-break: break-all; }
.topic { font-weight: 600; } footer { margin-top: 3rem; color: #666; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } code { background: #333; } }
"""


def render_html_report(reports: Sequence[AgentReport], now: datetime) -> str:
    """Return the reports as a self-contained HTML page."""
    # The page is sent to colleagues: its policy forbids scripts and requests, whatever a transcript holds.
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>habitus check</title><style>{_STYLE}</style></head><body>
<h1>Agent report</h1>
{"".join(map(_render_agent_section, reports))}
<footer>Made by <code>habitus check</code> on {now:%Y-%m-%d}. Nothing was sent; secrets were removed.</footer>
</body></html>
"""


def _render_agent_section(report: AgentReport) -> str:
    items = "".join(map(_render_remark, report.remarks)) or "<li>Nothing to fix.</li>"
    counts = f"{report.skills} skills, {report.sessions} sessions, {report.calls} calls"
    return f"<h2>{escape(report.label)}</h2><p>{counts}</p><ul>{items}</ul>"


def _render_remark(remark: AgentRemark) -> str:
    return (
        f'<li><span class="topic">{escape(remark.topic.value)}</span>: {escape(remark.what)}<br>'
        f"<code>{escape(remark.hint)}</code></li>"
    )
