"""The fork server: a running Python that gives each call a fresh, confined fork of itself.

It runs no code of a tool in its own process, and one call at a time. Nothing of a call survives it: its processes are
killed, its mounts vanish with its namespace, and its memory was never shared.
"""

from __future__ import annotations

import _socket
import atexit
import contextlib
import gc
import os
import random
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any

from . import asking, confine, folders, landlock, seccomp, wire

assert sys.platform == "linux"

ConfinementSpec = dict[str, Any]

# The descriptor of a call over which it asks the host.
_QUESTIONS = 3
# The descriptor over which a call hands the host its listening socket.
_DOOR = 4
OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Modules that tools often import; preloaded, they cost a call nothing.
_PRELOAD = (
    "argparse", "ast", "base64", "bisect", "calendar", "collections", "contextlib", "copy", "csv",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fcntl", "fractions", "functools", "hashlib",
    "heapq", "html", "inspect", "io", "itertools", "json", "linecache", "logging", "math", "operator",
    "pathlib", "pprint", "random", "re", "secrets", "site", "statistics", "string", "subprocess", "tempfile",
    "textwrap", "typing", "unicodedata", "urllib.parse", "uuid", "zoneinfo",
)  # fmt: skip


def main() -> None:
    """Confine the server, preload modules and serve calls until the host hangs up."""
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    sys.path[:] = [path for path in sys.path if path != OUR_FOLDER]
    confine.join_cgroups(int(fd) for fd in sys.argv[2:])
    confine.die_with_parent()
    confine.adopt_orphans()
    spec = wire.receive(line.fileno())
    if spec is None:
        return
    own_pids = _fork_into_server_namespaces(spec)
    for name in _PRELOAD:
        __import__(name)
    if spec["seccomp"]:
        spec["filter"] = seccomp.compile_filter(**spec["seccomp"])
    gc.collect()
    # Frozen objects are not touched by the collector, so their pages stay shared with the forks.
    gc.freeze()
    gc.disable()
    try:
        _serve_calls(spec, line, own_pids)
    finally:
        if own_pids is None:
            confine.kill_descendants()


def _fork_into_server_namespaces(spec: ConfinementSpec) -> int | None:
    """Enter the server's own namespaces; return a descriptor that leads back to them after each fork."""
    if spec["enter"]:
        confine.enter_user_namespace(spec["enter"])
    elif spec["per_call"]:
        confine.unshare(confine.CLONE_NEWPID)
    else:
        # No namespace ends our children with us, so we ignore SIGTERM and end them when the socket closes.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return None
    child = os.fork()
    if child:
        # A new process namespace applies only to children: this half waits, so the exit is visible outside.
        os.close(int(sys.argv[1]))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    confine.die_with_parent()
    if spec["enter"]:
        confine.make_mounts_read_only(spec["writable"])
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def _serve_calls(spec: ConfinementSpec, line: socket.socket, own_pids: int | None) -> None:
    """Hand each call to a fork that is already confined, and prepare the next one while it runs."""
    spare: _ForkedCall | None = _ForkedCall(spec, own_pids)
    wire.send(line.fileno(), {"ready": True})
    while True:
        call, fds = wire.receive_with_fds(line)
        if call is None:
            return
        copy = spare or _ForkedCall(spec, own_pids)
        copy.start_call(call, fds)
        for fd in fds:
            os.close(fd)
        spare = _fork_for_next_call(spec, own_pids)
        reply = copy.wait_for_exit(line, float(call["wall_s"]))
        if own_pids is None:
            confine.kill_descendants(but=spare.pid if spare else 0)
        if not spec["per_call"]:
            # Without mounts of its own a call leaves files behind, which are measured and removed.
            reply["folder_size"] = folders.measure_folder_disk_space(spec["work"])
            folders.empty_folder(spec["work"])
        try:
            wire.send(line.fileno(), reply)
        except OSError:
            return
        copy.release()


def _fork_for_next_call(spec: ConfinementSpec, own_pids: int | None) -> _ForkedCall | None:
    """Fork ahead for the next call; None if the running call has used up the limits."""
    try:
        return _ForkedCall(spec, own_pids)
    except OSError:
        return None


class _ForkedCall:
    """One confined fork that waits for the single call it will run."""

    def __init__(self, spec: ConfinementSpec, own_pids: int | None) -> None:
        self._line, theirs = socket.socketpair()
        if own_pids is not None:
            confine.unshare(confine.CLONE_NEWPID)
        try:
            self.pid = confine.fork_process()
            if not self.pid:
                _run_forked_child(spec, theirs)
        finally:
            if own_pids is not None:
                confine.enter_namespace(own_pids, confine.CLONE_NEWPID)
            theirs.close()
        self._mounts: list[int] = []

    def start_call(self, call: wire.Message, fds: list[int]) -> None:
        """Send the call to the fork."""
        data = wire.pack(call)
        # The fork died while it waited, which `wait_for_exit` reports.
        with contextlib.suppress(OSError):
            socket.send_fds(self._line, [data[:1]], fds)
            self._line.sendall(data[1:])

    def wait_for_exit(self, line: socket.socket, seconds: float) -> wire.Message:
        """Wait until it ends, runs out of time, or the host hangs up; return the result of the call."""
        pidfd = os.pidfd_open(self.pid)
        poller = select.poll()
        for fd in (pidfd, line.fileno()):
            poller.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poller.poll(seconds * 1000)]
        if pidfd not in ready:
            os.kill(self.pid, signal.SIGKILL)
        os.close(pidfd)
        _, status, usage = os.wait4(self.pid, 0)
        trouble, self._mounts, _, _ = socket.recv_fds(self._line, 4096, 1)
        return {
            "exit_code": os.waitstatus_to_exitcode(status),
            "timed_out": not ready,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "setup_error": trouble[1:].decode(errors="replace") if trouble else "it did not start",
        }

    def release(self) -> None:
        """Release the mounts and the socket of the fork."""
        # Removing the mounts is slow, so this happens after the answer was sent.
        for fd in self._mounts:
            os.close(fd)
        self._line.close()


def _run_forked_child(spec: ConfinementSpec, line: socket.socket) -> None:
    """Confine this fork, wait for its call, run it, and exit."""
    try:
        line = _close_other_descriptors(line)
        if not spec["per_call"]:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        confine.die_with_parent()
        mounts = _enter_call_namespaces(spec)
        os.chdir(spec["work"])
        confine.drop_privileges()
        if spec["landlock"]:
            landlock.restrict_process_to_paths(**spec["landlock"])
        if spec["seccomp"]:
            seccomp.install_filter(spec["filter"])
    except BaseException as error:
        line.sendall(f"!{type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
    socket.send_fds(line, [b"."], mounts)
    call, fds = wire.receive_with_fds(line)
    if call is None:
        os._exit(1)
    line.detach()
    for number, fd in enumerate(fds):
        os.dup2(fd, number, inheritable=number < _QUESTIONS)
    os.closerange(len(fds), 1 << 16)
    if len(fds) > _DOOR:
        _hand_over_egress_socket()
    os._exit(_run_script(spec, call))


def _hand_over_egress_socket() -> None:
    """Open a port on this call's loopback and hand the socket to the host, which answers there."""
    door = socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=_DOOR)
    try:
        with socket.create_server(("127.0.0.1", wire.EGRESS_PORT)) as listener:
            socket.send_fds(door, [b"."], [listener.fileno()])
    except OSError as error:
        sys.stderr.write(f"No way out to the granted hosts: {error}\n")
    door.close()


def _close_other_descriptors(line: socket.socket) -> socket.socket:
    """Keep this socket and the three standard descriptors; close everything else the server had open."""
    if line.fileno() != 3:
        os.dup2(line.fileno(), 3, inheritable=False)
        line.detach()
        line = socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=3)
    os.closerange(4, 1 << 16)
    return line


def _enter_call_namespaces(spec: ConfinementSpec) -> list[int]:
    """Enter all per-call namespaces except that for processes; return a handle on the mounts, if any."""
    flags = spec["per_call"] & ~confine.CLONE_NEWPID
    if not flags:
        return []
    confine.unshare(flags)
    if flags & confine.CLONE_NEWNET:
        confine.bring_loopback_up()
    mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    safe = confine.MS_NOSUID | confine.MS_NODEV
    for folder in spec["private"]:
        confine.mount("tmpfs", folder, safe, f"size={spec['room']},mode=700")
    # Shows only the call's own processes and none of the kernel's settings.
    confine.mount("proc", "/proc", safe | confine.MS_NOEXEC | confine.MS_RDONLY, "subset=pid,hidepid=2")
    return [mounts]


def _run_script(spec: ConfinementSpec, call: wire.Message) -> int:
    """Run the code as Python runs a script and return its exit code."""
    gc.enable()
    confine.set_rlimits(call["rlimits"])
    os.environ.update(call["env"])
    _write_file(call["name"], call["code"].encode("utf-8", "surrogatepass"))
    # All forks share the state of the parent's generator.
    random.seed()
    if spec["packages"]:
        confine.activate_virtual_environment(spec["venv"], spec["packages"])
    sys.argv[:] = [call["name"], *call["argv"]]
    sys.path.insert(0, spec["work"])
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = os.path.join(spec["work"], call["name"])
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    asking.install_skills_module(module, _ask_host)
    code = 0
    try:
        exec(compile(call["code"], module.__dict__["__file__"], "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        code = _normalize_exit_code(end.code)
    except BaseException as error:
        code = 1
        _print_traceback(error)
    return _shut_down_interpreter(code)


_asking = threading.Lock()


def _ask_host(what: str, argument: object) -> wire.Message:
    with _asking:
        wire.send(_QUESTIONS, {"ask": what, "argument": argument})
        return wire.receive(_QUESTIONS) or {"error": "the host is gone"}


def _write_file(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.close(fd)


def _normalize_exit_code(given: object) -> int:
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    sys.stderr.write(f"{given}\n")
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print the traceback as Python does, without our own frame."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    traceback.print_exception(type(error), error, below)


def _shut_down_interpreter(code: int) -> int:
    """Shut down as Python does, without the teardown that the kernel does faster; return the exit code."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself calls to join threads
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException as error:
        if isinstance(error, SystemExit):
            return _normalize_exit_code(error.code)
        return code or 120
    return code
