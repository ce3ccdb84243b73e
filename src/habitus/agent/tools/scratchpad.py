"""`scratchpad`: a stateful Python of one's own, cell by cell, in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from habitus.agent.tools.registry import Arguments, Running, Tool
from habitus.errors import ToolFailed
from habitus.events import Event, EventKind, Outcome, ToolResult, event, failed
from habitus.sandbox.model import Cell
from habitus.sandbox.scratchpads import CellObserver, Scratchpads
from habitus.text import block, one_line


class Scratchpad(Arguments):
    action: Literal["exec", "view", "dump", "reset", "remove", "install"] = Field(
        description="exec runs code; view shows the cells so far; dump gives them as one document; reset forgets the "
        "variables; remove forgets everything; install adds packages."
    )
    name: str = Field(default="main", description="Which scratchpad. Each is a separate process: stay with one.")
    code: str | None = Field(default=None, description="For exec: the Python code of one cell.")
    one_line_description: str | None = Field(default=None, description="For exec: what the cell should do, in a line.")
    estimated_execution_time_seconds: float | None = Field(
        default=None, ge=0, description="For exec: how long it should take, if more than some seconds."
    )
    packages: list[str] | None = Field(default=None, description="For install: the packages.")


DESCRIPTION = (
    "Run Python in a scratchpad: variables, imports and files stay from cell to cell. Print what you want to see. "
    "Say in one_line_description what the cell should do. Report long work with progress('…')."
)


def scratchpad(
    pads: Scratchpads,
    observers: Sequence[CellObserver] = (),
    lessons: Sequence[str] = (),
    readable: Sequence[Path] = (),
) -> Tool:
    """`lessons` are what earlier cells taught, `readable` the person's folders that cells may read; both stand in the
    description, fixed for the session."""

    async def run(given: Scratchpad, running: Running) -> ToolResult:
        match given.action:
            case "exec":
                return await _exec(pads, observers, given, running)
            case "view":
                return ToolResult(content=_view(pads.view(given.name)))
            case "dump":
                return ToolResult(content=block(pads.dump(given.name)))
            case "reset":
                await pads.reset(given.name)
                running.observe(_event(EventKind.SCRATCHPAD_RESET, running, name=given.name, reason="asked"))
                return ToolResult(content=f"Scratchpad '{given.name}' is empty again.")
            case "remove":
                await pads.remove(given.name)
                return ToolResult(content=f"Scratchpad '{given.name}' is gone.")
            case "install":
                if not given.packages:
                    raise ToolFailed("Name the packages to install in 'packages'.")
                return ToolResult(content=await pads.install(given.name, given.packages))

    named = ", ".join(one_line(str(path)) for path in readable)
    folders = f"\n\nCells may read, not write, what the person has in: {named}." if named else ""
    learned = (
        "\n".join(["\n\nWhat earlier cells taught:", *(f"- {one_line(lesson)}" for lesson in lessons)])
        if lessons
        else ""
    )
    return Tool(
        name="scratchpad",
        description=DESCRIPTION + folders + learned,
        arguments=Scratchpad,
        run=run,
        takes_away=True,
    )


async def _exec(
    pads: Scratchpads, observers: Sequence[CellObserver], given: Scratchpad, running: Running
) -> ToolResult:
    code = given.code or ""
    if not code.strip():
        running.observe(_event(EventKind.SCRATCHPAD_EMPTY_CODE, running, name=given.name))
        raise ToolFailed(
            "The cell is empty: the code did not arrive, which happens when it is very long. Send smaller cells."
        )
    described = given.one_line_description or ""
    running.observe(
        _event(
            EventKind.SCRATCHPAD_CALL,
            running,
            name=given.name,
            code_len=len(code),
            one_line_description=described,
        )
    )
    cell = await pads.exec(
        given.name,
        code,
        description=described,
        estimated_s=given.estimated_execution_time_seconds,
        observers=observers,
        watch=_lines(running),
    )
    running.observe(_what_came_of_it(given.name, cell, running))
    return ToolResult(content=_show_cell(cell), outcome=_outcome(cell), made=cell.made)


def _what_came_of_it(name: str, cell: Cell, running: Running) -> Event:
    if cell.stopped:
        return _event(EventKind.SCRATCHPAD_KILLED, running, name=name, reason=cell.error or "")
    return _event(
        EventKind.SCRATCHPAD_RESULT,
        running,
        name=name,
        success=cell.error is None,
        stdout_len=len(cell.stdout),
        error=cell.error or "",
    )


def _outcome(cell: Cell) -> Outcome:
    if cell.error is None or not cell.outcome.is_ok:
        return cell.outcome
    return failed(cell.error.strip().splitlines()[-1][:500])


def _event(kind: EventKind, running: Running, **detail: object) -> Event:
    return event(kind, detail, round_idx=running.round_idx)


def _lines(running: Running) -> Callable[[str], None]:
    """Tell the last line of what is printed."""
    stream = running.redactor.stream()

    def watch(text: str) -> None:
        lines = [line for line in stream.feed(text).splitlines() if line.strip()]
        if lines:
            running.progress(lines[-1][:200])

    return watch


def _show_cell(cell: Cell) -> str:
    parts = []
    if cell.stdout.strip():
        parts.append(block(cell.stdout.rstrip()))
    if cell.stderr.strip():
        parts.append(f"[stderr]\n{block(cell.stderr.rstrip())}")
    if cell.error:
        parts.append(f"[error]\n{block(cell.error.rstrip())}")
    parts += [f"[progress] {one_line(line)}" for line in cell.progress]
    parts += [f"[log] {one_line(line)}" for line in cell.logs]
    parts += [f"[made] The person is shown {one_line(path)}" for path in cell.made]
    return "\n\n".join(parts) or "(The cell ran and printed nothing.)"


def _view(cells: Sequence[Cell]) -> str:
    if not cells:
        return "No cell has run."
    return "\n\n".join(
        f"# Cell {number}: {one_line(cell.description)}\n{_show_cell(cell)}" for number, cell in enumerate(cells, 1)
    )
