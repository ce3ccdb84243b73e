"""The worker process of a scratchpad: runs cells one after another in one namespace and reports each result.

Standard output and error are pipes that the host reads, so nothing is buffered or copied here. The socket and spare
copies of the pipes use high descriptors, out of the way of cells that close or redirect the low ones.
"""

from __future__ import annotations

import _ast
import builtins
import contextlib
import fcntl
import io
import linecache
import logging
import os
import select
import signal
import sys
import threading
import traceback
import types

from . import asking, confine, landlock, seccomp, wire

assert sys.platform != "win32"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HIGH = 200


def main() -> None:
    """Confine this process and serve cells until the host hangs up."""
    line, out, err = (_move_to_high_descriptor(int(fd)) for fd in sys.argv[1:4])
    sys.path[:] = [path for path in sys.path if path not in ("", _OUR_FOLDER)]
    confine.join_cgroups(int(fd) for fd in sys.argv[4:])
    confine.die_with_parent()
    spec = wire.receive(line)
    if spec is None:
        return
    _confine_process(spec, line)
    confine.activate_virtual_environment(spec["venv"], spec["packages"])
    try:
        CellWorker(line, out, err).serve_cells()
    except OSError:
        # The host has hung up, so there is no one to report to.
        os._exit(70)


def _move_to_high_descriptor(fd: int) -> int:
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(fd)
    return high


def _confine_process(spec: dict[str, Any], line: int) -> None:
    if spec["enter"]:
        confine.enter_user_namespace(spec["enter"])
    if spec["enter"] or not spec["per_call"]:
        _continue_in_fork(line, alone=not spec["enter"])
    if spec["enter"]:
        confine.make_mounts_read_only(spec["writable"])
        safe = confine.MS_NOSUID | confine.MS_NODEV | confine.MS_NOEXEC | confine.MS_RDONLY
        confine.mount("proc", "/proc", safe, "subset=pid,hidepid=2")
        if spec["enter"] & confine.CLONE_NEWNET:
            confine.bring_loopback_up()
    os.umask(0o077)
    os.chdir(spec["work"])
    confine.set_rlimits(spec["rlimits"])
    confine.drop_privileges()
    if spec["landlock"]:
        landlock.restrict_process_to_paths(**spec["landlock"])
    if spec["seccomp"]:
        seccomp.install_filter(seccomp.compile_filter(**spec["seccomp"]))


def _continue_in_fork(line: int, *, alone: bool) -> None:
    """Continue as the worker in a fork, inside the new namespaces; the parent waits and ends what it leaves."""
    if alone:
        confine.adopt_orphans()
    child = os.fork()
    if not child:
        confine.die_with_parent()
        return
    os.closerange(3, 1 << 12)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    status = os.waitpid(child, 0)[1]
    if alone:
        confine.kill_descendants()
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


class CellWorker:
    """Keeps the names that cells define and the socket to the host."""

    def __init__(self, line: int, out: int, err: int) -> None:
        self._line = line
        self._streams = {1: out, 2: err}
        self._speaking = threading.Lock()
        self._own_pid = os.getpid()
        self._count = 0
        self._is_running = False
        self._is_talking = False
        self._was_interrupted = False
        self._asked = 0
        self._early: list[wire.Message] = []
        self._module = types.ModuleType("__main__")
        self._module.__dict__.update({"__builtins__": builtins, "progress": self.progress})

    def serve_cells(self) -> None:
        """Run each cell that the host sends and report its result."""
        sys.modules["__main__"] = self._module
        asking.install_skills_module(self._module, self._ask_host)
        logging.getLogger().addHandler(_HostLogHandler(self._send_message))
        self._reset_streams()
        self._send_message({"ready": True})
        while (message := self._receive_message()) is not None:
            if "exec" in message:
                self._send_message({"done": self._run_cell(message["exec"]), "id": message["id"]})

    def _receive_message(self) -> wire.Message | None:
        return self._early.pop(0) if self._early else wire.receive(self._line)

    def progress(self, text: object = "") -> None:
        """Tell the host that the cell is alive and how far it is."""
        self._send_message({"progress": str(text)[:1000]})

    def _run_cell(self, code: str) -> dict[str, Any]:
        self._reset_streams()
        for finder in list(sys.path_importer_cache.values()):
            # Packages may have been added since the last cell.
            getattr(finder, "invalidate_caches", int)()
        self._count += 1
        result: dict[str, Any] = {"error": None}
        try:
            self._is_running = True
            self._execute_code(code, f"<cell {self._count}>")
        except BaseException as error:
            self._is_running = False
            result = _build_error_report_of_cell(error)
        finally:
            self._is_running = False
        if os.getpid() != self._own_pid:
            # The cell forked, and the child ran to the end of the cell.
            os._exit(0)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except ValueError:
                # The cell closed the stream, which it may.
                pass
            except OSError as error:
                result = result if result["error"] else _build_error_report_of_cell(error)
        return result

    def _execute_code(self, code: str, name: str) -> None:
        """Run the statements and print the value of a last expression, as a notebook does."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = compile(code, name, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, _ast.Module)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        names = self._module.__dict__
        exec(compile(tree, name, "exec", dont_inherit=True), names)
        if isinstance(last, _ast.Expr):
            value = eval(compile(_ast.Expression(last.value), name, "eval", dont_inherit=True), names)
            if value is not None:
                names["_"] = value
                sys.stdout.write(f"{value!r}\n")

    def _reset_streams(self) -> None:
        """Restore standard input, output, error and the interrupt handler, whatever the last cell did to them."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
            os.dup2(nothing, number)
            # Output that could not be flushed belongs to the last cell, not to the next one.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, copy in self._streams.items():
            os.dup2(copy, number)
        if nothing > 2:
            os.close(nothing)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
        sys.stdout, sys.stderr = _open_text_stream(1), _open_text_stream(2)
        signal.signal(signal.SIGINT, self._handle_interrupt)

    def _handle_interrupt(self, *_: object) -> None:
        if self._is_talking:
            self._was_interrupted = True
        elif self._is_running and os.getpid() == self._own_pid:
            raise KeyboardInterrupt

    def _ask_host(self, what: str, argument: object) -> wire.Message:
        with self._speaking:
            self._asked += 1
            number = self._asked
            with self._delay_interrupts():
                wire.send(self._line, {"ask": what, "argument": argument, "id": number})
            return self._wait_for_answer(number)

    def _wait_for_answer(self, number: int) -> wire.Message:
        """Wait for the answer to this question.

        The answer to an interrupted question, or the next cell, may arrive first.
        """
        while True:
            # An interrupt may come through here, where no message is half read.
            select.select([self._line], [], [])
            with self._delay_interrupts():
                message = wire.receive(self._line)
            if message is None:
                return {"error": "the host is gone"}
            if "exec" in message:
                self._early.append(message)
            elif message.get("id") == number:
                return message

    def _send_message(self, message: wire.Message) -> None:
        with self._speaking, self._delay_interrupts():
            wire.send(self._line, message)

    @contextlib.contextmanager
    def _delay_interrupts(self) -> Iterator[None]:
        """Delay interrupts until a message is sent or received: half of one would garble all that follow."""
        if threading.current_thread() is not threading.main_thread():
            # Signals are handled in the main thread only.
            yield
            return
        self._is_talking = True
        try:
            yield
        finally:
            self._is_talking = False
        if self._was_interrupted:
            self._was_interrupted = False
            self._handle_interrupt()


class _HostLogHandler(logging.Handler):
    def __init__(self, say: Any) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say({"log": f"{record.levelname} {record.name}: {record.getMessage()}"[:2000]})


def _open_text_stream(number: int) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _build_error_report_of_cell(error: BaseException) -> dict[str, Any]:
    """Return the traceback from the cell on, and the missing module if an import failed."""
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return {"error": None}
    frame = error.__traceback__
    while frame and not frame.tb_frame.f_code.co_filename.startswith("<cell "):
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame)).rstrip()
    # Deep recursion produces tracebacks of megabytes; both ends matter, the middle does not.
    if len(text) > 20_000:
        text = f"{text[:10_000]}\n[… {len(text) - 20_000:,} characters were cut]\n{text[-10_000:]}"
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else None
    return {"error": text, "missing": missing, "interrupted": isinstance(error, KeyboardInterrupt)}
