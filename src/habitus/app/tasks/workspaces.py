"""The workspace of a task: a folder in the sandbox with the files of the task, where it is solved and judged."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from habitus.agent.session import generate_turn_or_session_id
from habitus.app.conversations.running_code import open_scratchpads, resolve_readable_folders
from habitus.app.home import Home
from habitus.app.home_directory import SESSION_PADS_DIR
from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.sandbox.inside import folders
from habitus.sandbox.model import Cell
from habitus.settings import Settings
from habitus.tasks.model import Task

PAD = "challenge"
ABOUT_WORKSPACE = (
    f"Work in the scratchpad '{PAD}': what the task speaks of lies in its folder, and what you write there counts. "
    "Nobody is there to ask; do it, and say so when it is done."
)
_MOST_BYTES = 1_000_000  # read of a file
_LAY_OUT = """
import json, pathlib
for path, text in json.loads({files!r}).items():
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text, "utf-8")
"""
_READ = """
import base64, pathlib
path = pathlib.Path({path!r})
print(base64.b64encode(path.read_bytes()[:{most}]).decode() if path.is_file() else "-")
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskWorkspace:
    """The folder of one attempt; `setup` is the outcome of preparing it."""

    home: Home
    task: Task
    session: str  # its scratchpads work in the folder
    setup: Outcome = OK

    @property
    def folder(self) -> Path:
        """The path of the folder, if cells run on this machine."""
        return self.home.writable_dir / SESSION_PADS_DIR / self.session / PAD / "files"

    async def run_code(self, code: str) -> Outcome:
        cell = await self._execute_cell(code)
        return (
            cell.outcome
            if cell.error is None
            else build_failed_outcome(cell.error.strip().rpartition("\n")[2].strip()[:500])
        )

    async def read_file(self, path: str) -> bytes | None:
        cell = await self._execute_cell(_READ.format(path=path, most=_MOST_BYTES))
        printed = cell.stdout.strip()
        return base64.b64decode(printed) if cell.error is None and printed != "-" else None

    async def _execute_cell(self, code: str) -> Cell:
        """Run code in its own process, which ends before the next one uses the folder."""
        read = list_readable_program_folders(self.home.settings, self.task)
        pads = open_scratchpads(self.home, f"{SESSION_PADS_DIR}/{self.session}", read=read)
        try:
            return await pads.execute_code(PAD, code)
        finally:
            await pads.close()


@asynccontextmanager
async def open_task_workspace(home: Home, task: Task) -> AsyncIterator[TaskWorkspace]:
    """Open the workspace of a task, and remove it at the end."""
    workspace = TaskWorkspace(home=home, task=task, session=f"task-{generate_turn_or_session_id()}")
    files = _LAY_OUT.format(files=json.dumps(dict(task.files))) if task.files else ""
    try:
        setup = await workspace.run_code(f"{files}\n{task.setup}")
        yield (
            workspace
            if setup.is_ok
            else replace(workspace, setup=build_infrastructure_failure_outcome(f"its setup failed: {setup.reason}"))
        )
    finally:
        await asyncio.to_thread(folders.remove_folder, str(home.writable_dir / SESSION_PADS_DIR / workspace.session))


def list_readable_program_folders(settings: Settings, task: Task) -> tuple[Path, ...]:
    """Return where shell programs are, for a task that needs one: the sandbox has none by default."""
    is_for_shell = task.domain == "bash" and settings.sandbox.runtime == "local"
    return resolve_readable_folders(settings, [Path("/usr")]) if is_for_shell else ()
