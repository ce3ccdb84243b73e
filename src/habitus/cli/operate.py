"""`habitus rollback | pause | resume | doctor`: going back in time, stopping, and finding out what works."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import sqlite3
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.errors import UserError

if TYPE_CHECKING:
    from habitus.app import Habitus

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def rollback(
    context: typer.Context,
    to: Annotated[str, typer.Option("--to", help="A moment: 2026-05-01, '2026-05-01 14:30', 14:30, 2h, '3 days ago'.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Return your skills, in every layer you can write, to a moment: as new versions, so nothing in between is lost."""
    from habitus.skills.layers import USER

    with opened(context) as habitus:
        now = habitus.clock()
        moment = moments.parse(to, now)
        if moment > now:
            raise typer.BadParameter(f"{to} lies in the future.", param_hint="--to")
        author = habitus.person(f"back to {moments.shown(moment)}")
        steps = habitus.skills.return_to(moment, author, dry_run=True)
        is_asked = not (dry_run or yes or as_json) and bool(steps) and sys.stdin.isatty()
        if not as_json:
            for layer, step in steps:
                name = step.name if layer == USER else f"{step.name}@{layer}"
                output.say(f"{step.action:<8} {name}" + (f" (version {step.version})" if step.version else ""))
        if is_asked and not typer.confirm(f"Return {len(steps)} skills to {moments.shown(moment)}?"):
            raise typer.Abort
        if not dry_run:
            habitus.skills.return_to(moment, author)
        if as_json:
            told = [{"layer": layer, **dataclasses.asdict(step)} for layer, step in steps]
            output.print_json({"to": moment, "dry_run": dry_run, "steps": told})
        elif not steps:
            output.say(f"Nothing has changed since {moments.shown(moment)}.")
        elif not dry_run:
            output.say(f"{len(steps)} skills are as they were at {moments.shown(moment)}.")
            output.undo(context, "rollback", "--to", now.astimezone().isoformat(timespec="microseconds"))


def pause(context: typer.Context, as_json: AsJson = False) -> None:
    """Stop learning and automatic change at once, in every process on this home."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        state = habitus.pause.pause(habitus.settings.user)
        if as_json:
            output.print_json({"paused": True, "since": state.since, "by": state.by})
            return
        output.say(f"Paused since {moments.shown(state.since)}. What people change themselves still works.")
        output.undo(context, "resume")


def resume(context: typer.Context, as_json: AsJson = False) -> None:
    """Let learning and automatic change go on."""
    with opened(context) as habitus:
        habitus.refuse_if_read_only()
        was_paused = habitus.pause.resume()
        if as_json:
            output.print_json({"paused": False, "was_paused": was_paused})
        else:
            output.say("Learning goes on." if was_paused else "Nothing was paused.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of the doctor's report: `ok`, `paused`, `missing` (optional) or `broken` (in use)."""

    name: str
    state: str
    detail: str
    mend: str = ""


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """What works, what is missing, and the exact mend. Exit code 1 when something in use is broken."""
    try:
        with opened(context) as habitus:
            checks = [_python(), *_home(habitus), *_skills(habitus), _search(habitus), _git()]
    except UserError as error:
        checks = [_python(), Check(name="home", state="broken", detail=error.message, mend=error.mend)]
    if as_json:
        output.print_json({"checks": checks})
    else:
        output.table(
            ("check", "state", "detail"),
            [(c.name, c.state, f"{c.detail} {c.mend}".strip()) for c in checks],
            wide="detail",
        )
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def _python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, SQLite {sqlite3.sqlite_version}"
    return Check(name="python", state="ok", detail=detail)


def _home(habitus: Habitus) -> list[Check]:
    home = habitus.settings.home
    free = shutil.disk_usage(home).free
    space = f"{free / 1e9:.1f} GB free"
    checks = [
        Check(name="home", state="missing", detail=f"{home} is read-only.", mend="Make it writable to change skills.")
        if habitus.is_read_only
        else Check(name="home", state="ok", detail=f"{home}, {space}"),
        Check(name="database", state="ok", detail=habitus.database),
    ]
    if free < 50e6:
        checks.append(Check(name="disk", state="broken", detail=space, mend="Free some space."))
    checks += [
        Check(name="settings", state="missing", detail=warning, mend=f"Correct {home}/habitus.toml.")
        for warning in habitus.settings.warnings
    ]
    paused = habitus.pause.state()
    if paused is not None:
        detail = f"paused since {moments.shown(paused.since)} by {paused.by}"
        checks.append(Check(name="learning", state="paused", detail=detail, mend="Run 'habitus resume'."))
    return checks


def _skills(habitus: Habitus) -> list[Check]:
    checks = []
    for layer in habitus.skills.layers:
        loadable, broken = len(layer.store.list_summaries()), len(layer.store.list_broken())
        if not loadable and not broken and layer.name != "user":
            continue
        checks.append(
            Check(
                name=f"layer {layer.name}",
                state="broken" if broken else "ok",
                detail=f"{loadable} {'skill' if loadable == 1 else 'skills'}"
                + (f", {broken} broken." if broken else ""),
                mend="Run 'habitus skills list --state broken'." if broken else "",
            )
        )
    return checks


def _search(habitus: Habitus) -> Check:
    return Check(name="search", state="ok", detail=habitus.finder.describe())


def _git() -> Check:
    if shutil.which("git"):
        return Check(name="git", state="ok", detail="found")
    return Check(name="git", state="missing", detail="not found.", mend="Install git to add skills from repositories.")
