"""A hook, as an agent runs it: pass the event to the hook daemon and print its answer.

Every prompt of the user waits for this file, so it imports nothing of Habitus and little of Python. On any error it
prints nothing and exits with 0, because a hook must never block the agent.
"""

import sys

if sys.platform == "win32":
    import nt as posix
else:
    # A part of `os`, which takes as long to import as all the rest.
    import posix

SOCKET_FILE, LOG_FILE, NOTED_SESSIONS_FILE = "hooks.socket", "hooks.log", "hooks.spool"
_MAX_EVENT_BYTES = 1 << 24
# Seconds to wait for an answer, which only these events get.
_ANSWER_TIMEOUTS_S = {"SessionStart": 4.0, "UserPromptSubmit": 3.0, "PostToolUseFailure": 4.0}
# For the daemon to come up.
_START_TIMEOUT_S = 10.0
_NOTED_EVENTS = ("Stop", "SessionEnd")


def main(event: str, home: str, python: str) -> None:
    """Send the event to the daemon, and print its answer if the event gets one."""
    # A socket's address has room for about 100 characters; a missing home ends the hook here.
    posix.chdir(home)
    told = sys.stdin.buffer.read(_MAX_EVENT_BYTES)
    if event in _NOTED_EVENTS:
        _record_session_to_learn_from(event, told)
    line = _connect_or_start_daemon(event, home, python)
    if line is None:
        return
    line.settimeout(_ANSWER_TIMEOUTS_S.get(event, 0.1))
    line.sendall(event.encode() + b"\n" + told)
    line.shutdown(1)
    if event not in _ANSWER_TIMEOUTS_S:
        # The session goes on or has ended, so no answer is awaited.
        return
    answer = b""
    while part := line.recv(1 << 16):
        answer += part
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()


def _record_session_to_learn_from(event: str, told: bytes) -> None:
    """Append a line to the file of noted sessions, from whose transcripts Habitus learns later."""
    import json

    given = json.loads(told)
    kept = {"event": event, "session": given.get("session_id"), "transcript": given.get("transcript_path")}
    spool = posix.open(NOTED_SESSIONS_FILE, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT, 0o600)
    posix.write(spool, json.dumps({**kept, "cwd": given.get("cwd")}).encode() + b"\n")
    posix.close(spool)


def _connect_or_start_daemon(event: str, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    """Connect to the daemon, starting it at the beginning of a session; None if that fails."""
    # The module `socket` takes as long to import as all the rest.
    import _socket as socket

    try:
        return _connect_to_running_daemon(socket)  # type: ignore[no-untyped-call]
    except OSError:
        return _start_daemon_and_connect(socket, home, python) if event == "SessionStart" else None


def _connect_to_running_daemon(socket):  # type: ignore[no-untyped-def]  # from module to socket
    if sys.platform != "win32":
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(SOCKET_FILE)
    else:
        # The file names a port and the token to send first.
        with open(SOCKET_FILE) as file:
            port, token = file.read().split()
        line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        line.connect(("127.0.0.1", int(port)))
        line.sendall(token.encode() + b"\n")
    return line


def _start_daemon_and_connect(socket, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    """Start the daemon, which outlives this process, and wait for it; None if it takes too long."""
    import time

    _start_detached([python, "-m", "habitus", "--home", home, "jobs", "hooks"])
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until:
        try:
            return _connect_to_running_daemon(socket)  # type: ignore[no-untyped-call]
        except OSError:
            time.sleep(0.02)
    return None


def _start_detached(command: list[str]) -> None:
    if sys.platform != "win32":
        log = (posix.POSIX_SPAWN_OPEN, 1, LOG_FILE, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600)
        silent = [(posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0), log, (posix.POSIX_SPAWN_DUP2, 1, 2)]
        posix.posix_spawn(command[0], command, posix.environ, file_actions=silent, setsid=True)
    else:
        import subprocess

        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        with open(LOG_FILE, "wb") as log_file:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, creationflags=flags)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    finally:
        # Skips all cleanup and tracebacks.
        posix._exit(0)  # type: ignore[attr-defined, unused-ignore]  # stubs of Windows lack it
