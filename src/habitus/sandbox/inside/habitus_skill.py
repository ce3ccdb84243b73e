"""`habitus-skill NAME ARGUMENTS…`: has the host run a skill's command line and passes its output and code on.

Startup is most of the time of a call, so this script avoids `json` and uses the C functions behind it.
"""

from __future__ import annotations

import _socket
import os
import sys
from _json import encode_basestring_ascii, scanstring

SOCKET = "socket"  # beside the command
_NO_HOST, _NO_NAME = 125, 2


def main() -> None:
    """Send the request to the host, print the result and exit with its code."""
    if len(sys.argv) < 2:
        _print_error_and_exit("usage: habitus-skill NAME ARGUMENTS…\n", _NO_NAME)
    name, *arguments = (encode_basestring_ascii(word) for word in sys.argv[1:])
    stdin = "" if os.isatty(0) else _read_all(0).decode("utf-8", "surrogateescape")
    question = (
        f'{{"skill": {name}, "arguments": [{", ".join(arguments)}], "stdin": {encode_basestring_ascii(stdin)}}}\n'
    )
    try:
        answer = _send_request(question.encode()).decode()
        # The answer always has the same keys in the same order, so it can be read without a JSON parser.
        stdout, end = scanstring(answer, len('{"stdout": "'))
        stderr, end = scanstring(answer, end + len(', "stderr": "'))
        code = int(answer[end + len(', "code": ') :].rstrip("}\n"))
    except (OSError, ValueError) as error:
        _print_error_and_exit(f"habitus-skill: the host does not answer: {error}\n", _NO_HOST)
    _write_all(1, stdout)
    _print_error_and_exit(stderr, code)


def _send_request(question: bytes) -> bytes:
    if sys.platform == "win32":
        raise NotImplementedError
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    line.connect(os.path.join(os.path.dirname(sys.argv[0]), SOCKET))
    try:  # noqa: SIM105  # contextlib takes longer to import than all else here
        line.sendall(question)
    except BrokenPipeError:
        # The host stopped reading; its answer says why.
        pass
    return _read_all(line.fileno())


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _print_error_and_exit(message: str, code: int) -> None:
    _write_all(2, message)
    os._exit(code)


def _write_all(fd: int, text: str) -> None:
    rest = memoryview(text.encode("utf-8", "surrogateescape"))
    while rest:
        rest = rest[os.write(fd, rest) :]
