"""Skills as a table and as a map, bulk actions, and running a skill's tool or recipes by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app.conversations.running_code import run_tool, run_tool_test_cases
from habitus.app.library.browsing import SkillSortOrder, browse_skills, build_skill_map
from habitus.app.use_cases import recipes, writing
from habitus.app.use_cases.skills import ListSkillsRequest
from habitus.errors import Invalid
from habitus.skills.model import SkillSource, SkillState, Stage
from habitus.text import format_quantity
from habitus.web import charts
from habitus.web.api.schemas import RequestHome
from habitus.web.rendering import FlashMessage, render_fragment, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()
_PAGE_SIZE = 50
_FILTERS = ("q", "tag", "source", "stage", "state")


async def parse_filter_query(
    q: str = "", tag: str = "", source: str = "", stage: str = "", state: str = ""
) -> ListSkillsRequest:
    """Return the known filters in the address; a coroutine, because FastAPI runs functions in a thread."""
    return ListSkillsRequest(
        q=q[:1000],
        tag=tag,
        source=SkillSource(source) if source in list(SkillSource) else None,
        stage=Stage(stage) if stage in list(Stage) else None,
        state=SkillState(state) if state in list(SkillState) else None,
    )


FilterQuery = Annotated[ListSkillsRequest, Depends(parse_filter_query)]


@router.get("/skills", access=Access.OPEN_READING)
def show_skills(
    request: Request, habitus: RequestHome, filters: FilterQuery, sort: str = "", page: str = "", view: str = ""
) -> HTMLResponse:
    if view == "map":
        return render_map_page(request, habitus)
    # The page comes from the address, where anything can stand.
    number = int(page) if page.isdecimal() and len(page) < 6 else 1
    return render_list_page(request, habitus, filters, sort=sort, number=max(number, 1))


def render_map_page(request: Request, habitus: RequestHome) -> HTMLResponse:
    found = build_skill_map(habitus)
    return render_page(
        request, "skills_map.html", found=found, drawn=charts.render_skill_map(found) if found.dots else None
    )


def render_list_page(
    request: Request,
    habitus: RequestHome,
    filters: ListSkillsRequest,
    *,
    sort: str = "",
    number: int = 1,
    said: FlashMessage | None = None,
) -> HTMLResponse:
    """Return a page of the list, by use unless another order or a search is given."""
    name = sort.removeprefix("-")
    order = SkillSortOrder(name) if name in list(SkillSortOrder) else None
    sort = sort if order else ""
    if order is None and not filters.q:
        order = SkillSortOrder.USES
    found = browse_skills(
        habitus,
        replace(filters, limit=_PAGE_SIZE),
        order,
        is_reversed=sort.startswith("-"),
        skip=_PAGE_SIZE * (number - 1),
    )
    given = {name: getattr(filters, name) or "" for name in _FILTERS}
    return render_page(
        request,
        "skills.html",
        said=said,
        found=found,
        filters=given,
        sort=sort,
        shown_sort=sort or ("" if filters.q else SkillSortOrder.USES.value),
        number=number,
        pages=max(1, -(-found.found // _PAGE_SIZE)),
        address=partial(_build_list_url, {**given, "sort": sort}),
    )


def _build_list_url(given: Mapping[str, object], path: str = "/skills", **changed: object) -> str:
    """Return the address of the same list in another order or on another page."""
    told = {key: value for key, value in {**given, **changed}.items() if value}
    return f"{path}?{urlencode(told)}" if told else path


@router.post("/skills/{name}/switch", access=Access.ADMIN)
def switch_listed_skill(habitus: RequestHome, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Switch a skill on or off in its row."""
    done = writing.enable_or_disable_skills(habitus, [name], on=on)
    item = habitus.skills.find(name)
    said = FlashMessage(text=f"{item.name} is {'on' if on else 'off'}.", undo=done.undo)
    return render_fragment("switch.html", item=item, said=said)


@router.post("/skills/bulk", access=Access.ADMIN)
def change_selected_skills(
    request: Request,
    habitus: RequestHome,
    filters: FilterQuery,
    act: Annotated[str, Form()],
    names: Annotated[list[str] | None, Form()] = None,
    sort: str = "",
) -> HTMLResponse:
    """Switch or archive the selected skills, and show the same list again."""
    return render_list_page(request, habitus, filters, sort=sort, said=_apply_bulk_action(habitus, act, names or []))


def _apply_bulk_action(habitus: RequestHome, act: str, names: list[str]) -> FlashMessage:
    if not names:
        return FlashMessage(text="Select some skills first.", is_bad=True)
    if act == "away":
        gone = writing.remove_skills(habitus, names=tuple(names))
        return FlashMessage(text=f"Archived: {format_quantity(len(gone.skills), 'skill')}.", undo=gone.undo)
    done = writing.enable_or_disable_skills(habitus, names, on=act == "on")
    return FlashMessage(
        text=f"Switched {'on' if act == 'on' else 'off'}: {format_quantity(len(names), 'skill')}.",
        undo=done.undo,
    )


PayloadField = Annotated[str, Form(max_length=200_000)]


@router.post("/skills/{name}/run", access=Access.ADMIN)
def run_skill_tool(habitus: RequestHome, name: str, payload: PayloadField = "{}") -> HTMLResponse:
    """Run the skill's tool; that counts as a use."""
    ran = run_tool(habitus, name, payload)
    printed = "\n".join(text for text in (ran.stdout, ran.stderr) if text.strip())
    return render_fragment("ran.html", outcome=ran.outcome, printed=printed, notice=ran.notice)


@router.post("/skills/{name}/test", access=Access.ADMIN)
def test_skill_tool(habitus: RequestHome, name: str) -> HTMLResponse:
    """Run the tool's recorded cases again."""
    return render_fragment("tested.html", report=run_tool_test_cases(habitus, [name])[name])


@router.post("/skills/{name}/recipes/{recipe}", access=Access.ADMIN)
def run_skill_recipe(habitus: RequestHome, name: str, recipe: str, payload: PayloadField = "{}") -> HTMLResponse:
    """Run a recipe in a turn of its own, which the journal records."""
    result = recipes.run_recipe(
        habitus, recipes.RunRecipeRequest(recipe=recipe, payload=_parse_json_object(payload), name=name)
    )
    return render_fragment("ran.html", outcome=result.outcome, printed=result.content, notice="")


def _parse_json_object(payload: str) -> dict[str, Any]:
    """Return the payload as a JSON object; raise `Invalid` if it is none."""
    try:
        given = json.loads(payload or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Invalid("The input is not JSON.", hint='Write it like {"name": "value"}.')
    return given
