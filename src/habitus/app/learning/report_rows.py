"""What is behind each number of the monthly report: requests, conversations, changes, rollouts, drafts and days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from habitus.app.home import Home
from habitus.app.learning.compared_versions import open_comparison_store
from habitus.app.learning.comparing import list_comparison_exposures
from habitus.app.learning.reporting import (
    ReportedNumberKind,
    ReportMonth,
    list_compared_conversations,
    list_counted_proposals,
    list_ended_comparisons,
    list_month_drafts,
    list_month_requests,
    list_month_rollouts,
    sum_other_spending,
)
from habitus.journal.model import ScoredExposure


@dataclass(frozen=True, kw_only=True)
class ReportedRequest:
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
    # What it cost; 0 for requests.
    tokens: int = 0
    dollars: float = 0.0


def list_rows_behind_number(
    home: Home, of: ReportedNumberKind, month: ReportMonth, user: str | None, skill: str
) -> list[ReportedRequest]:
    """Return the rows that a number of the report counts or sums up; `skill` is for `in_use`."""
    kind = ReportedNumberKind
    match of:
        case kind.COMPARED | kind.IN_USE:
            stored = {one.turn for one in list_month_requests(home.shared, month, user) if one.has_text}
            compared = list_compared_conversations(home.shared, month, user)
            if of is kind.IN_USE:
                reported = open_comparison_store(home).list_comparisons(home.skills.find(skill).name)
                compared = list_comparison_exposures(home.shared, reported[-1], user) if reported else []
            return [_build_compared_row(one, one.turn in stored) for one in compared]
        case kind.PROPOSED | kind.APPROVED | kind.DECISIONS:
            return [
                ReportedRequest(
                    turn="",
                    at=one.made_on if of is kind.PROPOSED or one.decided_on is None else one.decided_on,
                    said=f"{one.change.action} {one.change.name}: {one.state}",
                    proposal=one.id,
                    skill=one.change.name,
                )
                for one in list_counted_proposals(home.review, month, of)
            ]
        case kind.KEPT | kind.ROLLED_BACK:
            return [
                ReportedRequest(
                    turn="",
                    at=one.ended_on or one.started_on,
                    said=f"version {one.new} of {one.skill} against {one.old}: {one.state}",
                    skill=one.skill,
                )
                for one in list_ended_comparisons(home, month, of)
            ]
        case kind.ROLLOUTS:
            return [
                ReportedRequest(
                    turn="",
                    at=one.at or month.begin,
                    said=f"{one.side} of {one.skill or 'self-play'}: {one.outcome or 'running'}, {one.tokens:,} tokens",
                    skill=one.skill,
                    tokens=one.tokens,
                    dollars=one.dollars,
                )
                for one in list_month_rollouts(home, month)
            ]
        case kind.DRAFTS:
            return [
                ReportedRequest(
                    turn="",
                    at=one.made_on or month.begin,
                    said=f"draft for {one.skill} by {one.source}: {one.tokens:,} tokens",
                    skill=one.skill,
                    tokens=one.tokens,
                    dollars=one.dollars,
                )
                for one in list_month_drafts(home, month)
            ]
        case kind.PAID:
            both = (list_rows_behind_number(home, one, month, user, skill) for one in (kind.ROLLOUTS, kind.DRAFTS))
            return [row for rows in both for row in rows if row.dollars]
        case kind.BUDGET:
            return [
                ReportedRequest(
                    turn="",
                    at=datetime(day.year, day.month, day.day, tzinfo=UTC),
                    said=f"{tokens:,} tokens for lessons and scheduled drafts",
                    tokens=tokens,
                )
                for day, tokens in sum_other_spending(home, month).items()
            ]
        case _:
            requests = list_month_requests(home.shared, month, user)
            return [
                ReportedRequest(
                    turn=one.turn, at=one.at, said=one.outcome.value.replace("_", " "), has_text=one.has_text
                )
                for one in requests
                if of is kind.REQUESTS or one.outcome == of.value
            ]


def _build_compared_row(one: ScoredExposure, has_text: bool) -> ReportedRequest:
    scores, item = one.explicit_scores, one.exposure.item.partition("@")[0]
    version = f"{'new' if one.exposure.is_offered else 'old'} version of {item}"
    went = f"{sum(scores):g} of {len(scores)} succeeded" if scores else "no feedback"
    return ReportedRequest(turn=one.turn, at=one.at, said=f"{version}: {went}", has_text=has_text)
