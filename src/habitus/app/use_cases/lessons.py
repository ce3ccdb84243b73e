"""Lessons, rules and facts: list, add, edit, remove, restore and retract them, and curate what was learned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from habitus.access import Access
from habitus.app.home import Home, memory_of, whose
from habitus.app.learning import curating
from habitus.app.learning.curating import Curation
from habitus.app.library.undoing import of_lessons
from habitus.app.use_cases.declaration import (
    after_option,
    argument,
    limit_option,
    option,
    page_of,
    starting_version,
    use_case,
    version_in,
)
from habitus.errors import Invalid, NotFound
from habitus.memory.memory import Cortex
from habitus.memory.model import Cause, Engram, Kind, LessonState, Scope, Status

# More lessons than any home has; pages are cut afterwards.
_ALL = 100_000
_KIND = f"{', '.join(Kind)}."
_FOR = "Whom it holds for: user, project, workspace, global."


def _version(done: ShownLesson | ChangedLesson) -> tuple[int, str]:
    """Return the version for the ETag; lessons have no layers."""
    return done.lesson.version, ""


def _all_users() -> bool:
    shared: bool = option("Of everybody; for admins.", default=False)
    return shared


@dataclass(frozen=True, kw_only=True)
class LessonList:
    kind: Kind | None = option(_KIND, "-k")
    since: str = option("today, week, all or self-play.", "--since", "--scope", default="all")
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = _all_users()


@dataclass(frozen=True, kw_only=True)
class LessonPage:
    lessons: Sequence[Engram]
    next: str | None
    total: int


@use_case(
    "lessons list", route="GET /lessons", access=Access.OPEN_READING, example=LessonList(kind=Kind.ALWAYS, limit=20)
)
def list_lessons(home: Home, wanted: LessonList) -> LessonPage:
    """List what is remembered, newest first."""
    found = memory_of(home, wanted.all_users).list_lessons(wanted.since, _ALL, kind=wanted.kind)
    page = page_of("lessons", found, lambda engram: engram.id, limit=wanted.limit, after=wanted.after)
    return LessonPage(lessons=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class LessonArchive:
    limit: int = limit_option()
    after: str = after_option()
    all_users: bool = _all_users()


@use_case("lessons archive", route="GET /lessons/archive", access=Access.OPEN_READING, example=LessonArchive())
def list_archive(home: Home, wanted: LessonArchive) -> LessonPage:
    """List the removed lessons and those that made room for others, most recent first."""
    found = memory_of(home, wanted.all_users).list_archived()
    page = page_of("the archive", found, lambda engram: engram.id, limit=wanted.limit, after=wanted.after)
    return LessonPage(lessons=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class OneLesson:
    id: str = argument("The id of a lesson.", completes="lessons")
    all_users: bool = _all_users()


@dataclass(frozen=True, kw_only=True)
class LessonVersion:
    number: int
    text: str
    state: LessonState
    cause: Cause


@dataclass(frozen=True, kw_only=True)
class ShownLesson:
    lesson: Engram
    history: Sequence[LessonVersion]


@use_case(
    "lessons show",
    route="GET /lessons/{id}",
    access=Access.OPEN_READING,
    example=OneLesson(id="b1"),
    version_of=_version,
)
def show(home: Home, wanted: OneLesson) -> ShownLesson:
    """Show one lesson: its origin, its evidence, its usage and its history."""
    memory = memory_of(home, wanted.all_users)
    history = [
        LessonVersion(number=one.number, text=one.engram.text, state=one.engram.state, cause=one.cause)
        for one in memory.history(wanted.id)
    ]
    return ShownLesson(lesson=memory.get(wanted.id), history=history)


@dataclass(frozen=True, kw_only=True)
class NewLesson:
    text: str = argument("One sentence.")
    kind: Kind = option(_KIND, "-k", default=Kind.LESSON)
    scope: Scope = option(_FOR, "--for", default=Scope.USER)
    topic: str = option("What it is about, in a word.", default="")


@dataclass(frozen=True, kw_only=True)
class KeptLesson:
    """The lesson that was stored or reinforced."""

    status: Status
    lesson: Engram
    # Lessons that were archived to make room for it.
    archived: Sequence[Engram] = ()
    redacted: dict[str, int] = field(default_factory=dict)
    undo: tuple[str, ...] = ()


def _kept_since(home: Home, wanted: NewLesson, since: datetime) -> KeptLesson | None:
    """Return the lesson with this text if it was added since then."""
    same = (one for one in home.memory.list_lessons("all", _ALL) if one.text == wanted.text.strip())
    made = next((one for one in same if one.created_on is not None and one.created_on >= since), None)
    return KeptLesson(status=Status.STORED, lesson=made, undo=("lessons", "remove", made.id)) if made else None


@use_case(
    "lessons add",
    route="POST /lessons",
    access=Access.ADMIN,
    example=NewLesson(text="Dates are day-first."),
    status=201,
    is_once=True,
    made_since=_kept_since,
)
def add(home: Home, wanted: NewLesson) -> KeptLesson:
    """Remember something; a lesson that is known already gets stronger."""
    with _noting(home.memory) as undo:
        encoded = home.memory.add(
            wanted.text, kind=wanted.kind, scope=wanted.scope, topic=wanted.topic, project=home.project
        )
    assert encoded.engram is not None
    return KeptLesson(
        status=encoded.status,
        lesson=encoded.engram,
        archived=encoded.archived,
        redacted=dict(encoded.redacted),
        undo=tuple(undo),
    )


@dataclass(frozen=True, kw_only=True)
class LessonEdit:
    id: str = argument("The id of a lesson.", completes="lessons")
    text: str | None = option("The new text.", "-t")
    kind: Kind | None = option(_KIND, "-k")
    scope: Scope | None = option(_FOR, "--for")
    topic: str | None = option("What it is about, in a word.")
    expect: str | None = starting_version()
    all_users: bool = _all_users()


@dataclass(frozen=True, kw_only=True)
class ChangedLesson:
    """A lesson after an edit; `undo` is empty if nothing was changed."""

    lesson: Engram
    # Empty if nothing was changed.
    undo: tuple[str, ...]


@use_case(
    "lessons edit",
    route="PATCH /lessons/{id}",
    access=Access.ADMIN,
    example=LessonEdit(id="b1", text="Dates are month-first."),
    version_of=_version,
)
def edit(home: Home, wanted: LessonEdit) -> ChangedLesson:
    """Edit a lesson; from then on it is yours."""
    memory = memory_of(home, wanted.all_users)
    with _noting(memory) as undo:
        after = memory.edit(
            wanted.id,
            by=home.settings.signature,
            text=wanted.text,
            kind=wanted.kind,
            scope=wanted.scope,
            topic=wanted.topic,
            project=home.project,
            expected_version=version_in(wanted.expect),
        )
    return ChangedLesson(lesson=after, undo=tuple(undo))


@dataclass(frozen=True, kw_only=True)
class ManyLessons:
    ids: tuple[str, ...] = argument("The ids of lessons.", completes="lessons")
    all_users: bool = _all_users()


@dataclass(frozen=True, kw_only=True)
class MovedLessons:
    lessons: Sequence[Engram]
    undo: tuple[str, ...]


@use_case(
    "lessons remove",
    route="DELETE /lessons/{ids}",
    access=Access.ADMIN,
    example=ManyLessons(ids=("b1",)),
    undo="lessons restore",
)
def remove(home: Home, wanted: ManyLessons) -> MovedLessons:
    """Archive lessons; they are not learned again automatically."""
    memory = memory_of(home, wanted.all_users)
    # Look all of them up first: an unknown id must fail before anything is removed.
    found = [memory.get(id).id for id in wanted.ids]
    gone = [memory.remove(id, by=home.settings.signature) for id in found]
    return MovedLessons(lessons=gone, undo=("lessons", "restore", *found))


@use_case(
    "lessons restore",
    route="POST /lessons/{ids}/restore",
    access=Access.ADMIN,
    example=ManyLessons(ids=("b1",)),
    undo="lessons remove",
)
def restore(home: Home, wanted: ManyLessons) -> MovedLessons:
    """Restore lessons from the archive."""
    memory = memory_of(home, wanted.all_users)
    found = [memory.get(id).id for id in wanted.ids]
    back = [memory.restore(id, by=home.settings.signature) for id in found]
    return MovedLessons(lessons=back, undo=("lessons", "remove", *found))


@dataclass(frozen=True, kw_only=True)
class Retraction:
    turn: str = option("What this turn taught.", default="")
    session: str = option("What all turns of this session taught.", default="")
    all_users: bool = _all_users()


@use_case(
    "lessons retract", route="POST /lessons/retract", access=Access.ADMIN, example=Retraction(turn="d4342a3ce725")
)
def retract(home: Home, wanted: Retraction) -> MovedLessons:
    """Archive everything that one conversation taught; it is not learned again automatically."""
    if bool(wanted.turn) is bool(wanted.session):
        raise Invalid("Say which conversation taught it.", hint="Give --turn ID or --session ID.")
    # Old lessons don't know their session: find them by the turns that the journal still has.
    user = whose(home.settings, wanted.all_users)
    turns = home.journal.turns_of(wanted.session, user=user) if wanted.session else []
    memory = memory_of(home, wanted.all_users)
    found = memory.taught_by({wanted.turn} if wanted.turn else {one.id for one in turns}, session=wanted.session)
    where = f"turn {wanted.turn}" if wanted.turn else f"session {wanted.session}"
    if not found:
        raise NotFound(f"Nothing that is remembered comes from {where}.", hint="See 'habitus sessions list'.")
    gone = [memory.remove(one.id, by=home.settings.signature, why=f"withdrawn with {where}") for one in found]
    return MovedLessons(lessons=gone, undo=("lessons", "restore", *(one.id for one in gone)))


@contextmanager
def _noting(memory: Cortex) -> Iterator[list[str]]:
    """Collect the changes to lessons made inside, and yield the command that undoes them; empty if there are none."""
    undo: list[str] = []
    with memory.noting() as made:
        yield undo
    undo += ("undo", *of_lessons(made)) if made else ()


@dataclass(frozen=True, kw_only=True)
class CurationRequest:
    apply: bool = option("Do it; what goes can be restored.", default=False)
    model: str = option("Let provider:model draft what climbs to its next stage.", default="")


@use_case("curate", access=Access.ADMIN, example=CurationRequest(apply=True), undo="lessons restore")
def curate(home: Home, wanted: CurationRequest) -> Curation:
    """Maintain what was learned: archive what has aged, test what fails, and let what has served climb a stage.

    Without --apply it only reports what it would do, and why. Changes to skills wait for your review.
    """
    return asyncio.run(curating.curate(home, apply=wanted.apply, model=wanted.model))
