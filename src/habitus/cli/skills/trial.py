"""`habitus skills trial`: paired runs with a skill and without it, the cost said first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import Habitus, json_of
from habitus.app.growth import rollouts
from habitus.app.growth.rollouts import Rollouts, Trial
from habitus.cli import inputs, output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson, SkillName, Yes
from habitus.learning.budget import Budget, BudgetedModel, Limits


def trial(
    context: typer.Context,
    name: SkillName,
    cases: Annotated[Path | None, typer.Option("--cases", help="Tasks as TOML or JSON; else the skill's own.")] = None,
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, max=1000, help="Pairs of runs for each case.")] = 1,
    model: Annotated[str, typer.Option("--model", "-m", help="provider:model; else that of the settings.")] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Stop at so many tokens (50k), minutes (30m), dollars ($2).")
    ] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Ask the same with a skill and without it, and keep how both went as evidence; asks before it spends."""
    limits = Limits.parse(budget)
    with open_habitus(context, model=model) as habitus:
        read = rollouts.read_cases(inputs.read_text(str(cases)), about=str(cases)) if cases is not None else ()
        ready = rollouts.prepare(habitus, name, read, runs)
        paid = Budget(limits).model(habitus.models.main)
        (output.complain if as_json else output.say)(
            f"{output.count_of(ready.conversations, 'conversation')} with {paid.name}, half of them without "
            f"'{ready.subject.item.name}': about {ready.likely_tokens:,} tokens."
        )
        if not yes and not typer.confirm("Run it?", err=as_json):
            raise typer.Exit(1)
        made = asyncio.run(_run(habitus, ready, paid, is_quiet=as_json))
        _print(habitus, ready, made, as_json)


async def _run(habitus: Habitus, ready: Trial, model: BudgetedModel, *, is_quiet: bool) -> Rollouts:
    try:
        async for made in rollouts.run(habitus, ready, model):
            if not is_quiet:
                output.say(f"{len(made.kept)} of {ready.conversations}: {_arms(made)}", style="dim")
        return made
    finally:
        await habitus.models.close()


def _print(habitus: Habitus, ready: Trial, made: Rollouts, as_json: bool) -> None:
    subject, spent = ready.subject, made.budget.line
    versions = habitus.evidence.of_skill(subject.item)
    known = next((one for one in versions if one.item.version == subject.version), None)
    if as_json:
        found = {"skill": subject.item.name, "version": subject.version, "rollouts": made.kept, "stopped": made.stopped}
        output.print_json(json_of.result({**found, "finding": known, "spent": spent}))
        return
    output.say(f"{_arms(made).capitalize()}.")
    output.say(f"Stopped: {made.stopped}." if made.stopped else f"{spent}.")
    if known is not None:
        output.say(f"All that is known of version {subject.version}: {known.sentence}")


def _arms(made: Rollouts) -> str:
    """How each went, of what could be judged."""
    said = []
    for is_offered, arm in ((True, "with it"), (False, "without it")):
        went = [one for one in made.kept if one.is_new is is_offered]
        judged = [one.is_ok for one in went if one.counts]
        broken = f" ({len(went) - len(judged)} could not be judged)" if len(judged) < len(went) else ""
        said.append(f"{arm} {sum(judged)} of {len(judged)} went well{broken}")
    return ", ".join(said)
