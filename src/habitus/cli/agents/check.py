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
from habitus.app.other_agents.agent_skills import Remark
from habitus.app.other_agents.examining import AgentReport, Examiner
from habitus.cli import output
from habitus.cli.completion import AsJson
from habitus.errors import StorageFailed
from habitus.files import given_path
from habitus.hosts.known_agents import STUDIED
from habitus.sandbox.credentials.vault import open_redactor
from habitus.screening.findings import read_policy

# The first report fits on the smallest usual terminal.
LINES, WIDTH = 24, 80


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
    """Find recurring failures of your agents and faults in their skills. Changes nothing."""
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
    # Agents share the screen evenly; lines that one leaves over go to the next.
    left = LINES - 1
    for number, report in enumerate(reports):
        left -= _print_whole(report) if verbose else _print(report, left // (len(reports) - number))
    written = f"{html} was written" if html is not None else "nothing was written"
    output.say(f"Nothing was sent or spent, {written}.")


def _write(path: Path, text: str) -> None:
    try:
        given_path(str(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} can't be written: {error.strerror}.", hint="Name another file.") from None


def _print(report: AgentReport, room: int) -> int:
    """Print the costliest findings within the given number of lines; return how many lines were used."""
    _print_counts(report)
    used = 1
    for number, remark in enumerate(report.remarks):
        lines = textwrap.wrap(f"{remark.topic.value}: {remark.what}", WIDTH - 2, max_lines=2, placeholder=" …")
        lines = [f"  {line}" for line in lines]
        lines += [f"    {remark.hint}"] if len(remark.hint) <= WIDTH - 4 else []
        if used + len(lines) >= room:
            output.say(f"  And {len(report.remarks) - number} more: habitus check --verbose", style="dim")
            return used + 1
        used += len(lines)
        output.say("\n".join(lines))
    return used


def _print_whole(report: AgentReport) -> int:
    """Print every finding in full."""
    _print_counts(report)
    for remark in report.remarks:
        output.say(f"  {remark.topic.value}: {remark.what}")
        output.say(f"    {remark.hint}", style="green")
    return 0


def _print_counts(report: AgentReport) -> None:
    counts = f"{output.count_of(report.skills, 'skill')}, {output.count_of(report.sessions, 'session')}"
    nothing = "" if report.remarks else " Nothing to fix."
    output.say(f"{report.label}: {counts}, {output.count_of(report.calls, 'call')}.{nothing}", style="bold")


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2rem; } li { margin: .8rem 0; } code { background: #eee; padding: .1rem .3rem; word-break: break-all; }
.topic { font-weight: 600; } footer { margin-top: 3rem; color: #666; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } code { background: #333; } }
"""


def page(reports: Sequence[AgentReport], now: datetime) -> str:
    """Return the reports as a self-contained HTML page."""
    # The page is sent to colleagues: its policy forbids scripts and requests, whatever a transcript holds.
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>habitus check</title><style>{_STYLE}</style></head><body>
<h1>What your agents could do better</h1>
{"".join(map(_section, reports))}
<footer>Made by <code>habitus check</code> on {now:%Y-%m-%d}. Nothing was sent; secrets were taken out.</footer>
</body></html>
"""


def _section(report: AgentReport) -> str:
    items = "".join(map(_item, report.remarks)) or "<li>Nothing to fix.</li>"
    counts = f"{report.skills} skills, {report.sessions} sessions, {report.calls} calls"
    return f"<h2>{escape(report.label)}</h2><p>{counts}</p><ul>{items}</ul>"


def _item(remark: Remark) -> str:
    return (
        f'<li><span class="topic">{escape(remark.topic.value)}</span>: {escape(remark.what)}<br>'
        f"<code>{escape(remark.hint)}</code></li>"
    )
