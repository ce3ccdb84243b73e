"""Lessons: what is remembered, by kind; add, change, put away and bring back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.library.browsing import LessonFilters, browse_lessons
from habitus.app.library.undoing import of_lessons
from habitus.errors import Stale
from habitus.memory.model import Engram, Kind, Status, TrustLevel, kind_of
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)

_ALL = LessonFilters()


@router.get("/lessons")
def show(request: Request, habitus: Opened, kind: str = "", trust: str = "", order: str = "") -> HTMLResponse:
    """Those of an address; a filter that nobody knows counts as none."""
    filters = LessonFilters(
        kind=kind_of(kind) if kind in list(Kind) else None,
        trust=TrustLevel(trust) if trust in list(TrustLevel) else None,
        by_use=order == "use",
    )
    return _shown(request, habitus, filters=filters)


def _shown(request: Request, habitus: Habitus, said: Said | None = None, filters: LessonFilters = _ALL) -> HTMLResponse:
    found = browse_lessons(habitus.memory, filters)
    return page(request, "lessons.html", said=said, found=found, filters=filters)


@router.get("/lessons/{id}")
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _one(request, habitus, habitus.memory.get(id))


def _one(request: Request, habitus: Habitus, lesson: Engram, said: Said | None = None) -> HTMLResponse:
    return page(request, "lesson.html", said=said, lesson=lesson, history=habitus.memory.history(lesson.id)[::-1])


@router.post("/lessons")
def add(
    request: Request, habitus: Opened, text: Annotated[str, Form()], kind: Annotated[Kind, Form()] = Kind.LESSON
) -> HTMLResponse:
    with habitus.memory.noting() as made:
        encoded = habitus.memory.add(text, kind=kind, project=habitus.project)
    told = "Known already; it counts for more now." if encoded.status is Status.REINFORCED else "Remembered."
    return _shown(request, habitus, Said(text=told, undo=("undo", *of_lessons(made)) if made else ()))


@router.post("/lessons/{id}")
def edit(
    request: Request,
    habitus: Opened,
    id: str,
    version: Annotated[int, Form()],
    text: Annotated[str, Form()],
    kind: Annotated[Kind, Form()],
    topic: Annotated[str, Form()] = "",
) -> HTMLResponse:
    by = habitus.settings.signature
    try:
        with habitus.memory.noting() as made:
            after = habitus.memory.edit(id, by=by, text=text, kind=kind, topic=topic, expected_version=version)
    except Stale:
        mend = "Copy your text, reload the page, and save again."
        raise Stale("Somebody else changed this lesson.", mend=mend) from None
    undo = ("undo", *of_lessons(made)) if made else ()
    return _one(request, habitus, after, Said(text="Saved." if made else "Nothing was changed.", undo=undo))


@router.post("/lessons/{id}/away")
def away(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    gone = habitus.memory.remove(id, by=habitus.settings.signature)
    return _shown(request, habitus, Said(text="Put away.", undo=("lessons", "restore", gone.id)))


@router.post("/lessons/{id}/restore")
def restore(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    back = habitus.memory.restore(id, by=habitus.settings.signature)
    return _shown(request, habitus, Said(text="It is back.", undo=("lessons", "remove", back.id)))
