"""Cortex, the one way into memory and out of it: every producer's draft passes its gate, every prompt asks it."""

from __future__ import annotations

import logging
import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from habitus.errors import Invalid, NotFound, did_you_mean
from habitus.memory import gate, retention, views
from habitus.memory import recall as recalling
from habitus.memory.mirror import REMOVED, InSight, Mirror
from habitus.memory.model import (
    HIGH,
    Cause,
    Draft,
    Encoded,
    Engram,
    Kind,
    LessonBody,
    Producer,
    Scope,
    State,
    Status,
    Trust,
    Version,
    kind_of,
    scope_of,
)
from habitus.memory.recall import LESSON_TOKENS, MOST_LESSONS, PROFILE_TOKENS, RULE_TOKENS, SCRATCHPAD_TOKENS, Recall
from habitus.memory.sameness import is_same
from habitus.memory.stores.base import EngramStore
from habitus.memory.view_files import Found, ViewFiles
from habitus.memory.views import Line
from habitus.memory.words import one_line, tokens
from habitus.pause import Pause
from habitus.redact import Redactor
from habitus.search import Embedder, Results
from habitus.settings import MemoryMode

if TYPE_CHECKING:
    from habitus.search.index import Index

log = logging.getLogger(__name__)

_LETTERS, _SIGNS = "abcdefghijkmnpqrstuvwxyz", "abcdefghijkmnpqrstuvwxyz23456789"
_TRIES = 5
_SELF_PLAY = (Producer.DREAM.value, "self-play", "self_play", "selfplay")

Choose = Callable[[Sequence[Engram]], Sequence[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """What was read back from the pages."""

    added: tuple[Engram, ...] = ()
    changed: tuple[Engram, ...] = ()
    removed: tuple[Engram, ...] = ()
    notes: tuple[str, ...] = ()  # what was odd, in words for a person


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One engram that a return to a moment changes."""

    id: str
    action: str  # change, restore or archive
    text: str


def new_id() -> str:
    """Short enough to type, and never a number: those are proposals."""
    return secrets.choice(_LETTERS) + "".join(secrets.choice(_SIGNS) for _ in range(7))


class Cortex:
    def __init__(
        self,
        store: EngramStore,
        open_index: Callable[[], Index],
        *,
        redactor: Redactor,
        clock: Callable[[], datetime],
        pause: Pause | None = None,
        mode: MemoryMode = MemoryMode.AUTOPILOT,
        is_shared: bool = False,
        user: str = "local",
        files: ViewFiles | None = None,
        allow: Callable[[], None] = lambda: None,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self._store = store
        self._mirror = Mirror(store, open_index)
        self._redactor = redactor
        self._clock = clock
        self._pause = pause
        self._mode = mode
        self._is_shared = is_shared
        self._user = user
        self._files = files
        self._allow = allow  # raises where nothing may be changed
        self._new_id = new_id

    def encode(self, draft: Draft) -> Encoded:
        """Keep what a draft says: as a new engram, as more of a known one, for a person to decide, or not at all."""
        draft = replace(draft, kind=kind_of(draft.kind), scope=scope_of(draft.scope))
        closed = self._closed(draft)
        if closed is not None:
            return closed
        self._allow()
        draft, redacted = self._cleaned(draft)
        refusal = gate.refusal(draft)
        if refusal:
            return Encoded(status=Status.REFUSED, reason=refusal, redacted=redacted)
        self._notice()
        encoded = self._kept(draft)
        self._render()
        return replace(encoded, redacted=redacted)

    def _closed(self, draft: Draft) -> Encoded | None:
        """Whether learning is switched off or paused; a person's own word is no learning."""
        if draft.produced_by is Producer.USER:
            return None
        if self._mode is MemoryMode.OFF:
            return Encoded(status=Status.OFF, reason="memory is off (HABITUS_MEMORY)")
        paused = self._pause.state() if self._pause and draft.produced_by.is_automatic else None
        if paused is not None:
            return Encoded(status=Status.PAUSED, reason=f"paused by {paused.by}; run 'habitus resume'")
        return None

    def _cleaned(self, draft: Draft) -> tuple[Draft, Mapping[str, int]]:
        """The draft without secrets, line breaks and unseen characters, and how many secrets there were."""
        taken = self._redactor.redact(draft.text)
        body, evidence = draft.body, draft.evidence
        return replace(
            draft,
            text=one_line(taken.text),
            topic=_topic(self._clean(draft.topic)),
            source=self._clean(draft.source),
            confidence=0.0 if math.isnan(draft.confidence) else min(max(draft.confidence, 0.0), 1.0),
            trust=gate.earned_trust(draft),
            body=body
            and LessonBody(
                trigger=self._clean(body.trigger),
                anti_pattern=self._clean(body.anti_pattern),
                correct_pattern=self._clean(body.correct_pattern),
                domains=tuple(map(self._clean, body.domains)),
                source_challenge_hash=self._clean(body.source_challenge_hash),
            ),
            evidence=replace(
                evidence, error_signature=self._clean(evidence.error_signature), trace=self._clean(evidence.trace)
            ),
            user=one_line(draft.user) or self._user,
            project=one_line(draft.project),
        ), taken.counts

    def _clean(self, text: str) -> str:
        return one_line(self._redactor.redact(text).text)

    def _kept(self, draft: Draft) -> Encoded:
        self._mirror.sync()
        index = self._mirror.index()
        wanted = self._engram(draft, index.embedder)
        with self._writing():
            twin = self._mirror.twin(wanted, index)
            if twin is None:
                (saved,) = self._save([wanted], draft.produced_by.value, wanted.reason or "new")
                return self._outcome(saved, Status.STORED, "new")
            is_closed = twin.state in (State.REJECTED, State.ARCHIVED)
            if is_closed and draft.trust is not Trust.USER:
                reason = f"turned down: {twin.reason}" if twin.state is State.REJECTED else f"it was {twin.reason}"
                return Encoded(status=Status.REFUSED, engram=twin, reason=reason)
            (saved,) = self._save([gate.merged(twin, wanted)], draft.produced_by.value, "said again")
            return self._outcome(saved, Status.REINFORCED, f"says the same as {saved.id}")

    def _outcome(self, saved: Engram, status: Status, reason: str) -> Encoded:
        if saved.state is State.WAITING:
            return Encoded(status=Status.WAITING, engram=saved, reason=saved.reason)
        return Encoded(status=status, engram=saved, reason=reason, archived=self._make_room(saved))

    def _engram(self, draft: Draft, embedder: Embedder) -> Engram:
        kind, scope = kind_of(draft.kind), scope_of(draft.scope)
        is_taught = draft.produced_by in (Producer.MODEL, Producer.CEREBELLUM)
        if self._is_shared and is_taught and draft.trust is Trust.AUTOMATIC:
            scope = Scope.USER  # what one person's conversation teaches is theirs until a person widens it
        wait = gate.reason_to_wait(draft, kind, self._mode, is_shared=self._is_shared, embedder=embedder)
        return Engram(
            id=self._new_id(),
            text=draft.text,
            kind=kind,
            scope=scope,
            owner={Scope.USER: draft.user, Scope.PROJECT: draft.project}.get(scope, ""),
            confidence=draft.confidence,
            topic=draft.topic,
            source=draft.source or draft.produced_by.value,
            trust=draft.trust,
            produced_by=draft.produced_by,
            evidence=draft.evidence,
            body=draft.body,
            counters=draft.counters,
            verified=draft.verified,
            state=State.WAITING if wait else State.ACTIVE,
            reason=wait,
            created_on=draft.created_on,
        )

    def _make_room(self, newcomer: Engram) -> tuple[Engram, ...]:
        """Keep the lessons of a place within the cap; what goes is in the archive."""
        if newcomer.kind is not Kind.LESSON:
            return ()
        gone = retention.over_the_cap(self._mirror.in_place(newcomer))
        reason = f"there is room for {retention.MOST_LESSONS} lessons, and the others are more useful"
        return self._archive(gone, "habitus", reason)

    def _archive(self, gone: Iterable[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        return self._save([replace(engram, state=State.ARCHIVED, reason=reason) for engram in gone], by, reason)

    def _save(self, engrams: Sequence[Engram], by: str, reason: str) -> tuple[Engram, ...]:
        if not engrams:
            return ()
        saved = self._store.save(engrams, Cause(at=self._clock(), by=by, reason=reason))
        self._mirror.took(saved)
        return saved

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Decide on what is there and nothing else; what fails leaves no trace in this process either."""
        try:
            with self._store.writing():
                self._mirror.sync()
                yield
        except BaseException:
            self._mirror.forget()
            raise

    def recall(
        self,
        request: str,
        *,
        user: str = "",
        project: str = "",
        lesson_tokens: int = LESSON_TOKENS,
        rule_tokens: int = RULE_TOKENS,
        profile_tokens: int = PROFILE_TOKENS,
        most: int = MOST_LESSONS,
    ) -> Recall:
        """What a prompt should hold for this request. Changes nothing: `record_retrieval` says that it was shown."""
        here = self._in_sight(user, project)
        is_full = sum(tokens(rule.text) for rule in here.rules) > rule_tokens
        told = recalling.standing(here.profile, {}, profile_tokens)
        held = recalling.standing(here.rules, self._relevance(request, here.rules) if is_full else {}, rule_tokens)
        found = self._mirror.search(request, here.lessons)
        fitting = recalling.lessons(found, here.lessons, lesson_tokens, most)
        return Recall(
            profile=told.taken,
            rules=held.taken,
            lessons=fitting.taken,
            left_out=(*told.left_out, *held.left_out, *fitting.left_out),
            confidence=found.confidence,
        )

    def _in_sight(self, user: str, project: str) -> InSight:
        self._notice()
        self._mirror.sync()
        return self._mirror.in_sight(user or self._user, project)

    def _relevance(self, request: str, engrams: Iterable[Engram]) -> dict[str, float]:
        found = self._mirror.search(request, {engram.id for engram in engrams})
        return {hit.id: hit.score for hit in found.hits}

    def scratchpad_lessons(
        self, *, user: str = "", project: str = "", tokens: int = SCRATCHPAD_TOKENS
    ) -> tuple[Engram, ...]:
        """What the scratchpad tool's description says, the most useful first; it belongs nowhere else."""
        mine = self._in_sight(user, project).scratchpad
        ranked = sorted(mine, key=lambda engram: (-retention.utility(engram), engram.id))
        return tuple(one.engram for one in recalling.within(ranked, tokens))

    def has_similar(self, text: str, *, user: str = "", project: str = "") -> bool:
        """Whether memory already says this to somebody."""
        text = self._clean(text)
        known = self._in_sight(user, project).by_id
        if not known or not text:
            return False
        if any(engram.text.casefold() == text.casefold() for engram in known.values()):
            return True
        hits = self._mirror.index().similar(text)
        return any(hit.id in known and is_same(known[hit.id].text, text, meaning=hit.parts["meaning"]) for hit in hits)

    def record_retrieval(self, ids: Iterable[str], *, cut: Iterable[str] = ()) -> tuple[Engram, ...]:
        """These were shown in a prompt; `cut` are the rules that found no room. Says which rules aged out."""
        now = self._clock()
        shown, missed = list(dict.fromkeys(ids)), list(dict.fromkeys(cut))
        with self._counting([*shown, *missed]) as found:
            for id in shown:
                if id in found:
                    counters = found[id].counters
                    found[id] = found[id].counted(retrievals=counters.retrievals + 1, last_retrieved=now, missed=0)
                    _log_retrieval(found[id])
            for id in missed:
                if id in found:
                    found[id] = found[id].counted(missed=found[id].counters.missed + 1)
        old = [found[id] for id in missed if id in found and _has_aged_out(found[id])]
        return self._put_away(old, f"there was no room for it {retention.AGED_OUT} times in a row")

    def record_helpful(self, request: str, *, user: str = "", project: str = "") -> tuple[str, ...]:
        """The request went well: credit the lessons shown for it in the last minutes, as far as they fit it."""
        now, recent = self._clock(), timedelta(seconds=retention.CREDIT_SECONDS)
        lessons = self._in_sight(user, project).lessons
        shown = {id for id, engram in lessons.items() if _was_shown_since(engram, now - recent)}
        found = self._mirror.search(request, lessons) if shown else Results()
        fitting = [hit.id for hit in found.hits if hit.id in shown and recalling.fits(hit, found)]
        credited: list[str] = []
        with self._counting(fitting) as engrams:
            for id, engram in engrams.items():
                if _was_shown_since(engram, now - recent):
                    engrams[id] = engram.counted(helpful=engram.counters.helpful + 1, credited_on=now)
                    credited.append(id)
        return tuple(credited)

    def ignored(self, rules: Iterable[str]) -> tuple[str, ...]:
        """Rules, by id or text, whose detector fired again although they were in the prompt."""
        self._mirror.sync()
        wanted = {rule.casefold() for rule in rules}
        ids = [e.id for e in self._mirror.active() if e.id in wanted or e.text.casefold() in wanted]
        with self._counting(ids) as found:
            for id, engram in found.items():
                found[id] = engram.counted(ignored=engram.counters.ignored + 1)
        return tuple(ids)

    @contextmanager
    def _counting(self, ids: Sequence[str]) -> Iterator[dict[str, Engram]]:
        """These engrams as they are; what the block puts in their place is kept without a new version."""
        if not ids:
            yield {}
            return
        self._allow()
        with self._writing():
            found = self._store.get(ids)
            before = dict(found)
            yield found
            changed = [engram for id, engram in found.items() if engram is not before[id]]
            if changed:
                self._mirror.took(self._store.save(changed))

    def _put_away(self, engrams: Sequence[Engram], reason: str) -> tuple[Engram, ...]:
        if not engrams:
            return ()
        with self._writing():
            gone = self._archive(self._store.get([engram.id for engram in engrams]).values(), "habitus", reason)
        self._render()
        return gone

    def prune(self, *, dry_run: bool = False) -> tuple[Engram, ...]:
        """Archive lessons that were shown again and again and never helped."""
        self._mirror.sync()
        gone = tuple(retention.to_prune(self._mirror.active()))
        return gone if dry_run else self._put_away(gone, "shown often, and it never helped")

    def compact(self, choose: Choose = retention.most_useful) -> tuple[Engram, ...]:
        """Where a kind has too many entries in a place, keep those that `choose` names by their place in the list.

        Texts are never rewritten. A choice that fails or makes no sense keeps everything.
        """
        self._mirror.sync()
        groups: dict[object, list[Engram]] = {}
        for engram in sorted(self._mirror.active(), key=lambda e: e.id):
            groups.setdefault((engram.kind, engram.place), []).append(engram)
        gone: list[Engram] = []
        for entries in groups.values():
            if len(entries) > retention.COMPACT_ABOVE:
                gone += _let_go(entries, choose)
        return self._put_away(gone, "a compaction kept others")

    def list_lessons(
        self, scope: str = "all", limit: int = 50, *, kind: Kind | str | None = None, user: str | None = None
    ) -> tuple[Engram, ...]:
        """What was learned `today`, this `week`, in `self-play`, or at all; the newest first."""
        self._notice()
        self._mirror.sync()
        since = _since(scope, self._clock())
        wanted = None if kind is None else kind_of(kind)
        found = [
            engram
            for engram in self._mirror.active()
            if (wanted is None or engram.kind is wanted)
            and (since is None or (engram.created_on or since) >= since)
            and (scope != "self-play" or _is_from_self_play(engram))
            and (engram.scope is not Scope.USER or engram.owner == (user or self._user) or not self._is_shared)
        ]
        found.sort(key=lambda engram: (str(engram.created_on), engram.id), reverse=True)
        return tuple(found[:limit])

    def get(self, id: str) -> Engram:
        """The engram of this id, or of the only one that begins like it."""
        self._mirror.sync()
        known = {key: e for key, e in self._mirror.engrams.items() if e.state is not State.ERASED}
        wanted = id.strip().lower()
        if wanted in known:
            return known[wanted]
        like = [key for key in known if wanted and key.startswith(wanted)]
        if len(like) == 1:
            return known[like[0]]
        mend = f"It could be {', '.join(sorted(like)[:5])}." if like else did_you_mean(wanted, known)
        raise NotFound(f"There is no lesson '{id}'.", mend=mend or "See 'habitus lessons list'.")

    def history(self, id: str) -> tuple[Version, ...]:
        return self._store.history(self.get(id).id)

    def archived(self) -> tuple[Engram, ...]:
        """What made room or was removed, the last first."""
        return self._of_state(State.ARCHIVED)

    def waiting(self) -> tuple[Engram, ...]:
        """What waits for a person."""
        return tuple(reversed(self._of_state(State.WAITING)))

    def _of_state(self, state: State) -> tuple[Engram, ...]:
        self._mirror.sync()
        found = [engram for engram in self._mirror.engrams.values() if engram.state is state]
        return tuple(sorted(found, key=lambda engram: (str(engram.updated_on), engram.id), reverse=True))

    def add(
        self,
        text: str,
        *,
        kind: Kind | str = Kind.LESSON,
        scope: Scope | str = Scope.USER,
        topic: str = "",
        **more: Any,
    ) -> Encoded:
        """What a person wants remembered."""
        draft = Draft(
            text=text, kind=kind, scope=scope, topic=topic, confidence=HIGH, produced_by=Producer.USER, **more
        )
        encoded = self.encode(draft)
        if encoded.status is Status.REFUSED:
            raise Invalid(f"That can't be kept: {encoded.reason}.", mend="Say it in a sentence.")
        return encoded

    def edit(
        self,
        id: str,
        *,
        by: str,
        text: str | None = None,
        kind: Kind | str | None = None,
        scope: Scope | str | None = None,
        topic: str | None = None,
        project: str = "",
    ) -> Engram:
        """Change what a person may change. From then on it is theirs; what waited still waits."""
        before = self.get(id)
        wanted = scope_of(scope) if scope is not None else before.scope
        after = replace(
            before,
            text=before.text if text is None else self._clean(text),
            kind=before.kind if kind is None else kind_of(kind),
            scope=wanted,
            owner=before.owner
            if wanted is before.scope
            else {Scope.USER: self._user, Scope.PROJECT: project}.get(wanted, ""),
            topic=before.topic if topic is None else _topic(self._clean(topic)),
        )
        refusal = gate.refusal(Draft(text=after.text, kind=after.kind))
        if refusal:
            raise Invalid(f"That can't be kept: {refusal}.", mend="Say it in a sentence.")
        if after == before:
            return before
        return self._changed(
            replace(after, trust=Trust.USER if before.state is not State.WAITING else before.trust), by, "edited"
        )

    def remove(self, id: str, *, by: str) -> Engram:
        """Put it into the archive; it is not learned again by itself."""
        engram = self.get(id)
        if engram.state is State.ARCHIVED:
            raise Invalid(
                f"'{engram.id}' is in the archive already.", mend=f"See 'habitus lessons restore {engram.id}'."
            )
        return self._changed(replace(engram, state=State.ARCHIVED, reason=f"{REMOVED} {by}"), by, "removed")

    def restore(self, id: str, *, by: str) -> Engram:
        """Bring it back from the archive; a person stands behind it from then on."""
        engram = self.get(id)
        if engram.state is State.ACTIVE:
            raise Invalid(f"'{engram.id}' is not in the archive.", mend="See 'habitus lessons archive'.")
        if engram.state is State.WAITING:
            raise Invalid(f"'{engram.id}' waits for you.", mend=f"Run 'habitus review approve {engram.id}'.")
        return self._activated(engram, by, "restored")

    def approve(self, id: str, *, by: str) -> Engram:
        """Let in what waited."""
        return self._activated(self._that_waits(id), by, "approved")

    def reject(self, id: str, *, by: str, reason: str = "") -> Engram:
        """Turn down what waited; the same is not asked again."""
        engram = self._that_waits(id)
        said = f"{reason or 'no reason given'} ({by})"
        return self._changed(replace(engram, state=State.REJECTED, reason=said), by, "turned down")

    def _that_waits(self, id: str) -> Engram:
        engram = self.get(id)
        if engram.state is not State.WAITING:
            raise Invalid(
                f"'{engram.id}' does not wait; it is {engram.state.value}.", mend="See 'habitus review list'."
            )
        return engram

    def _activated(self, engram: Engram, by: str, reason: str) -> Engram:
        active = replace(engram, state=State.ACTIVE, reason="", trust=Trust.USER).counted(missed=0)
        return self._changed(active, by, reason)

    def _changed(self, engram: Engram, by: str, reason: str) -> Engram:
        self._allow()
        self._notice()
        with self._writing():
            current = self._store.get([engram.id])[engram.id]
            kept = replace(
                engram, version=current.version, counters=replace(current.counters, missed=engram.counters.missed)
            )
            (saved,) = self._save([kept], by, reason)
            if saved.state is State.ACTIVE:
                self._make_room(saved)
        self._render()
        return saved

    def return_to(self, moment: datetime, *, by: str, dry_run: bool = False) -> tuple[Step, ...]:
        """Make everything as it was at a moment, as new versions; what came later goes into the archive."""
        with self._writing():
            then = self._store.at(moment)
            steps: list[Step] = []
            changed: list[Engram] = []
            for engram in self._mirror.engrams.values():
                back = _as_it_was(engram, then.get(engram.id), moment)
                if back is not None:
                    action = (
                        "archive"
                        if back.state is State.ARCHIVED
                        else "restore"
                        if engram.state is not back.state
                        else "change"
                    )
                    steps.append(Step(id=engram.id, action=action, text=back.text))
                    changed.append(back)
            if not dry_run:
                self._allow()
                self._save(changed, by, f"back to {moment:%Y-%m-%d %H:%M} UTC")
        if not dry_run:
            self._render()
        return tuple(sorted(steps, key=lambda step: step.id))

    def forget_user(self, user: str) -> int:
        """Erase what is one user's, everywhere it is kept; only the ids are left."""
        self._allow()
        self._mirror.sync()
        mine = [e.id for e in self._mirror.engrams.values() if e.scope is Scope.USER and e.owner == user]
        if mine:
            self._store.erase(mine, self._clock())
            self._mirror.sync()
            self._mirror.index()
            if self._files is not None:
                self._render()
                self._files.forget_renderings()
                self._render()
        return len(mine)

    def knows_import(self, digest: str) -> bool:
        """Whether a lesson with this digest was imported before, whatever became of it."""
        self._mirror.sync()
        return any(digest in engram.evidence.imported for engram in self._mirror.engrams.values())

    def look(self) -> Looked:
        """Read what people changed in the pages, and write them anew."""
        if self._files is None:
            return Looked()
        self._allow()
        looked = Looked()
        with self._files.locked():
            for _ in range(_TRIES):
                found = self._files.read()
                looked = _together(looked, self._apply(found))
                if self._files.write(self._texts(found), found):
                    break
        return looked

    def understood(self, texts: Mapping[str, str]) -> Found | None:
        """What these texts of the pages would change; for showing before it is applied."""
        return None if self._files is None else self._files.understood(texts)

    def apply_texts(self, texts: Mapping[str, str]) -> Looked:
        """Take over what a person wrote into copies of the pages."""
        if self._files is None:
            return Looked()
        self.look()
        found = self._files.understood(texts)
        with self._files.locked():
            looked = self._apply(found)
            self._files.write(self._texts(found), None)
        return looked

    def page_texts(self) -> dict[str, str]:
        """The pages as they are now."""
        self.look()
        return {} if self._files is None else self._files.texts()

    def _notice(self) -> None:
        if self._files is not None and self._files.have_changed():
            self.look()

    def _render(self) -> None:
        """After a change: texts that nobody reads are indexed, and the pages show it."""
        if self._files is not None:
            self.look()

    def _texts(self, found: Found) -> dict[str, str]:
        self._mirror.sync()
        shown = [e for e in self._mirror.active() if e.scope is not Scope.USER or e.owner == self._user]
        bad = {
            name: views.cleaned(page.bad, lambda raw: self._redactor.redact(raw).text)
            for name, page in found.pages.items()
        }
        return {view.name: views.render(view, shown, bad.get(view.name, ())) for view in views.VIEWS}

    def _apply(self, found: Found) -> Looked:
        """Do what a person did in the pages."""
        self._mirror.sync()
        notes = [*found.notes]
        for name, page in found.pages.items():
            notes += [f"{name}, line {bad.number}: {bad.why}; it is kept as it is." for bad in page.bad]
        looked = Looked(notes=tuple(notes))
        for line in found.edits.changed:
            looked = _together(looked, self._apply_changed(line, found.has_base))
        for line in found.edits.new:
            looked = _together(looked, self._apply_new(line))
        for line in found.edits.removed:
            looked = _together(looked, self._apply_removed(line))
        return looked

    def _apply_changed(self, line: Line, has_base: bool) -> Looked:
        before = self._mirror.engrams.get(line.id)
        if before is None:
            return self._apply_unknown(line)
        text = self._clean(line.text)
        after = replace(before, text=text, kind=line.kind, scope=line.scope or before.scope, topic=line.topic)
        if before.state is State.ERASED or after == before or (not has_base and before.state is not State.ACTIVE):
            return Looked()
        if gate.refusal(Draft(text=text, kind=line.kind)):
            return Looked(notes=(f"'{text[:40]}…' is too long; it stays as it was.",))
        if after.scope is not before.scope:
            if after.scope is Scope.PROJECT:
                return Looked(
                    notes=(f"{line.id}: a page can't say which project is meant; use 'habitus lessons edit'.",)
                )
            after = replace(after, owner=self._user if after.scope is Scope.USER else "")
        after = replace(after, state=State.ACTIVE, reason="", trust=Trust.USER)
        with self._writing():
            return Looked(changed=self._save([after], self._user, "edited in the page"))

    def _apply_unknown(self, line: Line) -> Looked:
        """A line of ours that the database does not know: the page is newer than the database."""
        scope = line.scope or Scope.USER
        owner = self._user if scope is Scope.USER else ""
        engram = Engram(
            id=line.id,
            text=self._clean(line.text),
            kind=line.kind,
            scope=scope,
            owner=owner,
            topic=line.topic,
            source="page",
        )
        with self._writing():
            return Looked(added=self._save([engram], self._user, "found in the page"))

    def _apply_new(self, line: Line) -> Looked:
        draft = Draft(
            text=line.text,
            kind=line.kind,
            scope=line.scope or Scope.USER,
            topic=line.topic,
            confidence=HIGH,
            source="page",
            produced_by=Producer.USER,
        )
        cleaned, _ = self._cleaned(draft)
        refusal = gate.refusal(cleaned)
        if refusal:
            return Looked(notes=(f"'{line.text[:40]}…' is not kept: {refusal}.",))
        encoded = self._kept(cleaned)
        if encoded.engram is None:
            return Looked(notes=(encoded.reason,))
        if encoded.status is Status.REINFORCED:
            return Looked(notes=(f"'{line.text[:60]}' {encoded.reason}.",))
        return Looked(added=(encoded.engram,))

    def _apply_removed(self, line: Line) -> Looked:
        engram = self._mirror.engrams.get(line.id)
        if engram is None or engram.state is not State.ACTIVE:
            return Looked()
        if engram.text != line.text:
            return Looked(notes=(f"{engram.id} has changed since you saw it; it stays.",))
        with self._writing():
            return Looked(removed=self._archive([engram], self._user, f"{REMOVED} {self._user}"))


def _together(a: Looked, b: Looked) -> Looked:
    return Looked(
        added=(*a.added, *b.added),
        changed=(*a.changed, *b.changed),
        removed=(*a.removed, *b.removed),
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
    )


def _topic(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text.lower()).strip("-_")[:40]


def _log_retrieval(engram: Engram) -> None:
    challenge = engram.body.source_challenge_hash if engram.body else ""
    log.debug("retrieved %s source=%s source_challenge_hash=%s", engram.id, engram.source, challenge)


def _has_aged_out(engram: Engram) -> bool:
    is_due = engram.counters.missed >= retention.AGED_OUT
    return is_due and engram.state is State.ACTIVE and engram.trust is not Trust.USER


def _was_shown_since(engram: Engram, moment: datetime) -> bool:
    """Shown recently, and not yet credited for it."""
    shown, credited = engram.counters.last_retrieved, engram.counters.credited_on
    return shown is not None and shown >= moment and (credited is None or credited < shown)


def _let_go(entries: Sequence[Engram], choose: Choose) -> list[Engram]:
    try:
        return retention.to_drop(entries, choose(entries))
    except Exception as error:  # the choice is somebody else's; whatever goes wrong with it, memory stays whole
        log.warning("Nothing was compacted: %s", error)
        return []


def _since(scope: str, now: datetime) -> datetime | None:
    local = now.astimezone()
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    match scope:
        case "all" | "self-play":
            return None
        case "today":
            return midnight
        case "week":
            return midnight - timedelta(days=6)
    raise Invalid(f"There is no time span '{scope}'.", mend="Say today, week, all or self-play.")


def _is_from_self_play(engram: Engram) -> bool:
    return engram.produced_by is Producer.DREAM or engram.source.lower() in _SELF_PLAY


def _as_it_was(now: Engram, then: Engram | None, moment: datetime) -> Engram | None:
    """What an engram has to become to be as it was; None when nothing has to change."""
    if now.state is State.ERASED:
        return None
    if then is None:
        if now.state is State.ARCHIVED:
            return None
        return replace(now, state=State.ARCHIVED, reason=f"it is newer than {moment:%Y-%m-%d %H:%M} UTC")
    back = replace(
        then, counters=now.counters, version=now.version, created_on=now.created_on, updated_on=now.updated_on
    )
    return None if back == now else back
