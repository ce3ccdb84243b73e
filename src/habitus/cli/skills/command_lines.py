"""`habitus skill run`: a skill's command line from a person's shell, in the same sandbox and with the same grants."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from habitus.app.conversations import command_lines
from habitus.cli import inputs, output
from habitus.cli.opening import open_habitus
from habitus.cli.operating.secrets import password
from habitus.cli.options import AsJson, SkillName


def run(
    context: typer.Context,
    name: SkillName,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- [ARGUMENT]...", help="What its command line takes.")
    ] = None,
    file: Annotated[str, typer.Option("--input", help="A file for its standard input ('-' passes ours on).")] = "",
    as_json: AsJson = False,
) -> None:
    """Call a skill's command line with what you granted it. Its exit code is ours: 126 when it may not run, 1 when it
    ends with 0 and reports an error."""
    stdin = inputs.read_bytes(file) if file else b""
    with open_habitus(context) as habitus, habitus.vault.asking(password):
        answer = asyncio.run(command_lines.run(habitus, name, arguments or [], stdin))
    if as_json:
        output.print_json(answer)
    else:
        output.write(output.clean(answer.stdout))
        sys.stderr.write(output.clean(answer.stderr))
    if answer.code:
        raise typer.Exit(answer.code)
