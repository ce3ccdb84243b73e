"""What keeps a skill from being offered: switches, rights, features and tools; and which packages it will miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from habitus.skills import names
from habitus.skills.model import PLAIN_MANIFEST, Manifest, Summary

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_GATING_FIELDS = ("admin_only", "experimental", "dependencies", "requires_tools")


@dataclass(frozen=True, kw_only=True, slots=True)
class Packages:
    """Which Python packages are installed, looked up without importing any."""

    version_of: Callable[[str], str | None] = lambda name: _installed_version(name)
    requires_of: Callable[[str], list[str]] = lambda name: _installed_requirements(name)
    _known: dict[str, str] = field(default_factory=dict)

    def missing(self, requirement: str) -> str:
        """Why a requirement is not met, or nothing when it is."""
        if requirement not in self._known:
            self._known[requirement] = _missing(requirement, self)
        return self._known[requirement]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateContext:
    """What the gates are checked against. `tools` is None where no agent is there to have any; without `layers`,
    those of every layer are offered."""

    disabled: frozenset[str] = frozenset()
    is_admin: bool = True
    features: frozenset[str] = frozenset()
    tools: frozenset[str] | None = None
    layers: frozenset[str] = frozenset()


def disabled_by(summary: Summary, context: GateContext) -> str:
    """Who switched the skill off, or nothing."""
    if not summary.enabled:
        return "switched off"
    if summary.name in context.disabled:
        return "switched off in the settings"
    return ""


def is_barred(summary: Summary, context: GateContext) -> bool:
    """Whether the skill is switched off or closed for somebody."""
    return bool(disabled_by(summary, context) or closed_gates(summary, context))


def closed_gates(summary: Summary, context: GateContext) -> list[str]:
    """The gates that are closed for this skill, each with what would open it."""
    manifest = summary.manifest
    if context.layers and summary.layer not in context.layers:
        return [f"its layer '{summary.layer}' is not offered here"]
    if manifest is PLAIN_MANIFEST:  # nearly every skill of thousands
        return []
    reasons = [f"its '{name}' can't be read" for name in manifest.unreadable if name in _GATING_FIELDS]
    if manifest.admin_only and not context.is_admin:
        reasons.append("for administrators only")
    if manifest.experimental and not _has_feature(summary.name, context.features):
        reasons.append(f"experimental; add 'skill_{names.callable_name(summary.name)}' to [experimental] features")
    reasons += _missing_tools(manifest, context)
    return reasons


def missing_packages(manifest: Manifest, packages: Packages) -> tuple[str, ...]:
    """What a skill needs and Habitus's own environment lacks. It closes nothing: scripts and tools run elsewhere."""
    missing = (packages.missing(text) for text in manifest.dependencies)
    return tuple(f"It {reason}; install it where its scripts run." for reason in missing if reason)


def _has_feature(name: str, features: Iterable[str]) -> bool:
    return f"skill-{name}" in {names.canonical(feature) for feature in features}


def _missing_tools(manifest: Manifest, context: GateContext) -> list[str]:
    if context.tools is None:
        return []
    known = {names.canonical(tool) for tool in context.tools}
    return [f"needs the tool '{tool}'" for tool in manifest.requires_tools if names.canonical(tool) not in known]


def _missing(text: str, packages: Packages, seen: frozenset[str] = frozenset()) -> str:
    requirement = _parse_requirement(text)
    if requirement is None:
        return f"says '{text}', which is no requirement that can be checked"
    if requirement.marker is not None and not requirement.marker.evaluate():
        return ""
    version = packages.version_of(requirement.name)
    if version is None:
        return f"needs the package '{text}'"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"needs '{text}', and {version} is installed"
    for extra in sorted(requirement.extras):
        for below in _required_by(extra, packages.requires_of(requirement.name)):
            reason = "" if below in seen else _missing(below, packages, seen | {below})
            if reason:
                return f"{reason} (for '{text}')"
    return ""


def _required_by(extra: str, requirements: Iterable[str]) -> Iterator[str]:
    """What an extra adds to a package. A line of the package's own that makes no sense is nobody's to mend here."""
    for text in requirements:
        part = _parse_requirement(text)
        if part is None or part.marker is None or part.marker.evaluate({"extra": ""}):
            continue
        if part.marker.evaluate({"extra": extra}):
            part.marker = None
            yield str(part)


def _parse_requirement(text: str) -> Requirement | None:
    from packaging.requirements import InvalidRequirement, Requirement  # only skills with dependencies need it

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # as above

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _installed_requirements(name: str) -> list[str]:
    from importlib.metadata import requires  # as above

    return requires(name) or []
