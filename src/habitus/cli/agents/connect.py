"""`habitus connect`, `disconnect` and `sync`: set up other agents.

`connect` adds the Habitus server and hooks to an agent's own config after showing the difference. `sync` copies skills
into its folders, with a lockfile, and imports edits made there as versions.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from habitus.app import Habitus, read_settings
from habitus.app.home import refuse_if_read_only
from habitus.app.library import syncing
from habitus.app.library.syncing import AgentSkillSyncRequest, SyncAction, SyncMethod, SyncPlan
from habitus.app.other_agents import connecting as use_case
from habitus.cli import output
from habitus.cli.completion import JsonOption, YesOption
from habitus.cli.opening import open_habitus
from habitus.errors import Refused
from habitus.hosts.known_agents import CONNECTABLE_AGENTS, SYNCED_AGENTS, AgentHook, ConfigScope, get_agent
from habitus.sandbox.credentials.vault import build_redactor_with_vault_secrets
from habitus.settings import Settings

AgentArgument = Annotated[
    str,
    typer.Argument(help=f"One of: {', '.join(CONNECTABLE_AGENTS)}.", autocompletion=lambda: list(CONNECTABLE_AGENTS)),
]
ScopeOption = Annotated[ConfigScope, typer.Option("--scope", help="Your own settings, or the project's.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]


def connect_agent(
    context: typer.Context,
    agent: AgentArgument,
    scope: ScopeOption = ConfigScope.USER,
    dry_run: DryRunOption = False,
    no_hook: Annotated[
        list[str] | None, typer.Option("--no-hook", help="A hook to leave out, or 'all'; may be repeated.")
    ] = None,
    block: Annotated[bool, typer.Option("--block", help="Also add a marked block to its instruction file.")] = False,
    with_rules: Annotated[
        bool, typer.Option("--with-rules", help="Include your rules in the block, even in a file that others read.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add the Habitus server and hooks to an agent's settings. Shows the difference first."""
    settings = read_settings(context.find_root().obj)
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    hooks = use_case.list_agent_hooks_except_refused(settings, os.environ, agent, scope, no_hook or ())
    if hooks and not as_json:
        output.print_line("Hooks: commands that the agent runs on certain events:")
    wanted = [one.event for one in hooks if _confirm_hook_install(one, is_interactive=asks, is_quiet=as_json)]
    text = _compose_instruction_block(context, scope, with_rules=with_rules) if block else ""
    planned = use_case.plan_connection(
        settings, os.environ, agent, use_case.ConnectionOptions(scope=scope, hooks=wanted, block=text)
    )
    if _show_and_confirm_connection_plan(settings, planned, dry_run=dry_run, yes=yes, as_json=as_json):
        use_case.apply_connection_plan(settings, planned)
        _print_connection_result(context, settings, planned, as_json=as_json)


def disconnect_agent(
    context: typer.Context,
    agent: AgentArgument,
    scope: ScopeOption = ConfigScope.USER,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove Habitus from an agent's settings, and restore them as they were if nothing else changed."""
    settings = read_settings(context.find_root().obj)
    planned = use_case.plan_disconnection(settings, os.environ, agent, scope)
    if _show_and_confirm_connection_plan(settings, planned, dry_run=dry_run, yes=yes, as_json=as_json):
        use_case.apply_connection_plan(settings, planned)
        said = f"{planned.host.title} is disconnected."
        output.print_command_result(
            context, as_json, _build_connection_report(settings, planned), said, undo=planned.undo
        )


def _confirm_hook_install(hook: AgentHook, *, is_interactive: bool, is_quiet: bool) -> bool:
    """Ask whether to install a hook, or print it and return True where there is no one to ask."""
    line = f"  {hook.event}: {hook.description}"
    if is_interactive:
        return typer.confirm(f"{line}. Install it?", default=True)
    if not is_quiet:
        output.print_line(line)
    return True


def _compose_instruction_block(context: typer.Context, scope: ConfigScope, *, with_rules: bool) -> str:
    """Return the text of the instruction block; personal rules go into a shared file only with `--with-rules`."""
    if scope is ConfigScope.PROJECT and not with_rules:
        return use_case.render_instructions(())
    with open_habitus(context) as habitus:
        return use_case.render_instructions(use_case.list_standing_rules(habitus))


def _show_and_confirm_connection_plan(
    settings: Settings, planned: use_case.ConnectionPlan, *, dry_run: bool, yes: bool, as_json: bool
) -> bool:
    """Show the difference and ask for confirmation; return whether to continue."""
    if dry_run and as_json:
        output.print_json(_build_connection_report(settings, planned))
        return False
    if planned.is_unchanged:
        if not as_json:
            output.print_line(f"{planned.host.title} is already up to date.")
        # The files need no change, but the record of the connection may.
        return not dry_run
    if not as_json:
        _print_config_diffs(settings, planned)
        output.print_line(_build_connection_report(settings, planned).summary)
    if dry_run:
        output.print_line("Nothing was changed.")
        return False
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Refused(f"This changes {planned.host.title}'s files.", hint="Add --yes, or preview with --dry-run.")
    if not yes and not typer.confirm("Apply these changes?", default=True):
        raise typer.Abort
    return True


def _print_config_diffs(settings: Settings, planned: use_case.ConnectionPlan) -> None:
    # An agent's config may contain API keys.
    redactor = build_redactor_with_vault_secrets(settings.home, os.environ)
    if planned.experimental_reason:
        output.print_line(f"Experimental: {planned.experimental_reason}.", style="yellow")
    for change in planned.changes:
        if change.has_changes:
            output.print_line(redactor.redact(change.diff).text)
            output.print_line()


def _print_connection_result(
    context: typer.Context, settings: Settings, planned: use_case.ConnectionPlan, *, as_json: bool
) -> None:
    if planned.is_unchanged and not as_json:
        return
    backups = use_case.list_original_config_backups(settings, planned)
    lines = [f"{planned.host.title} is connected. Restart it."]
    lines += [planned.note] if planned.note else []
    lines += [f"Backup: {backup}" for backup in backups]
    output.print_command_result(
        context, as_json, _build_connection_report(settings, planned), *lines, undo=planned.undo
    )


def _build_connection_report(settings: Settings, planned: use_case.ConnectionPlan) -> use_case.ConnectionReport:
    redactor = build_redactor_with_vault_secrets(settings.home, os.environ)
    return use_case.build_connection_report(planned, lambda text: redactor.redact(text).text)


_STYLES = {
    SyncAction.CONFLICT: "red",
    SyncAction.SKIP: "yellow",
    SyncAction.UNCHANGED: "dim",
    SyncAction.UNTRACK: "yellow",
}
_SYNCABLE_AGENTS = ", ".join(SYNCED_AGENTS)


def sync_skills(
    context: typer.Context,
    agents: Annotated[
        list[str], typer.Argument(help=f"Of: {_SYNCABLE_AGENTS}.", autocompletion=lambda: list(SYNCED_AGENTS))
    ],
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this skill; may be repeated.")] = None,
    link: Annotated[bool, typer.Option("--link/--copy", help="Link to your own folders instead of copying.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove what sync put there.")] = False,
    scope: ScopeOption = ConfigScope.USER,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy your own skills into agents' folders and import edits made there. Overwrites nothing."""
    manner = SyncMethod.LINK if link else SyncMethod.COPY
    wishes = [
        AgentSkillSyncRequest(
            agent=get_agent(name, SYNCED_AGENTS).name,
            scope=scope,
            only=tuple(only or ()),
            method=manner,
            is_removal=remove,
        )
        for name in agents
    ]
    with open_habitus(context) as habitus:
        refuse_if_read_only(habitus)
        plans = [syncing.plan_sync_to_agent(habitus, wish, os.environ) for wish in wishes]
        if not as_json:
            for planned in plans:
                _print_sync_plan(planned)
        undo: tuple[str, ...] = ()
        if not dry_run and not all(planned.has_no_changes for planned in plans):
            plans, undo = (
                _confirm_and_apply_sync_plans(habitus, plans, yes=yes, as_json=as_json),
                _build_sync_undo_command(wishes),
            )
            if not as_json:
                _print_conflicts_found_while_applying(plans)
                output.print_command_result(context, as_json, {}, "Done.", undo=undo)
        if as_json:
            output.print_command_result(context, as_json, {"plans": plans}, undo=undo)
    if any(one.action is SyncAction.CONFLICT for planned in plans for one in planned.steps):
        raise typer.Exit(1)


def _confirm_and_apply_sync_plans(
    habitus: Habitus, plans: list[SyncPlan], *, yes: bool, as_json: bool
) -> list[SyncPlan]:
    """Apply the plans after confirmation and return them as carried out."""
    if not yes and (as_json or not sys.stdin.isatty()):
        raise Refused("This changes skills in the agents' folders.", hint="Add --yes, or preview with --dry-run.")
    if not yes and not typer.confirm("Apply these changes?", default=True):
        raise typer.Abort
    return [syncing.apply_sync_plan(habitus, planned, os.environ) for planned in plans]


def _print_sync_plan(planned: SyncPlan) -> None:
    title = get_agent(planned.request.agent).title
    output.print_line(f"{title}, {planned.folder}:", style="bold")
    for one in planned.steps:
        output.print_line(
            f"{one.action.value:<13} {one.name}" + (f": {one.reason}" if one.reason else ""),
            _STYLES.get(one.action, ""),
        )
        if one.diff:
            output.print_line(one.diff)
    if planned.over_limit:
        stay = output.format_quantity(len(planned.over_limit), "skill")
        output.print_line(f"Its menu is full: {stay} can only be found with search_skills.", style="yellow")
    if planned.has_no_changes:
        output.print_line("Nothing to do.")


def _print_conflicts_found_while_applying(plans: list[SyncPlan]) -> None:
    """Print the conflicts that arose while the plans were applied."""
    for planned in plans:
        for one in planned.steps:
            # Conflicts known before were printed with the plan.
            if one.action is SyncAction.CONFLICT and one.reason.startswith(("needs review", "as it is")):
                output.print_line(f"{one.name}: {one.reason}", style="yellow")


def _build_sync_undo_command(wishes: list[AgentSkillSyncRequest]) -> tuple[str, ...]:
    """Return the command that undoes the sync; empty for a removal, which has no undo."""
    if wishes[0].is_removal:
        return ()
    scope = () if wishes[0].scope is ConfigScope.USER else ("--scope", wishes[0].scope.value)
    return ("skills", "sync", *(wish.agent for wish in wishes), *scope, "--remove")
