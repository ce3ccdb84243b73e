"""Creates, runs and retests tools. A draft that fails a check does not become a tool."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from habitus.errors import Invalid, StorageFailed, ToolFailed
from habitus.events import Outcome, OutcomeKind, failure, infra
from habitus.sandbox.child import NO_SERVICES, Services, error_told
from habitus.sandbox.model import KIB, Limits, ToolRun
from habitus.sandbox.venvs import Environments, check_requirement, environment_hash
from habitus.sandbox.warm import Program, Warm
from habitus.tasks.judging import expect, judge, lasting, shape_of, short
from habitus.tasks.model import Submission, Task
from habitus.tasks.schema import Json, checked_payload, checked_schema
from habitus.tools.code_repair import repair
from habitus.tools.code_stage import dependencies_of, task_of_call, with_header
from habitus.tools.model import CouldNotTest, Regression, TaskResult, ToolDraft, ToolProgram

# Limits on what is stored with a skill.
LONGEST_CODE = 512 * KIB
LONGEST_CASE = 128 * KIB
LONGEST_DESCRIPTION = 1024
MOST_CASES = 20
NO_VARIABLES: Mapping[str, str] = {}
_CLOCKS = {"now", "today", "utcnow", "time", "time_ns", "localtime", "gmtime", "ctime", "strftime"}
_CHANCE = {"random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits"}
_CHANCE |= {"urandom", "uuid1", "uuid4", "token_hex", "token_bytes", "token_urlsafe", "randbelow"}


class Workshop:
    """Runs tools in the sandbox, each in the environment that its dependencies need."""

    def __init__(
        self,
        warm: Warm,
        environments: Environments,
        *,
        limits: Limits | None = None,
        redacted: Callable[[str], str] = str,
    ) -> None:
        """`redact` removes secrets from results that are stored."""
        self._warm = warm
        self._environments = environments
        self._limits = limits or Limits()
        self._redacted = redacted

    async def close(self) -> None:
        """Stop the sandboxed processes."""
        await self._warm.close()

    async def acquire(
        self,
        draft: ToolDraft,
        *,
        kept: Sequence[Task] = (),
        env: Mapping[str, str] = NO_VARIABLES,
        services: Services = NO_SERVICES,
    ) -> ToolProgram:
        """Test a draft and return its program; `ToolFailed` says in one line why not. `stored_cases` must still
        pass."""
        tool = _check_draft(draft)
        payload = _test_payload(tool, draft.payload)
        run = await self._run(tool, payload, env, services)
        # A timeout is reported as an infrastructure failure but is the draft's own fault.
        if run.outcome.kind is OutcomeKind.INFRA and not run.timed_out:
            raise CouldNotTest(f"It could not be tested: {run.outcome.reason}")
        if objection := _objection(run):
            raise ToolFailed(objection)
        tried = []
        for case in kept:
            result = await self._again(tool, case, env, services)
            tried.append(result)
            if result.outcome.kind is OutcomeKind.INFRA:
                raise CouldNotTest(f"It could not be tested: {result.outcome.reason}")
            if not result.outcome.is_ok:
                raise ToolFailed(f"It fails a case that worked before, {short(case.payload)}: {result.outcome.reason}")
        call = task_of_call(payload, shape_of(run.stdout), conversation=draft.conversation)
        case = await self._case(tool, call, run, env, services)
        others = [_as_kept(old, tool.code) for old in kept if old.payload != payload]
        same = [_as_kept(old, tool.code) for old in kept if old.payload == payload and old.expected_result]
        case = next(iter(same), case)
        return replace(tool, cases=(*others, case)[-MOST_CASES:], tried=tuple(tried))

    async def _case(
        self, tool: ToolProgram, case: Task, run: ToolRun, env: Mapping[str, str], services: Services
    ) -> Task:
        """Return the case with expected values if a second run gives the same ones.

        A program with access to the outside is not run twice.
        """
        may = tool.permissions
        if may.network or may.read or may.write or reads_the_clock(tool.code):
            return case
        again = await self._run(tool, case.payload, env, services)
        if not again.outcome.is_ok:
            return case
        return case.expecting(expect([run.stdout, again.stdout], redacted=self._redacted))

    async def run(
        self,
        tool: ToolProgram,
        payload: Json,
        *,
        env: Mapping[str, str] = NO_VARIABLES,
        services: Services = NO_SERVICES,
    ) -> ToolRun:
        """Call the tool. A payload that does not fit its schema is the caller's mistake: `ToolFailed`."""
        payload = checked_payload(tool.parameters, payload)
        try:
            return await self._run(tool, payload, env, services)
        except (ToolFailed, StorageFailed) as error:
            return ToolRun(outcome=infra(str(error)))

    async def regress(
        self,
        tool: ToolProgram,
        *,
        proved_as: str = "",
        env: Mapping[str, str] = NO_VARIABLES,
        services: Services = NO_SERVICES,
    ) -> Regression:
        """Run every stored case again. `passed_fingerprint` is the one under which they last passed."""
        results = [await self._again(tool, case, env, services) for case in tool.cases]
        now = fingerprint(tool)
        return Regression(results=tuple(results), fingerprint=now, was_stale=now != proved_as)

    async def _again(self, tool: ToolProgram, case: Task, env: Mapping[str, str], services: Services) -> TaskResult:
        try:
            payload = checked_payload(tool.parameters, case.payload)
        except ToolFailed as error:
            return TaskResult(payload=case.payload, outcome=failure(str(error)))
        try:
            run = await self._run(tool, payload, env, services)
        except (ToolFailed, StorageFailed) as error:
            return TaskResult(payload=payload, outcome=infra(str(error)))
        return TaskResult(
            payload=payload, outcome=await _judge_case(run, case), compares=case.compares, printed=run.stdout
        )

    async def _run(self, tool: ToolProgram, payload: Json, env: Mapping[str, str], services: Services) -> ToolRun:
        venv = await self._environments.folder_for(tool.dependencies)
        program = Program(
            code=tool.code, venv=venv, permissions=tool.permissions, limits=self._limits, given=tool.given
        )
        try:
            run = await self._warm.call(program, payload, env=env, services=services)
        # A granted folder does not exist or can't be granted.
        except Invalid as error:
            raise ToolFailed(str(error)) from None
        told = error_told(run.stdout) if run.outcome.is_ok else ""
        return replace(run, outcome=failure(f"It reports an error: {told}")) if told else run


class Workshops:
    """Keeps a workshop for the current event loop: its processes can't be awaited from another one."""

    def __init__(self, opened: Callable[[], Workshop]) -> None:
        self._opened = opened
        self._last: tuple[asyncio.AbstractEventLoop, Workshop] | None = None

    def here(self) -> Workshop:
        """Return the workshop of the running event loop, creating it if needed."""
        loop = asyncio.get_running_loop()
        if self._last is None or self._last[0] is not loop:
            self._last = (loop, self._opened())
        return self._last[1]

    async def close(self) -> None:
        """Stop the sandboxed processes; the next call gets a new workshop."""
        last, self._last = self._last, None
        if last is not None and last[0] is asyncio.get_running_loop():
            await last[1].close()


def fingerprint(tool: ToolProgram) -> str:
    """Return the hash of code, dependencies and interpreter for which a passed case holds."""
    code = hashlib.sha256(tool.code.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(f"{code} {environment_hash(tool.dependencies)}".encode()).hexdigest()


def _check_draft(draft: ToolDraft) -> ToolProgram:
    """Check everything that can be checked without running the draft."""
    description = " ".join(draft.description.split())
    if not description:
        raise ToolFailed("The tool has no description. Say in one sentence what it does.")
    if len(description) > LONGEST_DESCRIPTION:
        raise ToolFailed(f"The description has {len(description):,} characters; {LONGEST_DESCRIPTION:,} is the most.")
    if len(draft.code) > LONGEST_CODE:
        raise ToolFailed(f"The code has {len(draft.code):,} characters; {LONGEST_CODE:,} is the most.")
    parameters = checked_schema(draft.parameters)
    code = repair(draft.code).code
    dependencies = _dependencies((*draft.dependencies, *dependencies_of(code)))
    return ToolProgram(
        name=draft.name,
        description=description,
        parameters=parameters,
        code=with_header(code, dependencies),
        permissions=draft.permissions,
        dependencies=dependencies,
        given=draft.given,
    )


def _dependencies(wanted: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted({check_requirement(requirement) for requirement in wanted}))
    except Invalid as error:
        raise ToolFailed(str(error)) from None


def _test_payload(tool: ToolProgram, given: Json) -> Json:
    payload = checked_payload(tool.parameters, given, "The test payload")
    size = len(json.dumps(payload, ensure_ascii=False))
    if size > LONGEST_CASE:
        raise ToolFailed(
            f"The test payload has {size:,} characters; it is kept as a case, so {LONGEST_CASE:,} is the most. "
            "Test with a smaller one."
        )
    return payload


def _objection(run: ToolRun) -> str:
    """Return in one line why the run on the test payload is not good enough, or ""."""
    if run.timed_out:
        return f"It did not end by itself. {run.outcome.reason}"
    if run.outcome.kind is OutcomeKind.FAILED:
        return f"It failed on its test payload: {run.outcome.reason}"
    if not run.outcome.is_ok:
        return f"It could not be tested: {run.outcome.reason}"
    if not run.stdout.strip():
        return "It printed nothing. Read the payload from sys.argv[1] as JSON and print the result."
    if "\ufffd" in run.stdout or "\0" in run.stdout:
        return "It printed bytes that are not text. Print UTF-8 text or JSON; encode binary data as base64."
    if run.cut:
        return f"It printed {len(run.stdout) + run.cut:,} characters, which is too much. Print less."
    return ""


async def _judge_case(run: ToolRun, case: Task) -> Outcome:
    if not run.outcome.is_ok:
        return run.outcome
    if objection := _objection(run):
        return failure(objection)
    return (await judge(case, Submission(reply=run.stdout))).outcome


def _as_kept(case: Task, code: str) -> Task:
    """Return the case with only the expectations that will still hold tomorrow."""
    expected = None if reads_the_clock(code) else case.expected_result
    return case.expecting(lasting(expected) if expected is not None else None)


def reads_the_clock(code: str) -> bool:
    """Whether a program uses the time or random numbers, so that two equal runs prove nothing."""
    try:
        calls = [node.func for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        # Code that does not parse is treated as unpredictable.
        return True
    return any(
        (isinstance(call, ast.Attribute) and call.attr in _CLOCKS | _CHANCE)
        or (isinstance(call, ast.Name) and call.id in _CLOCKS | _CHANCE)
        for call in calls
    )
