"""Plans how code is confined on this machine: the command that starts it and the steps it takes itself.

Bubblewrap gives a process its own view of files, network, processes and users; the process then confines itself further
(`inside/confine.py`). Without bubblewrap only the second half applies, with namespaces where the kernel allows them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from habitus import operating_system
from habitus.errors import Invalid
from habitus.sandbox.files import COMMANDS
from habitus.sandbox.inside import confine
from habitus.sandbox.machine import (
    INSIDE,
    NO_NESTING,
    MachineCapabilities,
    build_inside_script_command,
    get_base_python,
    list_protection_statuses,
    require_protections,
)
from habitus.sandbox.model import Permissions, SandboxLimits
from habitus.sandbox.venvs import get_site_packages

_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64")
_DATA = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_SHARED_PREFIXES = (Path("/usr"), Path("/usr/local"))
CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/usr/share/ca-certificates")
_FOR_THE_NETWORK = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf", *CERTIFICATES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonInterpreter:
    """A base Python and, if code needs packages, the virtual environment that holds them.

    Only the base is started, without packages: their code must not run before the process is confined.
    """

    executable: str
    prefix: Path
    venv: Path | None = None

    @property
    def packages(self) -> Path | None:
        return get_site_packages(self.venv) if self.venv else None

    def list_visible_paths(self, *, network: bool) -> list[Path]:
        """Return the existing paths to show read-only, without nested ones."""
        wanted = [Path(path) for path in (*_LIBRARIES, *_DATA, *(_FOR_THE_NETWORK if network else ()))]
        if self.prefix in _SHARED_PREFIXES:
            wanted += [self.prefix / "lib", *_resolve_link_chain(self.executable)]
        else:
            wanted.append(self.prefix)
        if self.venv:
            wanted += [self.venv, *_resolve_link_chain(str(self.venv / "bin" / "python"))]
        wanted.append(INSIDE)
        return _drop_nested_paths([path for path in wanted if path.exists()])


def get_current_interpreter(venv: Path | None = None) -> PythonInterpreter:
    """Return the Python that runs this process, with an optional virtual environment."""
    return PythonInterpreter(executable=get_base_python(), prefix=Path(os.path.realpath(sys.base_prefix)), venv=venv)


def _resolve_link_chain(executable: str) -> list[Path]:
    """Return the program and each link to it: `venv/bin/python` → `/usr/bin/python3` → `/usr/bin/python3.11`."""
    chain = [Path(executable)]
    while chain[-1].is_symlink() and len(chain) < 40:
        chain.append(Path(os.path.normpath(chain[-1].parent / chain[-1].readlink())))
    return chain


def _drop_nested_paths(paths: list[Path]) -> list[Path]:
    """Return the paths without those that lie below another."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(above) for above in kept if not above.is_symlink()):
            kept.append(path)
    return kept


__all__ = [
    "GIVEN",
    "WORK",
    "JailOptions",
    "LaunchPlan",
    "build_rlimits",
    "check_granted_paths",
    "get_given_folder_path_inside",
    "list_protection_statuses",
    "plan_launch",
    "require_protections",
]

WORK, GIVEN = "/sandbox", "/given"  # names that no host uses, so they hide no granted path
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_FORBIDDEN = tuple(Path(path) for path in ("/", "/proc", "/sys", "/dev"))
_PER_CALL = confine.CLONE_NEWNS | confine.CLONE_NEWPID | confine.CLONE_NEWIPC | confine.CLONE_NEWUTS
# Address families for sockets; vsock, packet, alg, bluetooth and the like stay closed.
_UNIX, _INTERNET = 1, (2, 10, 16)
_SYSTEM = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "USER": "sandbox", "LOGNAME": "sandbox"}


@dataclass(frozen=True, kw_only=True, slots=True)
class JailOptions:
    """The options of one sandboxed process. Without `folder`, each call gets an empty one in memory."""

    interpreter: PythonInterpreter
    permissions: Permissions = field(default_factory=Permissions)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    folder: Path | None = None
    given: Path | None = None  # a folder it may read, including files added later


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """How to start a script inside: its command, its whole environment and the first message to send."""

    argv: tuple[str, ...]
    env: dict[str, str]
    spec: dict[str, object]
    # No namespace ends its processes with it, so it must be asked to end them.
    needs_termination: bool = False


def plan_launch(
    machine: MachineCapabilities, jail: JailOptions, script: str, *, scratch: Path, allow_weaker: bool
) -> LaunchPlan:
    """Plan one sandboxed process, or refuse. `scratch` is an empty host folder for a sandbox that can't mount one."""
    require_protections(machine, allow_weaker=allow_weaker)
    check_granted_paths(jail.permissions)
    command = build_inside_script_command(jail.interpreter.executable, script)
    if machine.bubblewrap:
        program = [str(machine.bubblewrap), *([] if machine.bubblewrap_nests else [NO_NESTING])]
        argv = [*program, *_build_bubblewrap_arguments(jail), "--", *command]
        return LaunchPlan(argv=tuple(argv), env={}, spec=_build_confinement_spec(machine, jail, work=WORK))
    work = str(jail.folder or scratch)
    spec = _build_confinement_spec(machine, jail, work=work)
    env = _build_environment_variables(work, given=get_given_folder_path_inside(machine, jail.given))
    return LaunchPlan(argv=tuple(command), env=env, spec=spec, needs_termination=not machine.has_namespaces)


def get_given_folder_path_inside(machine: MachineCapabilities, folder: Path | None) -> str:
    """Return where code finds the given folder: its own path in a sandbox that can't mount, "" if there is none."""
    return "" if folder is None else GIVEN if machine.bubblewrap else str(folder)


def _build_bubblewrap_arguments(jail: JailOptions) -> list[str]:
    makes_calls = jail.folder is None
    argv = ["--unshare-all", "--unshare-user", "--new-session", "--die-with-parent"]
    argv += ["--share-net"] if jail.permissions.network else []
    argv += ["--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if makes_calls:
        # The fork server runs only our code and needs these to create namespaces for each call.
        for capability in ("CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_NET_ADMIN"):
            argv += ["--cap-add", capability]
    # Root without capabilities could still write kernel settings through /proc: so it is read-only.
    argv += ["--proc", "/proc", "--remount-ro", "/proc"]
    argv += ["--perms", "755", "--tmpfs", "/dev"]
    for device in _DEVICES:
        argv += ["--dev-bind", device, device]
    room = str(jail.limits.folder_size)
    argv += ["--size", room, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    argv += ["--size", room, "--perms", "1777", "--tmpfs", "/tmp"]
    for path in jail.interpreter.list_visible_paths(network=jail.permissions.network):
        argv += _build_bind_arguments(path)
    for path in jail.permissions.read:
        argv += ["--ro-bind", str(path.resolve()), str(path)]
    for path in jail.permissions.write:
        argv += ["--bind", str(path.resolve()), str(path)]
    argv += ["--ro-bind", str(jail.given), GIVEN] if jail.given else []
    argv += ["--dir", WORK] if jail.folder is None else ["--bind", str(jail.folder), WORK]
    # A call could leave files for the next one in any folder that stays writable.
    argv += ["--remount-ro", "/dev/shm", "--remount-ro", "/tmp"] if makes_calls else []
    argv += ["--remount-ro", "/", "--chdir", WORK]
    given = GIVEN if jail.given else ""
    for name, value in _build_environment_variables(WORK, temporary=_choose_temp_folder(jail), given=given).items():
        argv += ["--setenv", name, value]
    return argv


def _build_bind_arguments(path: Path) -> list[str]:
    """Return the options that show a path inside. A link stays a link, because programs may depend on it."""
    if path.is_symlink() and path.is_dir():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)]


def _choose_temp_folder(jail: JailOptions) -> str:
    """Return /tmp, unless a call's own /tmp would hide a path that must be visible."""
    shown = [*jail.interpreter.list_visible_paths(network=False), *jail.permissions.read, *jail.permissions.write]
    hides = jail.folder is None and any(path.is_relative_to("/tmp") for path in shown if path != INSIDE)
    return WORK if hides else "/tmp"


def _build_environment_variables(home: str, *, temporary: str = "", given: str = "") -> dict[str, str]:
    """Return all the environment variables that code sees; `GIVEN` names the folder of given files."""
    found = {**_SYSTEM, "HOME": home, "TMPDIR": temporary or home}
    return {**found, "GIVEN": given, "PATH": f"{given}/{COMMANDS}:{_SYSTEM['PATH']}"} if given else found


def _build_confinement_spec(machine: MachineCapabilities, jail: JailOptions, *, work: str) -> dict[str, object]:
    """Return the steps by which the process confines itself, in the terms of `inside/confine.py`."""
    wrapped = machine.bubblewrap is not None
    own_net = not jail.permissions.network and (wrapped or machine.has_namespaces)
    per_call = _PER_CALL | (confine.CLONE_NEWNET if own_net else 0) if wrapped or machine.has_namespaces else 0
    packages, venv = jail.interpreter.packages, jail.interpreter.venv
    return {
        "rlimits": build_rlimits(machine, jail.limits),
        "landlock": _build_landlock_rules(machine, jail, work) if machine.landlock_abi else None,
        "seccomp": _build_seccomp_options(machine, jail) if machine.has_seccomp else None,
        "enter": per_call if not wrapped else 0,
        "per_call": per_call,
        "work": work,
        "writable": [work, *map(str, jail.permissions.write)],
        "private": list(dict.fromkeys([work, *([_choose_temp_folder(jail), "/dev/shm"] if wrapped else [])])),
        "room": jail.limits.folder_size,
        "packages": str(packages) if packages else None,
        "venv": str(venv) if venv else None,
    }


def build_rlimits(machine: MachineCapabilities, limits: SandboxLimits) -> dict[str, int]:
    """Return the rlimits of one process, by name."""
    # With a group the whole tree is bounded and this only makes Python say MemoryError; without, it is the bound.
    memory = "data" if machine.cgroups else "as"
    own_count = machine.bubblewrap is not None or machine.has_namespaces
    bounds = {
        memory: limits.memory,
        # The server and its helpers need a few processes of their own.
        "nproc": limits.processes + (8 if own_count else _count_user_tasks()),
        "fsize": limits.file_size,
        "nofile": limits.open_files,
        "core": 0,
        "memlock": 0,
        "msgqueue": 0,
    }
    return bounds if limits.cpu_s is None else {**bounds, "cpu": limits.cpu_s}


def _count_user_tasks() -> int:
    """Count this user's tasks: without a namespace, the process limit must lie above them."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == operating_system.get_current_user_id():
                count += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue
    return count


def _build_landlock_rules(machine: MachineCapabilities, jail: JailOptions, work: str) -> dict[str, object]:
    wrapped = machine.bubblewrap is not None
    given = [get_given_folder_path_inside(machine, jail.given)] if jail.given else []
    read = [*jail.interpreter.list_visible_paths(network=jail.permissions.network), *jail.permissions.read, *given]
    # Without a process namespace /proc shows the processes of the host.
    processes = "/proc" if wrapped or machine.has_namespaces else "/proc/self"
    write = [work, *jail.permissions.write, *_DEVICES, *(["/tmp", "/dev/shm"] if wrapped else [])]
    return {
        "read": [*map(str, read), processes],
        "write": [*map(str, write)],
        "may_connect": jail.permissions.network or wrapped or machine.has_namespaces,
    }


def _build_seccomp_options(machine: MachineCapabilities, jail: JailOptions) -> dict[str, object]:
    wrapped, network = machine.bubblewrap is not None, jail.permissions.network
    # Unix sockets lead out by a path, or by an abstract name where the network is shared and Landlock can't see to it.
    unix = wrapped and (not network or machine.landlock_abi >= 6)
    return {
        "families": [*([_UNIX] if unix else []), *(_INTERNET if wrapped or network else [])],
        "shared_memory": machine.cgroups is not None,
        "shares_host": not wrapped and not machine.has_namespaces,
    }


def check_granted_paths(permissions: Permissions) -> None:
    """Raise `Invalid` for a granted path that does not exist or would open the whole machine."""
    for path in (*permissions.read, *permissions.write):
        if not path.is_absolute() or not path.exists():
            raise Invalid(f"Can't grant '{path}': it is not an existing absolute path.")
        real = path.resolve()
        if real in _FORBIDDEN or any(real.is_relative_to(system) for system in _FORBIDDEN[1:]):
            raise Invalid(f"Can't grant '{path}': that would open the whole machine.", hint="Name a folder inside it.")
