"""Conversations: list past ones and their turns, and chat with an agent over REST."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.agent.stream import Consent
from habitus.app.conversations.chats import get_or_open_user_chat_sessions
from habitus.app.conversations.past_sessions import get_latest_or_matching_session
from habitus.app.home import Home, resolve_user_filter
from habitus.app.library.uploading import UploadedFile
from habitus.app.use_cases.declaration import (
    MAX_TEXT_CHARS,
    AllUsers,
    FirstDay,
    LastDay,
    PageCursor,
    PageLimit,
    argument,
    option,
    paginate_items,
    parse_day,
    use_case,
)
from habitus.errors import Invalid
from habitus.journal.model import SessionSummary, Turn, TurnFilter
from habitus.journal.usage import UseVerdict

# Per message.
MAX_FILES = 20


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """One page of conversations."""

    sessions: Sequence[SessionSummary]
    next: str | None
    total: int
    # How many belong to other users; only counted for admins.
    hidden: int


@use_case("sessions list", route="GET /sessions", access=Access.VIEWER, example={"limit": 5})
def list_sessions(
    home: Home,
    limit: PageLimit = 20,
    after: PageCursor = "",
    all_users: AllUsers = False,
    user: Annotated[str, option("Only this user; for admins.")] = "",
) -> SessionPage:
    """List your conversations, most recent first."""
    owner = resolve_user_filter(home.settings, all_users, user)
    # One more than asked for tells whether there is a next page.
    found = home.journal.list_sessions(limit=limit + 1, user=owner, after=after)
    next = found[limit - 1].id if len(found) > limit else None
    total = len(home.journal.list_session_ids(user=owner))
    everybodys = len(home.journal.list_session_ids()) if owner is not None and home.settings.is_admin else total
    return SessionPage(sessions=found[:limit], next=next, total=total, hidden=everybodys - total)


@dataclass(frozen=True, kw_only=True)
class SessionDetails:
    session: str
    turns: Sequence[Turn]
    next: str | None
    total: int


@use_case("sessions show", route="GET /sessions/{id}", access=Access.VIEWER, example={"id": "3f2a"})
def show_session(
    home: Home,
    id: Annotated[str, argument("A session id, or its beginning.")],
    limit: PageLimit = 100,
    after: PageCursor = "",
    all_users: AllUsers = False,
) -> SessionDetails:
    """Show one conversation: requests, steps, replies and outcomes."""
    found = get_latest_or_matching_session(home.settings, home.journal, id, all_users=all_users)
    page = paginate_items("turns", found.turns, lambda turn: turn.id, limit=limit, after=after)
    return SessionDetails(session=found.session, turns=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class TurnSearchPage:
    # In brief: the request, the skills read for it, and the outcome.
    turns: Sequence[Turn]
    next: str | None


@use_case("", route="GET /turns", access=Access.VIEWER, example={"q": "invoice", "outcome": UseVerdict.FAILED})
def find_turns(
    home: Home,
    q: Annotated[str, option("Words in the request.")] = "",
    agent: Annotated[str, option("Source: web, repl, mcp, an agent's name …")] = "",
    outcome: Annotated[UseVerdict | None, option("What is known about it.")] = None,
    skill: Annotated[str, option("A skill that was used; * for any.")] = "",
    lesson: Annotated[str, option("The id of a lesson that was chosen for it, once for a conversation.")] = "",
    since: FirstDay = "",
    until: LastDay = "",
    limit: PageLimit = 50,
    after: PageCursor = "",
    all_users: AllUsers = False,
    user: Annotated[str, option("Only this user; for admins.")] = "",
) -> TurnSearchPage:
    """Find turns by request, agent, outcome, skill or day, most recent first."""
    of = TurnFilter(
        user=resolve_user_filter(home.settings, all_users, user),
        text=q,
        source_type=agent,
        skill=skill,
        lesson=lesson,
        verdict=outcome or "",
        since=parse_day(since),
        before=parse_day(until, days=1),
    )
    # One more than asked for tells whether there is a next page.
    found = home.journal.find_turns(of, limit=limit + 1, after=after)
    next = found[limit - 1].id if len(found) > limit else None
    return TurnSearchPage(turns=found[:limit], next=next)


@use_case("", route="GET /turns/{id}", access=Access.VIEWER, example={"id": "d4342a3ce725"})
def show_turn(home: Home, id: Annotated[str, argument("A turn's id.")]) -> Turn:
    """Show one turn."""
    return home.journal.get_turn(id, user=home.settings.user)


@dataclass(frozen=True, kw_only=True)
class Base64Attachment:
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


SessionId = Annotated[str, argument("A session.")]
MessageText = Annotated[str, option("The message.", longest=MAX_TEXT_CHARS)]
MessageFiles = Annotated[tuple[Base64Attachment, ...], option(f"What comes with it, in Base64; {MAX_FILES} at most.")]


@dataclass(frozen=True, kw_only=True)
class SendMessageResult:
    # The session's id.
    id: str


@use_case(
    "",
    route="POST /sessions",
    access=Access.ADMIN,
    example={"text": "Sum it up."},
    status=202,
    accepts_idempotency_key=True,
    takes_files=True,
)
def start_session(home: Home, text: MessageText = "", files: MessageFiles = ()) -> SendMessageResult:
    """Start a conversation; follow it through its events, or read the result from it afterwards."""
    return _send_message_to_session(home, "", text, files)


@use_case(
    "",
    route="POST /sessions/{id}/say",
    access=Access.ADMIN,
    example={"id": "3f2a", "text": "And the mean?"},
    status=202,
    accepts_idempotency_key=True,
    takes_files=True,
)
def send_message(home: Home, id: SessionId, text: MessageText = "", files: MessageFiles = ()) -> SendMessageResult:
    """Send the next message of a conversation."""
    return _send_message_to_session(home, id, text, files)


def _send_message_to_session(home: Home, id: str, text: str, files: Sequence[Base64Attachment]) -> SendMessageResult:
    if len(files) > MAX_FILES:
        raise Invalid(f"{len(files)} files are too many.", hint=f"Send {MAX_FILES} at most.")
    return SendMessageResult(
        id=get_or_open_user_chat_sessions(home).send_message(text, id, [file.decode() for file in files])
    )


@use_case("", route="POST /sessions/{id}/stop", access=Access.ADMIN, example={"id": "3f2a"}, status=204)
def stop_turn(home: Home, id: SessionId) -> None:
    """Stop the running turn."""
    get_or_open_user_chat_sessions(home).stop_turn(id)


@use_case(
    "",
    route="POST /sessions/{id}/answer",
    access=Access.ADMIN,
    example={"id": "3f2a", "number": 1, "answer": Consent.YES},
    status=204,
)
def answer_question(
    home: Home,
    id: SessionId,
    number: Annotated[int, option("The number of the question.", least=0, most=10**9)],
    answer: Annotated[Consent, option("The person's answer.")],
) -> None:
    """Answer a question that the turn is waiting for."""
    get_or_open_user_chat_sessions(home).deliver_person_answer(id, number, answer)
