"""`habitus tools …`: renders results; `use_cases/tools.py` does the work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer

from habitus.app import Habitus
from habitus.app.conversations.running_code import ShownTool
from habitus.app.use_cases import tools
from habitus.app.use_cases.tools import (
    NewTool,
    OneTool,
    RestoredTool,
    ToolCall,
    ToolList,
    ToolNames,
    ToolPage,
    ToolTestReport,
    ToolTestReports,
)
from habitus.cli import inputs, output
from habitus.cli.completion import Wide
from habitus.redact import taken_out
from habitus.sandbox.model import ToolRun
from habitus.tasks.model import SHAPE_ONLY
from habitus.tools.model import CodeTool, Created, Retired, asked_for


def confirm_new(habitus: Habitus, wanted: NewTool, say: Callable[..., None]) -> str:
    """Show the permissions that the code asks for and return the question; empty if it asks for none."""
    words = asked_for(wanted.permissions)
    if not words:
        return ""
    say("It asks for permission to:")
    for word in words:
        say(f"  {word}", style="yellow")
    return f"It wants to {', '.join(words)}. Grant that?"


def perform_new(habitus: Habitus, wanted: NewTool) -> Created:
    _say_progress("Testing it in the sandbox …")
    return tools.new(habitus, wanted)


def new(context: typer.Context, wanted: NewTool, done: Created) -> None:
    output.say(f"{done.name} works: kept as version {done.version}, with its payload as a test case.")


def list_tools(context: typer.Context, wanted: ToolList, done: ToolPage, wide: Wide = False) -> None:
    rows = [(t.name, t.status.value, t.layer, f"v{t.version}", t.reason or t.description) for t in done.tools]
    rows += [(t.name, "retired", "", "", f"{t.reason}; habitus {' '.join(t.undo)}") for t in done.retired]
    columns = ("name", "status", "layer", "version", "what it does")
    empty = "There are no tools yet. Make one: habitus tools new NAME --description … --code FILE"
    output.rows_or(empty, columns, rows, wide="what it does", is_cut=not wide)
    output.say_more(len(done.tools), done.total, done.next)


def show(context: typer.Context, wanted: OneTool, done: ShownTool) -> None:
    tool, counters = done.tool, done.counters
    facts = [
        ("name", f"{tool.name}@{tool.layer}"),
        ("called as", tool.callable_name),
        ("status", f"{tool.status}: {tool.reason}" if tool.reason else tool.status.value),
        ("description", tool.description),
        ("parameters", json.dumps(tool.parameters, ensure_ascii=False)),
        ("example", "" if tool.example is None else json.dumps(tool.example, ensure_ascii=False)),
        ("may", ", ".join(asked_for(tool.permissions)) or "nothing beyond its own empty folder"),
        ("needs", ", ".join(tool.dependencies)),
        ("cases", _cases(tool)),
        ("version", str(tool.version)),
        ("calls", f"{output.count_of(counters.used, 'call')}, {counters.succeeded} ok, {counters.failed} failed"),
    ]
    output.say_facts(facts)
    output.say()
    output.say(done.code)


def _cases(tool: CodeTool) -> str:
    """Return how many test cases a tool has and whether they passed."""
    passed = f"passed {inputs.format_timestamp(tool.proved_on)}" if tool.proved_on else "stale"
    by_shape = f"; {tool.by_shape} by shape only" if tool.by_shape else ""
    return f"{tool.cases}, {passed}{by_shape}{'' if tool.is_compared else '; compared with nothing'}"


def check_run(habitus: Habitus, given: Mapping[str, Any]) -> None:
    """Raise `NotFound` for an unknown tool before its arguments are read."""
    habitus.tools.get(given["name"])


def run(context: typer.Context, wanted: ToolCall, done: ToolRun) -> None:
    output.write(output.clean(done.stdout))
    if done.is_failed:
        output.complain(done.stderr)
        output.complain(f"habitus: {wanted.name} {done.outcome.kind.value}: {done.outcome.reason}")
    if done.notice:
        output.complain(f"habitus: {done.notice}")
    output.tell_taken_out(taken_out(done.stdout))


def perform_run_cases(habitus: Habitus, wanted: ToolNames) -> ToolTestReports:
    return tools.run_cases_of(habitus, wanted, lambda name: _say_progress(f"Testing {name} …"))


def run_cases(context: typer.Context, wanted: ToolNames, done: ToolTestReports) -> None:
    for one in done.tested:
        _print_report(one)


def _print_report(one: ToolTestReport) -> None:
    report = one.report
    passed = sum(result.outcome.is_ok for result in report.results)
    stale = ", which were stale" if report.was_stale and report.results else ""
    by_shape = sum(result.compares == SHAPE_ONLY for result in report.results)
    compared = f"; of {by_shape} only the shape is compared" if by_shape else ""
    output.say(f"{one.name}: {passed} of {output.count_of(len(report.results), 'case')} passed{stale}{compared}.")
    for result in report.results:
        if not result.outcome.is_ok:
            payload = json.dumps(result.payload, ensure_ascii=False)
            output.say(f"  {result.outcome.kind.value} on {payload[:100]}: {result.outcome.reason}", style="red")


def remove(context: typer.Context, wanted: OneTool, done: Retired) -> None:
    output.say(f"The tool {done.name} is gone.")


def restore(context: typer.Context, wanted: OneTool, done: RestoredTool) -> None:
    output.say(f"The tool {done.tool.name} is back ({done.tool.status}).")


def _say_progress(text: str) -> None:
    """Print a progress line if standard error is a terminal."""
    if sys.stderr.isatty():
        output.complain(text)
