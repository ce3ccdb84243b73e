"""One scratchpad: its worker, its cells, and the timeouts while a cell runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from habitus.events import OK, Outcome, failure, infra
from habitus.sandbox.child import Capture, Gone, Message, Services, answer
from habitus.sandbox.model import Cell, Stop, Timeouts
from habitus.sandbox.runtimes.base import Runtime, WorkerProcess
from habitus.text import encodable

_MOST_LOGS, _LONGEST_LOG, _LONGEST_ERROR = 200, 2_000, 25_000
_LOST = "earlier variables are gone"


@dataclass(slots=True)
class _Run:
    """A cell while it runs."""

    cell: Cell
    out: Capture
    err: Capture
    logs: list[str]
    progress: list[str] = field(default_factory=list)
    last_word: float = field(default_factory=time.monotonic)

    @property
    def last_sign(self) -> float:
        """When it last printed, reported progress, logged or asked something."""
        return max(self.last_word, self.out.last_fed, self.err.last_fed)

    def log(self, line: str) -> None:
        _note(self.logs, line)

    def report(self, text: str) -> None:
        _note(self.progress, text)


@dataclass(frozen=True, kw_only=True, slots=True)
class _End:
    """How a cell ended; `missing` is the module that it could not import."""

    error: str | None = None
    outcome: Outcome = OK
    missing: str | None = None
    stopped: Stop | None = None


class Pad:
    """Runs cells one at a time in a worker that is started on demand and restarted if it died."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        *,
        services: Services,
        timeouts: Callable[[float | None], Timeouts],
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

    async def execute(self, cell: Cell) -> Cell:
        """Run the cell and return it with its result. Its failure is part of the result; only a missing
        sandbox raises.
        """
        async with self._turn:
            began = time.monotonic()
            self._stop.clear()
            done, missing = await self._attempt(cell, [])
            if missing and (message := await self._on_missing(self.name, missing)):
                # A missing package was installed, so the cell gets one second chance.
                done, _ = await self._attempt(cell, [message])
            done = replace(done, seconds=time.monotonic() - began, made=await self._made_files())
            self.cells.append(done)
            return done

    def cancel(self) -> None:
        """Stop the running cell."""
        self._stop.set()

    async def close(self) -> None:
        """Stop the running cell and end the worker."""
        self._stop.set()
        async with self._turn:
            await self._end_worker()

    async def _attempt(self, cell: Cell, logs: list[str]) -> tuple[Cell, str | None]:
        """Run the cell once; return it as it ended, and the module that was missing, if any."""
        try:
            worker = await self._ready_worker()
        except Gone as gone:
            error = f"{Stop.KILLED}: the scratchpad did not start ({gone})."
            return replace(cell, error=error, outcome=infra(str(gone)), stopped=Stop.KILLED), None
        if self._notice:
            logs = [self._notice, *logs]
            self._notice = ""
        run = _Run(cell, self._capture(), self._capture(), logs)
        worker.listen(run.out, run.err)
        try:
            end = await self._converse(worker, run)
        except asyncio.CancelledError:
            # The caller is gone, and the cell must not go on unobserved.
            await asyncio.shield(self._lose_worker("it was stopped"))
            end = _end_of_stop(Stop.CANCELLED, ".")
            self.cells.append(_as_ended(run, end))
            raise
        return _as_ended(run, end), end.missing

    async def _ready_worker(self) -> WorkerProcess:
        if self._worker and not self._worker.is_alive:
            await self._lose_worker()
        if self._worker is None:
            self._worker = await self._runtime.start(self.name)
        self._last_worker = self._worker
        self._notice = " ".join(filter(None, [self._notice, await self._worker.give()]))
        return self._worker

    async def _made_files(self) -> tuple[str, ...]:
        """Copy out the files the cell made, even if its process has died."""
        if self._keep_made is None or self._last_worker is None:
            return ()
        return await self._last_worker.keep_made(self._keep_made)

    def _capture(self) -> Capture:
        return Capture(self._output_chars, watch=self.watch)

    async def _converse(self, worker: WorkerProcess, run: _Run) -> _End:
        """Run the cell to its end: normal, by timeout, by cancellation, or by the death of its process."""
        talk = asyncio.ensure_future(self._talk(worker, run))
        reason: tuple[Stop, str] | None = None
        try:
            reason = await self._reason_to_stop(talk, run)
            if reason:
                await worker.interrupt()
                await asyncio.wait({talk}, timeout=self._grace_s)
                if not talk.done():
                    await self._lose_worker("it was stopped")
                    return _end_of_stop(*reason, f". It did not react to an interrupt: its process was ended, {_LOST}.")
            end = talk.result()
        except Gone:
            why = await self._lose_worker()
            if reason:
                return _end_of_stop(*reason, f". Its process ended ({why}): {_LOST}.")
            error = f"{Stop.KILLED}: its process ended ({why}); {_LOST}."
            return _End(error=error, outcome=failure(why), stopped=Stop.KILLED)
        finally:
            talk.cancel()
            worker.listen(None, None)
        return _end_of_stop(*reason, ". It was interrupted; variables are kept.") if reason else end

    async def _talk(self, worker: WorkerProcess, run: _Run) -> _End:
        """Exchange messages with the worker until it reports the end of this cell."""
        # A random id: a cell can't predict the next one's and report it as done.
        number = secrets.token_hex(8)
        await worker.send({"exec": run.cell.code, "id": number})
        while True:
            message = await worker.receive()
            run.last_word = time.monotonic()
            if isinstance(message.get("done"), dict):
                if message.get("id") == number:
                    worker.settle()
                    return _check_end(message["done"])
            elif "ask" in message:
                await worker.send({**await answer(self._services, message), "id": message.get("id")})
            elif "progress" in message:
                self._report(run, encodable(str(message["progress"])[:_LONGEST_LOG]))
            elif "log" in message:
                run.log(encodable(str(message["log"])))

    def _report(self, run: _Run, text: str) -> None:
        if text:
            run.report(text)
            if self.watch:
                self.watch(f"{text}\n")

    async def _reason_to_stop(self, talk: asyncio.Future[_End], run: _Run) -> tuple[Stop, str] | None:
        """Wait until the cell ends (None) or must be stopped: the reason and the rest of the sentence."""
        limits = self._timeouts(run.cell.estimated_s)
        began = run.last_word = time.monotonic()
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            while not talk.done() and not stop.done():
                now = time.monotonic()
                total, silence = began + limits.total_s - now, run.last_sign + limits.silence_s - now
                if total <= 0:
                    return Stop.TIMED_OUT, f" after {limits.total_s:g} s in total"
                if silence <= 0:
                    return Stop.TIMED_OUT, f" after {limits.silence_s:g} s of silence (no output, no progress())"
                either: set[asyncio.Future[Any]] = {talk, stop}
                await asyncio.wait(either, timeout=min(total, silence), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        return None if talk.done() else (Stop.CANCELLED, "")

    async def _lose_worker(self, why: str = "") -> str:
        """End a worker whose variables are then lost; the next cell's log says so."""
        ended = await self._end_worker()
        self._notice = f"The scratchpad's process had ended ({why or ended}): a new one was started, {_LOST}."
        return why or ended

    async def _end_worker(self) -> str:
        """End the worker, if there is one; return why it had ended if we did not end it."""
        worker, self._worker = self._worker, None
        return await worker.close() if worker else ""


def _note(lines: list[str], line: str) -> None:
    if len(lines) < _MOST_LOGS:
        lines.append(line[:_LONGEST_LOG])


def _as_ended(run: _Run, end: _End) -> Cell:
    return replace(
        run.cell,
        stdout=run.out.text(),
        stderr=run.err.text(),
        error=end.error,
        logs=tuple(run.logs),
        progress=tuple(run.progress),
        outcome=end.outcome,
        stopped=end.stopped,
    )


def _check_end(done: Message) -> _End:
    """Validate the worker's report, which code in the cell could have forged."""
    error, missing = done.get("error"), done.get("missing")
    if error is None:
        return _End()
    text = encodable(str(error)[:_LONGEST_ERROR])
    return _End(error=text, outcome=failure(_last_line(text)), missing=missing if isinstance(missing, str) else None)


def _end_of_stop(stop: Stop, *words: str) -> _End:
    error = "".join((stop, *words))
    return _End(error=error, outcome=infra(error), stopped=stop)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:500] if text.strip() else ""
