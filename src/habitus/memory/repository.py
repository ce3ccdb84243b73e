"""Writes to memory, keeping the database and this process's cache consistent, and rolls memory back.

The cache is loaded once and then follows the changes, together with the search index over the texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING

from habitus.errors import NotFound, Refused, Stale, did_you_mean
from habitus.memory import model
from habitus.memory.model import (
    SCRATCHPAD_TOPIC,
    ChangeAuthorAndReason,
    Engram,
    LessonKind,
    LessonScope,
    LessonState,
    PromptPart,
    TrustLevel,
)
from habitus.memory.store import EngramStore
from habitus.memory.text_equivalence import MIN_SIMILARITY, is_equivalent
from habitus.search.model import IndexHit, SearchDocument, SearchResults
from habitus.search.texts.words import extract_content_words, extract_terms
from habitus.settings import RetentionSettings

if TYPE_CHECKING:
    from habitus.search.index import SearchIndex


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonViewerPermissions:
    """The user on whose behalf memory is read, and what this user may see and remove."""

    user: str
    # An admin who asked for everyone's lessons.
    sees_all: bool = False
    can_remove_shared: bool = True

    def can_see(self, engram: Engram, user: str = "") -> bool:
        """Return whether the viewer, or `user` in their place, may see the engram."""
        return engram.is_visible_to(user) if user else self.sees_all or engram.is_visible_to(self.user)

    def has_taught(self, engram: Engram) -> bool:
        """Return whether a conversation of the viewer taught it."""
        return self.sees_all or engram.belongs_to(self.user)

    def can_remove(self, engram: Engram) -> bool:
        """Return whether the viewer may remove it: shared ones only with that right, or if their conversation taught
        it.
        """
        is_shared = engram.scope in (LessonScope.WORKSPACE, LessonScope.GLOBAL)
        return self.can_remove_shared or not is_shared or engram.belongs_to(self.user)

    def can_roll_back(self, *versions: Engram) -> bool:
        """Return whether the viewer may see and remove all these versions of an engram."""
        return all(self.can_see(one) and self.can_remove(one) for one in versions)

    def require_can_remove(self, engram: Engram) -> None:
        """Raise Refused unless the viewer may remove the engram."""
        if not self.can_remove(engram):
            what = f"'{engram.id}' applies to all users; only an admin may remove it."
            raise Refused(what, hint="Ask one, or add what you would rather have.")


# The active change recorders of this thread or task, and of those it started.
_CHANGE_RECORDERS: ContextVar[tuple[tuple[EngramRepository, list[Engram]], ...]] = ContextVar("noting", default=())
_NOT_ERASED_STATES = tuple(state for state in LessonState if state is not LessonState.ERASED)


class EngramRepository:
    """Reads and writes engrams through the store and this process's cache, for one viewer."""

    def __init__(
        self,
        store: EngramStore,
        cache: EngramCache,
        *,
        clock: Callable[[], datetime],
        check_writable: Callable[[], None],
        retention: RetentionSettings,
        viewer: LessonViewerPermissions,
    ) -> None:
        self.store = store
        self.cache = cache
        self.clock = clock
        self.retention = retention
        # Raises if memory may not be changed now.
        self.check_writable = check_writable
        self.viewer = viewer

    def get_by_id_or_unique_prefix(self, id: str) -> Engram:
        """Return the engram with this id or unique prefix of an id; raise NotFound for unknown and other users'
        ones.
        """
        known = {engram.id: engram for engram in self.list_by_state(*_NOT_ERASED_STATES)}
        wanted = id.strip().lower()
        if wanted in known:
            return known[wanted]
        like = [key for key in known if wanted and key.startswith(wanted)]
        if len(like) == 1:
            return known[like[0]]
        hint = f"It could be {', '.join(sorted(like)[:5])}." if like else did_you_mean(wanted, known)
        raise NotFound(f"There is no lesson '{id}'.", hint=hint or "See 'habitus lessons list'.")

    def list_by_state(self, *states: LessonState, user: str = "") -> tuple[Engram, ...]:
        """Return the engrams in these states that the viewer (or `user`) may see, latest change first."""
        self.cache.sync()
        found = [e for e in self.cache.engrams.values() if e.state in states and self.viewer.can_see(e, user)]
        return tuple(sorted(found, key=lambda engram: (str(engram.updated_on), engram.id), reverse=True))

    def save(self, engrams: Sequence[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        """Save engrams as new versions, and update the cache."""
        if not engrams:
            return ()
        saved = self.store.save_new_versions_or_counters(
            engrams, ChangeAuthorAndReason(at=self.clock(), by=by, reason=reason)
        )
        self.cache.apply_changes(saved)
        for ledger, noted in _CHANGE_RECORDERS.get():
            if ledger is self:
                noted += saved
        return saved

    @contextmanager
    def collect_changes(self) -> Iterator[list[Engram]]:
        """Collect the engrams that this context saves inside the block, each in its new version."""
        noted: list[Engram] = []
        before = _CHANGE_RECORDERS.set((*_CHANGE_RECORDERS.get(), (self, noted)))
        try:
            yield noted
        finally:
            _CHANGE_RECORDERS.reset(before)

    def archive_engrams(self, engrams: Iterable[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        """Save these engrams as archived."""
        return self.save([replace(engram, state=LessonState.ARCHIVED, reason=reason) for engram in engrams], by, reason)

    def enforce_lesson_cap(self, newcomer: Engram) -> tuple[Engram, ...]:
        """Archive the least useful lessons of a scope that exceeds the cap; return them."""
        if not newcomer.kind.is_lesson:
            return ()
        gone = model.select_lessons_over_cap(self.cache.list_in_same_scope(newcomer), self.retention.lessons)
        reason = f"there is room for {self.retention.lessons} lessons, and the others are more useful"
        return self.archive_engrams(gone, "habitus", reason)

    def save_engram_at_expected_version(
        self, new: Engram, by: str, reason: str, expected_version: int | None = None
    ) -> Engram:
        """Save a changed engram; raise Stale if it is no longer at the expected version."""
        self.check_writable()
        with self.write_transaction():
            current = self.store.load_engrams_by_ids([new.id])[new.id]
            if expected_version not in (None, current.version):
                raise Stale(f"'{new.id}' is at version {current.version}.", hint="Read it again, then change it.")
            # Counters may have changed since the engram was read, so the stored ones win.
            kept = replace(new, version=current.version, counters=replace(current.counters, missed=new.counters.missed))
            (saved,) = self.save([kept], by, reason)
            if saved.state is LessonState.ACTIVE:
                self.enforce_lesson_cap(saved)
        return saved

    @contextmanager
    def write_transaction(self) -> Iterator[None]:
        """Open a write transaction on an up-to-date cache; a failure resets the cache too."""
        try:
            with self.store.write_transaction():
                self.cache.sync()
                yield
        except BaseException:
            self.cache.reset()
            raise

    @contextmanager
    def update_counters_inside_block(self, ids: Sequence[str]) -> Iterator[dict[str, Engram]]:
        """Yield these engrams; replacements put into the dictionary are saved without a new version."""
        if not ids:
            yield {}
            return
        self.check_writable()
        with self.write_transaction():
            found = self.store.load_engrams_by_ids(ids)
            before = dict(found)
            yield found
            changed = [engram for id, engram in found.items() if engram is not before[id]]
            if changed:
                self.cache.apply_changes(self.store.save_new_versions_or_counters(changed))


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonRollbackStep:
    """One engram that a rollback changes."""

    id: str
    # change, restore or archive
    action: str
    text: str


def plan_memory_rollback(
    timestamp: datetime, then: Mapping[str, Engram], now: Iterable[Engram]
) -> list[tuple[LessonRollbackStep, Engram]]:
    """Return the rollback steps to a point in time, each with the engram as it must become, sorted by id."""
    steps: list[tuple[LessonRollbackStep, Engram]] = []
    for engram in now:
        back = _build_engram_in_earlier_state(engram, then.get(engram.id), timestamp)
        if back is not None:
            steps.append(
                (LessonRollbackStep(id=engram.id, action=_get_rollback_action(engram, back), text=back.text), back)
            )
    return sorted(steps, key=lambda step: step[0].id)


def build_engram_with_version_undone(before: Engram, after: Engram, now: Engram) -> Engram | None:
    """Return an engram without the changes of one version; None if the same fields were changed since."""
    back = now
    for name in (field.name for field in fields(Engram) if field.name not in _UNVERSIONED_FIELDS):
        was, became, is_now = (getattr(engram, name) for engram in (before, after, now))
        if was in (became, is_now):
            continue
        if became != is_now:
            return None
        back = replace(back, **{name: was})
    return back


_UNVERSIONED_FIELDS = ("id", "counters", "version", "created_on", "updated_on")


def _get_rollback_action(now: Engram, back: Engram) -> str:
    if back.state.is_archived:
        return "archive"
    return "change" if now.state is back.state else "restore"


def _build_engram_in_earlier_state(now: Engram, was: Engram | None, timestamp: datetime) -> Engram | None:
    """Return the engram as it was then; None if nothing has to change."""
    if now.state is LessonState.ERASED:
        return None
    if was is None:
        if now.state.is_archived:
            return None
        return replace(now, state=LessonState.ARCHIVED, reason=f"it is newer than {timestamp:%Y-%m-%d %H:%M} UTC")
    old = replace(was, counters=now.counters, version=now.version, created_on=now.created_on, updated_on=now.updated_on)
    return None if old == now else old


_MAX_DUPLICATE_CANDIDATES = 20
_ROUNDING = 0.001
_CERTAIN_SCORE = 0.65
# "stop" is no request that a lesson could fit.
_MIN_REQUEST_WORDS = 2
_SEARCH_LIMIT = 12
# A larger limit for when some of the hits will be filtered out.
_FILTERED_LIMIT = 60
_DUPLICATE_STATE_ORDER = (LessonState.ACTIVE, LessonState.PENDING, LessonState.REJECTED, LessonState.REMOVED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActiveLessons:
    """The active engrams that apply to a user in a project, by their part of the prompt."""

    profile: tuple[Engram, ...]
    rules: tuple[Engram, ...]
    # By id, without those for the scratchpad.
    lessons: Mapping[str, Engram]
    scratchpad: tuple[Engram, ...]

    @property
    def by_id(self) -> dict[str, Engram]:
        return {e.id: e for e in (*self.profile, *self.rules, *self.lessons.values(), *self.scratchpad)}

    @classmethod
    def from_engrams(cls, engrams: Sequence[Engram]) -> ActiveLessons:
        """Sort active engrams into the parts of a prompt."""
        lessons = [engram for engram in engrams if engram.kind.is_lesson]
        return cls(
            profile=tuple(engram for engram in engrams if engram.kind.part is PromptPart.PROFILE),
            rules=tuple(engram for engram in engrams if engram.kind.is_rule),
            lessons={engram.id: engram for engram in lessons if engram.topic != SCRATCHPAD_TOPIC},
            scratchpad=tuple(engram for engram in lessons if engram.topic == SCRATCHPAD_TOPIC),
        )


class EngramCache:
    """This process's cache of all engrams, with the search index over their texts; safe to use from any thread."""

    def __init__(self, store: EngramStore, open_index: Callable[[], SearchIndex]) -> None:
        self._store = store
        self._open_index = open_index
        self._opened: SearchIndex | None = None
        self._to_index: set[str] = set()
        self._revision = 0
        self._in_sight: dict[tuple[str, str], ActiveLessons] = {}
        # Guards the cached engrams and is never held while waiting for the database.
        self._lock = threading.RLock()
        self._indexing = threading.RLock()
        self.engrams: dict[str, Engram] = {}

    def sync(self) -> None:
        """Load the changes of all processes since the last call; one small query if there are none."""
        while True:
            after = self._revision
            changes = self._store.load_changed_engrams(after)
            with self._lock:
                # Otherwise another thread applied changes meanwhile, and this result is outdated.
                if self._revision == after:
                    self._revision = changes.revision
                    self.apply_changes(changes.engrams)
                    return

    def apply_changes(self, engrams: Iterable[Engram]) -> None:
        """Apply changed engrams to the cache, and mark their texts for indexing."""
        with self._lock:
            for engram in engrams:
                before = self.engrams.get(engram.id)
                self.engrams[engram.id] = engram
                self._in_sight = {}
                if before is None or (before.text, before.state) != (engram.text, engram.state):
                    self._to_index.add(engram.id)

    def reset(self) -> None:
        """Clear the cache, because its last changes may have been rolled back."""
        with self._lock:
            self._to_index |= self.engrams.keys()
            self.engrams, self._in_sight, self._revision = {}, {}, 0

    def list_active(self) -> list[Engram]:
        """Return the active engrams."""
        return [engram for engram in list(self.engrams.values()) if engram.state is LessonState.ACTIVE]

    def list_in_same_scope(self, engram: Engram) -> list[Engram]:
        """Return the active engrams of the same scope and owner."""
        return [e for e in self.list_active() if e.scope is engram.scope and e.owner == engram.owner]

    def get_lessons_applying_to_user(self, user: str, project: str) -> ActiveLessons:
        """Return the engrams that apply to this user in this project; cached until the next change."""
        found = self._in_sight.get((user, project))
        if found is None:
            owners = {LessonScope.USER: user, LessonScope.PROJECT: project}
            found = ActiveLessons.from_engrams(
                [engram for engram in self.list_active() if engram.owner == owners.get(engram.scope, "")]
            )
            self._in_sight[user, project] = found
        return found

    def get_updated_search_index(self) -> SearchIndex:
        """Return the search index with all current texts. Do not call it inside a transaction."""
        with self._indexing:
            if self._opened is None:
                self._opened = self._open_index()
                self._to_index |= set(self.engrams) | set(self._opened.list_ids())
            with self._lock:
                wanted, self._to_index = self._to_index, set()
                known = [self.engrams[id] for id in wanted if id in self.engrams]
            try:
                self._update_index(self._opened, wanted, known)
            except BaseException:
                self._to_index |= wanted
                raise
            return self._opened

    def _update_index(self, index: SearchIndex, wanted: Collection[str], known: Sequence[Engram]) -> None:
        kept = [engram for engram in known if engram.state is not LessonState.ERASED]
        if kept:
            index.put_documents(build_engram_search_document(engram) for engram in kept)
        if gone := set(wanted) - {engram.id for engram in kept}:
            index.remove_documents(gone)

    def search_lessons(self, request: str, among: Collection[str]) -> SearchResults:
        """Return the best matches for a request among the engrams with these ids."""
        if not among or len(extract_content_words(request)) < _MIN_REQUEST_WORDS:
            return SearchResults()
        index = self.get_updated_search_index()
        # Restricting the search costs more than discarding a few hits afterwards.
        if 2 * len(among) < len(self.engrams):
            found = index.search(request, k=_SEARCH_LIMIT, among=among)
        else:
            found = index.search(request, k=_SEARCH_LIMIT if len(among) == len(self.engrams) else _FILTERED_LIMIT)
        asked = set(extract_terms(request))
        hits = tuple(self._discount_weak_hit(asked, hit) for hit in found.hits if hit.id in among)
        return SearchResults(hits=hits, fits=found.fits, confidence=max((hit.score for hit in hits), default=0.0))

    def _discount_weak_hit(self, asked: Collection[str], hit: IndexHit) -> IndexHit:
        """Halve the score of a hit that shares no word with the request, unless it is a very good match."""
        # A lesson is one line, which is easily similar to almost anything.
        shares_word = any(term in asked for term in extract_terms(self.engrams[hit.id].text))
        return hit if shares_word or hit.score >= _CERTAIN_SCORE else replace(hit, score=hit.score / 2)

    def find_duplicate(self, engram: Engram, index: SearchIndex) -> Engram | None:
        """Return an engram that already says this, in the same scope and of the same kind and topic, or None."""
        plain = engram.text.casefold()
        others = (one for one in self.engrams.values() if one.id != engram.id)
        same = [one for one in others if one.text.casefold() == plain and _can_be_duplicate_engram(one, engram)]
        meant = SearchDocument(id="", name="", description=engram.text)
        for hit in index.find_similar(meant, k=_MAX_DUPLICATE_CANDIDATES, min_cosine=MIN_SIMILARITY - _ROUNDING):
            one = self.engrams.get(hit.id)
            if (
                one is not None
                and one.id != engram.id
                and _can_be_duplicate_engram(one, engram)
                and is_equivalent(one.text, engram.text, similarity=hit.parts["meaning"])
            ):
                same.append(one)
        return min(same, key=lambda one: _DUPLICATE_STATE_ORDER.index(one.state), default=None)


def _can_be_duplicate_engram(one: Engram, wanted: Engram) -> bool:
    if one.state is LessonState.REJECTED and wanted.trust is not TrustLevel.USER:
        return _is_covered_by_rejection(one, wanted)
    is_here = one.state not in (LessonState.ERASED, LessonState.ARCHIVED)
    return is_here and (one.kind, one.scope_and_owner, one.topic) == (wanted.kind, wanted.scope_and_owner, wanted.topic)


def _is_covered_by_rejection(one: Engram, wanted: Engram) -> bool:
    """Return whether a rejected engram covers this one: it must not return as a lesson, or for more people."""
    is_theirs = one.scope_and_owner == wanted.scope_and_owner or (
        one.evidence.user and one.evidence.user == wanted.evidence.user
    )
    return bool(is_theirs) and (one.kind is LessonKind.NEVER) is (wanted.kind is LessonKind.NEVER)


def build_engram_search_document(engram: Engram) -> SearchDocument:
    return SearchDocument(id=engram.id, name="", description=engram.text)
