"""Comparisons in use (see `habitus.evidence.comparing`): start one with an approved improvement, and end it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sqlalchemy as sa

from habitus.app.home import Home
from habitus.app.learning.compared_versions import load_version_comparison_exposures, open_comparison_store
from habitus.errors import HabitusError, Invalid, Refused
from habitus.evidence.comparing import ComparisonResult, ComparisonVerdict, compare_versions_in_use
from habitus.evidence.model import EffectEstimate
from habitus.evidence.versions import COMPARISON_PERIOD, ComparisonState, LiveComparison
from habitus.files import Tree, drop_eval_files, has_same_files
from habitus.improve.comparisons import LiveComparisonStore
from habitus.journal.model import ScoredExposure
from habitus.skills import trees
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import ActorKind, Author, Skill
from habitus.skills.proposals import Proposal, ProposalAction, ProposalState, SkillChange

# The share of a comparison that a person asks for.
DEFAULT_SHARE = 0.2
_TEXT_FILES = (".md", ".txt")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonReport:
    """A comparison and what its conversations show so far."""

    comparison: LiveComparison
    result: ComparisonResult

    @property
    def sentence(self) -> str:
        """Return its state and what is known, in words."""
        one = self.comparison
        share = f"{one.share:.0%} of conversations get version {one.old}"
        state = share if one.state is ComparisonState.RUNNING else one.state.value
        return f"version {one.new} against {one.old}, {state}. {self.result.sentence}"


def list_comparison_reports(home: Home, skill: str = "") -> list[ComparisonReport]:
    """Return all comparisons, of one skill or of all, the oldest first."""
    return [_build_comparison_report(home, one) for one in open_comparison_store(home).list_comparisons(skill)]


def _build_comparison_report(home: Home, comparison: LiveComparison) -> ComparisonReport:
    # Loads the statistics of the journal's exposures.
    from habitus.app.learning.evidence import convert_exposures_to_observations

    item, counted = comparison.evidence_item, list_comparison_exposures(home.shared, comparison)
    observations = convert_exposures_to_observations(counted, frozenset({(item.kind.value, item.name)}), home.clock())
    return ComparisonReport(comparison=comparison, result=compare_versions_in_use(observations, exam=comparison.exam))


def list_comparison_exposures(
    engine: sa.Engine, comparison: LiveComparison, user: str | None = None
) -> list[ScoredExposure]:
    """Return the conversations of a comparison, of one user or of all."""
    item, until = comparison.evidence_item, comparison.ended_on
    kept = load_version_comparison_exposures(engine, item.name, user=user)
    return [one for one in kept if one.exposure.version == item.version and (until is None or one.at <= until)]


def start_comparison_after_approval(home: Home, proposal: Proposal) -> None:
    """Start the comparison of an approved improvement with the version before it."""
    share, made = home.settings.evidence.compare_versions, proposal.change.details.get("improve")
    if not (share and made) or proposal.change.action is not ProposalAction.WRITE:
        return
    address = format_skill_address(proposal.change.name, proposal.change.layer)
    try:
        _start_comparison_with_previous_version(
            home, home.skills.find(address), share, candidate=str(made["candidate"])
        )
    except Invalid:
        # It adds code, say: there is nothing that could be compared by its text.
        return


def start_requested_comparison(home: Home, name: str, share: float) -> LiveComparison:
    """Compare the current version of a skill with the one before it, because a person asks for it."""
    if not home.settings.evidence.compare_versions:
        hint = "Switch it on with 'habitus config set evidence.compare_versions 0.2'."
        raise Refused("Versions are not compared here.", hint=hint)
    return _start_comparison_with_previous_version(home, home.skills.find(name), share)


def _start_comparison_with_previous_version(
    home: Home, item: ListedSkill, share: float, *, candidate: str = ""
) -> LiveComparison:
    layer = home.skills.get_layer(item.layer)
    versions = layer.store.list_versions(item.name)
    if item.summary is None or len(versions) < 2:
        raise Invalid(f"'{item.name}' has no earlier version to compare with.", hint="")
    old, new = versions[-2], versions[-1]
    before, after = (
        _parse_version_without_eval_files(layer.store.read_tree(item.name, one.number), item.name) for one in (old, new)
    )
    if problem := _explain_incomparable(before, after):
        raise Invalid(f"Versions {old.number} and {new.number} can't be compared in use: {problem}.", hint="")
    now = home.clock()
    comparison = LiveComparison(
        skill=item.name,
        layer=item.layer,
        layer_key=layer.store.key,
        old=old.number,
        new=new.number,
        share=share,
        changed_on=now if candidate else new.made_on,
        started_on=now,
        is_cue_changed=_get_description_and_when_to_use(before[1]) != _get_description_and_when_to_use(after[1]),
        exam=_find_exam_estimate(home, item.name, candidate) if candidate else None,
        candidate=candidate,
    )
    open_comparison_store(home).start_comparison(comparison)
    return comparison


def _parse_version_without_eval_files(tree: Tree | None, name: str) -> tuple[Tree, Skill]:
    skill = trees.parse_skill_tree(name, tree or {}).skill
    if tree is None or skill is None:
        raise Invalid(f"An earlier version of '{name}' can't be read any more.", hint="")
    return drop_eval_files(tree), skill


def _get_description_and_when_to_use(skill: Skill) -> tuple[str, str]:
    return skill.description, skill.when_to_use


def _explain_incomparable(before: tuple[Tree, Skill], after: tuple[Tree, Skill]) -> str:
    """Return why two versions can't run beside each other; empty if they differ in text alone."""
    (old_tree, old), (new_tree, new) = before, after
    if old.manifest != new.manifest:
        return "they differ in more than their text"
    changed = {
        path
        for path in old_tree.keys() | new_tree.keys()
        if path not in old_tree or path not in new_tree or old_tree[path].sha256 != new_tree[path].sha256
    }
    if not changed:
        return "they are the same"
    other = sorted(path for path in changed if not path.lower().endswith(_TEXT_FILES))
    return f"'{other[0]}' differs, which is no text" if other else ""


def _find_exam_estimate(home: Home, skill: str, candidate: str) -> EffectEstimate | None:
    # Loads the gate.
    from habitus.improve.report import build_candidate_report
    from habitus.improve.store import ImproveStore

    store = ImproveStore(home.shared, home.clock, home.redact)
    one = next((one for one in store.list_candidates(skill) if one.id == candidate), None)
    exam = build_candidate_report(one, store.list_rollouts(candidate=candidate)).exam if one is not None else None
    if exam is None:
        return None
    return EffectEstimate(value=exam.difference, low=exam.interval.low, high=exam.interval.high)


def stop_comparison(home: Home, name: str) -> LiveComparison:
    """End the running comparison of a skill; every conversation that begins from now on gets the current version."""
    item, store = home.skills.find(name), open_comparison_store(home)
    running = [one for one in store.list_comparisons(item.name) if one.state is ComparisonState.RUNNING]
    if not running:
        raise Invalid(f"No versions of '{item.name}' are compared now.", hint="See 'habitus skills comparisons'.")
    return store.end_comparison(running[-1], ComparisonState.STOPPED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonDecision:
    """A comparison that has ended, or that proposes to roll its change back."""

    comparison: LiveComparison
    state: ComparisonState
    reason: str
    proposal: int | None = None


def decide_running_comparisons(home: Home, *, apply: bool) -> Iterator[ComparisonDecision]:
    """Yield the comparisons that are decided, or switched off; `apply` ends them and proposes rollbacks."""
    store, is_on = open_comparison_store(home), bool(home.settings.evidence.compare_versions)
    for one in store.list_comparisons():
        if one.state is not ComparisonState.RUNNING:
            continue
        off = ComparisonDecision(comparison=one, state=ComparisonState.STOPPED, reason="Comparing was switched off.")
        if (found := _decide_comparison(home, one) if is_on else off) is None:
            continue
        if apply and found.state is ComparisonState.ROLLED_BACK and one.proposal is None:
            found = _propose_or_apply_rollback(home, store, found)
        elif apply:
            store.end_comparison(one, found.state)
        yield found


def _decide_comparison(home: Home, one: LiveComparison) -> ComparisonDecision | None:
    """Decide whether a running comparison is over; None if it goes on, or its directory is not open here."""
    layer = next((layer for layer in home.skills.layers if layer.name == one.layer), None)
    if layer is None or layer.store.key != one.layer_key:
        return None
    try:
        item = home.skills.find(format_skill_address(one.skill, one.layer))
    except HabitusError:
        return ComparisonDecision(comparison=one, state=ComparisonState.SUPERSEDED, reason="The skill was removed.")
    if item.summary is None or item.summary.version != one.new:
        now, before = (layer.store.read_tree(item.name, version) or {} for version in (None, one.old))
        if has_same_files(drop_eval_files(now), drop_eval_files(before)):
            return ComparisonDecision(comparison=one, state=ComparisonState.ROLLED_BACK, reason="It was rolled back.")
        return ComparisonDecision(comparison=one, state=ComparisonState.SUPERSEDED, reason="It was edited since.")
    if one.proposal is not None:
        if home.review.get(one.proposal).state is not ProposalState.REJECTED:
            return None
        return ComparisonDecision(comparison=one, state=ComparisonState.KEPT, reason="A person kept it.")
    result = _build_comparison_report(home, one).result
    match result.verdict:
        case ComparisonVerdict.WORSE:
            return ComparisonDecision(comparison=one, state=ComparisonState.ROLLED_BACK, reason=result.sentence)
        case ComparisonVerdict.BETTER:
            return ComparisonDecision(comparison=one, state=ComparisonState.KEPT, reason=result.sentence)
        case ComparisonVerdict.UNKNOWN | ComparisonVerdict.UNEVEN if home.clock() - one.started_on >= COMPARISON_PERIOD:
            return ComparisonDecision(comparison=one, state=ComparisonState.NOT_SHOWN, reason=result.sentence)
        case _:
            return None


def _propose_or_apply_rollback(home: Home, store: LiveComparisonStore, found: ComparisonDecision) -> ComparisonDecision:
    """Propose to roll the change back, or do it where the person allows text changes without review.

    The comparison goes on until the proposal is decided.
    """
    one = found.comparison
    reason = f"Version {one.new} does worse in use than version {one.old}. {found.reason}"
    author = Author(actor=ActorKind.JOB, name="evidence", reason=reason)
    if home.settings.review.auto:
        home.skills.rollback(format_skill_address(one.skill, one.layer), one.old, author)
        store.end_comparison(one, ComparisonState.ROLLED_BACK)
        return found
    tree = home.skills.read_tree(format_skill_address(one.skill, one.layer), one.old)
    change = SkillChange(action=ProposalAction.WRITE, name=one.skill, layer=one.layer, tree=tree)
    try:
        proposal = home.review.propose(change, author, [reason]).id
    except Refused:
        store.end_comparison(one, ComparisonState.KEPT)
        return replace(found, state=ComparisonState.KEPT, reason="A person kept it before.")
    store.update_comparison(replace(one, proposal=proposal))
    return replace(found, proposal=proposal)
