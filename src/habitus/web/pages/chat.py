"""Chat: a conversation with an agent in the browser, with its reply as it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from fastapi import File, Form, Header, Request, UploadFile
from fastapi.responses import HTMLResponse, Response
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.agent.background import in_thread
from habitus.agent.stream import Consent, Done, Noticed, Nudged, Said, ToolFinished, ToolProgress, ToolStarted, about
from habitus.app import Habitus
from habitus.app.conversations.past_sessions import past_sessions, shown_turn
from habitus.app.conversations.talking import Happening, Over, Talks, Wanted
from habitus.errors import NotFound, UserError
from habitus.web.api.requests_and_answers import Opened, Talking, read_upload
from habitus.web.rendering import page, part
from habitus.web.routing import LARGE, Router
from habitus.web.streams import Happened, Put, stream_events

router = Router()

Sent = Annotated[Sequence[UploadFile], File()]


@router.get("/chat", access=Access.VIEWER)
def show(request: Request, habitus: Opened, talks: Talking) -> HTMLResponse:
    return _show_page(request, habitus, talks, "")


@router.get("/chat/{id}", access=Access.VIEWER)
def show_one(request: Request, habitus: Opened, talks: Talking, id: str) -> HTMLResponse:
    return _show_page(request, habitus, talks, id)


def _show_page(request: Request, habitus: Habitus, talks: Talks, id: str) -> HTMLResponse:
    """Return the chat page; raise `NotFound` if the conversation doesn't exist."""
    live = talks.going_on(id)
    turns = habitus.journal.turns_of(id, user=habitus.settings.user) if id else []
    if id and not turns and live is None:
        raise NotFound("There is no such conversation.", hint="See Activity for those you had.")
    # The running turn is shown by the stream, so its stored beginning is left out.
    views = [shown_turn(turn) for turn in turns if turn.ended_on is not None or live is None]
    earlier = [] if id else past_sessions(habitus.settings, habitus.journal, 10)
    return page(
        request,
        "chat.html",
        id=id,
        views=views,
        live=live,
        earlier=earlier,
        missing=_missing(talks),
        most_attached=LARGE,
    )


def _missing(talks: Talks) -> UserError | None:
    """Return the error that prevents chatting, such as a missing model, or None."""
    try:
        talks.check()
    except UserError as error:
        return error
    return None


@router.post("/chat", access=Access.ADMIN, max_bytes=LARGE)
def begin(
    request: Request, habitus: Opened, talks: Talking, text: Annotated[str, Form()] = "", files: Sent = ()
) -> HTMLResponse:
    return _say(request, habitus, talks, text, "", files)


@router.post("/chat/{id}", access=Access.ADMIN, max_bytes=LARGE)
def go_on(
    request: Request, habitus: Opened, talks: Talking, id: str, text: Annotated[str, Form()] = "", files: Sent = ()
) -> HTMLResponse:
    return _say(request, habitus, talks, text, id, files)


def _say(
    request: Request, habitus: Habitus, talks: Talks, text: str, id: str, files: Sequence[UploadFile]
) -> HTMLResponse:
    id = talks.say(text, id, [read_upload(file) for file in files if file.filename])
    answer = _show_page(request, habitus, talks, id)
    answer.headers["HX-Push-Url"] = f"/chat/{id}"
    return answer


@router.post("/chat/{id}/stop", access=Access.ADMIN)
def stop(talks: Talking, id: str) -> Response:
    talks.stop(id)
    return Response(status_code=204)


@router.post("/chat/{id}/answer", access=Access.ADMIN)
def answer(talks: Talking, id: str, number: Annotated[int, Form()], word: Annotated[Consent, Form()]) -> HTMLResponse:
    """Answer the question that a turn is waiting for; the question disappears."""
    talks.answer(id, number, word)
    return HTMLResponse("")


@router.get("/chat/{id}/events", access=Access.VIEWER)
async def events(
    habitus: Opened,
    talks: Talking,
    id: str,
    after: int = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Stream the running turn from its start, or from where the browser lost the connection."""
    # Raises for an unknown conversation before the stream starts.
    talks.find(id)
    start = int(last_event_id) if last_event_id.isdecimal() else after
    return stream_events(_stream_events(habitus, talks, id, start))


async def _stream_events(habitus: Habitus, talks: Talks, id: str, after: int) -> AsyncIterator[Happened]:
    """Yield an update per event of the turn, the last one with the finished turn."""
    abouts: dict[str, str] = {}
    before: Happening | None = None
    while True:
        for happening in await talks.events_since(id, after):
            after += 1
            if isinstance(happening, ToolStarted):
                abouts[happening.call] = about(happening.arguments)
            if isinstance(happening, Over):
                data = await in_thread(partial(_end, habitus, happening))
                yield Happened(put=Put.OVER, data=data, number=after)
                return
            if (told := _part(id, happening, abouts)) is not None:
                put, data = told
                # Text after a tool call begins a new paragraph.
                is_new = isinstance(happening, Said) and before is not None and not isinstance(before, Said)
                yield Happened(put=put, data=f"\n\n{data}" if is_new else data, number=after)
            before = happening


def _part(id: str, happening: Happening, abouts: dict[str, str]) -> tuple[Put, str] | None:
    """Return how and what to update for an event; None if the page doesn't show it."""
    match happening:
        case Said(text=text):
            return Put.TEXT, text
        case ToolStarted(call=call, tool=tool):
            return Put.PART, part("chat_part.html", call=call, tool=tool, about=abouts[call])
        case ToolFinished(call=call, tool=tool, outcome=outcome):
            said = part("chat_part.html", call=call, tool=tool, about=abouts.get(call, ""), outcome=outcome)
            return Put.PART, said
        case Nudged(text=text) | Noticed(text=text):
            return Put.PART, part("chat_part.html", note=text)
        case Wanted() as wanted:
            return Put.PART, part("chat_part.html", id=id, wanted=wanted)
        case ToolProgress() | Done() | Over():
            return None


def _end(habitus: Habitus, over: Over) -> str:
    """Return the finished turn as recorded in the journal, as HTML."""
    turn = habitus.journal.brief(over.turn, user=habitus.settings.user) if over.turn else None
    view = None if turn is None else shown_turn(habitus.journal.turn(turn.id, user=habitus.settings.user))
    return part("chat_over.html", view=view, reason=over.reason, learned=over.learned, now=habitus.clock())
