"""Skills as a table and as a map, bulk actions, and running a skill's tool or recipes by hand."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from habitus.access import Access
from habitus.app.conversations.running_code import check_tools, run_tool
from habitus.app.library.browsing import Order, Row, browse, map_skills
from habitus.app.use_cases import recipes, writing
from habitus.app.use_cases.recipes import RecipeRun
from habitus.app.use_cases.skills import SkillList
from habitus.errors import Invalid
from habitus.evidence.findings import Verdict
from habitus.skills.layers.listing import Listed
from habitus.skills.model import Counters, Source, Stage, State
from habitus.text import count_of
from habitus.web import charts
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, fragment, page, part
from habitus.web.routing import Router

if TYPE_CHECKING:
    from habitus.evidence.estimation import Effect

router = Router()
_PAGE = 50
_FILTERS = ("q", "tag", "source", "stage", "state")


async def chosen_filters(q: str = "", tag: str = "", source: str = "", stage: str = "", state: str = "") -> SkillList:
    """Return the filters in the address; a coroutine, because FastAPI runs functions in a thread."""
    return filters_of(q, tag, source, stage, state)


def filters_of(q: str = "", tag: str = "", source: str = "", stage: str = "", state: str = "") -> SkillList:
    """Return the filters; unknown values are ignored."""
    return SkillList(
        q=q[:1000],
        tag=tag,
        source=Source(source) if source in list(Source) else None,
        stage=Stage(stage) if stage in list(Stage) else None,
        state=State(state) if state in list(State) else None,
    )


Chosen = Annotated[SkillList, Depends(chosen_filters)]


@router.get("/skills", access=Access.OPEN_READING)
def list_skills(
    request: Request, habitus: Opened, filters: Chosen, sort: str = "", page: str = "", view: str = ""
) -> HTMLResponse:
    if view == "map":
        return show_map(request, habitus)
    # The page comes from the address, where anything can stand.
    number = int(page) if page.isdecimal() and len(page) < 6 else 1
    return show_list(request, habitus, filters, sort=sort, number=max(number, 1))


def show_map(request: Request, habitus: Opened) -> HTMLResponse:
    found = map_skills(habitus)
    return page(request, "skills_map.html", found=found, drawn=charts.skill_map(found) if found.dots else None)


def show_list(
    request: Request,
    habitus: Opened,
    filters: SkillList,
    *,
    sort: str = "",
    number: int = 1,
    said: Said | None = None,
) -> HTMLResponse:
    """Return a page of the list; an unknown order is ignored."""
    name = sort.removeprefix("-")
    order = Order(name) if name in list(Order) else None
    sort = sort if order else ""
    found = browse(
        habitus, replace(filters, limit=_PAGE), order, turned=sort.startswith("-"), skip=_PAGE * (number - 1)
    )
    given = {name: getattr(filters, name) or "" for name in _FILTERS}
    return page(
        request,
        "skills.html",
        said=said,
        found=found,
        filters=given,
        sort=sort,
        number=number,
        pages=max(1, -(-found.found // _PAGE)),
        address=partial(_address, {**given, "sort": sort}),
        draw_row=_draw_row,
    )


class _Same:
    """A cache key that compares by identity, which is faster than comparing a skill's texts."""

    __slots__ = ("it",)

    def __init__(self, it: Listed) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def _draw_row(row: Row) -> Markup:
    return _draw(_Same(row.item), row.counters, row.days, row.verdict, row.effect)


# About 2 MB; a listing keeps its objects until a skill changes, so identity works as a key.
@functools.lru_cache(maxsize=2000)
def _draw(
    item: _Same, counters: Counters, days: tuple[int, ...], verdict: Verdict | None, effect: Effect | None
) -> Markup:
    row = Row(item=item.it, counters=counters, days=days, verdict=verdict, effect=effect)
    return Markup(part("skill_row.html", row=row))


def _address(given: Mapping[str, object], **changed: object) -> str:
    """Return the address of the same list in another order or on another page."""
    told = {key: value for key, value in {**given, **changed}.items() if value}
    return f"/skills?{urlencode(told)}" if told else "/skills"


@router.post("/skills/{name}/switch", access=Access.ADMIN)
def switch(habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Switch a skill on or off in its row."""
    done = writing.switch(habitus, [name], on=on)
    item = habitus.skills.find(name)
    said = Said(text=f"{item.name} is {'on' if on else 'off'}.", undo=done.undo)
    return fragment("switch.html", item=item, said=said)


@router.post("/skills/bulk", access=Access.ADMIN)
def bulk(
    request: Request,
    habitus: Opened,
    act: Annotated[str, Form()],
    names: Annotated[list[str] | None, Form()] = None,
    q: Annotated[str, Form()] = "",
    tag: Annotated[str, Form()] = "",
    source: Annotated[str, Form()] = "",
    stage: Annotated[str, Form()] = "",
    state: Annotated[str, Form()] = "",
    sort: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Switch or archive the selected skills."""
    said = _done_to(habitus, act, names or [])
    return show_list(request, habitus, filters_of(q, tag, source, stage, state), sort=sort, said=said)


def _done_to(habitus: Opened, act: str, names: list[str]) -> Said:
    if not names:
        return Said(text="Choose some skills first.", is_bad=True)
    if act == "away":
        gone = writing.remove(habitus, writing.SkillRemoval(names=tuple(names)))
        return Said(text=f"Put away: {count_of(len(gone.skills), 'skill')}.", undo=gone.undo)
    done = writing.switch(habitus, names, on=act == "on")
    return Said(text=f"Switched {'on' if act == 'on' else 'off'}: {count_of(len(names), 'skill')}.", undo=done.undo)


Given = Annotated[str, Form(max_length=200_000)]


@router.post("/skills/{name}/run", access=Access.ADMIN)
def run(habitus: Opened, name: str, payload: Given = "{}") -> HTMLResponse:
    """Run the skill's tool; that counts as a use."""
    ran = run_tool(habitus, name, payload)
    printed = "\n".join(text for text in (ran.stdout, ran.stderr) if text.strip())
    return fragment("ran.html", outcome=ran.outcome, printed=printed, notice=ran.notice)


@router.post("/skills/{name}/test", access=Access.ADMIN)
def test(habitus: Opened, name: str) -> HTMLResponse:
    """Run the tool's recorded cases again."""
    return fragment("tested.html", report=check_tools(habitus, [name])[name])


@router.post("/skills/{name}/recipes/{recipe}", access=Access.ADMIN)
def run_recipe(habitus: Opened, name: str, recipe: str, payload: Given = "{}") -> HTMLResponse:
    """Run a recipe in a turn of its own, which the journal records."""
    result = recipes.run(habitus, RecipeRun(recipe=recipe, payload=_object(payload), name=name))
    return fragment("ran.html", outcome=result.outcome, printed=result.content, notice="")


def _object(payload: str) -> dict[str, Any]:
    """Return the payload as a JSON object; raise `Invalid` if it is none."""
    try:
        given = json.loads(payload or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Invalid("The input is not JSON.", hint='Write it like {"name": "value"}.')
    return given
