"""Creates tools: tests a draft in the sandbox, submits it as the code stage of its skill, and approves it.

Curation retires tools that stay degraded, and restores retired ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from habitus.errors import Invalid, NotFound, Refused, ToolFailed
from habitus.files import Tree
from habitus.journal.model import ItemUse
from habitus.sandbox.child import HostServices
from habitus.sandbox.model import Permissions
from habitus.settings import RetentionSettings
from habitus.skills import names, trees
from habitus.skills.layers.layer import USER_LAYER, Layer
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Author, Stage
from habitus.skills.proposals import TRIAL_KEY
from habitus.skills.review import Proposal, ProposalAction, ReviewQueue, SkillChange
from habitus.skills.sources.trust import APPROVED_ROOT, TreeScanner, TrustStore, has_callable_code
from habitus.tasks.judging import shorten_value
from habitus.tasks.schema import Json
from habitus.tools.catalogue import ToolCatalogue
from habitus.tools.code_stage import (
    ReadableFolderProvider,
    build_skill_files_with_code_stage,
    build_skill_files_without_code_stage,
    is_unedited_skill_of_tool,
)
from habitus.tools.execution import ToolExecutorPerEventLoop, compute_tool_fingerprint
from habitus.tools.health import (
    ToolHealthRecord,
    ToolHealthStore,
    compute_health_after_curation,
    compute_health_after_failed_cases,
    compute_health_after_passed_cases,
    find_retirement_reason,
)
from habitus.tools.model import (
    NOTHING_GRANTED,
    CodeTool,
    RetiredTool,
    ToolCaseRerunReport,
    ToolCreationResult,
    ToolDraft,
    ToolNotTestableError,
    ToolProgram,
    ToolProposalEvidence,
    ToolStatus,
)

_PROVED = "proved_as"
# Longer cells would make the table in the review unreadable.
_WIDEST = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolServiceDependencies:
    """Everything that creating, running and curating tools work with."""

    catalogue: ToolCatalogue
    library: Library
    review: ReviewQueue
    health: ToolHealthStore
    workshops: ToolExecutorPerEventLoop
    files: ReadableFolderProvider
    approvals: TrustStore
    scan: TreeScanner
    clock: Callable[[], datetime]
    environ: Mapping[str, str]
    redact: Callable[[str], str]
    retention: RetentionSettings
    services: Callable[[], HostServices]  # for calls outside a session
    record_use: Callable[[ItemUse], None]
    user: str  # of calls outside a session

    async def get_session_or_person_services(self, given: HostServices | None) -> HostServices:
        """Return the session's services or, without a session, those of the person."""
        return given if given is not None else await asyncio.to_thread(self.services)


class ToolMaker:
    """Creates tools that passed their test, and approves their code."""

    def __init__(self, parts: ToolServiceDependencies) -> None:
        self._parts = parts

    async def create_tool(
        self,
        name: str,
        description: str,
        parameters: Json,
        code: str,
        payload: Json,
        author: Author,
        *,
        permissions: Permissions = NOTHING_GRANTED,
        dependencies: Sequence[str] = (),
        drop_cases: bool = False,
        conversation: str = "",
        services: HostServices | None = None,
        evidence: ToolProposalEvidence = ToolProposalEvidence(),  # noqa: B008  # frozen
    ) -> ToolCreationResult:
        """Test a tool in the sandbox and make it the code stage of the skill of that name.

        A person's tool applies at once; an agent's stays pending and is tested without permissions that were not
        granted yet. `ToolFailed` gives the cause in one line, and nothing is changed. Existing cases must still pass
        unless dropped (for the payload under test, only the shape); those of `evidence` must pass in any case.
        """
        name = _validate_name_not_built_in(name)
        layer, before, old, had, given = await asyncio.to_thread(self._load_existing_tool_and_target_layer, name)
        granted = _intersect_permissions(permissions, had) if author.is_automatic else permissions
        draft = ToolDraft(
            name=name,
            description=description,
            parameters=parameters,
            code=code,
            payload=payload,
            permissions=granted,
            dependencies=tuple(dependencies),
            given=given,
            conversation=conversation,
        )
        had_cases = () if old is None or drop_cases else old.cases
        kept = (
            # The payload under test defines the new expected result, so only its old shape still applies.
            *(case.with_expected_result(None) if case.payload == payload else case for case in had_cases),
            *evidence.cases,
        )
        asked = await self._parts.get_session_or_person_services(services)
        try:
            program = await self._parts.workshops.get_for_current_loop().test_draft_and_build_program(
                draft, stored_cases=kept, env=self._parts.environ, services=asked
            )
        except ToolNotTestableError:
            raise
        except ToolFailed as error:
            reason = self._parts.redact(str(error))
            raise ToolFailed(f"{reason}{_build_untested_permissions_notice(permissions, granted)}") from None
        program = replace(program, permissions=permissions, is_compared=evidence.is_compared)
        return await asyncio.to_thread(self._submit_code_stage, program, layer, before, author, conversation, evidence)

    def _load_existing_tool_and_target_layer(
        self, name: str
    ) -> tuple[Layer, Tree, ToolProgram | None, Permissions, Path | None]:
        """Return the target layer and files, the existing tool, its granted permissions and its folder."""
        item = self._parts.catalogue.find_skill(name)
        layer, before = self._find_target_layer_and_files(item)
        old = self._parts.catalogue.find_program(item) if item else None
        had = old.permissions if item and old and self._parts.catalogue.is_approved(item) else NOTHING_GRANTED
        return layer, before, old, had, self._parts.files.provide_readable_folder(item) if item else None

    def approve_code_of_accepted_proposal(self, proposal: Proposal) -> None:
        """Approve the code of a proposal that a person accepted."""
        change = proposal.change
        if change.action is ProposalAction.WRITE and has_callable_code(change.tree):
            layer = self._parts.library.get_layer(change.layer)
            proved = str(change.details.get(_PROVED, ""))
            self._approve_code(layer, change.name, change.tree, self._parts.review.get(proposal.id).decided_by, proved)

    def approve_tool(self, name: str, person: str) -> CodeTool:
        """Approve the current code of a tool with the permissions it asks for."""
        item = self._parts.catalogue.find_tool_skill(name)
        tree = self._parts.catalogue.read_tree(item)
        trees.refuse_code_name_conflict(item.name, tree)
        self._parts.approvals.trust(APPROVED_ROOT, {item.name: tree}, person)
        return self._parts.catalogue.get(name)

    def _find_target_layer_and_files(self, item: ListedSkill | None) -> tuple[Layer, Tree]:
        """Return the layer to write to, and the skill's files: its own layer, or the user's if that is read-only."""
        users = self._parts.library.get_layer(USER_LAYER)
        if item is None:
            return users, {}
        layer = self._parts.library.get_layer(item.layer)
        return (layer if layer.can_write else users), self._parts.catalogue.read_tree(item)

    def _submit_code_stage(
        self,
        program: ToolProgram,
        layer: Layer,
        before: Tree,
        author: Author,
        conversation: str,
        grounds: ToolProposalEvidence,
    ) -> ToolCreationResult:
        tree = build_skill_files_with_code_stage(before, program, is_automatic=author.is_automatic)
        change = SkillChange(
            action=ProposalAction.WRITE,
            name=program.name,
            layer=layer.name,
            tree=tree,
            findings=(*grounds.reasons, *_build_weaker_tests_notice(program, grounds), *self._parts.scan(tree))
            if author.is_automatic
            else (),
            details={
                **grounds.details,
                **self._build_table_comparing_draft_results(program, grounds),
                _PROVED: compute_tool_fingerprint(program),
            },
        )
        submitted = self._parts.review.submit(change, author, conversation=conversation)
        if submitted.proposal is not None:
            waiting = submitted.proposal
            undo = ("review", "reject", str(waiting.id))
            return ToolCreationResult(
                name=program.name, applied=False, proposal=waiting.id, reasons=waiting.reasons, undo=undo
            )
        self._approve_code(layer, program.name, tree, author.name, compute_tool_fingerprint(program))
        version = submitted.version or 1
        back = f"{program.name}@{layer.name}:{version}"
        return ToolCreationResult(name=program.name, applied=True, version=version, undo=("undo", back))

    def _build_table_comparing_draft_results(
        self, program: ToolProgram, grounds: ToolProposalEvidence
    ) -> dict[str, Json]:
        """Return a table for the reviewer: each recorded input, its recorded result and the draft's result."""
        tried = program.tried[len(program.tried) - len(grounds.cases) :]
        rows = [
            {
                "input": self._render_table_cell(case.payload),
                "recorded": self._render_table_cell(recorded),
                "draft": self._render_table_cell(result.printed),
                "compared": case.compared_parts_description,
            }
            for case, recorded, result in zip(grounds.cases, grounds.recorded, tried, strict=True)
        ]
        return {TRIAL_KEY: rows} if rows else {}

    def _render_table_cell(self, value: Json) -> str:
        """Redact a value before shortening it: half of a secret could not be recognized."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return shorten_value(self._parts.redact(text), _WIDEST)

    def _approve_code(self, layer: Layer, name: str, tree: Tree, person: str, proved_as: str) -> None:
        self._parts.approvals.trust(APPROVED_ROOT, {name: tree}, person)
        if proved_as:
            proved = partial(compute_health_after_passed_cases, code=proved_as, now=self._parts.clock())
            self._parts.health.update_health(layer.trust_root or layer.name, name, proved)


def _build_weaker_tests_notice(program: ToolProgram, grounds: ToolProposalEvidence) -> tuple[str, ...]:
    """Return a note for the reviewer if values were compared that later tests won't compare."""
    had, has = (sum(case.expected_result is not None for case in some) for some in (grounds.cases, program.cases))
    if has or not had:
        return ()
    return ("its cases compare only the shape: its results vary",)


def _validate_name_not_built_in(name: str) -> str:
    try:
        name = names.canonicalize_and_check_name(name)
    except Invalid as error:
        raise ToolFailed(str(error)) from None
    if (called := names.to_tool_name(name)) in names.BUILT_IN_TOOLS:
        raise ToolFailed(f"'{called}' is the name of a built-in tool. Take another.")
    return name


def _intersect_permissions(wanted: Permissions, had: Permissions) -> Permissions:
    """Return the requested permissions that the replaced tool already has."""
    return Permissions(
        network=wanted.network and had.network,
        read=tuple(path for path in wanted.read if path in had.read),
        write=tuple(path for path in wanted.write if path in had.write),
        env=tuple(name for name in wanted.env if name in had.env),
    )


def _build_untested_permissions_notice(wanted: Permissions, granted: Permissions) -> str:
    if wanted == granted:
        return ""
    return " (It was tested without the permissions it asks for: only a person can grant them.)"


class ToolRetirementService:
    """Retires and restores tools; nothing is lost. `test` runs the cases of a tool again."""

    def __init__(self, parts: ToolServiceDependencies, test: Callable[[str], Awaitable[ToolCaseRerunReport]]) -> None:
        self._parts = parts
        self._test = test

    async def retest_and_retire_degraded_tools(self, author: Author) -> list[RetiredTool]:
        """Test every degraded tool and retire those that are due; return the retired ones."""
        known = await asyncio.to_thread(self._parts.catalogue.list_all)
        degraded = [tool for tool in known if tool.status is ToolStatus.DEGRADED]
        retired: list[RetiredTool] = []
        for tool in degraded:
            report = await self._test(tool.name)
            gone = await asyncio.to_thread(
                self._count_curation_and_retire_if_due,
                tool.name,
                author,
                fails_its_cases=bool(report.cases_counting_against_tool),
            )
            retired += [gone] if gone else []
        return retired

    async def retest_tool_and_degrade_if_failing(self, name: str) -> ToolCaseRerunReport:
        """Run the cases of a tool whose proof is stale, and mark it as degraded if they fail."""
        report = await self._test(name)
        if report.cases_counting_against_tool:
            await asyncio.to_thread(self._mark_degraded, name, report)
        return report

    def _mark_degraded(self, name: str, report: ToolCaseRerunReport) -> None:
        item, now = self._parts.catalogue.find_tool_skill(name), self._parts.clock()
        reason = report.cases_counting_against_tool[0].outcome.reason
        self._parts.catalogue.update_health(
            item, lambda health: compute_health_after_failed_cases(health, report.fingerprint, reason, now)
        )

    def _count_curation_and_retire_if_due(
        self, name: str, author: Author, *, fails_its_cases: bool
    ) -> RetiredTool | None:
        """Count this curation and retire the tool if it is due."""
        item = self._parts.catalogue.find_tool_skill(name)
        reason = find_retirement_reason(
            self._parts.catalogue.update_health(item, compute_health_after_curation),
            self._parts.clock(),
            fails_its_cases=fails_its_cases,
            most_days=self._parts.retention.degraded_tool_days,
            most_curator_runs=self._parts.retention.degraded_tool_curator_runs,
        )
        return self.retire_tool(name, replace(author, reason=reason)) if reason else None

    def retire_tool(self, name: str, author: Author) -> RetiredTool:
        """Take a tool out of use. A skill with no other stage is archived; any other keeps its other stages."""
        wanted = names.parse_address(name)
        item = self._parts.catalogue.find_tool_skill(wanted.name)
        layer = self._parts.library.get_layer(item.layer)
        if wanted.layer not in (None, item.layer):
            raise NotFound(f"There is no tool '{name}'.", hint=f"It is in the layer '{item.layer}'.")
        if not layer.can_write:
            raise Refused(f"'{item.name}' is in the read-only layer '{layer.name}'.", hint="Disable it instead.")
        author = replace(author, reason=author.reason or "tool retired")
        tree = self._parts.catalogue.read_tree(item)
        address = f"{item.name}@{item.layer}"
        if is_unedited_skill_of_tool(item.name, tree):
            self._parts.library.remove(address, author)
        else:
            self._parts.library.write_tree(item.layer, item.name, build_skill_files_without_code_stage(tree), author)
        return RetiredTool(name=item.name, reason=author.reason, undo=("tools", "restore", address))

    def list_restorable_tools(self) -> list[RetiredTool]:
        """Return the tools that can be restored, by name: of archived skills, or of skills that lost their code."""
        items, archived = self._parts.catalogue.list_all(), {}
        for old in reversed(self._parts.library.list_archived()):
            archived[old.name] = old.author.reason
        # Only a skill that once had a tool has a health record.
        gone = sorted({name for _, name in self._parts.health.list_all()} - {tool.name for tool in items})
        found = []
        for name in gone:
            item = self._parts.catalogue.find_skill(name)
            reason = archived.get(name) if item is None else self._find_reason_code_was_removed(item)
            if reason is not None:
                found.append(RetiredTool(name=name, reason=reason, undo=("tools", "restore", name)))
        return found

    def _find_reason_code_was_removed(self, item: ListedSkill) -> str | None:
        """Return why the code of a skill was removed, or None if it never had any."""
        history = self._parts.library.get_layer(item.layer).store.list_versions(item.name)
        with_code = [number for number, version in enumerate(history) if trees.TOOL_CODE in version.paths]
        return history[with_code[-1] + 1].author.reason if with_code and with_code[-1] + 1 < len(history) else None

    def restore_tool(self, name: str, author: Author) -> CodeTool:
        """Restore a tool as it was and reset its failures."""
        wanted = names.parse_address(name)
        item = self._parts.catalogue.find_skill(wanted.name)
        author = replace(author, reason=author.reason or "tool restored")
        if item is None:
            self._parts.library.restore(name, author)
        elif item.summary is not None and Stage.CODE in item.summary.stages:
            raise Invalid(f"The tool '{item.name}' is there already.", hint="See 'habitus tools list'.")
        else:
            self._restore_newest_code_from_history(item, author)
        found = self._parts.catalogue.find_tool_skill(wanted.name)
        self._parts.catalogue.update_health(
            found, lambda health: ToolHealthRecord(proved_as=health.proved_as, proved_on=health.proved_on)
        )
        return self._parts.catalogue.get(found.name)

    def _restore_newest_code_from_history(self, item: ListedSkill, author: Author) -> None:
        """Write the newest code in the skill's history back into the current skill."""
        store = self._parts.library.get_layer(item.layer).store
        with_code = [version for version in store.list_versions(item.name) if trees.TOOL_CODE in version.paths]
        if not with_code:
            raise NotFound(f"'{item.name}' never had a tool.", hint="Make one: 'habitus tools new'.")
        old = store.read_tree(item.name, with_code[-1].number) or {}
        code = {path: old[path] for path in (trees.TOOL_FILE, trees.TOOL_CODE) if path in old}
        self._parts.library.write_tree(item.layer, item.name, {**self._parts.catalogue.read_tree(item), **code}, author)
