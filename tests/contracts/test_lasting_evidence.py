"""Exposures and outcomes outlive their turns, without any text, on every database that they may be kept in."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus import sql
from habitus.app.learning.evidence import EvidenceService, convert_exposures_to_observations
from habitus.errors import NotFound
from habitus.events import OutcomeKind
from habitus.evidence.findings import EvidenceFindings, collect_evidence_findings
from habitus.journal.journal import Journal
from habitus.journal.model import ExposureAssignment, Turn, TurnMessage, TurnOrigin, TurnOutcome
from habitus.journal.tables import evidence_sums, exposures, lasting_outcomes, turns
from habitus.redact import Redactor

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OFFER = ExposureAssignment(kind="skill", item="tea", version=2, propensity=0.9, request_kind="short task", tokens=12)
TURN = Turn(
    id="t1",
    session="c1",
    request="brew the secret blend",
    started_on=NOW,
    ended_on=NOW,
    caller_id="ticket-7",
    conversation="c1",
    user="ann",
    messages=(TurnMessage(role="user", content="brew the secret blend"),),
    exposures=(OFFER, replace(OFFER, item="lawn", is_offered=False)),
    outcomes=(TurnOutcome(kind=OutcomeKind.OK, weight=0.2, source="signal", reason="the secret worked", at=NOW),),
)


def journal(engine: sa.Engine, now: datetime = NOW) -> Journal:
    return Journal(engine, clock=lambda: now, redactor=Redactor([]), retention=timedelta(days=30))


def said(book: Journal, item: str = "tea") -> list[tuple[float, ...]]:
    return [kept.explicit_scores for kept in book.load_scored_exposures([item])]


def word(kind: OutcomeKind, source: str = "ci") -> TurnOutcome:
    return TurnOutcome(kind=kind, weight=1.0, source=source, reason="the secret failed")


@pytest.mark.req("LA-05", "AG-10")
def test_outcomes_that_come_twice_late_or_corrected_are_followed_and_outlive_the_turn(engine: sa.Engine) -> None:
    book = journal(engine)
    book.record_complete_turn(TURN)
    book.record_complete_turn(TURN)
    (first,) = book.load_scored_exposures(["tea"])
    assert (first.exposure, first.unit, first.at, first.explicit_scores, first.inferred_scores) == (
        OFFER,
        "c1",
        NOW,
        (),
        (1.0,),
    )
    assert book.get_turn("t1") == replace(TURN, exposures=tuple(sorted(TURN.exposures, key=lambda one: one.item)))
    used = replace(OFFER, is_used=True, is_ignored=True)
    book.record_complete_turn(
        replace(TURN, id="t2", started_on=NOW + timedelta(minutes=1), exposures=(used,), outcomes=())
    )
    assert [kept.exposure for kept in book.load_scored_exposures(["tea"])] == [used]
    later = journal(engine, NOW + timedelta(days=40))
    assert later.prune_turns() == 2
    for kind, expected in ((OutcomeKind.OK, (1.0,)), (OutcomeKind.OK, (1.0,)), (OutcomeKind.FAILED, (0.0,))):
        assert later.record_outcome("ticket-7", word(kind), user="ann") == "t1"
        assert said(later) == [expected]
    later.record_outcome("t1", word(OutcomeKind.INFRA))  # nobody's mistake: nothing is known
    assert said(later) == [()]
    with pytest.raises(NotFound):
        later.record_outcome("t1", word(OutcomeKind.OK), user="somebody else")
    with engine.connect() as connection:
        rows = [connection.execute(sa.text(f"SELECT * FROM {t}")).all() for t in ("exposures", "lasting_outcomes")]
    assert all(rows)
    assert "secret" not in str(rows)


@pytest.mark.req("LA-05")
def test_only_what_came_since_the_assignment_counts_and_a_forgotten_user_leaves_nothing(engine: sa.Engine) -> None:
    book = journal(engine)
    good, bad = (replace(TURN.outcomes[0], kind=kind, weight=1.0) for kind in (OutcomeKind.OK, OutcomeKind.FAILED))
    book.record_complete_turn(
        replace(TURN, id="t0", started_on=NOW - timedelta(minutes=1), exposures=(), outcomes=(bad,))
    )
    book.record_complete_turn(replace(TURN, outcomes=(good,)))
    book.record_complete_turn(replace(TURN, id="t2", session="c2", user="bob", exposures=(OFFER,), outcomes=(bad,)))
    assert said(book) == [(1.0,), (0.0,)]
    assert book.erase_user_evidence("ann") == 4
    assert [kept.unit for kept in book.load_scored_exposures()] == ["c2"]
    with pytest.raises(NotFound):
        journal(engine, NOW + timedelta(days=40)).record_outcome("nothing", good)


@pytest.mark.req("LA-05")
def test_every_host_draws_from_one_seed(engine: sa.Engine) -> None:
    assert journal(engine).get_or_create_random_seed() == journal(engine).get_or_create_random_seed() != ""


@pytest.mark.req("LA-05")
def test_what_is_kept_says_where_it_comes_from_and_only_real_requests_and_drawn_arms_count(engine: sa.Engine) -> None:
    book = journal(engine)
    good = (replace(TURN.outcomes[0], weight=1.0),)
    sure = replace(OFFER, item="milk", propensity=1.0)
    for source in ("repl", "dream", "trial", "replay"):
        turn = replace(TURN, id=source, session=source, source_type=source, exposures=(OFFER, sure), outcomes=good)
        book.record_complete_turn(turn)
        book.record_outcome(source, word(OutcomeKind.OK))
    assert {(kept.unit, kept.origin, kept.exposure.item) for kept in book.load_scored_exposures()} == {
        ("repl", TurnOrigin.REAL, "tea"),
        ("repl", TurnOrigin.REAL, "milk"),
        ("trial", TurnOrigin.TRIAL, "tea"),  # what else stood in its prompts was assigned by nobody
    }
    wanted = {("repl", "real"), ("dream", "practice"), ("trial", "trial"), ("replay", "replay")}
    with engine.connect() as connection:
        for table in ("exposures", "lasting_outcomes"):
            assert {tuple(row) for row in connection.execute(sa.text(f"SELECT unit, origin FROM {table}"))} == wanted
    assert (
        [turn.id for turn in book.list_latest_turns_of_all_conversations(limit=9)]
        == [turn.id for turn in book.iterate_latest_finished_turns(limit=9)]
        == ["repl"]
    )


def evidence(book: Journal, now: datetime) -> EvidenceService:
    return EvidenceService(
        journal=book, clock=lambda: now, share=0.1, refuse_changes=lambda: None, cache_threshold=2, batch_size=3
    )


def numbers(found: EvidenceFindings) -> dict[str, object]:
    """Every verdict, count, bound and interval; rounded, because sums are not added in the same order."""
    told: dict[str, object] = {}
    for one in found.items:
        estimate, name = one.estimate, f"{one.item.name} {one.item.version}"
        told[name] = (one.decision, estimate.offered, estimate.withheld, estimate.used, estimate.ignored)
        parts = [(each.low, each.high) for each in (one.bound, estimate.offering, estimate.weak) if each]
        told[f"{name} is"] = [round(end, 6) for part in (*parts, (one.plan.a_day, 0.0)) for end in part]
    return told


def in_one_pass(book: Journal, now: datetime) -> EvidenceFindings:
    kept = book.load_scored_exposures()
    return collect_evidence_findings(
        convert_exposures_to_observations(kept, book.list_items_chosen_for_requests(), now), withhold=0.1
    )


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What happens, in which conversation, on which day after the one before."""
    what = st.sampled_from(["offer", "offer", "offer", "stand", "judge", "use", "look", "look", "forget"])
    return draw(
        st.lists(st.tuples(what, st.integers(0, 9), st.sampled_from([0, 1, 2, 4, 50])), min_size=8, max_size=16)
    )


@pytest.fixture(scope="module")
def memory() -> sa.Engine:
    return sql.create_in_memory_engine()


@pytest.mark.req("LA-05")
@given(happened=happenings())
def test_sums_that_are_kept_say_what_a_pass_over_everything_says(
    memory: sa.Engine, happened: list[tuple[str, int, int]]
) -> None:
    now, engine = NOW, memory
    with sql.write_transaction(engine) as connection:
        for table in (turns, exposures, lasting_outcomes, evidence_sums):
            connection.execute(table.delete())
    for number, (what, unit, days) in enumerate(happened):
        now += timedelta(days=days, seconds=1)
        book, item = journal(engine, now), "tea" if unit % 2 else "lawn"
        offer = replace(OFFER, item=item, is_offered=unit % 3 > 0, propensity=0.6, is_steady=what == "stand")
        turn = replace(TURN, id=f"t{number}", session=f"c{unit}", caller_id=f"c{unit}", user=f"u{unit % 4}")
        if what in ("offer", "stand", "use"):
            offers = (replace(offer, is_used=what == "use"),)
            book.record_complete_turn(replace(turn, started_on=now, exposures=offers, outcomes=(word(OutcomeKind.OK),)))
        elif what == "judge":
            with suppress(NotFound):
                book.record_outcome(turn.caller_id, word(OutcomeKind.FAILED if number % 2 else OutcomeKind.OK))
        elif what == "forget":
            book.erase_user_evidence(turn.user)
        else:
            known = evidence(book, now)
            assert numbers(known.compute_findings()) == numbers(in_one_pass(book, now))


@pytest.mark.req("LA-05")
def test_sums_are_kept_only_where_nothing_changed_meanwhile(engine: sa.Engine) -> None:
    book, later = journal(engine), NOW + timedelta(days=9)
    for number in range(3):
        book.record_complete_turn(
            replace(TURN, id=f"t{number}", session=f"c{number}", outcomes=(word(OutcomeKind.OK),))
        )
    now = journal(engine, later)

    def is_kept() -> bool:
        return now.load_latest_cached_evidence_sums(later).sums is not None

    unread = now.load_latest_cached_evidence_sums(later)
    now.record_outcome("t1", word(OutcomeKind.OK))
    now.save_evidence_sums_unless_reset(
        replace(unread, until=later, sums=b"the first, of somebody who read before that")
    )
    assert not is_kept()
    evidence(now, later).compute_findings()
    assert is_kept()
    mistaken = now.load_latest_cached_evidence_sums(later)
    assert list(now.iterate_exposure_batches((), since=mistaken.until)) == []
    now.record_outcome("t1", word(OutcomeKind.FAILED))
    assert not is_kept()
    now.save_evidence_sums_unless_reset(mistaken)  # by somebody who had read before that
    assert not is_kept()
    assert [one.estimate.offered.explicit for one in evidence(now, later).compute_findings().items] == [0, 3]
    assert is_kept()
    now.erase_user_evidence("ann")
    assert not is_kept()
    assert evidence(now, later).compute_findings().items == ()


@pytest.mark.req("PF-05", "LA-05")
def test_a_late_judgement_leaves_the_sums_of_older_conversations(engine: sa.Engine) -> None:
    for day in range(0, 100, 2):
        began, said = NOW + timedelta(days=day), (word(OutcomeKind.OK),)
        book = journal(engine, began)
        book.record_complete_turn(replace(TURN, id=f"t{day}", session=f"c{day}", started_on=began, outcomes=said))
    later = NOW + timedelta(days=100)
    now = journal(engine, later)

    def judge(turn: str) -> int:
        """Judge a turn, and return how many conversations the next look reads again."""
        now.record_outcome(turn, word(OutcomeKind.FAILED))
        batches = list(now.iterate_exposure_batches((), since=now.load_latest_cached_evidence_sums(later).until))
        assert numbers(evidence(now, later).compute_findings()) == numbers(in_one_pass(now, later))
        return len({one.unit for batch in batches for one in batch.exposures})

    evidence(now, later).compute_findings()
    # Of conversations six days old, thirty, sixty and ninety-eight: sums are kept from twelve and from 48 days ago.
    assert [judge(turn) for turn in ("t94", "t70", "t40", "t2")] == [5, 23, 50, 50]
    # What was deleted is there again.
    assert [judge(turn) for turn in ("t94", "t70", "t40")] == [5, 23, 50]
