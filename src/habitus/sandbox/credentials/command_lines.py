"""Runs the command lines of skills: checks every gate again, sandboxes the call, and logs it.

The proxy offers a session's command lines on a Unix socket, which `habitus-skill` uses inside scratchpads and tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from habitus import operating_system, sql
from habitus.errors import HabitusError, NotFound, Refused, StorageFailed
from habitus.events import Outcome, OutcomeKind, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.files import compute_tree_hash, write_atomically
from habitus.redact import CountingRedactor, Redactor
from habitus.sandbox.child import parse_reported_error
from habitus.sandbox.credentials.grants import (
    CommandLineCall,
    CommandLineCallLog,
    GrantedCredentials,
    SkillCommandLine,
    SkillCommandLineLookup,
)
from habitus.sandbox.egress import EgressProxy
from habitus.sandbox.files import SKILLS, GivenFolder
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.inside.habitus_skill import SOCKET
from habitus.sandbox.isolation import CERTIFICATES
from habitus.sandbox.machine import INSIDE, get_base_python
from habitus.sandbox.model import MIB, Permissions, SandboxLimits, ToolRunResult
from habitus.sandbox.venvs import EnvironmentCache
from habitus.text import clean_to_one_line, replace_surrogates

COMMAND = "habitus-skill"
TIMED_OUT, NO_SANDBOX, REFUSED, UNKNOWN = 124, 125, 126, 127  # the exit codes of `timeout` and the shell
_SIGNALLED = 128
LIMITS = SandboxLimits(wall_s=120.0)
_MOST_LOGGED, _LONGEST_LOGGED = 40, 200
# The file is imported, not run as a script: we only call its `main()`.
_START = """\
import importlib.util, sys
sys.argv[0], sys.path[0] = {skill!r}, {folder!r}
spec = importlib.util.spec_from_file_location("cli", {script!r})
cli = sys.modules["cli"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cli)
code = cli.main()
if hasattr(code, "__await__"):
    import asyncio
    code = asyncio.run(code)
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillCommandRunResult:
    """The redacted result of a call."""

    stdout: str = ""
    stderr: str = ""
    code: int
    outcome: Outcome

    def to_socket_message(self) -> dict[str, Any]:
        """Return the fields that are sent over the socket."""
        return {"stdout": self.stdout, "stderr": self.stderr, "code": self.code}


class CommandLineRunner:
    """Runs the command lines of one session, or of a person at a shell.

    `allowed` returns the names that may be called at all; the directory may refuse one of them but never adds one.
    `open_given_folder` returns the folder for files with a given hash.
    """

    def __init__(
        self,
        directory: SkillCommandLineLookup,
        allowed: Callable[[], Collection[str]],
        log: CommandLineCallLog,
        warm: ForkServerPool,
        environments: EnvironmentCache,
        *,
        open_given_folder: Callable[[str], GivenFolder],
        caller: str,
        clock: Callable[[], datetime],
        limits: SandboxLimits = LIMITS,
    ) -> None:
        self._directory = directory
        self._allowed = allowed
        self._log = log
        self._warm = warm
        self._environments = environments
        self._given = open_given_folder
        self._who = caller
        self._clock = clock
        self._limits = limits

    async def run_command_line(self, skill: str, arguments: Sequence[str], stdin: bytes = b"") -> SkillCommandRunResult:
        """Run a command line, or refuse it. Either way the call is logged; `StorageFailed` if that is impossible."""
        skill, granted = replace_surrogates(skill), GrantedCredentials()
        try:
            line = await asyncio.to_thread(self._find_checked_command_line, skill)
            granted = line.granted
            answer = await self._run_in_sandbox(line, arguments, stdin)
        except asyncio.CancelledError:
            await self._log_call(
                skill,
                arguments,
                build_infrastructure_failure_outcome("It was stopped because the caller disconnected."),
                granted,
            )
            raise
        except HabitusError as error:
            code = UNKNOWN if isinstance(error, NotFound) else REFUSED
            return await self.log_refused_call(str(error), skill, arguments, code=code)
        await self._log_call(skill, arguments, answer.outcome, granted)
        return answer

    async def log_refused_call(
        self, reason: str, skill: str = "", arguments: Sequence[str] = (), *, code: int = REFUSED
    ) -> SkillCommandRunResult:
        """Log a refusal and return it as a result; nothing is run."""
        outcome = build_failed_outcome(reason)
        await self._log_call(skill, arguments, outcome, GrantedCredentials(), is_refused=True)
        return SkillCommandRunResult(stderr=f"{COMMAND}: {reason}\n", code=code, outcome=outcome)

    async def run_untrusted_call_request(self, question: object) -> SkillCommandRunResult:
        """Run the call that untrusted code requests as `{"skill", "arguments", "stdin"}`; refuse anything else."""
        match question:
            case {"skill": str(skill), "arguments": [*words], "stdin": str(stdin)} if _are_encodable_texts(
                [*words, stdin]
            ):
                return await self.run_command_line(skill, words, stdin.encode("utf-8", "surrogateescape"))
            case _:
                return await self.log_refused_call("That is no call: it has a skill, arguments and a stdin.")

    async def close(self) -> None:
        """Stop the sandboxed processes."""
        await self._warm.close()

    def _find_checked_command_line(self, skill: str) -> SkillCommandLine:
        allowed = self._allowed()
        # Models often write the name of a Python module instead of the skill's.
        skill = skill if skill in allowed else skill.lower().replace("_", "-")
        if skill not in allowed:
            hint = f"There are: {', '.join(sorted(allowed))}." if allowed else "There are none."
            raise NotFound(f"No command line '{clean_to_one_line(skill)[:100]}' may be called here.", hint=hint)
        with _translate_database_failures("the gates can't be checked, so nothing is called"):
            return self._directory.get_checked_command_line(skill)

    async def _run_in_sandbox(
        self, line: SkillCommandLine, arguments: Sequence[str], stdin: bytes
    ) -> SkillCommandRunResult:
        granted, egress = line.granted, EgressProxy(line.granted.hosts)
        # Without a network namespace we could only open the whole network, which is more than was granted.
        if granted.hosts and not self._warm.can_filter_network:
            raise Refused("This machine can't restrict the network to its hosts.", hint="Install bubblewrap.")
        program = await self._build_program(line)
        run = await self._warm.run_program(program, arguments, stdin=stdin, env=granted.variables, egress=egress)
        return await asyncio.to_thread(_build_redacted_command_result, line, run, egress)

    async def _build_program(self, line: SkillCommandLine) -> SandboxedProgram:
        venv = await self._environments.ensure_environment(line.dependencies)
        given = await asyncio.to_thread(self._place_skill_files, line)
        script = PurePosixPath(given.get_visible_path(SKILLS, line.skill), line.script)
        certificates = [Path(path) for path in CERTIFICATES if line.granted.hosts and Path(path).is_dir()]
        return SandboxedProgram(
            code=_START.format(skill=line.skill, folder=str(script.parent), script=str(script)),
            venv=venv,
            permissions=Permissions(
                read=(*line.granted.readable, *certificates), env=tuple(sorted(line.granted.variables))
            ),
            limits=self._limits,
            given=given.folder,
        )

    def _place_skill_files(self, line: SkillCommandLine) -> GivenFolder:
        given = self._given(compute_tree_hash(line.files))
        if not given.has_skill_files(line.skill):
            left_out = given.replace_skill_files(line.skill, line.files, folders=line.folders).left_out
            if line.script in left_out:
                raise Refused(f"The {line.script} of '{line.skill}' can't be run: {left_out[line.script]}.")
        return given

    async def _log_call(
        self,
        skill: str,
        arguments: Sequence[str],
        outcome: Outcome,
        granted: GrantedCredentials,
        *,
        is_refused: bool = False,
    ) -> None:
        call = CommandLineCall(
            caller=self._who,
            skill=skill[:_LONGEST_LOGGED],
            arguments=tuple(map(replace_surrogates, arguments)),
            outcome=replace(outcome, reason=replace_surrogates(outcome.reason)),
            is_refused=is_refused,
            secrets=granted.secrets,
            timestamp=self._clock(),
        )
        await asyncio.to_thread(self._store_redacted_call, call, Redactor(granted.sensitive))

    def _store_redacted_call(self, call: CommandLineCall, redactor: Redactor) -> None:
        words = [redactor.redact(word).text[:_LONGEST_LOGGED] for word in call.arguments[:_MOST_LOGGED]]
        more = len(call.arguments) - len(words)
        with _translate_database_failures("the call can't be logged"):
            self._log.record(replace(call, arguments=(*words, *([f"… and {more} more"] if more else []))))


@contextmanager
def _translate_database_failures(otherwise: str) -> Iterator[None]:
    """Turn a database failure inside the block into `StorageFailed`."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StorageFailed(f"The database does not answer: {otherwise}.", hint="Try again later.") from error


def _are_encodable_texts(words: Sequence[object]) -> bool:
    """Whether every word can be encoded. Bytes that are not UTF-8 can; other lone surrogates can't."""
    return all(isinstance(word, str) and not re.search("[\ud800-\udc7f\udd00-\udfff]", word) for word in words)


def _build_redacted_command_result(
    line: SkillCommandLine, run: ToolRunResult, egress: EgressProxy
) -> SkillCommandRunResult:
    """Build the result: redact secrets and add remarks about hosts, leaks and missing grants."""
    redactor = CountingRedactor(Redactor(line.granted.sensitive))
    # Redacting inside JSON strings keeps the output parseable.
    stdout, stderr = redactor.redact_json(run.stdout), redactor.redact(run.stderr).text
    outcome = _determine_outcome(run, redactor)
    remarks = _collect_result_remarks(line, outcome, egress, has_leaked=redactor.counts["known"] > 0)
    if remarks:
        before = f"{stderr.rstrip()}\n" if stderr.strip() else ""
        stderr = before + "".join(f"{COMMAND}: {remark}\n" for remark in remarks)
        outcome = replace(outcome, reason=" ".join([outcome.reason, *remarks]).strip())
    return SkillCommandRunResult(stdout=stdout, stderr=stderr, code=_compute_exit_code(run, outcome), outcome=outcome)


def _determine_outcome(run: ToolRunResult, redactor: Redactor) -> Outcome:
    """Return the sandbox's outcome, unless the program itself printed an error report."""
    told = parse_reported_error(run.stdout) if run.outcome.is_ok else ""
    outcome = build_failed_outcome(f"It reports an error: {told}") if told else run.outcome
    return replace(outcome, reason=redactor.redact(outcome.reason).text)


def _collect_result_remarks(
    line: SkillCommandLine, outcome: Outcome, egress: EgressProxy, *, has_leaked: bool
) -> list[str]:
    """Return remarks for the person and the caller."""
    remarks = [f"It may not reach {place}." for place in egress.refused]
    if has_leaked:
        remarks.append("It printed a secret, which was removed.")
    return remarks if outcome.is_ok else [*remarks, *line.granted.missing]


def _compute_exit_code(run: ToolRunResult, outcome: Outcome) -> int:
    """Return the program's own exit code, but never 0 if it reported an error."""
    if run.timed_out:
        return TIMED_OUT
    if run.exit_code is None or run.outcome.kind is OutcomeKind.INFRA:
        return NO_SANDBOX
    if run.exit_code == 0:
        return 0 if outcome.is_ok else 1
    return run.exit_code if run.exit_code > 0 else _SIGNALLED - run.exit_code


calls = sa.Table(
    "skill_calls",
    sql.metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("called_on", sql.UtcDateTime, nullable=False),
    *sql.build_required_columns(sa.String, "who", "skill"),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("is_refused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("secrets", sa.Text, nullable=False),  # JSON: names
    sa.Index("skill_calls_by_time", "called_on"),
)
_LONGEST = 2_000  # characters stored of an argument or reason


class CommandLineCallStore:
    """Stores the calls of command lines. `redact` is applied to arguments and reasons before they are stored."""

    def __init__(self, engine: sa.Engine, *, redact: Callable[[str], str], retention: timedelta) -> None:
        self._engine = engine
        self._redacted = redact
        self._kept_for = retention

    def record(self, call: CommandLineCall) -> None:
        """Store a call and delete those older than the retention period."""
        row = {
            "called_on": call.timestamp,
            "who": call.caller,
            "skill": self._redact_and_truncate(call.skill),
            "arguments": json.dumps(
                [self._redact_and_truncate(argument) for argument in call.arguments], ensure_ascii=False
            ),
            "outcome": call.outcome.kind.value,
            "reason": self._redact_and_truncate(call.outcome.reason),
            "is_refused": call.is_refused,
            "secrets": json.dumps(call.secrets),
        }
        with sql.write_transaction(self._engine) as connection:
            connection.execute(calls.insert(), [row])
            # Pruning with each insert keeps the table small without a scheduled job.
            connection.execute(calls.delete().where(calls.c.called_on < call.timestamp - self._kept_for))

    def list_logged_calls(self, *, since: datetime | None = None, limit: int = 200) -> tuple[CommandLineCall, ...]:
        """Return the stored calls, newest first."""
        query = sa.select(calls).order_by(calls.c.id.desc()).limit(limit)
        if since is not None:
            query = query.where(calls.c.called_on >= since)
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            CommandLineCall(
                caller=row["who"],
                skill=row["skill"],
                arguments=tuple(json.loads(row["arguments"])),
                outcome=Outcome(kind=OutcomeKind(row["outcome"]), reason=row["reason"]),
                is_refused=row["is_refused"],
                secrets=tuple(json.loads(row["secrets"])),
                timestamp=row["called_on"],
            )
            for row in rows
        )

    def _redact_and_truncate(self, text: str) -> str:
        clean = self._redacted(text)
        return clean if len(clean) <= _LONGEST else f"{clean[:_LONGEST]}…"


LONGEST_LINE = MIB
_LINE_S, _MOST_AT_ONCE = 10.0, 16
_CLIENT = INSIDE / "habitus_skill.py"


class SkillCommandLineServer:
    """Serves command-line calls on a Unix socket in a folder that sandboxed code can read, next to the client command.

    Only the user with `uid` may connect; the kernel tells us the caller's id.
    """

    def __init__(self, caller: CommandLineRunner, folder: Path, *, uid: int) -> None:
        self._caller = caller
        self._folder = folder
        self._uid = uid
        self._opening = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._own = 0
        self._asking: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start listening, unless that has already happened."""
        async with self._opening:
            if self._server is None:
                door = await asyncio.to_thread(self._install_client_and_open_socket)
                self._server = await asyncio.start_server(self._serve_client, sock=door, limit=LONGEST_LINE)

    async def close(self) -> None:
        """Stop listening and cancel the calls that are still running."""
        async with self._opening:
            server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)
        await asyncio.to_thread(self._remove_socket)

    def _install_client_and_open_socket(self) -> socket.socket:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = self._folder / COMMAND
        # The whole of it, because a call may have its own /tmp where our package lies.
        script = f"#!{get_base_python()} -IS\n{_CLIENT.read_text(encoding='utf-8')}\n\nmain()\n"
        write_atomically(command, script.encode(), mode=0o500, durable=False)
        door, _ = operating_system.open_local_listening_socket(self._folder / SOCKET)
        self._own = (self._folder / SOCKET).stat().st_ino
        return door

    def _remove_socket(self) -> None:
        """Remove the socket, unless another process of the same session has replaced it."""
        place = self._folder / SOCKET
        with contextlib.suppress(FileNotFoundError):
            if place.stat().st_ino == self._own:
                place.unlink()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                try:
                    answer = await self._read_and_run_client_request(reader, writer.get_extra_info("socket"))
                except HabitusError as error:
                    answer = SkillCommandRunResult(
                        stderr=f"{COMMAND}: {error}\n",
                        code=NO_SANDBOX,
                        outcome=build_infrastructure_failure_outcome(str(error)),
                    )
                writer.write(json.dumps(answer.to_socket_message()).encode() + b"\n")
                await writer.drain()
        finally:
            self._asking.discard(task)

    async def _read_and_run_client_request(
        self, reader: asyncio.StreamReader, line: socket.socket
    ) -> SkillCommandRunResult:
        if (uid := _get_peer_uid(line)) != self._uid:
            return await self._caller.log_refused_call(f"The user with the id {uid} may not ask here.")
        # Untrusted code could otherwise exhaust our descriptors and memory.
        if len(self._asking) > _MOST_AT_ONCE:
            return await self._caller.log_refused_call(f"More than {_MOST_AT_ONCE} ask at once.")
        try:
            async with asyncio.timeout(_LINE_S):
                question = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            return await self._caller.log_refused_call(f"It is longer than {LONGEST_LINE // MIB} MiB.")
        except (asyncio.IncompleteReadError, TimeoutError):
            return await self._caller.log_refused_call("That is half a line.")
        return await self._run_while_connected(question, reader)

    async def _run_while_connected(self, question: bytes, reader: asyncio.StreamReader) -> SkillCommandRunResult:
        """Run the call for as long as its client stays connected."""
        try:
            said = json.loads(question)
        except (ValueError, RecursionError):
            said = None
        call = asyncio.ensure_future(self._caller.run_untrusted_call_request(said))
        # A read that returns means that the client closed its end: it sends nothing after its request.
        left = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([call, left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, left):
                task.cancel()
            await asyncio.wait([call, left])
        if call.cancelled():
            raise ConnectionResetError("the caller disconnected")
        return call.result()


def _get_peer_uid(line: socket.socket) -> int:
    if sys.platform != "linux":
        raise NotImplementedError
    _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)
