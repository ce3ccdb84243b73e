"""Evidence: what helps, with which confidence, how long a verdict takes; and recording how a turn went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.learning.judging import TurnJudgementResult, record_turn_judgement
from habitus.app.learning.report_rows import ReportDrillDownPage, build_conversation_rows
from habitus.app.use_cases.declaration import (
    InputField,
    PageCursor,
    PageLimit,
    RestPageLimit,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.app.use_cases.skills import MAX_VERSION
from habitus.errors import InvalidOptions
from habitus.evidence.findings import ItemFinding, ItemVerdict, WithholdingForecast, WorseVersionFinding
from habitus.evidence.model import EvidenceItem, ItemKind
from habitus.evidence.sums import EvidenceCountKind
from habitus.journal.model import JudgementSourceKind
from habitus.memory.cortex import Cortex


@dataclass(frozen=True, kw_only=True)
class EvidenceFindingPage:
    """Findings per item and version."""

    # The share of offers that is withheld at random.
    withhold: float
    rollbacks: Sequence[WorseVersionFinding]
    items: Sequence[ItemFinding]
    # The texts of the lessons among the items, by id.
    lessons: Mapping[str, str]
    next: str | None
    total: int


@use_case("skills evidence", route="GET /evidence", access=Access.OPEN_READING)
def show_evidence(
    home: Home,
    name: Annotated[str | None, argument("A skill, recipe or tool, or the id of a lesson.", completes="skills")] = None,
    limit: RestPageLimit = None,
    after: PageCursor = "",
) -> EvidenceFindingPage:
    """Show what offering skills, lessons, recipes and tools changes, per version, and with which confidence."""
    found = home.evidence.compute_findings()
    items = found.items if name is None else home.evidence.find_item_findings(name)
    page = paginate_items("evidence", items, _format_finding_key, limit=limit, after=after)
    return EvidenceFindingPage(
        withhold=home.evidence.share,
        rollbacks=found.rollbacks,
        items=page.items,
        lessons=_read_lesson_texts(home.memory, (one.item for one in page.items)),
        next=page.next,
        total=page.total,
    )


def _format_finding_key(finding: ItemFinding) -> str:
    return f"{finding.item.kind}:{finding.item.name}:{finding.item.version}"


@use_case(
    "skills evidence rows",
    route="GET /evidence/rows",
    access=Access.VIEWER,
    example={"name": "data-summary", "of": EvidenceCountKind.USED},
)
def list_evidence_rows(
    home: Home,
    name: Annotated[str, argument("A skill, recipe or tool, or the id of a lesson.", completes="skills")],
    version: Annotated[int, option("Its version; default is the latest.", "-v", least=0, most=MAX_VERSION)] = 0,
    kind: Annotated[ItemKind, option(f"{', '.join(ItemKind)}.", "-k")] = ItemKind.SKILL,
    of: Annotated[EvidenceCountKind, option("Which count.")] = EvidenceCountKind.ALL,
    offered: Annotated[bool | None, option("Only those that were offered it, or not.", "--offered/--withheld")] = None,
    limit: PageLimit = 100,
    after: PageCursor = "",
) -> ReportDrillDownPage:
    """List the conversations that a count of the evidence counts; only yours can be opened."""
    item = EvidenceItem(kind=kind, name=name, version=version)
    if not version:
        found = [one.item for one in home.evidence.compute_findings().items if one.item.kind is kind]
        item = max((one for one in found if name in (one.name, one.name.partition("@")[0])), default=item)
    if not item.version and kind is ItemKind.SKILL:
        # Raises for an unknown name; a skill that was never offered has no rows.
        home.skills.find(name)
    counted = home.evidence.list_counted_conversations(item, of, is_offered=offered)
    page = paginate_items("the evidence", counted, lambda one: one.unit, limit=limit, after=after)
    rows = build_conversation_rows(
        home.journal, page.items, home.settings.user, lambda is_offered: "with" if is_offered else "without"
    )
    return ReportDrillDownPage(
        rows=[one if one.has_text else replace(one, turn="") for one in rows], next=page.next, total=page.total
    )


@dataclass(frozen=True, kw_only=True)
class ItemWithholdingForecast:
    item: EvidenceItem
    plan: WithholdingForecast


@dataclass(frozen=True, kw_only=True)
class PlanEvidenceResult:
    withhold: float
    plans: Sequence[ItemWithholdingForecast]
    lessons: Mapping[str, str]


@use_case("skills evidence plan", access=Access.VIEWER)
def plan_evidence(home: Home) -> PlanEvidenceResult:
    """Estimate how long until a verdict at today's rate, and what withholding costs until then."""
    # Items with a verdict need no plan any more, and those that nobody opens would have none however long it took.
    unknown = [
        one
        for one in home.evidence.compute_findings().items
        if one.decision.verdict is ItemVerdict.UNKNOWN and not one.estimate.is_never_opened
    ]
    return PlanEvidenceResult(
        withhold=home.evidence.share,
        plans=[ItemWithholdingForecast(item=one.item, plan=one.plan) for one in unknown],
        lessons=_read_lesson_texts(home.memory, (one.item for one in unknown)),
    )


def _read_lesson_texts(memory: Cortex, items: Iterable[EvidenceItem]) -> dict[str, str]:
    ids = {item.name for item in items if item.kind is ItemKind.LESSON}
    return {one.id: one.text for one in memory.list_lessons() if one.id in ids} if ids else {}


@use_case(
    "sessions outcome",
    route="POST /turns/{id}/outcome",
    access=Access.REVIEWER,
    example={"id": "d4342a3ce725", "ok": False, "reason": "the south is missing"},
)
def record_outcome(
    home: Home,
    id: Annotated[str, argument("A turn's id, or the id that the program gave it.")],
    ok: Annotated[bool | None, option("Whether the turn succeeded.", "--ok/--failed")] = None,
    reason: Annotated[str, option("Reason, in one line.")] = "",
    by: Annotated[
        str, option("Source of the feedback; later feedback from the same source replaces it.", rest_default="api")
    ] = "user",
    source_kind: Annotated[
        JudgementSourceKind, InputField(is_door=True, rest_default=JudgementSourceKind.PROGRAM)
    ] = JudgementSourceKind.PERSON,
) -> TurnJudgementResult:
    """Record how a turn went, in whichever agent it ran; the skills that it used get the credit or the blame.

    A second report from the same source replaces the first. A person's word at the command line or on a page outweighs
    what a program reports over REST.
    """
    if ok is None:
        raise InvalidOptions("The outcome is missing.", hint="Add --ok/--failed.")
    return record_turn_judgement(home, id, ok=ok, by=by, source_kind=source_kind, reason=reason)
