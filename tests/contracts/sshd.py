"""A real SSH server of our own on loopback, with its own keys."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, kw_only=True, slots=True)
class Sshd:
    port: int
    key: Path
    known_hosts: Path


@contextmanager
def running_sshd(folder: Path, environ: dict[str, str]) -> Iterator[Sshd]:
    """Serve until the end of the block; `environ` is what a login sees. Skips the test where there is no server."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no SSH server here (Debian: apt-get install openssh-server)")
    folder.chmod(0o700)
    for name in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    (folder / "authorized").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "PidFile": folder / "pid",
        "AuthorizedKeysFile": folder / "authorized",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "LogLevel": "ERROR",
        "SetEnv": " ".join(f"{name}={value}" for name, value in environ.items()),
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    public = (folder / "host.pub").read_text().split()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    log = (folder / "log").open("wb")
    server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=log)
    try:
        _wait_for(port, server, folder / "log")
        made = Sshd(port=port, key=folder / "user", known_hosts=folder / "known")
        trial = subprocess.run(["ssh", *options(made), "127.0.0.1", "true"], capture_output=True, text=True)
        if trial.returncode:
            pytest.skip(f"this user can't log in by SSH: {trial.stderr.strip()[-200:]}")
        yield made
    finally:
        server.terminate()
        server.wait()
        log.close()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    while server.poll() is None:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
    pytest.skip(f"sshd does not start here: {log.read_text().strip()[-300:]}")


def options(server: Sshd) -> list[str]:
    given = ["-p", str(server.port), "-i", str(server.key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
    return [*given, "-o", f"UserKnownHostsFile={server.known_hosts}", "-F", "none"]


@contextmanager
def another_machine(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a machine for the settings; its key and its host are known to the `ssh` that is found first."""
    programs = folder / "bin"
    for place in (folder / "sshd", programs):
        place.mkdir()
    with running_sshd(folder / "sshd", {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}) as server:
        program = programs / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {shlex.join(options(server))} "$@"\n')
        program.chmod(0o755)
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        yield f"ssh://127.0.0.1:{server.port}"
