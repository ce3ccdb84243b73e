"""Lessons: list, add, change, archive and restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library.browsing import LessonFilters, browse_lessons
from habitus.app.use_cases import lessons
from habitus.errors import Stale
from habitus.memory.model import Engram, Kind, Status, TrustLevel, kind_of
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, page
from habitus.web.routing import Router

router = Router()

_ALL = LessonFilters()


@router.get("/lessons", access=Access.OPEN_READING)
def show(request: Request, habitus: Opened, kind: str = "", trust: str = "", order: str = "") -> HTMLResponse:
    """Show the lessons that match the filters; unknown filters are ignored."""
    filters = LessonFilters(
        kind=kind_of(kind) if kind in list(Kind) else None,
        trust=TrustLevel(trust) if trust in list(TrustLevel) else None,
        by_use=order == "use",
    )
    return _show_page(request, habitus, filters=filters)


def _show_page(
    request: Request, habitus: Habitus, said: Said | None = None, filters: LessonFilters = _ALL
) -> HTMLResponse:
    found = browse_lessons(habitus.memory, filters)
    return page(request, "lessons.html", said=said, found=found, filters=filters)


@router.get("/lessons/{id}", access=Access.OPEN_READING)
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _one(request, habitus, habitus.memory.get(id))


def _one(request: Request, habitus: Habitus, lesson: Engram, said: Said | None = None) -> HTMLResponse:
    return page(request, "lesson.html", said=said, lesson=lesson, history=habitus.memory.history(lesson.id)[::-1])


@router.post("/lessons", access=Access.ADMIN)
def add(
    request: Request, habitus: Opened, text: Annotated[str, Form()], kind: Annotated[Kind, Form()] = Kind.LESSON
) -> HTMLResponse:
    done = lessons.add(habitus, lessons.NewLesson(text=text, kind=kind))
    told = "Known already; it counts for more now." if done.status is Status.REINFORCED else "Remembered."
    return _show_page(request, habitus, Said(text=told, undo=done.undo))


@router.post("/lessons/{id}", access=Access.ADMIN)
def edit(
    request: Request,
    habitus: Opened,
    id: str,
    version: Annotated[int, Form()],
    text: Annotated[str, Form()],
    kind: Annotated[Kind, Form()],
    topic: Annotated[str, Form()] = "",
) -> HTMLResponse:
    wanted = lessons.LessonEdit(id=id, text=text, kind=kind, topic=topic, expect=str(version))
    try:
        done = lessons.edit(habitus, wanted)
    except Stale:
        hint = "Copy your text, reload the page, and save again."
        raise Stale("Somebody else changed this lesson.", hint=hint) from None
    said = Said(text="Saved." if done.undo else "Nothing was changed.", undo=done.undo)
    return _one(request, habitus, done.lesson, said)


@router.post("/lessons/{id}/away", access=Access.ADMIN)
def away(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    done = lessons.remove(habitus, lessons.ManyLessons(ids=(id,)))
    return _show_page(request, habitus, Said(text="Put away.", undo=done.undo))


@router.post("/lessons/{id}/restore", access=Access.ADMIN)
def restore(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    done = lessons.restore(habitus, lessons.ManyLessons(ids=(id,)))
    return _show_page(request, habitus, Said(text="It is back.", undo=done.undo))
