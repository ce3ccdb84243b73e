"""One scratchpad: its worker, its cells, and the timeouts while a cell runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.sandbox.child import (
    HostServices,
    Message,
    OutputCapture,
    ProcessGone,
    answer_request_from_sandbox,
    get_last_line,
)
from habitus.sandbox.model import Cell, CellStopReason, CellTimeouts
from habitus.sandbox.runtimes.base import ScratchpadRuntime, WorkerProcess
from habitus.text import replace_surrogates

_MOST_LOGS, _LONGEST_LOG, _LONGEST_ERROR = 200, 2_000, 25_000
_LOST = "earlier variables are gone"


@dataclass(slots=True)
class _RunningCell:
    """A cell while it runs."""

    cell: Cell
    out: OutputCapture
    err: OutputCapture
    logs: list[str]
    progress: list[str] = field(default_factory=list)
    last_message_at: float = field(default_factory=time.monotonic)

    @property
    def last_activity_at(self) -> float:
        """When it last printed, reported progress, logged or asked something."""
        return max(self.last_message_at, self.out.last_fed, self.err.last_fed)

    def add_log(self, line: str) -> None:
        _append_limited_line(self.logs, line)

    def add_progress(self, text: str) -> None:
        _append_limited_line(self.progress, text)


@dataclass(frozen=True, kw_only=True, slots=True)
class _CellOutcome:
    """How a cell ended; `missing` is the module that it could not import."""

    error: str | None = None
    outcome: Outcome = OK
    missing: str | None = None
    stopped: CellStopReason | None = None


class ScratchpadRunner:
    """Runs cells one at a time in a worker that is started on demand and restarted if it died."""

    def __init__(
        self,
        name: str,
        runtime: ScratchpadRuntime,
        *,
        services: HostServices,
        timeouts: Callable[[float | None], CellTimeouts],
        output_chars: int,
        grace_s: float,
        on_missing: Callable[[str, str], Awaitable[str | None]],
        keep_made: Path | None = None,
    ) -> None:
        self.name = name
        self.cells: list[Cell] = []
        self.watch: Callable[[str], None] | None = None
        self._runtime = runtime
        self._services = services
        self._timeouts = timeouts
        self._output_chars = output_chars
        self._grace_s = grace_s
        self._on_missing = on_missing
        self._keep_made = keep_made
        self._worker: WorkerProcess | None = None
        # The last worker, which may have ended.
        self._last_worker: WorkerProcess | None = None
        self._turn = asyncio.Lock()
        self._stop = asyncio.Event()
        self._notice = ""

    async def execute_cell(self, cell: Cell) -> Cell:
        """Run the cell and return it with its result. Its failure is part of the result; only a missing
        sandbox raises.
        """
        async with self._turn:
            began = time.monotonic()
            self._stop.clear()
            done, missing = await self._run_cell_once(cell, [])
            if missing and (message := await self._on_missing(self.name, missing)):
                # A missing package was installed, so the cell gets one second chance.
                done, _ = await self._run_cell_once(cell, [message])
            done = replace(done, seconds=time.monotonic() - began, made=await self._collect_made_files())
            self.cells.append(done)
            return done

    def stop_running_cell(self) -> None:
        """Stop the running cell."""
        self._stop.set()

    async def close(self) -> None:
        """Stop the running cell and end the worker."""
        self._stop.set()
        async with self._turn:
            await self._end_worker_and_return_reason()

    async def _run_cell_once(self, cell: Cell, logs: list[str]) -> tuple[Cell, str | None]:
        """Run the cell once; return it as it ended, and the module that was missing, if any."""
        try:
            worker = await self._get_live_worker_with_files()
        except ProcessGone as gone:
            error = f"{CellStopReason.KILLED}: the scratchpad did not start ({gone})."
            return replace(
                cell,
                error=error,
                outcome=build_infrastructure_failure_outcome(str(gone)),
                stopped=CellStopReason.KILLED,
            ), None
        if self._notice:
            logs = [self._notice, *logs]
            self._notice = ""
        run = _RunningCell(cell, self._create_capture(), self._create_capture(), logs)
        worker.redirect_output(run.out, run.err)
        try:
            end = await self._run_cell_to_end(worker, run)
        except asyncio.CancelledError:
            # The caller is gone, and the cell must not go on unobserved.
            await asyncio.shield(self._discard_worker("it was stopped"))
            end = _build_stopped_outcome(CellStopReason.CANCELLED, ".")
            self.cells.append(_build_finished_cell(run, end))
            raise
        return _build_finished_cell(run, end), end.missing

    async def _get_live_worker_with_files(self) -> WorkerProcess:
        if self._worker and not self._worker.is_alive:
            await self._discard_worker()
        if self._worker is None:
            self._worker = await self._runtime.start_worker(self.name)
        self._last_worker = self._worker
        self._notice = " ".join(
            filter(None, [self._notice, await self._worker.update_given_files_and_report_failures()])
        )
        return self._worker

    async def _collect_made_files(self) -> tuple[str, ...]:
        """Copy out the files the cell made, even if its process has died."""
        if self._keep_made is None or self._last_worker is None:
            return ()
        return await self._last_worker.copy_newly_made_files(self._keep_made)

    def _create_capture(self) -> OutputCapture:
        return OutputCapture(self._output_chars, watch=self.watch)

    async def _run_cell_to_end(self, worker: WorkerProcess, run: _RunningCell) -> _CellOutcome:
        """Run the cell to its end: normal, by timeout, by cancellation, or by the death of its process."""
        talk = asyncio.ensure_future(self._exchange_messages_until_cell_ends(worker, run))
        reason: tuple[CellStopReason, str] | None = None
        try:
            reason = await self._wait_for_end_or_stop_reason(talk, run)
            if reason:
                await worker.interrupt()
                await asyncio.wait({talk}, timeout=self._grace_s)
                if not talk.done():
                    await self._discard_worker("it was stopped")
                    return _build_stopped_outcome(
                        *reason, f". It did not react to an interrupt: its process was ended, {_LOST}."
                    )
            end = talk.result()
        except ProcessGone:
            why = await self._discard_worker()
            if reason:
                return _build_stopped_outcome(*reason, f". Its process ended ({why}): {_LOST}.")
            error = f"{CellStopReason.KILLED}: its process ended ({why}); {_LOST}."
            return _CellOutcome(error=error, outcome=build_failed_outcome(why), stopped=CellStopReason.KILLED)
        finally:
            talk.cancel()
            worker.redirect_output(None, None)
        return _build_stopped_outcome(*reason, ". It was interrupted; variables are kept.") if reason else end

    async def _exchange_messages_until_cell_ends(self, worker: WorkerProcess, run: _RunningCell) -> _CellOutcome:
        """Exchange messages with the worker until it reports the end of this cell."""
        # A random id: a cell can't predict the next one's and report it as done.
        number = secrets.token_hex(8)
        await worker.send({"exec": run.cell.code, "id": number})
        while True:
            message = await worker.receive()
            run.last_message_at = time.monotonic()
            if isinstance(message.get("done"), dict):
                if message.get("id") == number:
                    worker.deliver_printed_output()
                    return _parse_cell_outcome(message["done"])
            elif "ask" in message:
                await worker.send(
                    {**await answer_request_from_sandbox(self._services, message), "id": message.get("id")}
                )
            elif "progress" in message:
                self._record_progress(run, replace_surrogates(str(message["progress"])[:_LONGEST_LOG]))
            elif "log" in message:
                run.add_log(replace_surrogates(str(message["log"])))

    def _record_progress(self, run: _RunningCell, text: str) -> None:
        if text:
            run.add_progress(text)
            if self.watch:
                self.watch(f"{text}\n")

    async def _wait_for_end_or_stop_reason(
        self, talk: asyncio.Future[_CellOutcome], run: _RunningCell
    ) -> tuple[CellStopReason, str] | None:
        """Wait until the cell ends (None) or must be stopped: the reason and the rest of the sentence."""
        limits = self._timeouts(run.cell.estimated_s)
        began = run.last_message_at = time.monotonic()
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            while not talk.done() and not stop.done():
                now = time.monotonic()
                total, silence = began + limits.total_s - now, run.last_activity_at + limits.silence_s - now
                if total <= 0:
                    return CellStopReason.TIMED_OUT, f" after {limits.total_s:g} s in total"
                if silence <= 0:
                    return (
                        CellStopReason.TIMED_OUT,
                        f" after {limits.silence_s:g} s of silence (no output, no progress())",
                    )
                either: set[asyncio.Future[Any]] = {talk, stop}
                await asyncio.wait(either, timeout=min(total, silence), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        return None if talk.done() else (CellStopReason.CANCELLED, "")

    async def _discard_worker(self, why: str = "") -> str:
        """End a worker whose variables are then lost; the next cell's log says so."""
        ended = await self._end_worker_and_return_reason()
        self._notice = f"The scratchpad's process had ended ({why or ended}): a new one was started, {_LOST}."
        return why or ended

    async def _end_worker_and_return_reason(self) -> str:
        """End the worker, if there is one; return why it had ended if we did not end it."""
        worker, self._worker = self._worker, None
        return await worker.close() if worker else ""


def _append_limited_line(lines: list[str], line: str) -> None:
    if len(lines) < _MOST_LOGS:
        lines.append(line[:_LONGEST_LOG])


def _build_finished_cell(run: _RunningCell, end: _CellOutcome) -> Cell:
    return replace(
        run.cell,
        stdout=run.out.get_text_with_cut_note(),
        stderr=run.err.get_text_with_cut_note(),
        error=end.error,
        logs=tuple(run.logs),
        progress=tuple(run.progress),
        outcome=end.outcome,
        stopped=end.stopped,
    )


def _parse_cell_outcome(done: Message) -> _CellOutcome:
    """Validate the worker's report, which code in the cell could have forged."""
    error, missing = done.get("error"), done.get("missing")
    if error is None:
        return _CellOutcome()
    text = replace_surrogates(str(error)[:_LONGEST_ERROR])
    return _CellOutcome(
        error=text,
        outcome=build_failed_outcome(get_last_line(text)),
        missing=missing if isinstance(missing, str) else None,
    )


def _build_stopped_outcome(stop: CellStopReason, *words: str) -> _CellOutcome:
    error = "".join((stop, *words))
    return _CellOutcome(error=error, outcome=build_infrastructure_failure_outcome(error), stopped=stop)
