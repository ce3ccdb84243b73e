"""`habitus skills recipes …`: renders results of `use_cases/recipes.py`, and mines new recipes."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.learning import studying
from habitus.app.learning.mining import ProcedureMiningReport, RepeatedProcedureFinder
from habitus.app.use_cases import recipes
from habitus.cli import inputs, output
from habitus.cli.completion import JsonOption, WideOption
from habitus.cli.opening import open_habitus
from habitus.errors import Refused
from habitus.events import ToolResult
from habitus.llm.model import SessionModels
from habitus.recipes.catalogue import SkillRecipe

RecipeDryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the calls without making them.")]


def print_result_of_list_recipes(
    context: typer.Context, result: recipes.ListRecipesResult, wide: WideOption = False
) -> None:
    rows = [
        (r.name, r.skill, r.status.value, _describe_recipe_runs(r), r.reason or r.plan.description)
        for r in result.recipes
    ]
    empty = "No recipes yet. A skill's recipes are in its chunks.md; see docs/concepts/recipes.md."
    columns = ("name", "skill", "status", "succeeded", "description")
    output.print_table_or_message(empty, columns, rows, wide="description", is_cut=not wide)


def _describe_recipe_runs(recipe: SkillRecipe) -> str:
    """Return how many runs of a recipe succeeded."""
    counts = recipe.counts
    return f"{counts.succeeded} of {counts.used}" if counts.used else "not used yet"


def print_result_of_show_recipe(context: typer.Context, result: SkillRecipe) -> None:
    output.print_line(f"{result.name}  (skill {result.skill}@{result.layer}, version {result.version})")
    if result.plan.description:
        output.print_line(result.plan.description)
    output.print_line(f"{result.status.value}{f': {result.reason}' if result.reason else ''}")
    output.print_line(f"Parameters: {_format_json_line(result.plan.schema['properties'])}")
    for number, step in enumerate(result.plan.steps, 1):
        arguments = _format_json_line(step.params) if step.params else ""
        output.print_line(f"  {number}. {step.tool or f'branch {step.branch}'} {arguments}".rstrip())
    last = f", last {inputs.format_timestamp(result.counts.last_used)}" if result.counts.last_used else ""
    output.print_line(f"Used: {_describe_recipe_runs(result)}{last}")


def _format_json_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def check_before_run_recipe(habitus: Habitus, recipe: str) -> None:
    """Raise `NotFound` for an unknown recipe before its arguments are read."""
    habitus.recipes.get(recipe)


def perform_run_recipe(
    habitus: Habitus, request: recipes.RunRecipeRequest, dry_run: RecipeDryRunOption = False
) -> ToolResult | recipes.RecipeRunPreview:
    return recipes.preview_recipe_run(habitus, request) if dry_run else recipes.run_recipe(habitus, request)


def print_result_of_run_recipe(context: typer.Context, result: ToolResult | recipes.RecipeRunPreview) -> None:
    if isinstance(result, ToolResult):
        output.print_line(result.content)
    else:
        rows = [(step.number, step.tool, _format_json_line(step.arguments)) for step in result.steps]
        output.print_table_or_message("", ("step", "tool", "arguments"), rows, wide="arguments")


def print_result_of_check_recipes(context: typer.Context, result: recipes.CheckRecipesResult) -> None:
    bad = [recipe for recipe in result.recipes if recipe.problems]
    for recipe in bad:
        for problem in recipe.problems:
            output.print_line(f"{recipe.skill}/chunks.md: {recipe.name}: {problem}", style="yellow")
    output.print_line(
        f"{len(result.recipes) - len(bad)} of {output.format_quantity(len(result.recipes), 'recipe')} can run."
    )


def mine_recipes(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Transcripts of other agents; our own journal by default.", show_default=False),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Propose the results; they need your review.")] = False,
    model: Annotated[str, typer.Option("--model", help="Let provider:model draft skills from similar requests.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before sending to the model.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find recurring work: calls that could become a recipe, requests that need a skill."""
    with open_habitus(context) as habitus:
        models = studying.open_named_model_for_learning(habitus.settings, habitus.pause, model) if model else None
        mining = RepeatedProcedureFinder(habitus)
        if files:
            mining.add_turns_of_transcripts(studying.find_transcripts(files))
        mining.collect_suggestion_drafts()
        if (
            models is not None
            and mining.suggestions_from_requests
            and _confirm_sending_requests(mining, model, yes, as_json)
        ):
            _draft_skills_with_model(mining, models)
        if apply:
            mining.propose_all_suggestions()
        report = mining.make_report()
        if as_json:
            output.print_json(report)
        else:
            _print_mining_report(context, report, applied=apply)


def _confirm_sending_requests(mining: RepeatedProcedureFinder, model: str, yes: bool, as_json: bool) -> bool:
    """Ask whether requests may be sent to the model; refuse if there is no terminal."""
    requests = output.format_quantity(len(mining.suggestions_from_requests), "group")
    told = f"{requests} of requests, about {mining.estimated_tokens_to_send:,} tokens,"
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise Refused(f"{told} would be sent to {model}.", hint="Nothing was sent or saved. Add --yes to send.")
    return typer.confirm(f"{told} would be sent to {model}, without secrets. Send?")


def _draft_skills_with_model(mining: RepeatedProcedureFinder, models: SessionModels) -> None:
    """Let the model draft skills, then close its connection."""

    async def ask() -> None:
        try:
            await mining.draft_skills_with_model(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print_mining_report(context: typer.Context, report: ProcedureMiningReport, *, applied: bool) -> None:
    """Print the suggestions with their evidence, and how to review them."""
    for one in report.suggestions:
        output.print_line(f"{one.kind.value}: {one.name} (skill {one.skill})", style="bold")
        for line in one.evidence:
            output.print_line(f"  {line}", style="dim")
        output.print_line("\n".join(f"    {line}".rstrip() for line in one.text.strip().splitlines()), style="green")
    found = output.format_quantity(len(report.suggestions), "recurring procedure")
    output.print_line(f"Checked {output.format_quantity(report.turns, 'turn')}: {found} found.")
    if report.stopped:
        output.print_line(report.stopped, style="yellow")
    if report.spent:
        output.print_line(f"{report.spent}.", style="dim")
    if report.suggestions:
        waits = f"Pending review: {output.format_command(context, 'review', 'list')}"
        output.print_line(waits if applied else "Nothing was saved; add --apply to propose it.")
