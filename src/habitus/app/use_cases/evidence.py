"""Evidence: what helps, with which confidence, how long a verdict takes; and recording how a turn went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.learning.learning import Judged, judge
from habitus.app.use_cases.declaration import Nothing, after_option, argument, limit_option, option, page_of, use_case
from habitus.errors import Misused
from habitus.evidence.findings import Finding, Plan, Rollback, Verdict
from habitus.evidence.model import Item, ItemKind
from habitus.memory.memory import Cortex


@dataclass(frozen=True, kw_only=True)
class EvidenceFilter:
    name: str | None = argument("A skill, recipe or tool, or the id of a lesson.", default=None, completes="skills")
    limit: int | None = limit_option(None, rest_default=100)
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class EvidencePage:
    """Findings per item and version."""

    # The share of offers that is withheld at random.
    withhold: float
    rollbacks: Sequence[Rollback]
    items: Sequence[Finding]
    # The texts of the lessons among the items, by id.
    lessons: Mapping[str, str]
    next: str | None
    total: int


@use_case("evidence show", route="GET /evidence", access=Access.OPEN_READING, example=EvidenceFilter())
def show(home: Home, wanted: EvidenceFilter) -> EvidencePage:
    """Show what offering skills, lessons, recipes and tools changes, per version, and with which confidence."""
    found = home.evidence.findings()
    items = found.items if wanted.name is None else home.evidence.of(wanted.name)
    page = page_of("evidence", items, _key, limit=wanted.limit, after=wanted.after)
    return EvidencePage(
        withhold=home.evidence.share,
        rollbacks=found.rollbacks,
        items=page.items,
        lessons=_lesson_texts(home.memory, (one.item for one in page.items)),
        next=page.next,
        total=page.total,
    )


def _key(finding: Finding) -> str:
    return f"{finding.item.kind}:{finding.item.name}:{finding.item.version}"


@dataclass(frozen=True, kw_only=True)
class ItemPlan:
    item: Item
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class EvidencePlans:
    withhold: float
    plans: Sequence[ItemPlan]
    lessons: Mapping[str, str]


@use_case("evidence plan", access=Access.VIEWER, example=Nothing())
def plan(home: Home, wanted: Nothing) -> EvidencePlans:
    """Estimate how long until a verdict at today's rate, and what withholding costs until then."""
    # Items with a verdict need no plan any more.
    unknown = [one for one in home.evidence.findings().items if one.judgement.verdict is Verdict.UNKNOWN]
    return EvidencePlans(
        withhold=home.evidence.share,
        plans=[ItemPlan(item=one.item, plan=one.plan) for one in unknown],
        lessons=_lesson_texts(home.memory, (one.item for one in unknown)),
    )


def _lesson_texts(memory: Cortex, items: Iterable[Item]) -> dict[str, str]:
    ids = {item.name for item in items if item.kind is ItemKind.LESSON}
    return {one.id: one.text for one in memory.list_lessons() if one.id in ids} if ids else {}


@dataclass(frozen=True, kw_only=True)
class TurnJudgement:
    id: str = argument("A turn's id, or the one that the program gave it.")
    ok: bool | None = option("Whether it did what was asked.", "--ok/--failed")
    reason: str = option("Why, in a line.", default="")
    by: str = option("Who says so; the same one corrects itself.", default="user", rest_default="api")


@use_case(
    "outcome",
    route="POST /turns/{id}/outcome",
    access=Access.REVIEWER,
    example=TurnJudgement(id="d4342a3ce725", ok=False, reason="the south is missing"),
)
def outcome(home: Home, wanted: TurnJudgement) -> Judged:
    """Record how a turn went, in whichever agent it ran; the skills that served a good turn get the credit.

    A second report from the same source replaces the first.
    """
    if wanted.ok is None:
        raise Misused("It is not said how it went.", hint="Say --ok or --failed; over REST, ok.")
    return judge(home, wanted.id, ok=wanted.ok, by=wanted.by, reason=wanted.reason)
