"""A hook, as an agent runs it: hands what it was told to the resident process, and passes the answer on.

Every prompt of the person waits for this file, so it imports nothing of Habitus and little of Python. Whatever goes
wrong, it says nothing and exits with 0: a hook must never stand in the way.
"""

import posix  # what `os` is made of, which takes as long to import as all the rest
import sys

SOCKET, LOG, SPOOL = "hooks.socket", "hooks.log", "hooks.spool"
_LONGEST = 1 << 24
_WAITS_S = {"SessionStart": 4.0, "UserPromptSubmit": 3.0, "PostToolUseFailure": 4.0}  # for an answer
_START_S = 10.0  # for the resident process to come up
_SPOOLED = ("Stop", "SessionEnd")


def main(event: str, home: str, python: str) -> None:
    posix.chdir(home)  # a socket's address has room for a hundred characters, and a home that is gone ends it here
    told = sys.stdin.buffer.read(_LONGEST)
    if event in _SPOOLED:
        _note(event, told)
    line = _connect(event, home, python)
    if line is None:
        return
    line.settimeout(_WAITS_S.get(event, 0.1))
    line.sendall(event.encode() + b"\n" + told)
    line.shutdown(1)
    if event not in _WAITS_S:
        return  # the session goes on, or is over: nobody waits for us
    answer = b""
    while part := line.recv(1 << 16):
        answer += part
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _note(event: str, told: bytes) -> None:
    """One line in the spool: which transcript there is to learn from, and whether its session is over."""
    import json

    given = json.loads(told)
    kept = {"event": event, "session": given.get("session_id"), "transcript": given.get("transcript_path")}
    spool = posix.open(SPOOL, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT, 0o600)
    posix.write(spool, json.dumps({**kept, "cwd": given.get("cwd")}).encode() + b"\n")
    posix.close(spool)


def _connect(event: str, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    import _socket as socket  # the module around it takes as long to import as all the rest

    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(SOCKET)
    except OSError:
        return _start_resident(line, home, python) if event == "SessionStart" else None
    return line


def _start_resident(line, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    """Start the resident process, which outlives us, and wait a moment for it."""
    import time

    command = [python, "-m", "habitus", "--home", home, "hooks"]
    log = (posix.POSIX_SPAWN_OPEN, 1, LOG, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600)
    silent = [(posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0), log, (posix.POSIX_SPAWN_DUP2, 1, 2)]
    posix.posix_spawn(python, command, posix.environ, file_actions=silent, setsid=True)
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            line.connect(SOCKET)
        except OSError:
            time.sleep(0.02)
        else:
            return line
    return None


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    finally:
        posix._exit(0)  # without a word, whatever it was
