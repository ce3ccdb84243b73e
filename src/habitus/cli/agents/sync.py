"""`habitus sync`: chosen skills in other agents' folders, with a lockfile, and edits made there back as versions."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.library import syncing as use_case
from habitus.app.library.syncing import Manner, Step, SyncPlan, Wish
from habitus.cli import output
from habitus.cli.agents.connect import DryRun, Where
from habitus.cli.opening import open_habitus
from habitus.cli.options import AsJson, Yes
from habitus.errors import Refused
from habitus.hosts.table import SYNCED, Scope, host

_STYLES = {Step.CONFLICT: "red", Step.LEAVE_OUT: "yellow", Step.SAME: "dim", Step.FORGET: "yellow"}
_ALL = ", ".join(SYNCED)


def sync(
    context: typer.Context,
    agents: Annotated[list[str], typer.Argument(help=f"Of: {_ALL}.", autocompletion=lambda: list(SYNCED))],
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this skill; may be repeated.")] = None,
    link: Annotated[bool, typer.Option("--link/--copy", help="Links to your own folders, or copies.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take out what was put there.")] = False,
    scope: Where = Scope.USER,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put your own skills into agents' folders, and take edits made there back. Nothing is overwritten."""
    manner = Manner.LINK if link else Manner.COPY
    wishes = [
        Wish(agent=host(name, SYNCED).name, scope=scope, only=tuple(only or ()), manner=manner, removes=remove)
        for name in agents
    ]
    with open_habitus(context) as habitus:
        habitus.refuse_if_read_only()
        plans = [use_case.plan(habitus, wish, os.environ) for wish in wishes]
        if not as_json:
            for planned in plans:
                _print_plan(planned)
        if not dry_run and not all(planned.is_done for planned in plans):
            plans = _carried_out(habitus, plans, yes=yes, as_json=as_json)
            _say_done(context, wishes, plans, as_json=as_json)
        if as_json:
            output.print_json({"plans": plans})
    if any(one.step is Step.CONFLICT for planned in plans for one in planned.steps):
        raise typer.Exit(1)


def _carried_out(habitus: Habitus, plans: list[SyncPlan], *, yes: bool, as_json: bool) -> list[SyncPlan]:
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Refused("Skills would be changed there.", mend="Say --yes, or look with --dry-run.")
    if not yes and not typer.confirm("Do that?", default=True):
        raise typer.Abort
    return [use_case.carry_out(habitus, planned, os.environ) for planned in plans]


def _print_plan(planned: SyncPlan) -> None:
    title = host(planned.wish.agent).title
    output.say(f"{title}, {planned.folder}:", style="bold")
    for one in planned.steps:
        output.say(
            f"{one.step.value:<13} {one.name}" + (f": {one.reason}" if one.reason else ""), _STYLES.get(one.step, "")
        )
        if one.diff:
            output.say(one.diff)
    if planned.behind:
        stay = output.count_of(len(planned.behind), "skill")
        output.say(f"Its list has no room for more: {stay} stay behind search_skills.", style="yellow")
    if planned.is_done:
        output.say("There is nothing to do.")


def _say_done(context: typer.Context, wishes: list[Wish], plans: list[SyncPlan], *, as_json: bool) -> None:
    if as_json:
        return
    for planned in plans:
        for one in planned.steps:
            if one.step is Step.CONFLICT and one.reason.startswith(("it waits", "as it is")):
                output.say(f"{one.name}: {one.reason}", style="yellow")
    output.say("Done.")
    if not wishes[0].removes:
        scope = () if wishes[0].scope is Scope.USER else ("--scope", wishes[0].scope.value)
        output.say_undo(context, "sync", *(wish.agent for wish in wishes), *scope, "--remove")
