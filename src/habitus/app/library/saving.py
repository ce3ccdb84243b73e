"""Save a conversation's work as a skill: draft it with a model, then store it once the person agrees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from habitus.agent.prompts.prompt import is_context_block
from habitus.agent.stream import Consent
from habitus.app.home import Home
from habitus.errors import Refused
from habitus.learning.budget import RunBudget
from habitus.learning.drafting import draft_skill
from habitus.llm.model import AssistantMessage, ChatMessage, Model, PersonMessage, TextContent, ToolResultMessage
from habitus.sandbox.model import Cell
from habitus.skills import names, trees
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.model import Skill
from habitus.skills.review import ProposalAction, SkillChange

_SCRATCHPAD_TOOL = "scratchpad"


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveSkillResult:
    """A skill stored as a version, or pending as a proposal."""

    name: str
    version: int | None = None
    proposal: int | None = None


async def draft_skill_from_messages(
    home: Home, model: Model, messages: Sequence[ChatMessage], hint: str, *, timeout_s: float | None = None
) -> Skill:
    """Draft a skill from a conversation; nothing is saved yet."""
    waiting = {proposal.change.name for proposal in home.review.list_proposals_by_state(with_contents=False)}
    return await draft_skill(
        RunBudget().wrap_model(model),
        cells=_extract_cells(messages),
        messages=_strip_cells_and_context_from_messages(messages),
        hint=hint,
        is_taken=lambda name: name in waiting or home.skills.is_name_taken(name),
        redactor=home.redactor,
        patience_s=timeout_s,
    )


def save_postpone_or_drop_draft(home: Home, skill: Skill, answer: Consent, conversation: str) -> SaveSkillResult:
    """Save, postpone or drop a draft as the person answered; a draft with scan findings becomes a proposal anyway."""
    if answer is Consent.NO:
        raise Refused("Nothing was saved.", hint="/skill save HINT drafts it again.")
    # Another process may have taken the name while the person was reading.
    skill = replace(skill, name=names.make_unique_name(skill.name, home.skills.is_name_taken))
    tree = trees.update_main_file({}, skill)
    change = SkillChange(
        action=ProposalAction.WRITE, name=skill.name, layer=USER_LAYER, tree=tree, findings=tuple(home.scan_tree(tree))
    )
    author = home.build_author("saved from a conversation")
    if answer is Consent.LATER:
        reasons = ["it was put off", *change.findings]
        made = home.review.propose(change, author, reasons, conversation=conversation)
        return SaveSkillResult(name=skill.name, proposal=made.id)
    done = home.review.submit(change, author, conversation=conversation)
    return SaveSkillResult(
        name=skill.name, version=done.version, proposal=None if done.proposal is None else done.proposal.id
    )


def _extract_cells(messages: Sequence[ChatMessage]) -> list[Cell]:
    """Return the cells run in a conversation, with the results that the model saw."""
    results = {message.call: message for message in messages if isinstance(message, ToolResultMessage)}
    cells = []
    for message in messages:
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            given = _parse_arguments(call.arguments) if call.name == _SCRATCHPAD_TOOL else {}
            if code := str(given.get("code") or ""):
                cells.append(_build_cell(code, str(given.get("one_line_description") or ""), results.get(call.id)))
    return cells


def _build_cell(code: str, described: str, came: ToolResultMessage | None) -> Cell:
    cell = Cell(code=code, description=described)
    if came is None:
        return cell
    return replace(cell, error=came.content) if came.failed else replace(cell, stdout=came.content)


def _parse_arguments(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _strip_cells_and_context_from_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages without cells and without the context blocks next to requests."""
    kept: list[ChatMessage] = []
    for message in messages:
        if isinstance(message, PersonMessage):
            parts = tuple(
                part for part in message.parts if not (isinstance(part, TextContent) and is_context_block(part.text))
            )
            kept.append(replace(message, parts=parts))
        elif not (isinstance(message, ToolResultMessage) and message.tool == _SCRATCHPAD_TOOL):
            kept.append(message)
    return kept
