"""The report of a month: what learning was worth, what it cost, and what is not known. Nothing that no interval
supports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from enum import StrEnum
from typing import ClassVar

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home
from habitus.app.learning.compared_versions import load_version_comparison_exposures, open_comparison_store
from habitus.app.learning.comparing import ComparisonReport, list_comparison_reports
from habitus.app.learning.evidence import convert_exposures_to_observations
from habitus.app.learning.improve_store import open_improve_store
from habitus.errors import Invalid
from habitus.evidence.comparing import ChangesGainEstimate, estimate_gain_of_changes
from habitus.evidence.model import ItemKind
from habitus.evidence.versions import ComparisonState, LiveComparison
from habitus.improve.candidates import Candidate
from habitus.improve.report import build_candidate_report, format_difference_in_points
from habitus.improve.store import SCHEDULED_MARK
from habitus.journal import usage
from habitus.journal.model import ScoredExposure
from habitus.journal.usage import JudgedRequest
from habitus.learning.budget import learning_spending
from habitus.plain_data import INTERNAL
from habitus.skills.proposals import Proposal, ProposalState
from habitus.skills.review import ReviewQueue
from habitus.tasks.rollouts import Rollout
from habitus.text import format_quantity

# A month with a smaller share of feedback is mostly unknown.
_ENOUGH_FEEDBACK = 0.5
_APPROVED = (ProposalState.APPROVED, ProposalState.ACCEPTED)


class ReportedNumberKind(StrEnum):
    """A number of the report, whose requests can be listed."""

    REQUESTS = "requests"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_FEEDBACK = "no_feedback"
    # Those past their retention.
    WITHOUT_TEXT = "without_text"
    # Those whose tokens are known, whose price is, and those of which neither is.
    METERED = "metered"
    PRICED = "priced"
    UNMETERED = "unmetered"
    # The conversations that were randomised between two versions.
    COMPARED = "compared"
    # Those of one skill's comparison, whichever month they are of.
    IN_USE = "in_use"
    # Changes: proposed, approved, and by how their comparison ended.
    PROPOSED = "proposed"
    APPROVED = "approved"
    KEPT = "kept"
    ROLLED_BACK = "rolled_back"
    # What learning took: rollouts, drafts of runs that a person started, days of the budget, and decisions.
    ROLLOUTS = "rollouts"
    DRAFTS = "drafts"
    BUDGET = "budget"
    # All three, and those of them that dollars were paid for.
    LEARNING = "learning"
    PAID = "paid"
    DECISIONS = "decisions"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportMonth:
    """A month in UTC, as far as it has passed."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str, now: datetime) -> ReportMonth:
        """Parse `2026-10`; empty is the month of `now`. Raises `Invalid` for anything else."""
        if not text:
            return cls.containing(now)
        try:
            found = cls.containing(datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC))
        except ValueError:
            raise Invalid(f"'{text}' is not a month.", hint="Write it as YYYY-MM.") from None
        # The months before and after have to exist, too.
        if not MINYEAR < found.year < MAXYEAR:
            raise Invalid(f"Nothing can have happened in {text}.", hint="Write a month as YYYY-MM.")
        return found

    @classmethod
    def containing(cls, timestamp: datetime) -> ReportMonth:
        """Return the month of a timestamp."""
        at = timestamp.astimezone(UTC)
        return cls(year=at.year, month=at.month)

    @property
    def begin(self) -> datetime:
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return datetime(self.year + self.month // 12, self.month % 12 + 1, 1, tzinfo=UTC)

    def contains(self, timestamp: datetime | None) -> bool:
        return timestamp is not None and self.begin <= timestamp < self.end

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTotals:
    """The requests of a month by what is known about them."""

    IN_JSON: ClassVar = ("links",)

    requests: int
    succeeded: int
    failed: int
    no_feedback: int
    # Those past their retention, of which no text is left.
    without_text: int
    # The address that lists them, with a month and the scope.
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the requests that each count counts, below the root of REST."""
        counted = (
            ReportedNumberKind.REQUESTS,
            ReportedNumberKind.SUCCEEDED,
            ReportedNumberKind.FAILED,
            ReportedNumberKind.NO_FEEDBACK,
            ReportedNumberKind.WITHOUT_TEXT,
        )
        return {one.value: f"{self.address}&of={one}" for one in counted}


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillChangeReportRow:
    """A change that was proposed, decided or compared in the month."""

    IN_JSON: ClassVar = ("links",)

    skill: str
    proposal: int
    # Pending, rejected, or how its comparison stands.
    state: str
    # The exam's difference in points with its interval; empty if it has none.
    exam: str
    # What the comparison in use shows of this version; empty and 0 if it was not compared.
    in_use: str
    version: int
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of the conversations that it was compared in, and of the proposal with its exam."""
        rows = f"{self.address}&of={ReportedNumberKind.IN_USE}&skill={self.skill}&version={self.version}"
        return ({"in_use": rows} if self.in_use else {}) | ({"exam": f"/review/{self.proposal}"} if self.exam else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class MonthlyAgentCost:
    """What the requests of the month took, as far as their agents reported it."""

    IN_JSON: ClassVar = ("links",)

    # Requests whose tokens are known, those of them whose price is, and requests of which neither is.
    metered: int
    priced: int
    unmetered: int
    tokens: int
    dollars: float
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of the requests that each number counts or sums up."""
        of = ReportedNumberKind
        counted = {"tokens": of.METERED, "dollars": of.PRICED} | {
            one.value: one for one in (of.METERED, of.PRICED, of.UNMETERED)
        }
        return {name: f"{self.address}&of={one}" for name, one in counted.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class MonthlyLearningCost:
    """What learning took in the month."""

    IN_JSON: ClassVar = ("all_tokens", "links")

    rollouts: int
    tokens: int
    # Of rollouts and drafts whose price is known.
    dollars: float
    # That drafting took in runs that a person started.
    draft_tokens: int
    # Other tokens of the daily budget: lessons, and what scheduled runs drafted.
    budget_tokens: int
    # Proposals that a person decided.
    decisions: int
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def all_tokens(self) -> int:
        """The tokens of rollouts, drafts and lessons together."""
        return self.tokens + self.draft_tokens + self.budget_tokens

    @property
    def links(self) -> Mapping[str, str]:
        """The address of what each number counts or sums up."""
        of = ReportedNumberKind
        summed = {
            "rollouts": of.ROLLOUTS,
            "tokens": of.ROLLOUTS,
            "dollars": of.PAID,
            "draft_tokens": of.DRAFTS,
            "budget_tokens": of.BUDGET,
            "all_tokens": of.LEARNING,
        }
        return {name: f"{self.address}&of={one}" for name, one in (summed | {"decisions": of.DECISIONS}).items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class MonthlyCost:
    """What agents and learning took in a month."""

    month: ReportMonth
    agents: MonthlyAgentCost
    learning: MonthlyLearningCost


@dataclass(frozen=True, kw_only=True, slots=True)
class UnansweredReportQuestion:
    """Something that the month's data doesn't tell, and what would."""

    IN_JSON: ClassVar = ("links",)

    unknown: str
    settled_by: str
    # The requests or conversations that it is about: those of a skill's version for `in_use`.
    of: ReportedNumberKind
    skill: str = ""
    version: int = 0
    address: str = field(default="", metadata=INTERNAL, compare=False)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of these requests or conversations."""
        version = f"&skill={self.skill}&version={self.version}" if self.skill else ""
        return {"unknown": f"{self.address}&of={self.of}{version}"}


@dataclass(frozen=True, kw_only=True, slots=True)
class MonthlyLearningReport:
    """What learning was worth in a month, what it cost, and what is not known."""

    IN_JSON: ClassVar = ("links",)

    month: str
    requests: RequestTotals
    # None while too few randomised conversations are judged.
    gain: ChangesGainEstimate | None
    gain_sentence: str
    changes: Sequence[SkillChangeReportRow]
    proposed: int
    # By a person, whether or not the change is compared in use afterwards.
    approved: int
    kept: int
    rolled_back: int
    cost: MonthlyLearningCost
    agent_cost: MonthlyAgentCost
    unknown: Sequence[UnansweredReportQuestion]

    @property
    def links(self) -> Mapping[str, str]:
        """The address of the conversations behind the gain, and of the changes that each count counts."""
        of, address = ReportedNumberKind, self.requests.address
        counted = {"gain": of.COMPARED} | {
            one.value: one for one in (of.PROPOSED, of.APPROVED, of.KEPT, of.ROLLED_BACK)
        }
        return {name: f"{address}&of={one}" for name, one in counted.items()}


def build_monthly_learning_report(home: Home, month: ReportMonth, user: str | None) -> MonthlyLearningReport:
    """Build the report; requests and conversations are one user's, or everybody's if `user` is None."""
    requests, compared = (
        list_judged_requests_in_period(home.shared, month.begin, month.end, user),
        list_conversations_comparing_versions(home.shared, month, user),
    )
    reports = list_comparison_reports(home)
    observations = convert_exposures_to_observations(
        compared, _collect_keys_of_compared_changes(compared), home.clock()
    )
    gain = estimate_gain_of_changes(observations)
    proposals = _list_proposed_improvements(home.review)
    totals = _count_requests_by_outcome(requests, _build_rows_address(month, user))
    cost = _sum_monthly_cost(home, month, requests, totals.address)
    return MonthlyLearningReport(
        month=str(month),
        requests=totals,
        gain=gain,
        gain_sentence=gain.sentence if gain is not None else _explain_unknown_gain(compared),
        changes=_list_skill_change_rows(home, month, proposals, reports, totals.address),
        proposed=len(list_proposals_behind_number(home.review, month, ReportedNumberKind.PROPOSED)),
        approved=len(list_proposals_behind_number(home.review, month, ReportedNumberKind.APPROVED)),
        kept=len(list_comparisons_ended_in_month(home, month, ReportedNumberKind.KEPT)),
        rolled_back=len(list_comparisons_ended_in_month(home, month, ReportedNumberKind.ROLLED_BACK)),
        cost=cost.learning,
        agent_cost=cost.agents,
        unknown=[*_list_feedback_gaps(totals), *_list_comparison_gaps(month, reports, totals.address)],
    )


def build_monthly_cost(home: Home, month: ReportMonth, user: str | None) -> MonthlyCost:
    """Build the part of the report that says what the month took, with the requests of one user or of everybody."""
    requests = list_judged_requests_in_period(home.shared, month.begin, month.end, user)
    return _sum_monthly_cost(home, month, requests, _build_rows_address(month, user))


def _build_rows_address(month: ReportMonth, user: str | None) -> str:
    return f"/report/rows?month={month}{'&all_users=true' if user is None else ''}"


def _sum_monthly_cost(home: Home, month: ReportMonth, requests: Sequence[JudgedRequest], address: str) -> MonthlyCost:
    metered = select_requests_behind_number(requests, ReportedNumberKind.METERED)
    priced = select_requests_behind_number(requests, ReportedNumberKind.PRICED)
    agents = MonthlyAgentCost(
        metered=len(metered),
        priced=len(priced),
        unmetered=len(select_requests_behind_number(requests, ReportedNumberKind.UNMETERED)),
        tokens=sum(one.tokens for one in metered),
        dollars=sum(one.dollars or 0.0 for one in priced),
        address=address,
    )
    return MonthlyCost(month=month, agents=agents, learning=_sum_learning_cost(home, month, address))


def select_requests_behind_number(requests: Iterable[JudgedRequest], of: ReportedNumberKind) -> list[JudgedRequest]:
    """Return the requests that a number of the report counts or sums up."""
    return [one for one in requests if _is_request_counted(one, of)]


def _is_request_counted(one: JudgedRequest, of: ReportedNumberKind) -> bool:
    match of:
        case ReportedNumberKind.REQUESTS:
            return True
        case ReportedNumberKind.WITHOUT_TEXT:
            return not one.has_text
        case ReportedNumberKind.METERED:
            return one.tokens > 0
        case ReportedNumberKind.PRICED:
            return one.dollars is not None
        case ReportedNumberKind.UNMETERED:
            return not one.tokens and one.dollars is None
        case _:
            return one.outcome.value == of.value


def list_judged_requests_in_period(
    engine: sa.Engine, begin: datetime, end: datetime, user: str | None
) -> list[JudgedRequest]:
    """Return the requests of a period, oldest first, also those whose turns are past their retention."""
    with sql.read_transaction(engine) as connection:
        return usage.list_requests_with_verdicts(connection, begin, end, user)


def list_conversations_comparing_versions(
    engine: sa.Engine, month: ReportMonth, user: str | None
) -> list[ScoredExposure]:
    """Return the conversations of a month that were randomised between two versions of a skill."""
    return [one for one in load_version_comparison_exposures(engine, user=user) if month.contains(one.at)]


def _collect_keys_of_compared_changes(compared: Iterable[ScoredExposure]) -> frozenset[tuple[str, str]]:
    return frozenset((ItemKind.CHANGE.value, one.exposure.item) for one in compared)


def _count_requests_by_outcome(requests: Sequence[JudgedRequest], address: str) -> RequestTotals:
    of = ReportedNumberKind
    counted = (of.REQUESTS, of.SUCCEEDED, of.FAILED, of.NO_FEEDBACK, of.WITHOUT_TEXT)
    return RequestTotals(
        **{one.value: len(select_requests_behind_number(requests, one)) for one in counted}, address=address
    )


def _explain_unknown_gain(compared: Sequence[ScoredExposure]) -> str:
    if not compared:
        return "Not known: no conversation was randomised between two versions of a skill."
    judged = sum(bool(one.explicit_scores) for one in compared)
    return f"Not known: of {format_quantity(len(compared), 'randomised conversation')}, {judged} have feedback."


def _list_skill_change_rows(
    home: Home, month: ReportMonth, proposals: Sequence[Proposal], reports: Sequence[ComparisonReport], address: str
) -> list[SkillChangeReportRow]:
    store, by_candidate = open_improve_store(home), {one.comparison.candidate: one for one in reports}
    found = []
    for one in proposals:
        candidate = str(one.change.details["improve"]["candidate"])
        report = by_candidate.get(candidate)
        ended_on = report.comparison.ended_on if report is not None else None
        is_running = report is not None and report.comparison.state is ComparisonState.RUNNING
        if not (is_running or any(map(month.contains, (one.made_on, one.decided_on, ended_on)))):
            continue
        tried = next((each for each in store.list_candidates(one.change.name) if each.id == candidate), None)
        exam = (
            build_candidate_report(tried, store.list_rollouts(candidate=candidate)).exam if tried is not None else None
        )
        state = report.comparison.state.value if report is not None else one.state.value
        found.append(
            SkillChangeReportRow(
                skill=one.change.name,
                proposal=one.id,
                state=f"compared in use: {state}" if is_running else state,
                exam=format_difference_in_points(exam) if exam is not None else "",
                in_use=report.result.sentence if report is not None else "",
                version=report.comparison.new if report is not None else 0,
                address=address,
            )
        )
    return found


def _list_proposed_improvements(review: ReviewQueue) -> list[Proposal]:
    return [one for one in review.list_proposals_by_state(None, with_contents=False) if "improve" in one.change.details]


def list_proposals_behind_number(review: ReviewQueue, month: ReportMonth, of: ReportedNumberKind) -> list[Proposal]:
    """Return the proposals that a number of the report counts."""
    match of:
        case ReportedNumberKind.DECISIONS:
            decided = review.list_proposals_by_state(None, with_contents=False, all_hosts=True)
            states = (*_APPROVED, ProposalState.REJECTED)
            return [one for one in decided if one.state in states and month.contains(one.decided_on)]
        case ReportedNumberKind.APPROVED:
            made = _list_proposed_improvements(review)
            return [one for one in made if one.state in _APPROVED and month.contains(one.decided_on)]
        case _:
            return [one for one in _list_proposed_improvements(review) if month.contains(one.made_on)]


def list_comparisons_ended_in_month(home: Home, month: ReportMonth, of: ReportedNumberKind) -> list[LiveComparison]:
    """Return the comparisons that ended in the month, with the change kept or rolled back."""
    states = {
        ReportedNumberKind.KEPT: (ComparisonState.KEPT, ComparisonState.NOT_SHOWN),
        ReportedNumberKind.ROLLED_BACK: (ComparisonState.ROLLED_BACK,),
    }[of]
    ended = open_comparison_store(home).list_comparisons()
    return [one for one in ended if one.state in states and month.contains(one.ended_on)]


def list_month_rollouts(home: Home, month: ReportMonth) -> list[Rollout]:
    """Return the rollouts of the month: of runs, trials and self-play."""
    return open_improve_store(home).list_rollouts(since=month.begin, before=month.end)


def list_drafts_of_manual_runs_in_month(home: Home, month: ReportMonth) -> list[Candidate]:
    """Return the candidates that models drafted in runs that a person started."""
    store = open_improve_store(home)
    made = (
        one
        for skill in store.list_skills_with_candidates()
        for one in store.list_candidates(skill)
        if month.contains(one.made_on)
    )
    return [one for one in made if one.tokens and not one.run.endswith(SCHEDULED_MARK)]


def sum_daily_tokens_without_rollouts(home: Home, month: ReportMonth) -> dict[date, int]:
    """Return the tokens of each day's budget without those of rollouts, which are counted as such."""
    table = learning_spending
    period = (table.c.day >= f"{month.begin:%Y-%m-%d}", table.c.day < f"{month.end:%Y-%m-%d}")
    with sql.read_transaction(home.shared) as connection:
        rows = connection.execute(sa.select(table.c.day, table.c.tokens).where(*period).order_by(table.c.day)).all()
    by_rollouts = Counter[str]()
    for one in list_month_rollouts(home, month):
        if one.run.endswith(SCHEDULED_MARK) and one.at is not None:
            by_rollouts[f"{one.at.astimezone(UTC):%Y-%m-%d}"] += one.tokens
    left = {date.fromisoformat(row.day): max(row.tokens - by_rollouts[row.day], 0) for row in rows}
    return {day: tokens for day, tokens in left.items() if tokens}


def _sum_learning_cost(home: Home, month: ReportMonth, address: str) -> MonthlyLearningCost:
    made, drafted = list_month_rollouts(home, month), list_drafts_of_manual_runs_in_month(home, month)
    return MonthlyLearningCost(
        rollouts=len(made),
        tokens=sum(one.tokens for one in made),
        dollars=sum(one.dollars for one in made) + sum(one.dollars for one in drafted),
        draft_tokens=sum(one.tokens for one in drafted),
        budget_tokens=sum(sum_daily_tokens_without_rollouts(home, month).values()),
        decisions=len(list_proposals_behind_number(home.review, month, ReportedNumberKind.DECISIONS)),
        address=address,
    )


def _list_feedback_gaps(totals: RequestTotals) -> list[UnansweredReportQuestion]:
    if totals.no_feedback <= (1 - _ENOUGH_FEEDBACK) * totals.requests:
        return []
    return [
        UnansweredReportQuestion(
            unknown="How the requests without feedback went.",
            settled_by="Feedback: /good and /bad in the chat, the buttons on the page, or 'habitus sessions outcome'.",
            of=ReportedNumberKind.NO_FEEDBACK,
            address=totals.address,
        )
    ]


def _list_comparison_gaps(
    month: ReportMonth, reports: Sequence[ComparisonReport], address: str
) -> list[UnansweredReportQuestion]:
    return [
        UnansweredReportQuestion(
            unknown=f"Whether version {one.comparison.new} of {one.comparison.skill} is better than "
            f"{one.comparison.old}: {one.result.sentence}",
            settled_by=f"About {format_quantity(one.result.missing, 'more judged conversation')} with it, if the "
            f"difference is {round(100 * one.result.planned_effect)} points.",
            of=ReportedNumberKind.IN_USE,
            skill=one.comparison.skill,
            version=one.comparison.new,
            address=address,
        )
        for one in reports
        if one.comparison.state is ComparisonState.RUNNING and one.comparison.started_on < month.end
    ]
