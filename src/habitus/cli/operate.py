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
from habitus.errors import HabitusError, UserError

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
    """Return your lessons, and your skills in every layer you can write, to a moment; nothing is lost by it."""
    from habitus.skills.layers import USER

    with opened(context) as habitus:
        now = habitus.clock()
        moment = moments.parse(to, now)
        if moment > now:
            raise typer.BadParameter(f"{to} lies in the future.", param_hint="--to")
        author = habitus.person(f"back to {moments.shown(moment)}")
        steps = habitus.skills.return_to(moment, author, dry_run=True)
        lessons = habitus.memory.return_to(moment, by=author.name, dry_run=True)
        what = _counted(len(steps), len(lessons))
        is_asked = not (dry_run or yes or as_json) and bool(what) and sys.stdin.isatty()
        if not as_json:
            for layer, step in steps:
                name = step.name if layer == USER else f"{step.name}@{layer}"
                output.say(f"{step.action:<8} {name}" + (f" (version {step.version})" if step.version else ""))
            for lesson in lessons:
                output.say(f"{lesson.action:<8} lesson {lesson.id}: {lesson.text}")
        if is_asked and not typer.confirm(f"Return {what} to {moments.shown(moment)}?"):
            raise typer.Abort
        if not dry_run:
            habitus.skills.return_to(moment, author)
            habitus.memory.return_to(moment, by=author.name)
        if as_json:
            told = [{"layer": layer, **dataclasses.asdict(step)} for layer, step in steps]
            output.print_json({"to": moment, "dry_run": dry_run, "steps": told, "lessons": lessons})
        elif not what:
            output.say(f"Nothing has changed since {moments.shown(moment)}.")
        elif not dry_run:
            are = "is as it was" if len(steps) + len(lessons) == 1 else "are as they were"
            output.say(f"{what} {are} at {moments.shown(moment)}.")
            output.undo(context, "rollback", "--to", now.astimezone().isoformat(timespec="microseconds"))


def _counted(skills: int, lessons: int) -> str:
    counts = [output.counted(number, thing) for number, thing in ((skills, "skill"), (lessons, "lesson")) if number]
    return " and ".join(counts)


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
            checks = [
                _python(),
                *_home(habitus),
                *_skills(habitus),
                _search(habitus),
                _model(habitus),
                _memory(habitus),
                _spending(habitus),
                _git(),
                *_sandbox(habitus),
                _runtime(habitus),
            ]
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
        if not layer.is_listed:
            continue
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


def _model(habitus: Habitus) -> Check:
    """Which model would answer. Nothing is asked of it: that costs money, and this is a look."""
    try:
        return Check(name="model", state="ok", detail=habitus.models.main.name)
    except UserError as error:
        return Check(name="model", state="missing", detail=error.message, mend=error.mend)


def _memory(habitus: Habitus) -> Check:
    lessons, waiting = len(habitus.memory.list_lessons("all", limit=100_000)), len(habitus.memory.waiting())
    wait = f", {waiting} waiting for you" if waiting else ""
    return Check(name="memory", state="ok", detail=f"{habitus.settings.memory.value}, {lessons} kept{wait}")


def _spending(habitus: Habitus) -> Check:
    settings, spent = habitus.settings, habitus.spending.today()
    if settings.memory == "off" or settings.acc_mode == "off":
        return Check(name="learning tokens", state="ok", detail="learning from errors is off")
    if spent.tokens >= spent.cap:
        mend = "It goes on tomorrow (UTC); HABITUS_LEARNING_TOKENS sets the cap."
        return Check(name="learning tokens", state="paused", detail=f"{spent.line}.", mend=mend)
    return Check(name="learning tokens", state="ok", detail=spent.line)


def _git() -> Check:
    if shutil.which("git"):
        return Check(name="git", state="ok", detail="found")
    return Check(name="git", state="missing", detail="not found.", mend="Install git to add skills from repositories.")


def _sandbox(habitus: Habitus) -> list[Check]:
    """Each protection, on or missing. A required one is in use, and so broken, where there are tools to run."""
    from habitus.sandbox.protections import describe

    is_needed = bool(habitus.tools.all()) and not habitus.settings.allow_weaker_sandbox
    checks = []
    for protection in describe(habitus.machine):
        name = f"sandbox: {protection.name}"
        if protection.is_on:
            checks.append(Check(name=name, state="ok", detail=protection.why))
            continue
        state = "broken" if protection.required and is_needed else "missing"
        detail = "off; needed to run code." if protection.required else "off."
        checks.append(Check(name=name, state=state, detail=detail, mend=protection.mend))
    return checks


def _runtime(habitus: Habitus) -> Check:
    """Where scratchpads run, and whether that machine answers."""
    import asyncio  # slow to import, and no other check needs it

    where = habitus.settings.sandbox.runtime
    if where == "local":
        return Check(name="sandbox: runtime", state="ok", detail="scratchpads run on this machine")
    try:
        asyncio.run(habitus.scratchpads().names())
    except HabitusError as error:
        mend = "Correct sandbox.runtime in habitus.toml, or the keys and hosts of ssh."
        return Check(name="sandbox: runtime", state="broken", detail=str(error), mend=mend)
    return Check(name="sandbox: runtime", state="ok", detail=f"scratchpads run on {where}, which answers")
