"""Answers an MCP client's first requests from a cache, before anything heavy is imported.

An agent goes on without the tools of a server that takes a second to start. Without a cache it gets the answers of an
empty home, which come with the package, except lists that this home may answer differently. The server gets the same
requests later; if its answer differs by then, the client is notified of a change. Only the standard library is
imported here.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from habitus.operating_system import wait_for_pipe_input
from habitus.optional_packages import describe_install, is_installed

_LISTEN, _LISTENS = "subscriptions/listen", "notifications/subscriptions/acknowledged"
_CACHED_METHODS = ("initialize", "server/discover", _LISTEN, "tools/list", "prompts/list", "resources/list")
# The server must have answered these before it gets the next request.
_HANDSHAKE_METHODS = _CACHED_METHODS[:2]
_PREFIX = "io.modelcontextprotocol/"
_VERSION, _SUBSCRIPTION = f"{_PREFIX}protocolVersion", f"{_PREFIX}subscriptionId"
# Start the server after this long without a further request.
_IDLE_BEFORE_START_S = 1.0
# The same, if a request is waiting that only the server can answer.
_PENDING_BEFORE_START_S = 0.2
# The longest wait for the server's own handshake.
_MAX_WAIT_S = 60.0
# The answers of an empty home with the default tools, written by scripts/first_answers.py.
_EMPTY_HOME_FILE = os.path.join(os.path.dirname(__file__), "first_answers.json")
# Options that don't prevent caching, with the number of words that follow each.
_CACHEABLE_OPTIONS = {"--tools": 1, "--user": 1, "--read-only": 0}


def make_early_responder(arguments: Sequence[str], environ: Mapping[str, str]) -> EarlyResponder:
    """Return the responder for `habitus ARGUMENTS…`."""
    file = _get_answer_cache_file(arguments, environ)
    if file and not is_installed("mcp"):
        return EarlyResponder(file, {}, install_hint=describe_install("mcp"))
    answers = _load_answer_cache(file)
    # Other tools than the default ones have other answers.
    if file and not answers and not {"--tools", "--read-only"} & {*arguments}:
        answers = _load_shipped_answers_of_empty_home(os.path.dirname(os.path.dirname(file)), environ)
    return EarlyResponder(file, answers)


def _load_shipped_answers_of_empty_home(home: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers of an empty home, without the lists that skills or learned tools in this home would change."""
    folder = os.path.join(home, "skills")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    # What a shared database holds is unknown here.
    is_shared = bool(environ.get("HABITUS_DATABASE")) or b"database" in _read_file(os.path.join(home, "habitus.toml"))
    different = {"resources/list"} if names or is_shared else set()
    # Clients that ignore change notifications would miss learned tools for the whole session.
    if is_shared or any(os.path.exists(os.path.join(folder, name, "tool.json")) for name in names):
        different.add("tools/list")
    shipped = _load_json(_EMPTY_HOME_FILE)
    return {key: answer for key, answer in shipped.items() if key.partition(" ")[0] not in different}


def _get_answer_cache_file(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the cache file for `habitus ARGUMENTS…`, by home, user and profile; empty if the answers
    are not cached.
    """
    rest, home = list(arguments), environ.get("HABITUS_HOME") or "~/.habitus"
    if rest[:1] == ["--home"]:
        home, rest = rest[1] if len(rest) > 1 else home, rest[2:]
    if rest[:1] != ["mcp"]:
        return ""
    left = rest[1:]
    while left:
        if left[0] not in _CACHEABLE_OPTIONS:
            return ""
        left = left[1 + _CACHEABLE_OPTIONS[left[0]] :]
    whose = json.dumps([*rest, environ.get("HABITUS_USER", "")]).encode()
    # A checksum keeps the file name short whatever the options are.
    return os.path.abspath(os.path.join(os.path.expanduser(home), "cache", f"mcp-{zlib.crc32(whose):08x}.json"))


class EarlyResponder:
    """The client's end of the pipe as the server sees it.

    Requests answered early are passed on first, and the server's answers to them are dropped.
    """

    def __init__(self, file: str, answers: dict[str, Any], *, install_hint: str = "") -> None:
        self._file = file
        # How to install the server's packages; empty if they are there.
        self._install_hint = install_hint
        self._in, self._out = 0, 1
        self._answers = answers
        self._early: list[bytes] = []
        # Ids of requests that the client already has an answer to.
        self._is_answered: set[str] = set()
        # Request keys by id, as passed on to the server.
        self._asked: dict[str, str] = {}
        # The protocol version, if the client starts with `initialize`.
        self._version = ""
        # The id of the client's subscription to changes, in the later protocol.
        self._listens: Any = None
        self._first_is_answered = threading.Event()

    def answer_early_requests(self) -> None:
        """Answer cached requests until the client has its tools or asks for something else.

        If the server can't start, answer all requests as a server without tools until the client leaves.
        """
        if self._install_hint and not os.isatty(self._in):
            while line := self._read_line_unbuffered():
                self._answer_without_server(_parse_message(line))
        limit: float | None = None
        while self._answers and wait_for_pipe_input(self._in, limit):
            line = self._read_line_unbuffered()
            self._early.append(line)
            message = _parse_message(line)
            key = self._get_request_key(message)
            if answer := self._find_cached_answer(key, message):
                self._is_answered.add(json.dumps(message["id"]))
                # The client has gone; the server will notice by itself.
                with contextlib.suppress(BrokenPipeError):
                    self._write_line(json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n")
                limit = limit or (_IDLE_BEFORE_START_S if message["method"] == "tools/list" else None)
            elif "id" in message and message.get("method") in _CACHED_METHODS:
                limit = _PENDING_BEFORE_START_S
            elif "id" in message or not message:
                return

    def _answer_without_server(self, message: dict[str, Any]) -> None:
        """Answer a request; agents stop starting a server that has failed, and would miss it once it is installed."""
        if "id" not in message:
            return
        missing, params = f"Habitus needs the extra 'mcp'. {self._install_hint}", message.get("params")
        version = params.get("protocolVersion") if isinstance(params, dict) else None
        about = {"serverInfo": {"name": "habitus", "version": "0"}, "capabilities": {"tools": {}}}
        results: dict[object, dict[str, Any]] = {
            "initialize": {**about, "protocolVersion": version, "instructions": missing},
            "tools/list": {"tools": []},
            "ping": {},
        }
        result = results.get(message.get("method"))
        said = {"error": {"code": -32601, "message": missing}} if result is None else {"result": result}
        with contextlib.suppress(BrokenPipeError):
            self._write_line(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode() + b"\n")

    def _find_cached_answer(self, key: str, message: dict[str, Any]) -> dict[str, Any]:
        """Return the cached answer to a request, or an empty dict."""
        if key not in self._answers:
            return {}
        if message["method"] != _LISTEN:
            return {"id": message["id"], "result": self._answers[key]}
        wanted = message["params"].get("notifications")
        # The cache knows the answer only for subscriptions that the server confirmed before.
        if not isinstance(wanted, dict) or not wanted.items() <= self._answers[key].items():
            return {}
        about = {"_meta": {_SUBSCRIPTION: message["id"]}, "notifications": wanted}
        return {"method": _LISTENS, "params": about}

    def take_over_streams(self) -> None:
        """Take the standard streams over, as the SDK does, so stray prints can't corrupt the protocol."""
        self._in, self._out = os.dup(0), os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._lines = os.fdopen(self._in, "rb", closefd=False)

    def readline(self) -> str:
        """Return the next line for the server."""
        # The SDK rejects requests that arrive before it has answered the handshake.
        if self._early and any(key.startswith(_HANDSHAKE_METHODS) for key in list(self._asked.values())):
            self._first_is_answered.wait(_MAX_WAIT_S)
        line = self._early.pop(0) if self._early else self._lines.readline()
        if any(method.encode() in line for method in _CACHED_METHODS):
            self._remember_request_passed_to_server(_parse_message(line))
        return line.decode("utf-8", "replace")

    def write(self, line: str) -> None:
        """Pass a line of the server on to the client, unless it was answered early."""
        if (said := self._filter_server_line(line) if self._asked else line) is not None:
            self._write_line(said.encode())

    def flush(self) -> None:
        """Do nothing: each line is written at once."""

    def _remember_request_passed_to_server(self, message: dict[str, Any]) -> None:
        """Remember which request the server gets under which id."""
        if message.get("method") == _LISTEN:
            self._listens = message.get("id")
        if key := self._get_request_key(message):
            self._first_is_answered.clear()
            self._asked[json.dumps(message["id"])] = key

    def _filter_server_line(self, line: str) -> str | None:
        """Return the line for the client: an answer, a change notification, or None if it is answered already."""
        message = _parse_message(line.encode())
        id, result = json.dumps(message.get("id")), message.get("result")
        if message.get("method") == _LISTENS:
            id, result = json.dumps(message["params"]["_meta"][_SUBSCRIPTION]), message["params"]["notifications"]
        if not (key := self._asked.pop(id, "")):
            return line
        if key.startswith(_HANDSHAKE_METHODS):
            self._first_is_answered.set()
        is_news = bool(result) and self._answers.get(key) != result
        # A narrower subscription must not replace the widest one known.
        if is_news and result and not (key.startswith(_LISTEN) and len(result) < len(self._answers.get(key, ()))):
            self._answers[key] = result
            self._save_answer_cache()
        if id not in self._is_answered:
            return line
        return self._make_change_notification(key) if is_news else None

    def _make_change_notification(self, key: str) -> str | None:
        """Return a notification that a list changed, or None if the client didn't subscribe."""
        what, _, kind = key.partition(" ")[0].partition("/")
        if kind != "list" or not (self._version or self._listens):
            return None
        about = {} if self._listens is None else {"params": {"_meta": {_SUBSCRIPTION: self._listens}}}
        return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed", **about}) + "\n"

    def _save_answer_cache(self) -> None:
        """Save the answers atomically; skipped if the home doesn't exist."""
        if not self._file or not os.path.isdir(os.path.dirname(os.path.dirname(self._file))):
            return
        aside = f"{self._file}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump({"by": _compute_installation_stamp(), "answers": self._answers}, file)
            os.replace(aside, self._file)
        except OSError:
            # A read-only home; the next client waits for the server.
            pass

    def _get_request_key(self, message: dict[str, Any]) -> str:
        """Return a request's method and protocol version as cache key; empty if its answer is not cached."""
        method, params = message.get("method"), message.get("params") or {}
        if method not in _CACHED_METHODS or "id" not in message or not isinstance(params, dict) or params.get("cursor"):
            return ""
        if method == "initialize":
            self._version = str(params.get("protocolVersion", ""))
        told = params.get("_meta")
        return f"{method} {(told.get(_VERSION) if isinstance(told, dict) else '') or self._version}"

    def _read_line_unbuffered(self) -> bytes:
        """Read a line byte by byte and leave everything after it unread."""
        found = bytearray()
        # A buffered reader would swallow bytes that belong to the server.
        while not found.endswith(b"\n") and (byte := os.read(self._in, 1)):
            found += byte
        return bytes(found)

    def _write_line(self, line: bytes) -> None:
        # A pipe can take fewer bytes than offered.
        while line:
            line = line[os.write(self._out, line) :]


def _parse_message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _compute_installation_stamp() -> int:
    """Return a mark that changes with each installation, which may answer differently."""
    return os.stat(__file__).st_mtime_ns


def _load_answer_cache(file: str) -> dict[str, Any]:
    """Return the cached answers of this installation, or an empty dict."""
    found = _load_json(file)
    answers = found.get("answers")
    return answers if found.get("by") == _compute_installation_stamp() and isinstance(answers, dict) else {}


def _load_json(file: str) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is none."""
    return _parse_message(_read_file(file))


def _read_file(file: str) -> bytes:
    """Return the content of a file; empty if it can't be read."""
    try:
        with open(file, "rb") as kept:
            return kept.read()
    except OSError:
        return b""
