"""Code from a recipe or from steps: what recorded uses show, a model's draft of it, and the trial of that draft."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from habitus.agent.tools.recipe_tools import last_said
from habitus.app.growth import observing
from habitus.app.growth.mining import MOST_TURNS
from habitus.app.home import Home
from habitus.errors import ToolFailed
from habitus.journal.journal import Journal
from habitus.journal.model import Turn
from habitus.learning.coding import draft_code
from habitus.llm.model import Model
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.observed import ObservedCall
from habitus.recipes.sequences import SESSIONS, TURNS
from habitus.redact import MARKER
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.library import Library
from habitus.skills.listing import Listed
from habitus.skills.model import Author
from habitus.tools.model import Case, Created, Grounds, Json
from habitus.tools.shape import shape_of
from habitus.tools.workshop import LONGEST_CASE

_ATTEMPTS = 2  # drafts of a model; the second knows why the first was not accepted
_CASES = 5  # recorded calls that a draft has to pass, the latest
_SHOWN_USES = 3  # to a model
_LONGEST = 2_000  # characters of a result that a model is shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """What there is to make code of: words for a model, what it takes if that is known, and cases it must pass."""

    told: str
    evidence: str
    parameters: Json = None
    cases: tuple[Case, ...] = ()


def of_recipe(home: Home, recipe: SkillRecipe) -> Uses | None:
    """The recipe, the programs it calls, and what it was called with and came to; nothing if no call went well."""
    calls = [
        (turn, call)
        for turn in _past(home.settings, home.journal)
        for call in observing.observed(turn).calls
        if call.name == recipe.name and call.success and _can_be_a_case(call)
    ]
    if not calls:
        return None
    ours = {tool.callable_name for tool in home.tools.active()}
    programs = {name: home.tools.code(name) for name in sorted(recipe.plan.tools & ours)}
    different = {_written(call): call for _, call in calls}
    latest = list(different.values())[-_CASES:]
    told = [
        *_procedure(home.skills, f"{recipe.skill}@{recipe.layer}"),
        f"# What it takes\n\n{json.dumps(recipe.plan.schema, ensure_ascii=False)}",
        *(f"# The program `{name}`\n\n```python\n{code}\n```" for name, code in programs.items()),
        *(_use(call, last_said(call.result)) for call in latest[-_SHOWN_USES:]),
    ]
    return Uses(
        told="\n\n".join(told),
        evidence=f"its recipe `{recipe.name}` was {observing.when([turn for turn, _ in calls])}",
        parameters=recipe.plan.schema,
        cases=tuple(Case(payload=dict(call.arguments), shape=shape_of(last_said(call.result))) for call in latest),
    )


def _can_be_a_case(call: ObservedCall) -> bool:
    """What a secret was taken out of, or is too long to be kept beside a tool, can't be run again."""
    written = _written(call)
    return len(written) <= LONGEST_CASE and not MARKER.search(written)


def _written(call: ObservedCall) -> str:
    return json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)


def of_steps(home: Home, skill: Listed, *, is_asked: bool = False) -> Uses | None:
    """The steps, and the cells that were run where they were followed; nothing for too few such turns, unless asked."""
    cells: list[tuple[Turn, list[ObservedCall]]] = []
    for turn in _past(home.settings, home.journal):
        seen = observing.observed(turn)
        ran = [call for call in seen.calls if call.name == "scratchpad" and call.success and call.arguments.get("code")]
        if seen.ok and ran and skill.name in observing.chosen(turn):
            cells.append((turn, ran))
    turns = [turn for turn, _ in cells]
    is_habit = len(turns) >= TURNS and len({turn.session for turn in turns}) >= SESSIONS
    if not is_habit and not is_asked:
        return None
    told = _procedure(home.skills, f"{skill.name}@{skill.layer}")
    for turn, ran in cells[-_SHOWN_USES:]:
        told += [f"# A request: {observing.quoted(turn)}", *(_use(call, call.result) for call in ran)]
    evidence = (
        f"its steps were followed with code: {observing.when(turns)}" if turns else "nobody followed it with code"
    )
    return Uses(told="\n\n".join(told), evidence=evidence)


def _past(settings: Settings, journal: Journal) -> Iterator[Turn]:
    return journal.past(limit=MOST_TURNS, user=settings.user)


def _procedure(skills: Library, address: str) -> list[str]:
    tree, skill = skills.tree(address), skills.load(address)
    chunks = tree.get(trees.CHUNKS_FILE)
    recipes = (chunks.content or b"").decode("utf-8", "replace") if chunks is not None else ""
    told = [f"# {skill.name}: {skill.description}\n\n{skill.cue}", f"# Its steps\n\n{skill.body.strip()}"]
    return [*told, f"# Its recipes\n\n{recipes}"] if recipes else told


def _use(call: ObservedCall, result: str) -> str:
    given = json.dumps(call.arguments, ensure_ascii=False)[:_LONGEST]
    return f"# A use that went well\n\n{call.name} {given}\n\ncame to:\n\n{result[:_LONGEST]}"


async def tried(home: Home, skill: str, uses: Uses, model: Model, author: Author, grounds: Grounds) -> Created:
    """Have it drafted, and proposed if the draft passes; `ToolFailed` says why none did."""
    refused = ""
    for _ in range(_ATTEMPTS):
        draft = await draft_code(model, uses.told, refused=refused, spending=home.spending, redactor=home.redactor)
        if not draft.code.strip():
            raise ToolFailed(f"{model.name} says that no program can do it alone.")
        try:
            return await home.tools.create(
                skill,
                draft.description,
                uses.parameters or draft.parameters,
                draft.code,
                uses.cases[-1].payload if uses.cases else draft.payload,
                author,
                dependencies=draft.dependencies,
                grounds=grounds,
            )
        except ToolFailed as error:
            refused = str(error)
    raise ToolFailed(refused)
