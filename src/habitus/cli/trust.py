"""`habitus trust`: let a project's skills, or an imported one, act as they are now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.errors import NotFound

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.files import Tree
    from habitus.skills.trust import Trust


def trust(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(help="A project directory (this one by default), or a skill: imported, or with code."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust it no longer.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Trust what skills from outside say and can do now. Later changes follow only when they are harmless."""
    with opened(context) as habitus:
        if show_list:
            _print_list(habitus, as_json)
            return
        found = _skills_at(habitus, target)
        if revoke:
            _revoke(habitus, found, as_json)
            return
        count = sum(len(skills) for skills in found.values())
        if not as_json:
            _print_powers(habitus, found)
        if not yes:
            _ask(count, as_json)
        for root, skills in found.items():
            _kept(habitus, root).trust(root, skills, habitus.settings.user)
        if as_json:
            output.print_json({"trusted": {root: sorted(skills) for root, skills in found.items()}})
        else:
            output.say(f"Trusted {output.counted(count, 'skill')}.")
            output.undo(context, "trust", "--revoke", *([target] if target else []))


def _kept(habitus: Habitus, root: str) -> Trust:
    """Where trust in a root is kept: approved code with the skills it belongs to, all else with this machine."""
    from habitus.skills.trust import APPROVED

    return habitus.approvals if root == APPROVED else habitus.trust


def _ask(count: int, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter("There is nobody to ask; say --yes once you have read them.")
    if not typer.confirm(f"Trust {output.counted(count, 'skill')} as they are?"):
        raise typer.Abort


def _skills_at(habitus: Habitus, target: str | None) -> dict[str, dict[str, Tree]]:
    """Root → its skills: of the project at a path, or one imported skill by name."""
    from habitus.skills.model import Stage
    from habitus.skills.trust import APPROVED, IMPORTED

    library = habitus.skills
    if target is not None and "/" not in target and not Path(target).is_dir():
        item = library.find(target)
        tree = library.tree(f"{item.name}@{item.layer}")
        if item.summary is not None and item.summary.source == "imported":
            return {IMPORTED: {item.name: tree}}
        if item.summary is not None and Stage.CODE in item.summary.stages:
            return {APPROVED: {item.name: tree}}
        raise NotFound(f"'{item.name}' was not imported, so it needs no trust.", mend="Give a project directory.")
    with habitus.at(Path(target).resolve() if target else habitus.settings.cwd) as there:
        roots = {
            layer.trust_root: {s.name: layer.store.tree(s.name) or {} for s in layer.store.list_summaries()}
            for layer in there.skills.layers
            if layer.trust_root
        }
    if not roots:
        where = target or "this directory"
        raise NotFound(
            f"There are no skill folders in the project at {where}.", mend="Looked for .habitus, .claude and .agents."
        )
    return roots


def _print_powers(habitus: Habitus, found: dict[str, dict[str, Tree]]) -> None:
    """Everything a person should know before they say yes."""
    from habitus.app import high_findings
    from habitus.skills.powers import powers

    for root, skills in found.items():
        output.say(root, style="bold")
        for name, tree in sorted(skills.items()):
            output.say(f"  {name}")
            for power in sorted(map(str, powers(name, tree))):
                output.say(f"    {power}", style="yellow")
            for finding in high_findings(tree):
                output.say(f"    {finding}", style="red")


def _print_list(habitus: Habitus, as_json: bool) -> None:
    shared = habitus.approvals.list() if habitus.settings.database_url else []
    found = [*habitus.trust.list(), *shared]
    if as_json:
        output.print_json({"trusted": found})
    elif not found:
        output.say("Nothing is trusted yet.")
    else:
        rows = [(t.root, len(t.names), moments.shown(t.trusted_on), t.trusted_by) for t in found]
        output.table(("root", "skills", "since", "by"), rows, wide="root")


def _revoke(habitus: Habitus, found: dict[str, dict[str, Tree]], as_json: bool) -> None:
    from habitus.skills.trust import APPROVED, IMPORTED

    revoked = []
    for root, skills in found.items():
        if root in (IMPORTED, APPROVED):
            revoked += [name for name in skills if _kept(habitus, root).revoke(root, name)]
        elif habitus.trust.revoke(root):
            revoked.append(root)
    if as_json:
        output.print_json({"revoked": revoked})
    else:
        output.say(f"No longer trusted: {', '.join(revoked)}." if revoked else "It was not trusted.")
