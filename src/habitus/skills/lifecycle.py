"""Decisions about a skill as pure functions: the state it is in, how far a stage can be relied on, and what becomes
of it; the gates that keep it from being offered: switches, rights, features and tools; and which packages it will
miss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.skills import names
from habitus.skills.model import PLAIN_MANIFEST, Counters, Manifest, Stage, State, Summary

if TYPE_CHECKING:
    from packaging.requirements import Requirement


_LOW = 0.1  # reliability is the lower 10 % bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The state of a skill with the reason, in words for a person."""

    state: State
    reason: str = ""


def standing(
    *, problem: str | None, distrusted_for: str, held_for: str, disabled_by: str, closed_gates: Sequence[str]
) -> Standing:
    """The first thing that keeps a skill from use decides what a listing calls it."""
    if problem is not None:
        return Standing(state=State.BROKEN, reason=problem)
    if distrusted_for:
        return Standing(state=State.UNTRUSTED, reason=distrusted_for)
    if held_for:
        return Standing(state=State.HELD, reason=held_for)
    if disabled_by:
        return Standing(state=State.DISABLED, reason=disabled_by)
    if closed_gates:
        return Standing(state=State.GATED, reason="; ".join(closed_gates))
    return _OK


_OK = Standing(state=State.OK)


class Transition(StrEnum):
    """The next step of an item when its worth is known; a person decides about each, and each can be taken back."""

    STAY = "stay"
    CLIMB = "climb"  # it has earned its next stage
    ROLL_BACK = "roll back"  # to the version before
    HIDE = "hide"  # off the menu; people can still call it
    RETIRE = "retire"  # switched off; of a lesson, put away


@dataclass(frozen=True, kw_only=True, slots=True)
class Worth:
    """The worth of an item: what bounds prove, where they prove anything yet, and how its uses went."""

    counters: Counters = field(default_factory=Counters)
    helps: bool = False
    is_useless: bool = False
    does_harm: bool = False
    is_worse: bool = False  # than the version before it


def transition(worth: Worth, *, reliable: float) -> Transition:
    """Of a skill or a recipe. Bounds decide as soon as they prove something; until then, how its uses went.

    A better version before it comes back before all else.
    """
    if worth.is_worse:
        return Transition.ROLL_BACK
    if worth.does_harm:
        return Transition.RETIRE
    if worth.is_useless:
        return Transition.HIDE
    if worth.helps or serves(worth.counters, reliable):
        return Transition.CLIMB
    return Transition.RETIRE if fails(worth.counters, reliable) else Transition.STAY


def lesson_transition(worth: Worth, *, is_verified: bool, reliable: float) -> Transition:
    """Of a lesson: harm puts it away, and one that a trial verified climbs when it served; retention does the rest."""
    if worth.does_harm:
        return Transition.RETIRE
    is_earned = worth.helps or (is_verified and serves(worth.counters, reliable))
    return Transition.CLIMB if is_earned and not worth.is_useless else Transition.STAY


def above(stages: Collection[Stage]) -> tuple[Stage, ...]:
    """Where a skill that has these stages can climb to, the nearest first."""
    return _LADDER[max(map(_LADDER.index, stages)) + 1 :]


_LADDER = (Stage.STEPS, Stage.CHUNKS, Stage.CODE)


def serves(counters: Counters, reliable: float) -> bool:
    """Whether its uses went well often enough to rely on it."""
    return is_judged(counters) and reliability(counters) >= reliable


def fails(counters: Counters, reliable: float) -> bool:
    """Whether it is as sure to fail as a reliable one is to serve."""
    return serves(replace(counters, succeeded=counters.failed, failed=counters.succeeded), reliable)


def is_judged(counters: Counters) -> bool:
    """Whether anybody could say how a use went."""
    return bool(counters.succeeded or counters.failed)


def reliability(counters: Counters) -> float:
    """Lower 10 % bound of Beta(1 + succeeded, 1 + failed): low while little is known, high only after proof."""
    a, b = 1.0 + counters.succeeded, 1.0 + counters.failed
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if _beta_cdf(a, b, middle) < _LOW:
            low = middle
        else:
            high = middle
    return low


def _beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function for 0 < x < 1, by its continued fraction on the side where that
    converges fast."""
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_cdf(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    """By Lentz's algorithm. On this side `(a + b) * x` is less than `a + 1`, so the first divisor is positive."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    total = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            total *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return total


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
    """The facts that gates are checked against. `tools` is None where no agent is there to have any; without `layers`,
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
    """Packages that a skill needs and Habitus's own environment lacks. It closes nothing: scripts and tools run
    elsewhere."""
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
        return f"says '{text}', which is not a requirement that can be checked"
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
    """The requirements that an extra adds to a package. A line of the package's own that makes no sense is nobody's to
    mend here."""
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
