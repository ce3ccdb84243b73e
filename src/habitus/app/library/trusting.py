"""Trust in skills as they are now (a project's, an imported one, one's own code), and in a project's packages."""

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
    """The content that a decision about trust covers: root → name → files."""

    roots: Mapping[str, Mapping[str, Tree]]
    # A single skill of a root; what else is trusted in that root stays trusted.
    is_part: bool = False

    @property
    def count(self) -> int:
        """Return the number of skills."""
        return sum(len(skills) for skills in self.roots.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Dangers:
    """The powers and findings of a skill, to read before trusting it."""

    root: str
    name: str
    powers: tuple[str, ...]
    findings: tuple[str, ...]


def trustable(home: Home, target: str | None) -> Trustable:
    """Resolve a target: a project's path (default: this project), another agent, a skill, or an allowed package."""
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
            f"There are no skill folders in the project at {where}.", hint="Looked for .habitus, .claude and .agents."
        )
    return Trustable(roots=roots)


def trustable_skill(skills: Library, name: str) -> Trustable:
    """Resolve one skill by name only."""
    # Never a path: remote callers must not name directories.
    return Trustable(roots=_one(skills, name), is_part=True)


def _all(layer: Layer) -> dict[str, Tree]:
    return {summary.name: layer.store.tree(summary.name) or {} for summary in layer.store.list_summaries()}


def _one(skills: Library, name: str) -> dict[str, dict[str, Tree]]:
    """Return the root under which a skill is trusted. Raises `NotFound` if it needs no trust."""
    item = skills.find(name)
    tree = skills.tree(f"{item.name}@{item.layer}")
    if claims_root := skills.layer(item.layer).claims_root:
        return {claims_root: {item.name: tree}}
    if item.summary is not None and item.summary.source is Source.IMPORTED:
        return {IMPORTED: {item.name: tree}}
    if (item.summary is not None and Stage.CODE in item.summary.stages) or brings_code(tree):
        return {APPROVED: {item.name: tree}}
    raise NotFound(f"'{item.name}' was not imported, so it needs no trust.", hint="Give a project directory.")


def is_trusted(trust: Trust, approvals: Trust, found: Trustable) -> bool:
    """Whether all of the content is trusted as it is now."""
    for root in found.roots:
        # Reads what other processes have stored since.
        _trust_store_of(trust, approvals, root).revision()
    return all(
        _trust_store_of(trust, approvals, root).is_trusted_as_it_is(root, name, tree_hash(tree))
        for root, skills in found.roots.items()
        for name, tree in skills.items()
    )


def dangers(scan: Callable[[Tree], list[str]], found: Trustable) -> tuple[Dangers, ...]:
    """Return the powers and scan findings of each skill."""
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
    """Whether skills may act as they are now, with their risks and, after a change, the revoked names."""

    is_trusted: bool
    dangers: tuple[Dangers, ...]
    revoked: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


def look_at_trust(
    home: Home, found: Trustable, *, revoked: tuple[str, ...] = (), undo: tuple[str, ...] = ()
) -> TrustState:
    """Return the trust status of the target."""
    is_trusted_now = is_trusted(home.trust, home.approvals, found)
    return TrustState(is_trusted=is_trusted_now, dangers=dangers(home.scan, found), revoked=revoked, undo=undo)


def give_trust(home: Home, found: Trustable, target: str | None) -> TrustState:
    """Trust the target as it is now; `target` is the name the person used for it."""
    was_trusted = is_trusted(home.trust, home.approvals, found)
    trust(home, found)
    return look_at_trust(home, found, undo=() if was_trusted else ("trust", "--revoke", *filter(None, [target])))


def take_trust(home: Home, found: Trustable, target: str | None) -> TrustState:
    """Stop trusting the target; `undo` is empty if it was trusted only in part."""
    was_trusted = is_trusted(home.trust, home.approvals, found)
    revoked = revoke(home.trust, home.approvals, found)
    undo = ("trust", *filter(None, [target])) if was_trusted and revoked else ()
    return look_at_trust(home, found, revoked=revoked, undo=undo)


def trust(home: Home, found: Trustable) -> None:
    """Store trust in every skill of the target."""
    for root, skills in found.roots.items():
        if found.is_part:
            for name, tree in skills.items():
                trees.refuse_clash(name, tree)
        _trust_store_of(home.trust, home.approvals, root).trust(
            root, skills, home.settings.signature, adds=found.is_part
        )


def revoke(trust: Trust, approvals: Trust, found: Trustable) -> tuple[str, ...]:
    """Remove trust, and return the roots or skills that were trusted."""
    revoked: list[str] = []
    for root, skills in found.roots.items():
        if found.is_part:
            revoked += [name for name in skills if _trust_store_of(trust, approvals, root).revoke(root, name)]
        # A whole root is always a folder of this machine, never approved code.
        elif trust.revoke(root):
            revoked.append(root)
    return tuple(revoked)


def list_trusted(home: Home) -> tuple[Trusted, ...]:
    """Return all trusted content, including approvals from a shared database."""
    shared = home.approvals.list() if home.settings.database else []
    return (*home.trust.list(), *shared)


def _trust_store_of(trust: Trust, approvals: Trust, root: str) -> Trust:
    """Return the store for a root: approved code travels with its skills, all else belongs to this machine."""
    return approvals if root == APPROVED else trust


_CHOICES = (Consent.YES, Consent.NO, Consent.ALWAYS)


def root_of(project: str) -> str:
    """Return the root under which a project's packages are trusted one by one."""
    return f"{PACKAGES}{project}"


def allowed_packages(home: Home) -> tuple[str, ...]:
    """Return the packages that every new scratchpad of this project starts with."""
    return home.trust.names(root_of(home.project))


def asking(home: Home, ask: AskPerson) -> Callable[[str], Awaitable[bool]]:
    """Return a check for package installs: allowed earlier for this project, or asked from the person now."""

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
    """Return the name under which a package is allowed."""
    try:
        wanted = Requirement(package)
    except InvalidRequirement:
        return package
    # A package from a URL is allowed for that URL only, not by its name.
    return package if wanted.url else canonicalize_name(wanted.name)


def _allow(home: Home, name: str) -> None:
    home.trust.trust(root_of(home.project), {name: {}}, home.settings.signature)
