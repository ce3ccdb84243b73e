"""Creates, runs and retests tools. A draft that fails a check does not become a tool."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from habitus.errors import Invalid, StorageFailed, ToolFailed
from habitus.events import Outcome, OutcomeKind, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.sandbox.child import NO_SERVICES, HostServices, parse_reported_error
from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.model import KIB, SandboxLimits, ToolRunResult
from habitus.sandbox.venvs import EnvironmentCache, check_requirement, compute_environment_hash
from habitus.tasks.judging import (
    derive_expected_result,
    drop_fields_that_changed_since_recording,
    infer_json_schema_of_result,
    judge_submission,
    shorten_value,
)
from habitus.tasks.model import Submission, Task
from habitus.tasks.schema import Json, validate_parameters_schema, validate_payload
from habitus.tools.code_repair import repair_code
from habitus.tools.code_stage import build_case_from_call, parse_dependencies, replace_script_header
from habitus.tools.model import ToolCaseRerunReport, ToolCaseResult, ToolDraft, ToolNotTestableError, ToolProgram

# Limits on what is stored with a skill.
LONGEST_CODE = 512 * KIB
LONGEST_CASE = 128 * KIB
LONGEST_DESCRIPTION = 1024
MOST_CASES = 20
NO_VARIABLES: Mapping[str, str] = {}
_CLOCKS = {"now", "today", "utcnow", "time", "time_ns", "localtime", "gmtime", "ctime", "strftime"}
_CHANCE = {"random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits"}
_CHANCE |= {"urandom", "uuid1", "uuid4", "token_hex", "token_bytes", "token_urlsafe", "randbelow"}


class ToolExecutor:
    """Runs tools in the sandbox, each in the environment that its dependencies need."""

    def __init__(
        self,
        warm: ForkServerPool,
        environments: EnvironmentCache,
        *,
        limits: SandboxLimits | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        """`redact` removes secrets from results that are stored."""
        self._warm = warm
        self._environments = environments
        self._limits = limits or SandboxLimits()
        self._redacted = redact

    async def close(self) -> None:
        """Stop the sandboxed processes."""
        await self._warm.close()

    async def test_draft_and_build_program(
        self,
        draft: ToolDraft,
        *,
        stored_cases: Sequence[Task] = (),
        env: Mapping[str, str] = NO_VARIABLES,
        services: HostServices = NO_SERVICES,
    ) -> ToolProgram:
        """Test a draft and return its program; `ToolFailed` says in one line why not. `stored_cases` must still
        pass."""
        tool = _check_draft_and_build_program(draft)
        payload = _validate_and_convert_test_payload(tool, draft.payload)
        run = await self._run_in_sandbox(tool, payload, env, services)
        # A timeout is reported as an infrastructure failure but is the draft's own fault.
        if run.outcome.kind is OutcomeKind.INFRA and not run.timed_out:
            raise ToolNotTestableError(f"It could not be tested: {run.outcome.reason}")
        if objection := _find_test_run_objection(run):
            raise ToolFailed(objection)
        tried = []
        for case in stored_cases:
            result = await self._rerun_case(tool, case, env, services)
            tried.append(result)
            if result.outcome.kind is OutcomeKind.INFRA:
                raise ToolNotTestableError(f"It could not be tested: {result.outcome.reason}")
            if not result.outcome.is_ok:
                raise ToolFailed(
                    f"It fails a case that worked before, {shorten_value(case.payload)}: {result.outcome.reason}"
                )
        call = build_case_from_call(payload, infer_json_schema_of_result(run.stdout), conversation=draft.conversation)
        case = await self._build_test_case(tool, call, run, env, services)
        others = [_drop_unstable_expectations(old, tool.code) for old in stored_cases if old.payload != payload]
        same = [
            _drop_unstable_expectations(old, tool.code)
            for old in stored_cases
            if old.payload == payload and old.expected_result
        ]
        case = next(iter(same), case)
        return replace(tool, cases=(*others, case)[-MOST_CASES:], tried=tuple(tried))

    async def _build_test_case(
        self, tool: ToolProgram, case: Task, run: ToolRunResult, env: Mapping[str, str], services: HostServices
    ) -> Task:
        """Return the case with expected values if a second run gives the same ones.

        A program with access to the outside is not run twice.
        """
        may = tool.permissions
        if may.network or may.read or may.write or is_using_time_or_random_numbers(tool.code):
            return case
        again = await self._run_in_sandbox(tool, case.payload, env, services)
        if not again.outcome.is_ok:
            return case
        return case.with_expected_result(derive_expected_result([run.stdout, again.stdout], redacted=self._redacted))

    async def run_tool(
        self,
        tool: ToolProgram,
        payload: Json,
        *,
        env: Mapping[str, str] = NO_VARIABLES,
        services: HostServices = NO_SERVICES,
    ) -> ToolRunResult:
        """Call the tool. A payload that does not fit its schema is the caller's mistake: `ToolFailed`."""
        payload = validate_payload(tool.parameters, payload)
        try:
            return await self._run_in_sandbox(tool, payload, env, services)
        except (ToolFailed, StorageFailed) as error:
            return ToolRunResult(outcome=build_infrastructure_failure_outcome(str(error)))

    async def rerun_stored_cases(
        self,
        tool: ToolProgram,
        *,
        passed_fingerprint: str = "",
        env: Mapping[str, str] = NO_VARIABLES,
        services: HostServices = NO_SERVICES,
    ) -> ToolCaseRerunReport:
        """Run every stored case again. `passed_fingerprint` is the one under which they last passed."""
        results = [await self._rerun_case(tool, case, env, services) for case in tool.cases]
        now = compute_tool_fingerprint(tool)
        return ToolCaseRerunReport(results=tuple(results), fingerprint=now, was_stale=now != passed_fingerprint)

    async def _rerun_case(
        self, tool: ToolProgram, case: Task, env: Mapping[str, str], services: HostServices
    ) -> ToolCaseResult:
        try:
            payload = validate_payload(tool.parameters, case.payload)
        except ToolFailed as error:
            return ToolCaseResult(payload=case.payload, outcome=build_failed_outcome(str(error)))
        try:
            run = await self._run_in_sandbox(tool, payload, env, services)
        except (ToolFailed, StorageFailed) as error:
            return ToolCaseResult(payload=payload, outcome=build_infrastructure_failure_outcome(str(error)))
        return ToolCaseResult(
            payload=payload,
            outcome=await _judge_case_run(run, case),
            compares=case.compared_parts_description,
            printed=run.stdout,
        )

    async def _run_in_sandbox(
        self, tool: ToolProgram, payload: Json, env: Mapping[str, str], services: HostServices
    ) -> ToolRunResult:
        venv = await self._environments.ensure_environment(tool.dependencies)
        program = SandboxedProgram(
            code=tool.code, venv=venv, permissions=tool.permissions, limits=self._limits, given=tool.given
        )
        try:
            run = await self._warm.call_tool(program, payload, env=env, services=services)
        # A granted folder does not exist or can't be granted.
        except Invalid as error:
            raise ToolFailed(str(error)) from None
        told = parse_reported_error(run.stdout) if run.outcome.is_ok else ""
        return replace(run, outcome=build_failed_outcome(f"It reports an error: {told}")) if told else run


class ToolExecutorPerEventLoop:
    """Keeps an executor for the current event loop: its processes can't be awaited from another one."""

    def __init__(self, opened: Callable[[], ToolExecutor]) -> None:
        self._opened = opened
        self._last: tuple[asyncio.AbstractEventLoop, ToolExecutor] | None = None

    def get_for_current_loop(self) -> ToolExecutor:
        """Return the executor of the running event loop, creating it if needed."""
        loop = asyncio.get_running_loop()
        if self._last is None or self._last[0] is not loop:
            self._last = (loop, self._opened())
        return self._last[1]

    async def close(self) -> None:
        """Stop the sandboxed processes; the next call gets a new executor."""
        last, self._last = self._last, None
        if last is not None and last[0] is asyncio.get_running_loop():
            await last[1].close()


def compute_tool_fingerprint(tool: ToolProgram) -> str:
    """Return the hash of code, dependencies and interpreter for which a passed case holds."""
    code = hashlib.sha256(tool.code.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(f"{code} {compute_environment_hash(tool.dependencies)}".encode()).hexdigest()


def _check_draft_and_build_program(draft: ToolDraft) -> ToolProgram:
    """Check everything that can be checked without running the draft."""
    description = " ".join(draft.description.split())
    if not description:
        raise ToolFailed("The tool has no description. Say in one sentence what it does.")
    if len(description) > LONGEST_DESCRIPTION:
        raise ToolFailed(f"The description has {len(description):,} characters; {LONGEST_DESCRIPTION:,} is the most.")
    if len(draft.code) > LONGEST_CODE:
        raise ToolFailed(f"The code has {len(draft.code):,} characters; {LONGEST_CODE:,} is the most.")
    parameters = validate_parameters_schema(draft.parameters)
    code = repair_code(draft.code).code
    dependencies = _validate_and_sort_dependencies((*draft.dependencies, *parse_dependencies(code)))
    return ToolProgram(
        name=draft.name,
        description=description,
        parameters=parameters,
        code=replace_script_header(code, dependencies),
        permissions=draft.permissions,
        dependencies=dependencies,
        given=draft.given,
    )


def _validate_and_sort_dependencies(wanted: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted({check_requirement(requirement) for requirement in wanted}))
    except Invalid as error:
        raise ToolFailed(str(error)) from None


def _validate_and_convert_test_payload(tool: ToolProgram, given: Json) -> Json:
    payload = validate_payload(tool.parameters, given, "The test payload")
    size = len(json.dumps(payload, ensure_ascii=False))
    if size > LONGEST_CASE:
        raise ToolFailed(
            f"The test payload has {size:,} characters; it is kept as a case, so {LONGEST_CASE:,} is the most. "
            "Test with a smaller one."
        )
    return payload


def _find_test_run_objection(run: ToolRunResult) -> str:
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


async def _judge_case_run(run: ToolRunResult, case: Task) -> Outcome:
    if not run.outcome.is_ok:
        return run.outcome
    if objection := _find_test_run_objection(run):
        return build_failed_outcome(objection)
    return (await judge_submission(case, Submission(reply=run.stdout))).outcome


def _drop_unstable_expectations(case: Task, code: str) -> Task:
    """Return the case with only the expectations that will still hold tomorrow."""
    expected = None if is_using_time_or_random_numbers(code) else case.expected_result
    return case.with_expected_result(
        drop_fields_that_changed_since_recording(expected) if expected is not None else None
    )


def is_using_time_or_random_numbers(code: str) -> bool:
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
