"""Lessons, rules and facts: list, add, edit, remove, restore and retract them, and curate what was learned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home, get_user_or_all_memory, resolve_user_filter
from habitus.app.learning import curating
from habitus.app.library.undoing import build_lesson_undo_targets
from habitus.app.use_cases.declaration import (
    AllUsers,
    ExpectedVersion,
    PageCursor,
    PageLimit,
    argument,
    option,
    paginate_items,
    parse_expected_version,
    use_case,
)
from habitus.errors import Invalid, NotFound
from habitus.journal.usage import RequestCounts
from habitus.memory.cortex import Cortex
from habitus.memory.model import ChangeAuthorAndReason, Engram, LessonDraftOutcome, LessonKind, LessonScope, LessonState
from habitus.settings import Settings

# More lessons than any home has; pages are cut afterwards.
_MAX_LESSONS = 100_000
_KIND = f"{', '.join(LessonKind)}."
LessonId = Annotated[str, argument("The id of a lesson.", completes="lessons")]
LessonIds = Annotated[tuple[str, ...], argument("The ids of lessons.", completes="lessons")]
_FOR = "Whom it applies to: user, project, workspace, global."


def _get_etag_version(done: LessonDetails | EditLessonResult) -> tuple[int, str]:
    """Return the version for the ETag; lessons have no layers."""
    return done.lesson.version, ""


@dataclass(frozen=True, kw_only=True)
class LessonPage:
    lessons: Sequence[Engram]
    next: str | None
    total: int


@use_case(
    "lessons list", route="GET /lessons", access=Access.OPEN_READING, example={"kind": LessonKind.ALWAYS, "limit": 20}
)
def list_lessons(
    home: Home,
    kind: Annotated[LessonKind | None, option(_KIND, "-k")] = None,
    since: Annotated[str, option("today, week, all or self-play.", "--since", "--scope")] = "all",
    limit: PageLimit = 100,
    after: PageCursor = "",
    all_users: AllUsers = False,
) -> LessonPage:
    """List what is remembered, newest first."""
    found = get_user_or_all_memory(home, all_users).list_lessons(since, _MAX_LESSONS, kind=kind)
    return _build_lesson_page(home.settings, "lessons", found, limit, after)


def _build_lesson_page(settings: Settings, what: str, found: Sequence[Engram], limit: int, after: str) -> LessonPage:
    page = paginate_items(what, found, lambda engram: engram.id, limit=limit, after=after)
    shown = [hide_foreign_source_of_lesson(settings, one) for one in page.items]
    return LessonPage(lessons=shown, next=page.next, total=page.total)


def hide_foreign_source_of_lesson(settings: Settings, lesson: Engram) -> Engram:
    """Return the lesson without the person and conversation that taught it, unless they are the caller's own."""
    about = lesson.evidence
    if settings.is_admin or about.user == settings.user:
        return lesson
    return replace(lesson, evidence=replace(about, user="", session="", trace=""))


@use_case("lessons archive", route="GET /lessons/archive", access=Access.OPEN_READING)
def list_archived_lessons(
    home: Home, limit: PageLimit = 100, after: PageCursor = "", all_users: AllUsers = False
) -> LessonPage:
    """List the removed lessons and those that made room for others, most recent first."""
    return _build_lesson_page(
        home.settings, "the archive", get_user_or_all_memory(home, all_users).list_archived_lessons(), limit, after
    )


@dataclass(frozen=True, kw_only=True)
class LessonVersion:
    number: int
    text: str
    state: LessonState
    cause: ChangeAuthorAndReason


@dataclass(frozen=True, kw_only=True)
class LessonDetails:
    lesson: Engram
    # Your requests that it was chosen for; rules and the profile are in every prompt, and chosen for none.
    shown: RequestCounts
    history: Sequence[LessonVersion]


@use_case(
    "lessons show",
    route="GET /lessons/{id}",
    access=Access.OPEN_READING,
    example={"id": "b1"},
    get_version=_get_etag_version,
)
def show_lesson(home: Home, id: LessonId, all_users: AllUsers = False) -> LessonDetails:
    """Show one lesson: its origin, its evidence, its usage and its history."""
    memory = get_user_or_all_memory(home, all_users)
    history = [
        LessonVersion(number=one.number, text=one.engram.text, state=one.engram.state, cause=one.cause)
        for one in memory.get_history(id)
    ]
    lesson = memory.get(id)
    return LessonDetails(
        lesson=hide_foreign_source_of_lesson(home.settings, lesson),
        shown=home.journal.count_requests_with_lesson(lesson.id, user=resolve_user_filter(home.settings, all_users)),
        history=history,
    )


@dataclass(frozen=True, kw_only=True)
class AddLessonResult:
    """The lesson that was stored or reinforced."""

    status: LessonDraftOutcome
    lesson: Engram
    # Lessons that were archived to make room for it.
    archived: Sequence[Engram] = ()
    redacted: dict[str, int] = field(default_factory=dict)
    undo: tuple[str, ...] = ()


def _find_lesson_added_since(home: Home, since: datetime, text: str) -> AddLessonResult | None:
    """Return the lesson with this text if it was added since then."""
    same = (one for one in home.memory.list_lessons("all", _MAX_LESSONS) if one.text == text.strip())
    made = next((one for one in same if one.created_on is not None and one.created_on >= since), None)
    return (
        AddLessonResult(status=LessonDraftOutcome.STORED, lesson=made, undo=("lessons", "remove", made.id))
        if made
        else None
    )


@use_case(
    "lessons add",
    route="POST /lessons",
    access=Access.ADMIN,
    example={"text": "Dates are day-first."},
    status=201,
    accepts_idempotency_key=True,
    recover_result=_find_lesson_added_since,
)
def add_lesson(
    home: Home,
    text: Annotated[str, argument("One sentence.")],
    kind: Annotated[LessonKind, option(_KIND, "-k")] = LessonKind.LESSON,
    scope: Annotated[LessonScope, option(_FOR, "--for")] = LessonScope.USER,
    topic: Annotated[str, option("Its topic, in one word.")] = "",
) -> AddLessonResult:
    """Remember something; a lesson that is known already gets stronger."""
    with _collect_lesson_undo_command(home.memory) as undo:
        encoded = home.memory.add(text, kind=kind, scope=scope, topic=topic, project=home.project)
    assert encoded.engram is not None
    return AddLessonResult(
        status=encoded.status,
        lesson=encoded.engram,
        archived=encoded.archived,
        redacted=dict(encoded.redacted),
        undo=tuple(undo),
    )


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
    example={"id": "b1", "text": "Dates are month-first."},
    get_version=_get_etag_version,
)
def edit_lesson(
    home: Home,
    id: LessonId,
    text: Annotated[str | None, option("The new text.", "-t")] = None,
    kind: Annotated[LessonKind | None, option(_KIND, "-k")] = None,
    scope: Annotated[LessonScope | None, option(_FOR, "--for")] = None,
    topic: Annotated[str | None, option("Its topic, in one word.")] = None,
    expect: ExpectedVersion = None,
    all_users: AllUsers = False,
) -> EditLessonResult:
    """Edit a lesson; from then on it is yours."""
    memory = get_user_or_all_memory(home, all_users)
    with _collect_lesson_undo_command(memory) as undo:
        after = memory.edit(
            id,
            by=home.settings.author_name,
            text=text,
            kind=kind,
            scope=scope,
            topic=topic,
            project=home.project,
            expected_version=parse_expected_version(expect),
        )
    return EditLessonResult(lesson=after, undo=tuple(undo))


@dataclass(frozen=True, kw_only=True)
class ArchiveOrRestoreLessonsResult:
    lessons: Sequence[Engram]
    undo: tuple[str, ...]


@use_case(
    "lessons remove",
    route="DELETE /lessons/{ids}",
    access=Access.ADMIN,
    example={"ids": ("b1",)},
    undo="lessons restore",
)
def remove_lessons(home: Home, ids: LessonIds, all_users: AllUsers = False) -> ArchiveOrRestoreLessonsResult:
    """Archive lessons; they are not learned again automatically."""
    memory = get_user_or_all_memory(home, all_users)
    # Look all of them up first: an unknown id must fail before anything is removed.
    found = [memory.get(id).id for id in ids]
    gone = [memory.remove(id, by=home.settings.author_name) for id in found]
    return ArchiveOrRestoreLessonsResult(lessons=gone, undo=("lessons", "restore", *found))


@use_case(
    "lessons restore",
    route="POST /lessons/{ids}/restore",
    access=Access.ADMIN,
    example={"ids": ("b1",)},
    undo="lessons remove",
)
def restore_lessons(home: Home, ids: LessonIds, all_users: AllUsers = False) -> ArchiveOrRestoreLessonsResult:
    """Restore lessons from the archive."""
    memory = get_user_or_all_memory(home, all_users)
    found = [memory.get(id).id for id in ids]
    back = [memory.restore(id, by=home.settings.author_name) for id in found]
    return ArchiveOrRestoreLessonsResult(lessons=back, undo=("lessons", "remove", *found))


@use_case("lessons retract", route="POST /lessons/retract", access=Access.ADMIN, example={"turn": "d4342a3ce725"})
def retract_lessons(
    home: Home,
    turn: Annotated[str, option("Retract the lessons of this turn.")] = "",
    session: Annotated[str, option("Retract the lessons of this session.")] = "",
    all_users: AllUsers = False,
) -> ArchiveOrRestoreLessonsResult:
    """Archive everything that one conversation taught; it is not learned again automatically."""
    if bool(turn) is bool(session):
        raise Invalid("Name the turn or session.", hint="Give --turn ID or --session ID.")
    # Old lessons don't know their session: find them by the turns that the journal still has.
    user = resolve_user_filter(home.settings, all_users)
    turns = home.journal.list_session_turns(session, user=user) if session else []
    memory = get_user_or_all_memory(home, all_users)
    found = memory.list_lessons_taught_by({turn} if turn else {one.id for one in turns}, session=session)
    where = f"turn {turn}" if turn else f"session {session}"
    if not found:
        raise NotFound(f"No lessons come from {where}.", hint="See 'habitus sessions list'.")
    gone = [memory.remove(one.id, by=home.settings.author_name, reason=f"withdrawn with {where}") for one in found]
    return ArchiveOrRestoreLessonsResult(lessons=gone, undo=("lessons", "restore", *(one.id for one in gone)))


@contextmanager
def _collect_lesson_undo_command(memory: Cortex) -> Iterator[list[str]]:
    """Collect the changes to lessons made inside, and yield the command that undoes them; empty if there are none."""
    undo: list[str] = []
    with memory.collect_changes() as made:
        yield undo
    undo += ("undo", *build_lesson_undo_targets(made)) if made else ()


@use_case("learn curate", access=Access.ADMIN, example={"apply": True}, undo="lessons restore")
def curate(
    home: Home,
    apply: Annotated[bool, option("Apply the changes; archived lessons can be restored.")] = False,
    model: Annotated[str, option("Let provider:model draft the next stage of skills that can climb.")] = "",
) -> curating.CurationReport:
    """Maintain what was learned: archive what has aged, test what fails, and let what has served climb a stage.

    Without --apply it only reports what it would do, and why. Changes to skills wait for your review.
    """
    return asyncio.run(curating.plan_or_run_curation(home, apply=apply, model=model))
