"""Running code: scratchpads with and without an agent, and the tools with their workshop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from habitus.agent.background import in_thread
from habitus.agent.library_view import View, sandbox_services
from habitus.app.home import Home
from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.plain_data import INLINE
from habitus.sandbox import scratchpads
from habitus.sandbox.child import Services
from habitus.sandbox.files import Given
from habitus.sandbox.inside import folders
from habitus.sandbox.isolation import check_grants, given_at
from habitus.sandbox.machine import base_python
from habitus.sandbox.model import Cell, Limits, Permissions, ToolRun
from habitus.sandbox.runtimes.base import Runtime, check_name
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.runtimes.ssh import SshRuntime
from habitus.sandbox.scratchpads import Scratchpads
from habitus.sandbox.venvs import Environments, Venvs
from habitus.sandbox.warm import Warm
from habitus.settings import Settings
from habitus.skills.model import Counters, Stage
from habitus.sql.outage import Outage
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.tools.health import ToolHealth
from habitus.tools.model import CodeTool, Regression, ToolStatus
from habitus.tools.tools import Tools
from habitus.tools.workshop import Workshop

# Below the home.
ENVIRONMENTS = "cache/environments"
# Neither is a valid scratchpad name, so they never collide with one.
_GIVEN, MADE = ".given", "_made"

Done = TypeVar("Done")
MayInstall = Callable[[str], Awaitable[bool]]


def open_tools(home: Home) -> Tools:
    """Open the tools of a home; the sandbox is probed on first use."""
    return Tools(
        home.skills,
        home.review,
        ToolHealth(home.shared),
        trust=home.trust,
        approvals=home.approvals,
        workshop=lambda: _workshop(home),
        clock=home.clock,
        scan=home.scan,
        environ=os.environ,
        redacted=home.redact,
        retention=home.settings.retention,
        services=lambda: sandbox_services(_view(home)),
        given=partial(given_files, home),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTool:
    """A tool with its code, test cases and counters; code and cases are empty if its files are broken."""

    tool: CodeTool = field(metadata=INLINE)
    code: str
    cases: tuple[Task, ...]
    counters: Counters


def show_tool(home: Home, name: str) -> ShownTool:
    """Return a tool with its code, test cases and counters."""
    found = home.tools.get(name)
    counters = home.skills.counters(f"{found.name}@{found.layer}").get(Stage.CODE, Counters())
    if found.status is ToolStatus.BROKEN:
        return ShownTool(tool=found, code="", cases=(), counters=counters)
    return ShownTool(tool=found, code=home.tools.code(name), cases=home.tools.cases(name), counters=counters)


def run_tool(home: Home, name: str, payload: Json) -> ToolRun:
    """Run a tool in an event loop of its own, which leaves no sandbox process behind."""
    return asyncio.run(with_tools(home, lambda tools: tools.run(name, payload)))


def check_tools(
    home: Home, names: Sequence[str], begin: Callable[[str], None] = lambda name: None
) -> dict[str, Regression]:
    """Run the test cases of tools; `on_start` is called with each name before."""

    async def check(tools: Tools) -> dict[str, Regression]:
        reports = {}
        for name in names:
            begin(name)
            reports[name] = await tools.test(name)
        return reports

    return asyncio.run(with_tools(home, check))


async def with_tools(home: Home, work: Callable[[Tools], Awaitable[Done]]) -> Done:
    """Open the tools, run `work` with them, and close them."""
    async with open_tools(home) as tools:
        return await work(tools)


def _view(home: Home) -> View:
    """Return the library as seen by code that no conversation has called."""
    return View(library=home.skills, review=home.review, outage=Outage(), redactor=home.redactor)


def open_given(home: Home, folder: str) -> Given:
    """Return the store of files given to the cells of these scratchpads; its path is valid where they run."""
    runtime = _runtime(home, folder, None, ())
    if isinstance(runtime, SshRuntime):
        return Given(home.place / folder / _GIVEN, seen_at=runtime.given_at)
    return _given_folder(home, f"{folder}/{_GIVEN}")


def given_files(home: Home, digest: str) -> Given:
    """Return the store of files with this hash, for code outside any session."""
    return _given_folder(home, f"cache/given/{digest}")


def _given_folder(home: Home, folder: str) -> Given:
    place = home.place / folder
    return Given(place, seen_at=lambda: given_at(home.machine, place))


def open_scratchpads(
    home: Home,
    folder: str,
    may_install: MayInstall | None = None,
    services: Services | None = None,
    given: Given | None = None,
    read: Sequence[Path] = (),
    begin_with: Callable[[], Sequence[str]] = tuple,
) -> Scratchpads:
    """Open scratchpads in a folder of the home, run here or on another machine.

    With `install_missing` in the settings, missing modules are installed without asking. Files that cells make for a
    person are kept next to the scratchpads, and outlive them.
    """
    if home.settings.install_missing:
        may_install = _always
    return Scratchpads(
        _runtime(home, folder, given, read),
        services=_services(home) if services is None else services,
        may_install=may_install,
        begin_with=begin_with,
        keep_made=given.folder.with_name(MADE) if given else None,
    )


def _services(home: Home) -> Services:
    """Return the services for cells that no conversation runs."""

    async def answer(question: str, asked: Any) -> Any:
        # A scratchpad lives long, so each question reads the library again.
        view = await in_thread(lambda: _view(home))
        return await sandbox_services(view)[question](asked)

    return {question: partial(answer, question) for question in sandbox_services(_view(home))}


def readable(settings: Settings, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Resolve folders that cells may read. Raises `Invalid` for the home, and for folders that don't exist."""
    found = tuple((settings.cwd / folder).resolve() for folder in folders)
    if found and settings.sandbox.runtime != "local":
        raise Invalid("Cells run on another machine, which can't read folders of this one.", hint="Attach files.")
    own = settings.home.resolve()
    for folder in found:
        if not folder.is_dir():
            raise Invalid(f"There is no folder {folder} to read.", hint="For a file, use --attach.")
        # The home holds secrets and the database: neither it nor a folder around it may be read.
        if folder.is_relative_to(own) or own.is_relative_to(folder):
            raise Invalid(
                f"{folder} holds the home of Habitus, which no cell may read.", hint="Name a folder beside it."
            )
    check_grants(Permissions(read=found))
    return found


def _runtime(home: Home, folder: str, given: Given | None, read: Sequence[Path]) -> Runtime:
    where, may_be_weaker = home.settings.sandbox.runtime, home.settings.allow_weaker_sandbox
    permissions, limits = Permissions(read=tuple(read)), Limits(cpu_s=None)
    if where != "local":
        return SshRuntime.at(
            where,
            folder,
            permissions=permissions,
            limits=limits,
            allow_weaker=may_be_weaker,
            given=given.folder if given else None,
        )
    return LocalRuntime(
        home.machine,
        home.place / folder,
        open_environments(home.place),
        permissions=permissions,
        limits=limits,
        allow_weaker=may_be_weaker,
        given=given.folder if given else None,
    )


def _workshop(home: Home) -> Workshop:
    return Workshop(open_warm(home), open_environments(home.place), redacted=home.redact)


def open_warm(home: Home) -> Warm:
    """Open the pool of warm processes for tool calls."""
    folder = home.place / "cache" / "calls"
    return Warm(home.machine, folder, allow_weaker=home.settings.allow_weaker_sandbox)


def open_environments(place: Path) -> Environments:
    """Open the cache of virtual environments that tools and scratchpads share."""
    return Environments(place / ENVIRONMENTS, Venvs(os.environ, python=base_python()))


async def _always(package: str) -> bool:
    return True


# Cells as stored on disk.
_CELLS = TypeAdapter(tuple[Cell, ...])


@dataclass(frozen=True, kw_only=True, slots=True)
class PadState:
    """The state of a scratchpad."""

    name: str
    # Whether its variables are still in memory.
    running: bool
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetPad:
    """The result of resetting a scratchpad."""

    name: str
    was_running: bool
    forgotten_cells: int


def execute(
    home: Home,
    name: str,
    code: str,
    *,
    description: str = "",
    estimated_s: float | None = None,
    idle_s: float,
    said: Callable[[str], None],
) -> Cell:
    """Run a cell; `on_output` receives its output meanwhile. A process keeps the scratchpad until it is idle for
    `idle_s`."""
    home.refuse_if_read_only()
    folder = _folder(home.settings, name)
    habitus_at_home = [sys.executable, "-m", "habitus", "--home", str(home.settings.home)]
    keep_it = [*habitus_at_home, "pad", "keep", folder.name, "--idle", str(idle_s)]
    request = {"exec": code, "description": description, "estimated_s": estimated_s}
    scratchpads.ensure_running(folder, keep_it)
    try:
        answer = scratchpads.ask(folder, request, said=said)
    # The process was killed before it read the cell, so running it again is safe.
    except ConnectionError:
        scratchpads.ensure_running(folder, keep_it)
        answer = scratchpads.ask(folder, request, said=said)
    if "cell" not in answer:
        raise Invalid(str(answer.get("error", "The cell did not run.")), hint="")
    (cell,) = _CELLS.validate_python([answer["cell"]])
    return cell


async def keep(home: Home, name: str, idle_s: float) -> None:
    """Run the process that keeps a scratchpad in memory."""
    folder = _folder(home.settings, name)
    await scratchpads.keep(home.scratchpads(), folder, redactor=home.redactor, idle_s=idle_s)


def pads(settings: Settings) -> tuple[PadState, ...]:
    """Return the scratchpads of the home."""
    top = _top(settings)
    return tuple(
        PadState(name=name, running=scratchpads.is_running(top / name), cells=len(scratchpads.cells(top / name)))
        for name in _names(settings)
    )


def cells(settings: Settings, name: str) -> Sequence[Cell]:
    """Return the cells run since the scratchpad was created or reset."""
    return _CELLS.validate_python(scratchpads.cells(existing(settings, name)))


def reset(home: Home, name: str) -> ResetPad:
    """Drop the variables and cells; files and packages stay."""
    home.refuse_if_read_only()
    folder = existing(home.settings, name)
    was_running = scratchpads.stop(folder)
    return ResetPad(name=name, was_running=was_running, forgotten_cells=scratchpads.forget_cells(folder))


async def remove(home: Home, name: str) -> None:
    """Delete a scratchpad with its files and packages, also on another machine."""
    folder = existing(home.settings, name)
    scratchpads.stop(folder)
    pads = home.scratchpads()
    # It may never have got as far as having files there.
    with suppress(NotFound):
        await pads.remove(name)
    await pads.close()
    if folder.exists():
        folders.remove(str(folder))


def existing(settings: Settings, name: str) -> Path:
    """Return the folder of a scratchpad. Raises `NotFound`, with a suggestion, if there is none."""
    folder, names = _folder(settings, name), _names(settings)
    if folder.name not in names:
        near = did_you_mean(name, names) or "See 'habitus pad list'."
        raise NotFound(f"There is no scratchpad '{name}'.", hint=near)
    return folder


def _folder(settings: Settings, name: str) -> Path:
    return _top(settings) / check_name(name)


def _names(settings: Settings) -> list[str]:
    found = _top(settings).iterdir() if _top(settings).is_dir() else ()
    return sorted(pad.name for pad in found if (pad / "lock").is_file() or scratchpads.knows(pad))


def _top(settings: Settings) -> Path:
    return settings.home / "pads"
