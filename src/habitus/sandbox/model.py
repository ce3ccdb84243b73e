"""The nouns of the sandbox: what code may do, what it may use up, and what running it came to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from habitus.events import OK, Outcome

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Permissions:
    """Permissions that a person granted beyond the own folder and Python: nothing by default."""

    network: bool = False
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one sandboxed process, with everything it starts. Sizes are bytes.

    `cpu_s` is for each process; `idle_cpu_s` for all of a scratchpad together, from the end of a cell to the next.
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
class Timeouts:
    """How long one cell may run in all, and how long without a sign of life."""

    total_s: float
    silence_s: float


def timeouts_for(estimated_s: float | None) -> Timeouts:
    """With an estimate e: max(2e, e+30) in all and max(0.5e, 30) of silence; without: 120 and 30."""
    if estimated_s is None or not math.isfinite(estimated_s) or estimated_s <= 0:
        return Timeouts(total_s=120.0, silence_s=30.0)
    total = max(2 * estimated_s, estimated_s + 30)
    silence = max(0.5 * estimated_s, 30.0)
    return Timeouts(total_s=min(total, 3600.0), silence_s=min(silence, 60.0))


class Stop(StrEnum):
    """Why a cell did not run to its end; the error of such a cell begins with these words."""

    TIMED_OUT = "Cell timed out"
    KILLED = "Cell killed"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A piece of code for a scratchpad and, once it ran, what it printed and what went wrong.

    `description` is what the author said the cell would do; `progress` what it reported of itself with
    `progress()`, `logs` its log records and our own messages.
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
    stopped: Stop | None = None
    made: tuple[str, ...] = ()  # files for a person to open, where they are kept

    @property
    def is_clean(self) -> bool:
        return self.error is None and not self.stderr.strip()

    @property
    def is_failed(self) -> bool:
        return bool(self.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRun:
    """The result of one call of a tool. `cut` counts the characters of output that were left out.

    `notice` is what to know of the tool itself, whatever this call came to.
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
class Protection:
    """One thing the sandbox keeps code from, whether this machine gives it, and how to mend it if not."""

    name: str
    is_on: bool
    required: bool
    why: str
    mend: str = ""
