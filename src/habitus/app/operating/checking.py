"""Health checks of an installation (`habitus doctor`) and the linter of skills (`habitus skills lint`)."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.agent.prompts.prompt import EAGER_SHARE
from habitus.app.home import Home
from habitus.app.home_directory import why_read_only
from habitus.app.library import recipes
from habitus.app.library.explaining import select
from habitus.app.operating import configuring
from habitus.app.operating.damage import find_damage
from habitus.app.operating.doctor import Check, CheckState, operation
from habitus.errors import HabitusError, Invalid, UserError
from habitus.files import Tree
from habitus.learning.budget import Spending
from habitus.llm.agents import programs_here
from habitus.memory.memory import Cortex
from habitus.sandbox.machine import describe
from habitus.screening.findings import Policy
from habitus.settings import AccMode, MemoryMode, Settings, account_name
from habitus.skills import names, trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import Request
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.lint import NEAR, Room, SetFinding, check, check_one
from habitus.skills.model import Diagnostic, Severity
from habitus.skills.stores.files import DirectoryShelf
from habitus.text import tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Linted:
    """The diagnostics of one skill."""

    name: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LintReport:
    """The diagnostics of each skill, and the findings about all of them as a set."""

    skills: tuple[Linted, ...]
    set: tuple[SetFinding, ...] = ()

    @property
    def broken(self) -> int:
        """The number of errors that keep a skill from loading."""
        return sum(found.severity is Severity.ERROR for skill in self.skills for found in skill.diagnostics)

    @property
    def is_failed(self) -> bool:
        """Whether a skill can't be loaded."""
        return bool(self.broken)

    @property
    def odd(self) -> int:
        """The number of skills with any diagnostic."""
        return sum(bool(skill.diagnostics) for skill in self.skills)


def doctor(home: Home) -> tuple[Check, ...]:
    """Run all checks and return each with its state and, where something is wrong, the exact fix."""
    return (
        _python(),
        *_home(home),
        _user(home.settings),
        *_skills(home.skills),
        _search(home),
        _model(home),
        _agents(),
        _memory(home.settings, home.memory),
        _spending(home.settings, home.spending),
        _withholding(home.settings),
        *operation(home),
        _git(),
        *_sandbox(home),
        _runtime(home),
        *_screening(home.screening),
    )


def _user(settings: Settings) -> Check:
    role = "admin" if settings.is_admin else "no admin"
    claim = f", claimed by a setting or HABITUS_USER; the account is {account_name()}" if settings.is_claimed else ""
    return Check(name="user", state=CheckState.OK, detail=f"{settings.user} ({role}){claim}")


def unusable(error: UserError) -> tuple[Check, ...]:
    """Return the checks that are possible if the home can't be opened."""
    return (_python(), Check(name="home", state=CheckState.BROKEN, detail=error.message, hint=error.hint))


def _python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, SQLite {sqlite3.sqlite_version}"
    return Check(name="python", state=CheckState.OK, detail=detail)


def _home(home: Home) -> list[Check]:
    folder = home.settings.home
    free = shutil.disk_usage(folder).free
    space = f"{free / 1e9:.1f} GB free"
    checks = [
        Check(
            name="home",
            state=CheckState.MISSING,
            detail=f"{why_read_only(folder)}.",
            hint="Make it writable to change skills.",
        )
        if home.is_read_only
        else Check(name="home", state=CheckState.OK, detail=f"{folder}, {space}"),
        _database(home.settings, home.shared),
    ]
    # SQLite needs room for its log even to delete something.
    if free < 50e6:
        checks.append(Check(name="disk", state=CheckState.BROKEN, detail=space, hint="Free some space."))
    checks += [
        Check(name="settings", state=CheckState.MISSING, detail=warning, hint=f"Correct {folder}/habitus.toml.")
        for warning in home.settings.warnings
    ]
    paused = home.pause.state()
    if paused is not None:
        detail = f"paused since {paused.since.astimezone():%Y-%m-%d %H:%M:%S} by {paused.by}"
        checks.append(Check(name="learning", state=CheckState.PAUSED, detail=detail, hint="Run 'habitus resume'."))
    return checks


def _database(settings: Settings, shared: sa.Engine) -> Check:
    """Check the database with its own integrity check, which reads every page."""
    if (damage := find_damage(settings)) is not None:
        return Check(name="database", state=CheckState.BROKEN, detail=damage.message, hint=damage.hint)
    return Check(name="database", state=CheckState.OK, detail=sql.place(shared))


def _skills(skills: Library) -> list[Check]:
    checks = []
    for layer in skills.layers:
        if not layer.is_listed:
            continue
        loadable, broken = len(layer.store.list_summaries()), len(layer.store.list_broken())
        if not loadable and not broken and layer.name != "user":
            continue
        checks.append(
            Check(
                name=f"layer {layer.name}",
                state=CheckState.BROKEN if broken else CheckState.OK,
                detail=f"{loadable} {'skill' if loadable == 1 else 'skills'}"
                + (f", {broken} broken." if broken else ""),
                hint="Run 'habitus skills list --state broken'." if broken else "",
            )
        )
    return checks


def _search(home: Home) -> Check:
    try:
        detail = f"{home.finder.describe()}; {configuring.describe_tiers(home.settings)}"
        return Check(name="search", state=CheckState.OK, detail=detail)
    except Invalid as error:
        return Check(name="search", state=CheckState.BROKEN, detail=error.message, hint=error.hint)


def _model(home: Home) -> Check:
    """Report the configured model without calling it, because a call costs money."""
    try:
        return Check(name="model", state=CheckState.OK, detail=home.models.main.name)
    except UserError as error:
        return Check(name="model", state=CheckState.MISSING, detail=error.message, hint=error.hint)


def _agents() -> Check:
    """Report the agents on this machine that could serve as the model without a key."""
    here = [
        f"{one.title} ({one.name}{', experimental' if one.is_experimental else ''})"
        for one in programs_here(os.environ)
    ]
    return Check(name="agents as models", state=CheckState.OK, detail=", ".join(here) or "none is here")


def _memory(settings: Settings, memory: Cortex) -> Check:
    lessons, waiting = len(memory.list_lessons("all", limit=100_000)), len(memory.waiting())
    wait = f", {waiting} waiting for you" if waiting else ""
    return Check(name="memory", state=CheckState.OK, detail=f"{settings.memory.value}, {lessons} kept{wait}")


def _spending(settings: Settings, spending: Spending) -> Check:
    settings, spent = settings, spending.today()
    if settings.memory is MemoryMode.OFF or settings.acc_mode is AccMode.OFF:
        return Check(name="learning tokens", state=CheckState.OK, detail="learning from errors is off")
    if spent.tokens >= spent.cap:
        hint = "It goes on tomorrow (UTC); HABITUS_LEARNING_TOKENS sets the cap."
        return Check(name="learning tokens", state=CheckState.PAUSED, detail=f"{spent.line}.", hint=hint)
    return Check(name="learning tokens", state=CheckState.OK, detail=spent.line)


def _withholding(settings: Settings) -> Check:
    share = settings.evidence.withhold
    detail = f"{share:.0%} of all offers are withheld at random (evidence.withhold)" if share else "nothing is withheld"
    return Check(name="evidence", state=CheckState.OK, detail=detail)


def _git() -> Check:
    if shutil.which("git"):
        return Check(name="git", state=CheckState.OK, detail="found")
    return Check(
        name="git", state=CheckState.MISSING, detail="not found.", hint="Install git to add skills from repositories."
    )


def _sandbox(home: Home) -> list[Check]:
    """Report each protection; a required one that is off counts as broken if there are tools to run."""
    is_needed = bool(home.tools.all()) and not home.settings.allow_weaker_sandbox
    checks = []
    for protection in describe(home.machine):
        name = f"sandbox: {protection.name}"
        if protection.is_on:
            checks.append(Check(name=name, state=CheckState.OK, detail=protection.why))
            continue
        state = CheckState.BROKEN if protection.required and is_needed else CheckState.MISSING
        is_open = protection.required and home.settings.allow_weaker_sandbox
        detail = "off, and code runs all the same, as allow_weaker_sandbox says." if is_open else "off."
        detail = "off; needed to run code." if protection.required and not is_open else detail
        checks.append(Check(name=name, state=state, detail=detail, hint=protection.hint))
    return checks


def _runtime(home: Home) -> Check:
    """Report where scratchpads run, and whether that machine answers."""
    name, where = "sandbox: runtime", home.settings.sandbox.runtime
    if where == "local":
        return Check(name=name, state=CheckState.OK, detail="scratchpads run on this machine")
    try:
        asyncio.run(home.scratchpads().names())
    except HabitusError as error:
        hint = "Correct sandbox.runtime in habitus.toml, or the keys and hosts of ssh."
        return Check(name=name, state=CheckState.BROKEN, detail=str(error), hint=hint)
    return Check(name=name, state=CheckState.OK, detail=f"scratchpads run on {where}, which answers")


def _screening(screening: Policy) -> list[Check]:
    """Report the changes that screening.toml makes; empty if there are none."""
    policy = screening
    changed = [f"{rule} is silenced: {why}" for rule, why in policy.silence.items()]
    changed += [f"'{text}' is held: {why}" for text, why in policy.hold.items()]
    return [Check(name="screening", state=CheckState.OK, detail="; ".join(changed))] if changed else []


def lint(home: Home, targets: Sequence[str] = (), progress: Callable[[int], None] = lambda done: None) -> LintReport:
    """Lint the named skills and directories; without any, all writable skills and the library as a set."""
    if targets:
        return LintReport(skills=tuple(report for target in targets for report in _lint_target(home, target)))
    own = {layer.name for layer in home.skills.layers if layer.can_write}
    seen = home.skills.snapshot()
    skills = []
    for item in seen.listing:
        if item.layer in own:
            skills.append(_linted_skill(home, item, seen))
            progress(len(skills))
    # Similar skills are found by their vectors, so the index must be complete first.
    home.finder.catch_up(progress)
    together = check(
        seen.listing,
        room=_room(home),
        search=lambda cue, among: home.finder.search(cue, k=4, among=among, at=seen, look=False),
        neighbours=home.finder.neighbours(NEAR, at=seen),
        progress=progress,
    )
    return LintReport(skills=tuple(skills), set=tuple(together))


def _room(home: Home) -> Room:
    """Return the token budgets of the prompt, and the tokens of the skills that every prompt includes in full."""
    selection, context = select(home, Request(text="", user=home.user())), home.settings.context_tokens
    taken = {choice.name: tokens(home.skills.load(choice.name).body) for choice in selection.eager}
    return Room(menu=menu.budget_for(context), eager=int(context * EAGER_SHARE), taken=taken)


def _lint_target(home: Home, target: str) -> list[Linted]:
    if "/" in target or os.path.isdir(target):  # noqa: PTH112  # Path.is_dir raises on a name that is too long
        return _linted_directory(home, Path(target))
    return [_linted_skill(home, home.skills.find(target), home.skills.snapshot())]


def _linted_skill(home: Home, item: Listed, seen: Snapshot) -> Linted:
    tree = home.skills.layer(item.layer).store.tree(item.name, look=False) or {}
    # Stored risks are left out, because the scan below finds them anew.
    read = [found for found in item.diagnostics if found.severity is not Severity.RISK]
    odd = check_one(item.name, tree, seen.by_name) if item.summary is not None else ()
    return Linted(
        name=item.name, diagnostics=(*read, *_risks(home.scan, tree), *odd, *recipes.lint_recipes(item.name, tree))
    )


def _risks(scan: Callable[[Tree], list[str]], tree: Tree) -> list[Diagnostic]:
    """Return the findings for which an import would need review."""
    found = scan(tree)
    return [
        Diagnostic(file=what.partition(":")[0], what=f"{what}.", hint="Read it first.", severity=Severity.RISK)
        for what in found
    ]


def _linted_directory(home: Home, path: Path) -> list[Linted]:
    """Lint a skill directory, or a directory of them, outside the library."""
    path = path.resolve()
    if not os.path.isdir(path):  # noqa: PTH112  # see above
        raise Invalid(f"{path} is not a directory.", hint="Give a skill, or a directory that holds skills.")
    is_one = any((path / main).exists() for main in trees.MAIN_FILES)
    shelf = DirectoryShelf(path.parent if is_one else path, path, can_write=False)
    reports = []
    folders = [path.name] if is_one else list(shelf.look({}))
    known = {*map(names.canonical, folders), *home.skills.snapshot().by_name}
    for folder in folders:
        found = shelf.read(folder)
        if found is not None:
            parsed = trees.parse(folder, found.tree)
            problem = (found.problem,) if found.problem else parsed.diagnostics
            odd = [*recipes.lint_recipes(folder, found.tree)] if not found.problem else []
            if parsed.skill is not None and not found.problem:
                odd = [*check_one(folder, found.tree, known), *odd]
            reports.append(Linted(name=folder, diagnostics=(*problem, *_risks(home.scan, found.tree), *odd)))
    return reports
