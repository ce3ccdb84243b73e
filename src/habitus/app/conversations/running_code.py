"""Running code: scratchpads with and without an agent, and tools."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from habitus.agent.background import run_in_thread
from habitus.agent.library.sandbox_services import build_skill_services_for_sandbox
from habitus.agent.library.view import LibraryView
from habitus.app.home import Home, refuse_if_read_only
from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.plain_data import INLINE
from habitus.sandbox import scratchpads
from habitus.sandbox.child import HostServices
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.fork_servers import ForkServerPool
from habitus.sandbox.inside import folders
from habitus.sandbox.isolation import check_granted_paths, get_given_folder_path_inside
from habitus.sandbox.machine import get_base_python, probe_machine
from habitus.sandbox.model import Cell, Permissions, SandboxLimits, ToolRunResult
from habitus.sandbox.runtimes.base import ScratchpadRuntime, check_scratchpad_name
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.runtimes.ssh import SshRuntime
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder
from habitus.settings import Settings
from habitus.skills.layers.listing import build_skill_uses_url_path
from habitus.skills.model import Stage
from habitus.sql.outage import OutageGuard
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.tools.catalogue import ToolCatalogue
from habitus.tools.code_stage import ReadableFolderProvider
from habitus.tools.execution import ToolExecutor, ToolExecutorPerEventLoop
from habitus.tools.health import ToolHealthStore
from habitus.tools.making import ToolServiceDependencies
from habitus.tools.model import CodeTool, ToolCaseRerunReport, ToolStatus
from habitus.tools.service import ToolService
from habitus.use_counts import UsageCounts

# Below the home.
ENVIRONMENTS_DIR = "cache/environments"
# Neither is a valid scratchpad name, so they never collide with one.
_GIVEN_DIR, MADE_DIR = ".given", "_made"

ResultT = TypeVar("ResultT")
MayInstallPackage = Callable[[str], Awaitable[bool]]


def open_tools(home: Home) -> ToolService:
    """Open the tools of a home; the sandbox is probed on first use."""
    health = ToolHealthStore(home.shared)
    parts = ToolServiceDependencies(
        catalogue=ToolCatalogue(home.skills, health, trust=home.trust, approvals=home.approvals),
        library=home.skills,
        review=home.review,
        health=health,
        workshops=ToolExecutorPerEventLoop(lambda: _open_tool_executor(home)),
        files=ReadableFolderProvider(home.skills, partial(open_store_of_given_files_by_hash, home.writable_dir)),
        approvals=home.approvals,
        scan=home.scan_tree,
        clock=home.clock,
        environ=os.environ,
        redact=home.redact,
        retention=home.settings.retention,
        services=lambda: build_skill_services_for_sandbox(_open_library_view_outside_conversation(home)),
        # A lambda, because listing tools needs no journal.
        record_use=lambda use: home.journal.record_use(use),
        user=home.settings.user,
    )
    return ToolService(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDetails:
    """A tool with its code, test cases and counters; code and cases are empty if its files are broken."""

    tool: CodeTool = field(metadata=INLINE)
    code: str
    cases: tuple[Task, ...]
    counters: UsageCounts


def get_tool_details(home: Home, name: str) -> ToolDetails:
    """Return a tool with its code, test cases and counters."""
    found = home.tools.get(name)
    counted = home.skills.read_counters(f"{found.name}@{found.layer}").get(Stage.CODE, UsageCounts())
    counters = replace(
        counted, address=f"{build_skill_uses_url_path(found.layer, found.name)}?stage={Stage.CODE.value}"
    )
    if found.status is ToolStatus.BROKEN:
        return ToolDetails(tool=found, code="", cases=(), counters=counters)
    return ToolDetails(tool=found, code=home.tools.code(name), cases=home.tools.cases(name), counters=counters)


def run_tool(home: Home, name: str, payload: Json) -> ToolRunResult:
    """Run a tool in an event loop of its own, which leaves no sandbox process behind."""
    return asyncio.run(open_tools_and_run_work(home, lambda tools: tools.run(name, payload)))


def run_tool_test_cases(
    home: Home, names: Sequence[str], on_start: Callable[[str], None] = lambda name: None
) -> dict[str, ToolCaseRerunReport]:
    """Run the test cases of tools; `on_start` is called with each name before."""

    async def check(tools: ToolService) -> dict[str, ToolCaseRerunReport]:
        reports = {}
        for name in names:
            on_start(name)
            reports[name] = await tools.test(name)
        return reports

    return asyncio.run(open_tools_and_run_work(home, check))


async def open_tools_and_run_work(home: Home, work: Callable[[ToolService], Awaitable[ResultT]]) -> ResultT:
    """Open the tools, run `work` with them, and close them."""
    async with open_tools(home) as tools:
        return await work(tools)


def _open_library_view_outside_conversation(home: Home) -> LibraryView:
    """Return the library as seen by code that no conversation has called."""
    return LibraryView(library=home.skills, review=home.review, outage=OutageGuard(), redactor=home.redactor)


def open_store_of_files_given_to_cells(home: Home, folder: str) -> GivenFolder:
    """Return the store of files given to the cells of these scratchpads; its path is valid where they run."""
    runtime = _open_scratchpad_runtime(home, folder, None, ())
    if isinstance(runtime, SshRuntime):
        return GivenFolder(home.writable_dir / folder / _GIVEN_DIR, find_visible_path=runtime.find_path_of_given_files)
    return _open_given_file_store(home.writable_dir / folder / _GIVEN_DIR)


def open_store_of_given_files_by_hash(writable_dir: Path, digest: str) -> GivenFolder:
    """Return the store of files with this hash, for code outside any session."""
    return _open_given_file_store(writable_dir / "cache" / "given" / digest)


def _open_given_file_store(folder: Path) -> GivenFolder:
    return GivenFolder(folder, find_visible_path=lambda: get_given_folder_path_inside(probe_machine(), folder))


def open_scratchpads(
    home: Home,
    folder: str = "pads",
    may_install: MayInstallPackage | None = None,
    services: HostServices | None = None,
    given: GivenFolder | None = None,
    read: Sequence[Path] = (),
    list_initial_packages: Callable[[], Sequence[str]] = tuple,
) -> scratchpads.SessionScratchpads:
    """Open scratchpads in a folder of the home, run here or on another machine.

    With `install_missing` in the settings, missing modules are installed without asking. Files that cells make for a
    person are kept next to the scratchpads, and outlive them.
    """
    if home.settings.install_missing:
        may_install = _always_allow_package_install
    return scratchpads.SessionScratchpads(
        _open_scratchpad_runtime(home, folder, given, read),
        services=_build_cell_services_outside_conversation(home) if services is None else services,
        may_install=may_install,
        initial_packages=list_initial_packages,
        keep_made=given.folder.with_name(MADE_DIR) if given else None,
    )


def _build_cell_services_outside_conversation(home: Home) -> HostServices:
    """Return the services for cells that no conversation runs."""

    async def answer(question: str, asked: Any) -> Any:
        # A scratchpad lives long, so each question reads the library again.
        view = await run_in_thread(lambda: _open_library_view_outside_conversation(home))
        return await build_skill_services_for_sandbox(view)[question](asked)

    return {
        question: partial(answer, question)
        for question in build_skill_services_for_sandbox(_open_library_view_outside_conversation(home))
    }


def resolve_readable_folders(settings: Settings, folders: Sequence[Path]) -> tuple[Path, ...]:
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
    check_granted_paths(Permissions(read=found))
    return found


def _open_scratchpad_runtime(
    home: Home, folder: str, given: GivenFolder | None, read: Sequence[Path]
) -> ScratchpadRuntime:
    where, may_be_weaker = home.settings.sandbox.runtime, home.settings.allow_weaker_sandbox
    permissions, limits = Permissions(read=tuple(read)), SandboxLimits(cpu_s=None)
    if where != "local":
        return SshRuntime.from_address(
            where,
            folder,
            permissions=permissions,
            limits=limits,
            allow_weaker=may_be_weaker,
            given=given.folder if given else None,
        )
    return LocalRuntime(
        probe_machine(),
        home.writable_dir / folder,
        open_virtual_environment_cache(home.writable_dir),
        permissions=permissions,
        limits=limits,
        allow_weaker=may_be_weaker,
        given=given.folder if given else None,
    )


def _open_tool_executor(home: Home) -> ToolExecutor:
    return ToolExecutor(
        open_warm_process_pool_for_tools(home), open_virtual_environment_cache(home.writable_dir), redact=home.redact
    )


def open_warm_process_pool_for_tools(home: Home) -> ForkServerPool:
    """Open the pool of warm processes for tool calls."""
    folder = home.writable_dir / "cache" / "calls"
    return ForkServerPool(probe_machine(), folder, allow_weaker=home.settings.allow_weaker_sandbox)


def open_virtual_environment_cache(place: Path) -> EnvironmentCache:
    """Open the cache of virtual environments that tools and scratchpads share."""
    return EnvironmentCache(place / ENVIRONMENTS_DIR, VenvBuilder(os.environ, python=get_base_python()))


async def _always_allow_package_install(package: str) -> bool:
    return True


# Cells as stored on disk.
_CELLS = TypeAdapter(tuple[Cell, ...])


@dataclass(frozen=True, kw_only=True, slots=True)
class ScratchpadStatus:
    """The state of a scratchpad."""

    name: str
    # Whether its variables are still in memory.
    running: bool
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetScratchpadResult:
    """The result of resetting a scratchpad."""

    name: str
    was_running: bool
    forgotten_cells: int


def execute_cell(
    home: Home,
    name: str,
    code: str,
    *,
    description: str = "",
    estimated_s: float | None = None,
    idle_s: float,
    on_output: Callable[[str], None],
) -> Cell:
    """Run a cell; `on_output` receives its output meanwhile. A process keeps the scratchpad until it is idle for
    `idle_s`."""
    refuse_if_read_only(home)
    folder = _build_scratchpad_folder_path(home.settings, name)
    habitus_at_home = [sys.executable, "-m", "habitus", "--home", str(home.settings.home)]
    keep_it = [*habitus_at_home, "tools", "scratchpad", "keep", folder.name, "--idle", str(idle_s)]
    request = {"exec": code, "description": description, "estimated_s": estimated_s}
    scratchpads.ensure_daemon_running(folder, keep_it)
    try:
        answer = scratchpads.send_request_to_daemon(folder, request, on_output=on_output)
    # The process was killed before it read the cell, so running it again is safe.
    except ConnectionError:
        scratchpads.ensure_daemon_running(folder, keep_it)
        answer = scratchpads.send_request_to_daemon(folder, request, on_output=on_output)
    if "cell" not in answer:
        raise Invalid(str(answer.get("error", "The cell did not run.")), hint="")
    (cell,) = _CELLS.validate_python([answer["cell"]])
    return cell


async def run_scratchpad_process(home: Home, name: str, idle_s: float) -> None:
    """Run the process that keeps a scratchpad in memory."""
    folder = _build_scratchpad_folder_path(home.settings, name)
    await scratchpads.run_daemon(open_scratchpads(home), folder, redactor=home.redactor, idle_s=idle_s)


def list_scratchpads(settings: Settings) -> tuple[ScratchpadStatus, ...]:
    """Return the scratchpads of the home."""
    top = _get_scratchpads_root(settings)
    return tuple(
        ScratchpadStatus(
            name=name,
            running=scratchpads.is_daemon_running(top / name),
            cells=len(scratchpads.read_recorded_cells(top / name)),
        )
        for name in _list_scratchpad_names(settings)
    )


def list_scratchpad_cells(settings: Settings, name: str) -> Sequence[Cell]:
    """Return the cells run since the scratchpad was created or reset."""
    return _CELLS.validate_python(scratchpads.read_recorded_cells(get_existing_scratchpad_folder(settings, name)))


def reset_scratchpad(home: Home, name: str) -> ResetScratchpadResult:
    """Drop the variables and cells; files and packages stay."""
    refuse_if_read_only(home)
    folder = get_existing_scratchpad_folder(home.settings, name)
    was_running = scratchpads.stop_daemon(folder)
    return ResetScratchpadResult(
        name=name, was_running=was_running, forgotten_cells=scratchpads.delete_recorded_cells(folder)
    )


async def remove_scratchpad(home: Home, name: str) -> None:
    """Delete a scratchpad with its files and packages, also on another machine."""
    folder = get_existing_scratchpad_folder(home.settings, name)
    scratchpads.stop_daemon(folder)
    pads = open_scratchpads(home)
    # It may never have got as far as having files there.
    with suppress(NotFound):
        await pads.close_and_delete_scratchpad(name)
    await pads.close()
    if folder.exists():
        folders.remove_folder(str(folder))


def get_existing_scratchpad_folder(settings: Settings, name: str) -> Path:
    """Return the folder of a scratchpad. Raises `NotFound`, with a suggestion, if there is none."""
    folder, names = _build_scratchpad_folder_path(settings, name), _list_scratchpad_names(settings)
    if folder.name not in names:
        near = did_you_mean(name, names) or "See 'habitus tools scratchpad list'."
        raise NotFound(f"There is no scratchpad '{name}'.", hint=near)
    return folder


def _build_scratchpad_folder_path(settings: Settings, name: str) -> Path:
    return _get_scratchpads_root(settings) / check_scratchpad_name(name)


def _list_scratchpad_names(settings: Settings) -> list[str]:
    found = _get_scratchpads_root(settings).iterdir() if _get_scratchpads_root(settings).is_dir() else ()
    return sorted(pad.name for pad in found if (pad / "lock").is_file() or scratchpads.has_had_daemon(pad))


def _get_scratchpads_root(settings: Settings) -> Path:
    return settings.home / "pads"
