"""`habitus tools …`: make, list, run, test, remove and bring back tools, without an agent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from habitus.app import Habitus, json_shapes
from habitus.app.conversations import running_code
from habitus.cli import completion, inputs, output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.redact import taken_out
from habitus.sandbox.model import Permissions
from habitus.tasks.model import SHAPE_ONLY
from habitus.tools.model import CodeTool, Regression, asked_for

Name = Annotated[str, typer.Argument(help="A tool.", autocompletion=completion.skill_names)]
_NO_PARAMETERS = '{"type": "object", "properties": {}}'
Done = TypeVar("Done")


def new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The name: lower-case letters, digits and hyphens.")],
    description: Annotated[str, typer.Option("--description", "-d", help="One sentence: what it does.")],
    code: Annotated[str, typer.Option("--code", help="The Python file ('-' reads standard input).")],
    payload: Annotated[str, typer.Option("--payload", "-p", help="JSON it must work on, or a file with it.")] = "{}",
    schema: Annotated[
        str, typer.Option("--schema", "-s", help="JSON Schema of its parameters, or a file with it.")
    ] = _NO_PARAMETERS,
    network: Annotated[bool, typer.Option("--network", help="Let it use the network.")] = False,
    read: Annotated[list[Path] | None, typer.Option("--read", help="Let it read this file or folder.")] = None,
    write: Annotated[list[Path] | None, typer.Option("--write", help="Let it read and change this folder.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="Let it see this variable.")] = None,
    needs: Annotated[list[str] | None, typer.Option("--needs", help="A package it needs, e.g. 'pandas>=2'.")] = None,
    drop_cases: Annotated[
        bool, typer.Option("--drop-cases", help="It need not pass the cases of the tool it replaces.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Grant what it asks for without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a tool: its code is run in the sandbox on the payload, and kept when it works."""
    parameters, example = inputs.read_json(schema, "schema"), inputs.read_json(payload, "payload")
    text = inputs.read_text(code)
    wanted = Permissions(
        network=network,
        read=tuple(path.absolute() for path in read or ()),
        write=tuple(path.absolute() for path in write or ()),
        env=tuple(env or ()),
    )
    with open_habitus(context) as habitus:
        _ask_for(wanted, yes=yes, as_json=as_json)
        _progress("Testing it in the sandbox …")
        created = _run(
            habitus,
            lambda: habitus.tools.create(
                name,
                description,
                parameters,
                text,
                example,
                habitus.person("new tool"),
                permissions=wanted,
                dependencies=tuple(needs or ()),
                drop_cases=drop_cases,
            ),
        )
        said = f"{created.name} works: kept as version {created.version}, with its payload as a test case."
        output.say_done(context, as_json, created, said, undo=created.undo)


def _ask_for(wanted: Permissions, *, yes: bool, as_json: bool) -> None:
    """Show what the code would be allowed, and let a person decide."""
    words = asked_for(wanted)
    if not words:
        return
    if not as_json:
        output.say("It asks for permission to:")
        for word in words:
            output.say(f"  {word}", style="yellow")
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(f"It wants to {', '.join(words)}, and there is nobody to ask; say --yes to grant it.")
    if not typer.confirm("Grant that?"):
        raise typer.Abort


def list_tools(context: typer.Context, wide: Wide = False, as_json: AsJson = False) -> None:
    """Every tool with its status, and those that were retired, with the command that restores them."""
    with open_habitus(context) as habitus:
        found, retired = habitus.tools.all(), habitus.tools.list_retired()
        rows = [(t.name, t.status.value, t.layer, f"v{t.version}", t.reason or t.description) for t in found]
        rows += [(t.name, "retired", "", "", f"{t.reason}; habitus {' '.join(t.undo)}") for t in retired]
        columns = ("name", "status", "layer", "version", "what it does")
        empty = "There are no tools yet. Make one: habitus tools new NAME --description … --code FILE"
        output.say_list(
            as_json,
            {"tools": found, "retired": retired, "next": None, "total": len(found)},
            columns,
            rows,
            wide="what it does",
            is_cut=not wide,
            empty=empty,
        )


def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """One tool: what it takes, what it may do, how it fares, and its code."""
    with open_habitus(context) as habitus:
        shown = running_code.show_tool(habitus, name)
        if as_json:
            output.print_json(json_shapes.tool(shown))
            return
        counters = shown.counters
        _print_facts(
            shown.tool, f"{output.count_of(counters.used, 'call')}, {counters.succeeded} ok, {counters.failed} failed"
        )
        output.say()
        output.say(shown.code)


def _print_facts(tool: CodeTool, calls: str) -> None:
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
        ("calls", calls),
    ]
    for label, value in facts:
        if value:
            output.say(f"{label:<11}  {value}")


def _cases(tool: CodeTool) -> str:
    passed = f"passed {inputs.show_moment(tool.proved_on)}" if tool.proved_on else "stale"
    by_shape = f"; {tool.by_shape} by shape only" if tool.by_shape else ""
    return f"{tool.cases}, {passed}{by_shape}{'' if tool.is_compared else '; compared with nothing'}"


def run(
    context: typer.Context,
    name: Name,
    payload: Annotated[str, typer.Argument(help="JSON, a file with it, or '-' for standard input.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Call a tool and print what it prints. Exit code 1 when it fails."""
    with open_habitus(context) as habitus:
        habitus.tools.get(name)  # a wrong name is said before a wrong payload
        arguments = inputs.read_json(payload, "payload")
        done = _run(habitus, lambda: habitus.tools.run(name, arguments))
        if as_json:
            output.print_json(done)
        else:
            output.write(output.clean(done.stdout))
            if not done.outcome.is_ok:
                output.complain(done.stderr)
                output.complain(f"habitus: {name} {done.outcome.kind.value}: {done.outcome.reason}")
            if done.notice:
                output.complain(f"habitus: {done.notice}")
            output.tell_taken_out(taken_out(done.stdout))
        if not done.outcome.is_ok:
            raise typer.Exit(1)


def run_cases(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Tools; all without.", autocompletion=completion.skill_names)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the kept cases again. Exit code 1 when one fails."""
    with open_habitus(context) as habitus:
        wanted = [habitus.tools.get(name).name for name in names or [tool.name for tool in habitus.tools.all()]]

        async def each() -> dict[str, Regression]:
            reports = {}
            for name in wanted:
                _progress(f"Testing {name} …")
                reports[name] = await habitus.tools.test(name)
            return reports

        reports = _run(habitus, each)
        if as_json:
            output.print_json(
                {"tested": [{"name": name, **json_shapes.regression(report)} for name, report in reports.items()]}
            )
        else:
            for name, report in reports.items():
                _print_report(name, report)
        if not all(report.passed for report in reports.values()):
            raise typer.Exit(1)


def _print_report(name: str, report: Regression) -> None:
    passed = sum(result.outcome.is_ok for result in report.results)
    stale = ", which were stale" if report.was_stale and report.results else ""
    by_shape = sum(result.compares == SHAPE_ONLY for result in report.results)
    compared = f"; of {by_shape} only the shape is compared" if by_shape else ""
    output.say(f"{name}: {passed} of {output.count_of(len(report.results), 'case')} passed{stale}{compared}.")
    for result in report.results:
        if not result.outcome.is_ok:
            payload = json.dumps(result.payload, ensure_ascii=False)
            output.say(f"  {result.outcome.kind.value} on {payload[:100]}: {result.outcome.reason}", style="red")


def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Take a tool out of use; a skill that is nothing else goes to the archive."""
    with open_habitus(context) as habitus:
        gone = habitus.tools.retire(name, habitus.person())
        output.say_done(context, as_json, gone, f"The tool {gone.name} is gone.", undo=gone.undo)


def restore(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Bring a removed or retired tool back as it was."""
    with open_habitus(context) as habitus:
        tool = habitus.tools.restore(name, habitus.person())
        undo = ("tools", "remove", f"{tool.name}@{tool.layer}")
        output.say_done(context, as_json, tool, f"The tool {tool.name} is back ({tool.status}).", undo=undo)


def _run(habitus: Habitus, work: Callable[[], Awaitable[Done]]) -> Done:
    """Do it in an event loop of its own, and leave no process of the sandbox behind."""

    async def inside() -> Done:
        async with habitus.tools:
            return await work()

    return asyncio.run(inside())


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        output.complain(text)
