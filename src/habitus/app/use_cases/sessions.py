"""Conversations: list past ones and their turns, and chat with an agent over REST."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import MISSING, dataclass

from habitus.access import Access
from habitus.agent.stream import Consent
from habitus.app.conversations.past_sessions import past_session
from habitus.app.conversations.talking import open_talks
from habitus.app.home import Home, whose
from habitus.app.library.uploading import Upload
from habitus.app.use_cases.declaration import (
    TEXT,
    Nothing,
    after_option,
    argument,
    limit_option,
    option,
    page_of,
    use_case,
)
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.journal.model import KeptSession, Turn, TurnFilter

_EVERYBODY = "Of everybody; for admins."
# Per message.
MOST_FILES = 20
_FILES = f"What comes with it, in Base64; {MOST_FILES} at most."


@dataclass(frozen=True, kw_only=True)
class SessionList:
    limit: int = limit_option(20)
    after: str = after_option()
    all_users: bool = option(_EVERYBODY, default=False)
    user: str = option("Of this user; for admins.", default="")


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """One page of conversations."""

    sessions: Sequence[KeptSession]
    next: str | None
    total: int
    # How many belong to other users; only counted for admins.
    hidden: int


@use_case("sessions list", route="GET /sessions", access=Access.VIEWER, example=SessionList(limit=5))
def list_sessions(home: Home, wanted: SessionList) -> SessionPage:
    """List your conversations, most recent first."""
    limit, user = wanted.limit, whose(home.settings, wanted.all_users, wanted.user)
    # One more than asked for tells whether there is a next page.
    found = home.journal.sessions(limit=limit + 1, user=user, after=wanted.after)
    next = found[limit - 1].id if len(found) > limit else None
    total = len(home.journal.session_ids(user=user))
    everybodys = len(home.journal.session_ids()) if user is not None and home.settings.is_admin else total
    return SessionPage(sessions=found[:limit], next=next, total=total, hidden=everybodys - total)


@dataclass(frozen=True, kw_only=True)
class OneSession:
    id: str = argument("A session, or the beginning of its id.")
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = option(_EVERYBODY, default=False)


@dataclass(frozen=True, kw_only=True)
class SessionTurns:
    session: str
    turns: Sequence[Turn]
    next: str | None
    total: int


@use_case("sessions show", route="GET /sessions/{id}", access=Access.VIEWER, example=OneSession(id="3f2a"))
def show(home: Home, wanted: OneSession) -> SessionTurns:
    """Show one conversation: requests, steps, replies and outcomes."""
    found = past_session(home.settings, home.journal, wanted.id, all_users=wanted.all_users)
    page = page_of("turns", found.turns, lambda turn: turn.id, limit=wanted.limit, after=wanted.after)
    return SessionTurns(session=found.session, turns=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class TurnList:
    q: str = option("Words of the request.", default="")
    agent: str = option("Where it was asked: web, repl, mcp, an agent's name …", default="")
    outcome: OutcomeKind | None = option("How it went.")
    skill: str = option("A skill that was read in full.", default="")
    limit: int = limit_option(50)
    after: str = after_option()
    all_users: bool = option(_EVERYBODY, default=False)
    user: str = option("Of this user; for admins.", default="")


@dataclass(frozen=True, kw_only=True)
class TurnPage:
    # In brief: the request, the skills read for it, and the outcome.
    turns: Sequence[Turn]
    next: str | None


@use_case("", route="GET /turns", access=Access.VIEWER, example=TurnList(q="invoice", outcome=OutcomeKind.FAILED))
def find_turns(home: Home, wanted: TurnList) -> TurnPage:
    """Find turns by request, agent, outcome or skill, most recent first."""
    of = TurnFilter(
        user=whose(home.settings, wanted.all_users, wanted.user),
        text=wanted.q,
        source_type=wanted.agent,
        skill=wanted.skill,
        outcome=wanted.outcome,
    )
    # One more than asked for tells whether there is a next page.
    found = home.journal.find(of, limit=wanted.limit + 1, after=wanted.after)
    next = found[wanted.limit - 1].id if len(found) > wanted.limit else None
    return TurnPage(turns=found[: wanted.limit], next=next)


@dataclass(frozen=True, kw_only=True)
class OneTurn:
    id: str = argument("A turn's id.")


@use_case("", route="GET /turns/{id}", access=Access.VIEWER, example=OneTurn(id="d4342a3ce725"))
def show_turn(home: Home, wanted: OneTurn) -> Turn:
    """Show one turn."""
    return home.journal.turn(wanted.id, user=home.settings.user)


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A file sent with a message, in Base64."""

    name: str
    # In Base64.
    content: str

    def upload(self) -> Upload:
        """Decode the content. Raises `Invalid` if it is not Base64."""
        try:
            return Upload(name=self.name, content=base64.b64decode(self.content, validate=True))
        except ValueError:
            raise Invalid(
                f"The content of '{self.name}' is not Base64.", hint="Encode the bytes of the file."
            ) from None


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    text: str = option("What to say.", default="", longest=TEXT)
    files: tuple[Attachment, ...] = option(_FILES, default=())


@dataclass(frozen=True, kw_only=True)
class NextMessage(NewMessage):
    id: str = argument("A session.")


@dataclass(frozen=True, kw_only=True)
class StartedTurn:
    # The session's id.
    id: str


@use_case(
    "",
    route="POST /sessions",
    access=Access.ADMIN,
    example=NewMessage(text="Sum it up."),
    status=202,
    is_once=True,
    takes_files=True,
)
def begin(home: Home, wanted: NewMessage) -> StartedTurn:
    """Start a conversation; follow it through its events, or read the result from it afterwards."""
    return _say(home, "", wanted.text, wanted.files)


@use_case(
    "",
    route="POST /sessions/{id}/say",
    access=Access.ADMIN,
    example=NextMessage(id="3f2a", text="And the mean?"),
    status=202,
    is_once=True,
    takes_files=True,
)
def go_on(home: Home, wanted: NextMessage) -> StartedTurn:
    """Send the next message of a conversation."""
    return _say(home, wanted.id, wanted.text, wanted.files)


def _say(home: Home, id: str, text: str, files: Sequence[Attachment]) -> StartedTurn:
    if len(files) > MOST_FILES:
        raise Invalid(f"{len(files)} files are too many.", hint=f"Send {MOST_FILES} at most.")
    return StartedTurn(id=open_talks(home).say(text, id, [file.upload() for file in files]))


@dataclass(frozen=True, kw_only=True)
class RunningTurn:
    id: str = argument("A session.")


@use_case("", route="POST /sessions/{id}/stop", access=Access.ADMIN, example=RunningTurn(id="3f2a"), status=204)
def stop(home: Home, wanted: RunningTurn) -> Nothing:
    """Stop the running turn."""
    open_talks(home).stop(wanted.id)
    return Nothing()


@dataclass(frozen=True, kw_only=True)
class Answer:
    id: str = argument("A session.")
    number: int = option("Which question.", default=MISSING, least=0, most=10**9)
    word: Consent = option("What the person says.", default=MISSING)


@use_case(
    "",
    route="POST /sessions/{id}/answer",
    access=Access.ADMIN,
    example=Answer(id="3f2a", number=1, word=Consent.YES),
    status=204,
)
def answer(home: Home, wanted: Answer) -> Nothing:
    """Answer a question that the turn is waiting for."""
    open_talks(home).answer(wanted.id, wanted.number, wanted.word)
    return Nothing()
