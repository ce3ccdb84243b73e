"""`ToolService`: one interface to the code stages of all skills, built from catalogue, making, running and curation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Self

from habitus.errors import NotFound, Refused
from habitus.events import Outcome, OutcomeKind
from habitus.sandbox.child import Services
from habitus.sandbox.files import Given
from habitus.sandbox.model import ToolRun
from habitus.settings import RetentionSettings
from habitus.skills import names, trees
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Stage
from habitus.skills.review import Action, Review
from habitus.skills.sources.trust import Scan, Trust
from habitus.tasks.schema import Json
from habitus.tools.catalogue import ToolCatalogue, code_tool
from habitus.tools.code_stage import ToolFiles, program_of
from habitus.tools.health import Health, ToolHealth, after_call
from habitus.tools.making import ToolCurator, ToolMaker, ToolParts
from habitus.tools.model import NOTHING_GRANTED, CodeTool, Regression, ToolProgram, ToolStatus
from habitus.tools.workshop import Workshop, Workshops, fingerprint


class ToolRunner:
    """Runs tools. Only approved code runs with permissions, and only such runs are counted."""

    def __init__(self, parts: ToolParts) -> None:
        self._parts = parts

    async def run(
        self,
        name: str,
        payload: Json,
        *,
        services: Services | None = None,
        given: Given | None = None,
        counts: bool = True,
    ) -> ToolRun:
        """Call a tool and record the outcome. `ToolFailed` if the payload does not fit, which counts for nothing.

        `services` override what the tool may ask; `given` is the session's folder of files. With `counts` False the
        call counts neither as use nor for its health.
        """
        item, tool, program = await asyncio.to_thread(self._ready, name, given)
        asked = await self._parts.services_or(services)
        run = self._clean(
            await self._parts.workshops.here().run(program, payload, env=self._parts.environ, services=asked)
        )
        if not counts:
            return run
        health = await asyncio.to_thread(self._count, item, fingerprint(program), run.outcome)
        return replace(run, notice=_notice(tool, health))

    def _ready(self, name: str, given: Given | None) -> tuple[Listed, CodeTool, ToolProgram]:
        item, tool = self._parts.catalogue.item(name), self._parts.catalogue.get(name)
        if not tool.can_run:
            raise Refused(f"The tool '{tool.name}' can't run: {tool.reason.rstrip('.')}.", hint=_hint(tool))
        program = self._parts.catalogue.program(item)
        return item, tool, replace(program, given=self._parts.files.folder(item, given))

    def _clean(self, run: ToolRun) -> ToolRun:
        """Redact the output: neither a person nor a model may see a printed secret."""
        reason = self._parts.redacted(run.outcome.reason)
        stdout, stderr = self._parts.redacted(run.stdout), self._parts.redacted(run.stderr)
        return replace(run, stdout=stdout, stderr=stderr, outcome=replace(run.outcome, reason=reason))

    def _count(self, item: Listed, code: str, outcome: Outcome) -> Health:
        """Record the call in counters and health, in one transaction."""
        place, now = self._parts.catalogue.place(item), self._parts.clock()
        succeeded = None if outcome.kind is OutcomeKind.INFRA else outcome.is_ok
        with self._parts.health.writing():
            health = self._parts.health.change(place, item.name, lambda health: after_call(health, code, outcome, now))
            self._parts.library.layer(item.layer).store.record_use(item.name, stage=Stage.CODE, succeeded=succeeded)
        return health

    async def test(self, name: str, *, services: Services | None = None) -> Regression:
        """Run the stored cases again; unapproved code runs without the permissions it asks for."""
        item, program, proved_as = await asyncio.to_thread(self._trial, name)
        asked = await self._parts.services_or(services)
        shop = self._parts.workshops.here()
        report = await shop.regress(program, proved_as=proved_as, env=self._parts.environ, services=asked)
        if report.passed and report.results:
            proved = (self._parts.catalogue.place(item), item.name, report.fingerprint, self._parts.clock())
            await asyncio.to_thread(self._parts.health.prove, *proved)
        return report

    def _trial(self, name: str) -> tuple[Listed, ToolProgram, str]:
        item, tool = self._parts.catalogue.item(name), self._parts.catalogue.get(name)
        program = replace(self._parts.catalogue.program(item), given=self._parts.files.folder(item))
        trial = program if tool.can_run else replace(program, permissions=NOTHING_GRANTED)
        return item, trial, self._parts.health.get(self._parts.catalogue.place(item), item.name).proved_as

    def waiting(self, conversation: str) -> tuple[CodeTool, ...]:
        """Return the pending tools written in this conversation, which can already be called there."""
        programs = self._waiting_programs(conversation).values()
        return tuple(code_tool(program, ToolStatus.UNAPPROVED, "waits for a person") for program in programs)

    async def run_waiting(
        self, conversation: str, name: str, payload: Json, *, services: Services, given: Given | None = None
    ) -> ToolRun:
        """Call a pending tool without any permission and without counting."""
        trial = await asyncio.to_thread(self._waiting_trial, conversation, names.canonical(name), given)
        return self._clean(await self._parts.workshops.here().run(trial, payload, services=services))

    def _waiting_trial(self, conversation: str, name: str, given: Given | None) -> ToolProgram:
        program = self._waiting_programs(conversation).get(name)
        if program is None:
            raise NotFound(f"No tool '{name}' waits in this conversation.", hint="See 'habitus review list'.")
        item = self._parts.catalogue.skill(name)
        folder = self._parts.files.folder(item, given) if item else None
        return replace(program, permissions=NOTHING_GRANTED, given=folder)

    def _waiting_programs(self, conversation: str) -> dict[str, ToolProgram]:
        changes = [proposal.change for proposal in self._parts.review.list() if proposal.conversation == conversation]
        return {
            change.name: program_of(change.name, change.tree)
            for change in changes
            if change.action is Action.WRITE and trees.TOOL_CODE in change.tree
        }


def _notice(tool: CodeTool, health: Health) -> str:
    """Return a notice about the tool's health after a call, or ""."""
    if health.degraded_on is not None:
        why = f"it {health.why_degraded}"
        return f"'{tool.callable_name}' is degraded: {why}. It is no longer offered; do it another way, or repair it."
    if tool.status is ToolStatus.DEGRADED:
        return f"'{tool.callable_name}' is no longer degraded; before, it {tool.reason}."
    return ""


def _hint(tool: CodeTool) -> str:
    match tool.status:
        case ToolStatus.UNAPPROVED:
            return f"Read it first: 'habitus tools show {tool.name}'."
        case ToolStatus.BROKEN:
            return "Fix its files, or roll it back."
        case _:
            return "See 'habitus skills list'."


class Tools:
    """Creates, runs and manages tools. Use it in an `async with` block, so no sandboxed process is left behind."""

    def __init__(
        self,
        library: Library,
        review: Review,
        health: ToolHealth,
        *,
        trust: Trust,
        approvals: Trust,
        workshop: Callable[[], Workshop],
        clock: Callable[[], datetime],
        scan: Scan,
        environ: Mapping[str, str],
        redacted: Callable[[str], str],
        retention: RetentionSettings,
        services: Callable[[], Services],
        given: Callable[[str], Given],
    ) -> None:
        """`services` and `open_given_folder` provide host services and a skill's files where no session does."""
        self._workshops = Workshops(workshop)
        known = ToolCatalogue(library, health, trust=trust, approvals=approvals)
        parts = ToolParts(
            catalogue=known,
            library=library,
            review=review,
            health=health,
            workshops=self._workshops,
            files=ToolFiles(library, given),
            approvals=approvals,
            scan=scan,
            clock=clock,
            environ=environ,
            redacted=redacted,
            retention=retention,
            services=services,
        )
        maker, runner = ToolMaker(parts), ToolRunner(parts)
        curator = ToolCurator(parts, runner.test)

        self.all, self.active, self.get, self.code = known.all, known.active, known.get, known.code
        self.cases, self.objection = known.cases, known.objection
        self.create, self.approve, self.on_approval = maker.create, maker.approve, maker.on_approval
        self.run, self.test = runner.run, runner.test
        self.waiting, self.run_waiting = runner.waiting, runner.run_waiting
        self.curate, self.renew = curator.curate, curator.renew
        self.retire, self.restore, self.list_retired = curator.retire, curator.restore, curator.list_retired

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the sandboxed processes; the next call starts them again."""
        await self._workshops.close()
