"""Home: numbers of the last thirty days and items that need attention. Also Insights and trying a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.learning import insights
from habitus.app.learning.learning import repeated_failures
from habitus.app.library import explaining
from habitus.app.review.inbox import InboxItem
from habitus.app.use_cases import review
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.overview import Overview, Today, overview, today
from habitus.evidence.estimation import Effect
from habitus.skills.model import State
from habitus.skills.review import Proposal
from habitus.web import charts, inbox_words, site_map
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, fragment, page
from habitus.web.routing import Router

router = Router()
# Rows in the list, and how many are reserved for problems that are not proposals.
_NEEDS, _OTHERS = 5, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A number of the last thirty days with its trend line and a link."""

    href: str
    number: str
    label: str
    line: Markup


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """A row that needs a person's attention; its action is a link, or a form if `post_path` is set."""

    text: str
    note: str
    href: str
    act: str
    post: str = ""
    sends: Mapping[str, str] = field(default_factory=dict)
    # Reviewers may do it, too.
    is_decision: bool = False


@router.get("/", access=Access.OPEN_READING)
def show(request: Request, habitus: Opened) -> Response:
    """Show the home page; anonymous visitors are sent to the skills, because this page is about people's requests."""
    if request.state.access < Access.VIEWER:
        return RedirectResponse("/skills", status_code=HTTPStatus.SEE_OTHER)
    return _render_home(request, habitus)


def _render_home(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    """Return the home page."""
    found, first = overview(habitus, Nothing()), today(habitus, with_contents=False)
    effects = {one.name: Effect(value=one.value, low=one.low, high=one.high) for one in (*found.helps, *found.hurts)}
    has_requests = any(day.total for day in found.days)
    return page(
        request,
        "home.html",
        said=said,
        found=found,
        tiles=_tiles(found),
        needs=_needs(habitus, first, may_decide=request.state.access >= Access.REVIEWER),
        waiting=len(first.waiting),
        bars=charts.days(found.days) if has_requests else None,
        effects=charts.intervals("Of a hundred conversations", effects, line=26, long=270) if effects else None,
        is_first_run=not found.steps.request,
    )


def _tiles(found: Overview) -> list[Tile]:
    days = found.days
    good, bad = sum(day.good for day in days), sum(day.bad for day in days)
    used = {name for day in days for name in day.skills}
    shares = [day.good / (day.good + day.bad) if day.good + day.bad else None for day in days]
    return [
        Tile(
            href="/activity",
            number=f"{sum(day.total for day in days):,}",
            label="requests",
            line=charts.sparkline([day.total for day in days]),
        ),
        Tile(
            href="/insights",
            number=f"{100 * good / (good + bad):.0f} %" if good + bad else "–",
            label="went well",
            line=charts.sparkline(shares),
        ),
        Tile(
            href="/skills?sort=uses",
            number=f"{len(used):,}",
            label="skill used" if len(used) == 1 else "skills used",
            line=charts.sparkline([len(set(day.skills)) for day in days]),
        ),
        Tile(
            href="/inbox",
            number=f"{found.waiting[-1]:,}",
            label="waiting",
            line=charts.sparkline(found.waiting),
        ),
    ]


@router.post("/inbox/{id}/approve-here", access=Access.REVIEWER)
def approve(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    """Approve an item from its row and return the page with the remaining rows."""
    (done,) = review.approve(habitus, review.Approval(ids=(id,))).approved
    return _render_home(request, habitus, Said(text=f"Approved: {inbox_words.in_short(done.item)}.", undo=done.undo))


def _needs(habitus: Habitus, first: Today, *, may_decide: bool) -> Sequence[Need]:
    """Return the pending items, with rows reserved for skills that are broken or got worse."""
    others = list(_fixing(first))
    waiting = [_decision(habitus, item, may_decide=may_decide) for item in first.waiting[:_NEEDS]]
    room = max(_NEEDS - len(waiting), _OTHERS)
    return [*others[:room], *waiting][:_NEEDS]


def _decision(habitus: Habitus, item: InboxItem, *, may_decide: bool) -> Need:
    """Return the row of a pending item: a harmless one can be approved at once, others are opened."""
    need = Need(text=inbox_words.in_short(item), note=inbox_words.why(item), href=f"/inbox/{item.id}", act="Decide")
    subject, known = item.subject, habitus.review
    if not (may_decide and isinstance(subject, Proposal) and subject.is_harmless):
        return need
    if known.is_elsewhere(subject) or known.is_for_somebody_else(subject):
        return need
    return replace(need, act="Approve", post=f"/inbox/{item.id}/approve-here", is_decision=True)


def _fixing(first: Today) -> Iterator[Need]:
    """Yield rows for skills that got worse, are broken, or whose tool keeps failing."""
    for one in first.worse:
        name = one.item.name.partition("@")[0]
        yield Need(
            text=f"{name} got worse with version {one.item.version}",
            note=one.reason,
            href=f"/skills/{name}?tab=fared",
            act=f"Go back to {one.to.version}",
            post=f"/skills/{name}/back",
            sends={"to": str(one.to.version)},
        )
    for item in sorted(first.broken, key=lambda item: item.state is not State.BROKEN):
        is_broken = item.state is State.BROKEN
        yield Need(
            text=f"{item.name} {'is broken' if is_broken else 'needs something'}",
            note=site_map.without_commands(item.reason),
            href=f"/skills/{item.name}",
            act="Fix" if is_broken else "Look",
        )
    for tool in first.failing:
        yield Need(
            text=f"{tool.name} fails again and again",
            note=site_map.without_commands(tool.reason),
            href=f"/skills/{tool.name}?tab=code",
            act="Look",
        )


@router.get("/failing", access=Access.VIEWER)
def failing(habitus: Opened) -> HTMLResponse:
    """Return recurring failures; loaded after the page, because it reads many conversations."""
    return fragment("home_failing.html", failing=repeated_failures(habitus))


# The most unused skills and candidates that are listed.
_SHOWN = 20


@router.get("/insights", access=Access.OPEN_READING)
def show_insights(request: Request, habitus: Opened) -> HTMLResponse:
    """Show the insights page; its slow parts are loaded afterwards."""
    unused, tried = insights.unused_skills(habitus), insights.tried_candidates(habitus)
    return page(
        request,
        "insights.html",
        menu=insights.menu_cost(habitus),
        unused=unused[:_SHOWN],
        unused_count=len(unused),
        tried=tried[:_SHOWN],
    )


@router.get("/insights/effects", access=Access.OPEN_READING)
def effects(habitus: Opened) -> HTMLResponse:
    withhold = habitus.settings.evidence.withhold
    return fragment("insights_effects.html", effects=insights.effects(habitus), withhold=withhold)


@router.get("/insights/confusion", access=Access.OPEN_READING)
def confusion(habitus: Opened) -> HTMLResponse:
    return fragment("insights_confusion.html", confusion=insights.confusion(habitus))


@router.get("/try", access=Access.OPEN_READING)
def try_request(request: Request, habitus: Opened) -> HTMLResponse:
    """Show which skills an agent would get for a request, and why."""
    text = request.query_params.get("request", "")[:10_000]
    tried = explaining.try_request(habitus, text) if text.strip() else None
    return page(request, "playground.html", tried=tried, request_text=text)
