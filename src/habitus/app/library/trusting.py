"""Trust in skills as they are now (a project's, an imported one, one's own code), and in a project's packages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from habitus.agent.background import run_in_thread
from habitus.agent.stream import AskPerson, Consent, ConsentQuestion
from habitus.app.home import Home
from habitus.app.tasks.reviewing import (
    TASK_FILE,
    build_task_files_for_review,
    get_trust_root_of_task_reviews,
    list_foreign_tasks,
)
from habitus.errors import NotFound
from habitus.files import Tree, compute_tree_hash, parse_user_path
from habitus.skills import trees
from habitus.skills.layers.layer import AGENT_LAYERS, Layer
from habitus.skills.library import Library
from habitus.skills.model import SkillSource, Stage
from habitus.skills.sources.trust import (
    APPROVED_ROOT,
    IMPORTED_ROOT,
    PACKAGES_ROOT_PREFIX,
    TASKS_ROOT_PREFIX,
    TrustedRootSummary,
    TrustStore,
    has_callable_code,
    list_skill_powers,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustTarget:
    """The content that a decision about trust covers: root → name → files."""

    roots: Mapping[str, Mapping[str, Tree]]
    # A single skill of a root; what else is trusted in that root stays trusted.
    is_single: bool = False

    @property
    def skill_count(self) -> int:
        """Return the number of skills."""
        return sum(len(skills) for root, skills in self.roots.items() if not root.startswith(TASKS_ROOT_PREFIX))

    @property
    def task_count(self) -> int:
        """Return the number of tasks from others."""
        return sum(len(tasks) for root, tasks in self.roots.items() if root.startswith(TASKS_ROOT_PREFIX))


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillRiskReport:
    """The powers and findings of a skill, to read before trusting it."""

    root: str
    name: str
    powers: tuple[str, ...]
    findings: tuple[str, ...]
    # The whole text of a task from others.
    text: str = ""


def resolve_trust_target(home: Home, target: str | None) -> TrustTarget:
    """Resolve a target: a project's path (default: this project), another agent, a skill, or an allowed package."""
    if target in AGENT_LAYERS:
        layer = home.skills.get_layer(target)
        return TrustTarget(roots={layer.claims_root: _read_skill_trees_of_layer(layer)})
    if target in list_allowed_packages(home) and not home.skills.is_name_taken(target):
        return TrustTarget(roots={get_package_trust_root(home.project): {target: {}}}, is_single=True)
    if target is not None and "/" not in target and not parse_user_path(target).is_dir():
        return resolve_trust_target_of_skill(home, target)
    there = home.with_cwd(parse_user_path(target).resolve() if target else home.settings.cwd)
    roots = {layer.trust_root: _read_skill_trees_of_layer(layer) for layer in there.skills.layers if layer.trust_root}
    if not roots:
        where = target or "this directory"
        raise NotFound(
            f"There are no skill folders in the project at {where}.", hint="Looked for .habitus, .claude and .agents."
        )
    shown = [
        f"{name}@{layer.name}" for layer in there.skills.layers if layer.trust_root for name in roots[layer.trust_root]
    ]
    return TrustTarget(roots={**roots, **_map_trust_roots_to_foreign_tasks(there, shown)})


def resolve_trust_target_of_skill(home: Home, name: str) -> TrustTarget:
    """Resolve one skill and its tasks from others by name only."""
    tasks = _map_trust_roots_to_foreign_tasks(home, [name])
    try:
        # Never a path: remote callers must not name directories.
        roots = _read_skill_under_its_trust_root(home.skills, name)
    except NotFound:
        if not tasks:
            raise
        roots = {}
    return TrustTarget(roots={**roots, **tasks}, is_single=True)


def _map_trust_roots_to_foreign_tasks(home: Home, addresses: Iterable[str]) -> dict[str, dict[str, Tree]]:
    found = {address: list_foreign_tasks(home, address) for address in addresses}
    return {
        get_trust_root_of_task_reviews(home, address): {task.id: build_task_files_for_review(task) for task in tasks}
        for address, tasks in found.items()
        if tasks
    }


def _read_skill_trees_of_layer(layer: Layer) -> dict[str, Tree]:
    return {summary.name: layer.store.read_tree(summary.name) or {} for summary in layer.store.list_summaries()}


def _read_skill_under_its_trust_root(skills: Library, name: str) -> dict[str, dict[str, Tree]]:
    """Return the root under which a skill is trusted. Raises `NotFound` if it needs no trust."""
    item = skills.find(name)
    tree = skills.read_tree(f"{item.name}@{item.layer}")
    if claims_root := skills.get_layer(item.layer).claims_root:
        return {claims_root: {item.name: tree}}
    if item.summary is not None and item.summary.source is SkillSource.IMPORTED:
        return {IMPORTED_ROOT: {item.name: tree}}
    if (item.summary is not None and Stage.CODE in item.summary.stages) or has_callable_code(tree):
        return {APPROVED_ROOT: {item.name: tree}}
    raise NotFound(f"'{item.name}' was not imported, so it needs no trust.", hint="Give a project directory.")


def is_whole_target_trusted(trust: TrustStore, approvals: TrustStore, found: TrustTarget) -> bool:
    """Whether all of the content is trusted as it is now."""
    for root in found.roots:
        # Reads what other processes have stored since.
        _select_trust_store_for_root(trust, approvals, root).read_revision()
    return all(
        _select_trust_store_for_root(trust, approvals, root).is_trusted_exactly(root, name, compute_tree_hash(tree))
        for root, skills in found.roots.items()
        for name, tree in skills.items()
    )


def list_skill_risks(scan: Callable[[Tree], list[str]], found: TrustTarget) -> tuple[SkillRiskReport, ...]:
    """Return the powers and scan findings of each skill."""
    return tuple(
        SkillRiskReport(
            root=root,
            name=name,
            powers=tuple(sorted(map(str, list_skill_powers(name, tree)))),
            findings=tuple(scan(tree)),
            text=(tree[TASK_FILE].content or b"").decode() if root.startswith(TASKS_ROOT_PREFIX) else "",
        )
        for root, skills in found.roots.items()
        for name, tree in sorted(skills.items())
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustStatus:
    """Whether skills may act as they are now, with their risks and, after a change, the revoked names."""

    is_trusted: bool
    risks: tuple[SkillRiskReport, ...]
    revoked: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


def get_trust_status(
    home: Home, found: TrustTarget, *, revoked: tuple[str, ...] = (), undo: tuple[str, ...] = ()
) -> TrustStatus:
    """Return the trust status of the target."""
    risks = list_skill_risks(home.scan_tree, found)
    # Tasks are an examination, which only admins read.
    shown = tuple(one for one in risks if home.settings.is_admin or not one.root.startswith(TASKS_ROOT_PREFIX))
    is_trusted_now = is_whole_target_trusted(home.trust, home.approvals, found)
    return TrustStatus(is_trusted=is_trusted_now, risks=shown, revoked=revoked, undo=undo)


def grant_trust(home: Home, found: TrustTarget, target: str | None) -> TrustStatus:
    """Trust the target as it is now; `target` is the name the person used for it."""
    was_trusted = is_whole_target_trusted(home.trust, home.approvals, found)
    store_trust(home, found)
    return get_trust_status(
        home, found, undo=() if was_trusted else ("review", "trust", "--revoke", *filter(None, [target]))
    )


def revoke_trust(home: Home, found: TrustTarget, target: str | None) -> TrustStatus:
    """Stop trusting the target; `undo` is empty if it was trusted only in part."""
    was_trusted = is_whole_target_trusted(home.trust, home.approvals, found)
    revoked = remove_trust(home.trust, home.approvals, found)
    undo = ("review", "trust", *filter(None, [target])) if was_trusted and revoked else ()
    return get_trust_status(home, found, revoked=revoked, undo=undo)


def store_trust(home: Home, found: TrustTarget) -> None:
    """Store trust in every skill of the target."""
    for root, skills in found.roots.items():
        if found.is_single:
            for name, tree in skills.items() if not root.startswith(TASKS_ROOT_PREFIX) else ():
                trees.refuse_code_name_conflict(name, tree)
        _select_trust_store_for_root(home.trust, home.approvals, root).trust(
            root, skills, home.settings.author_name, keep_existing=found.is_single
        )


def remove_trust(trust: TrustStore, approvals: TrustStore, found: TrustTarget) -> tuple[str, ...]:
    """Remove trust, and return the roots or skills that were trusted."""
    revoked: list[str] = []
    for root, skills in found.roots.items():
        if found.is_single:
            revoked += [
                name for name in skills if _select_trust_store_for_root(trust, approvals, root).revoke(root, name)
            ]
        # A whole root is always a folder of this machine, never approved code.
        elif trust.revoke(root):
            revoked.append(root)
    return tuple(revoked)


def list_all_trusted_content(home: Home) -> tuple[TrustedRootSummary, ...]:
    """Return all trusted content, including approvals from a shared database."""
    shared = home.approvals.list_trusted_roots() if home.settings.database else []
    return (*home.trust.list_trusted_roots(), *shared)


def _select_trust_store_for_root(trust: TrustStore, approvals: TrustStore, root: str) -> TrustStore:
    """Return the store for a root: approved code travels with its skills, all else belongs to this machine."""
    return approvals if root == APPROVED_ROOT else trust


_CHOICES = (Consent.YES, Consent.NO, Consent.ALWAYS)


def get_package_trust_root(project: str) -> str:
    """Return the root under which a project's packages are trusted one by one."""
    return f"{PACKAGES_ROOT_PREFIX}{project}"


def list_allowed_packages(home: Home) -> tuple[str, ...]:
    """Return the packages that every new scratchpad of this project starts with."""
    return home.trust.list_trusted_names(get_package_trust_root(home.project))


def build_package_install_check(home: Home, ask: AskPerson) -> Callable[[str], Awaitable[bool]]:
    """Return a check for package installs: allowed earlier for this project, or asked from the person now."""

    async def may_install(package: str) -> bool:
        name = _normalize_package_name(package)
        if name in await run_in_thread(lambda: list_allowed_packages(home)):
            return True
        answer = await ask(ConsentQuestion(text=f"Install the package '{package}'?", choices=_CHOICES))
        if answer is Consent.ALWAYS:
            await run_in_thread(lambda: _allow_package(home, name))
        return answer in (Consent.YES, Consent.ALWAYS)

    return may_install


def _normalize_package_name(package: str) -> str:
    """Return the name under which a package is allowed."""
    try:
        wanted = Requirement(package)
    except InvalidRequirement:
        return package
    # A package from a URL is allowed for that URL only, not by its name.
    return package if wanted.url else canonicalize_name(wanted.name)


def _allow_package(home: Home, name: str) -> None:
    home.trust.trust(get_package_trust_root(home.project), {name: {}}, home.settings.author_name)
