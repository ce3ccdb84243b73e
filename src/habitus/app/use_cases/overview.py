"""Reports for people: the overview of the last thirty days, what needs attention today, a search over everything, and
insights into the library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar

from habitus.access import Access
from habitus.app.conversations import models
from habitus.app.conversations.past_sessions import list_past_sessions
from habitus.app.home import Home, open_read_transaction_if_single_database, resolve_user_filter
from habitus.app.learning import insights, learning
from habitus.app.learning.report_rows import ReportDrillDownPage, list_rows_behind_report_number
from habitus.app.learning.reporting import (
    MonthlyLearningReport,
    ReportedNumberKind,
    ReportMonth,
    build_monthly_learning_report,
)
from habitus.app.library.browsing import USAGE_DAYS, SkillMapCluster, build_skill_map
from habitus.app.library.undoing import build_change_undo_command
from habitus.app.review import inbox
from habitus.app.use_cases.agents import AgentActivity, list_agent_activity
from habitus.app.use_cases.declaration import (
    AllUsers,
    PageCursor,
    PageLimit,
    SkillName,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.app.use_cases.finding import NameAndReason
from habitus.app.use_cases.lessons import hide_foreign_source_of_lesson
from habitus.app.use_cases.skills import ListSkillsRequest, filter_and_search_skills, list_existing_and_pending_skills
from habitus.evidence.findings import EvidenceFindings, WorseVersionFinding
from habitus.journal.model import SessionSummary
from habitus.journal.usage import DailyRequestCounts
from habitus.memory.model import Engram, LessonProducer
from habitus.skills.layers.listing import ListedSkill, build_skill_uses_url_path
from habitus.skills.library import Library
from habitus.skills.model import SkillSource, SkillState, SkillSummary
from habitus.skills.review import Proposal
from habitus.tools.model import CodeTool, ToolStatus

_WEEK = timedelta(days=7)
# How many skills that help, or hurt, are shown.
_MAX_SHOWN = 3
# Producers whose lessons agents did not learn themselves.
_TAUGHT_BY = (LessonProducer.USER, LessonProducer.IMPORT)


@dataclass(frozen=True, kw_only=True)
class SkillEffectWithInterval:
    """The effect of a skill per hundred conversations, with its confidence interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LearnedSkillOrLesson:
    """A skill or a lesson that agents made from their work."""

    kind: str
    id: str
    text: str
    learned_on: datetime | None


@dataclass(frozen=True, kw_only=True)
class SkillImportBatch:
    """Skills imported by one command, and the command that undoes it."""

    names: Sequence[str]
    imported_on: datetime
    undo: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OnboardingStatus:
    """Which of the first steps are done in a new home."""

    agent: bool
    skills: bool
    model: bool
    request: bool


@dataclass(frozen=True, kw_only=True)
class OverviewReport:
    """The last thirty days, oldest first, with the number of pending items at the end of each day."""

    days: Sequence[DailyRequestCounts]
    pending_per_day: Sequence[int]
    helps: Sequence[SkillEffectWithInterval]
    hurts: Sequence[SkillEffectWithInterval]
    agents: Sequence[AgentActivity]
    learned: Sequence[LearnedSkillOrLesson]
    imports: Sequence[SkillImportBatch]
    steps: OnboardingStatus


@use_case("", route="GET /overview", access=Access.VIEWER)
def show_overview(home: Home, all_users: AllUsers = False) -> OverviewReport:
    """Show the last thirty days: your requests and their outcomes, pending reviews, what helps or hurts, and agents."""
    return build_overview(home, compute_evidence_if_any_turn_is_judged(home), all_users=all_users)


def compute_evidence_if_any_turn_is_judged(home: Home) -> EvidenceFindings:
    """Return the findings; none, and without loading the statistics, while no turn has an outcome."""
    return home.evidence.compute_findings() if home.journal.has_any_explicit_feedback() else EvidenceFindings()


def build_overview(home: Home, findings: EvidenceFindings, *, all_users: bool) -> OverviewReport:
    """Return the overview; pages compute the findings once for all their parts."""
    now, user = home.clock(), resolve_user_filter(home.settings, all_users)
    with open_read_transaction_if_single_database(home):
        days = home.journal.count_requests_by_day(USAGE_DAYS, user=user)
        heard = home.journal.get_last_request_time_by_agent_kind(user=user)
    summaries = [item.summary for item in home.skills.list_skills() if item.summary is not None]
    recent = [one for one in summaries if one.modified_on is not None and one.modified_on >= now - _WEEK]
    helps, hurts = _select_most_helpful_and_harmful_skills(findings)
    agents = list_agent_activity(home, heard)
    own = any(one.layer != "bundled" for one in summaries)
    steps = OnboardingStatus(
        agent=bool(agents),
        skills=own,
        model=bool(models.resolve_main_and_cheap_model_names(home.settings, os.environ)[0]),
        request=bool(heard),
    )
    return OverviewReport(
        days=days,
        pending_per_day=_count_pending_reviews_per_day(home, days),
        helps=helps,
        hurts=hurts,
        agents=agents,
        learned=_list_learned_skills_and_lessons(recent, home.memory.list_lessons("week", 100)),
        imports=_list_import_batches(home.skills, recent),
        steps=steps,
    )


def _count_pending_reviews_per_day(home: Home, days: Sequence[DailyRequestCounts]) -> list[int]:
    open_from: list[tuple[datetime, datetime | None]] = []
    for item in inbox.list_pending(home, with_decided=True, with_contents=False):
        subject = item.subject
        if isinstance(subject, Proposal):
            open_from.append((subject.made_on, subject.decided_on))
        elif subject.created_on is not None:
            open_from.append((subject.created_on, None))
    ends = [datetime.combine(day.day, datetime.min.time(), tzinfo=UTC) + timedelta(days=1) for day in days]
    return [sum(made < end and (done is None or done >= end) for made, done in open_from) for end in ends]


def _select_most_helpful_and_harmful_skills(
    findings: EvidenceFindings,
) -> tuple[list[SkillEffectWithInterval], list[SkillEffectWithInterval]]:
    """Return the skills with the strongest effects whose sign is known, by their newest version."""
    newest: dict[str, SkillEffectWithInterval] = {}
    for one in findings.items:
        if one.item.kind == "skill" and (effect := one.estimate.offering) is not None:
            name = one.item.name.partition("@")[0]
            # Findings come oldest version first, so the newest one wins.
            newest[name] = SkillEffectWithInterval(name=name, value=effect.value, low=effect.low, high=effect.high)
    ranked = sorted(newest.values(), key=lambda one: (-one.value, one.name))
    hurts = [one for one in reversed(ranked) if one.high < 0]
    return [one for one in ranked if one.low > 0][:_MAX_SHOWN], hurts[:_MAX_SHOWN]


def _list_learned_skills_and_lessons(
    recent: Iterable[SkillSummary], lessons: Iterable[Engram]
) -> list[LearnedSkillOrLesson]:
    found = [
        LearnedSkillOrLesson(kind="skill", id=one.name, text=one.title or one.name, learned_on=one.modified_on)
        for one in recent
        if one.source is SkillSource.AGENT
    ]
    found += [
        LearnedSkillOrLesson(kind="lesson", id=one.id, text=one.text, learned_on=one.created_on)
        for one in lessons
        if one.produced_by not in _TAUGHT_BY
    ]
    return sorted(found, key=lambda one: one.learned_on or datetime.min.replace(tzinfo=UTC), reverse=True)


def _list_import_batches(skills: Library, recent: Iterable[SkillSummary]) -> list[SkillImportBatch]:
    """Return the latest imports, each as a whole: a large one writes its skills in batches with times of their own."""
    left = {one.name: one for one in recent if one.source is SkillSource.IMPORTED and one.modified_on is not None}
    found: list[SkillImportBatch] = []
    while left and len(found) < _MAX_SHOWN:
        latest = max(left.values(), key=lambda one: str(one.modified_on))
        assert latest.modified_on is not None
        change = skills.list_versions(f"{latest.name}@{latest.layer}")[-1].author
        together = {latest.name}
        if change.change_id:
            store = skills.get_layer(latest.layer).store
            together |= left.keys() & {one.name for one in store.list_changed_skills(change.change_id)}
        undo = build_change_undo_command(change) if change.change_id else ()
        found.append(SkillImportBatch(names=sorted(together), imported_on=latest.modified_on, undo=undo))
        left = {name: one for name, one in left.items() if name not in together}
    return found


@dataclass(frozen=True, kw_only=True)
class SkillMapPoint:
    """A skill on the map: coordinates from 0 to 1, uses, and its effect per hundred conversations, if known."""

    IN_JSON: ClassVar = ("links",)

    name: str
    layer: str
    x: float
    y: float
    uses: int
    effect: float | None

    @property
    def links(self) -> Mapping[str, str]:
        """The address that lists the uses, below the root of REST."""
        return {"uses": build_skill_uses_url_path(self.layer, self.name)}


@dataclass(frozen=True, kw_only=True)
class SkillMapResult:
    skills: Sequence[SkillMapPoint]
    clusters: Sequence[SkillMapCluster]


@use_case("", route="GET /map", access=Access.OPEN_READING)
def show_skill_map(home: Home) -> SkillMapResult:
    """Show skills on a map by meaning: the most used ones as points, the others in clusters."""
    found = build_skill_map(home)
    return SkillMapResult(
        skills=[
            SkillMapPoint(
                name=dot.row.item.name,
                layer=dot.row.item.layer,
                x=dot.x,
                y=dot.y,
                uses=dot.row.counters.used,
                effect=None if dot.row.effect is None else dot.row.effect.value,
            )
            for dot in found.dots
        ],
        clusters=found.clusters,
    )


@dataclass(frozen=True, kw_only=True)
class SearchHit:
    """A skill, a lesson or a conversation; `id` opens it."""

    kind: str
    id: str
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SearchEverythingResult:
    found: Sequence[SearchHit]


@use_case("", route="GET /find", access=Access.VIEWER, example={"q": "close the books"})
def search_everything(
    home: Home, q: Annotated[str, argument("A few words.")] = "", limit: PageLimit = 6
) -> SearchEverythingResult:
    """Find skills, lessons and your conversations by a few words, at most `limit` of each."""
    if not (words := q.lower().split()):
        return SearchEverythingResult(found=())
    skills, fits = filter_and_search_skills(home, ListSkillsRequest(q=q), list_existing_and_pending_skills(home))
    found = [
        SearchHit(
            kind="skill",
            id=item.name,
            title=(item.summary.title if item.summary else "") or item.name,
            text=item.summary.when_to_use_line if item.summary else item.reason,
        )
        # Without a good match, two near misses are enough to show what is there.
        for item in skills[: limit if fits else 2]
    ]
    lessons = [one for one in home.memory.list_lessons("all", 1000) if _contains_all_words(words, one.text)]
    found += [SearchHit(kind="lesson", id=one.id, title=one.text, text="") for one in lessons[:limit]]
    talks = [
        one for one in list_past_sessions(home.settings, home.journal, 500) if _contains_all_words(words, one.title)
    ]
    found += [SearchHit(kind="conversation", id=one.id, title=one.title, text="") for one in talks[:limit]]
    return SearchEverythingResult(found=found)


def _contains_all_words(words: Iterable[str], text: str) -> bool:
    lowered = text.lower()
    return all(word in lowered for word in words)


@dataclass(frozen=True, kw_only=True)
class LibraryInsightsReport:
    """Long-term figures about the library."""

    # Most helpful first.
    effects: Sequence[insights.SkillEffectHistory]
    menu: insights.MenuCost
    unused: Sequence[insights.UnusedSkill]
    # Worst first.
    confused: Sequence[insights.ConfusedSkillPair]
    improvements: Sequence[insights.TriedSkillCandidateSummary]


@use_case("", route="GET /insights", access=Access.OPEN_READING)
def show_insights(home: Home, all_users: AllUsers = False) -> LibraryInsightsReport:
    """Show effects over time, the cost of the menu, unused and confused skills, and the candidates tried.

    Effects are estimated over the conversations of all users. Uses are yours, unless an admin asks for those of all.
    """
    user = resolve_user_filter(home.settings, all_users)
    return LibraryInsightsReport(
        effects=insights.list_surest_skill_effect_histories(home, user),
        menu=insights.compute_menu_cost(home, user),
        unused=insights.list_old_never_used_skills(home, user),
        confused=insights.list_confused_skill_pairs(home),
        improvements=insights.list_tried_candidates(home),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TodayReport:
    """What needs attention today, and what is new this week."""

    pending: tuple[inbox.ReviewInboxItem, ...]
    # Created or changed within a week, newest first.
    new_skills: tuple[SkillSummary, ...]
    new_lessons: tuple[Engram, ...]
    # Skills that can't be loaded or lack something they need.
    broken: tuple[ListedSkill, ...]
    # Versions that do worse than their predecessor.
    regressions: tuple[WorseVersionFinding, ...]
    # Tools that failed repeatedly.
    failing: tuple[CodeTool, ...]
    sessions: tuple[SessionSummary, ...]
    # The number of all skills.
    skills: int
    # Without the skills that come with Habitus.
    own_skills: int

    @property
    def is_home_unused(self) -> bool:
        """Whether nothing has been created, learned or asked in this home yet."""
        return not (self.pending or self.own_skills or self.new_lessons or self.sessions)


def build_today_report(home: Home, findings: EvidenceFindings, *, with_contents: bool = True) -> TodayReport:
    """Collect what needs attention; `with_contents` also reads the files of pending changes."""
    listing, now = home.skills.list_skills(), home.clock()
    summaries = [item.summary for item in listing if item.summary is not None]
    # Listing tools loads the sandbox, so it is skipped if no skill has code.
    tools = home.tools.all() if home.skills.snapshot().skills_with_code else ()
    return TodayReport(
        pending=inbox.list_pending(home, with_contents=with_contents),
        new_skills=_select_recently_changed_skills(summaries, now - _WEEK),
        new_lessons=tuple(
            hide_foreign_source_of_lesson(home.settings, one) for one in home.memory.list_lessons("week", 100)
        ),
        broken=tuple(item for item in listing if item.state in (SkillState.BROKEN, SkillState.GATED)),
        regressions=findings.rollbacks,
        failing=tuple(tool for tool in tools if tool.status in (ToolStatus.DEGRADED, ToolStatus.BROKEN)),
        sessions=tuple(list_past_sessions(home.settings, home.journal, 5)),
        skills=len(summaries),
        own_skills=sum(summary.layer != "bundled" for summary in summaries),
    )


def _select_recently_changed_skills(summaries: list[SkillSummary], since: datetime) -> tuple[SkillSummary, ...]:
    """Return the skills changed since then, newest first, without bundled ones."""
    dated = [(summary.modified_on, summary) for summary in summaries if summary.modified_on is not None]
    recent = [(on, summary) for on, summary in dated if on >= since and summary.layer != "bundled"]
    return tuple(summary for _, summary in sorted(recent, key=lambda each: (each[0], each[1].name), reverse=True))


@dataclass(frozen=True, kw_only=True)
class TodayResponse:
    """What needs attention today, as served over REST."""

    pending: Sequence[inbox.ReviewInboxItem]
    new_skills: Sequence[str]
    new_lessons: Sequence[Engram]
    broken: Sequence[NameAndReason]
    regressions: Sequence[WorseVersionFinding]
    failing: Sequence[NameAndReason]


@use_case("", route="GET /today", access=Access.VIEWER)
def show_today(home: Home) -> TodayResponse:
    """Show what to look at first: pending reviews, this week's news, and broken skills and tools."""
    found = build_today_report(home, compute_evidence_if_any_turn_is_judged(home))
    return TodayResponse(
        pending=found.pending,
        new_skills=[summary.name for summary in found.new_skills],
        new_lessons=found.new_lessons,
        broken=[NameAndReason(name=item.name, reason=item.reason) for item in found.broken],
        regressions=found.regressions,
        failing=[NameAndReason(name=tool.name, reason=tool.reason) for tool in found.failing],
    )


@dataclass(frozen=True, kw_only=True)
class ListRepeatedFailuresResult:
    failing: Sequence[learning.FailureWithRemedy]


ReportedMonth = Annotated[str, option("The month, as YYYY-MM in UTC; default is this one.")]


@use_case("report", route="GET /report", access=Access.VIEWER, example={"month": "2026-10"})
def show_report(home: Home, month: ReportedMonth = "", all_users: AllUsers = False) -> MonthlyLearningReport:
    """Show what a month of learning was worth, and what it cost.

    *Because of* is said only of conversations that were randomised between two versions of a skill.
    """
    user = resolve_user_filter(home.settings, all_users)
    return build_monthly_learning_report(home, ReportMonth.parse(month, home.clock()), user)


@use_case(
    "report rows",
    route="GET /report/rows",
    access=Access.VIEWER,
    example={"of": ReportedNumberKind.FAILED, "month": "2026-10"},
)
def list_report_rows(
    home: Home,
    of: Annotated[ReportedNumberKind, argument("Which number.")] = ReportedNumberKind.REQUESTS,
    month: ReportedMonth = "",
    skill: Annotated[str, option("For in_use: the skill whose versions were compared.")] = "",
    version: Annotated[int, option("For in_use: its changed version; default is the latest compared.")] = 0,
    limit: PageLimit = 100,
    after: PageCursor = "",
    all_users: AllUsers = False,
) -> ReportDrillDownPage:
    """List what is behind a number of the report; requests past their retention are rows without text."""
    user, period = resolve_user_filter(home.settings, all_users), ReportMonth.parse(month, home.clock())
    rows = dict(enumerate(list_rows_behind_report_number(home, of, period, user, skill, version)))
    page = paginate_items(
        "the report", list(rows.items()), lambda row: row[1].turn or str(row[0]), limit=limit, after=after
    )
    return ReportDrillDownPage(rows=[row for _, row in page.items], next=page.next, total=page.total)


@use_case("", route="GET /failing", access=Access.VIEWER)
def list_repeated_failures(home: Home) -> ListRepeatedFailuresResult:
    """List what fails repeatedly in conversations, and which remedies worked."""
    return ListRepeatedFailuresResult(failing=learning.list_costliest_repeated_failures(home))


@use_case("", route="GET /skills/{name}/evidence", access=Access.OPEN_READING, example={"name": "csv-summary"})
def show_skill_evidence(home: Home, name: SkillName) -> insights.SkillUsageHistory:
    """Show the effect of each version of a skill, newest first, and its uses by version and by week."""
    return insights.read_skill_usage_history(home, home.skills.find(name))
