"""`habitus recipes …`: renders results of `use_cases/recipes.py`, and mines new recipes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.learning import studying
from habitus.app.learning.mining import Mining, MiningReport
from habitus.app.use_cases import recipes
from habitus.app.use_cases.recipes import (
    CheckedRecipes,
    OneRecipe,
    RecipeList,
    RecipeNames,
    RecipeRun,
    RecipesFound,
    RecipeSteps,
)
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.errors import Refused
from habitus.events import ToolResult
from habitus.llm.model import Models
from habitus.recipes.catalogue import SkillRecipe

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the calls it would make.")]


def list_recipes(context: typer.Context, wanted: RecipeList, done: RecipesFound, wide: Wide = False) -> None:
    rows = [(r.name, r.skill, r.status.value, _describe_uses(r), r.reason or r.plan.description) for r in done.recipes]
    empty = "There are no recipes. A skill has them in its chunks.md: docs/concepts/recipes.md says how."
    columns = ("name", "skill", "status", "went well", "what it does")
    output.rows_or(empty, columns, rows, wide="what it does", is_cut=not wide)


def _describe_uses(recipe: SkillRecipe) -> str:
    """Return how many runs of a recipe succeeded."""
    counts = recipe.counts
    return f"{counts.succeeded} of {counts.used}" if counts.used else "not used yet"


def show(context: typer.Context, wanted: OneRecipe, done: SkillRecipe) -> None:
    output.say(f"{done.name}  (skill {done.skill}@{done.layer}, version {done.version})")
    if done.plan.description:
        output.say(done.plan.description)
    output.say(f"{done.status.value}{f': {done.reason}' if done.reason else ''}")
    output.say(f"Takes: {_json(done.plan.schema['properties'])}")
    for number, step in enumerate(done.plan.steps, 1):
        arguments = _json(step.params) if step.params else ""
        output.say(f"  {number}. {step.tool or f'branch {step.branch}'} {arguments}".rstrip())
    last = f", last {inputs.format_timestamp(done.counts.last_used)}" if done.counts.last_used else ""
    output.say(f"Used: {_describe_uses(done)}{last}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def check_run(habitus: Habitus, given: Mapping[str, Any]) -> None:
    """Raise `NotFound` for an unknown recipe before its arguments are read."""
    habitus.recipes.get(given["recipe"])


def perform_run(habitus: Habitus, wanted: RecipeRun, dry_run: DryRun = False) -> ToolResult | RecipeSteps:
    return recipes.plan_run(habitus, wanted) if dry_run else recipes.run(habitus, wanted)


def run(context: typer.Context, wanted: RecipeRun, done: ToolResult | RecipeSteps) -> None:
    if isinstance(done, ToolResult):
        output.say(done.content)
    else:
        rows = [(step.number, step.tool, _json(step.arguments)) for step in done.steps]
        output.rows_or("", ("step", "tool", "arguments"), rows, wide="arguments")


def check(context: typer.Context, wanted: RecipeNames, done: CheckedRecipes) -> None:
    bad = [recipe for recipe in done.recipes if recipe.problems]
    for recipe in bad:
        for problem in recipe.problems:
            output.say(f"{recipe.skill}/chunks.md: {recipe.name}: {problem}", style="yellow")
    output.say(f"{len(done.recipes) - len(bad)} of {output.count_of(len(done.recipes), 'recipe')} can run.")


def mine(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts of other agents; our own journal by default.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Propose what is found; it waits for your review.")] = False,
    model: Annotated[str, typer.Option("--model", help="Let provider:model draft skills of similar requests.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find recurring work: calls that could become a recipe, requests that need a skill."""
    with open_habitus(context) as habitus:
        models = studying.open_models(habitus.settings, habitus.pause, model) if model else None
        mining = Mining(habitus)
        if files:
            mining.read(studying.found_files(files))
        mining.look()
        if models is not None and mining.requests_to_draft and _may_send(mining, model, yes, as_json):
            _draft(mining, models)
        if apply:
            mining.propose()
        report = mining.report()
        if as_json:
            output.print_json(report)
        else:
            _print(context, report, applied=apply)


def _may_send(mining: Mining, model: str, yes: bool, as_json: bool) -> bool:
    """Ask whether requests may be sent to the model; refuse if there is no terminal."""
    requests = output.count_of(len(mining.requests_to_draft), "group")
    told = f"{requests} of requests, about {mining.tokens_to_send:,} tokens,"
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise Refused(f"{told} would go to {model}.", hint="Nothing was sent or kept. Add --yes to send.")
    return typer.confirm(f"{told} would go to {model}, without the secrets. Send them?")


def _draft(mining: Mining, models: Models) -> None:
    """Let the model draft skills, then close its connection."""

    async def ask() -> None:
        try:
            await mining.draft(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print(context: typer.Context, report: MiningReport, *, applied: bool) -> None:
    """Print the suggestions with their evidence, and how to review them."""
    for one in report.suggestions:
        output.say(f"{one.kind.value}: {one.name} (skill {one.skill})", style="bold")
        for line in one.evidence:
            output.say(f"  {line}", style="dim")
        output.say("\n".join(f"    {line}".rstrip() for line in one.text.strip().splitlines()), style="green")
    found = output.count_of(len(report.suggestions), "thing")
    output.say(f"Looked at {output.count_of(report.turns, 'turn')} of your own: {found} done again and again.")
    if report.stopped:
        output.say(report.stopped, style="yellow")
    if report.spent:
        output.say(f"{report.spent}.", style="dim")
    if report.suggestions:
        waits = f"They wait for you: {output.command(context, 'review', 'list')}"
        output.say(waits if applied else "Nothing was kept; --apply puts it before you as proposals.")
