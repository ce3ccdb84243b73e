"""Trusting a project's skills, an imported one or one's own code as they are now, and packages for a project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from habitus.agent.background import in_thread
from habitus.agent.stream import AskPerson, Consent, Question
from habitus.app.home import Home
from habitus.errors import NotFound
from habitus.files import Tree, given_path, tree_hash
from habitus.skills import trees
from habitus.skills.layers.layer import AGENTS, Layer
from habitus.skills.library import Library
from habitus.skills.model import Source, Stage
from habitus.skills.sources.trust import APPROVED, IMPORTED, PACKAGES, Trust, Trusted, brings_code, powers


@dataclass(frozen=True, kw_only=True, slots=True)
class Trustable:
    """Skills that somebody may trust: root → name → files."""

    roots: Mapping[str, Mapping[str, Tree]]
    is_part: bool = False  # one skill of a root; what else is trusted there stays trusted

    @property
    def count(self) -> int:
        return sum(len(skills) for skills in self.roots.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Dangers:
    """Dangers of a skill, to read before saying yes."""

    root: str
    name: str
    powers: tuple[str, ...]
    findings: tuple[str, ...]


def trustable(home: Home, target: str | None) -> Trustable:
    """The skills of the project at a path, by default this one; those of another agent; one skill; or one package."""
    if target in AGENTS:
        layer = home.skills.layer(target)
        return Trustable(roots={layer.claims_root: _all(layer)})
    if target in allowed_packages(home) and not home.skills.is_taken(target):
        return Trustable(roots={root_of(home.project): {target: {}}}, is_part=True)
    if target is not None and "/" not in target and not given_path(target).is_dir():
        return trustable_skill(home.skills, target)
    there = home.seen_from(given_path(target).resolve() if target else home.settings.cwd)
    roots = {layer.trust_root: _all(layer) for layer in there.skills.layers if layer.trust_root}
    if not roots:
        where = target or "this directory"
        raise NotFound(
            f"There are no skill folders in the project at {where}.", mend="Looked for .habitus, .claude and .agents."
        )
    return Trustable(roots=roots)


def trustable_skill(skills: Library, name: str) -> Trustable:
    """One skill, whatever directory is called the same: for those who may not name directories."""
    return Trustable(roots=_one(skills, name), is_part=True)


def _all(layer: Layer) -> dict[str, Tree]:
    return {summary.name: layer.store.tree(summary.name) or {} for summary in layer.store.list_summaries()}


def _one(skills: Library, name: str) -> dict[str, dict[str, Tree]]:
    item = skills.find(name)
    tree = skills.tree(f"{item.name}@{item.layer}")
    if claims_root := skills.layer(item.layer).claims_root:
        return {claims_root: {item.name: tree}}
    if item.summary is not None and item.summary.source is Source.IMPORTED:
        return {IMPORTED: {item.name: tree}}
    if (item.summary is not None and Stage.CODE in item.summary.stages) or brings_code(tree):
        return {APPROVED: {item.name: tree}}
    raise NotFound(f"'{item.name}' was not imported, so it needs no trust.", mend="Give a project directory.")


def is_trusted(trust: Trust, approvals: Trust, found: Trustable) -> bool:
    """Whether all of them are trusted as they are, by whichever process."""
    for root in found.roots:
        _trust_store_of(trust, approvals, root).revision()
    return all(
        _trust_store_of(trust, approvals, root).is_trusted_as_it_is(root, name, tree_hash(tree))
        for root, skills in found.roots.items()
        for name, tree in skills.items()
    )


def dangers(scan: Callable[[Tree], list[str]], found: Trustable) -> tuple[Dangers, ...]:
    """The powers of each of them, and the findings of a scan."""
    return tuple(
        Dangers(
            root=root,
            name=name,
            powers=tuple(sorted(map(str, powers(name, tree)))),
            findings=tuple(scan(tree)),
        )
        for root, skills in found.roots.items()
        for name, tree in sorted(skills.items())
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustState:
    """Whether skills may act as they are now, and what they can do; after a change, with what is no longer trusted."""

    is_trusted: bool
    dangers: tuple[Dangers, ...]
    revoked: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


def look_at_trust(
    home: Home, found: Trustable, *, revoked: tuple[str, ...] = (), undo: tuple[str, ...] = ()
) -> TrustState:
    is_trusted_now = is_trusted(home.trust, home.approvals, found)
    return TrustState(is_trusted=is_trusted_now, dangers=dangers(home.scan, found), revoked=revoked, undo=undo)


def give_trust(home: Home, found: Trustable, target: str | None) -> TrustState:
    """Trust them as they are; `target` is what somebody named them by."""
    was_trusted = is_trusted(home.trust, home.approvals, found)
    trust(home, found)
    return look_at_trust(home, found, undo=() if was_trusted else ("trust", "--revoke", *filter(None, [target])))


def take_trust(home: Home, found: Trustable, target: str | None) -> TrustState:
    """Trust them no longer; what was trusted only in part, no command brings back."""
    was_trusted = is_trusted(home.trust, home.approvals, found)
    revoked = revoke(home.trust, home.approvals, found)
    undo = ("trust", *filter(None, [target])) if was_trusted and revoked else ()
    return look_at_trust(home, found, revoked=revoked, undo=undo)


def trust(home: Home, found: Trustable) -> None:
    for root, skills in found.roots.items():
        if found.is_part:
            for name, tree in skills.items():
                trees.refuse_clash(name, tree)
        _trust_store_of(home.trust, home.approvals, root).trust(
            root, skills, home.settings.signature, adds=found.is_part
        )


def revoke(trust: Trust, approvals: Trust, found: Trustable) -> tuple[str, ...]:
    """Trust them no longer; says which roots, or skills, were trusted."""
    revoked: list[str] = []
    for root, skills in found.roots.items():
        if found.is_part:
            revoked += [name for name in skills if _trust_store_of(trust, approvals, root).revoke(root, name)]
        elif trust.revoke(root):
            revoked.append(root)
    return tuple(revoked)


def list_trusted(home: Home) -> tuple[Trusted, ...]:
    shared = home.approvals.list() if home.settings.database else []
    return (*home.trust.list(), *shared)


def _trust_store_of(trust: Trust, approvals: Trust, root: str) -> Trust:
    """Where trust in a root is kept: approved code with the skills it belongs to, all else with this machine."""
    return approvals if root == APPROVED else trust


_CHOICES = (Consent.YES, Consent.NO, Consent.ALWAYS)


def root_of(project: str) -> str:
    """The root under which the packages of a project are trusted, one by one."""
    return f"{PACKAGES}{project}"


def allowed_packages(home: Home) -> tuple[str, ...]:
    """Packages that every new scratchpad of this project begins with."""
    return home.trust.names(root_of(home.project))


def asking(home: Home, ask: AskPerson) -> Callable[[str], Awaitable[bool]]:
    """Whether a package may be installed: as said before for this project, or as the person who is there says now."""

    async def may_install(package: str) -> bool:
        name = _name(package)
        if name in await in_thread(lambda: allowed_packages(home)):
            return True
        answer = await ask(Question(text=f"Install the package '{package}'?", choices=_CHOICES))
        if answer is Consent.ALWAYS:
            await in_thread(lambda: _allow(home, name))
        return answer in (Consent.YES, Consent.ALWAYS)

    return may_install


def _name(package: str) -> str:
    """What a word once given for a package goes by; one from an address of its own goes by all of it."""
    try:
        wanted = Requirement(package)
    except InvalidRequirement:
        return package
    return package if wanted.url else canonicalize_name(wanted.name)


def _allow(home: Home, name: str) -> None:
    home.trust.trust(root_of(home.project), {name: {}}, home.settings.signature)
