"""`habitus skills trial`: paired runs with a skill and without it, the cost said first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from habitus.app import Habitus, json_of
from habitus.app.growth import trials
from habitus.app.growth.trials import Trial, TrialRun
from habitus.cli import given, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson, SkillName, Yes
from habitus.events import OutcomeKind
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
    with opened(context, model=model) as habitus:
        found = (
            trials.own_tasks(habitus, name)
            if cases is None
            else trials.read_cases(given.read_text(str(cases)), about=str(cases))
        )
        ready = asyncio.run(trials.prepare(habitus, name, found, runs, habitus.models.main))
        (output.complain if as_json else output.say)(_cost(ready))
        if not yes and not typer.confirm("Run it?", err=as_json):
            raise typer.Exit(1)
        paid = Budget(limits).model(habitus.models.main)
        done = asyncio.run(_run(habitus, ready, paid, is_quiet=as_json))
        _print(habitus, ready, done, paid.budget, as_json)


def _cost(ready: Trial) -> str:
    return (
        f"{output.counted(ready.conversations, 'conversation')} with {ready.model}, half of them without "
        f"'{ready.skill.name}': at least {ready.prompt_tokens:,} tokens of prompts, and the answers."
    )


async def _run(habitus: Habitus, ready: Trial, model: BudgetedModel, *, is_quiet: bool) -> list[TrialRun]:
    done = []
    try:
        async for one in trials.run(habitus, ready, model):
            done.append(one)
            if not is_quiet:
                arm = "with it" if one.is_offered else "without it"
                output.say(f"{len(done)} of {ready.conversations}, {arm}: {one.outcome.value}", style="dim")
    finally:
        await habitus.models.close()
    return done


def _print(habitus: Habitus, ready: Trial, done: list[TrialRun], budget: Budget, as_json: bool) -> None:
    versions = habitus.evidence.of_skill(habitus.skills.find(ready.skill.name))
    known = next((one for one in versions if one.item.version == ready.skill.version), None)
    if as_json:
        found = {"trial": ready, "runs": done, "finding": known, "spent": budget.line}
        output.print_json(json_of.result(found))
        return
    for is_offered, said in ((True, "with it"), (False, "without it")):
        arm = [one.outcome for one in done if one.is_offered is is_offered]
        broken = arm.count(OutcomeKind.INFRA)
        note = f" ({broken} could not be judged)" if broken else ""
        output.say(f"{said}: {arm.count(OutcomeKind.OK)} of {len(arm) - broken} went well{note}")
    stopped = "Stopped by its budget: " if budget.is_reached else ""
    output.say(f"{stopped}{budget.line}.")
    if known is not None:
        output.say(f"All that is known of version {ready.skill.version}: {known.sentence}")
