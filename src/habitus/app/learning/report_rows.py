"""What is behind each number: requests, conversations, changes, rollouts, drafts and days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from habitus.app.home import Home
from habitus.app.learning.compared_versions import open_comparison_store
from habitus.app.learning.comparing import list_comparison_exposures
from habitus.app.learning.reporting import (
    ReportedNumberKind,
    ReportMonth,
    list_comparisons_ended_in_month,
    list_conversations_comparing_versions,
    list_drafts_of_manual_runs_in_month,
    list_judged_requests_in_period,
    list_month_rollouts,
    list_proposals_behind_number,
    select_requests_behind_number,
    sum_daily_tokens_without_rollouts,
)
from habitus.errors import Invalid
from habitus.journal.journal import Journal
from habitus.journal.model import ScoredExposure


@dataclass(frozen=True, kw_only=True)
class ReportDrillDownRow:
    """One request behind a number of the report, or a conversation, a proposal, a comparison, a rollout or a day."""

    # Empty unless it is a request or a conversation.
    turn: str
    at: datetime
    # Succeeded, failed, no feedback; for a compared conversation also the version it got.
    said: str
    # Whether its turn is still stored.
    has_text: bool = False
    proposal: int | None = None
    skill: str = ""
    # What it cost; 0 if it is not known.
    tokens: int = 0
    dollars: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ReportDrillDownPage:
    """One page of the rows behind a number."""

    rows: Sequence[ReportDrillDownRow]
    next: str | None
    total: int


def list_rows_behind_report_number(
    home: Home, of: ReportedNumberKind, month: ReportMonth, user: str | None, skill: str = "", version: int = 0
) -> list[ReportDrillDownRow]:
    """Return the rows that a number of the report counts or sums up; `skill` and its `version` are for `in_use`."""
    kind = ReportedNumberKind
    match of:
        case kind.COMPARED:
            return _build_rows_of_compared_conversations(
                home.journal, list_conversations_comparing_versions(home.shared, month, user), user
            )
        case kind.IN_USE:
            if not skill:
                raise Invalid("The skill is missing.", hint="Name the skill whose versions were compared.")
            ever = open_comparison_store(home).list_comparisons(skill)
            meant = [one for one in ever if version in (0, one.new)]
            if not meant:
                what = f"version {version} of '{skill}'" if version else f"'{skill}'"
                raise Invalid(
                    f"{what[0].upper()}{what[1:]} was not compared.", hint="See 'habitus skills comparisons'."
                )
            return _build_rows_of_compared_conversations(
                home.journal, list_comparison_exposures(home.shared, meant[-1], user), user
            )
        case kind.PROPOSED | kind.APPROVED | kind.DECISIONS:
            return [
                ReportDrillDownRow(
                    turn="",
                    at=one.made_on if of is kind.PROPOSED or one.decided_on is None else one.decided_on,
                    said=f"{one.change.action} {one.change.name}: {one.state}",
                    proposal=one.id,
                    skill=one.change.name,
                )
                for one in list_proposals_behind_number(home.review, month, of)
            ]
        case kind.KEPT | kind.ROLLED_BACK:
            return [
                ReportDrillDownRow(
                    turn="",
                    at=one.ended_on or one.started_on,
                    said=f"version {one.new} of {one.skill} against {one.old}: {one.state}",
                    skill=one.skill,
                )
                for one in list_comparisons_ended_in_month(home, month, of)
            ]
        case kind.ROLLOUTS:
            return [
                ReportDrillDownRow(
                    turn="",
                    at=one.at or month.begin,
                    said=f"{one.side} of {one.skill or 'self-play'}: {one.outcome or 'running'}",
                    skill=one.skill,
                    tokens=one.tokens,
                    dollars=one.dollars,
                )
                for one in list_month_rollouts(home, month)
            ]
        case kind.DRAFTS:
            return [
                ReportDrillDownRow(
                    turn="",
                    at=one.made_on or month.begin,
                    said=f"draft for {one.skill} by {one.source}",
                    skill=one.skill,
                    tokens=one.tokens,
                    dollars=one.dollars,
                )
                for one in list_drafts_of_manual_runs_in_month(home, month)
            ]
        case kind.LEARNING:
            parts = (kind.ROLLOUTS, kind.DRAFTS, kind.BUDGET)
            return [row for one in parts for row in list_rows_behind_report_number(home, one, month, user)]
        case kind.PAID:
            return [row for row in list_rows_behind_report_number(home, kind.LEARNING, month, user) if row.dollars]
        case kind.BUDGET:
            return [
                ReportDrillDownRow(
                    turn="",
                    at=datetime(day.year, day.month, day.day, tzinfo=UTC),
                    said="lessons and scheduled drafts",
                    tokens=tokens,
                )
                for day, tokens in sum_daily_tokens_without_rollouts(home, month).items()
            ]
        case _:
            return [
                ReportDrillDownRow(
                    turn=one.turn,
                    at=one.at,
                    said=one.outcome.value.replace("_", " "),
                    has_text=one.has_text,
                    tokens=one.tokens,
                    dollars=one.dollars or 0.0,
                )
                for one in select_requests_behind_number(
                    list_judged_requests_in_period(home.shared, month.begin, month.end, user), of
                )
            ]


def _build_rows_of_compared_conversations(
    journal: Journal, compared: Sequence[ScoredExposure], user: str | None
) -> list[ReportDrillDownRow]:
    return build_conversation_rows(
        journal, compared, user, lambda is_offered: f"{'new' if is_offered else 'old'} version of"
    )


def build_conversation_rows(
    journal: Journal, exposures: Sequence[ScoredExposure], user: str | None, describe_variant: Callable[[bool], str]
) -> list[ReportDrillDownRow]:
    """Return a row for each conversation; `describe_variant` says what one that was offered the item got, or was not.

    Only turns of `user` have text.
    """
    stored = journal.load_request_texts_of_turns([one.turn for one in exposures], user=user)
    return [
        ReportDrillDownRow(
            turn=one.turn,
            at=one.at,
            said=f"{describe_variant(one.exposure.is_offered)} {one.exposure.item.partition('@')[0]}: "
            f"{_describe_feedback_scores(one)}",
            has_text=one.turn in stored,
        )
        for one in exposures
    ]


def _describe_feedback_scores(one: ScoredExposure) -> str:
    scores = one.explicit_scores
    return f"{sum(scores):g} of {len(scores)} succeeded" if scores else "no feedback"
