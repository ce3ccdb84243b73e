"""Chat: a conversation with an agent in the browser, with its reply as it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated

from fastapi import File, Form, Header, Request, UploadFile
from fastapi.responses import HTMLResponse, Response
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.agent import stream
from habitus.agent.background import run_in_thread
from habitus.app import Habitus
from habitus.app.conversations.chat_events import ChatEvent, ConsentAnswered, ConsentRequested, TurnEnd
from habitus.app.conversations.chats import UserChatSessions
from habitus.app.conversations.past_sessions import build_turn_details, list_past_sessions
from habitus.errors import NotFound, UserError
from habitus.web.api.schemas import RequestConversations, RequestHome, read_upload
from habitus.web.pages.activity import list_lessons_by_turn
from habitus.web.rendering import render_page, render_template
from habitus.web.routing import LARGE_BODY_BYTES, AccessRouter
from habitus.web.streams import LiveUpdate, LiveUpdateAction, make_event_stream_response

router = AccessRouter()

UploadedFiles = Annotated[Sequence[UploadFile], File()]


@router.get("/chat", access=Access.VIEWER)
@router.get("/chat/{id}", access=Access.VIEWER)
def show_chat(request: Request, habitus: RequestHome, talks: RequestConversations, id: str = "") -> HTMLResponse:
    """Show a conversation, or the form that starts one."""
    return _render_chat(request, habitus, talks, id)


def _render_chat(request: Request, habitus: Habitus, talks: UserChatSessions, id: str) -> HTMLResponse:
    """Return the chat page; raise `NotFound` if the conversation doesn't exist."""
    live = talks.get_active_turn(id)
    turns = habitus.journal.list_session_turns(id, user=habitus.settings.user) if id else []
    if id and not turns and live is None:
        raise NotFound("Conversation not found.", hint="See Activity for your conversations.")
    # The running turn is shown by the stream, so its stored beginning is left out.
    views = [build_turn_details(turn) for turn in turns if turn.ended_on is not None or live is None]
    earlier = [] if id else list_past_sessions(habitus.settings, habitus.journal, 10)
    return render_page(
        request,
        "chat.html",
        id=id,
        views=views,
        learned=list_lessons_by_turn(habitus, [view.turn for view in views]),
        live=live,
        earlier=earlier,
        missing=_find_chat_obstacle(talks),
        most_attached=LARGE_BODY_BYTES,
    )


def _find_chat_obstacle(talks: UserChatSessions) -> UserError | None:
    """Return the error that prevents chatting, such as a missing model, or None."""
    try:
        talks.require_chat_model()
    except UserError as error:
        return error
    return None


@router.post("/chat", access=Access.ADMIN, max_bytes=LARGE_BODY_BYTES)
@router.post("/chat/{id}", access=Access.ADMIN, max_bytes=LARGE_BODY_BYTES)
def send_message(
    request: Request,
    habitus: RequestHome,
    talks: RequestConversations,
    id: str = "",
    text: Annotated[str, Form()] = "",
    files: UploadedFiles = (),
) -> HTMLResponse:
    """Send a message, which starts a conversation unless it continues one."""
    id = talks.send_message(text, id, [read_upload(file) for file in files if file.filename])
    answer = _render_chat(request, habitus, talks, id)
    answer.headers["HX-Push-Url"] = f"/chat/{id}"
    return answer


@router.post("/chat/{id}/stop", access=Access.ADMIN)
def stop_turn(talks: RequestConversations, id: str) -> Response:
    talks.stop_turn(id)
    return Response(status_code=204)


@router.post("/chat/{id}/answer", access=Access.ADMIN)
def answer_question(
    talks: RequestConversations, id: str, number: Annotated[int, Form()], word: Annotated[stream.Consent, Form()]
) -> HTMLResponse:
    """Answer the question that a turn is waiting for; the question disappears."""
    talks.deliver_person_answer(id, number, word)
    return HTMLResponse("")


@router.get("/chat/{id}/events", access=Access.VIEWER)
async def stream_chat_events(
    habitus: RequestHome,
    talks: RequestConversations,
    id: str,
    after: int = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Stream the running turn from its start, or from where the browser lost the connection."""
    # Raises for an unknown conversation before the stream starts.
    talks.require_chat(id)
    start = int(last_event_id) if last_event_id.isdecimal() else after
    return make_event_stream_response(_render_live_updates(habitus, talks, id, start))


async def _render_live_updates(
    habitus: Habitus, talks: UserChatSessions, id: str, after: int
) -> AsyncIterator[LiveUpdate]:
    """Yield an update per event of the turn, the last one with the finished turn."""
    abouts: dict[str, str] = {}
    before: ChatEvent | None = None
    while True:
        for happening in await talks.wait_for_events(id, after):
            after += 1
            if isinstance(happening, stream.ToolStarted):
                abouts[happening.call] = stream.get_most_descriptive_argument(happening.arguments)
            if isinstance(happening, TurnEnd):
                data = await run_in_thread(partial(_render_finished_turn, habitus, happening))
                yield LiveUpdate(mode=LiveUpdateAction.OVER, data=data, number=after)
                return
            if (told := _convert_event_to_update_mode_and_data(id, happening, abouts)) is not None:
                put, data = told
                # Text after a tool call begins a new paragraph.
                is_new = (
                    isinstance(happening, stream.ReplyDelta)
                    and before is not None
                    and not isinstance(before, stream.ReplyDelta)
                )
                yield LiveUpdate(mode=put, data=f"\n\n{data}" if is_new else data, number=after)
            before = happening


def _convert_event_to_update_mode_and_data(
    id: str, happening: ChatEvent, abouts: dict[str, str]
) -> tuple[LiveUpdateAction, str] | None:
    """Return how and what to update for an event; None if the page doesn't show it."""
    match happening:
        case stream.ReplyDelta(text=text):
            return LiveUpdateAction.TEXT, text
        case stream.ToolStarted(call=call, tool=tool):
            return LiveUpdateAction.PART, render_template("chat_part.html", call=call, tool=tool, about=abouts[call])
        case stream.ToolFinished(call=call, tool=tool, outcome=outcome):
            said = render_template("chat_part.html", call=call, tool=tool, about=abouts.get(call, ""), outcome=outcome)
            return LiveUpdateAction.PART, said
        case stream.NudgeEvent(text=text) | stream.NoticeEvent(text=text):
            return LiveUpdateAction.PART, render_template("chat_part.html", note=text)
        case ConsentRequested() as wanted:
            return LiveUpdateAction.PART, render_template("chat_part.html", id=id, wanted=wanted)
        case ConsentAnswered() as answered:
            return LiveUpdateAction.PART, render_template("chat_part.html", answered=answered)
        case stream.ToolProgress() | stream.TurnResult() | TurnEnd():
            return None


def _render_finished_turn(habitus: Habitus, over: TurnEnd) -> str:
    """Return the finished turn as recorded in the journal, as HTML."""
    turn = habitus.journal.find_brief_turn(over.turn, user=habitus.settings.user) if over.turn else None
    view = None if turn is None else build_turn_details(habitus.journal.get_turn(turn.id, user=habitus.settings.user))
    return render_template("chat_over.html", view=view, reason=over.reason, learned=over.learned, now=habitus.clock())
