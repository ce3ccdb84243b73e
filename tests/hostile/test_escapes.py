"""Code that tries to get out of the sandbox: each attack runs for real, under every strength this machine has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import textwrap
from pathlib import Path

import pytest

from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import MachineCapabilities, get_base_python
from habitus.sandbox.model import Permissions, SandboxLimits, ToolRunResult

pytestmark = pytest.mark.req("SB-09")

# Each attack says what it got away with; a sandbox that holds leaves the list empty.
PRELUDE = """
import ctypes, json, os, signal, socket, struct, subprocess, sys
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
won = []
def attempt(name, deed):
    try:
        result = deed()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return
    if isinstance(result, int) and not isinstance(result, bool) and result == -1:
        return
    won.append([name, repr(result)[:200]])
"""


async def attack(
    warm: ForkServerPool, code: str, given: object = None, program: SandboxedProgram | None = None
) -> object:
    """Run the attack and give what it reports in `won`, or the whole run when it did not get that far."""
    base = program or SandboxedProgram(code="", limits=SandboxLimits(wall_s=300))
    full = f"{PRELUDE}\n{textwrap.dedent(code)}\nprint(json.dumps(won))"
    run = await warm.call_tool(SandboxedProgram(code=full, permissions=base.permissions, limits=base.limits), given)
    assert run.outcome.is_ok, run
    return json.loads(run.stdout)


async def test_files_of_the_host_are_neither_read_nor_listed(warm: ForkServerPool, treasure: Path) -> None:
    code = """
    home = os.path.dirname(given)
    attempt("read", lambda: open(given).read())
    attempt("list", lambda: os.listdir(home))
    attempt("up", lambda: open("../../../../../.." + given).read())
    attempt("root link", lambda: open("/proc/self/root" + given).read())
    attempt("cwd link", lambda: open("/proc/1/cwd" + given).read())
    os.symlink(given, "link")
    attempt("symlink", lambda: open("link").read())
    attempt("hard link", lambda: os.link(given, "hard") or open("hard").read())
    for path in ("/etc/passwd", "/etc/shadow", "/etc/hostname", "/var/log", "/root", "/home", "/boot", "/sys/kernel"):
        attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
    attempt("open by handle", lambda: libc.open_by_handle_at(-100, b"x" * 64, 0))
    """
    assert await attack(warm, code, str(treasure)) == []


async def test_files_of_the_host_are_not_changed(warm: ForkServerPool, treasure: Path) -> None:
    code = """
    folder = os.path.dirname(given)
    attempt("write", lambda: open(given, "w").write("lead"))
    attempt("append", lambda: open(given, "a").write("lead"))
    attempt("truncate", lambda: os.truncate(given, 0))
    attempt("unlink", lambda: os.unlink(given))
    attempt("rename", lambda: os.rename(given, given + "2"))
    attempt("take", lambda: os.rename(given, "mine"))
    attempt("create", lambda: open(folder + "/new", "w"))
    attempt("mkdir", lambda: os.mkdir(folder + "/dir"))
    attempt("symlink", lambda: os.symlink("/", folder + "/link"))
    attempt("chmod", lambda: os.chmod(given, 0o777) or True)
    attempt("chmod folder", lambda: os.chmod(folder, 0o777) or True)
    attempt("chown", lambda: os.chown(given, os.getuid(), os.getgid()) or True)
    attempt("utime", lambda: os.utime(given, (1, 1)) or True)
    attempt("xattr", lambda: os.setxattr(given, "user.x", b"1") or True)
    """
    before = treasure.stat()
    assert await attack(warm, code, str(treasure)) == []
    assert treasure.stat() == before
    assert treasure.read_text() == "gold"
    assert sorted(path.name for path in treasure.parent.iterdir()) == ["treasure.txt"]


async def test_nothing_but_the_own_folder_can_be_written(warm: ForkServerPool) -> None:
    code = """
    import site, sysconfig
    for folder in ("/", "/usr", "/usr/lib", "/lib", "/etc", "/proc", "/dev", "/home", os.path.dirname(os.__file__)):
        attempt(folder, lambda: open(os.path.join(folder, "planted"), "w"))
        attempt(folder + " pth", lambda: open(os.path.join(folder, "planted.pth"), "w"))
    attempt("compiled", lambda: open(json.__cached__, "r+b"))
    attempt("source", lambda: open(os.__file__, "r+b"))
    """
    assert await attack(warm, code) == []


async def test_kernel_settings_are_out_of_reach(warm: ForkServerPool) -> None:
    code = """
    attempt("core_pattern", lambda: open("/proc/sys/kernel/core_pattern", "r+").write("|/work/x"))
    attempt("drop_caches", lambda: open("/proc/sys/vm/drop_caches", "w").write("1"))
    attempt("modprobe", lambda: open("/proc/sys/kernel/modprobe", "r+").write("/work/x"))
    attempt("sysrq", lambda: open("/proc/sysrq-trigger", "w").write("h"))
    attempt("namespaces", lambda: open("/proc/sys/user/max_user_namespaces", "w").write("100"))
    attempt("cgroup", lambda: os.listdir("/sys/fs/cgroup"))
    attempt("kcore", lambda: open("/proc/kcore", "rb").read(1))
    attempt("kmsg", lambda: open("/dev/kmsg").read(1))
    attempt("mem", lambda: open("/dev/mem", "rb").read(1))
    attempt("disk", lambda: os.mknod("disk", 0o60600, os.makedev(254, 0)) or open("disk", "rb").read(1))
    """
    assert await attack(warm, code) == []


async def test_processes_of_the_host_are_neither_seen_nor_touched(warm: ForkServerPool) -> None:
    code = """
    pid = given["pid"]
    attempt("signal", lambda: os.kill(pid, 0) or True)
    attempt("signal group", lambda: os.killpg(given["group"], 0) or True)
    attempt("signal parent", lambda: os.getppid() and (os.kill(os.getppid(), 0) or True) or -1)
    attempt("ptrace", lambda: libc.ptrace(16, pid, 0, 0))
    attempt("ptrace parent", lambda: libc.ptrace(16, os.getppid() or pid, 0, 0))
    attempt("environ", lambda: open(f"/proc/{pid}/environ").read())
    attempt("cmdline", lambda: open(f"/proc/{pid}/cmdline").read())
    attempt("memory", lambda: open(f"/proc/{pid}/mem", "rb").read(1))
    attempt("descriptors", lambda: os.listdir(f"/proc/{pid}/fd"))
    attempt("namespace", lambda: libc.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0))
    attempt("pidfd", lambda: libc.syscall(438, os.pidfd_open(pid), 0, 0))
    attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19) or True)
    attempt("limits", lambda: __import__("resource").prlimit(pid, 0))
    attempt("affinity", lambda: os.sched_setaffinity(pid, {0}) or True)
    attempt("others", lambda: [n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()] or -1)
    """
    given = {"pid": os.getpid(), "group": os.getpgrp()}
    assert await attack(warm, code, given) == []


async def test_no_privilege_is_gained(warm: ForkServerPool) -> None:
    code = """
    attempt("setuid", lambda: os.getuid() and (os.setuid(0) or True) or -1)
    attempt("setgroups", lambda: os.setgroups([0]) or True)
    attempt("user namespace", lambda: libc.unshare(0x10000000))
    attempt("mount namespace", lambda: libc.unshare(0x00020000))
    attempt("clone", lambda: libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x10000011, 0, 0, 0, 0))
    attempt("mount", lambda: libc.mount(b"tmpfs", b"/work", b"tmpfs", 0, None))
    attempt("umount", lambda: libc.umount2(b"/proc", 2))
    attempt("remount", lambda: libc.mount(None, b"/", None, 0x1020, None))
    attempt("pivot", lambda: libc.syscall({"x86_64": 155, "aarch64": 41}[os.uname().machine], b".", b"."))
    attempt("chroot", lambda: os.chroot(".") or True)
    attempt("hostname", lambda: socket.sethostname("mine") or True)
    attempt("keyring", lambda: libc.syscall({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 1))
    attempt("bpf", lambda: libc.syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 0, b"x" * 64, 64))
    attempt("perf", lambda: libc.syscall({"x86_64": 298, "aarch64": 241}[os.uname().machine], b"x" * 64, 0, -1, -1, 0))
    attempt("io_uring", lambda: libc.syscall(425, 4, b"\\0" * 120))
    attempt("userfaultfd", lambda: libc.syscall({"x86_64": 323, "aarch64": 282}[os.uname().machine], 0))
    attempt("personality", lambda: libc.syscall({"x86_64": 135, "aarch64": 92}[os.uname().machine], 0x0040000))
    attempt("segments", lambda: libc.syscall({"x86_64": 154, "aarch64": -1}[os.uname().machine], 0, b"x" * 64, 64))
    attempt("secret memory", lambda: libc.syscall(447, 0))
    attempt("queue that nothing bounds", lambda: libc.msgget(4711, 0o1666))
    attempt("memory that nothing bounds", lambda: libc.shmget(4711, 4096, 0o1600))
    attempt("pages lent to a pipe", lambda: libc.vmsplice(os.pipe()[1], b"x" * 16, 0, 0))
    io_setup = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
    attempt("asynchronous reads", lambda: libc.syscall(io_setup, 1, b"\\0" * 8))
    attempt("hidden descriptors", lambda: libc.prctl(4, 0, 0, 0, 0))
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
    for name, wanted in [("CapEff", 0), ("CapPrm", 0), ("CapInh", 0), ("CapAmb", 0), ("CapBnd", given)]:
        attempt(name, lambda: int(status[name], 16) & wanted if name == "CapBnd" else int(status[name], 16) or -1)
    attempt("new privileges", lambda: status["NoNewPrivs"] == "1" and -1)
    attempt("filter", lambda: status["Seccomp"] == "2" and -1)
    won = [entry for entry in won if entry != ["CapBnd", "0"]]
    """
    # An ordinary user can't empty the bounding set without namespaces; what matters is that nothing may be gained.
    wanted = (1 << 64) - 1 if os.geteuid() == 0 else 0
    assert await attack(warm, code, wanted) == []


async def test_a_set_user_id_program_gives_nothing(warm: ForkServerPool) -> None:
    code = """
    programs = [p for p in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd") if os.path.exists(p)]
    for program in programs:
        subprocess.run([program, "--help"], capture_output=True)
    ask = "import ctypes, struct; held = ctypes.create_string_buffer(24); libc = ctypes.CDLL(None);"
    ask += "libc.capget(struct.pack('Ii', 0x20080522, 0), held);"
    ask += "print(int(held.raw.hex(), 16), libc.prctl(39, 0, 0, 0, 0))"
    answer = subprocess.run([given, "-I", "-S", "-c", ask], capture_output=True, text=True)
    attempt("after exec", lambda: answer.stdout.split() == ["0", "1"] and -1 or answer)
    """
    program = SandboxedProgram(
        code="", permissions=Permissions(read=(Path("/usr/bin"),)), limits=SandboxLimits(wall_s=300)
    )
    assert await attack(warm, code, get_base_python(), program) == []


async def test_the_network_is_out_of_reach(warm: ForkServerPool) -> None:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        code = """
        attempt("tcp", lambda: socket.create_connection(("127.0.0.1", given["tcp"]), 2))
        attempt("tcp6", lambda: socket.create_connection(("::1", given["tcp"]), 2))
        def udp():
            line = socket.socket(type=socket.SOCK_DGRAM)
            line.sendto(b"hello", ("127.0.0.1", given["udp"]))
            line.settimeout(0.2)
            return line.recv(10)
        attempt("udp", udp)
        attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW, 0x300))
        attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
        attempt("crypto", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
        attempt("bluetooth", lambda: socket.socket(31, socket.SOCK_RAW))
        attempt("interfaces", lambda: [n for _, n in socket.if_nameindex() if n != "lo"] or -1)
        attempt("name", lambda: socket.getaddrinfo("localhost.example", 80) and True)
        """
        won = await attack(warm, code, {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]})
        assert won == []
        with pytest.raises(BlockingIOError):
            udp.recv(10)


async def test_unix_sockets_of_the_host_are_out_of_reach(warm: ForkServerPool, tmp_path: Path) -> None:
    name = f"\0habitus-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(name)
        abstract.listen()
        path = f"/tmp/habitus-test-{os.getpid()}.sock"
        named.bind(path)
        named.listen()
        try:
            code = """
            attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + given["name"]) or True)
            attempt("path", lambda: socket.socket(socket.AF_UNIX).connect(given["path"]) or True)
            """
            assert await attack(warm, code, {"name": name[1:], "path": path}) == []
        finally:
            Path(path).unlink()


@pytest.mark.req("SB-09")
async def test_granted_network_does_not_open_unix_sockets(warm: ForkServerPool) -> None:
    name = f"\0habitus-granted-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket() as tcp:
        abstract.bind(name)
        abstract.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        code = """
        socket.create_connection(("127.0.0.1", given["tcp"]), 2).close()
        attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + given["name"]) or True)
        attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
        """
        program = SandboxedProgram(code="", permissions=Permissions(network=True), limits=SandboxLimits(wall_s=300))
        assert await attack(warm, code, {"name": name[1:], "tcp": tcp.getsockname()[1]}, program) == []


async def test_environment_and_descriptors_of_the_host_do_not_leak(
    warm: ForkServerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HABITUS_TEST_SECRET", "hunter2")
    leak = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        code = """
        attempt("environ", lambda: "HABITUS_TEST_SECRET" in os.environ or -1)
        attempt("initial", lambda: b"hunter2" in open("/proc/self/environ", "rb").read() or -1)
        known = {"HOME", "LANG", "LC_CTYPE", "LOGNAME", "PATH", "PWD", "TMPDIR", "USER"}
        attempt("variables", lambda: sorted(set(os.environ) - known) or -1)
        fds = []
        for fd in range(1000):
            try:
                os.fstat(fd)
                fds.append(fd)
            except OSError:
                pass
        attempt("descriptors", lambda: fds != [0, 1, 2, 3] and fds or -1)  # 3 is the line it may ask over
        attempt("handed on", lambda: os.get_inheritable(3) or -1)
        """
        assert await attack(warm, code) == []
    finally:
        os.close(leak)


@pytest.mark.some(1)
@pytest.mark.parametrize("noise", [b"\xff" * 9, b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0", b'\0\0\0\x0b{"ask": {}}'])
async def test_noise_on_the_line_for_questions_harms_nobody(warm: ForkServerPool, noise: bytes) -> None:
    run = await warm.run_program(SandboxedProgram(code=f"import os; os.write(3, {noise!r}); print('still here')"))
    assert (run.stdout, run.outcome.is_ok) == ("still here\n", True)
    run = await warm.run_program(
        SandboxedProgram(code="try: skills.read('x')\nexcept LookupError as error: print(error)")
    )
    assert run.stdout == "skills.read is not offered here\n"


async def test_only_granted_variables_reach_the_code(warm: ForkServerPool) -> None:
    code = "import os; print(os.environ.get('TOKEN'), os.environ.get('OTHER'))"
    program = SandboxedProgram(code=code, permissions=Permissions(env=("TOKEN",)))
    run = await warm.run_program(program, env={"TOKEN": "yes", "OTHER": "no"})
    assert run.stdout == "yes None\n"


async def test_granted_paths_open_as_granted(warm: ForkServerPool, tmp_path: Path) -> None:
    readable, writable = tmp_path / "readable", tmp_path / "writable"
    for folder in (readable, writable):
        folder.mkdir()
        (folder / "file").write_text("here")
    code = """
    open(given["w"] + "/new", "w").write(open(given["r"] + "/file").read())
    attempt("write", lambda: open(given["r"] + "/file", "w"))
    attempt("neighbour", lambda: os.listdir(os.path.dirname(given["r"])).count("readable") > 5 or -1)
    """
    grants = Permissions(read=(readable,), write=(writable,))
    program = SandboxedProgram(code="", permissions=grants, limits=SandboxLimits(wall_s=300))
    assert await attack(warm, code, {"r": str(readable), "w": str(writable)}, program) == []
    assert (writable / "new").read_text() == "here"


async def test_one_call_leaves_nothing_for_the_next(warm: ForkServerPool) -> None:
    poison = """
    import builtins, json, random
    json.loads = lambda *a, **k: "poisoned"
    builtins.print = builtins.open = None
    sys.modules["random"] = None
    os.environ["POISON"] = "1"
    sys.path.insert(0, "/poison")
    os.umask(0)
    for folder in (".", "/tmp", "/dev/shm", os.environ["HOME"], os.environ["TMPDIR"]):
        try:
            os.close(os.open(folder + "/poison", os.O_CREAT | os.O_WRONLY))
        except OSError:
            pass
    libc.shmget(4711, 4096, 0o1666)
    libc.msgget(4711, 0o1666)
    try:
        hole = socket.socket(socket.AF_UNIX)
        hole.bind("\\0poison")
    except OSError:
        pass
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable or "/nowhere", ["python", "-I", "-S", "-c", "import time; time.sleep(100)"])
    os._exit(0)
    """
    check = """
    attempt("json", lambda: json.loads("1") == 1 and -1)
    attempt("modules", lambda: __import__("random").random() and -1)
    attempt("environ", lambda: "POISON" in os.environ or -1)
    attempt("path", lambda: "/poison" in sys.path or -1)
    attempt("umask", lambda: os.umask(0o22) == 0 or -1)
    for folder in (".", "/tmp", "/dev/shm", os.environ["HOME"]):
        attempt(folder, lambda: os.path.exists(folder + "/poison") or -1)
    attempt("shared memory", lambda: libc.shmget(4711, 4096, 0) if given else -1)
    attempt("queue", lambda: libc.msgget(4711, 0) if given else -1)
    attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0poison") or True)
    """
    first = await warm.call_tool(SandboxedProgram(code=PRELUDE + textwrap.dedent(poison)), None)
    assert first.exit_code == 0
    has_own_ipc = warm._machine.bubblewrap is not None or warm._machine.has_namespaces
    assert await attack(warm, check, has_own_ipc) == []


async def test_a_process_that_detaches_dies_with_its_call(warm: ForkServerPool) -> None:
    marker = f"habitus-straggler-{os.getpid()}"
    code = """
    import os, sys, json
    given = json.loads(sys.argv[1])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            python = given["python"]
            os.execv(python, [python, "-I", "-S", "-c", "import time; time.sleep(100)", given["marker"]])
    else:
        os.wait()
        import time
        time.sleep(0.2)
    """
    run = await warm.call_tool(
        SandboxedProgram(code=textwrap.dedent(code)), {"marker": marker, "python": get_base_python()}
    )
    assert run.outcome.is_ok, run
    assert _with_argument(marker) == []


async def test_a_process_that_detaches_dies_with_a_cancelled_call(warm: ForkServerPool) -> None:
    marker = f"habitus-cancelled-{os.getpid()}"
    code = """
import os, sys, json
given = json.loads(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        python = given["python"]
        os.execv(python, [python, "-I", "-S", "-c", "import time; time.sleep(100)", given["marker"]])
while True:
    pass
"""
    call = asyncio.ensure_future(
        warm.call_tool(SandboxedProgram(code=code), {"marker": marker, "python": get_base_python()})
    )
    while not _with_argument(marker):
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(300):  # the kernel ends a namespace a moment after its first process
        while _with_argument(marker):
            await asyncio.sleep(0.01)


async def test_killing_around_ends_only_the_call_itself(warm: ForkServerPool) -> None:
    code = "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getppid() or 1, signal.SIGKILL)\n"
    with contextlib.suppress(ProcessLookupError):
        await warm.call_tool(SandboxedProgram(code=code), None)
    run: ToolRunResult = await warm.call_tool(SandboxedProgram(code="print('still here')"), None)
    assert run.stdout == "still here\n"


async def test_closing_ends_every_process_and_descriptor(strength: MachineCapabilities, tmp_path: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    async with ForkServerPool(strength, tmp_path / "run") as warm:
        await warm.call_tool(SandboxedProgram(code="print(1)"), None)
        assert _children() != []
    assert _children() == []
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert list((tmp_path / "run").iterdir()) == []
    if strength.cgroups:
        assert list(strength.cgroups.pids.glob(f"habitus-{os.getpid()}-*")) == []


async def test_a_server_that_was_killed_is_replaced(warm: ForkServerPool) -> None:
    program = SandboxedProgram(code="print('fine')")
    await warm.call_tool(program, None)
    for child in _children():
        os.kill(child, signal.SIGKILL)
    run = await warm.call_tool(program, None)
    if not run.outcome.is_ok:  # its end was noticed only when the call was handed over
        assert run.outcome.kind == "infra"
        run = await warm.call_tool(program, None)
    assert run.stdout == "fine\n"


def _children() -> list[int]:
    """Our child processes that run our scripts (pytest's own helpers are none of our business)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and b"inside" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def _with_argument(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            if marker.encode() in arguments:
                found.append(entry.name)
    return found
