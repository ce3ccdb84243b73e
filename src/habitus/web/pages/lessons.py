"""Lessons: list, add, change, archive and restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library.browsing import LessonFilters, browse_lessons
from habitus.app.use_cases import lessons
from habitus.errors import Stale
from habitus.memory.model import LessonDraftOutcome, LessonKind, TrustLevel, parse_lesson_kind
from habitus.web.api.schemas import RequestHome
from habitus.web.rendering import FlashMessage, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()

_NO_FILTERS = LessonFilters()
# Lessons of a kind that are listed at first, and that each "Show more" adds.
_PAGE_SIZE = 200


@router.get("/lessons", access=Access.OPEN_READING)
def show_lessons(
    request: Request,
    habitus: RequestHome,
    kind: str = "",
    trust: str = "",
    order: str = "",
    q: str = "",
    limit: Annotated[int, Query(ge=1, le=100_000)] = _PAGE_SIZE,
) -> HTMLResponse:
    """Show the lessons that match the filters; unknown filters are ignored."""
    filters = LessonFilters(
        kind=parse_lesson_kind(kind) if kind in list(LessonKind) else None,
        trust=TrustLevel(trust) if trust in list(TrustLevel) else None,
        by_use=order == "use",
        q=q[:200],
    )
    return _render_lessons(request, habitus, filters=filters, limit=limit)


def _render_lessons(
    request: Request,
    habitus: Habitus,
    said: FlashMessage | None = None,
    filters: LessonFilters = _NO_FILTERS,
    limit: int = _PAGE_SIZE,
) -> HTMLResponse:
    found = browse_lessons(habitus.memory, filters)
    further = f"/lessons?{request.url.include_query_params(limit=limit + _PAGE_SIZE).query}"
    return render_page(request, "lessons.html", said=said, found=found, filters=filters, most=limit, further=further)


@router.get("/lessons/{id}", access=Access.OPEN_READING)
def show_lesson(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    return _render_lesson(request, habitus, id)


def _render_lesson(request: Request, habitus: Habitus, id: str, said: FlashMessage | None = None) -> HTMLResponse:
    found = lessons.show_lesson(habitus, id)
    history = habitus.memory.get_history(found.lesson.id)[::-1]
    return render_page(request, "lesson.html", said=said, lesson=found.lesson, shown=found.shown, history=history)


@router.post("/lessons", access=Access.ADMIN)
def add_lesson(
    request: Request,
    habitus: RequestHome,
    text: Annotated[str, Form()],
    kind: Annotated[LessonKind, Form()] = LessonKind.LESSON,
) -> HTMLResponse:
    done = lessons.add_lesson(habitus, text=text, kind=kind)
    told = (
        "Already known; its weight was increased." if done.status is LessonDraftOutcome.REINFORCED else "Lesson added."
    )
    return _render_lessons(request, habitus, FlashMessage(text=told, undo=done.undo))


@router.post("/lessons/{id}", access=Access.ADMIN)
def edit_lesson(
    request: Request,
    habitus: RequestHome,
    id: str,
    version: Annotated[int, Form()],
    text: Annotated[str, Form()],
    kind: Annotated[LessonKind, Form()],
    topic: Annotated[str, Form()] = "",
) -> HTMLResponse:
    try:
        done = lessons.edit_lesson(habitus, id=id, text=text, kind=kind, topic=topic, expect=str(version))
    except Stale:
        hint = "Copy your text, reload the page, and save again."
        raise Stale("Another person changed this lesson meanwhile.", hint=hint) from None
    said = FlashMessage(text="Saved." if done.undo else "Nothing was changed.", undo=done.undo)
    return _render_lesson(request, habitus, done.lesson.id, said)


@router.post("/lessons/{id}/away", access=Access.ADMIN)
def archive_lesson(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    done = lessons.remove_lessons(habitus, ids=(id,))
    return _render_lessons(request, habitus, FlashMessage(text="Archived.", undo=done.undo))


@router.post("/lessons/{id}/restore", access=Access.ADMIN)
def restore_lesson(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    done = lessons.restore_lessons(habitus, ids=(id,))
    return _render_lessons(request, habitus, FlashMessage(text="Restored.", undo=done.undo))
