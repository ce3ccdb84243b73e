"""Skills, lessons and what waits as JSON: the same shape on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from habitus.app.review.inbox import InboxItem
from habitus.app.use_cases.skills import ShownSkill, SkillEntry
from habitus.memory.model import Engram
from habitus.memory.retention import utility
from habitus.plain import plain
from habitus.skills.listing import Listed
from habitus.skills.model import PLAIN_MANIFEST, Manifest, Summary
from habitus.skills.review import Proposal
from habitus.tasks.files import row_of_task
from habitus.tasks.model import Task

if TYPE_CHECKING:
    from habitus.app.library.explaining import Prospect  # the whole agent, which a listing has no use for


def skill(entry: SkillEntry) -> dict[str, Any]:
    """One skill of a listing, flat."""
    item, summary = entry.item, entry.item.summary
    told = {name: plain(getattr(item, name)) for name in _LISTED} | {"counters": plain(entry.counters)}
    if summary is None:
        return told
    return {name: plain(getattr(summary, name)) for name in _SUMMARY} | told | {"manifest": _unusual(entry.manifest)}


_LISTED = [field.name for field in fields(Listed) if field.name not in ("summary", "tree_hash", "fills")]
_SUMMARY = [field.name for field in fields(Summary) if field.name not in ("manifest", "stated")]
_MANIFEST = [field.name for field in fields(Manifest)]


def _unusual(manifest: Manifest) -> dict[str, Any]:
    """What it says that is not said anyway."""
    return {
        name: plain(getattr(manifest, name))
        for name in _MANIFEST
        if getattr(manifest, name) != getattr(PLAIN_MANIFEST, name)
    }


def shown_skill(shown: ShownSkill) -> dict[str, Any]:
    """One skill whole."""
    body = {"body": shown.skill.body} if shown.skill is not None else {}
    more = {name: list(getattr(shown, name)) for name in ("files", "told", "lacks", "known")}
    return {**skill(shown), **body, **more, "origin": shown.origin}


def lesson(engram: Engram) -> dict[str, Any]:
    told: dict[str, Any] = plain(engram)
    counters = told.pop("counters")
    return {**told, **counters, "utility": round(utility(engram), 4)}


def waiting(item: InboxItem) -> dict[str, Any]:
    """Proposals and lessons have the same keys where they mean the same."""
    told: dict[str, Any] = {"state": item.state, "action": item.action, "reasons": list(item.reasons)}
    match item.subject:
        case Proposal() as proposal:
            return {
                **told,
                "id": proposal.id,
                "name": proposal.change.name,
                "layer": proposal.change.layer,
                "host": proposal.host,
                "conversation": proposal.conversation,
                "by": plain(proposal.author),
                "made_on": plain(proposal.made_on),
                "decided_on": plain(proposal.decided_on),
                "decided_by": proposal.decided_by,
                "decision": proposal.decision,
                "files": sorted(proposal.change.tree),
                "trial": [dict(row) for row in proposal.trial],
            }
        case Engram() as engram:
            return {
                **told,
                "id": engram.id,
                "name": engram.id,
                "text": engram.text,
                "kind": engram.kind.value,
                "scope": engram.scope.value,
                "by": plain(engram.produced_by),
                "conversation": engram.evidence.session,
                "made_on": plain(engram.created_on),
            }


def prospect(seen: Prospect) -> dict[str, Any]:
    selection = seen.selection
    return {
        "eager": [{"name": choice.name, "reason": choice.reason} for choice in selection.eager],
        "menu": seen.on_menu,
        "cut": seen.cut,
        "left_out": [{"name": name, "reason": reason} for name, reason in sorted(selection.left_out.items())],
        "menu_tokens": seen.menu.tokens,
        "menu_budget": seen.menu.budget,
        "drops_memory": selection.drops_memory,
        "drops_persona": selection.drops_persona,
    }


# Types whose JSON is not field by field; `web/api/answers.py` has the schema of each.
FORMS: Mapping[type, Callable[[Any], Any]] = {
    Engram: lesson,
    InboxItem: waiting,
    SkillEntry: skill,
    ShownSkill: shown_skill,
    Task: row_of_task,
}


def result(done: object) -> Any:
    """The result of a use case, the same on every surface."""
    return plain(done, FORMS)
