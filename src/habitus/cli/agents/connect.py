"""`habitus connect`, `disconnect` and `sync`: set up other agents.

`connect` adds the Habitus server and hooks to an agent's own config after showing the difference. `sync` copies skills
into its folders, with a lockfile, and imports edits made there as versions.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from typing import Annotated

import typer

from habitus.app import Habitus, read_settings
from habitus.app.library import syncing
from habitus.app.library.syncing import Manner, Step, SyncPlan, Wish
from habitus.app.other_agents import connecting as use_case
from habitus.app.other_agents.connecting import AgentFiles, Plan, Wishes
from habitus.cli import output
from habitus.cli.completion import AsJson, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import Refused
from habitus.hosts.known_agents import CONNECTED, SYNCED, Hook, Scope, host
from habitus.mcp.greeting import Greeting, answers_file
from habitus.mcp.scope import Scope as Served
from habitus.sandbox.credentials.vault import open_redactor
from habitus.settings import Settings

log = logging.getLogger(__name__)
Agent = Annotated[str, typer.Argument(help=f"One of: {', '.join(CONNECTED)}.", autocompletion=lambda: list(CONNECTED))]
Where = Annotated[Scope, typer.Option("--scope", help="In your own config, or in the project's.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be changed.")]


def connect(
    context: typer.Context,
    agent: Agent,
    scope: Where = Scope.USER,
    dry_run: DryRun = False,
    no_hook: Annotated[
        list[str] | None, typer.Option("--no-hook", help="A hook you don't want, or 'all'; may be repeated.")
    ] = None,
    block: Annotated[
        bool, typer.Option("--block", help="Also a marked block in the file with its instructions.")
    ] = False,
    with_rules: Annotated[
        bool, typer.Option("--with-rules", help="Your rules in the block, also in a file that others read.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Add the Habitus server and hooks to an agent's settings. Shows the difference first."""
    settings = read_settings(context.find_root().obj)
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    hooks = use_case.offered_hooks(settings, os.environ, agent, scope, no_hook or ())
    if hooks and not as_json:
        output.say("Hooks, commands that it runs for us at certain moments:")
    wanted = [one.event for one in hooks if _is_wanted(one, asks=asks, is_quiet=as_json)]
    text = _block_text(context, scope, with_rules=with_rules) if block else ""
    planned = use_case.plan(settings, os.environ, agent, Wishes(scope=scope, hooks=wanted, block=text))
    if _confirm(settings, planned, dry_run=dry_run, yes=yes, as_json=as_json):
        use_case.carry_out(settings, planned)
        _rehearse(settings)
        _say_connected(context, settings, planned, as_json=as_json)


def disconnect(
    context: typer.Context,
    agent: Agent,
    scope: Where = Scope.USER,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove Habitus from an agent's settings, and restore them as they were if nothing else changed."""
    settings = read_settings(context.find_root().obj)
    planned = use_case.plan_disconnect(settings, os.environ, agent, scope)
    if _confirm(settings, planned, dry_run=dry_run, yes=yes, as_json=as_json):
        use_case.carry_out(settings, planned)
        said = f"{planned.host.title} is disconnected."
        output.say_done(context, as_json, _describe(settings, planned), said, undo=planned.undo)


def _rehearse(settings: Settings) -> None:
    """Record the server's first answers, which makes its tools available at once even on the first start."""
    file = answers_file(use_case.server_words(settings), os.environ)
    if Greeting(file).is_known:
        return
    # Imports the MCP SDK, which takes most of a second.
    server = importlib.import_module("habitus.mcp.server")
    try:
        asyncio.run(server.rehearse(Served(home=settings.home), file))
    # The agent is connected either way; only its first start is slower.
    except Exception:
        log.warning("The server's first answers are not known yet; the first client waits for them.", exc_info=True)


def _is_wanted(hook: Hook, *, asks: bool, is_quiet: bool) -> bool:
    """Ask whether to install a hook, or print it and return True where there is no one to ask."""
    line = f"  {hook.event}: {hook.does}"
    if asks:
        return typer.confirm(f"{line}. Install it?", default=True)
    if not is_quiet:
        output.say(line)
    return True


def _block_text(context: typer.Context, scope: Scope, *, with_rules: bool) -> str:
    """Return the text of the instruction block; personal rules go into a shared file only with `--with-rules`."""
    if scope is Scope.PROJECT and not with_rules:
        return use_case.block_text(())
    with open_habitus(context) as habitus:
        return use_case.block_text(use_case.rules_for_block(habitus))


def _confirm(settings: Settings, planned: Plan, *, dry_run: bool, yes: bool, as_json: bool) -> bool:
    """Show the difference and ask for confirmation; return whether to continue."""
    if dry_run and as_json:
        output.print_json(_describe(settings, planned))
        return False
    if planned.is_done:
        if not as_json:
            output.say(f"{planned.host.title} needs no change.")
        # The files need no change, but the record of the connection may.
        return not dry_run
    if not as_json:
        _print_diffs(settings, planned)
    if dry_run:
        output.say("Nothing was changed.")
        return False
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Refused(f"{planned.host.title}'s files would be changed.", hint="Add --yes, or look with --dry-run.")
    if not yes and not typer.confirm("Do that?", default=True):
        raise typer.Abort
    return True


def _print_diffs(settings: Settings, planned: Plan) -> None:
    # An agent's config may contain API keys.
    redactor = open_redactor(settings.home, os.environ)
    if planned.doubt:
        output.say(f"Experimental: {planned.doubt}.", style="yellow")
    for change in planned.changes:
        if change.is_one:
            output.say(redactor.redact(change.diff).text)
            output.say()


def _say_connected(context: typer.Context, settings: Settings, planned: Plan, *, as_json: bool) -> None:
    if planned.is_done and not as_json:
        return
    backups = use_case.backups(settings, planned)
    lines = [f"{planned.host.title} is connected. It has to be started anew."]
    lines += [planned.note] if planned.note else []
    lines += [f"As it was: {backup}" for backup in backups]
    output.say_done(context, as_json, _describe(settings, planned), *lines, undo=planned.undo)


def _describe(settings: Settings, planned: Plan) -> AgentFiles:
    redactor = open_redactor(settings.home, os.environ)
    return use_case.describe_plan(planned, lambda text: redactor.redact(text).text)


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
    """Copy your own skills into agents' folders and import edits made there. Overwrites nothing."""
    manner = Manner.LINK if link else Manner.COPY
    wishes = [
        Wish(agent=host(name, SYNCED).name, scope=scope, only=tuple(only or ()), manner=manner, removes=remove)
        for name in agents
    ]
    with open_habitus(context) as habitus:
        habitus.refuse_if_read_only()
        plans = [syncing.plan(habitus, wish, os.environ) for wish in wishes]
        if not as_json:
            for planned in plans:
                _print_plan(planned)
        undo: tuple[str, ...] = ()
        if not dry_run and not all(planned.is_done for planned in plans):
            plans, undo = _carried_out(habitus, plans, yes=yes, as_json=as_json), _undo_of(wishes)
            if not as_json:
                _say_conflicts(plans)
                output.say_done(context, as_json, {}, "Done.", undo=undo)
        if as_json:
            output.say_done(context, as_json, {"plans": plans}, undo=undo)
    if any(one.step is Step.CONFLICT for planned in plans for one in planned.steps):
        raise typer.Exit(1)


def _carried_out(habitus: Habitus, plans: list[SyncPlan], *, yes: bool, as_json: bool) -> list[SyncPlan]:
    """Apply the plans after confirmation and return them as carried out."""
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Refused("Skills would be changed there.", hint="Add --yes, or look with --dry-run.")
    if not yes and not typer.confirm("Do that?", default=True):
        raise typer.Abort
    return [syncing.carry_out(habitus, planned, os.environ) for planned in plans]


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


def _say_conflicts(plans: list[SyncPlan]) -> None:
    """Print the conflicts that arose while the plans were applied."""
    for planned in plans:
        for one in planned.steps:
            # Conflicts known before were printed with the plan.
            if one.step is Step.CONFLICT and one.reason.startswith(("it waits", "as it is")):
                output.say(f"{one.name}: {one.reason}", style="yellow")


def _undo_of(wishes: list[Wish]) -> tuple[str, ...]:
    """Return the command that undoes the sync; empty for a removal, which has no undo."""
    if wishes[0].removes:
        return ()
    scope = () if wishes[0].scope is Scope.USER else ("--scope", wishes[0].scope.value)
    return ("sync", *(wish.agent for wish in wishes), *scope, "--remove")
