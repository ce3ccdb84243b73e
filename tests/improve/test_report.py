"""The report of a month: what is known of requests and changes, what it cost, and nothing that no interval supports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import open_improve_run
from habitus.app.learning.reporting import MonthlyAgentCost, ReportedNumberKind, RequestTotals, UnansweredReportQuestion
from habitus.app.use_cases.overview import list_report_rows, show_report
from habitus.errors import Invalid
from habitus.improve.candidates import CandidateState
from habitus.improve.plan import ImproveRequest
from habitus.improve.store import SCHEDULED_MARK
from habitus.journal.model import Turn
from habitus.learning.budget import RunBudget
from tests.improve.test_comparing import approved, ask, conversations
from tests.improve.test_improving import NAME, _draft, furnish, playing


@pytest.mark.req("IM-08")
async def test_the_report_says_because_of_only_from_randomised_conversations(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        ask(habitus, "alone", ok=True)
        report = show_report(habitus)
        assert report.gain_sentence == "Not known: no conversation was randomised between two versions of a skill."
        assert not report.unknown
        await approved(habitus)
        new, old = conversations(habitus, new=True), conversations(habitus, new=False)
        for number in range(16):
            ask(habitus, next(new), ok=number % 4 > 0)
            ask(habitus, next(old), ok=None if number > 3 else number % 2 == 0)
        ask(habitus, next(new))
        report = show_report(habitus)
        assert report.requests == RequestTotals(requests=34, succeeded=15, failed=6, no_feedback=13, without_text=0)
        assert report.gain is not None
        assert (report.gain.conversations, report.gain.judged) == (17, 20)
        assert report.gain.low < 0 < report.gain.gained < report.gain.high
        assert report.gain_sentence.startswith("Because of compared changes about ")
        assert report.gain_sentence.endswith("): not shown yet.")
        (change,) = report.changes
        assert (change.state, change.exam) == ("compared in use: running", "+100 points (+41 to +100)")
        assert (report.proposed, report.approved, report.kept, report.rolled_back) == (1, 1, 0, 0)
        assert report.cost.decisions == 1
        assert report.cost.rollouts > 0
        assert report.cost.tokens > 0
        (undecided,) = report.unknown
        assert undecided.unknown.startswith("Whether version 2 of name-a-town is better than 1: Not known")
        for of, count in (
            (ReportedNumberKind.PROPOSED, report.proposed),
            (ReportedNumberKind.APPROVED, report.approved),
            (ReportedNumberKind.KEPT, 0),
            (ReportedNumberKind.ROLLED_BACK, 0),
            (ReportedNumberKind.DECISIONS, report.cost.decisions),
            (ReportedNumberKind.ROLLOUTS, report.cost.rollouts),
            (ReportedNumberKind.FAILED, 6),
            (ReportedNumberKind.REQUESTS, 34),
            (ReportedNumberKind.COMPARED, 33),
        ):
            assert list_report_rows(habitus, of=of, limit=100).total == count
        rollouts = list_report_rows(habitus, of=ReportedNumberKind.ROLLOUTS, limit=500).rows
        assert sum(one.tokens for one in rollouts) == report.cost.tokens
        in_use = f"/report/rows?month={report.month}&of=in_use&skill=name-a-town&version=2"
        assert change.links == {"in_use": in_use, "exam": f"/review/{change.proposal}"}
        assert undecided.links == {"unknown": in_use}
        rows = list_report_rows(habitus, of=ReportedNumberKind.IN_USE, skill=NAME, version=2, limit=500).rows
        assert sum("no feedback" not in one.said for one in rows) == 20
        assert all(one.has_text for one in rows)
        # Also under a month in which none of them was held.
        assert (
            list_report_rows(habitus, of=ReportedNumberKind.IN_USE, month="2026-01", skill=NAME, limit=500).rows == rows
        )
        with pytest.raises(Invalid, match="Version 1 of 'name-a-town' was not compared"):
            list_report_rows(habitus, of=ReportedNumberKind.IN_USE, skill=NAME, version=1)
        assert report.cost.links["dollars"].endswith("&of=paid")


@pytest.mark.req("IM-08")
async def test_tokens_are_counted_once_whoever_pays_and_an_approved_change_that_is_not_compared_is_counted(
    home: Path,
) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        habitus.settings = habitus.settings.model_copy(
            update={"evidence": habitus.settings.evidence.model_copy(update={"compare_versions": 0.0})}
        )
        furnish(habitus, 24)
        for day, id in ((None, "by-hand"), (habitus.spending, f"by-night{SCHEDULED_MARK}")):
            drafts = [_draft("3. Write it in capitals." if day is None else "3. Smile.")]
            model = RunBudget(day=day).wrap_model(playing(drafts))
            request = ImproveRequest(skill=NAME, rounds=2, candidates=1)
            done = await open_improve_run(habitus, request, id, model).execute()
            paid = model.budget.tokens
            cost = show_report(habitus).cost
            made = open_improve_store(habitus).list_rollouts(run=id)
            if day is None:
                assert cost.tokens == sum(one.tokens for one in made)
                assert cost.tokens + cost.draft_tokens == paid
                assert (cost.draft_tokens > 100, cost.budget_tokens) == (True, 0)
                by_hand, proposal = paid, done.proposal
            else:
                assert habitus.spending.get_usage_today().tokens == paid
                assert cost.tokens + cost.draft_tokens + cost.budget_tokens == by_hand + paid
            for of, tokens in (("drafts", cost.draft_tokens), ("budget", cost.budget_tokens)):
                rows = list_report_rows(habitus, of=ReportedNumberKind(of)).rows
                assert sum(one.tokens for one in rows) == tokens
        assert proposal is not None
        habitus.review.approve(proposal, habitus.build_author())
        report = show_report(habitus)
        assert (report.proposed, report.approved, report.kept) == (1, 1, 0)
        assert [one.state for one in report.changes] == ["approved"]


@pytest.mark.req("IM-08")
@pytest.mark.parametrize("is_scheduled", [True, False])
async def test_a_draft_that_came_to_nothing_is_in_the_cost(home: Path, is_scheduled: bool) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        model = RunBudget(day=habitus.spending if is_scheduled else None).wrap_model(playing(["I can't."] * 3))
        id = f"r1{SCHEDULED_MARK}" if is_scheduled else "r1"
        done = await open_improve_run(habitus, ImproveRequest(skill=NAME, rounds=2), id, model).execute()
        assert done.stopped.startswith("no candidate could be drafted: ")
        assert [one.candidate.state for one in done.reports] == [CandidateState.REFUSED]
        cost = show_report(habitus).cost
        assert (cost.budget_tokens if is_scheduled else cost.draft_tokens) > 100
        assert cost.tokens + cost.draft_tokens + cost.budget_tokens == done.tokens == model.budget.tokens


@pytest.mark.req("IM-08")
def test_past_their_retention_the_rows_are_left_without_text(home: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=40)
    month = f"{long_ago:%Y-%m}"
    with Habitus.open(read_settings(home), clock=lambda: long_ago) as habitus:
        ask(habitus, "c1", ok=False)
        ask(habitus, "c2")
    with Habitus.open(read_settings(home)) as habitus:
        habitus.journal.prune_turns()
        report = show_report(habitus, month=month)
        assert report.requests == RequestTotals(requests=2, succeeded=0, failed=1, no_feedback=1, without_text=2)
        assert not report.unknown
        (row,) = list_report_rows(habitus, of=ReportedNumberKind.FAILED, month=month).rows
        assert (row.said, row.has_text) == ("failed", False)
        assert list_report_rows(habitus, of=ReportedNumberKind.WITHOUT_TEXT, month=month).total == 2
        with pytest.raises(Invalid, match="'October' is not a month"):
            show_report(habitus, month="October")
        for conversation in ("c3", "c4", "c5"):
            ask(habitus, conversation)
        assert show_report(habitus).unknown == [
            UnansweredReportQuestion(
                unknown="How the requests without feedback went.",
                settled_by="Feedback: /good and /bad in the chat, the buttons on the page, "
                "or 'habitus sessions outcome'.",
                of=ReportedNumberKind.NO_FEEDBACK,
            )
        ]


@pytest.mark.req("IM-08")
def test_the_cost_of_agents_is_what_they_reported_and_each_sum_opens_its_requests(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        assert show_report(habitus).agent_cost == MonthlyAgentCost(
            metered=0, priced=0, unmetered=0, tokens=0, dollars=0.0
        )
        said: tuple[dict[str, float], ...] = (
            {"input_tokens": 900, "output_tokens": 100, "cost": 0.25},
            {"input_tokens": 4_000, "output_tokens": 0},
            # Its model is free.
            {"input_tokens": 50, "output_tokens": 50, "cost": 0.0},
            {"input_tokens": 0, "output_tokens": 0, "rounds": 2},
            {},
        )
        for number, usage in enumerate(said):
            id, now = f"t{number}", habitus.clock()
            user = habitus.settings.user
            habitus.journal.record_complete_turn(
                Turn(id=id, session=id, request="Sum.", started_on=now, user=user, usage=usage)
            )
        cost = show_report(habitus).agent_cost
        assert cost == MonthlyAgentCost(metered=3, priced=2, unmetered=2, tokens=5_100, dollars=0.25)
        counted = {name: ReportedNumberKind(link.rpartition("=")[2]) for name, link in cost.links.items()}
        rows = {name: list_report_rows(habitus, of=of).rows for name, of in counted.items()}
        assert {name: len(found) for name, found in rows.items()} == {
            "tokens": 3,
            "dollars": 2,
            "metered": 3,
            "priced": 2,
            "unmetered": 2,
        }
        assert sum(one.tokens for one in rows["tokens"]) == cost.tokens
        assert sum(one.dollars for one in rows["dollars"]) == cost.dollars


@pytest.mark.req("IM-08")
async def test_what_learning_took_is_one_sum_that_opens_its_parts(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        habitus.spending.settle(habitus.spending.reserve(500), 300)
        model = RunBudget(day=None).wrap_model(playing([_draft("3. Write it in capitals.")]))
        await open_improve_run(habitus, ImproveRequest(skill=NAME, rounds=2, candidates=1), "r1", model).execute()
        cost = show_report(habitus).cost
        assert cost.all_tokens == cost.tokens + cost.draft_tokens + 300
        assert cost.links["all_tokens"].endswith("&of=learning")
        rows = list_report_rows(habitus, of=ReportedNumberKind.LEARNING, limit=500).rows
        assert sum(one.tokens for one in rows) == cost.all_tokens
