"""Home: numbers of the last thirty days and items that need attention. Also Insights and trying a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from markupsafe import Markup

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.home import resolve_user_filter
from habitus.app.learning import insights
from habitus.app.learning.learning import list_costliest_repeated_failures
from habitus.app.learning.report_rows import ReportDrillDownPage
from habitus.app.learning.reporting import MonthlyCost, ReportedNumberKind, ReportMonth, build_monthly_cost
from habitus.app.library import explaining
from habitus.app.review.inbox import ReviewInboxItem
from habitus.app.use_cases import evidence, overview, review
from habitus.app.use_cases.overview import (
    OverviewReport,
    TodayReport,
    build_overview,
    build_today_report,
    compute_evidence_if_any_turn_is_judged,
)
from habitus.evidence.model import EffectEstimate, ItemKind
from habitus.evidence.sums import EvidenceCountKind
from habitus.journal.usage import UseVerdict
from habitus.skills.model import SkillState
from habitus.skills.review import Proposal, ProposalAction
from habitus.web import charts, inbox_labels, labels, site_map
from habitus.web.api.schemas import RequestHome
from habitus.web.rendering import FlashMessage, render_fragment, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()
# Rows in the list, and how many are reserved for problems that are not proposals.
_MAX_ATTENTION_ITEMS, _RESERVED_PROBLEM_ITEMS = 5, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardTile:
    """A number of the last thirty days with its trend line and a link."""

    href: str
    number: str
    label: str
    sparkline: Markup


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionItem:
    """A row that needs a person's attention; its action is a link, or a form if `post_path` is set."""

    text: str
    note: str
    href: str
    action_label: str
    post_path: str = ""
    form_fields: Mapping[str, str] = field(default_factory=dict)
    # Reviewers may do it, too.
    is_decision: bool = False


@router.get("/", access=Access.OPEN_READING)
def show_home(request: Request, habitus: RequestHome) -> Response:
    """Show the home page; anonymous visitors are sent to the skills, because this page is about people's requests."""
    if request.state.access < Access.VIEWER:
        return RedirectResponse("/skills", status_code=HTTPStatus.SEE_OTHER)
    return _render_home(request, habitus)


def _render_home(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    """Return the home page."""
    scope = OwnOrAllUsersScope.from_request_query(request, habitus)
    findings = compute_evidence_if_any_turn_is_judged(habitus)
    found = build_overview(habitus, findings, all_users=scope.all_users)
    first = build_today_report(habitus, findings, with_contents=False)
    effects = {
        one.name: EffectEstimate(value=one.value, low=one.low, high=one.high) for one in (*found.helps, *found.hurts)
    }
    has_requests = any(day.total for day in found.days)

    def locate_day(day: date, outcome: str) -> str:
        return _build_turns_url(day, day, scope, f"outcome={outcome}")

    return render_page(
        request,
        "home.html",
        said=said,
        found=found,
        scope=scope,
        tiles=_build_dashboard_tiles(found, scope),
        counts=_list_outcome_counts_with_links(found, scope),
        needs=_list_attention_items(habitus, first, may_decide=request.state.access >= Access.REVIEWER),
        waiting=len(first.pending),
        bars=charts.render_daily_outcome_bars(found.days, locate_day) if has_requests else None,
        effects=charts.render_confidence_intervals("Per 100 conversations", effects) if effects else None,
        is_first_run=not found.steps.request,
        cost=_build_cost_of_this_month(habitus, scope),
        more=_build_scope_query_suffix(scope),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnOrAllUsersScope:
    """Whose requests a page counts: the person's own, or with `?user=*` those of all users, for admins."""

    all_users: bool
    # Whether there is anybody else to switch to.
    can_switch: bool

    @classmethod
    def from_request_query(cls, request: Request, habitus: Habitus) -> OwnOrAllUsersScope:
        can_switch = habitus.settings.is_admin and len(habitus.journal.list_users()) > 1
        return cls(all_users=request.query_params.get("user") == "*", can_switch=can_switch)

    @property
    def query(self) -> str:
        """The part of an address that keeps the scope."""
        return "user=*" if self.all_users else ""


def _build_turns_url(first: date, last: date, scope: OwnOrAllUsersScope, more: str = "") -> str:
    """Return the address of the turns of these days, in Activity."""
    since = f"since={first}&until={last}"
    return "/activity?" + "&".join(part for part in (since, more, scope.query) if part)


def _list_outcome_counts_with_links(
    found: OverviewReport, scope: OwnOrAllUsersScope
) -> list[tuple[UseVerdict, int, str]]:
    """Return how many requests have each outcome, and the address of exactly those turns."""
    first, last = found.days[0].day, found.days[-1].day
    return [
        (one, sum(getattr(day, one) for day in found.days), _build_turns_url(first, last, scope, f"outcome={one}"))
        for one in (UseVerdict.SUCCEEDED, UseVerdict.FAILED, UseVerdict.NO_FEEDBACK)
    ]


def _build_dashboard_tiles(found: OverviewReport, scope: OwnOrAllUsersScope) -> list[DashboardTile]:
    days = found.days
    first, last = days[0].day, days[-1].day
    total = sum(day.total for day in days)
    good, bad = sum(day.succeeded for day in days), sum(day.failed for day in days)
    used = {name for day in days for name in day.skills}
    shares = [day.succeeded / (day.succeeded + day.failed) if day.succeeded + day.failed else None for day in days]
    return [
        DashboardTile(
            href=_build_turns_url(first, last, scope),
            number=f"{total:,}",
            label="request" if total == 1 else "requests",
            sparkline=charts.render_sparkline([day.total for day in days]),
        ),
        DashboardTile(
            href=_build_turns_url(first, last, scope, "outcome=succeeded"),
            number=f"{100 * good / (good + bad):.0f} %" if good + bad else "–",
            label="succeeded, of those with feedback",
            sparkline=charts.render_sparkline(shares),
        ),
        DashboardTile(
            href=_build_turns_url(first, last, scope, "skill=*"),
            number=f"{len(used):,}",
            label="skill used" if len(used) == 1 else "skills used",
            sparkline=charts.render_sparkline([len(set(day.skills)) for day in days]),
        ),
        DashboardTile(
            href="/inbox",
            number=f"{found.pending_per_day[-1]:,}",
            label="pending review",
            sparkline=charts.render_sparkline(found.pending_per_day),
        ),
    ]


@router.post("/inbox/{id}/approve-here", access=Access.REVIEWER)
def approve_from_home(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    """Approve an item from its row and return the page with the remaining rows."""
    (done,) = review.approve_items(habitus, ids=(id,)).approved
    return _render_home(
        request,
        habitus,
        FlashMessage(text=f"Approved: {inbox_labels.describe_item_briefly(done.item)}.", undo=done.undo),
    )


def _list_attention_items(habitus: Habitus, first: TodayReport, *, may_decide: bool) -> Sequence[AttentionItem]:
    """Return the pending items, with rows reserved for skills that are broken or got worse."""
    others = list(_list_skill_problem_items(first))
    # What hurts is still in use until somebody agrees to disable it, so this comes first.
    pending = sorted(first.pending, key=lambda item: not _is_proposal_to_disable_skill(item))
    waiting = [
        _make_pending_attention_item(habitus, item, may_decide=may_decide) for item in pending[:_MAX_ATTENTION_ITEMS]
    ]
    room = max(_MAX_ATTENTION_ITEMS - len(waiting), _RESERVED_PROBLEM_ITEMS)
    return [*others[:room], *waiting][:_MAX_ATTENTION_ITEMS]


def _is_proposal_to_disable_skill(item: ReviewInboxItem) -> bool:
    return isinstance(item.subject, Proposal) and item.subject.change.action is ProposalAction.DISABLE


def _make_pending_attention_item(habitus: Habitus, item: ReviewInboxItem, *, may_decide: bool) -> AttentionItem:
    """Return the row of a pending item: a harmless one can be approved at once, others are opened."""
    need = AttentionItem(
        text=inbox_labels.describe_item_briefly(item),
        note=labels.capitalise_first(inbox_labels.get_author_or_pending_reason(item)),
        href=f"/inbox/{item.id}",
        action_label="Review",
    )
    subject, known = item.subject, habitus.review
    if not (may_decide and isinstance(subject, Proposal) and subject.is_agent_text_without_findings):
        return need
    if known.is_on_other_host(subject) or known.needs_other_approver(subject):
        return need
    return replace(need, action_label="Approve", post_path=f"/inbox/{item.id}/approve-here", is_decision=True)


def _list_skill_problem_items(first: TodayReport) -> Iterator[AttentionItem]:
    """Yield rows for skills that got worse, are broken, or whose tool keeps failing."""
    for one in first.regressions:
        name = one.item.name.partition("@")[0]
        yield AttentionItem(
            text=f"{name} got worse with version {one.item.version}",
            note=one.reason,
            href=f"/skills/{name}?tab=results",
            action_label=f"Roll back to {one.to.version}",
            post_path=f"/skills/{name}/back",
            form_fields={"to": str(one.to.version)},
        )
    for item in sorted(first.broken, key=lambda item: item.state is not SkillState.BROKEN):
        is_broken = item.state is SkillState.BROKEN
        yield AttentionItem(
            text=f"{item.name} {'is broken' if is_broken else 'has unmet requirements'}",
            note=site_map.remove_cli_commands(item.reason),
            href=f"/skills/{item.name}",
            action_label="Fix" if is_broken else "View",
        )
    for tool in first.failing:
        yield AttentionItem(
            text=f"{tool.name} keeps failing",
            note=site_map.remove_cli_commands(tool.reason),
            href=f"/skills/{tool.name}?tab=code",
            action_label="Look",
        )


@router.get("/failing", access=Access.VIEWER)
def show_recurring_failures(habitus: RequestHome) -> HTMLResponse:
    """Return recurring failures; loaded after the page, because it reads many conversations."""
    return render_fragment("home_failing.html", failing=list_costliest_repeated_failures(habitus))


# The most unused skills and candidates that are listed.
_MAX_SHOWN = 20


@router.get("/insights", access=Access.OPEN_READING)
def show_insights(request: Request, habitus: RequestHome) -> HTMLResponse:
    """Show the insights page; its slow parts are loaded afterwards."""
    scope = OwnOrAllUsersScope.from_request_query(request, habitus)
    user = resolve_user_filter(habitus.settings, scope.all_users)
    unused, tried = insights.list_old_never_used_skills(habitus, user), insights.list_tried_candidates(habitus)
    return render_page(
        request,
        "insights.html",
        scope=scope,
        menu=insights.compute_menu_cost(habitus, user),
        unused=unused[:_MAX_SHOWN],
        unused_count=len(unused),
        tried=tried[:_MAX_SHOWN],
        cost=_build_cost_of_this_month(habitus, scope) if request.state.access >= Access.VIEWER else None,
        more=_build_scope_query_suffix(scope),
    )


def _build_cost_of_this_month(habitus: Habitus, scope: OwnOrAllUsersScope) -> MonthlyCost:
    month, user = ReportMonth.containing(habitus.clock()), resolve_user_filter(habitus.settings, scope.all_users)
    return build_monthly_cost(habitus, month, user)


@router.get("/insights/effects", access=Access.OPEN_READING)
def show_effects(request: Request, habitus: RequestHome) -> HTMLResponse:
    scope = OwnOrAllUsersScope.from_request_query(request, habitus)
    effects = insights.list_surest_skill_effect_histories(
        habitus, resolve_user_filter(habitus.settings, scope.all_users)
    )
    withhold = habitus.settings.evidence.withhold
    return render_fragment("insights_effects.html", effects=effects, withhold=withhold, scope=scope)


@router.get("/insights/month", access=Access.VIEWER)
def show_month(request: Request, habitus: RequestHome, month: str = "") -> HTMLResponse:
    """Show the report of a month, on one page that can be printed."""
    scope = OwnOrAllUsersScope.from_request_query(request, habitus)
    report = overview.show_report(habitus, month=month, all_users=scope.all_users)
    shown = ReportMonth.parse(report.month, habitus.clock())
    return render_page(
        request,
        "report.html",
        report=report,
        earlier=ReportMonth.containing(shown.begin - timedelta(days=1)),
        later=ReportMonth.containing(shown.end) if shown.end <= habitus.clock() else None,
        more=_build_scope_query_suffix(scope),
    )


@router.get("/insights/month/rows", access=Access.VIEWER)
def show_month_rows(
    request: Request,
    habitus: RequestHome,
    of: ReportedNumberKind = ReportedNumberKind.REQUESTS,
    month: str = "",
    skill: str = "",
    version: int = 0,
    after: str = "",
) -> HTMLResponse:
    """Show what is behind a number of the report."""
    scope = OwnOrAllUsersScope.from_request_query(request, habitus)
    page = overview.list_report_rows(
        habitus, of=of, month=month, skill=skill, version=version, after=after, all_users=scope.all_users
    )
    back = f"/insights/month?month={month}"
    return _render_rows_behind_number(
        request, page, of.value, (back, f"Report {month}"), more=_build_scope_query_suffix(scope)
    )


@router.get("/insights/evidence", access=Access.VIEWER)
def show_evidence_rows(
    request: Request,
    habitus: RequestHome,
    name: str,
    version: int = 0,
    kind: ItemKind = ItemKind.SKILL,
    of: EvidenceCountKind = EvidenceCountKind.ALL,
    offered: bool | None = None,
    after: str = "",
) -> HTMLResponse:
    """Show the conversations that a count of the evidence counts."""
    page = evidence.list_evidence_rows(
        habitus, name=name, version=version, kind=kind, of=of, offered=offered, after=after
    )
    skill = name.partition("@")[0]
    back = (f"/skills/{skill}?tab=results", skill) if kind is ItemKind.SKILL else ("/insights", "Insights")
    return _render_rows_behind_number(request, page, "conversations", back)


def _render_rows_behind_number(
    request: Request, page: ReportDrillDownPage, title: str, back: tuple[str, str], more: str = ""
) -> HTMLResponse:
    """Render the rows behind a number; `back` is the address and name of the page that states it."""
    further = request.url.include_query_params(after=page.next)
    address = f"{further.path}?{further.query}"
    return render_page(request, "report_rows.html", page=page, title=title, back=back, address=address, more=more)


def _build_scope_query_suffix(scope: OwnOrAllUsersScope) -> str:
    return f"&{scope.query}" if scope.query else ""


@router.get("/insights/confusion", access=Access.OPEN_READING)
def show_confusion(habitus: RequestHome) -> HTMLResponse:
    pairs = insights.list_confused_skill_pairs(habitus)
    # Two that are mistaken for each other are one row.
    found = list({frozenset((pair.name, pair.other)): pair for pair in reversed(pairs)}.values())[::-1]
    return render_fragment("insights_confusion.html", pairs=found[:_MAX_SHOWN], count=len(found))


@router.get("/insights/pairs", access=Access.OPEN_READING)
def list_confused_skills(habitus: RequestHome) -> JSONResponse:
    """Return the pairs of skills that are confused; the map asks for them after it is shown, as it takes a while."""
    return JSONResponse([(pair.name, pair.other) for pair in insights.list_confused_skill_pairs(habitus)])


@router.get("/try", access=Access.OPEN_READING)
def show_playground(request: Request, habitus: RequestHome) -> HTMLResponse:
    """Show which skills an agent would get for a request, and why."""
    text = request.query_params.get("request", "")[:10_000]
    tried = explaining.preview_skills_for_text(habitus, text) if text.strip() else None
    return render_page(request, "playground.html", tried=tried, request_text=text)
