"""Lessons, rules and facts: list, add, edit, remove, restore and retract them, and curate what was learned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from habitus.access import Access
from habitus.app.home import Home, resolve_user_filter, select_memory
from habitus.app.learning import curating
from habitus.app.learning.curating import CurationReport
from habitus.app.library.undoing import build_lesson_targets
from habitus.app.use_cases.declaration import (
    after_option,
    argument,
    expected_version_option,
    limit_option,
    option,
    paginate_items,
    parse_expected_version,
    use_case,
)
from habitus.errors import Invalid, NotFound
from habitus.memory.cortex import Cortex
from habitus.memory.model import ChangeCause, EncodeStatus, Engram, LessonKind, LessonScope, LessonState

# More lessons than any home has; pages are cut afterwards.
_MAX_LESSONS = 100_000
_KIND = f"{', '.join(LessonKind)}."
_FOR = "Whom it holds for: user, project, workspace, global."


def _get_version(done: LessonDetails | EditLessonResult) -> tuple[int, str]:
    """Return the version for the ETag; lessons have no layers."""
    return done.lesson.version, ""


def _all_users_option() -> bool:
    shared: bool = option("All users; for admins only.", default=False)
    return shared


@dataclass(frozen=True, kw_only=True)
class ListLessonsRequest:
    kind: LessonKind | None = option(_KIND, "-k")
    since: str = option("today, week, all or self-play.", "--since", "--scope", default="all")
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = _all_users_option()


@dataclass(frozen=True, kw_only=True)
class LessonPage:
    lessons: Sequence[Engram]
    next: str | None
    total: int


@use_case(
    "lessons list",
    route="GET /lessons",
    access=Access.OPEN_READING,
    example=ListLessonsRequest(kind=LessonKind.ALWAYS, limit=20),
)
def list_lessons(home: Home, request: ListLessonsRequest) -> LessonPage:
    """List what is remembered, newest first."""
    found = select_memory(home, request.all_users).list_lessons(request.since, _MAX_LESSONS, kind=request.kind)
    page = paginate_items("lessons", found, lambda engram: engram.id, limit=request.limit, after=request.after)
    return LessonPage(lessons=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ListArchivedLessonsRequest:
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = _all_users_option()


@use_case(
    "lessons archive", route="GET /lessons/archive", access=Access.OPEN_READING, example=ListArchivedLessonsRequest()
)
def list_archived_lessons(home: Home, request: ListArchivedLessonsRequest) -> LessonPage:
    """List the removed lessons and those that made room for others, most recent first."""
    found = select_memory(home, request.all_users).list_archived_lessons()
    page = paginate_items("the archive", found, lambda engram: engram.id, limit=request.limit, after=request.after)
    return LessonPage(lessons=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ShowLessonRequest:
    id: str = argument("The id of a lesson.", completes="lessons")
    all_users: bool = _all_users_option()


@dataclass(frozen=True, kw_only=True)
class LessonVersion:
    number: int
    text: str
    state: LessonState
    cause: ChangeCause


@dataclass(frozen=True, kw_only=True)
class LessonDetails:
    lesson: Engram
    history: Sequence[LessonVersion]


@use_case(
    "lessons show",
    route="GET /lessons/{id}",
    access=Access.OPEN_READING,
    example=ShowLessonRequest(id="b1"),
    get_version=_get_version,
)
def show_lesson(home: Home, request: ShowLessonRequest) -> LessonDetails:
    """Show one lesson: its origin, its evidence, its usage and its history."""
    memory = select_memory(home, request.all_users)
    history = [
        LessonVersion(number=one.number, text=one.engram.text, state=one.engram.state, cause=one.cause)
        for one in memory.get_history(request.id)
    ]
    return LessonDetails(lesson=memory.get(request.id), history=history)


@dataclass(frozen=True, kw_only=True)
class AddLessonRequest:
    text: str = argument("One sentence.")
    kind: LessonKind = option(_KIND, "-k", default=LessonKind.LESSON)
    scope: LessonScope = option(_FOR, "--for", default=LessonScope.USER)
    topic: str = option("Its topic, in one word.", default="")


@dataclass(frozen=True, kw_only=True)
class AddLessonResult:
    """The lesson that was stored or reinforced."""

    status: EncodeStatus
    lesson: Engram
    # Lessons that were archived to make room for it.
    archived: Sequence[Engram] = ()
    redacted: dict[str, int] = field(default_factory=dict)
    undo: tuple[str, ...] = ()


def _find_lesson_added_since(home: Home, request: AddLessonRequest, since: datetime) -> AddLessonResult | None:
    """Return the lesson with this text if it was added since then."""
    same = (one for one in home.memory.list_lessons("all", _MAX_LESSONS) if one.text == request.text.strip())
    made = next((one for one in same if one.created_on is not None and one.created_on >= since), None)
    return (
        AddLessonResult(status=EncodeStatus.STORED, lesson=made, undo=("lessons", "remove", made.id)) if made else None
    )


@use_case(
    "lessons add",
    route="POST /lessons",
    access=Access.ADMIN,
    example=AddLessonRequest(text="Dates are day-first."),
    status=201,
    accepts_idempotency_key=True,
    recover_result=_find_lesson_added_since,
)
def add_lesson(home: Home, request: AddLessonRequest) -> AddLessonResult:
    """Remember something; a lesson that is known already gets stronger."""
    with _collect_undo_command(home.memory) as undo:
        encoded = home.memory.add(
            request.text, kind=request.kind, scope=request.scope, topic=request.topic, project=home.project
        )
    assert encoded.engram is not None
    return AddLessonResult(
        status=encoded.status,
        lesson=encoded.engram,
        archived=encoded.archived,
        redacted=dict(encoded.redacted),
        undo=tuple(undo),
    )


@dataclass(frozen=True, kw_only=True)
class EditLessonRequest:
    id: str = argument("The id of a lesson.", completes="lessons")
    text: str | None = option("The new text.", "-t")
    kind: LessonKind | None = option(_KIND, "-k")
    scope: LessonScope | None = option(_FOR, "--for")
    topic: str | None = option("Its topic, in one word.")
    expect: str | None = expected_version_option()
    all_users: bool = _all_users_option()


@dataclass(frozen=True, kw_only=True)
class EditLessonResult:
    """A lesson after an edit; `undo` is empty if nothing was changed."""

    lesson: Engram
    # Empty if nothing was changed.
    undo: tuple[str, ...]


@use_case(
    "lessons edit",
    route="PATCH /lessons/{id}",
    access=Access.ADMIN,
    example=EditLessonRequest(id="b1", text="Dates are month-first."),
    get_version=_get_version,
)
def edit_lesson(home: Home, request: EditLessonRequest) -> EditLessonResult:
    """Edit a lesson; from then on it is yours."""
    memory = select_memory(home, request.all_users)
    with _collect_undo_command(memory) as undo:
        after = memory.edit(
            request.id,
            by=home.settings.signature,
            text=request.text,
            kind=request.kind,
            scope=request.scope,
            topic=request.topic,
            project=home.project,
            expected_version=parse_expected_version(request.expect),
        )
    return EditLessonResult(lesson=after, undo=tuple(undo))


@dataclass(frozen=True, kw_only=True)
class LessonIdsRequest:
    ids: tuple[str, ...] = argument("The ids of lessons.", completes="lessons")
    all_users: bool = _all_users_option()


@dataclass(frozen=True, kw_only=True)
class MoveLessonsResult:
    lessons: Sequence[Engram]
    undo: tuple[str, ...]


@use_case(
    "lessons remove",
    route="DELETE /lessons/{ids}",
    access=Access.ADMIN,
    example=LessonIdsRequest(ids=("b1",)),
    undo="lessons restore",
)
def remove_lessons(home: Home, request: LessonIdsRequest) -> MoveLessonsResult:
    """Archive lessons; they are not learned again automatically."""
    memory = select_memory(home, request.all_users)
    # Look all of them up first: an unknown id must fail before anything is removed.
    found = [memory.get(id).id for id in request.ids]
    gone = [memory.remove(id, by=home.settings.signature) for id in found]
    return MoveLessonsResult(lessons=gone, undo=("lessons", "restore", *found))


@use_case(
    "lessons restore",
    route="POST /lessons/{ids}/restore",
    access=Access.ADMIN,
    example=LessonIdsRequest(ids=("b1",)),
    undo="lessons remove",
)
def restore_lessons(home: Home, request: LessonIdsRequest) -> MoveLessonsResult:
    """Restore lessons from the archive."""
    memory = select_memory(home, request.all_users)
    found = [memory.get(id).id for id in request.ids]
    back = [memory.restore(id, by=home.settings.signature) for id in found]
    return MoveLessonsResult(lessons=back, undo=("lessons", "remove", *found))


@dataclass(frozen=True, kw_only=True)
class RetractLessonsRequest:
    turn: str = option("Retract the lessons of this turn.", default="")
    session: str = option("Retract the lessons of this session.", default="")
    all_users: bool = _all_users_option()


@use_case(
    "lessons retract",
    route="POST /lessons/retract",
    access=Access.ADMIN,
    example=RetractLessonsRequest(turn="d4342a3ce725"),
)
def retract_lessons(home: Home, request: RetractLessonsRequest) -> MoveLessonsResult:
    """Archive everything that one conversation taught; it is not learned again automatically."""
    if bool(request.turn) is bool(request.session):
        raise Invalid("Name the turn or session.", hint="Give --turn ID or --session ID.")
    # Old lessons don't know their session: find them by the turns that the journal still has.
    user = resolve_user_filter(home.settings, request.all_users)
    turns = home.journal.list_session_turns(request.session, user=user) if request.session else []
    memory = select_memory(home, request.all_users)
    found = memory.list_lessons_taught_by(
        {request.turn} if request.turn else {one.id for one in turns}, session=request.session
    )
    where = f"turn {request.turn}" if request.turn else f"session {request.session}"
    if not found:
        raise NotFound(f"No lessons come from {where}.", hint="See 'habitus sessions list'.")
    gone = [memory.remove(one.id, by=home.settings.signature, reason=f"withdrawn with {where}") for one in found]
    return MoveLessonsResult(lessons=gone, undo=("lessons", "restore", *(one.id for one in gone)))


@contextmanager
def _collect_undo_command(memory: Cortex) -> Iterator[list[str]]:
    """Collect the changes to lessons made inside, and yield the command that undoes them; empty if there are none."""
    undo: list[str] = []
    with memory.record_changes() as made:
        yield undo
    undo += ("undo", *build_lesson_targets(made)) if made else ()


@dataclass(frozen=True, kw_only=True)
class CurationRequest:
    apply: bool = option("Apply the changes; archived lessons can be restored.", default=False)
    model: str = option("Let provider:model draft the next stage of skills that can climb.", default="")


@use_case("curate", access=Access.ADMIN, example=CurationRequest(apply=True), undo="lessons restore")
def curate(home: Home, request: CurationRequest) -> CurationReport:
    """Maintain what was learned: archive what has aged, test what fails, and let what has served climb a stage.

    Without --apply it only reports what it would do, and why. Changes to skills wait for your review.
    """
    return asyncio.run(curating.curate(home, apply=request.apply, model=request.model))
