"""`ToolService`: one interface to the code stages of all skills, built from catalogue, making, running and curation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Self

from habitus.errors import NotFound, Refused
from habitus.events import Outcome
from habitus.journal.usage import build_use_of_code_or_recipe_run
from habitus.sandbox.child import HostServices
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.model import ToolRunResult
from habitus.skills import names, trees
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Stage
from habitus.skills.review import ProposalAction
from habitus.tasks.schema import Json
from habitus.tools.catalogue import build_code_tool_from_program
from habitus.tools.code_stage import parse_tool_program_from_files
from habitus.tools.execution import compute_tool_fingerprint
from habitus.tools.health import ToolHealthRecord, compute_health_after_call, compute_health_after_passed_cases
from habitus.tools.making import ToolMaker, ToolRetirementService, ToolServiceDependencies
from habitus.tools.model import NOTHING_GRANTED, CodeTool, ToolCaseRerunReport, ToolProgram, ToolStatus


class ToolRunner:
    """Runs tools. Only approved code runs with permissions, and only such runs are counted."""

    def __init__(self, parts: ToolServiceDependencies) -> None:
        self._parts = parts

    async def run_tool(
        self,
        name: str,
        payload: Json,
        *,
        services: HostServices | None = None,
        given: GivenFolder | None = None,
        counts: bool = True,
        turn: str = "",
        user: str = "",
    ) -> ToolRunResult:
        """Call a tool and record the outcome. `ToolFailed` if the payload does not fit, which counts for nothing.

        `services` override what the tool may ask; `given` is the session's folder of files; `turn` and `user` say where
        and for whom it runs. With `counts` False the call counts neither as use nor for its health.
        """
        item, tool, program = await asyncio.to_thread(self._load_program_for_run, name, given)
        asked = await self._parts.get_session_or_person_services(services)
        run = self._redact_output_of_run(
            await self._parts.workshops.get_for_current_loop().run_tool(
                program, payload, env=self._parts.environ, services=asked
            )
        )
        if not counts:
            return run
        record = partial(
            self._record_call_as_use_and_health, item, compute_tool_fingerprint(program), run.outcome, turn, user
        )
        health = await asyncio.to_thread(record)
        return replace(run, notice=_build_health_notice(tool, health))

    def _load_program_for_run(self, name: str, given: GivenFolder | None) -> tuple[ListedSkill, CodeTool, ToolProgram]:
        item, tool = self._parts.catalogue.find_tool_skill(name), self._parts.catalogue.get(name)
        if not tool.can_run:
            raise Refused(
                f"The tool '{tool.name}' can't run: {tool.reason.rstrip('.')}.", hint=_get_hint_if_tool_cannot_run(tool)
            )
        program = self._parts.catalogue.get_program(item)
        return item, tool, replace(program, given=self._parts.files.provide_readable_folder(item, given))

    def _redact_output_of_run(self, run: ToolRunResult) -> ToolRunResult:
        """Redact the output: neither a person nor a model may see a printed secret."""
        reason = self._parts.redact(run.outcome.reason)
        stdout, stderr = self._parts.redact(run.stdout), self._parts.redact(run.stderr)
        return replace(run, stdout=stdout, stderr=stderr, outcome=replace(run.outcome, reason=reason))

    def _record_call_as_use_and_health(
        self, item: ListedSkill, code: str, outcome: Outcome, turn: str, user: str
    ) -> ToolHealthRecord:
        """Record the call as a use, and in the tool's health."""
        now, layer = self._parts.clock(), self._parts.library.get_layer(item.layer).store.key
        version = item.summary.version if item.summary else 0
        self._parts.record_use(
            build_use_of_code_or_recipe_run(
                skill=(item.name, layer, version),
                stage=Stage.CODE.value,
                outcome=outcome.kind,
                turn=turn,
                user=user or self._parts.user,
                at=now,
            )
        )
        return self._parts.catalogue.update_health(
            item, lambda health: compute_health_after_call(health, code, outcome, now)
        )

    async def test_tool(self, name: str, *, services: HostServices | None = None) -> ToolCaseRerunReport:
        """Run the stored cases again; unapproved code runs without the permissions it asks for."""
        item, program, proved_as = await asyncio.to_thread(self._load_program_for_test, name)
        asked = await self._parts.get_session_or_person_services(services)
        shop = self._parts.workshops.get_for_current_loop()
        report = await shop.rerun_stored_cases(
            program, passed_fingerprint=proved_as, env=self._parts.environ, services=asked
        )
        if report.passed and report.results:
            proved = partial(compute_health_after_passed_cases, code=report.fingerprint, now=self._parts.clock())
            await asyncio.to_thread(self._parts.catalogue.update_health, item, proved)
        return report

    def _load_program_for_test(self, name: str) -> tuple[ListedSkill, ToolProgram, str]:
        known = self._parts.catalogue
        item, tool = known.find_tool_skill(name), known.get(name)
        program = replace(known.get_program(item), given=self._parts.files.provide_readable_folder(item))
        trial = program if tool.can_run else replace(program, permissions=NOTHING_GRANTED)
        return item, trial, known.get_health(item).proved_as

    def list_pending_tools_of_conversation(self, conversation: str) -> tuple[CodeTool, ...]:
        """Return the pending tools written in this conversation, which can already be called there."""
        programs = self._load_pending_programs_of_conversation(conversation).values()
        return tuple(
            build_code_tool_from_program(program, ToolStatus.UNAPPROVED, "needs review") for program in programs
        )

    async def run_pending_tool(
        self, conversation: str, name: str, payload: Json, *, services: HostServices, given: GivenFolder | None = None
    ) -> ToolRunResult:
        """Call a pending tool without any permission and without counting."""
        trial = await asyncio.to_thread(
            self._load_pending_program_for_run, conversation, names.canonicalize_name(name), given
        )
        return self._redact_output_of_run(
            await self._parts.workshops.get_for_current_loop().run_tool(trial, payload, services=services)
        )

    def _load_pending_program_for_run(self, conversation: str, name: str, given: GivenFolder | None) -> ToolProgram:
        program = self._load_pending_programs_of_conversation(conversation).get(name)
        if program is None:
            raise NotFound(f"No tool '{name}' is pending in this conversation.", hint="See 'habitus review list'.")
        item = self._parts.catalogue.find_skill(name)
        folder = self._parts.files.provide_readable_folder(item, given) if item else None
        return replace(program, permissions=NOTHING_GRANTED, given=folder)

    def _load_pending_programs_of_conversation(self, conversation: str) -> dict[str, ToolProgram]:
        changes = [
            proposal.change
            for proposal in self._parts.review.list_proposals_by_state()
            if proposal.conversation == conversation
        ]
        return {
            change.name: parse_tool_program_from_files(change.name, change.tree)
            for change in changes
            if change.action is ProposalAction.WRITE and trees.TOOL_CODE in change.tree
        }


def _build_health_notice(tool: CodeTool, health: ToolHealthRecord) -> str:
    """Return a notice about the tool's health after a call, or ""."""
    if health.degraded_on is not None:
        why = f"it {health.degradation_reason}"
        return f"'{tool.callable_name}' is degraded: {why}. It is no longer offered; do it another way, or repair it."
    if tool.status is ToolStatus.DEGRADED:
        return f"'{tool.callable_name}' is no longer degraded; before, it {tool.reason}."
    return ""


def _get_hint_if_tool_cannot_run(tool: CodeTool) -> str:
    match tool.status:
        case ToolStatus.UNAPPROVED:
            return f"Read it first: 'habitus tools show {tool.name}'."
        case ToolStatus.BROKEN:
            return "Fix its files, or roll it back."
        case _:
            return "See 'habitus skills list'."


class ToolService:
    """Creates, runs and manages tools. Use it in an `async with` block, so no sandboxed process is left behind."""

    def __init__(self, parts: ToolServiceDependencies) -> None:
        self._workshops, known = parts.workshops, parts.catalogue
        maker, runner = ToolMaker(parts), ToolRunner(parts)
        curator = ToolRetirementService(parts, runner.test_tool)

        self.all, self.active, self.get, self.code = known.list_all, known.list_active, known.get, known.get_code
        self.cases, self.objection = known.get_cases, known.explain_missing_approval
        self.create, self.approve, self.approve_code_of_accepted_proposal = (
            maker.create_tool,
            maker.approve_tool,
            maker.approve_code_of_accepted_proposal,
        )
        self.run, self.test = runner.run_tool, runner.test_tool
        self.waiting, self.run_waiting = runner.list_pending_tools_of_conversation, runner.run_pending_tool
        self.curate, self.renew = curator.retest_and_retire_degraded_tools, curator.retest_tool_and_degrade_if_failing
        self.retire, self.restore, self.list_restorable_tools = (
            curator.retire_tool,
            curator.restore_tool,
            curator.list_restorable_tools,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the sandboxed processes; the next call starts them again."""
        await self._workshops.close()
