"""Writing to memory: a change goes into the store and this process's mirror, or into neither; and going back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime

from habitus.errors import NotFound, Refused, Stale, did_you_mean
from habitus.memory import model
from habitus.memory.mirror import Mirror
from habitus.memory.model import Cause, Engram, LessonState, Scope
from habitus.memory.store import EngramStore
from habitus.settings import RetentionSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    user: str
    sees_all: bool = False  # an admin who asked for what is everybody's
    may_remove_shared: bool = True

    def sees(self, engram: Engram, user: str = "") -> bool:
        """`user` is whom to look for in this one's place."""
        return engram.is_open_to(user) if user else self.sees_all or engram.is_open_to(self.user)

    def taught(self, engram: Engram) -> bool:
        """Whether a conversation of theirs taught it."""
        return self.sees_all or engram.is_of(self.user)

    def may_remove(self, engram: Engram) -> bool:
        """Whoever's conversation taught it may withdraw it, whomever it holds for."""
        is_shared = engram.scope in (Scope.WORKSPACE, Scope.GLOBAL)
        return self.may_remove_shared or not is_shared or engram.is_of(self.user)

    def may_turn_back(self, *versions: Engram) -> bool:
        """Another's stays as it is, and so does what holds for everybody unless one may take it away."""
        return all(self.sees(one) and self.may_remove(one) for one in versions)

    def check_may_remove(self, engram: Engram) -> None:
        if not self.may_remove(engram):
            what = f"'{engram.id}' holds for everybody: only an admin may take it away."
            raise Refused(what, mend="Ask one, or add what you would rather have.")


# Who notes what is saved, of this thread or task and those it started.
_NOTING: ContextVar[tuple[tuple[EngramLedger, list[Engram]], ...]] = ContextVar("noting", default=())
_KNOWN = tuple(state for state in LessonState if state is not LessonState.ERASED)


class EngramLedger:
    def __init__(
        self,
        store: EngramStore,
        mirror: Mirror,
        *,
        clock: Callable[[], datetime],
        allow: Callable[[], None],
        keep: RetentionSettings,
        viewer: Viewer,
    ) -> None:
        self.store = store
        self.mirror = mirror
        self.clock = clock
        self.keep = keep
        self.allow = allow  # raises where nothing may be changed
        self.viewer = viewer

    def get(self, id: str) -> Engram:
        """The engram of this id, or of the only one that begins like it; another user's is as if it were not there."""
        known = {engram.id: engram for engram in self.of_state(*_KNOWN)}
        wanted = id.strip().lower()
        if wanted in known:
            return known[wanted]
        like = [key for key in known if wanted and key.startswith(wanted)]
        if len(like) == 1:
            return known[like[0]]
        mend = f"It could be {', '.join(sorted(like)[:5])}." if like else did_you_mean(wanted, known)
        raise NotFound(f"There is no lesson '{id}'.", mend=mend or "See 'habitus lessons list'.")

    def of_state(self, *states: LessonState, user: str = "") -> tuple[Engram, ...]:
        """What the viewer, or another user, sees of them, the last that changed first."""
        self.mirror.sync()
        found = [e for e in self.mirror.engrams.values() if e.state in states and self.viewer.sees(e, user)]
        return tuple(sorted(found, key=lambda engram: (str(engram.updated_on), engram.id), reverse=True))

    def save(self, engrams: Sequence[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        if not engrams:
            return ()
        saved = self.store.save(engrams, Cause(at=self.clock(), by=by, reason=reason))
        self.mirror.took(saved)
        for ledger, noted in _NOTING.get():
            if ledger is self:
                noted += saved
        return saved

    @contextmanager
    def noting(self) -> Iterator[list[Engram]]:
        """What is saved inside, each as it became; what others save at the same time is theirs."""
        noted: list[Engram] = []
        before = _NOTING.set((*_NOTING.get(), (self, noted)))
        try:
            yield noted
        finally:
            _NOTING.reset(before)

    def archive(self, gone: Iterable[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        return self.save([replace(engram, state=LessonState.ARCHIVED, reason=reason) for engram in gone], by, reason)

    def make_room(self, newcomer: Engram) -> tuple[Engram, ...]:
        """Keep the lessons of a place within the cap; what goes is in the archive."""
        if not newcomer.kind.is_lesson:
            return ()
        gone = model.over_the_cap(self.mirror.in_place(newcomer), self.keep.lessons)
        reason = f"there is room for {self.keep.lessons} lessons, and the others are more useful"
        return self.archive(gone, "habitus", reason)

    def change(self, engram: Engram, by: str, reason: str, expected_version: int | None = None) -> Engram:
        self.allow()
        with self.writing():
            current = self.store.get([engram.id])[engram.id]
            if expected_version not in (None, current.version):
                raise Stale(f"'{engram.id}' is at version {current.version}.", mend="Read it again, then change it.")
            kept = replace(
                engram, version=current.version, counters=replace(current.counters, missed=engram.counters.missed)
            )
            (saved,) = self.save([kept], by, reason)
            if saved.state is LessonState.ACTIVE:
                self.make_room(saved)
        return saved

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Decide on what is there and nothing else; what fails leaves no trace in this process either."""
        try:
            with self.store.writing():
                self.mirror.sync()
                yield
        except BaseException:
            self.mirror.forget()
            raise

    @contextmanager
    def counting(self, ids: Sequence[str]) -> Iterator[dict[str, Engram]]:
        """These engrams as they are; what the block puts in their place is kept without a new version."""
        if not ids:
            yield {}
            return
        self.allow()
        with self.writing():
            found = self.store.get(ids)
            before = dict(found)
            yield found
            changed = [engram for id, engram in found.items() if engram is not before[id]]
            if changed:
                self.mirror.took(self.store.save(changed))


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonStep:
    """One engram that a return to a moment changes."""

    id: str
    action: str  # change, restore or archive
    text: str


def back_to(moment: datetime, then: Mapping[str, Engram], now: Iterable[Engram]) -> list[tuple[LessonStep, Engram]]:
    """What changes, and the engrams as they have to become; in the order of their ids."""
    steps: list[tuple[LessonStep, Engram]] = []
    for engram in now:
        back = _as_it_was(engram, then.get(engram.id), moment)
        if back is not None:
            steps.append((LessonStep(id=engram.id, action=_action(engram, back), text=back.text), back))
    return sorted(steps, key=lambda step: step[0].id)


def without_change(before: Engram, after: Engram, now: Engram) -> Engram | None:
    """An engram without what one version changed of it; None where the same was changed since."""
    back = now
    for name in (field.name for field in fields(Engram) if field.name not in _NOT_SAID):
        was, became, is_now = (getattr(engram, name) for engram in (before, after, now))
        if was in (became, is_now):
            continue
        if became != is_now:
            return None
        back = replace(back, **{name: was})
    return back


_NOT_SAID = ("id", "counters", "version", "created_on", "updated_on")


def _action(now: Engram, back: Engram) -> str:
    if back.state.is_put_away:
        return "archive"
    return "change" if now.state is back.state else "restore"


def _as_it_was(now: Engram, then: Engram | None, moment: datetime) -> Engram | None:
    """What an engram has to become to be as it was; None when nothing has to change."""
    if now.state is LessonState.ERASED:
        return None
    if then is None:
        if now.state.is_put_away:
            return None
        return replace(now, state=LessonState.ARCHIVED, reason=f"it is newer than {moment:%Y-%m-%d %H:%M} UTC")
    back = replace(
        then, counters=now.counters, version=now.version, created_on=now.created_on, updated_on=now.updated_on
    )
    return None if back == now else back
