"""Save a conversation's work as a skill: draft it with a model, then store it once the person agrees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from habitus.agent.prompts.prompt import is_context
from habitus.agent.stream import Consent
from habitus.app.home import Home
from habitus.errors import Refused
from habitus.learning.budget import Budget
from habitus.learning.drafting import draft_skill
from habitus.llm.model import Answered, Asked, Message, Model, Returned, Text
from habitus.sandbox.model import Cell
from habitus.skills import names, trees
from habitus.skills.layers.layer import USER
from habitus.skills.model import Skill
from habitus.skills.review import Action, Change

_TOOL = "scratchpad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A skill stored as a version, or pending as a proposal."""

    name: str
    version: int | None = None
    proposal: int | None = None


async def draft(
    home: Home, model: Model, messages: Sequence[Message], hint: str, *, patience_s: float | None = None
) -> Skill:
    """Draft a skill from a conversation; nothing is saved yet."""
    waiting = {proposal.change.name for proposal in home.review.list(with_contents=False)}
    return await draft_skill(
        Budget().model(model),
        cells=_cells(messages),
        messages=_conversation(messages),
        hint=hint,
        is_taken=lambda name: name in waiting or home.skills.is_taken(name),
        redactor=home.redactor,
        patience_s=patience_s,
    )


def save(home: Home, skill: Skill, answer: Consent, conversation: str) -> Saved:
    """Save, postpone or drop a draft as the person answered; a draft with scan findings becomes a proposal anyway."""
    if answer is Consent.NO:
        raise Refused("Nothing was saved.", hint="/skill save HINT drafts it anew.")
    # Another process may have taken the name while the person was reading.
    skill = replace(skill, name=names.unique_name(skill.name, home.skills.is_taken))
    tree = trees.with_skill({}, skill)
    change = Change(action=Action.WRITE, name=skill.name, layer=USER, tree=tree, findings=tuple(home.scan(tree)))
    author = home.person("saved from a conversation")
    if answer is Consent.LATER:
        reasons = ["it was put off", *change.findings]
        made = home.review.propose(change, author, reasons, conversation=conversation)
        return Saved(name=skill.name, proposal=made.id)
    done = home.review.submit(change, author, conversation=conversation)
    return Saved(name=skill.name, version=done.version, proposal=None if done.proposal is None else done.proposal.id)


def _cells(messages: Sequence[Message]) -> list[Cell]:
    """Return the cells run in a conversation, with the results that the model saw."""
    results = {message.call: message for message in messages if isinstance(message, Returned)}
    cells = []
    for message in messages:
        for call in message.calls if isinstance(message, Answered) else ():
            given = _arguments(call.arguments) if call.name == _TOOL else {}
            if code := str(given.get("code") or ""):
                cells.append(_cell(code, str(given.get("one_line_description") or ""), results.get(call.id)))
    return cells


def _cell(code: str, described: str, came: Returned | None) -> Cell:
    cell = Cell(code=code, description=described)
    if came is None:
        return cell
    return replace(cell, error=came.content) if came.failed else replace(cell, stdout=came.content)


def _arguments(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _conversation(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without cells and without the context blocks next to requests."""
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, Asked):
            parts = tuple(part for part in message.parts if not (isinstance(part, Text) and is_context(part.text)))
            kept.append(replace(message, parts=parts))
        elif not (isinstance(message, Returned) and message.tool == _TOOL):
            kept.append(message)
    return kept
