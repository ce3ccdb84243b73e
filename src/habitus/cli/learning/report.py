"""`habitus report`: renders the report of a month and the rows behind its numbers."""

from __future__ import annotations

import typer

from habitus.app.learning.report_rows import ReportDrillDownPage
from habitus.app.learning.reporting import MonthlyLearningReport
from habitus.cli import inputs, output
from habitus.text import format_dollars


def print_result_of_show_report(context: typer.Context, result: MonthlyLearningReport) -> None:
    went, cost, agents = result.requests, result.cost, result.agent_cost
    output.print_line(f"Learning in {result.month}", style="bold")
    output.print_line(
        f"{output.format_quantity(went.requests, 'request')}: {went.succeeded:,} succeeded, {went.failed:,} failed, "
        f"{went.no_feedback:,} without feedback."
    )
    output.print_line(result.gain_sentence)
    output.print_line(
        f"Changes: {result.proposed} proposed, {result.approved} approved; after comparing in use {result.kept} kept, "
        f"{result.rolled_back} rolled back."
    )
    columns = ("skill", "proposal", "state", "exam", "in use")
    if result.changes:
        rows = [(one.skill, one.proposal, one.state, one.exam, one.in_use) for one in result.changes]
        output.print_table(columns, rows, wide="in use")
    dollars = f", {format_dollars(agents.dollars)}" if agents.priced else ""
    known = f"{agents.tokens:,} tokens{dollars} in {output.format_quantity(agents.metered, 'request')}"
    output.print_line(
        f"Cost of the agents' work: {known if agents.metered else 'not known yet'}; "
        f"{output.format_quantity(agents.unmetered, 'request')} without a report of it."
    )
    dollars = f", {format_dollars(cost.dollars)}" if cost.dollars else ""
    output.print_line(
        f"Cost of learning: {output.format_quantity(cost.rollouts, 'rollout')} with {cost.tokens:,} tokens{dollars}; "
        f"{cost.draft_tokens:,} more for drafts, {cost.budget_tokens:,} more of the daily budget; "
        f"{output.format_quantity(cost.decisions, 'decision')} of people."
    )
    for one in result.unknown:
        output.print_line(f"Not known: {one.unknown} {one.settled_by}")
        about = ("--skill", one.skill, "--version", str(one.version)) if one.skill else ("--month", result.month)
        output.print_line(f"    {output.format_command(context, 'report', 'rows', one.of, *about)}", style="dim")
    rows_of = output.format_command(context, "report", "rows", "failed", "--month", result.month)
    output.print_line(f"What is behind a number: {rows_of}", style="dim")


def print_result_of_list_report_rows(context: typer.Context, result: ReportDrillDownPage) -> None:
    rows = [
        (
            one.turn or (f"proposal {one.proposal}" if one.proposal else one.skill),
            inputs.format_timestamp(one.at),
            one.said,
            "gone" if one.turn and not one.has_text else "",
            f"{one.tokens:,}" if one.tokens else "",
            format_dollars(one.dollars) if one.dollars else "",
        )
        for one in result.rows
    ]
    output.print_table_or_message("None.", ("turn", "at", "outcome", "text", "tokens", "dollars"), rows, wide="outcome")
    output.print_paging_hint(len(rows), result.total, result.next)


print_result_of_list_evidence_rows = print_result_of_list_report_rows
