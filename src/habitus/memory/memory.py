"""Cortex, the single entry point of memory: every draft passes its gate, and every prompt recalls from it."""

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
    """Return a random id that is short enough to type and never a number, because numbers are proposals."""
    return secrets.choice(_LETTERS) + "".join(secrets.choice(_SIGNS) for _ in range(7))


class Cortex:
    """The memory of a home as one user sees it: encodes drafts, recalls lessons for prompts, and manages lessons."""

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
        """Store a draft as a new engram, reinforce a known one, queue it for review, or refuse it."""
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
        """Return whether automatic learning is stored now: memory is on and not paused."""
        return self._mode is not MemoryMode.OFF and (self._pause is None or self._pause.state() is None)

    def _refuse_if_closed(self, draft: Draft) -> Encoded | None:
        """Return the result for a draft while memory is off or paused; None if it may be stored."""
        # A person's own words are not automatic learning, so no switch stops them.
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
        """Return the profile lines, rules and lessons for a request, within their budgets. Changes nothing.

        Call `record_retrieval` once they were shown. `use_cache` skips the database, for outages.
        """
        here = self._mirror.in_sight(user or self._user, project) if as_read_last else self._in_sight(user, project)
        # Relevance decides only when the rules don't all fit, which saves a search.
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
        """Return the lessons for the scratchpad tool's description, most useful first."""
        mine = self._in_sight(user, project).scratchpad
        ranked = sorted(mine, key=lambda engram: (-model.utility(engram), engram.id))
        return recalling.within(ranked, tokens)

    def has_similar(self, text: str, *, user: str = "", project: str = "") -> bool:
        """Return whether memory already says this to the user."""
        text = self._intake.clean(text)
        known = self._in_sight(user, project).by_id
        if not known or not text:
            return False
        if any(engram.text.casefold() == text.casefold() for engram in known.values()):
            return True
        hits = self._mirror.index().similar(text)
        return any(hit.id in known and is_same(known[hit.id].text, text, meaning=hit.parts["meaning"]) for hit in hits)

    def record_retrieval(self, ids: Iterable[str], *, cut: Iterable[str] = ()) -> tuple[Engram, ...]:
        """Record that these lessons were shown, and that the `omitted` rules did not fit; return the rules that aged
        out.
        """
        old = recalling.shown_in_prompt(self._ledger, ids, cut)
        return self._put_away(old, f"there was no room for it {model.MOST_MISSES} times in a row")

    def record_helpful(self, request: str, *, user: str = "", project: str = "") -> tuple[str, ...]:
        """Credit the lessons shown for a successful request in the last minutes, if relevant; return their ids."""
        here = self._in_sight(user, project)
        told_in_tools = {engram.id: engram for engram in here.scratchpad}
        return recalling.credit_lessons(self._ledger, request, {**here.lessons, **told_in_tools})

    def count_ignored(self, rules: Iterable[str]) -> tuple[str, ...]:
        """Count rules (by id or text) whose detector fired although the prompt contained them; return their ids."""
        return recalling.count_ignored(self._ledger, rules)

    def prune(
        self, *, dry_run: bool = False, is_thorough: bool = False, also: Sequence[Engram] = ()
    ) -> tuple[Engram, ...]:
        """Archive lessons that never helped or have expired, each with its reason; with `is_thorough`,
        duplicates too.
        """
        aged = {e.id: e for e in (*recalling.aged(self._ledger, with_twins=is_thorough), *also)}
        gone = tuple(e for e in aged.values() if self._viewer.sees(e))
        return gone if dry_run else self._put_away(gone)

    def compact(self, choose: Choose | None = None, *, dry_run: bool = False) -> tuple[Engram, ...]:
        """Archive entries of kinds that have too many in one scope, keeping those whose list indexes `choose` returns.

        Texts are never rewritten. If the choice fails or makes no sense, everything is kept. Without `choose` the most
        useful rules stay; lessons have a cap of their own.
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
        """Return the lessons learned `today`, this `week`, in `self-play`, or all of them, newest first."""
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
        """Return the lesson with this id or unique prefix of an id; raise NotFound for unknown and other users'
        ones.
        """
        return self._ledger.get(id)

    def history(self, id: str) -> tuple[EngramVersion, ...]:
        """Return the versions of a lesson, oldest first."""
        return self._ledger.store.history(self.get(id).id)

    def list_archived(self) -> tuple[Engram, ...]:
        """Return the archived lessons, latest first."""
        return self._ledger.of_state(LessonState.ARCHIVED, LessonState.REMOVED)

    def waiting(self, *, user: str = "") -> tuple[Engram, ...]:
        """Return the lessons that are pending review, oldest first."""
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
        """Add a lesson in a person's own words; raise Invalid if it is refused."""
        encoded = self.encode(
            Draft(text=text, kind=kind, scope=scope, topic=topic, confidence=HIGH, produced_by=Producer.USER, **more)
        )
        if encoded.status is Status.REFUSED:
            raise Invalid(f"That can't be kept: {encoded.reason}.", hint="Say it in a sentence.")
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
        """Edit a lesson; it then counts as the person's own, but a pending one stays pending."""
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
        """Archive a lesson; automatic learning does not bring it back."""
        engram = self.get(id)
        self._viewer.check_may_remove(engram)
        return self._change(gate.remove_engram(engram, by, why), by, why)

    def taught_by(self, turns: Collection[str] = (), *, session: str = "") -> tuple[Engram, ...]:
        """Return the active and pending lessons that these turns, or a session, taught, oldest first."""
        self._pages.notice()
        return tuple(
            engram
            for engram in reversed(self._ledger.of_state(LessonState.ACTIVE, LessonState.WAITING))
            if (engram.evidence.trace in turns or (session and engram.evidence.session == session))
            and self._viewer.taught(engram)
        )

    def restore(self, id: str, *, by: str) -> Engram:
        """Restore an archived lesson, which then counts as confirmed by a person."""
        return self._change(gate.restore_engram(self.get(id)), by, "restored")

    def undo(self, id: str, number: int, *, by: str) -> Engram:
        """Revert the changes of one version; raise Refused if a later version changed the same fields."""
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
                hint=f"See 'habitus lessons show {now.id}' and edit it; nothing was changed.",
            )
        return now if back == now else self._change(back, by, f"version {number} taken back")

    @contextmanager
    def noting(self) -> Iterator[list[Engram]]:
        """Collect the lessons changed inside the block, without edits that people made in the pages before."""
        self._pages.notice()
        with self._ledger.noting() as made:
            yield made

    def approve(self, id: str, *, by: str) -> Engram:
        """Approve a pending lesson."""
        return self._change(gate.approve_engram(self.get(id)), by, "approved")

    def reject(self, id: str, *, by: str, reason: str = "") -> Engram:
        """Reject a pending lesson; it is not proposed again, and the agent that proposed it is told why."""
        return self._change(gate.reject_engram(self.get(id), by, self._intake.clean(reason)), by, "turned down")

    def turned_down(self, user: str) -> tuple[Engram, ...]:
        """Return the rejected proposals of this user's agent that no agent was told about, as of the last sync."""
        return tuple(e for e in self._mirror.engrams.values() if e.is_untold and e.is_of(user))

    def note_told(self, ids: Iterable[str]) -> None:
        """Mark rejections as told to the agent."""
        with self._ledger.counting(tuple(ids)) as found:
            found.update({id: replace(engram, is_untold=False) for id, engram in found.items()})

    def _change(self, engram: Engram, by: str, reason: str, expected_version: int | None = None) -> Engram:
        self._ledger.allow()
        self._pages.notice()
        saved = self._ledger.change(engram, by, reason, expected_version)
        self._pages.show()
        return saved

    def return_to(self, timestamp: datetime, *, by: str, dry_run: bool = False) -> tuple[LessonStep, ...]:
        """Roll memory back to a point in time with new versions; later lessons are archived."""
        ledger = self._ledger
        with ledger.writing():
            then = ledger.store.at(timestamp)
            known = self._mirror.engrams.values()
            now = [engram for engram in known if self._viewer.may_turn_back(engram, then.get(engram.id, engram))]
            changes = back_to(timestamp, then, now)
            if not dry_run:
                ledger.allow()
                ledger.save([engram for _, engram in changes], by, f"back to {timestamp:%Y-%m-%d %H:%M} UTC")
        if not dry_run:
            self._pages.show()
        return tuple(step for step, _ in changes)

    def forget_user(self, user: str) -> int:
        """Erase the lessons of a user, and those that their conversations taught; only ids remain. Returns how many."""
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
        """Return whether a lesson with this digest was ever imported, even if it was removed since."""
        self._mirror.sync()
        return any(digest in engram.evidence.imported for engram in self._mirror.engrams.values())

    def look(self) -> Looked:
        """Apply the edits that people made in the pages, and rewrite them."""
        return self._pages.look()

    def understood(self, texts: Mapping[str, str]) -> FoundPages | None:
        """Return the edits that these page texts contain, for a preview; None without page files."""
        return self._pages.understood(texts)

    def apply_texts(self, texts: Mapping[str, str]) -> Looked:
        """Apply the edits in copies of the pages."""
        return self._pages.apply_texts(texts)

    def page_texts(self) -> dict[str, str]:
        """Return the current pages by name."""
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
    raise Invalid(f"There is no time span '{scope}'.", hint="Say today, week, all or self-play.")
