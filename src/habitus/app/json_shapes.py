"""Skills, lessons, tools, recipes and what waits as JSON: the same shape on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from habitus.app.review.inbox import InboxItem
from habitus.memory.model import Engram, utility
from habitus.plain_data import plain
from habitus.skills.layers import listing
from habitus.skills.review import Proposal
from habitus.tasks.files import row_of_task
from habitus.tasks.model import Task

if TYPE_CHECKING:
    from habitus.agent.choosing import Why  # the whole agent, which a listing has no use for
    from habitus.app.conversations.running_code import ShownTool
    from habitus.app.conversations.secrets import Overview
    from habitus.app.library.explaining import Prospect
    from habitus.recipes.catalogue import SkillRecipe
    from habitus.sandbox.credentials.grants import Call
    from habitus.search.model import Results
    from habitus.tools.model import Regression


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


def why(found: Why) -> dict[str, Any]:
    told: dict[str, Any] = plain(found)
    return {**told, "sentences": found.sentences()}


def tool(shown: ShownTool) -> dict[str, Any]:
    told: dict[str, Any] = plain(shown.tool)
    return {**told, **result({"cases": shown.cases, "counters": shown.counters, "code": shown.code})}


def regression(report: Regression) -> dict[str, Any]:
    told: dict[str, Any] = plain(report)
    return {**told, "passed": report.passed}


def recipe(found: SkillRecipe) -> dict[str, Any]:
    told: dict[str, Any] = plain(found)
    del told["key"]  # where its uses are counted
    return {"name": found.name, **told}


def secrets(found: Overview, calls: Sequence[Call]) -> dict[str, Any]:
    told: dict[str, Any] = plain(found)
    return {**told, "calls": plain(calls)}


def prospect(seen: Prospect, best: Results) -> dict[str, Any]:
    """A prospect: the skills that would reach a prompt, and of those that may be opened, the ones that fit `best`."""
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
        "ranks": best.hits,
        "fits": best.fits,
    }


# Types whose JSON is not field by field; `web/api/requests_and_answers.py` has the schema of each.
FORMS: Mapping[type, Callable[[Any], Any]] = {
    Engram: lesson,
    InboxItem: waiting,
    **listing.FORMS,
    Task: row_of_task,
}


def result(done: object) -> Any:
    """The result of a use case, the same on every surface."""
    return plain(done, FORMS)
