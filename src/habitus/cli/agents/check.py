"""`habitus check`: inspects other agents' skills and transcripts in place and prints each finding with its fix."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import read_settings
from habitus.app.library.content import SCANS_FILE, ScanCache
from habitus.app.other_agents.agent_skills import AgentRemark, RemarkTopic
from habitus.app.other_agents.auditing import AgentAuditor, AgentAuditReport
from habitus.app.other_agents.connecting import PLUGIN_AGENT, find_enabled_plugin, list_connectable_agents
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.errors import StorageFailed
from habitus.files import parse_user_path
from habitus.hosts.known_agents import CONNECTABLE_AGENTS, STUDIED_AGENTS
from habitus.optional_packages import suggest_permanent_install_command
from habitus.sandbox.credentials.vault import build_redactor_with_vault_secrets
from habitus.screening.findings import read_screening_policy
from habitus.settings import Settings

# The first report fits on the smallest usual terminal.
MAX_LINES, MAX_WIDTH = 24, 80
# More is not read; the rest is behind --verbose.
MAX_FINDINGS = 7
_ABOUT_SKILLS = (RemarkTopic.BROKEN, RemarkTopic.COPY)


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
    # Reads the scans that imports and lint kept; `save` is not called, because nothing is written.
    scans = ScanCache(settings.home / SCANS_FILE)
    # What the sessions say is printed while the skills are still scanned.
    screen = TopFindingsPrinter(is_quiet=as_json or verbose)
    with ExitStack() as counter:

        def print_session_findings(found: Sequence[AgentAuditReport]) -> None:
            counter.close()  # or the first line would stand behind the count
            screen.print_session_findings(found)

        progress = counter.enter_context(
            output.show_progress_counter(is_quiet=as_json, label="reading", unit="transcripts")
        )
        examiner = AgentAuditor(
            home=Path.home(),
            environ=os.environ,
            cwd=settings.cwd,
            now=datetime.now(UTC),
            redactor=build_redactor_with_vault_secrets(settings.home, os.environ),
            scan=partial(scans.list_high_risk_scan_findings, policy=read_screening_policy(settings.home)),
            on_progress=progress,
        )
        reports = examiner.audit_agents(agent, print_session_findings)
    if html is not None:
        _write_html_report(html, render_html_report(reports, datetime.now(UTC)))
    if as_json:
        output.print_json({"agents": reports})
        return
    if verbose:
        for report in reports:
            _print_all_findings_of_agent(report)
    screen.print_skill_findings(reports)
    written = f"{html} was written" if html is not None else "nothing was written"
    output.print_line(f"No data was sent, no tokens were spent, {written}.")
    if next_step := _describe_next_step(settings, reports):
        output.print_line(next_step, style="bold")


def _describe_next_step(settings: Settings, reports: Sequence[AgentAuditReport]) -> str:
    """Return how to connect the busiest agent that is not connected, else how to keep lessons; may be empty."""
    connected = {one.name for one in list_connectable_agents(settings, os.environ) if one.is_connected}
    if find_enabled_plugin(settings, os.environ):
        connected.add(PLUGIN_AGENT)
    offered = [each for each in reports if each.agent in CONNECTABLE_AGENTS.keys() - connected]
    if offered:
        most = max(offered, key=lambda each: each.sessions)
        commands = [*filter(None, [suggest_permanent_install_command()]), f"habitus connect {most.agent}"]
        return f"Let {most.label} know the next time: {' && '.join(commands)}"
    is_taught = any(
        remark.topic in (RemarkTopic.RULE, RemarkTopic.LESSON) for each in reports for remark in each.remarks
    )
    return "Keep what was found: habitus learn --apply" if is_taught else ""


def _write_html_report(path: Path, text: str) -> None:
    try:
        parse_user_path(str(path)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} can't be written: {error.strerror}.", hint="Name another file.") from None


@dataclass(slots=True)
class TopFindingsPrinter:
    """The findings of all agents that a person would act on, as many as fit, printed as they are known."""

    is_quiet: bool
    _rows: int = 0
    # The findings shown, and how many agents have each.
    _shown: dict[tuple[RemarkTopic, str], int] = field(default_factory=dict)

    def print_session_findings(self, reports: Sequence[AgentAuditReport]) -> None:
        """Print what was read, and what keeps failing with its remedy."""
        if self.is_quiet:
            return
        for report in reports:
            counts = (
                f"{output.format_quantity(report.sessions, 'session')}, {output.format_quantity(report.calls, 'call')}"
            )
            self._print_and_count_lines(f"{report.label}: {counts}.", style="bold")
        self._print_urgent_findings_that_fit(reports)

    def print_skill_findings(self, reports: Sequence[AgentAuditReport]) -> None:
        """Print what is wrong with the skills, and how many findings are left."""
        if self.is_quiet:
            return
        self._print_urgent_findings_that_fit(reports)
        if not any(report.remarks for report in reports):
            self._print_and_count_lines("Nothing to fix.")
        left = sum(len(report.remarks) for report in reports) - sum(self._shown.values())
        if left:
            self._print_and_count_lines(f"And {left} more: habitus check --verbose", style="dim")

    def _print_urgent_findings_that_fit(self, reports: Sequence[AgentAuditReport]) -> None:
        topics = list(RemarkTopic)
        found: dict[tuple[RemarkTopic, str], dict[str, AgentRemark]] = {}
        for report in reports:
            for each in report.remarks:
                if each.is_urgent:
                    found.setdefault((each.topic, each.about or each.what), {}).setdefault(report.label, each)
        for key, agents in sorted(found.items(), key=lambda one: topics.index(one[0][0])):
            remark = next(iter(agents.values()))
            where = f" in {', '.join(agents)}" if len(reports) > 1 else ""
            lines = textwrap.wrap(f"{remark.topic.value}{where}: {remark.what}", MAX_WIDTH - 2, max_lines=4)
            if remark.topic in _ABOUT_SKILLS and len(remark.hint) <= MAX_WIDTH - 4:
                lines.append(f"  {remark.hint}")
            # Below the findings there is room for three lines.
            if key in self._shown or len(self._shown) >= MAX_FINDINGS or self._rows + len(lines) > MAX_LINES - 3:
                continue
            self._shown[key] = len(agents)
            self._print_and_count_lines("\n".join(f"  {line}" for line in lines), rows=len(lines))

    def _print_and_count_lines(self, text: str, *, rows: int = 1, style: str = "") -> None:
        self._rows += rows
        output.print_line(text, style=style)


def _print_all_findings_of_agent(report: AgentAuditReport) -> None:
    """Print every finding in full."""
    _print_skill_session_and_call_counts(report)
    for remark in report.remarks:
        output.print_line(f"  {remark.topic.value}: {remark.what}")
        output.print_line(f"    {remark.hint}", style="green")


def _print_skill_session_and_call_counts(report: AgentAuditReport) -> None:
    counts = f"{output.format_quantity(report.skills, 'skill')}, {output.format_quantity(report.sessions, 'session')}"
    nothing = "" if report.remarks else " Nothing to fix."
    output.print_line(
        f"{report.label}: {counts}, {output.format_quantity(report.calls, 'call')}.{nothing}", style="bold"
    )


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2rem; } li { margin: .8rem 0; } code { background: #eee; padding: .1rem .3rem; word-break: break-all; }
.topic { font-weight: 600; } footer { margin-top: 3rem; color: #666; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } code { background: #333; } }
"""


def render_html_report(reports: Sequence[AgentAuditReport], now: datetime) -> str:
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


def _render_agent_section(report: AgentAuditReport) -> str:
    items = "".join(map(_render_finding_as_list_item, report.remarks)) or "<li>Nothing to fix.</li>"
    counts = f"{report.skills} skills, {report.sessions} sessions, {report.calls} calls"
    return f"<h2>{escape(report.label)}</h2><p>{counts}</p><ul>{items}</ul>"


def _render_finding_as_list_item(remark: AgentRemark) -> str:
    return (
        f'<li><span class="topic">{escape(remark.topic.value)}</span>: {escape(remark.what)}<br>'
        f"<code>{escape(remark.hint)}</code></li>"
    )
