"""`habitus recipes …`: look at the recipes of skills, run one, check them, and mine new ones."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from habitus.app import json_shapes
from habitus.app.learning import studying
from habitus.app.learning.mining import Mining, MiningReport
from habitus.app.library import recipes
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid, Refused
from habitus.llm.model import Models
from habitus.recipes.catalogue import SkillRecipe

Name = Annotated[str, typer.Argument(help="A recipe.")]


def list_recipes(context: typer.Context, wide: Wide = False, as_json: AsJson = False) -> None:
    """Every recipe with its skill, its status and how it fared."""
    with open_habitus(context) as habitus:
        found = habitus.recipes.all()
        rows = [(r.name, r.skill, r.status.value, _describe_uses(r), r.reason or r.plan.description) for r in found]
        empty = "There are no recipes. A skill has them in its chunks.md: docs/concepts/recipes.md says how."
        columns = ("name", "skill", "status", "went well", "what it does")
        data = {"recipes": [json_shapes.recipe(one) for one in found]}
        output.say_list(as_json, data, columns, rows, wide="what it does", is_cut=not wide, empty=empty)


def _describe_uses(recipe: SkillRecipe) -> str:
    counts = recipe.counts
    return f"{counts.succeeded} of {counts.used}" if counts.used else "not used yet"


def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """One recipe: what it takes, its steps, and how it fared."""
    with open_habitus(context) as habitus:
        recipe = habitus.recipes.get(name)
        if as_json:
            output.print_json(json_shapes.recipe(recipe))
            return
        output.say(f"{recipe.name}  (skill {recipe.skill}@{recipe.layer}, version {recipe.version})")
        if recipe.plan.description:
            output.say(recipe.plan.description)
        output.say(f"{recipe.status.value}{f': {recipe.reason}' if recipe.reason else ''}")
        output.say(f"Takes: {json.dumps(recipe.plan.schema['properties'], ensure_ascii=False)}")
        for number, step in enumerate(recipe.plan.steps, 1):
            what = step.tool or f"branch {step.branch}"
            arguments = json.dumps(step.params, ensure_ascii=False, default=str) if step.params else ""
            output.say(f"  {number}. {what} {arguments}".rstrip())
        last = f", last {inputs.show_moment(recipe.counts.last_used)}" if recipe.counts.last_used else ""
        output.say(f"Used: {_describe_uses(recipe)}{last}")


def run(
    context: typer.Context,
    name: Name,
    params: Annotated[str, typer.Argument(help="Its parameters as JSON, a file with it, or '-'.")] = "{}",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the calls it would make.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a recipe through the tools of a session. Exit code 1 when it fails."""
    with open_habitus(context) as habitus:
        habitus.recipes.get(name)  # a wrong name is said before wrong parameters
        values = inputs.read_json(params, "parameters")
        if not isinstance(values, dict):
            raise Invalid("The parameters are no JSON object.", mend='Write {"name": value, …}.')
        if dry_run:
            steps = recipes.plan_run(habitus.recipes, name, values)
            rows = [(s.number, s.tool, json.dumps(s.arguments, ensure_ascii=False, default=str)) for s in steps]
            output.say_list(as_json, {"steps": steps}, ("step", "tool", "arguments"), rows, wide="arguments", empty="")
            return
        done = recipes.run(habitus.recipes, habitus.turn, name, values)
        if as_json:
            output.print_json(done)
        else:
            output.say(done.content)
        if not done.outcome.is_ok:
            raise typer.Exit(1)


def check(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Recipes; all without.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check recipes without running them: their text, line by line, and whether their tools are there.

    Exit code 1 when one can't run.
    """
    with open_habitus(context) as habitus:
        found = recipes.check_recipes(habitus.recipes, tuple(names or ()))
        bad = [recipe for recipe in found if recipe.problems]
        if as_json:
            output.print_json({"recipes": found})
        else:
            for recipe in bad:
                for problem in recipe.problems:
                    output.say(f"{recipe.skill}/chunks.md: {recipe.name}: {problem}", style="yellow")
            output.say(f"{len(found) - len(bad)} of {output.count_of(len(found), 'recipe')} can run.")
        if bad:
            raise typer.Exit(1)


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
    """Find what you had done again and again: calls that make a recipe, requests that want a skill."""
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
    requests = output.count_of(len(mining.requests_to_draft), "group")
    told = f"{requests} of requests, about {mining.tokens_to_send:,} tokens,"
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        raise Refused(f"{told} would go to {model}.", mend="Nothing was sent or kept. Add --yes to send.")
    return typer.confirm(f"{told} would go to {model}, without the secrets. Send them?")


def _draft(mining: Mining, models: Models) -> None:
    async def ask() -> None:
        try:
            await mining.draft(models.main)
        finally:
            await models.close()

    asyncio.run(ask())


def _print(context: typer.Context, report: MiningReport, *, applied: bool) -> None:
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
