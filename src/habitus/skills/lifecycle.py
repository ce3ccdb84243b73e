"""Lifecycle decisions as pure functions: the reliability of a skill's stages, its next transition, what disables it or
closes its gates, and the packages it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.skills import names
from habitus.skills.model import DEFAULT_MANIFEST, Manifest, SkillSummary, Stage
from habitus.use_counts import UsageCounts

if TYPE_CHECKING:
    from packaging.requirements import Requirement


# Reliability is the lower 10 % bound.
_LOWER_BOUND = 0.1
# An item whose upper bound is below this does more harm than good.
_FAILING_BELOW = 0.5


class LifecycleTransitionKind(StrEnum):
    """The next step for an item, given its utility. A person approves each, and each can be undone."""

    STAY = "stay"
    CLIMB = "climb"  # it has earned its next stage
    ROLL_BACK = "roll back"  # to the previous version
    HIDE = "hide"  # off the menu; people can still call it
    RETIRE = "retire"  # disabled; a lesson is archived


@dataclass(frozen=True, kw_only=True, slots=True)
class UtilityAssessment:
    """The utility of an item: what the evidence proves, if anything yet, and its usage counters."""

    counters: UsageCounts = field(default_factory=UsageCounts)
    helps: bool = False
    is_useless: bool = False
    does_harm: bool = False
    is_worse: bool = False  # than the previous version


def decide_transition(assessment: UtilityAssessment, *, threshold: float) -> LifecycleTransitionKind:
    """Decide the next transition of a skill or recipe. Proven evidence decides; until there is any, the usage
    counters do.
    """
    # A better earlier version exists, so going back beats every other remedy.
    if assessment.is_worse:
        return LifecycleTransitionKind.ROLL_BACK
    if assessment.does_harm:
        return LifecycleTransitionKind.RETIRE
    if assessment.is_useless:
        return LifecycleTransitionKind.HIDE
    if assessment.helps or is_reliable(assessment.counters, threshold):
        return LifecycleTransitionKind.CLIMB
    return LifecycleTransitionKind.RETIRE if is_failing(assessment.counters) else LifecycleTransitionKind.STAY


def decide_lesson_transition(
    judged: UtilityAssessment, *, is_verified: bool, threshold: float
) -> LifecycleTransitionKind:
    """Decide the next transition of a lesson: retire it if it does harm, let it climb if it is verified and useful.
    Retention handles the rest.
    """
    if judged.does_harm:
        return LifecycleTransitionKind.RETIRE
    is_earned = judged.helps or (is_verified and is_reliable(judged.counters, threshold))
    return LifecycleTransitionKind.CLIMB if is_earned and not judged.is_useless else LifecycleTransitionKind.STAY


def list_higher_stages(stages: Collection[Stage]) -> tuple[Stage, ...]:
    """Return the stages that a skill can still climb to, the next one first."""
    return _STAGE_ORDER[max(map(_STAGE_ORDER.index, stages)) + 1 :]


_STAGE_ORDER = (Stage.STEPS, Stage.CHUNKS, Stage.CODE)


def is_reliable(counters: UsageCounts, threshold: float) -> bool:
    """Whether the uses succeeded often enough to rely on."""
    return has_outcomes(counters) and compute_success_rate_lower_bound(counters) >= threshold


def is_failing(counters: UsageCounts) -> bool:
    """Whether it fails more often than it succeeds, even by the upper 90 % bound of Beta(1 + succeeded, 1 + failed)."""
    # The upper bound of successes is the lower bound of failures, seen from the other side.
    swapped = replace(counters, succeeded=counters.failed, failed=counters.succeeded)
    return has_outcomes(counters) and 1 - compute_success_rate_lower_bound(swapped) < _FAILING_BELOW


def has_outcomes(counters: UsageCounts) -> bool:
    """Whether any use has a known outcome."""
    return bool(counters.succeeded or counters.failed)


def compute_success_rate_lower_bound(counters: UsageCounts) -> float:
    """Return the lower 10 % bound of Beta(1 + succeeded, 1 + failed): low with little data, high only after many
    successes.
    """
    a, b = 1.0 + counters.succeeded, 1.0 + counters.failed
    low, high = 0.0, 1.0
    # Fifty halvings reach the precision of a float; this avoids a dependency on SciPy.
    for _ in range(50):
        middle = (low + high) / 2
        if _compute_beta_cdf(a, b, middle) < _LOWER_BOUND:
            low = middle
        else:
            high = middle
    return low


def _compute_beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function for 0 < x < 1, by its continued fraction."""
    # The fraction converges fast only on this side of the mean; the other side follows by symmetry.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _compute_beta_cdf(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _compute_continued_fraction(a, b, x) / a


def _compute_continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function with Lentz's algorithm."""
    tiny = 1e-300
    # The caller ensures (a + b) * x < a + 1, so the first divisor is positive.
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    total = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            # Lentz's algorithm replaces a divisor near zero by a tiny number instead of failing.
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            total *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return total


_GATING_FIELDS = ("admin_only", "experimental", "dependencies", "requires_tools")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackages:
    """The installed Python packages, looked up without importing them."""

    # Lambdas defer the lookup of functions that are defined further down.
    version_of: Callable[[str], str | None] = lambda name: _read_installed_version(name)
    requires_of: Callable[[str], list[str]] = lambda name: _read_installed_requirements(name)
    _known: dict[str, str] = field(default_factory=dict)

    def explain_unmet_requirement(self, requirement: str) -> str:
        """Explain why a requirement is not met; empty if it is."""
        if requirement not in self._known:
            self._known[requirement] = _explain_missing_package(requirement, self)
        return self._known[requirement]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateContext:
    """The facts that gates are checked against. `tools` is None if there is no agent; an empty `layers` offers every
    layer.
    """

    disabled: frozenset[str] = frozenset()
    is_admin: bool = True
    features: frozenset[str] = frozenset()
    tools: frozenset[str] | None = None
    layers: frozenset[str] = frozenset()


def explain_disabled(summary: SkillSummary, context: GateContext) -> str:
    """Explain what disabled the skill; empty if it is enabled."""
    if not summary.enabled:
        return "switched off"
    if summary.name in context.disabled:
        return "switched off in the settings"
    return ""


def is_unavailable(summary: SkillSummary, context: GateContext) -> bool:
    """Whether the skill is disabled, or gated in this context."""
    return bool(explain_disabled(summary, context) or list_closed_gates(summary, context))


def list_closed_gates(summary: SkillSummary, context: GateContext) -> list[str]:
    """Return the closed gates of a skill, each with what would open it."""
    manifest = summary.manifest
    if context.layers and summary.layer not in context.layers:
        return [f"its layer '{summary.layer}' is not offered here"]
    # Nearly all skills have the default manifest, and a listing checks thousands.
    if manifest is DEFAULT_MANIFEST:
        return []
    # An unreadable gate stays closed: guessing could open what its author meant to restrict.
    reasons = [f"its '{name}' can't be read" for name in manifest.unreadable if name in _GATING_FIELDS]
    if manifest.admin_only and not context.is_admin:
        reasons.append("for administrators only")
    if manifest.experimental and not _is_feature_enabled(summary.name, context.features):
        reasons.append(f"experimental; add 'skill_{names.to_tool_name(summary.name)}' to [experimental] features")
    reasons += _explain_missing_tools(manifest, context)
    return reasons


def explain_missing_packages(manifest: Manifest, packages: InstalledPackages) -> tuple[str, ...]:
    """Return a sentence for each package that the skill needs and this environment lacks. They close no gate, because
    scripts and tools run elsewhere.
    """
    missing = (packages.explain_unmet_requirement(text) for text in manifest.dependencies)
    return tuple(f"It {reason}; install it where its scripts run." for reason in missing if reason)


def _is_feature_enabled(name: str, features: Iterable[str]) -> bool:
    return f"skill_{names.to_tool_name(name)}" in {names.to_tool_name(feature) for feature in features}


def _explain_missing_tools(manifest: Manifest, context: GateContext) -> list[str]:
    if context.tools is None:
        return []
    have = {names.canonicalize_name(tool) for tool in context.tools}
    return [f"needs the tool '{tool}'" for tool in manifest.requires_tools if names.canonicalize_name(tool) not in have]


def _explain_missing_package(text: str, packages: InstalledPackages, seen: frozenset[str] = frozenset()) -> str:
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
        for below in _list_extra_requirements(extra, packages.requires_of(requirement.name)):
            # Extras can refer to each other in a circle; `seen` ends it.
            reason = "" if below in seen else _explain_missing_package(below, packages, seen | {below})
            if reason:
                return f"{reason} (for '{text}')"
    return ""


def _list_extra_requirements(extra: str, requirements: Iterable[str]) -> Iterator[str]:
    """Yield the requirements that an extra adds to a package; invalid lines in the package's metadata are skipped."""
    for text in requirements:
        part = _parse_requirement(text)
        if part is None or part.marker is None or part.marker.evaluate({"extra": ""}):
            continue
        if part.marker.evaluate({"extra": extra}):
            part.marker = None
            yield str(part)


def _parse_requirement(text: str) -> Requirement | None:
    # Imported here because only skills with dependencies need it.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _read_installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # imported late for the same reason

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _read_installed_requirements(name: str) -> list[str]:
    from importlib.metadata import requires  # imported late for the same reason

    return requires(name) or []
