"""`habitus tools …`: renders results; `use_cases/tools.py` does the work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import typer

from habitus.app import Habitus
from habitus.app.conversations.running_code import ToolDetails
from habitus.app.use_cases import tools
from habitus.cli import inputs, output
from habitus.cli.completion import WideOption
from habitus.redact import count_redactions
from habitus.sandbox.model import ToolRunResult
from habitus.tasks.model import SHAPE_ONLY
from habitus.tools.model import CodeTool, RetiredTool, ToolCreationResult, describe_permissions


def get_question_before_create_tool(
    habitus: Habitus, request: tools.CreateToolRequest, print_line: Callable[..., None]
) -> str:
    """Show the permissions that the code asks for and return the question; empty if it asks for none."""
    words = describe_permissions(request.permissions)
    if not words:
        return ""
    print_line("It asks for permission to:")
    for word in words:
        print_line(f"  {word}", style="yellow")
    return f"Allow it to {', '.join(words)}?"


def perform_create_tool(habitus: Habitus, request: tools.CreateToolRequest) -> ToolCreationResult:
    _print_progress_to_terminal("Testing it in the sandbox …")
    return tools.create_tool(habitus, request)


def print_result_of_create_tool(context: typer.Context, result: ToolCreationResult) -> None:
    output.print_line(f"{result.name} works: saved as version {result.version}, with its payload as a test case.")


def print_result_of_list_tools(context: typer.Context, result: tools.ToolPage, wide: WideOption = False) -> None:
    rows = [(t.name, t.status.value, t.layer, f"v{t.version}", t.reason or t.description) for t in result.tools]
    rows += [(t.name, "retired", "", "", f"{t.reason}; habitus {' '.join(t.undo)}") for t in result.retired]
    columns = ("name", "status", "layer", "version", "description")
    empty = "No tools yet. Create one: habitus tools new NAME --description … --code FILE"
    output.print_table_or_message(empty, columns, rows, wide="description", is_cut=not wide)
    output.print_paging_hint(len(result.tools), result.total, result.next)


def print_result_of_show_tool(context: typer.Context, result: ToolDetails) -> None:
    tool, counters = result.tool, result.counters
    facts = [
        ("name", f"{tool.name}@{tool.layer}"),
        ("called as", tool.callable_name),
        ("status", f"{tool.status}: {tool.reason}" if tool.reason else tool.status.value),
        ("description", tool.description),
        ("parameters", json.dumps(tool.parameters, ensure_ascii=False)),
        ("example", "" if tool.example is None else json.dumps(tool.example, ensure_ascii=False)),
        ("may", ", ".join(describe_permissions(tool.permissions)) or "only its own empty folder"),
        ("needs", ", ".join(tool.dependencies)),
        ("cases", _describe_test_case_results(tool)),
        ("version", str(tool.version)),
        (
            "calls",
            f"{output.format_quantity(counters.used, 'call')}, {counters.succeeded} ok, {counters.failed} failed",
        ),
    ]
    output.print_labelled_values(facts)
    output.print_line()
    output.print_line(result.code)


def _describe_test_case_results(tool: CodeTool) -> str:
    """Return how many test cases a tool has and whether they passed."""
    passed = f"passed {inputs.format_timestamp(tool.proved_on)}" if tool.proved_on else "stale"
    by_shape = f"; {tool.by_shape} by shape only" if tool.by_shape else ""
    return f"{tool.cases}, {passed}{by_shape}{'' if tool.is_compared else '; not compared'}"


def check_before_run_tool(habitus: Habitus, name: str) -> None:
    """Raise `NotFound` for an unknown tool before its arguments are read."""
    habitus.tools.get(name)


def print_result_of_run_tool(context: typer.Context, result: ToolRunResult, name: str) -> None:
    output.write_stdout(output.strip_control_characters(result.stdout))
    if result.is_failed:
        output.print_line_to_stderr(result.stderr)
        output.print_line_to_stderr(f"habitus: {name} {result.outcome.kind.value}: {result.outcome.reason}")
    if result.notice:
        output.print_line_to_stderr(f"habitus: {result.notice}")
    output.print_redacted_secret_counts(count_redactions(result.stdout))


def perform_run_tool_cases(habitus: Habitus, names: tuple[str, ...]) -> tools.RunToolCasesResult:
    return tools.run_tool_cases_with_progress(
        habitus, names, lambda name: _print_progress_to_terminal(f"Testing {name} …")
    )


def print_result_of_run_tool_cases(context: typer.Context, result: tools.RunToolCasesResult) -> None:
    for one in result.tested:
        _print_test_report(one)


def _print_test_report(one: tools.ToolTestReport) -> None:
    report = one.report
    passed = sum(result.outcome.is_ok for result in report.results)
    stale = ", which were stale" if report.was_stale and report.results else ""
    by_shape = sum(result.compares == SHAPE_ONLY for result in report.results)
    compared = f"; of {by_shape} only the shape is compared" if by_shape else ""
    output.print_line(
        f"{one.name}: {passed} of {output.format_quantity(len(report.results), 'case')} passed{stale}{compared}."
    )
    for result in report.results:
        if not result.outcome.is_ok:
            payload = json.dumps(result.payload, ensure_ascii=False)
            output.print_line(f"  {result.outcome.kind.value} on {payload[:100]}: {result.outcome.reason}", style="red")


def print_result_of_remove_tool(context: typer.Context, result: RetiredTool) -> None:
    output.print_line(f"The tool {result.name} was removed.")


def print_result_of_restore_tool(context: typer.Context, result: tools.RestoreToolResult) -> None:
    output.print_line(f"The tool {result.tool.name} was restored ({result.tool.status}).")


def _print_progress_to_terminal(text: str) -> None:
    """Print a progress line if standard error is a terminal."""
    if sys.stderr.isatty():
        output.print_line_to_stderr(text)
