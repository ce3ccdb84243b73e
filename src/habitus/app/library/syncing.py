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
from habitus.files import Tree, content_of, disk_errors, file_of, is_examination, tree_hash, without_examination
from habitus.hosts.connections import lock_folder
from habitus.hosts.known_agents import Host, Scope, host
from habitus.skills import trees
from habitus.skills.edits import diff_trees
from habitus.skills.formats import disk
from habitus.skills.formats.base import CantTake
from habitus.skills.formats.foreign_values import Notes
from habitus.skills.layers.layer import USER, project_root
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import State
from habitus.skills.review import Action, Change
from habitus.skills.sources import lock

# In the agent's folder, next to the copies.
LOCK = ".habitus-lock.json"
# The characters an agent's listing adds around a name and a description.
_LINE = 8


class Manner(StrEnum):
    """How skills are put into an agent's folder."""

    COPY = "copy"
    # There is only one folder then, so an edit there is an edit here.
    LINK = "link"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A sync to perform: agent, scope, skills (all of the user's own if none is named) and method."""

    agent: str
    scope: Scope = Scope.USER
    only: tuple[str, ...] = ()
    manner: Manner = Manner.COPY
    removes: bool = False


class Step(StrEnum):
    """What is done about one skill."""

    PUT = "put"
    UPDATE = "update"
    # An edit made there becomes a version here.
    TAKE_BACK = "take back"
    # The skill is gone here, or no longer wanted there.
    REMOVE = "remove"
    FORGET = "removed there"
    SAME = "unchanged"
    # Both sides changed, so nothing is done.
    CONFLICT = "conflict"
    LEAVE_OUT = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The planned step for one skill."""

    name: str
    step: Step
    reason: str = ""
    # Set for conflicts and for edits that come back.
    diff: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncPlan:
    """The steps in a folder, and the skills over the limit of the agent's listing."""

    wish: Wish
    folder: Path
    steps: tuple[Planned, ...]
    behind: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether applying the plan would change nothing."""
        return all(one.step in (Step.SAME, Step.CONFLICT, Step.LEAVE_OUT) for one in self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Here:
    """A skill of the library with all its files, including large ones."""

    item: Listed
    tree: Tree

    @property
    def version(self) -> int:
        """Return the version of the skill; 0 if it can't be loaded."""
        return self.item.summary.version if self.item.summary else 0


@dataclass(kw_only=True, slots=True)
class _Chosen:
    """The skills to sync, those left out with the reason, and those over the agent's limit."""

    here: dict[str, _Here] = field(default_factory=dict)
    # Maps each name to the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)


def plan(home: Home, wish: Wish, environ: Mapping[str, str]) -> SyncPlan:
    """Plan a sync; nothing is written."""
    found = host(wish.agent)
    if wish.manner is Manner.LINK and not found.follows_links:
        raise Invalid(f"{found.title} does not follow links to skills.", hint="Leave --link out.")
    settings = home.settings
    folder = found.path(found.skills[wish.scope], environ, settings.user_home, project_root(settings.cwd))
    put = lock.entries(folder / LOCK, Synced)
    there = {name: _there(folder, name, put.get(name)) for name in {*put, *wish.only, *_folders(folder)}}
    if wish.removes:
        gone = [name for name in put if not wish.only or name in wish.only]
        steps = [_step(name, _plan_removal(folder, there[name], put[name], name)) for name in sorted(gone)]
        return SyncPlan(wish=wish, folder=folder, steps=tuple(steps))
    return _plan(home, wish, found, folder, put, there)


def _plan(
    home: Home, wish: Wish, found: Host, folder: Path, put: Mapping[str, Synced], there: Mapping[str, Tree]
) -> SyncPlan:
    chosen = _choose_skills(home, wish, found, put, {name: tree for name, tree in there.items() if name not in put})
    steps = [_step(name, (Step.LEAVE_OUT, why)) for name, why in chosen.left_out.items() if name not in put]
    for name in sorted({*chosen.here, *put}):
        mine, yours = chosen.here[name].tree if name in chosen.here else {}, there.get(name, {})
        verdict = decide_step(_hash(mine), _hash(yours), put.get(name), manner=wish.manner)
        if name in chosen.left_out:
            # It was synced before but no longer qualifies, a secret was added, say.
            verdict = _plan_removal(folder, yours, put[name], name)
        if verdict[0] is Step.FORGET and name in wish.only:
            verdict = (Step.PUT, "you named it")
        steps.append(_step(name, verdict, mine, yours))
    return SyncPlan(wish=wish, folder=folder, steps=tuple(steps), behind=tuple(chosen.behind))


def _plan_removal(folder: Path, there: Tree, put: Synced, name: str) -> tuple[Step, str]:
    return decide_removal(_hash(there), put, is_link=(folder / name).is_symlink())


def carry_out(home: Home, planned: SyncPlan, environ: Mapping[str, str]) -> SyncPlan:
    """Apply a plan. Raises `Stale` if anything changed since; risky edits come back as proposals."""
    done: list[Planned] = []
    with lock_folder(planned.folder):
        # Planning again under the lock catches every change since the person saw the plan.
        if plan(home, planned.wish, environ) != planned:
            raise Stale("The skills have changed meanwhile.", hint="Nothing was done; look again.")
        for one in planned.steps:
            done.append(_carry_out(home, planned, one))
    return replace(planned, steps=tuple(done))


def _carry_out(home: Home, planned: SyncPlan, one: Planned) -> Planned:
    """Apply one step."""
    place = planned.folder / one.name
    match one.step:
        case Step.PUT | Step.UPDATE:
            here = _whole(home.skills, home.skills.find(f"{one.name}@{USER}"))
            # The lockfile comes first: after a crash, an unrecorded copy would never be removed.
            _note(planned.folder, one.name, _lock_entry(here, planned.wish.manner))
            _put(home.skills, here, place, planned.wish.manner)
        case Step.TAKE_BACK:
            return _take_back(home, planned, one)
        case Step.REMOVE:
            _remove(place)
            _note(planned.folder, one.name, None)
        case Step.FORGET:
            if place.is_symlink():
                # A link of ours whose target is gone.
                _remove(place)
            _note(planned.folder, one.name, None)
        case Step.SAME | Step.CONFLICT | Step.LEAVE_OUT:
            pass
    return one


def _take_back(home: Home, planned: SyncPlan, one: Planned) -> Planned:
    """Store the edit made there as a version here, or as a proposal if the scan finds something."""
    tree, folder = _there(planned.folder, one.name, None), planned.folder
    author = home.person(f"edited in {folder}")
    problem = trees.parse(one.name, tree)
    if problem.skill is None:
        return replace(one, step=Step.CONFLICT, reason=f"as it is there, it can't be loaded: {problem.diagnostics[-1]}")
    if findings := home.scan(tree):
        change = Change(action=Action.WRITE, name=one.name, layer=USER, tree=tree)
        proposal = home.review.propose(change, author, findings)
        return replace(one, step=Step.CONFLICT, reason=f"it waits: habitus review show {proposal.id} ({findings[0]})")
    version = home.skills.write_tree(USER, one.name, tree, author)
    put = lock.entries(folder / LOCK, Synced)[one.name]
    _note(folder, one.name, replace(put, version=version, sha256=tree_hash(tree)))
    return one


def _choose_skills(
    home: Home, wish: Wish, found: Host, put: Mapping[str, Synced], others: Mapping[str, Tree]
) -> _Chosen:
    """Choose the user's skills that may go there, as many as fit into the agent's listing next to other skills."""
    for name in wish.only:
        # Raises with a suggestion if the name is misspelt.
        home.skills.find(name)
    wanted = [one for one in home.skills.listing() if _is_wanted(one, wish, put)]
    chosen = _Chosen()
    names = {one.name for one in wanted}
    room = found.listing_chars - sum(_characters(name, tree) for name, tree in others.items() if name not in names)
    for item in _in_order(home.skills, wanted, wish, put):
        said = item.summary
        cost = len(item.name) + _LINE + (len(said.description) + len(said.when_to_use) if said else 0)
        if found.listing_chars and cost > room and item.name not in put:
            chosen.behind.append(item.name)
            continue
        whole = _whole(home.skills, item)
        if reason := _objection(home, found, wish, whole):
            chosen.left_out[item.name] = reason
        else:
            chosen.here[item.name] = whole
            room -= cost
    return chosen


def _is_wanted(item: Listed, wish: Wish, put: Mapping[str, Synced]) -> bool:
    is_meant = not wish.only or item.name in wish.only or item.name in put
    return is_meant and (item.layer == USER or item.name in wish.only)


def _objection(home: Home, found: Host, wish: Wish, here: _Here) -> str:
    """Return why a skill must not go there; empty if it may."""
    item = here.item
    if item.layer != USER:
        return f"it is in the layer '{item.layer}', not in your own"
    if item.state is not State.OK or item.summary is None:
        return item.reason or item.state.value
    if item.summary.manifest.extends:
        return "it extends another skill, and is not whole without it"
    if reason := home.skills.unreviewed_origin(item) or home.skills.untrusted_notice(item):
        return f"{reason}, and nobody has looked at it"
    if missing := disk.missing_content(here.tree):
        return missing
    if findings := home.scan(here.tree):
        return findings[0]
    if any(_has_secret(home.redact, file.content or b"") for file in here.tree.values()):
        return "there is a secret in it"
    if found.description_chars and len(item.summary.description) > found.description_chars:
        return f"{found.title} takes no description of more than {found.description_chars:,} characters"
    if wish.manner is Manner.LINK and home.skills.directory(f"{item.name}@{USER}") is None:
        return "it has no folder that a link could lead to"
    if wish.manner is Manner.LINK and any(map(is_examination, home.skills.layer(USER).store.tree(item.name) or {})):
        return "a link would show the agent what it is examined by (evals/); leave --link out"
    return ""


def _has_secret(redact: Callable[[str], str], content: bytes) -> bool:
    text = content.decode("utf-8", "ignore")
    return redact(text) != text


def _whole(skills: Library, item: Listed) -> _Here:
    store = skills.layer(item.layer).store
    tree, folder = without_examination(store.tree(item.name) or {}), store.directory(item.name)
    found = dict(tree)
    for path, file in tree.items():
        try:
            found[path] = replace(file, content=content_of(path, file, folder))
        except OSError:
            # A missing file is reported by `_find_objection`.
            continue
    return _Here(item=item, tree=found)


def _in_order(skills: Library, items: Sequence[Listed], wish: Wish, put: Mapping[str, Synced]) -> list[Listed]:
    """Sort skills: named ones first, then those synced already, then by use."""
    counters = skills.all_counters()

    def used(name: str) -> int:
        return sum(counted.used + counted.recommended for counted in counters.get((USER, name), {}).values())

    return sorted(items, key=lambda one: (one.name not in wish.only, one.name not in put, -used(one.name), one.name))


def _folders(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []


def _there(folder: Path, name: str, put: Synced | None) -> Tree:
    """Read the agent's copy of a skill; empty if there is none, a placeholder if it can't be read."""
    place = folder / name
    if put is not None and put.manner == Manner.LINK and place.is_symlink():
        place = place.resolve()
    if not place.is_dir() or not trees.main_file(one.name for one in place.iterdir()):
        # Something that is no skill is in the way: a placeholder that equals nothing makes it a conflict.
        return {} if not os.path.lexists(place) else {"?": file_of(b"")}
    try:
        return without_examination(disk.read_folder(place, Notes(name)))
    except (CantTake, OSError):
        return {"?": file_of(b"")}


def _put(skills: Library, here: _Here, place: Path, manner: Manner) -> None:
    with disk_errors(place):
        _remove(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        if manner is Manner.LINK:
            place.symlink_to(skills.layer(USER).store.directory(here.item.name) or place)
        else:
            with disk.export_place(place, overwrite=False) as aside:
                disk.write_tree(aside, here.tree)


def _remove(place: Path) -> None:
    with disk_errors(place):
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            shutil.rmtree(place)


def _lock_entry(here: _Here, manner: Manner) -> Synced:
    return Synced(version=here.version, sha256=tree_hash(here.tree), origin=f"habitus:{USER}", manner=manner)


def _note(folder: Path, name: str, synced: Synced | None) -> None:
    """Record a skill in the lockfile, or remove it; an empty lockfile is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    put = lock.entries(folder / LOCK, Synced)
    put.pop(name, None)
    if synced is not None:
        put[name] = synced
    if put:
        lock.write(folder / LOCK, put)
    else:
        (folder / LOCK).unlink(missing_ok=True)


def _step(name: str, verdict: tuple[Step, str], here: Tree | None = None, there: Tree | None = None) -> Planned:
    step, reason = verdict
    shows = step in (Step.CONFLICT, Step.TAKE_BACK) and here is not None and there is not None
    diff = diff_trees(here or {}, there or {}, f"{name} here", f"{name} there") if shows else ""
    return Planned(name=name, step=step, reason=reason, diff=diff)


def _hash(tree: Tree) -> str:
    return tree_hash(tree) if tree else ""


def _characters(name: str, tree: Tree) -> int:
    """Return the room that another tool's skill takes in the agent's listing."""
    skill = trees.parse(name, tree).skill if trees.main_file(tree) else None
    return len(name) + _LINE + (len(skill.description) + len(skill.when_to_use) if skill else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """A lockfile entry: the version and hash of a skill as we wrote it, and its origin."""

    version: int
    sha256: str
    origin: str
    manner: Manner


def decide_step(here: str, there: str, put: Synced | None, *, manner: Manner) -> tuple[Step, str]:
    """Return the step for a skill and its reason, from the hashes of both sides; a missing side is empty."""
    if put is None:
        if not there:
            return Step.PUT, ""
        same = "the same is there already" if here == there else "another skill of this name is there"
        return (Step.LEAVE_OUT if here == there else Step.CONFLICT), f"{same}, which we did not put there"
    if not there:
        return Step.FORGET, "it was removed there"
    if there == put.sha256:
        if not here:
            return Step.REMOVE, "it is gone here"
        is_same = here == there and manner == put.manner
        return (
            (Step.SAME, "") if is_same else (Step.UPDATE, "it was changed here" if here != there else f"as a {manner}")
        )
    if here == there:
        return Step.SAME, ""
    if here == put.sha256:
        return Step.TAKE_BACK, "it was changed there"
    return Step.CONFLICT, "it was changed here and there" if here else "it is gone here, and was changed there"


def decide_removal(there: str, put: Synced, *, is_link: bool) -> tuple[Step, str]:
    """Return the step for a skill that is no longer wanted there; removing a link never loses an edit."""
    if not there:
        return Step.FORGET, "it was removed there"
    return (Step.REMOVE, "") if is_link or there == put.sha256 else (Step.CONFLICT, "it was changed there; it stays")
