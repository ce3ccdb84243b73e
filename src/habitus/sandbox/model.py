"""Data types of the sandbox: permissions, limits, cells and run results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from habitus.events import OK, Outcome

# Sizes in this package are plain bytes; these units keep the limits below readable.
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Permissions:
    """Permissions a person granted beyond the process's own folder and Python; empty by default."""

    network: bool = False
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxLimits:
    """Resource limits of one sandboxed process and everything it starts. Sizes are in bytes.

    `cpu_s` applies to each process; `idle_cpu_s` to a whole scratchpad, from the end of one cell to the start of the
    next.
    """

    memory: int = GIB
    processes: int = 64
    cpu_s: int | None = 60
    idle_cpu_s: int = 60
    wall_s: float = 60.0
    file_size: int = 128 * MIB
    folder_size: int = 256 * MIB
    open_files: int = 256
    output_chars: int = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTimeouts:
    """How long one cell may run in total, and how long without output or progress."""

    total_s: float
    silence_s: float


def compute_cell_timeouts(estimated_s: float | None) -> CellTimeouts:
    """Return the timeouts for a cell that its author expects to take `estimated_s` seconds.

    With an estimate e: max(2e, e+30) in total and max(0.5e, 30) of silence. Without one: 120 and 30.
    """
    if estimated_s is None or not math.isfinite(estimated_s) or estimated_s <= 0:
        return CellTimeouts(total_s=120.0, silence_s=30.0)
    total = max(2 * estimated_s, estimated_s + 30)
    silence = max(0.5 * estimated_s, 30.0)
    # An estimate is a guess by the model: even a huge one must not block a scratchpad for hours.
    return CellTimeouts(total_s=min(total, 3600.0), silence_s=min(silence, 60.0))


class CellStopReason(StrEnum):
    """Why a cell was stopped early. The error of such a cell begins with these words."""

    TIMED_OUT = "Cell timed out"
    KILLED = "Cell killed"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A piece of code for a scratchpad and, once it has run, its output and error.

    `description` is the author's summary of the cell; `progress` holds the texts it passed to `progress()`; `logs`
    holds its log records and our own messages.
    """

    code: str
    description: str = ""
    estimated_s: float | None = None
    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    logs: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()
    seconds: float = 0.0
    outcome: Outcome = OK
    stopped: CellStopReason | None = None
    # Files for a person to open, copied out of the sandbox.
    made: tuple[str, ...] = ()

    @property
    def has_no_error_or_stderr(self) -> bool:
        """Whether the cell raised no error and wrote nothing to stderr."""
        return self.error is None and not self.stderr.strip()

    @property
    def is_failed(self) -> bool:
        return bool(self.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRunResult:
    """The result of one tool call. `cut` counts the characters of output that were left out.

    `notice` concerns the tool itself, whatever the result of this call.
    """

    outcome: Outcome
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    cut: int = 0
    timed_out: bool = False
    notice: str = ""

    @property
    def is_failed(self) -> bool:
        return not self.outcome.is_ok


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectionMeasureStatus:
    """One protection of the sandbox, whether this machine provides it, and how to get it if not."""

    name: str
    is_on: bool
    required: bool
    why: str
    hint: str = ""
