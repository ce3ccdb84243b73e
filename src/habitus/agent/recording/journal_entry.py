"""Builds the journal entry of a turn from its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from habitus.agent.history import encode_message_for_journal
from habitus.agent.recording.outcomes import MODEL, SIGNAL, build_full_weight_outcome, build_inferred_outcome
from habitus.agent.turn_state import TurnState
from habitus.events import OutcomeKind
from habitus.evidence.versions import AssignedVersion
from habitus.journal.model import (
    ExposureAssignment,
    ItemUse,
    JudgementSourceKind,
    SelectedSkill,
    SkillPlacementKind,
    Turn,
    TurnOutcome,
)
from habitus.skills.choosing.menu import NOT_LISTED
from habitus.skills.model import Skill, SkillSummary
from habitus.text import clean_to_one_line

AT_RANDOM = "withheld from this conversation at random (evidence.withhold)"
NO_VERSIONS: Mapping[tuple[str, str], AssignedVersion] = {}
# Menu lines recorded for one turn.
_MOST_LINES = 2000


def build_journal_turn(
    turn: TurnState,
    *,
    session: str,
    project: str,
    host: str,
    ended_on: datetime | None,
    exposures: Sequence[ExposureAssignment] = (),
    uses: Sequence[ItemUse] = (),
    withheld: Collection[str] = (),
    versions: Mapping[tuple[str, str], AssignedVersion] = NO_VERSIONS,
) -> Turn:
    """Build the journal entry of a turn; while `ended_on` is None, only the request.

    `exposures` began or were used in the turn; `uses` are those of steps; `withheld` are the skills that were withheld
    at random, `versions` those of which the conversation got one of two versions.
    """
    request = turn.user_input.request
    kept = Turn(
        id=turn.id,
        session=session,
        request=request.text,
        started_on=turn.began_on,
        ended_on=ended_on,
        caller_id=clean_to_one_line(turn.user_input.asking.caller_id),
        source_type=request.source_type,
        user=request.user.name,
        conversation=request.conversation,
        reply_to=request.reply_to,
        project=project,
        host=host,
        messages=tuple(encode_message_for_journal(message) for message in turn.messages),
        events=tuple(turn.events),
        usage=_build_token_and_cost_counts(turn),
    )
    if ended_on is None:
        return kept
    return replace(
        kept,
        selected=(
            *(_add_compared_version_reason(one, versions) for one in _list_skills_with_placement(turn, withheld)),
            *(_add_compared_version_reason(_build_loaded_skill_record(skill, turn), versions) for skill in turn.loaded),
        ),
        exposures=tuple(exposures),
        uses=tuple(uses),
        outcomes=() if turn.is_cancelled else (_build_turn_outcome(turn),),
    )


def _build_turn_outcome(turn: TurnState) -> TurnOutcome:
    done = turn.outcome
    if turn.judged_by == MODEL:
        said = build_full_weight_outcome(done.kind, MODEL, JudgementSourceKind.MODEL, done.reason)
        return replace(said, weight=_BY_ITSELF)
    if turn.judged_by:
        return build_full_weight_outcome(done.kind, turn.judged_by, JudgementSourceKind.PROGRAM, done.reason)
    # Inferred from how it ended.
    return build_inferred_outcome(done.kind, _CAP if turn.is_capped else _WEIGHTS[done.kind], SIGNAL, done.reason)


def _build_token_and_cost_counts(turn: TurnState) -> dict[str, float]:
    used = turn.usage
    counted: dict[str, float] = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_tokens": used.cached_tokens,
        "rounds": turn.rounds,
    }
    return counted if used.cost is None else {**counted, "cost": used.cost}


def _list_skills_with_placement(turn: TurnState, withheld: Collection[str]) -> list[SelectedSkill]:
    """Return where the selection placed each skill; empty if no prompt was composed."""
    if turn.selection is None or turn.composed is None or turn.composed.menu is None:
        return []
    cut = set(turn.composed.menu.cut)
    chosen = [
        _build_placed_skill_record(
            choice.summary, SkillPlacementKind.STICKY if choice.is_sticky else SkillPlacementKind.EAGER, choice.reason
        )
        for choice in turn.selection.eager
    ]
    menu = [
        _build_placed_skill_record(summary, SkillPlacementKind.CUT, NOT_LISTED)
        if summary.name in cut
        else _build_placed_skill_record(summary, SkillPlacementKind.MENU, "eligible")
        for summary in turn.selection.menu[:_MOST_LINES]
    ]
    found = [
        replace(one, place=SkillPlacementKind.WITHHELD, reason=AT_RANDOM) if one.name in withheld else one
        for one in (*chosen, *menu)
    ]
    left_out = turn.selection.left_out.items()
    out = [SelectedSkill(name=name, place=SkillPlacementKind.LEFT_OUT, reason=why) for name, why in left_out]
    return [*found, *out[:_MOST_LINES]]


def _build_loaded_skill_record(skill: Skill, turn: TurnState) -> SelectedSkill:
    invoked = turn.user_input.asking.invoked
    is_by_person = invoked is not None and invoked.name == skill.name and skill.name not in turn.asked
    came = "the person asked for it" if is_by_person else "it came with another"
    reason = "the model asked for it" if skill.name in turn.asked else came
    score = turn.composed.relevance.get(skill.name) if turn.composed else None
    why = reason if score is None else f"{reason}; relevance {100 * score:.0f} %"
    return _build_placed_skill_record(skill, SkillPlacementKind.LOADED, why)


# Places in which the model read the text.
_READ = frozenset({SkillPlacementKind.EAGER, SkillPlacementKind.STICKY, SkillPlacementKind.LOADED})


def _add_compared_version_reason(
    selected: SelectedSkill, versions: Mapping[tuple[str, str], AssignedVersion]
) -> SelectedSkill:
    """Add why the model read this version of a skill that is compared in use, or its line if the line was changed."""
    assigned = versions.get((selected.name, selected.layer))
    if assigned is None:
        return selected
    is_line_compared = assigned.comparison.is_cue_changed and selected.place is SkillPlacementKind.MENU
    if selected.place not in _READ and not is_line_compared:
        return selected
    return replace(selected, reason=f"{selected.reason}; {assigned.reason}")


def _build_placed_skill_record(skill: SkillSummary, place: SkillPlacementKind, reason: str) -> SelectedSkill:
    return SelectedSkill(name=skill.name, place=place, reason=reason, layer=skill.layer, version=skill.version)


_BY_ITSELF = 0.25
# Inferred outcomes are weak evidence, except that an infrastructure failure is certain.
_WEIGHTS = {OutcomeKind.INFRA: 1.0, OutcomeKind.FAILED: 0.3, OutcomeKind.OK: 0.2}
_CAP = 0.5
