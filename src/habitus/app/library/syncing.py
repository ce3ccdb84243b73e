"""Sync skills with the folders of other agents: chosen skills go there, and edits made there come back.

Three hashes decide each step: the skill here, the copy there, and the copy as it was last written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from habitus.app.home import Home
from habitus.errors import Invalid, Stale
from habitus.files import (
    Tree,
    build_tree_file,
    compute_tree_hash,
    drop_eval_files,
    is_eval_file,
    read_tree_file,
    translate_disk_errors,
)
from habitus.hosts.connections import lock_folder
from habitus.hosts.known_agents import ConfigScope, KnownAgent, get_agent
from habitus.skills import trees
from habitus.skills.edits import diff_trees
from habitus.skills.formats import disk
from habitus.skills.formats.base import UnreadableEntryError
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.layers.layer import USER_LAYER, find_project_root
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import SkillState
from habitus.skills.review import ProposalAction, SkillChange
from habitus.skills.sources import lockfiles

# In the agent's folder, next to the copies.
SYNC_LOCK_FILE = ".habitus-lock.json"
# The characters an agent's listing adds around a name and a description.
_LISTING_OVERHEAD_CHARS = 8


class SyncMethod(StrEnum):
    """How skills are put into an agent's folder."""

    COPY = "copy"
    # There is only one folder then, so an edit there is an edit here.
    LINK = "link"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSkillSyncRequest:
    """A sync to perform: agent, scope, skills (all of the user's own if none is named) and method."""

    agent: str
    scope: ConfigScope = ConfigScope.USER
    only: tuple[str, ...] = ()
    method: SyncMethod = SyncMethod.COPY
    is_removal: bool = False


class SyncAction(StrEnum):
    """What is done about one skill."""

    PUT = "put"
    UPDATE = "update"
    # An edit made there becomes a version here.
    PULL_EDIT = "pull"
    # The skill is gone here, or no longer wanted there.
    REMOVE = "remove"
    UNTRACK = "removed there"
    UNCHANGED = "unchanged"
    # Both sides changed, so nothing is done.
    CONFLICT = "conflict"
    SKIP = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncStep:
    """The planned step for one skill."""

    name: str
    action: SyncAction
    reason: str = ""
    # Set for conflicts and for edits that come back.
    diff: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncPlan:
    """The steps in a folder, and the skills over the limit of the agent's listing."""

    request: AgentSkillSyncRequest
    folder: Path
    steps: tuple[SyncStep, ...]
    over_limit: tuple[str, ...] = ()

    @property
    def has_no_changes(self) -> bool:
        """Whether applying the plan would change nothing."""
        return all(one.action in (SyncAction.UNCHANGED, SyncAction.CONFLICT, SyncAction.SKIP) for one in self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class _LibrarySkillWithFiles:
    """A skill of the library with all its files, including large ones."""

    item: ListedSkill
    tree: Tree

    @property
    def version(self) -> int:
        """Return the version of the skill; 0 if it can't be loaded."""
        return self.item.summary.version if self.item.summary else 0


@dataclass(kw_only=True, slots=True)
class _SyncSelection:
    """The skills to sync, those left out with the reason, and those over the agent's limit."""

    to_sync: dict[str, _LibrarySkillWithFiles] = field(default_factory=dict)
    # Maps each name to the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    over_limit: list[str] = field(default_factory=list)


def plan_sync_to_agent(home: Home, request: AgentSkillSyncRequest, environ: Mapping[str, str]) -> SyncPlan:
    """Plan a sync; nothing is written."""
    found = get_agent(request.agent)
    if request.method is SyncMethod.LINK and not found.follows_links:
        raise Invalid(f"{found.title} does not follow links to skills.", hint="Leave --link out.")
    settings = home.settings
    folder = found.resolve_path(
        found.skills[request.scope], environ, settings.user_home, find_project_root(settings.cwd)
    )
    put = lockfiles.read_lock_entries(folder / SYNC_LOCK_FILE, SyncLockfileEntry)
    there = {
        name: _read_agent_copy(folder, name, put.get(name)) for name in {*put, *request.only, *_list_folders(folder)}
    }
    if request.is_removal:
        gone = [name for name in put if not request.only or name in request.only]
        steps = [
            _build_step_with_diff(name, _decide_removal_of_agent_copy(folder, there[name], put[name], name))
            for name in sorted(gone)
        ]
        return SyncPlan(request=request, folder=folder, steps=tuple(steps))
    return _plan_sync_steps(home, request, found, folder, put, there)


def _plan_sync_steps(
    home: Home,
    request: AgentSkillSyncRequest,
    found: KnownAgent,
    folder: Path,
    put: Mapping[str, SyncLockfileEntry],
    there: Mapping[str, Tree],
) -> SyncPlan:
    chosen = _choose_skills(home, request, found, put, {name: tree for name, tree in there.items() if name not in put})
    steps = [
        _build_step_with_diff(name, (SyncAction.SKIP, why)) for name, why in chosen.left_out.items() if name not in put
    ]
    for name in sorted({*chosen.to_sync, *put}):
        mine, yours = chosen.to_sync[name].tree if name in chosen.to_sync else {}, there.get(name, {})
        verdict = decide_sync_action(_hash_tree(mine), _hash_tree(yours), put.get(name), method=request.method)
        if name in chosen.left_out:
            # It was synced before but no longer qualifies, a secret was added, say.
            verdict = _decide_removal_of_agent_copy(folder, yours, put[name], name)
        if verdict[0] is SyncAction.UNTRACK and name in request.only:
            verdict = (SyncAction.PUT, "you named it")
        steps.append(_build_step_with_diff(name, verdict, mine, yours))
    return SyncPlan(request=request, folder=folder, steps=tuple(steps), over_limit=tuple(chosen.over_limit))


def _decide_removal_of_agent_copy(
    folder: Path, there: Tree, put: SyncLockfileEntry, name: str
) -> tuple[SyncAction, str]:
    return decide_sync_removal(_hash_tree(there), put, is_link=(folder / name).is_symlink())


def apply_sync_plan(home: Home, planned: SyncPlan, environ: Mapping[str, str]) -> SyncPlan:
    """Apply a plan. Raises `Stale` if anything changed since; risky edits come back as proposals."""
    done: list[SyncStep] = []
    with lock_folder(planned.folder):
        # Planning again under the lock catches every change since the person saw the plan.
        if plan_sync_to_agent(home, planned.request, environ) != planned:
            raise Stale("The skills have changed meanwhile.", hint="Nothing was done; look again.")
        for one in planned.steps:
            done.append(_apply_step(home, planned, one))
    return replace(planned, steps=tuple(done))


def _apply_step(home: Home, planned: SyncPlan, one: SyncStep) -> SyncStep:
    """Apply one step."""
    place = planned.folder / one.name
    match one.action:
        case SyncAction.PUT | SyncAction.UPDATE:
            here = _load_whole_skill(home.skills, home.skills.find(f"{one.name}@{USER_LAYER}"))
            # The lockfile comes first: after a crash, an unrecorded copy would never be removed.
            _set_or_remove_sync_lockfile_entry(
                planned.folder, one.name, _build_lock_entry(here, planned.request.method)
            )
            _write_agent_copy(home.skills, here, place, planned.request.method)
        case SyncAction.PULL_EDIT:
            return _pull_edit_from_agent(home, planned, one)
        case SyncAction.REMOVE:
            _remove_agent_copy(place)
            _set_or_remove_sync_lockfile_entry(planned.folder, one.name, None)
        case SyncAction.UNTRACK:
            if place.is_symlink():
                # A link of ours whose target is gone.
                _remove_agent_copy(place)
            _set_or_remove_sync_lockfile_entry(planned.folder, one.name, None)
        case SyncAction.UNCHANGED | SyncAction.CONFLICT | SyncAction.SKIP:
            pass
    return one


def _pull_edit_from_agent(home: Home, planned: SyncPlan, one: SyncStep) -> SyncStep:
    """Store the edit made there as a version here, or as a proposal if the scan finds something."""
    tree, folder = _read_agent_copy(planned.folder, one.name, None), planned.folder
    author = home.build_author(f"edited in {folder}")
    problem = trees.parse_skill_tree(one.name, tree)
    if problem.skill is None:
        return replace(
            one, action=SyncAction.CONFLICT, reason=f"as it is there, it can't be loaded: {problem.diagnostics[-1]}"
        )
    if findings := home.scan_tree(tree):
        change = SkillChange(action=ProposalAction.WRITE, name=one.name, layer=USER_LAYER, tree=tree)
        proposal = home.review.propose(change, author, findings)
        return replace(
            one, action=SyncAction.CONFLICT, reason=f"needs review: habitus review show {proposal.id} ({findings[0]})"
        )
    version = home.skills.write_tree(USER_LAYER, one.name, tree, author)
    put = lockfiles.read_lock_entries(folder / SYNC_LOCK_FILE, SyncLockfileEntry)[one.name]
    _set_or_remove_sync_lockfile_entry(folder, one.name, replace(put, version=version, sha256=compute_tree_hash(tree)))
    return one


def _choose_skills(
    home: Home,
    request: AgentSkillSyncRequest,
    found: KnownAgent,
    put: Mapping[str, SyncLockfileEntry],
    others: Mapping[str, Tree],
) -> _SyncSelection:
    """Choose the user's skills that may go there, as many as fit into the agent's listing next to other skills."""
    for name in request.only:
        # Raises with a suggestion if the name is misspelt.
        home.skills.find(name)
    wanted = [one for one in home.skills.list_skills() if _is_skill_to_sync(one, request, put)]
    chosen = _SyncSelection()
    names = {one.name for one in wanted}
    room = found.listing_chars - sum(
        _count_listing_chars(name, tree) for name, tree in others.items() if name not in names
    )
    for item in _sort_by_priority(home.skills, wanted, request, put):
        said = item.summary
        cost = len(item.name) + _LISTING_OVERHEAD_CHARS + (len(said.description) + len(said.when_to_use) if said else 0)
        if found.listing_chars and cost > room and item.name not in put:
            chosen.over_limit.append(item.name)
            continue
        whole = _load_whole_skill(home.skills, item)
        if reason := _find_sync_objection(home, found, request, whole):
            chosen.left_out[item.name] = reason
        else:
            chosen.to_sync[item.name] = whole
            room -= cost
    return chosen


def _is_skill_to_sync(item: ListedSkill, request: AgentSkillSyncRequest, put: Mapping[str, SyncLockfileEntry]) -> bool:
    is_meant = not request.only or item.name in request.only or item.name in put
    return is_meant and (item.layer == USER_LAYER or item.name in request.only)


def _find_sync_objection(
    home: Home, found: KnownAgent, request: AgentSkillSyncRequest, here: _LibrarySkillWithFiles
) -> str:
    """Return why a skill must not go there; empty if it may."""
    item = here.item
    if item.layer != USER_LAYER:
        return f"it is in the layer '{item.layer}', not in your own"
    if item.state is not SkillState.OK or item.summary is None:
        return item.reason or item.state.value
    if item.summary.manifest.extends:
        return "it extends another skill and is incomplete without it"
    if reason := home.skills.describe_unreviewed_origin(item) or home.skills.describe_missing_trust(item):
        return f"{reason}, and it was not reviewed"
    if missing := disk.explain_missing_content(here.tree):
        return missing
    if findings := home.scan_tree(here.tree):
        return findings[0]
    if any(_has_secret(home.redact, file.content or b"") for file in here.tree.values()):
        return "there is a secret in it"
    if found.description_chars and len(item.summary.description) > found.description_chars:
        return f"{found.title} takes no description of more than {found.description_chars:,} characters"
    if request.method is SyncMethod.LINK and home.skills.find_directory(f"{item.name}@{USER_LAYER}") is None:
        return "it has no folder that a link could lead to"
    if request.method is SyncMethod.LINK and any(
        map(is_eval_file, home.skills.get_layer(USER_LAYER).store.read_tree(item.name) or {})
    ):
        return "a link would show the agent its own tests (evals/); leave --link out"
    return ""


def _has_secret(redact: Callable[[str], str], content: bytes) -> bool:
    text = content.decode("utf-8", "ignore")
    return redact(text) != text


def _load_whole_skill(skills: Library, item: ListedSkill) -> _LibrarySkillWithFiles:
    store = skills.get_layer(item.layer).store
    tree, folder = drop_eval_files(store.read_tree(item.name) or {}), store.find_directory(item.name)
    found = dict(tree)
    for path, file in tree.items():
        try:
            found[path] = replace(file, content=read_tree_file(path, file, folder))
        except OSError:
            # A missing file is reported by `_find_sync_objection`.
            continue
    return _LibrarySkillWithFiles(item=item, tree=found)


def _sort_by_priority(
    skills: Library, items: Sequence[ListedSkill], request: AgentSkillSyncRequest, put: Mapping[str, SyncLockfileEntry]
) -> list[ListedSkill]:
    """Sort skills: named ones first, then those synced already, then by use."""
    counters = skills.read_all_counters()

    def used(name: str) -> int:
        return sum(counted.used for counted in counters.get((USER_LAYER, name), {}).values())

    return sorted(items, key=lambda one: (one.name not in request.only, one.name not in put, -used(one.name), one.name))


def _list_folders(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []


def _read_agent_copy(folder: Path, name: str, put: SyncLockfileEntry | None) -> Tree:
    """Read the agent's copy of a skill; empty if there is none, a placeholder if it can't be read."""
    place = folder / name
    if put is not None and put.manner == SyncMethod.LINK and place.is_symlink():
        place = place.resolve()
    if not place.is_dir() or not trees.find_main_file(one.name for one in place.iterdir()):
        # Something that is no skill is in the way: a placeholder that equals nothing makes it a conflict.
        return {} if not os.path.lexists(place) else {"?": build_tree_file(b"")}
    try:
        return drop_eval_files(disk.read_folder(place, DiagnosticCollector(name)))
    except (UnreadableEntryError, OSError):
        return {"?": build_tree_file(b"")}


def _write_agent_copy(skills: Library, here: _LibrarySkillWithFiles, place: Path, method: SyncMethod) -> None:
    with translate_disk_errors(place):
        _remove_agent_copy(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        if method is SyncMethod.LINK:
            place.symlink_to(skills.get_layer(USER_LAYER).store.find_directory(here.item.name) or place)
        else:
            with disk.open_atomic_export_path(place, overwrite=False) as aside:
                disk.write_tree(aside, here.tree)


def _remove_agent_copy(place: Path) -> None:
    with translate_disk_errors(place):
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place)


def _build_lock_entry(here: _LibrarySkillWithFiles, method: SyncMethod) -> SyncLockfileEntry:
    return SyncLockfileEntry(
        version=here.version, sha256=compute_tree_hash(here.tree), origin=f"habitus:{USER_LAYER}", manner=method
    )


def _set_or_remove_sync_lockfile_entry(folder: Path, name: str, synced: SyncLockfileEntry | None) -> None:
    """Record a skill in the lockfile, or remove it; an empty lockfile is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    put = lockfiles.read_lock_entries(folder / SYNC_LOCK_FILE, SyncLockfileEntry)
    put.pop(name, None)
    if synced is not None:
        put[name] = synced
    if put:
        lockfiles.write_lockfile(folder / SYNC_LOCK_FILE, put)
    else:
        (folder / SYNC_LOCK_FILE).unlink(missing_ok=True)


def _build_step_with_diff(
    name: str, verdict: tuple[SyncAction, str], here: Tree | None = None, there: Tree | None = None
) -> SyncStep:
    step, reason = verdict
    shows = step in (SyncAction.CONFLICT, SyncAction.PULL_EDIT) and here is not None and there is not None
    diff = diff_trees(here or {}, there or {}, f"{name} here", f"{name} there") if shows else ""
    return SyncStep(name=name, action=step, reason=reason, diff=diff)


def _hash_tree(tree: Tree) -> str:
    return compute_tree_hash(tree) if tree else ""


def _count_listing_chars(name: str, tree: Tree) -> int:
    """Return the room that another tool's skill takes in the agent's listing."""
    skill = trees.parse_skill_tree(name, tree).skill if trees.find_main_file(tree) else None
    return len(name) + _LISTING_OVERHEAD_CHARS + (len(skill.description) + len(skill.when_to_use) if skill else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncLockfileEntry:
    """A lockfile entry: the version and hash of a skill as we wrote it, and its origin."""

    version: int
    sha256: str
    origin: str
    manner: SyncMethod


def decide_sync_action(
    here: str, there: str, put: SyncLockfileEntry | None, *, method: SyncMethod
) -> tuple[SyncAction, str]:
    """Return the step for a skill and its reason, from the hashes of both sides; a missing side is empty."""
    if put is None:
        if not there:
            return SyncAction.PUT, ""
        same = "the same is there already" if here == there else "another skill of this name is there"
        return (SyncAction.SKIP if here == there else SyncAction.CONFLICT), f"{same}, which we did not put there"
    if not there:
        return SyncAction.UNTRACK, "it was removed there"
    if there == put.sha256:
        if not here:
            return SyncAction.REMOVE, "removed here"
        is_same = here == there and method == put.manner
        return (
            (SyncAction.UNCHANGED, "")
            if is_same
            else (SyncAction.UPDATE, "it was changed here" if here != there else f"as a {method}")
        )
    if here == there:
        return SyncAction.UNCHANGED, ""
    if here == put.sha256:
        return SyncAction.PULL_EDIT, "it was changed there"
    return SyncAction.CONFLICT, "it was changed here and there" if here else "removed here, but changed there"


def decide_sync_removal(there: str, put: SyncLockfileEntry, *, is_link: bool) -> tuple[SyncAction, str]:
    """Return the step for a skill that is no longer wanted there; removing a link never loses an edit."""
    if not there:
        return SyncAction.UNTRACK, "it was removed there"
    return (
        (SyncAction.REMOVE, "")
        if is_link or there == put.sha256
        else (SyncAction.CONFLICT, "it was changed there; it stays")
    )
