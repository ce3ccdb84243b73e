"""`habitus skills climb` and `habitus lessons promote`: one step up by hand, proposed like any other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.growth.climbing import Climb, Climbing, drafting
from habitus.cli import completion, output
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson, SkillName
from habitus.skills.model import Stage

Drafter = Annotated[str, typer.Option("--model", help="Let provider:model draft it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would be made of.")]


class Target(StrEnum):
    RECIPE = "recipe"
    CODE = "code"

    @property
    def stage(self) -> Stage:
        return Stage.CHUNKS if self is Target.RECIPE else Stage.CODE


def skill(
    context: typer.Context,
    name: SkillName,
    to: Annotated[
        Target | None, typer.Option("--to", help="Which stage; else the next there is something for.")
    ] = None,
    model: Drafter = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take a skill to its next stage: a recipe from what was done with it, or code that passes its trial."""
    with open_habitus(context) as habitus:
        climbing = Climbing(habitus)
        found = climbing.skill(name, to.stage if to else None)
        _climb(context, habitus, climbing, found, model, is_dry=dry_run, as_json=as_json)


def lesson(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="A lesson.", autocompletion=completion.lesson_ids)],
    model: Drafter = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a lesson a skill: drafted by a model, or without one from the facts."""
    with open_habitus(context) as habitus:
        climbing = Climbing(habitus)
        _climb(context, habitus, climbing, climbing.lesson(id), model, is_dry=dry_run, as_json=as_json)


def _climb(
    context: typer.Context,
    habitus: Habitus,
    climbing: Climbing,
    found: Climb,
    model: str,
    *,
    is_dry: bool,
    as_json: bool,
) -> None:
    done = found if is_dry else asyncio.run(_carried_out(habitus, climbing, found, model))
    if as_json:
        output.print_json(done)
    else:
        output.say(f"{done.skill or done.item} to {done.to.value}. {done.why}")
        output.say("\n".join(f"    {line}".rstrip() for line in done.text.strip().splitlines()), style="green")
        if is_dry:
            output.say("Nothing was drafted, tried or proposed.")
        elif done.problem:
            output.say(f"Not proposed: {done.problem}", style="yellow")
        else:
            output.say(f"It waits for you: {output.command(context, 'review', 'show', str(done.proposal))}")
        if done.spent:
            output.say(f"{done.spent}.", style="dim")
    if done.problem:
        raise typer.Exit(1)


async def _carried_out(habitus: Habitus, climbing: Climbing, found: Climb, model: str) -> Climb:
    async with drafting(habitus, model) as drafter:
        done = await climbing.carry_out(found, drafter)
    return replace(done, spent=drafter.budget.line) if drafter is not None else done
