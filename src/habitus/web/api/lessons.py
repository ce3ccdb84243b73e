"""REST for what is remembered: lessons, rules and facts."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Response

from habitus.app import Habitus, json_of
from habitus.app.library.undoing import of_lessons
from habitus.app.operation.once import Attempt, once
from habitus.memory.model import Cause, Engram, Kind, LessonState, Scope, Status
from habitus.web.api.answers import Lesson, Undo, answer, many, page_of
from habitus.web.api.asking import (
    After,
    Body,
    IfMatch,
    Json,
    Limit,
    Line,
    OnceKey,
    Opened,
    etag,
    expected,
    paged,
    told,
)

router = APIRouter(prefix="/lessons", tags=["lessons"])

_ALL = 100_000


Kept = answer("KeptLesson", status=Status, lesson=Lesson, redacted=dict[str, int], undo=Undo)
Changed = answer("LessonAfter", base=Lesson, undo=Undo)
LessonVersion = answer("LessonVersion", number=int, text=str, state=LessonState, cause=Cause | None)


class NewLesson(Body):
    text: Line
    kind: Kind = Kind.LESSON
    scope: Scope = Scope.USER
    topic: Line = ""


class ChangedLesson(Body):
    text: Line | None = None
    kind: Kind | None = None
    scope: Scope | None = None
    topic: Line | None = None


@router.get("", response_model=page_of("lessons", Lesson))
def list_lessons(
    habitus: Opened, kind: Kind | None = None, since: str = "all", limit: Limit = 100, after: After = ""
) -> Json:
    """What is remembered, the newest first; `since` is today, week, all or self-play."""
    found = habitus.memory.list_lessons(since, _ALL, kind=kind)
    around, page = paged("lessons", found, lambda engram: engram.id, limit, after)
    return {"lessons": [told(json_of.lesson(engram)) for engram in page], **around}


@router.post("", status_code=201, response_model=Kept)
def add(habitus: Opened, wanted: NewLesson, key: OnceKey = "") -> Json:
    """Remember something; what is known already is made stronger."""

    def make(attempt: Attempt) -> Json:
        if (before := _made_since(habitus, wanted, attempt.since)) is not None:
            undo = ("lessons", "remove", before.id)
            return {"status": Status.STORED.value, "lesson": told(json_of.lesson(before)), "redacted": {}, "undo": undo}
        with habitus.memory.noting() as made:
            encoded = habitus.memory.add(
                wanted.text, kind=wanted.kind, scope=wanted.scope, topic=wanted.topic, project=habitus.project
            )
        assert encoded.engram is not None
        return {
            "status": encoded.status.value,
            "lesson": told(json_of.lesson(encoded.engram)),
            "redacted": dict(encoded.redacted),
            "undo": ("undo", *of_lessons(made)) if made else (),
        }

    return once(habitus, key, ["lessons", wanted.model_dump(mode="json")], make)


def _made_since(habitus: Habitus, wanted: NewLesson, since: datetime | None) -> Engram | None:
    """What a request that was cut off has kept, if it came to that."""
    if since is None:
        return None
    same = (one for one in habitus.memory.list_lessons("all", _ALL) if one.text == wanted.text.strip())
    return next((one for one in same if one.created_on is not None and one.created_on >= since), None)


@router.get("/archive", response_model=answer("LessonArchive", archived=many(Lesson), next=str | None, total=int))
def archive(habitus: Opened, limit: Limit = 100, after: After = "") -> Json:
    """What was put away, the last first."""
    around, page = paged("the archive", habitus.memory.archived(), lambda engram: engram.id, limit, after)
    return {"archived": [told(json_of.lesson(engram)) for engram in page], **around}


@router.get("/{id}", response_model=answer("LessonWhole", base=Lesson, history=many(LessonVersion)))
def show(habitus: Opened, id: str, response: Response) -> Json:
    """One lesson, and how it came to be as it is."""
    engram = habitus.memory.get(id)
    response.headers["ETag"] = etag(engram.version)
    versions = [
        {"number": one.number, "text": one.engram.text, "state": one.engram.state, "cause": one.cause}
        for one in habitus.memory.history(id)
    ]
    answer: Json = told(json_of.lesson(engram) | {"history": versions})
    return answer


@router.patch("/{id}", response_model=Changed)
def edit(habitus: Opened, id: str, wanted: ChangedLesson, response: Response, if_match: IfMatch = None) -> Json:
    """Change it; from then on it is yours. 412 where somebody was faster."""
    version = expected(if_match)
    with habitus.memory.noting() as made:
        after = habitus.memory.edit(
            id,
            by=habitus.settings.signature,
            project=habitus.project,
            expected_version=version,
            **wanted.model_dump(exclude_unset=True),
        )
    response.headers["ETag"] = etag(after.version)
    return {**told(json_of.lesson(after)), "undo": ("undo", *of_lessons(made)) if made else ()}


@router.delete("/{id}", response_model=Changed)
def remove(habitus: Opened, id: str) -> Json:
    """Put it into the archive; it is not learned again by itself."""
    gone = habitus.memory.remove(id, by=habitus.settings.signature)
    return {**told(json_of.lesson(gone)), "undo": ("lessons", "restore", gone.id)}


@router.post("/{id}/restore", response_model=Changed)
def restore(habitus: Opened, id: str) -> Json:
    """Bring it back from the archive."""
    back = habitus.memory.restore(id, by=habitus.settings.signature)
    return {**told(json_of.lesson(back)), "undo": ("lessons", "remove", back.id)}
