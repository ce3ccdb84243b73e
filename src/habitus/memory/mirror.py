"""Engrams in this process: what the store holds, read once and then by what changed, and the index over their texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from habitus.memory.model import SCRATCHPAD, Engram, Kind, LessonState, Part, Scope, TrustLevel
from habitus.memory.sameness import MEANING, is_same
from habitus.memory.store import EngramStore
from habitus.search import Document, Hit, Results
from habitus.search.words import content_words, terms

if TYPE_CHECKING:
    from habitus.search.index import Index

_ALIKE = 20
_ROUNDING = 0.001
_VERY_SURE = 0.65
_FEWEST_WORDS = 2  # "stop" is no request that a lesson could fit
_WIDE = 12
_WIDER = 60  # where some of what is found may not count
_ORDER = (LessonState.ACTIVE, LessonState.WAITING, LessonState.REJECTED, LessonState.REMOVED)


@dataclass(frozen=True, kw_only=True, slots=True)
class InSight:
    """The active engrams that hold for somebody somewhere, by what a prompt does with them."""

    profile: tuple[Engram, ...]
    rules: tuple[Engram, ...]
    lessons: Mapping[str, Engram]  # by id, without those for the scratchpad
    scratchpad: tuple[Engram, ...]

    @property
    def by_id(self) -> dict[str, Engram]:
        return {e.id: e for e in (*self.profile, *self.rules, *self.lessons.values(), *self.scratchpad)}

    @classmethod
    def of(cls, engrams: Sequence[Engram]) -> InSight:
        lessons = [engram for engram in engrams if engram.kind.is_lesson]
        return cls(
            profile=tuple(engram for engram in engrams if engram.kind.part is Part.PROFILE),
            rules=tuple(engram for engram in engrams if engram.kind.is_rule),
            lessons={engram.id: engram for engram in lessons if engram.topic != SCRATCHPAD},
            scratchpad=tuple(engram for engram in lessons if engram.topic == SCRATCHPAD),
        )


class Mirror:
    def __init__(self, store: EngramStore, open_index: Callable[[], Index]) -> None:
        self._store = store
        self._open_index = open_index
        self._opened: Index | None = None
        self._to_index: set[str] = set()
        self._revision = 0
        self._in_sight: dict[tuple[str, str], InSight] = {}
        self._lock = threading.RLock()  # of what is held here; nobody waits for the database under it
        self._indexing = threading.RLock()
        self.engrams: dict[str, Engram] = {}

    def sync(self) -> None:
        """Take in what any process has changed; one small query when nothing has."""
        while True:
            after = self._revision
            changes = self._store.changes(after)
            with self._lock:
                if self._revision == after:  # else another thread took something in meanwhile
                    self._revision = changes.revision
                    self.took(changes.engrams)
                    return

    def took(self, engrams: Iterable[Engram]) -> None:
        with self._lock:
            for engram in engrams:
                before = self.engrams.get(engram.id)
                self.engrams[engram.id] = engram
                self._in_sight = {}
                if before is None or (before.text, before.state) != (engram.text, engram.state):
                    self._to_index.add(engram.id)

    def forget(self) -> None:
        """Start anew from the store: what was taken in may not have been kept."""
        with self._lock:
            self._to_index |= self.engrams.keys()
            self.engrams, self._in_sight, self._revision = {}, {}, 0

    def active(self) -> list[Engram]:
        return [engram for engram in list(self.engrams.values()) if engram.state is LessonState.ACTIVE]

    def in_place(self, engram: Engram) -> list[Engram]:
        """The active engrams that hold where this one does."""
        return [e for e in self.active() if e.scope is engram.scope and e.owner == engram.owner]

    def in_sight(self, user: str, project: str) -> InSight:
        """What holds for this user in this project; worked out once per change."""
        found = self._in_sight.get((user, project))
        if found is None:
            owners = {Scope.USER: user, Scope.PROJECT: project}
            found = InSight.of([engram for engram in self.active() if engram.owner == owners.get(engram.scope, "")])
            self._in_sight[user, project] = found
        return found

    def index(self) -> Index:
        """The index, with every text that is here. Not to be called while a transaction is open."""
        with self._indexing:
            if self._opened is None:
                self._opened = self._open_index()
                self._to_index |= set(self.engrams) | set(self._opened.ids())
            with self._lock:
                wanted, self._to_index = self._to_index, set()
                known = [self.engrams[id] for id in wanted if id in self.engrams]
            try:
                self._bring_up(self._opened, wanted, known)
            except BaseException:
                self._to_index |= wanted
                raise
            return self._opened

    def _bring_up(self, index: Index, wanted: Collection[str], known: Sequence[Engram]) -> None:
        kept = [engram for engram in known if engram.state is not LessonState.ERASED]
        if kept:
            index.put(document_of(engram) for engram in kept)
        if gone := set(wanted) - {engram.id for engram in kept}:
            index.remove(gone)

    def search(self, request: str, among: Collection[str]) -> Results:
        """The engrams of these ids that fit a request best."""
        if not among or len(content_words(request)) < _FEWEST_WORDS:
            return Results()
        index = self.index()
        # Telling the index which ones to look at costs more than looking at a few too many.
        if 2 * len(among) < len(self.engrams):
            found = index.search(request, k=_WIDE, among=among)
        else:
            found = index.search(request, k=_WIDE if len(among) == len(self.engrams) else _WIDER)
        asked = set(terms(request))
        hits = tuple(self._sober(asked, hit) for hit in found.hits if hit.id in among)
        return Results(hits=hits, fits=found.fits, confidence=max((hit.score for hit in hits), default=0.0))

    def _sober(self, asked: Collection[str], hit: Hit) -> Hit:
        """A lesson is one line, which is soon near to anything: it must share a word, or be a very good match."""
        shares_word = any(term in asked for term in terms(self.engrams[hit.id].text))
        return hit if shares_word or hit.score >= _VERY_SURE else replace(hit, score=hit.score / 2)

    def twin(self, wanted: Engram, index: Index) -> Engram | None:
        """Another engram that already says this, in the same place, of the same kind and topic."""
        plain = wanted.text.casefold()
        others = (one for one in self.engrams.values() if one.id != wanted.id)
        same = [one for one in others if one.text.casefold() == plain and _is_comparable(one, wanted)]
        meant = Document(id="", name="", description=wanted.text)
        for hit in index.similar(meant, k=_ALIKE, least_meaning=MEANING - _ROUNDING):
            one = self.engrams.get(hit.id)
            if (
                one is not None
                and one.id != wanted.id
                and _is_comparable(one, wanted)
                and is_same(one.text, wanted.text, meaning=hit.parts["meaning"])
            ):
                same.append(one)
        return min(same, key=lambda one: _ORDER.index(one.state), default=None)


def _is_comparable(one: Engram, wanted: Engram) -> bool:
    if one.state is LessonState.REJECTED and wanted.trust is not TrustLevel.USER:
        return _says_it_elsewhere(one, wanted)
    is_here = one.state not in (LessonState.ERASED, LessonState.ARCHIVED)
    return is_here and (one.kind, one.place, one.topic) == (wanted.kind, wanted.place, wanted.topic)


def _says_it_elsewhere(one: Engram, wanted: Engram) -> bool:
    """What a person turned down as a rule does not come back as a lesson, or for more people."""
    is_theirs = one.place == wanted.place or (one.evidence.user and one.evidence.user == wanted.evidence.user)
    return bool(is_theirs) and (one.kind is Kind.NEVER) is (wanted.kind is Kind.NEVER)


def document_of(engram: Engram) -> Document:
    return Document(id=engram.id, name="", description=engram.text)
