"""Home, the first page: the last thirty days, what needs a person, what helps, and which agents were heard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from habitus.app.declaring import Nothing
from habitus.app.growth.remedies import repeated
from habitus.app.review.today import Today, today
from habitus.app.use_cases.overview import Overview, overview
from habitus.evidence.lift import Effect
from habitus.skills.model import State
from habitus.web import charts, words
from habitus.web.api.asking import Opened
from habitus.web.rendering import fragment, page

router = APIRouter(include_in_schema=False)

_NEEDS, _OTHERS = 5, 2  # rows, and of them those that are kept for what is no proposal


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One number of the last thirty days, with its line and where to look further."""

    href: str
    number: str
    label: str
    line: Markup


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """One row of what needs a person; `act` is a link, or a form where `post` says whereto."""

    text: str
    note: str
    href: str
    act: str
    post: str = ""
    sends: Mapping[str, str] = field(default_factory=dict)


@router.get("/")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    found, first = overview(habitus, Nothing()), today(habitus, with_contents=False)
    effects = {one.name: Effect(value=one.value, low=one.low, high=one.high) for one in (*found.helps, *found.hurts)}
    has_requests = any(day.total for day in found.days)
    return page(
        request,
        "home.html",
        found=found,
        tiles=_tiles(found),
        needs=_needs(first),
        waiting=len(first.waiting),
        bars=charts.days(found.days) if has_requests else None,
        effects=charts.intervals("Of a hundred conversations", effects, line=26, long=270) if effects else None,
        is_first_run=not found.steps.request and not all((found.steps.agent, found.steps.skills, found.steps.model)),
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


def _needs(first: Today) -> Sequence[Need]:
    """What waits, with room kept for what is broken or got worse."""
    others = list(_mending(first))
    waiting = [
        Need(text=words.in_short(item), note=words.why(item), href=f"/inbox/{item.id}", act="Decide")
        for item in first.waiting[:_NEEDS]
    ]
    room = max(_NEEDS - len(waiting), _OTHERS)
    return [*others[:room], *waiting][:_NEEDS]


def _mending(first: Today) -> Iterator[Need]:
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
            note=words.without_commands(item.reason),
            href=f"/skills/{item.name}",
            act="Mend" if is_broken else "Look",
        )
    for tool in first.failing:
        yield Need(
            text=f"{tool.name} fails again and again",
            note=words.without_commands(tool.reason),
            href=f"/skills/{tool.name}?tab=code",
            act="Look",
        )


@router.get("/failing")
def failing(habitus: Opened) -> HTMLResponse:
    """What fails again and again; the page asks for it when it stands, because many conversations are read for it."""
    return fragment("home_failing.html", failing=repeated(habitus))
