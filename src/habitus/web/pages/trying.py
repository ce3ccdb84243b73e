"""Trying what a skill can do by itself: its tested tool and its recipes, run by hand."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse

from habitus.app.conversations.running_code import check_tool, run_tool
from habitus.app.library import recipes
from habitus.errors import Invalid
from habitus.web.api.asking import Opened
from habitus.web.rendering import fragment

router = APIRouter(include_in_schema=False)

Given = Annotated[str, Form(max_length=200_000)]


@router.post("/skills/{name}/run")
def run(habitus: Opened, name: str, payload: Given = "{}") -> HTMLResponse:
    """Call its tool; that counts as any other use."""
    ran = run_tool(habitus, name, payload)
    printed = "\n".join(text for text in (ran.stdout, ran.stderr) if text.strip())
    return fragment("ran.html", outcome=ran.outcome, printed=printed, notice=ran.notice)


@router.post("/skills/{name}/test")
def test(habitus: Opened, name: str) -> HTMLResponse:
    """Run the tests that it passed before once more."""
    return fragment("tested.html", report=check_tool(habitus, name))


@router.post("/skills/{name}/recipes/{recipe}")
def run_recipe(habitus: Opened, name: str, recipe: str, payload: Given = "{}") -> HTMLResponse:
    """Run one, in a turn of its own that is written down."""
    result = recipes.run(habitus.recipes, habitus.turn, recipe, _object(payload))
    return fragment("ran.html", outcome=result.outcome, printed=result.content, notice="")


def _object(payload: str) -> dict[str, Any]:
    try:
        given = json.loads(payload or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Invalid("What it is given is not JSON.", mend='Write it like {"name": "value"}.')
    return given
