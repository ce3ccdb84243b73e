"""REST for talking to an agent; `app/use_cases/sessions.py` has the rest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from pydantic import Base64Bytes, Field
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.agent.stream import Consent
from habitus.app import Habitus
from habitus.app.conversations.talking import Over, Talks
from habitus.app.library.uploading import Upload
from habitus.app.operating.idempotency import once
from habitus.web.api.requests_and_answers import (
    AsMade,
    Body,
    Json,
    Line,
    OnceKey,
    Opened,
    Talking,
    Words,
    answer,
    as_json,
)
from habitus.web.routing import LARGE, Router

router = Router(tags=["sessions"], route_class_override=AsMade)


Begun = answer("Begun", id=str)


class Attached(Body):
    name: Line
    content: Base64Bytes


class Said(Body):
    text: Words = ""
    files: tuple[Attached, ...] = Field(default=(), max_length=20, description="What comes with it, in Base64.")

    @property
    def uploads(self) -> list[Upload]:
        return [Upload(name=file.name, content=file.content) for file in self.files]


class Word(Body):
    number: int = Field(ge=0, le=10**9)
    word: Consent


@router.post("/sessions", access=Access.ADMIN, max_bytes=LARGE, status_code=202, response_model=Begun)
def begin(habitus: Opened, talks: Talking, wanted: Said, key: OnceKey = "") -> Json:
    """Begin a conversation; what comes of it is heard under its events, and then stands in it."""
    return _say(habitus, talks, "", wanted, key)


@router.post("/sessions/{id}/say", access=Access.ADMIN, max_bytes=LARGE, status_code=202, response_model=Begun)
def go_on(habitus: Opened, talks: Talking, id: str, wanted: Said, key: OnceKey = "") -> Json:
    """Go on with a conversation."""
    return _say(habitus, talks, id, wanted, key)


def _say(habitus: Habitus, talks: Talks, id: str, wanted: Said, key: str) -> Json:
    asked = ["sessions", id, wanted.model_dump(mode="json")]
    return once(habitus, key, asked, lambda _: {"id": talks.say(wanted.text, id, wanted.uploads)})


@router.post("/sessions/{id}/stop", access=Access.ADMIN, status_code=204)
def stop(talks: Talking, id: str) -> None:
    """End the turn that runs."""
    talks.stop(id)


@router.post("/sessions/{id}/answer", access=Access.ADMIN, status_code=204)
def answer_question(talks: Talking, id: str, wanted: Word) -> None:
    """The person's word on what a turn waits for."""
    talks.answer(id, wanted.number, wanted.word)


@router.get("/sessions/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def events(talks: Talking, id: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> StreamingResponse:
    """What happens in the turn that runs, a JSON each as server-sent events, until it is over; `after` skips some."""
    first = await talks.events_since(id, after)  # one that is not there is said before anything is sent

    async def told_on() -> AsyncIterator[str]:
        number, heard = after, first
        while True:
            for happening in heard:
                number += 1
                data = {"kind": type(happening).__name__, **as_json(happening)}
                yield f"id: {number}\nevent: {data['kind']}\ndata: {json.dumps(data)}\n\n"
                if isinstance(happening, Over):
                    return
            heard = await talks.events_since(id, number)

    return StreamingResponse(told_on(), media_type="text/event-stream")
