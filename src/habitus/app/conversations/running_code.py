"""Running code put together: scratchpads, with an agent or without, and the tools with their workshop."""

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

ENVIRONMENTS = "cache/environments"  # below the home
_GIVEN, MADE = ".given", "_made"  # no pad can be called that

Done = TypeVar("Done")
MayInstall = Callable[[str], Awaitable[bool]]


def open_tools(home: Home) -> Tools:
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
    """A tool whole: its code and kept cases, where its files make one, and how its calls went."""

    tool: CodeTool = field(metadata=INLINE)
    code: str
    cases: tuple[Task, ...]
    counters: Counters


def show_tool(home: Home, name: str) -> ShownTool:
    found = home.tools.get(name)
    counters = home.skills.counters(f"{found.name}@{found.layer}").get(Stage.CODE, Counters())
    if found.status is ToolStatus.BROKEN:
        return ShownTool(tool=found, code="", cases=(), counters=counters)
    return ShownTool(tool=found, code=home.tools.code(name), cases=home.tools.cases(name), counters=counters)


def run_tool(home: Home, name: str, payload: Json) -> ToolRun:
    """Call a tool by hand, in an event loop of its own: nothing of the sandbox is left behind."""
    return asyncio.run(with_tools(home, lambda tools: tools.run(name, payload)))


def check_tools(
    home: Home, names: Sequence[str], begin: Callable[[str], None] = lambda name: None
) -> dict[str, Regression]:
    """Run the kept cases of tools again, in the same way; `begin` is told of each before."""

    async def check(tools: Tools) -> dict[str, Regression]:
        reports = {}
        for name in names:
            begin(name)
            reports[name] = await tools.test(name)
        return reports

    return asyncio.run(with_tools(home, check))


async def with_tools(home: Home, work: Callable[[Tools], Awaitable[Done]]) -> Done:
    async with open_tools(home) as tools:
        return await work(tools)


def _view(home: Home) -> View:
    """The library as code sees it that no conversation has called."""
    return View(library=home.skills, review=home.review, outage=Outage(), redactor=home.redactor)


def open_given(home: Home, folder: str) -> Given:
    """The files given to the code of these pads, kept here; the path is the one that the machine has which runs
    them."""
    runtime = _runtime(home, folder, None, ())
    if isinstance(runtime, SshRuntime):
        return Given(home.place / folder / _GIVEN, seen_at=runtime.given_at)
    return _given_folder(home, f"{folder}/{_GIVEN}")


def given_files(home: Home, digest: str) -> Given:
    """Where the files lie that have this hash, for code that no session gives any."""
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
    """Pads in a folder of the home, here or elsewhere. The settings may say to install missing modules unasked.

    What the cells of a session make for a person to open is kept beside its pads, so that it outlives them.
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
    """Answers to questions of cells that no conversation runs: a pad lives long, so each question sees the library
    anew."""

    async def answer(question: str, asked: Any) -> Any:
        view = await in_thread(lambda: _view(home))
        return await sandbox_services(view)[question](asked)

    return {question: partial(answer, question) for question in sandbox_services(_view(home))}


def readable(settings: Settings, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Folders of a person's that cells may read where they are; an error for what no cell should see."""
    found = tuple((settings.cwd / folder).resolve() for folder in folders)
    if found and settings.sandbox.runtime != "local":
        raise Invalid("Cells run on another machine, which can't read folders of this one.", mend="Attach files.")
    own = settings.home.resolve()
    for folder in found:
        if not folder.is_dir():
            raise Invalid(f"There is no folder {folder} to read.", mend="For a file, use --attach.")
        if folder.is_relative_to(own) or own.is_relative_to(folder):
            raise Invalid(
                f"{folder} holds the home of Habitus, which no cell may read.", mend="Name a folder beside it."
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
    folder = home.place / "cache" / "calls"
    return Warm(home.machine, folder, allow_weaker=home.settings.allow_weaker_sandbox)


def open_environments(place: Path) -> Environments:
    """One cache for the tools and the pads of this home."""
    return Environments(place / ENVIRONMENTS, Venvs(os.environ, python=base_python()))


async def _always(package: str) -> bool:
    return True


_CELLS = TypeAdapter(tuple[Cell, ...])  # as they are kept on disk


@dataclass(frozen=True, kw_only=True, slots=True)
class PadState:
    name: str
    running: bool  # whether its variables are still there
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetPad:
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
    """Run a cell; `said` hears what it prints meanwhile. A keeper holds the pad until it was idle for so long."""
    home.refuse_if_read_only()
    folder = _folder(home.settings, name)
    habitus_at_home = [sys.executable, "-m", "habitus", "--home", str(home.settings.home)]
    keep_it = [*habitus_at_home, "pad", "keep", folder.name, "--idle", str(idle_s)]
    request = {"exec": code, "description": description, "estimated_s": estimated_s}
    scratchpads.ensure_running(folder, keep_it)
    try:
        answer = scratchpads.ask(folder, request, said=said)
    except ConnectionError:  # it was killed before it read the cell
        scratchpads.ensure_running(folder, keep_it)
        answer = scratchpads.ask(folder, request, said=said)
    if "cell" not in answer:
        raise Invalid(str(answer.get("error", "The cell did not run.")), mend="")
    (cell,) = _CELLS.validate_python([answer["cell"]])
    return cell


async def keep(home: Home, name: str, idle_s: float) -> None:
    """Be the process that holds a pad."""
    folder = _folder(home.settings, name)
    await scratchpads.keep(home.scratchpads(), folder, redactor=home.redactor, idle_s=idle_s)


def pads(settings: Settings) -> tuple[PadState, ...]:
    top = _top(settings)
    return tuple(
        PadState(name=name, running=scratchpads.is_running(top / name), cells=len(scratchpads.cells(top / name)))
        for name in _names(settings)
    )


def cells(settings: Settings, name: str) -> Sequence[Cell]:
    """The cells that ran since the pad was made or reset."""
    return _CELLS.validate_python(scratchpads.cells(existing(settings, name)))


def reset(home: Home, name: str) -> ResetPad:
    """Forget the variables and cells; files and packages stay."""
    home.refuse_if_read_only()
    folder = existing(home.settings, name)
    was_running = scratchpads.stop(folder)
    return ResetPad(name=name, was_running=was_running, forgotten_cells=scratchpads.forget_cells(folder))


async def remove(home: Home, name: str) -> None:
    """Delete a pad with its files and packages, wherever they are."""
    folder = existing(home.settings, name)
    scratchpads.stop(folder)
    pads = home.scratchpads()
    with suppress(NotFound):  # it never got as far as to have any there
        await pads.remove(name)
    await pads.close()
    if folder.exists():
        folders.remove(str(folder))


def existing(settings: Settings, name: str) -> Path:
    """The folder of a pad that is there."""
    folder, names = _folder(settings, name), _names(settings)
    if folder.name not in names:
        near = did_you_mean(name, names) or "See 'habitus pad list'."
        raise NotFound(f"There is no scratchpad '{name}'.", mend=near)
    return folder


def _folder(settings: Settings, name: str) -> Path:
    return _top(settings) / check_name(name)


def _names(settings: Settings) -> list[str]:
    found = _top(settings).iterdir() if _top(settings).is_dir() else ()
    return sorted(pad.name for pad in found if (pad / "lock").is_file() or scratchpads.knows(pad))


def _top(settings: Settings) -> Path:
    return settings.home / "pads"
