"""Conversations: list past ones and their turns, and chat with an agent over REST."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import MISSING, dataclass

from habitus.access import Access
from habitus.agent.stream import Consent
from habitus.app.conversations.chats import open_chats
from habitus.app.conversations.past_sessions import get_past_session
from habitus.app.home import Home, resolve_user_filter
from habitus.app.library.uploading import UploadedFile
from habitus.app.use_cases.declaration import (
    MAX_TEXT_CHARS,
    EmptyPayload,
    after_option,
    argument,
    limit_option,
    option,
    paginate_items,
    use_case,
)
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.journal.model import SessionSummary, Turn, TurnFilter

_ALL_USERS_HELP = "All users; for admins only."
# Per message.
MAX_FILES = 20
_FILES_HELP = f"What comes with it, in Base64; {MAX_FILES} at most."


@dataclass(frozen=True, kw_only=True)
class ListSessionsRequest:
    limit: int = limit_option(20)
    after: str = after_option()
    all_users: bool = option(_ALL_USERS_HELP, default=False)
    user: str = option("Only this user; for admins.", default="")


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """One page of conversations."""

    sessions: Sequence[SessionSummary]
    next: str | None
    total: int
    # How many belong to other users; only counted for admins.
    hidden: int


@use_case("sessions list", route="GET /sessions", access=Access.VIEWER, example=ListSessionsRequest(limit=5))
def list_sessions(home: Home, request: ListSessionsRequest) -> SessionPage:
    """List your conversations, most recent first."""
    limit, user = request.limit, resolve_user_filter(home.settings, request.all_users, request.user)
    # One more than asked for tells whether there is a next page.
    found = home.journal.list_sessions(limit=limit + 1, user=user, after=request.after)
    next = found[limit - 1].id if len(found) > limit else None
    total = len(home.journal.list_session_ids(user=user))
    everybodys = len(home.journal.list_session_ids()) if user is not None and home.settings.is_admin else total
    return SessionPage(sessions=found[:limit], next=next, total=total, hidden=everybodys - total)


@dataclass(frozen=True, kw_only=True)
class ShowSessionRequest:
    id: str = argument("A session id, or its beginning.")
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = option(_ALL_USERS_HELP, default=False)


@dataclass(frozen=True, kw_only=True)
class SessionDetails:
    session: str
    turns: Sequence[Turn]
    next: str | None
    total: int


@use_case("sessions show", route="GET /sessions/{id}", access=Access.VIEWER, example=ShowSessionRequest(id="3f2a"))
def show_session(home: Home, request: ShowSessionRequest) -> SessionDetails:
    """Show one conversation: requests, steps, replies and outcomes."""
    found = get_past_session(home.settings, home.journal, request.id, all_users=request.all_users)
    page = paginate_items("turns", found.turns, lambda turn: turn.id, limit=request.limit, after=request.after)
    return SessionDetails(session=found.session, turns=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class FindTurnsRequest:
    q: str = option("Words in the request.", default="")
    agent: str = option("Source: web, repl, mcp, an agent's name …", default="")
    outcome: OutcomeKind | None = option("The outcome.")
    skill: str = option("A skill that was included in full.", default="")
    limit: int = limit_option(50)
    after: str = after_option()
    all_users: bool = option(_ALL_USERS_HELP, default=False)
    user: str = option("Only this user; for admins.", default="")


@dataclass(frozen=True, kw_only=True)
class TurnPage:
    # In brief: the request, the skills read for it, and the outcome.
    turns: Sequence[Turn]
    next: str | None


@use_case(
    "", route="GET /turns", access=Access.VIEWER, example=FindTurnsRequest(q="invoice", outcome=OutcomeKind.FAILED)
)
def find_turns(home: Home, request: FindTurnsRequest) -> TurnPage:
    """Find turns by request, agent, outcome or skill, most recent first."""
    of = TurnFilter(
        user=resolve_user_filter(home.settings, request.all_users, request.user),
        text=request.q,
        source_type=request.agent,
        skill=request.skill,
        outcome=request.outcome,
    )
    # One more than asked for tells whether there is a next page.
    found = home.journal.find_turns(of, limit=request.limit + 1, after=request.after)
    next = found[request.limit - 1].id if len(found) > request.limit else None
    return TurnPage(turns=found[: request.limit], next=next)


@dataclass(frozen=True, kw_only=True)
class ShowTurnRequest:
    id: str = argument("A turn's id.")


@use_case("", route="GET /turns/{id}", access=Access.VIEWER, example=ShowTurnRequest(id="d4342a3ce725"))
def show_turn(home: Home, request: ShowTurnRequest) -> Turn:
    """Show one turn."""
    return home.journal.get_turn(request.id, user=home.settings.user)


@dataclass(frozen=True, kw_only=True)
class EncodedAttachment:
    """A file sent with a message, in Base64."""

    name: str
    # In Base64.
    content: str

    def decode(self) -> UploadedFile:
        """Decode the content. Raises `Invalid` if it is not Base64."""
        try:
            return UploadedFile(name=self.name, content=base64.b64decode(self.content, validate=True))
        except ValueError:
            raise Invalid(
                f"The content of '{self.name}' is not Base64.", hint="Encode the bytes of the file."
            ) from None


@dataclass(frozen=True, kw_only=True)
class StartSessionRequest:
    text: str = option("The message.", default="", longest=MAX_TEXT_CHARS)
    files: tuple[EncodedAttachment, ...] = option(_FILES_HELP, default=())


@dataclass(frozen=True, kw_only=True)
class SendMessageRequest(StartSessionRequest):
    id: str = argument("A session.")


@dataclass(frozen=True, kw_only=True)
class SendMessageResult:
    # The session's id.
    id: str


@use_case(
    "",
    route="POST /sessions",
    access=Access.ADMIN,
    example=StartSessionRequest(text="Sum it up."),
    status=202,
    accepts_idempotency_key=True,
    takes_files=True,
)
def start_session(home: Home, request: StartSessionRequest) -> SendMessageResult:
    """Start a conversation; follow it through its events, or read the result from it afterwards."""
    return _start_turn(home, "", request.text, request.files)


@use_case(
    "",
    route="POST /sessions/{id}/say",
    access=Access.ADMIN,
    example=SendMessageRequest(id="3f2a", text="And the mean?"),
    status=202,
    accepts_idempotency_key=True,
    takes_files=True,
)
def send_message(home: Home, request: SendMessageRequest) -> SendMessageResult:
    """Send the next message of a conversation."""
    return _start_turn(home, request.id, request.text, request.files)


def _start_turn(home: Home, id: str, text: str, files: Sequence[EncodedAttachment]) -> SendMessageResult:
    if len(files) > MAX_FILES:
        raise Invalid(f"{len(files)} files are too many.", hint=f"Send {MAX_FILES} at most.")
    return SendMessageResult(id=open_chats(home).send_message(text, id, [file.decode() for file in files]))


@dataclass(frozen=True, kw_only=True)
class StopTurnRequest:
    id: str = argument("A session.")


@use_case("", route="POST /sessions/{id}/stop", access=Access.ADMIN, example=StopTurnRequest(id="3f2a"), status=204)
def stop_turn(home: Home, request: StopTurnRequest) -> EmptyPayload:
    """Stop the running turn."""
    open_chats(home).stop_turn(request.id)
    return EmptyPayload()


@dataclass(frozen=True, kw_only=True)
class AnswerQuestionRequest:
    id: str = argument("A session.")
    number: int = option("The number of the question.", default=MISSING, least=0, most=10**9)
    answer: Consent = option("The person's answer.", default=MISSING)


@use_case(
    "",
    route="POST /sessions/{id}/answer",
    access=Access.ADMIN,
    example=AnswerQuestionRequest(id="3f2a", number=1, answer=Consent.YES),
    status=204,
)
def answer_question(home: Home, request: AnswerQuestionRequest) -> EmptyPayload:
    """Answer a question that the turn is waiting for."""
    open_chats(home).answer_question(request.id, request.number, request.answer)
    return EmptyPayload()
