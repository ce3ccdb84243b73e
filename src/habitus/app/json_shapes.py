"""Tools, recipes, secrets and selections as JSON: the same shape on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from habitus.plain_data import plain

if TYPE_CHECKING:
    from habitus.agent.choosing import Why  # the whole agent, which a listing has no use for
    from habitus.app.conversations.running_code import ShownTool
    from habitus.app.conversations.secrets import Overview
    from habitus.app.library.explaining import Prospect
    from habitus.recipes.catalogue import SkillRecipe
    from habitus.sandbox.credentials.grants import Call
    from habitus.search.model import Results
    from habitus.tools.model import Regression


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


def result(done: object) -> Any:
    """The result of a use case as JSON, the same on every surface: a type with an `as_json` of its own gives that."""
    return plain(done, shaped=True)
