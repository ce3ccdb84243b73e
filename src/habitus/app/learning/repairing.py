"""Propose a repair for each degraded tool, from the inputs that failed and what was returned instead.

The inputs become test cases of the tool. A model, if one is configured, drafts code that passes them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from habitus.agent.history import decode_journal_message
from habitus.agent.tools.stage_tools import extract_result_from_rendered_recipe_run
from habitus.app.home import Home, refuse_change_if_unwritable_or_paused
from habitus.app.learning import code_drafting, mining
from habitus.errors import HabitusError, Refused
from habitus.events import AgentEvent, EventKind, FinishedTurnDetails
from habitus.journal.model import Turn
from habitus.learning.budget import RunBudget
from habitus.llm.model import AssistantMessage, Model
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import ActorKind, Author
from habitus.skills.review import ProposalAction, ProposalState, ReviewQueue, SkillChange
from habitus.tasks.judging import derive_expected_result, infer_json_schema_of_result, shorten_value
from habitus.tasks.model import Task
from habitus.tasks.schema import Json
from habitus.text import clean_to_one_line
from habitus.tools.code_stage import (
    build_case_from_call,
    build_skill_files_with_code_stage,
    parse_tool_program_from_files,
)
from habitus.tools.execution import MOST_CASES
from habitus.tools.model import CodeTool, ToolProposalEvidence, ToolStatus
from habitus.tools.service import ToolService

log = logging.getLogger(__name__)
# The key under which the details of a proposal hold the version of the tool to repair.
_REPAIR_KEY = "repair"
_MAX_TURNS, _MAX_INPUTS, _MAX_SHOWN_CHARS = 200, 5, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedToolInput:
    """An input that a tool failed on, and what the agent did instead; `result` only if a recipe returned it."""

    payload: Json
    error: str
    fallback: str = ""
    result: str | None = None
    conversation: str = ""

    def make_test_case(self) -> Task:
        """Return a test case: the result of the fallback, or any result at all."""
        if self.result is None:
            return build_case_from_call(self.payload, {}, conversation=self.conversation)
        shape, expected = infer_json_schema_of_result(self.result), derive_expected_result([self.result])
        return build_case_from_call(self.payload, shape, expected, conversation=self.conversation)

    def describe_failure_and_fallback(self) -> str:
        """Return the failure and its fallback in one line for the reviewer."""
        failed = f"with {shorten_value(json.dumps(self.payload, ensure_ascii=False), _MAX_SHOWN_CHARS)} it failed"
        return f"{failed}: {self.error}" + (f"; instead, {self.fallback}" if self.fallback else "")


class ToolRepairObserver:
    """Observes a conversation and proposes a repair after a turn in which a tool failed and is now degraded."""

    def __init__(self, home: Home, model: Model | None) -> None:
        self._home, self._model = home, model
        self._called: dict[str, str] = {}
        self._failed: set[str] = set()

    def observe(self, event: AgentEvent) -> None:
        """Note the tools that fail."""
        id = str(event.detail.get("id"))
        if event.kind is EventKind.TOOL_CALL:
            self._called[id] = str(event.detail.get("name", ""))
        elif event.kind is EventKind.TOOL_RESULT and event.detail.get("success") is False:
            self._failed.add(self._called.get(id, ""))

    async def list_new_advice(self) -> Sequence[str]:
        """Return nothing: the result of a call says itself that the tool is degraded."""
        return ()

    def drop_cancelled_turn(self) -> None:
        """Forget the failures of a cancelled turn."""
        self._called, self._failed = {}, set()

    def learn(self, ended: FinishedTurnDetails) -> Coroutine[Any, Any, None]:
        """Take the failed tools at once; the returned coroutine proposes their repair."""
        failed = self._failed
        self.drop_cancelled_turn()
        return self._propose_repairs_of_degraded_tools(failed)

    async def _propose_repairs_of_degraded_tools(self, failed: Collection[str]) -> None:
        try:
            for tool in (
                await asyncio.to_thread(_list_degraded_among_failed_tools, self._home.tools, failed) if failed else ()
            ):
                inputs = await asyncio.to_thread(collect_failed_inputs, self._home, tool)
                await propose_tool_repair(self._home, tool, inputs, self._model)
        except Refused as refused:
            log.info("No repair is proposed: %s", refused)
        except Exception:
            log.warning("A repair could not be proposed.", exc_info=True)


def _list_degraded_among_failed_tools(tools: ToolService, called: Collection[str]) -> list[CodeTool]:
    return [tool for tool in tools.all() if tool.callable_name in called and tool.status is ToolStatus.DEGRADED]


def collect_failed_inputs(home: Home, tool: CodeTool) -> list[FailedToolInput]:
    """Return the latest inputs in the journal that the tool failed on, each once."""
    recipes = {recipe.name for recipe in home.recipes.list_recipes() if recipe.skill == tool.name}
    found: dict[str, FailedToolInput] = {}
    for turn in home.journal.iterate_latest_finished_turns(limit=_MAX_TURNS, user=home.settings.user):
        for failed in _find_failed_inputs_in_turn(turn, tool.callable_name, recipes):
            key = json.dumps(failed.payload, sort_keys=True)
            found.pop(key, None)
            found[key] = failed
    return list(found.values())[-_MAX_INPUTS:]


def _find_failed_inputs_in_turn(turn: Turn, tool: str, recipes: Collection[str]) -> Iterable[FailedToolInput]:
    seen = mining.convert_journal_turn_to_observed(turn)
    for number, call in enumerate(seen.calls):
        if call.name != tool or call.success or not code_drafting.can_rerun_recorded_call(call):
            continue
        later = [other for other in seen.calls[number + 1 :] if other.success and other.name != tool]
        by_recipe = next((other for other in later if other.name in recipes), None)
        instead, fallback = by_recipe or (later[-1] if later else None), ""
        result = (
            extract_result_from_rendered_recipe_run(by_recipe.result) if by_recipe is not None and seen.ok else None
        )
        if instead is not None:
            fallback = f"`{instead.name}` returned: {_shorten_to_one_line(result or instead.result)}"
        elif reply := _find_final_reply(turn):
            fallback = f"the agent replied: {_shorten_to_one_line(reply)}"
        yield FailedToolInput(
            payload=dict(call.arguments),
            error=_shorten_to_one_line(call.result.removeprefix("Error: ")),
            fallback=fallback,
            result=result,
            conversation=turn.session,
        )


def _find_final_reply(turn: Turn) -> str:
    messages = [decode_journal_message(one) for one in turn.messages]
    return next((one.text for one in reversed(messages) if isinstance(one, AssistantMessage)), "")


def _shorten_to_one_line(text: str) -> str:
    return shorten_value(clean_to_one_line(text), _MAX_SHOWN_CHARS)


async def propose_tool_repair(
    home: Home, tool: CodeTool, inputs: Sequence[FailedToolInput], model: Model | None = None
) -> int | None:
    """Propose once per version that a degraded tool is repaired; return the number of the proposal.

    None if nothing is known about its failures, or this version has had its proposal.
    """
    author = Author(actor=ActorKind.JOB, name="repair", reason=f"the tool {tool.reason}")
    refuse_change_if_unwritable_or_paused(home, author)
    if not inputs or await asyncio.to_thread(_is_repair_proposed, home.review, tool):
        return None
    grounds = ToolProposalEvidence(
        cases=tuple(one.make_test_case() for one in inputs),
        recorded=tuple(one.result or "" for one in inputs),
        reasons=(f"repair: it {tool.reason}", *(one.describe_failure_and_fallback() for one in inputs)),
        details={_REPAIR_KEY: tool.version},
        is_compared=tool.is_compared,
    )
    refused = ""
    if model is not None:
        try:
            return await _propose_repaired_code(home, tool, grounds, model, author)
        except (TimeoutError, HabitusError) as error:
            refused = f"the code that {model.name} drafted was not accepted: {clean_to_one_line(str(error))}"
    return await asyncio.to_thread(_propose_failed_inputs_as_test_cases, home, tool, grounds, author, refused)


def _is_repair_proposed(review: ReviewQueue, tool: CodeTool) -> bool:
    known = review.list_proposals_by_state(None, with_contents=False, names=[tool.name])
    asked = (one.change.details.get(_REPAIR_KEY) for one in known if one.state is not ProposalState.STALE)
    return tool.version in asked


async def _propose_repaired_code(
    home: Home, tool: CodeTool, grounds: ToolProposalEvidence, model: Model, author: Author
) -> int | None:
    material = [
        *await asyncio.to_thread(code_drafting.build_prompt_parts_from_skill, home.skills, f"{tool.name}@{tool.layer}"),
        f"# Its program, to be repaired\n\n```python\n{home.tools.code(tool.name)}\n```",
        "# Why\n\n" + "\n".join(f"- {reason}" for reason in grounds.reasons),
    ]
    uses = code_drafting.CodeDraftMaterial(
        prompt="\n\n".join(material), evidence=grounds.reasons[0], parameters=dict(tool.parameters)
    )
    paid = RunBudget(day=home.spending).wrap_model(model)
    by_model = replace(grounds, reasons=(*grounds.reasons, f"drafted by {model.name}; it passes these inputs"))
    made = await code_drafting.draft_and_propose_code(
        home, tool.name, uses, paid, author, by_model, permissions=tool.permissions
    )
    return made.proposal


def _propose_failed_inputs_as_test_cases(
    home: Home, tool: CodeTool, grounds: ToolProposalEvidence, author: Author, refused: str
) -> int:
    """Propose the inputs as test cases: whoever writes new code for the tool must pass them."""
    tree = home.skills.read_tree(f"{tool.name}@{tool.layer}")
    program = parse_tool_program_from_files(tool.name, tree)
    given = [case.payload for case in grounds.cases]
    cases = (*(case for case in program.cases if case.payload not in given), *grounds.cases)[-MOST_CASES:]
    change = SkillChange(
        action=ProposalAction.WRITE,
        name=tool.name,
        layer=tool.layer if home.skills.get_layer(tool.layer).can_write else USER_LAYER,
        tree=build_skill_files_with_code_stage(tree, replace(program, cases=cases), is_automatic=True),
        details=grounds.details,
    )
    become = (
        "these inputs become test cases that its new code must pass; no model has written that yet, "
        "and while today's code fails them 'habitus learn curate' retires the tool (it can be restored)"
    )
    return home.review.propose(change, author, [*grounds.reasons, refused or become]).id
