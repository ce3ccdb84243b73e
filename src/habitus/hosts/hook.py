"""A hook, as an agent runs it: pass the event to the hook daemon and print its answer.

Every prompt of the user waits for this file, so it imports nothing of Habitus and little of Python. On any error it
prints nothing and exits with 0, because a hook must never block the agent.
"""

# A part of `os`, which takes as long to import as all the rest.
import posix
import sys

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
    line = _connect_daemon(event, home, python)
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


def _connect_daemon(event: str, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    """Connect to the daemon, starting it at the beginning of a session; None if that fails."""
    # The module `socket` takes as long to import as all the rest.
    import _socket as socket

    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(SOCKET_FILE)
    except OSError:
        return _start_daemon(line, home, python) if event == "SessionStart" else None
    return line


def _start_daemon(line, home: str, python: str):  # type: ignore[no-untyped-def]  # a socket, or None
    """Start the daemon, which outlives this process, and wait for it; None if it takes too long."""
    import time

    command = [python, "-m", "habitus", "--home", home, "jobs", "hooks"]
    log = (posix.POSIX_SPAWN_OPEN, 1, LOG_FILE, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC, 0o600)
    silent = [(posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0), log, (posix.POSIX_SPAWN_DUP2, 1, 2)]
    posix.posix_spawn(python, command, posix.environ, file_actions=silent, setsid=True)
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until:
        try:
            line.connect(SOCKET_FILE)
        except OSError:
            time.sleep(0.02)
        else:
            return line
    return None


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    finally:
        # Skips all cleanup and tracebacks.
        posix._exit(0)
