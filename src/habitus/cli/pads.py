"""`habitus pad …`: scratchpads without an agent. Variables live in a process in the background, cells in the home."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from habitus.cli import given, output
from habitus.cli.opening import opened
from habitus.errors import Invalid, NotFound, did_you_mean

if TYPE_CHECKING:
    from habitus.app import Habitus

app = typer.Typer(help="Scratchpads: named, isolated Python processes that remember, cell by cell.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="A scratchpad.")]
Idle = Annotated[float, typer.Option("--idle", min=0.1, help="Seconds without a cell after which its process ends.")]


@app.callback(invoke_without_command=True)
def explain(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        output.explain(context)


@app.command("exec")
def execute(
    context: typer.Context,
    name: Name,
    code: Annotated[str | None, typer.Argument(help="Python; '-' reads standard input.")] = None,
    file: Annotated[str | None, typer.Option("--file", "-f", help="A file with the code.")] = None,
    description: Annotated[str, typer.Option("--description", "-d", help="What the cell does.")] = "",
    estimate: Annotated[float | None, typer.Option("--estimate", help="Seconds it may take; sets its limits.")] = None,
    idle: Idle = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Run a cell. Variables stay until the pad is reset, removed, or idle for half an hour."""
    from habitus.cli import pad_keeper

    if (code is None) == (file is None):
        raise typer.BadParameter("Give the code, or a file with --file, or '-' for standard input.")
    text = given.read_text(file) if file is not None else given.read_text("-") if code == "-" else str(code)
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        folder = _folder(habitus, name)
        pad_keeper.ensure_running(folder, habitus.settings.home, idle)
        request = {"exec": text, "description": description, "estimated_s": estimate}
        said = (lambda text: None) if as_json else (lambda text: output.write(output.clean(text)))
        answer = pad_keeper.ask(folder, request, said=said)
    if "cell" not in answer:
        raise Invalid(str(answer.get("error", "The cell did not run.")), mend="")
    cell = answer["cell"]
    if as_json:
        output.print_json(cell)
    else:
        for line in cell["logs"]:
            if not line.startswith("progress: "):
                output.complain(line)
        if cell["error"]:
            output.complain(cell["error"])
    if cell["error"]:
        raise typer.Exit(1)


@app.command("list")
def list_pads(context: typer.Context, as_json: AsJson = False) -> None:
    """Every scratchpad, and whether its variables are still there."""
    from habitus.cli import pad_keeper

    with opened(context) as habitus:
        top = habitus.settings.home / "pads"
        found = [
            {"name": name, "running": pad_keeper.is_running(top / name), "cells": len(pad_keeper.cells(top / name))}
            for name in _names(habitus)
        ]
        if as_json:
            output.print_json({"pads": found})
        elif not found:
            output.say("There are no scratchpads yet. Start one: habitus pad exec NAME 'print(1)'")
        else:
            rows = [(pad["name"], "running" if pad["running"] else "asleep", pad["cells"]) for pad in found]
            output.table(("name", "process", "cells"), rows)


@app.command()
def view(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """The cells that ran since the pad was made or reset, with what they printed."""
    from habitus.cli import pad_keeper

    with opened(context) as habitus:
        cells = pad_keeper.cells(_existing(habitus, name))
        if as_json:
            output.print_json({"name": name, "cells": cells})
            return
        output.say("\n\n".join(_shown(number, cell) for number, cell in enumerate(cells, 1)) or "No cell ran yet.")


def _shown(number: int, cell: dict[str, Any]) -> str:
    title = f"# cell {number}" + (f": {cell['description']}" if cell["description"] else "")
    parts = [title, cell["code"].rstrip(), cell["stdout"].rstrip(), cell["stderr"].rstrip(), cell["error"] or ""]
    return "\n".join(part for part in parts if part)


@app.command()
def reset(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Forget the variables and cells; files and packages stay."""
    from habitus.cli import pad_keeper

    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        folder = _existing(habitus, name)
        was_running = pad_keeper.stop(folder)
        count = len(pad_keeper.cells(folder))
        (folder / pad_keeper.CELLS).unlink(missing_ok=True)
        if as_json:
            output.print_json({"name": name, "was_running": was_running, "forgotten_cells": count})
        else:
            output.say(f"{name} starts anew; {output.counted(count, 'cell')} forgotten. Its files and packages stay.")


@app.command()
def remove(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a scratchpad with its files and packages. There is no way back."""
    import asyncio  # slow to import, and no other command needs it

    from habitus.cli import pad_keeper
    from habitus.sandbox.inside import folders

    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        folder = _existing(habitus, name)
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise typer.BadParameter("Its files would be gone for good; say --yes.")
            if not typer.confirm(f"Delete {folder} for good?"):
                raise typer.Abort
        pad_keeper.stop(folder)
        pads = habitus.scratchpads()

        async def gone() -> None:
            with contextlib.suppress(NotFound):  # its files are on another machine, or never came to be
                await pads.remove(name)
            await pads.close()

        asyncio.run(gone())
        if folder.exists():
            folders.remove(str(folder))
        if as_json:
            output.print_json({"removed": name})
        else:
            output.say(f"{name} is gone.")


@app.command(hidden=True)
def keep(context: typer.Context, name: Name, idle: Idle = 1800.0) -> None:
    """Hold a pad's process; started by 'exec', in the background."""
    import asyncio

    from habitus.cli import pad_keeper

    with opened(context) as habitus:
        asyncio.run(pad_keeper.keep(habitus, name, _folder(habitus, name), idle))


def _folder(habitus: Habitus, name: str) -> Path:
    from habitus.sandbox.runtimes.base import check_name

    return habitus.settings.home / "pads" / check_name(name)


def _existing(habitus: Habitus, name: str) -> Path:
    folder, names = _folder(habitus, name), _names(habitus)
    if folder.name not in names:
        near = did_you_mean(name, names) or "See 'habitus pad list'."
        raise NotFound(f"There is no scratchpad '{name}'.", mend=near)
    return folder


def _names(habitus: Habitus) -> list[str]:
    from habitus.cli import pad_keeper

    top, marks = habitus.settings.home / "pads", ("lock", pad_keeper.LOCK)
    found = top.iterdir() if top.is_dir() else ()
    return sorted(pad.name for pad in found if any((pad / mark).is_file() for mark in marks))
