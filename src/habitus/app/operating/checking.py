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
from habitus.app.conversations.running_code import open_scratchpads
from habitus.app.home import Home
from habitus.app.home_directory import explain_why_home_is_unwritable
from habitus.app.library import recipes
from habitus.app.library.explaining import select_skills_for_request
from habitus.app.operating import configuring
from habitus.app.operating.damage import find_database_damage
from habitus.app.operating.doctor import HealthCheckResult, HealthCheckState, check_operation_parts_in_use
from habitus.errors import HabitusError, Invalid, UserError
from habitus.files import Tree
from habitus.learning.budget import DailyTokenUsageStore
from habitus.llm.agents import list_installed_programs
from habitus.memory.cortex import Cortex
from habitus.operating_system import get_account_name
from habitus.sandbox.machine import list_protection_statuses, probe_machine
from habitus.screening.findings import ScreeningPolicy
from habitus.settings import DetectorActivityMode, MemoryLearningMode, Settings
from habitus.skills import names, trees
from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.library import Library
from habitus.skills.lint import NEIGHBOUR_THRESHOLD, LibraryFinding, PromptBudget, lint_library, lint_skill
from habitus.skills.model import Diagnostic, Severity
from habitus.skills.stores.files import DirectoryBackend
from habitus.text import estimate_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillLintResult:
    """The diagnostics of one skill."""

    name: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LintReport:
    """The diagnostics of each skill, and the findings about all of them as a set."""

    skills: tuple[SkillLintResult, ...]
    set: tuple[LibraryFinding, ...] = ()

    @property
    def error_count(self) -> int:
        """The number of errors that keep a skill from loading."""
        return sum(found.severity is Severity.ERROR for skill in self.skills for found in skill.diagnostics)

    @property
    def is_failed(self) -> bool:
        """Whether a skill can't be loaded."""
        return bool(self.error_count)

    @property
    def flagged_count(self) -> int:
        """The number of skills with any diagnostic."""
        return sum(bool(skill.diagnostics) for skill in self.skills)


def run_doctor(home: Home) -> tuple[HealthCheckResult, ...]:
    """Run all checks and return each with its state and, where something is wrong, the exact fix."""
    return (
        _report_python_version(),
        *_check_home_folder_and_database(home),
        _report_current_user_and_role(home.settings),
        *_check_skills_of_layers_load(home.skills),
        _check_search(home),
        _report_configured_model(home),
        _report_agent_programs_usable_as_model(),
        _report_memory_mode_and_lessons(home.settings, home.memory),
        _check_learning_budget(home.settings, home.spending),
        _report_share_withheld_at_random(home.settings),
        *check_operation_parts_in_use(home),
        _check_git(),
        *_check_sandbox(home),
        _check_scratchpad_runtime(home),
        *_report_changed_screening_rules(home.screening),
    )


def _report_current_user_and_role(settings: Settings) -> HealthCheckResult:
    role = "admin" if settings.is_admin else "no admin"
    claim = (
        f", claimed by a setting or HABITUS_USER; the account is {get_account_name()}" if settings.is_claimed else ""
    )
    return HealthCheckResult.ok("user", f"{settings.user} ({role}){claim}")


def list_checks_for_unusable_home(error: UserError) -> tuple[HealthCheckResult, ...]:
    """Return the checks that are possible if the home can't be opened."""
    return (_report_python_version(), HealthCheckResult.broken("home", error.message, error.hint))


def _report_python_version() -> HealthCheckResult:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, SQLite {sqlite3.sqlite_version}"
    return HealthCheckResult.ok("python", detail)


def _check_home_folder_and_database(home: Home) -> list[HealthCheckResult]:
    folder = home.settings.home
    free = shutil.disk_usage(folder).free
    space = f"{free / 1e9:.1f} GB free"
    checks = [
        HealthCheckResult.missing(
            "home", f"{explain_why_home_is_unwritable(folder)}.", "Make it writable to change skills."
        )
        if home.is_read_only
        else HealthCheckResult.ok("home", f"{folder}, {space}"),
        _check_database(home.settings, home.shared),
    ]
    # SQLite needs room for its log even to delete something.
    if free < 50e6:
        checks.append(HealthCheckResult.broken("disk", space, "Free some space."))
    checks += [
        HealthCheckResult.missing("settings", warning, f"Correct {folder}/habitus.toml.")
        for warning in home.settings.warnings
    ]
    paused = home.pause.get_pause_details()
    if paused is not None:
        detail = f"paused since {paused.since.astimezone():%Y-%m-%d %H:%M:%S} by {paused.by}"
        checks.append(HealthCheckResult.paused("learning", detail, "Run 'habitus learn resume'."))
    return checks


def _check_database(settings: Settings, shared: sa.Engine) -> HealthCheckResult:
    """Check the database with its own integrity check, which reads every page."""
    if (damage := find_database_damage(settings)) is not None:
        return HealthCheckResult.broken("database", damage.message, damage.hint)
    return HealthCheckResult.ok("database", sql.describe_database(shared))


def _check_skills_of_layers_load(skills: Library) -> list[HealthCheckResult]:
    checks = []
    for layer in skills.layers:
        if not layer.is_listed:
            continue
        loadable, broken = len(layer.store.list_summaries()), len(layer.store.list_broken())
        if not loadable and not broken and layer.name != "user":
            continue
        checks.append(
            HealthCheckResult(
                name=f"layer {layer.name}",
                state=HealthCheckState.BROKEN if broken else HealthCheckState.OK,
                detail=f"{loadable} {'skill' if loadable == 1 else 'skills'}"
                + (f", {broken} broken." if broken else ""),
                hint="Run 'habitus skills list --state broken'." if broken else "",
            )
        )
    return checks


def _check_search(home: Home) -> HealthCheckResult:
    try:
        detail = f"{home.finder.describe_index()}; {configuring.describe_search_encoders(home.settings)}"
        return HealthCheckResult.ok("search", detail)
    except Invalid as error:
        return HealthCheckResult.broken("search", error.message, error.hint)


def _report_configured_model(home: Home) -> HealthCheckResult:
    """Report the configured model without calling it, because a call costs money."""
    try:
        return HealthCheckResult.ok("model", home.models.main.name)
    except UserError as error:
        return HealthCheckResult.missing("model", error.message, error.hint)


def _report_agent_programs_usable_as_model() -> HealthCheckResult:
    """Report the agents on this machine that could serve as the model without a key."""
    here = [
        f"{one.title} ({one.name}{', experimental' if one.is_experimental else ''})"
        for one in list_installed_programs(os.environ)
    ]
    return HealthCheckResult.ok("agents as models", ", ".join(here) or "none is here")


def _report_memory_mode_and_lessons(settings: Settings, memory: Cortex) -> HealthCheckResult:
    lessons, waiting = len(memory.list_lessons("all", limit=100_000)), len(memory.list_pending_lessons())
    wait = f", {waiting} pending review" if waiting else ""
    return HealthCheckResult.ok("memory", f"{settings.memory.value}, {lessons} lessons{wait}")


def _check_learning_budget(settings: Settings, spending: DailyTokenUsageStore) -> HealthCheckResult:
    settings, spent = settings, spending.get_usage_today()
    if settings.memory is MemoryLearningMode.OFF or settings.acc_mode is DetectorActivityMode.OFF:
        return HealthCheckResult.ok("learning tokens", "learning from errors is off")
    if spent.tokens >= spent.cap:
        hint = "Learning resumes tomorrow (UTC); HABITUS_LEARNING_TOKENS sets the limit."
        return HealthCheckResult.paused("learning tokens", f"{spent.summary}.", hint)
    return HealthCheckResult.ok("learning tokens", spent.summary)


def _report_share_withheld_at_random(settings: Settings) -> HealthCheckResult:
    share = settings.evidence.withhold
    detail = f"{share:.0%} of all offers are withheld at random (evidence.withhold)" if share else "nothing is withheld"
    return HealthCheckResult.ok("evidence", detail)


def _check_git() -> HealthCheckResult:
    if shutil.which("git"):
        return HealthCheckResult.ok("git", "found")
    return HealthCheckResult.missing("git", "not found.", "Install git to add skills from repositories.")


def _check_sandbox(home: Home) -> list[HealthCheckResult]:
    """Report each protection; a required one that is off counts as broken if there are tools to run."""
    machine = probe_machine()
    runs_weaker = home.settings.allow_weaker_sandbox and machine.can_run_without_protection
    is_needed = bool(home.tools.all()) and not runs_weaker
    checks = []
    for protection in list_protection_statuses(machine):
        name = f"sandbox: {protection.name}"
        if protection.is_on:
            checks.append(HealthCheckResult.ok(name, protection.why))
            continue
        state = HealthCheckState.BROKEN if protection.required and is_needed else HealthCheckState.MISSING
        is_open = protection.required and runs_weaker
        detail = "off, but code runs anyway: allow_weaker_sandbox is set." if is_open else "off."
        detail = "off; needed to run code." if protection.required and not is_open else detail
        checks.append(HealthCheckResult(name=name, state=state, detail=detail, hint=protection.hint))
    return checks


def _check_scratchpad_runtime(home: Home) -> HealthCheckResult:
    """Report where scratchpads run, and whether that machine answers."""
    name, where = "sandbox: runtime", home.settings.sandbox.runtime
    if where == "local":
        return HealthCheckResult.ok(name, "scratchpads run on this machine")
    try:
        asyncio.run(open_scratchpads(home).list_open_and_stored_names())
    except HabitusError as error:
        hint = "Correct sandbox.runtime in habitus.toml, or the keys and hosts of ssh."
        return HealthCheckResult.broken(name, str(error), hint)
    return HealthCheckResult.ok(name, f"scratchpads run on {where}, which answers")


def _report_changed_screening_rules(screening: ScreeningPolicy) -> list[HealthCheckResult]:
    """Report the changes that screening.toml makes; empty if there are none."""
    policy = screening
    changed = [f"{rule} is silenced: {why}" for rule, why in policy.silence.items()]
    changed += [f"'{text}' is held: {why}" for text, why in policy.hold.items()]
    return [HealthCheckResult.ok("screening", "; ".join(changed))] if changed else []


def lint_skills(
    home: Home, targets: Sequence[str] = (), on_progress: Callable[[int], None] = lambda done: None
) -> LintReport:
    """Lint the named skills and directories; without any, all writable skills and the library as a set."""
    if targets:
        return LintReport(skills=tuple(report for target in targets for report in _lint_target(home, target)))
    own = {layer.name for layer in home.skills.layers if layer.can_write}
    seen = home.skills.snapshot()
    skills = []
    for item in seen.listing:
        if item.layer in own:
            skills.append(_lint_skill(home, item, seen))
            on_progress(len(skills))
    # Similar skills are found by their vectors, so the index must be complete first.
    home.finder.update_index(on_progress)
    together = lint_library(
        seen.listing,
        budget=_measure_prompt_budgets(home),
        search=lambda cue, among: home.finder.search(cue, k=4, among=among, at=seen, look=False),
        neighbours=home.finder.find_neighbours_of_all_skills(NEIGHBOUR_THRESHOLD, at=seen),
        progress=on_progress,
    )
    return LintReport(skills=tuple(skills), set=tuple(together))


def _measure_prompt_budgets(home: Home) -> PromptBudget:
    """Return the token budgets of the prompt, and the tokens of the skills that every prompt includes in full."""
    selection, context = (
        select_skills_for_request(home, UserRequest(text="", user=home.get_user())),
        home.settings.context_tokens,
    )
    taken = {choice.name: estimate_tokens(home.skills.load(choice.name).body) for choice in selection.eager}
    return PromptBudget(
        menu=menu.compute_menu_budget(context, home.settings.menu_tokens),
        eager=int(context * EAGER_SHARE),
        eager_costs=taken,
    )


def _lint_target(home: Home, target: str) -> list[SkillLintResult]:
    if "/" in target or os.path.isdir(target):  # noqa: PTH112  # Path.is_dir raises on a name that is too long
        return _lint_directory(home, Path(target))
    return [_lint_skill(home, home.skills.find(target), home.skills.snapshot())]


def _lint_skill(home: Home, item: ListedSkill, seen: LibrarySnapshot) -> SkillLintResult:
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name, check_disk=False) or {}
    # Stored risks are left out, because the scan below finds them anew.
    read = [found for found in item.diagnostics if found.severity is not Severity.RISK]
    odd = lint_skill(item.name, tree, seen.by_name) if item.summary is not None else ()
    return SkillLintResult(
        name=item.name,
        diagnostics=(*read, *_scan_risks(home.scan_tree, tree), *odd, *recipes.lint_recipes(item.name, tree)),
    )


def _scan_risks(scan: Callable[[Tree], list[str]], tree: Tree) -> list[Diagnostic]:
    """Return the findings for which an import would need review."""
    found = scan(tree)
    return [
        Diagnostic(file=what.partition(":")[0], message=f"{what}.", hint="Read it first.", severity=Severity.RISK)
        for what in found
    ]


def _lint_directory(home: Home, path: Path) -> list[SkillLintResult]:
    """Lint a skill directory, or a directory of them, outside the library."""
    path = path.resolve()
    if not os.path.isdir(path):  # noqa: PTH112  # see above
        raise Invalid(f"{path} is not a directory.", hint="Give a skill, or a directory that holds skills.")
    is_one = any((path / main).exists() for main in trees.MAIN_FILES)
    shelf = DirectoryBackend(path.parent if is_one else path, path, can_write=False)
    reports = []
    folders = [path.name] if is_one else list(shelf.list_folder_change_stamps({}))
    known = {*map(names.canonicalize_name, folders), *home.skills.snapshot().by_name}
    for folder in folders:
        found = shelf.read_folder(folder)
        if found is not None:
            parsed = trees.parse_skill_tree(folder, found.tree)
            problem = (found.problem,) if found.problem else parsed.diagnostics
            odd = [*recipes.lint_recipes(folder, found.tree)] if not found.problem else []
            if parsed.skill is not None and not found.problem:
                odd = [*lint_skill(folder, found.tree, known), *odd]
            reports.append(
                SkillLintResult(name=folder, diagnostics=(*problem, *_scan_risks(home.scan_tree, found.tree), *odd))
            )
    return reports
