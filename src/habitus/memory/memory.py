"""Cortex, the one way into memory and out of it: every producer's draft passes its gate, every prompt asks it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from habitus.errors import Invalid, Refused, no_version
from habitus.memory import gate, model
from habitus.memory import recall as recalling
from habitus.memory.gate import Intake, topic_of
from habitus.memory.ledger import EngramLedger, InSight, LessonStep, Mirror, Viewer, back_to, without_change
from habitus.memory.model import (
    HIGH,
    Draft,
    Encoded,
    Engram,
    EngramVersion,
    Kind,
    LessonState,
    Producer,
    Scope,
    Status,
    kind_of,
    scope_of,
)
from habitus.memory.pages import Looked, Pages
from habitus.memory.recall import (
    LESSON_TOKENS,
    MOST_LESSONS,
    PROFILE_TOKENS,
    RULE_TOKENS,
    SCRATCHPAD_TOKENS,
    Choose,
    Recall,
    Recalled,
)
from habitus.memory.sameness import is_same
from habitus.memory.store import EngramStore
from habitus.memory.views import FoundPages, ViewFiles
from habitus.pause import Pause
from habitus.redact import Redactor
from habitus.screening.findings import Policy
from habitus.settings import MemoryMode, RetentionSettings
from habitus.text import tokens

if TYPE_CHECKING:
    from habitus.search.index import Index

__all__ = ["Choose", "Cortex", "LessonStep", "Looked", "new_id"]

_LETTERS, _SIGNS = "abcdefghijkmnpqrstuvwxyz", "abcdefghijkmnpqrstuvwxyz23456789"
_DEFAULT_RETENTION = RetentionSettings()


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
        all_users: bool = False,
        may_remove_shared: bool = True,
        files: ViewFiles | None = None,
        allow: Callable[[], None] = lambda: None,
        keep: RetentionSettings = _DEFAULT_RETENTION,
        screening: Policy | None = None,
        new_id: Callable[[], str] = new_id,
        tell: Callable[[Engram], None] = lambda engram: None,
    ) -> None:
        self._mirror = Mirror(store, open_index)
        self._viewer = Viewer(user=user, sees_all=all_users, may_remove_shared=may_remove_shared)
        self._ledger = EngramLedger(store, self._mirror, clock=clock, allow=allow, keep=keep, viewer=self._viewer)
        self._intake = Intake(
            ledger=self._ledger,
            redactor=redactor,
            mode=mode,
            is_shared=is_shared,
            user=user,
            new_id=new_id,
            screening=screening or Policy(),
            tell=tell,
        )
        self._pages = Pages(files, self._intake)
        self._clock = clock
        self._pause = pause
        self._mode = mode
        self._user = user

    def encode(self, draft: Draft) -> Encoded:
        """Keep what a draft says: as a new engram, as more of a known one, for a person to decide, or not at all."""
        draft = replace(draft, kind=kind_of(draft.kind), scope=scope_of(draft.scope))
        closed = self._refuse_if_closed(draft)
        if closed is not None:
            return closed
        self._ledger.allow()
        draft, redacted = self._intake.clean_draft(draft)
        refusal = gate.refusal(draft)
        if refusal:
            return Encoded(status=Status.REFUSED, reason=refusal, redacted=redacted)
        self._pages.notice()
        encoded = self._intake.keep(draft)
        self._pages.show()
        return replace(encoded, redacted=redacted)

    def is_taking(self) -> bool:
        """Whether what is learned is kept at all now: memory is on, and nothing is paused."""
        return self._mode is not MemoryMode.OFF and (self._pause is None or self._pause.state() is None)

    def _refuse_if_closed(self, draft: Draft) -> Encoded | None:
        """Whether learning is switched off or paused; a person's own word is no learning."""
        if draft.produced_by is Producer.USER:
            return None
        if self._mode is MemoryMode.OFF:
            return Encoded(status=Status.OFF, reason="memory is off (HABITUS_MEMORY)")
        paused = self._pause.state() if self._pause and draft.produced_by.is_automatic else None
        if paused is not None:
            return Encoded(status=Status.PAUSED, reason=f"paused by {paused.by}; run 'habitus resume'")
        return None

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
        as_read_last: bool = False,
    ) -> Recall:
        """The part of memory that a prompt should hold for this request. Changes nothing: `record_retrieval` says that
        it was shown.

        `as_read_last` does without the store, for when it is away.
        """
        here = self._mirror.in_sight(user or self._user, project) if as_read_last else self._in_sight(user, project)
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
        self._pages.notice()
        self._mirror.sync()
        return self._mirror.in_sight(user or self._user, project)

    def _relevance(self, request: str, engrams: Iterable[Engram]) -> dict[str, float]:
        found = self._mirror.search(request, {engram.id for engram in engrams})
        return {hit.id: hit.score for hit in found.hits}

    def scratchpad_lessons(
        self, *, user: str = "", project: str = "", tokens: int = SCRATCHPAD_TOKENS
    ) -> tuple[Recalled, ...]:
        """The lessons for the scratchpad tool's description, the most useful first; it belongs nowhere else."""
        mine = self._in_sight(user, project).scratchpad
        ranked = sorted(mine, key=lambda engram: (-model.utility(engram), engram.id))
        return recalling.within(ranked, tokens)

    def has_similar(self, text: str, *, user: str = "", project: str = "") -> bool:
        """Whether memory already says this to somebody."""
        text = self._intake.clean(text)
        known = self._in_sight(user, project).by_id
        if not known or not text:
            return False
        if any(engram.text.casefold() == text.casefold() for engram in known.values()):
            return True
        hits = self._mirror.index().similar(text)
        return any(hit.id in known and is_same(known[hit.id].text, text, meaning=hit.parts["meaning"]) for hit in hits)

    def record_retrieval(self, ids: Iterable[str], *, cut: Iterable[str] = ()) -> tuple[Engram, ...]:
        """These were shown in a prompt; `cut` are the rules that found no room. Says which rules aged out."""
        old = recalling.shown_in_prompt(self._ledger, ids, cut)
        return self._put_away(old, f"there was no room for it {model.MOST_MISSES} times in a row")

    def record_helpful(self, request: str, *, user: str = "", project: str = "") -> tuple[str, ...]:
        """The request went well: credit the lessons shown for it in the last minutes, as far as they fit it."""
        here = self._in_sight(user, project)
        told_in_tools = {engram.id: engram for engram in here.scratchpad}
        return recalling.credit_lessons(self._ledger, request, {**here.lessons, **told_in_tools})

    def count_ignored(self, rules: Iterable[str]) -> tuple[str, ...]:
        """Rules, by id or text, whose detector fired again although they were in the prompt."""
        return recalling.count_ignored(self._ledger, rules)

    def prune(
        self, *, dry_run: bool = False, is_thorough: bool = False, also: Sequence[Engram] = ()
    ) -> tuple[Engram, ...]:
        """Archive lessons that never helped or have expired, each with its reason; if thorough, what is said twice."""
        aged = {e.id: e for e in (*recalling.aged(self._ledger, with_twins=is_thorough), *also)}
        gone = tuple(e for e in aged.values() if self._viewer.sees(e))
        return gone if dry_run else self._put_away(gone)

    def compact(self, choose: Choose | None = None, *, dry_run: bool = False) -> tuple[Engram, ...]:
        """Where a kind has too many entries in a place, keep those that `choose` names by their place in the list.

        Texts are never rewritten. A choice that fails or makes no sense keeps everything. Without one the most useful
        rules stay; lessons are left to their cap.
        """
        gone = tuple(e for e in recalling.left_by(self._ledger, choose) if self._viewer.sees(e))
        return gone if dry_run else self._put_away(gone, "a compaction kept others")

    def _put_away(self, engrams: Sequence[Engram], reason: str = "") -> tuple[Engram, ...]:
        if not engrams:
            return ()
        ledger, why = self._ledger, {engram.id: reason or engram.reason for engram in engrams}
        with ledger.writing():
            found = ledger.store.get(list(why)).values()
            gone = tuple(one for e in found for one in ledger.archive([e], "habitus", why[e.id]))
        self._pages.show()
        return gone

    def list_lessons(
        self, scope: str = "all", limit: int = 50, *, kind: Kind | str | None = None, user: str | None = None
    ) -> tuple[Engram, ...]:
        """Lessons learned `today`, this `week`, in `self-play`, or at all; the newest first."""
        self._pages.notice()
        self._mirror.sync()
        since = _since(scope, self._clock())
        wanted = None if kind is None else kind_of(kind)
        found = [
            engram
            for engram in self._mirror.active()
            if (wanted is None or engram.kind is wanted)
            and (since is None or (engram.created_on or since) >= since)
            and (scope != "self-play" or engram.is_from_self_play)
            and self._viewer.sees(engram, user or "")
        ]
        found.sort(key=lambda engram: (str(engram.created_on), engram.id), reverse=True)
        return tuple(found[:limit])

    def get(self, id: str) -> Engram:
        """The engram of this id, or of the only one that begins like it; another user's is as if it were not there."""
        return self._ledger.get(id)

    def history(self, id: str) -> tuple[EngramVersion, ...]:
        return self._ledger.store.history(self.get(id).id)

    def list_archived(self) -> tuple[Engram, ...]:
        """Archived lessons, the last first."""
        return self._ledger.of_state(LessonState.ARCHIVED, LessonState.REMOVED)

    def waiting(self, *, user: str = "") -> tuple[Engram, ...]:
        """The lessons that wait for a person."""
        return tuple(reversed(self._ledger.of_state(LessonState.WAITING, user=user)))

    def add(
        self,
        text: str,
        *,
        kind: Kind | str = Kind.LESSON,
        scope: Scope | str = Scope.USER,
        topic: str = "",
        **more: Any,
    ) -> Encoded:
        """Add a lesson that a person wants remembered."""
        encoded = self.encode(
            Draft(text=text, kind=kind, scope=scope, topic=topic, confidence=HIGH, produced_by=Producer.USER, **more)
        )
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
        expected_version: int | None = None,
    ) -> Engram:
        """Change what a person may change. From then on it is theirs; what waited still waits."""
        before = self.get(id)
        wanted = before.scope if scope is None else scope_of(scope)
        owner = {Scope.USER: self._user, Scope.PROJECT: project}.get(wanted, "")
        changed = replace(
            before,
            text=before.text if text is None else self._intake.clean(text),
            kind=before.kind if kind is None else kind_of(kind),
            scope=wanted,
            owner=before.owner if wanted is before.scope else owner,
            topic=before.topic if topic is None else topic_of(self._intake.clean(topic)),
        )
        after = gate.edit_engram(before, changed)
        if after.place != before.place:
            self._viewer.check_may_remove(before)
        if after == before and expected_version in (None, before.version):
            return before
        return self._change(after, by, "edited", expected_version)

    def remove(self, id: str, *, by: str, why: str = "removed") -> Engram:
        """Put it into the archive; it is not learned again by itself."""
        engram = self.get(id)
        self._viewer.check_may_remove(engram)
        return self._change(gate.remove_engram(engram, by, why), by, why)

    def taught_by(self, turns: Collection[str] = (), *, session: str = "") -> tuple[Engram, ...]:
        """Lessons that these turns, or the turns of a session, brought into memory, those that wait for a person
        too."""
        self._pages.notice()
        return tuple(
            engram
            for engram in reversed(self._ledger.of_state(LessonState.ACTIVE, LessonState.WAITING))
            if (engram.evidence.trace in turns or (session and engram.evidence.session == session))
            and self._viewer.taught(engram)
        )

    def restore(self, id: str, *, by: str) -> Engram:
        """Bring it back from the archive; a person stands behind it from then on."""
        return self._change(gate.restore_engram(self.get(id)), by, "restored")

    def undo(self, id: str, number: int, *, by: str) -> Engram:
        """Take back what made a version, and nothing else; what others changed since in the same place is kept."""
        now = self.get(id)
        versions = {version.number: version.engram for version in self.history(now.id)}
        if number not in versions:
            raise no_version(id, number, versions)
        before = versions.get(max((known for known in versions if known < number), default=0))
        if before is None and now.version == number:
            return self.remove(now.id, by=by)
        back = without_change(before, versions[number], now) if before is not None else None
        if back is None:
            raise Refused(
                f"Version {number} of '{now.id}' can't be taken back alone: it was changed in the same place since.",
                mend=f"See 'habitus lessons show {now.id}' and edit it; nothing was changed.",
            )
        return now if back == now else self._change(back, by, f"version {number} taken back")

    @contextmanager
    def noting(self) -> Iterator[list[Engram]]:
        """The lessons changed inside, each as it became, without what people had written into the pages before."""
        self._pages.notice()
        with self._ledger.noting() as made:
            yield made

    def approve(self, id: str, *, by: str) -> Engram:
        """Let in what waited."""
        return self._change(gate.approve_engram(self.get(id)), by, "approved")

    def reject(self, id: str, *, by: str, reason: str = "") -> Engram:
        """Turn down what waited; the same is not asked again, and an agent that proposed it is told why."""
        return self._change(gate.reject_engram(self.get(id), by, self._intake.clean(reason)), by, "turned down")

    def turned_down(self, user: str) -> tuple[Engram, ...]:
        """What this user's agent wanted remembered, a person turned down, and no agent has heard of yet; as it was at
        the last look into memory."""
        return tuple(e for e in self._mirror.engrams.values() if e.is_untold and e.is_of(user))

    def note_told(self, ids: Iterable[str]) -> None:
        """The agent has heard that these were turned down, and why."""
        with self._ledger.counting(tuple(ids)) as found:
            found.update({id: replace(engram, is_untold=False) for id, engram in found.items()})

    def _change(self, engram: Engram, by: str, reason: str, expected_version: int | None = None) -> Engram:
        self._ledger.allow()
        self._pages.notice()
        saved = self._ledger.change(engram, by, reason, expected_version)
        self._pages.show()
        return saved

    def return_to(self, moment: datetime, *, by: str, dry_run: bool = False) -> tuple[LessonStep, ...]:
        """Make everything as it was at a moment, as new versions; what came later goes into the archive."""
        ledger = self._ledger
        with ledger.writing():
            then = ledger.store.at(moment)
            known = self._mirror.engrams.values()
            now = [engram for engram in known if self._viewer.may_turn_back(engram, then.get(engram.id, engram))]
            changes = back_to(moment, then, now)
            if not dry_run:
                ledger.allow()
                ledger.save([engram for _, engram in changes], by, f"back to {moment:%Y-%m-%d %H:%M} UTC")
        if not dry_run:
            self._pages.show()
        return tuple(step for step, _ in changes)

    def forget_user(self, user: str) -> int:
        """Erase what is one user's or was taught by their conversations, everywhere it is kept; only ids are left."""
        self._ledger.allow()
        self._mirror.sync()
        mine = [engram.id for engram in self._mirror.engrams.values() if engram.is_of(user)]
        if mine:
            self._ledger.store.erase(mine, self._clock())
            self._mirror.sync()
            self._mirror.index()
        self._pages.forget()
        return len(mine)

    def knows_import(self, digest: str) -> bool:
        """Whether a lesson with this digest was imported before, whatever became of it."""
        self._mirror.sync()
        return any(digest in engram.evidence.imported for engram in self._mirror.engrams.values())

    def look(self) -> Looked:
        """Read what people changed in the pages, and write them anew."""
        return self._pages.look()

    def understood(self, texts: Mapping[str, str]) -> FoundPages | None:
        """The changes these texts of the pages would make; for showing before it is applied."""
        return self._pages.understood(texts)

    def apply_texts(self, texts: Mapping[str, str]) -> Looked:
        """Take over what a person wrote into copies of the pages."""
        return self._pages.apply_texts(texts)

    def page_texts(self) -> dict[str, str]:
        """The pages as they are now."""
        return self._pages.texts()


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
