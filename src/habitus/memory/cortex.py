"""Cortex, the single entry point of memory: every draft passes its gate, and every prompt recalls from it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from habitus.errors import Invalid, Refused, build_unknown_version_error
from habitus.memory import intake, model
from habitus.memory import recall as recalling
from habitus.memory.intake import LessonDraftIntake, normalize_topic
from habitus.memory.model import (
    HIGH_CONFIDENCE,
    Engram,
    EngramVersion,
    LessonDraft,
    LessonDraftOutcome,
    LessonDraftResult,
    LessonKind,
    LessonProducer,
    LessonScope,
    LessonState,
    parse_lesson_kind,
    parse_lesson_scope,
)
from habitus.memory.page_files import MemoryPageFiles, PagesWithEdits
from habitus.memory.pages import MemoryPageSynchronizer, PageSyncResult
from habitus.memory.recall import (
    LESSON_TOKENS,
    MAX_LESSONS,
    PROFILE_TOKENS,
    RULE_TOKENS,
    SCRATCHPAD_TOKENS,
    CompactionChooser,
    RecalledLesson,
    RecallResult,
)
from habitus.memory.repository import (
    ActiveLessons,
    EngramCache,
    EngramRepository,
    LessonRollbackStep,
    LessonViewerPermissions,
    build_engram_with_version_undone,
    plan_memory_rollback,
)
from habitus.memory.store import EngramStore
from habitus.memory.text_equivalence import is_equivalent
from habitus.pause import LearningPauseSwitch
from habitus.redact import Redactor
from habitus.screening.findings import ScreeningPolicy
from habitus.settings import MemoryLearningMode, RetentionSettings
from habitus.text import estimate_tokens

if TYPE_CHECKING:
    from habitus.search.index import SearchIndex

__all__ = ["CompactionChooser", "Cortex", "LessonRollbackStep", "PageSyncResult", "generate_engram_id"]

_ID_FIRST_CHARACTERS, _ID_CHARACTERS = "abcdefghijkmnpqrstuvwxyz", "abcdefghijkmnpqrstuvwxyz23456789"
_DEFAULT_RETENTION = RetentionSettings()


def generate_engram_id() -> str:
    """Return a random id that is short enough to type and never a number, because numbers are proposals."""
    return secrets.choice(_ID_FIRST_CHARACTERS) + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(7))


class Cortex:
    """The memory of a home as one user sees it: encodes drafts, recalls lessons for prompts, and manages lessons."""

    def __init__(
        self,
        store: EngramStore,
        open_index: Callable[[], SearchIndex],
        *,
        redactor: Redactor,
        clock: Callable[[], datetime],
        pause: LearningPauseSwitch | None = None,
        mode: MemoryLearningMode = MemoryLearningMode.AUTOPILOT,
        is_shared: bool = False,
        user: str = "local",
        all_users: bool = False,
        may_remove_shared: bool = True,
        files: MemoryPageFiles | None = None,
        check_writable: Callable[[], None] = lambda: None,
        retention: RetentionSettings = _DEFAULT_RETENTION,
        screening: ScreeningPolicy | None = None,
        new_id: Callable[[], str] = generate_engram_id,
        on_pending: Callable[[Engram], None] = lambda engram: None,
    ) -> None:
        self._mirror = EngramCache(store, open_index)
        self._viewer = LessonViewerPermissions(user=user, sees_all=all_users, can_remove_shared=may_remove_shared)
        self._ledger = EngramRepository(
            store, self._mirror, clock=clock, check_writable=check_writable, retention=retention, viewer=self._viewer
        )
        self._intake = LessonDraftIntake(
            ledger=self._ledger,
            redactor=redactor,
            mode=mode,
            is_shared=is_shared,
            user=user,
            new_id=new_id,
            screening=screening or ScreeningPolicy(),
            on_pending=on_pending,
        )
        self._pages = MemoryPageSynchronizer(files, self._intake)
        self._clock = clock
        self._pause = pause
        self._mode = mode
        self._user = user

    def encode(self, draft: LessonDraft) -> LessonDraftResult:
        """Store a draft as a new engram, reinforce a known one, queue it for review, or refuse it."""
        draft = replace(draft, kind=parse_lesson_kind(draft.kind), scope=parse_lesson_scope(draft.scope))
        closed = self._build_refusal_if_off_or_paused(draft)
        if closed is not None:
            return closed
        self._ledger.check_writable()
        draft, redacted = self._intake.clean_draft_and_count_secrets(draft)
        refusal = intake.explain_draft_refusal(draft)
        if refusal:
            return LessonDraftResult(status=LessonDraftOutcome.REFUSED, reason=refusal, redacted=redacted)
        self._pages.sync_if_changed()
        encoded = self._intake.store_draft(draft)
        self._pages.sync_after_change_logging_failures()
        return replace(encoded, redacted=redacted)

    def is_learning_enabled(self) -> bool:
        """Return whether automatic learning is stored now: memory is on and not paused."""
        return self._mode is not MemoryLearningMode.OFF and (
            self._pause is None or self._pause.get_pause_details() is None
        )

    def _build_refusal_if_off_or_paused(self, draft: LessonDraft) -> LessonDraftResult | None:
        """Return the result for a draft while memory is off or paused; None if it may be stored."""
        # A person's own words are not automatic learning, so no switch stops them.
        if draft.produced_by is LessonProducer.USER:
            return None
        if self._mode is MemoryLearningMode.OFF:
            return LessonDraftResult(status=LessonDraftOutcome.OFF, reason="memory is off (HABITUS_MEMORY)")
        paused = self._pause.get_pause_details() if self._pause and draft.produced_by.is_automatic else None
        if paused is not None:
            return LessonDraftResult(
                status=LessonDraftOutcome.PAUSED, reason=f"paused by {paused.by}; run 'habitus learn resume'"
            )
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
        max_lessons: int = MAX_LESSONS,
        use_cache: bool = False,
    ) -> RecallResult:
        """Return the profile lines, rules and lessons for a request, within their budgets. Changes nothing.

        Call `record_retrieval` once they were shown. `use_cache` skips the database, for outages.
        """
        here = (
            self._mirror.get_lessons_applying_to_user(user or self._user, project)
            if use_cache
            else self._sync_and_load_active_lessons(user, project)
        )
        # Relevance decides only when the rules don't all fit, which saves a search.
        is_full = sum(estimate_tokens(rule.text) for rule in here.rules) > rule_tokens
        told = recalling.fit_rules_or_profile_lines_to_budget(here.profile, {}, profile_tokens)
        held = recalling.fit_rules_or_profile_lines_to_budget(
            here.rules, self._score_relevance(request, here.rules) if is_full else {}, rule_tokens
        )
        found = self._mirror.search_lessons(request, here.lessons)
        fitting = recalling.select_relevant_lessons(found, here.lessons, lesson_tokens, max_lessons)
        return RecallResult(
            profile=told.selected,
            rules=held.selected,
            lessons=fitting.selected,
            left_out=(*told.left_out, *held.left_out, *fitting.left_out),
            confidence=found.confidence,
        )

    def _sync_and_load_active_lessons(self, user: str, project: str) -> ActiveLessons:
        self._pages.sync_if_changed()
        self._mirror.sync()
        return self._mirror.get_lessons_applying_to_user(user or self._user, project)

    def _score_relevance(self, request: str, engrams: Iterable[Engram]) -> dict[str, float]:
        found = self._mirror.search_lessons(request, {engram.id for engram in engrams})
        return {hit.id: hit.score for hit in found.hits}

    def recall_scratchpad_lessons(
        self, *, user: str = "", project: str = "", tokens: int = SCRATCHPAD_TOKENS
    ) -> tuple[RecalledLesson, ...]:
        """Return the lessons for the scratchpad tool's description, most useful first."""
        mine = self._sync_and_load_active_lessons(user, project).scratchpad
        ranked = sorted(mine, key=lambda engram: (-model.compute_lesson_utility(engram), engram.id))
        return recalling.fit_engrams_to_budget(ranked, tokens)

    def has_similar_lesson(self, text: str, *, user: str = "", project: str = "") -> bool:
        """Return whether memory already says this to the user."""
        text = self._intake.clean_text(text)
        known = self._sync_and_load_active_lessons(user, project).by_id
        if not known or not text:
            return False
        if any(engram.text.casefold() == text.casefold() for engram in known.values()):
            return True
        hits = self._mirror.get_updated_search_index().find_similar(text)
        return any(
            hit.id in known and is_equivalent(known[hit.id].text, text, similarity=hit.parts["meaning"]) for hit in hits
        )

    def record_retrieval(self, ids: Iterable[str], *, omitted: Iterable[str] = ()) -> tuple[Engram, ...]:
        """Record that these lessons were shown, and that the `omitted` rules did not fit; return the rules that aged
        out.
        """
        old = recalling.count_recall_and_list_aged_out_rules(self._ledger, ids, omitted)
        return self._archive_lessons_and_sync_pages(old, f"there was no room for it {model.MAX_MISSES} times in a row")

    def record_helpful(self, request: str, *, user: str = "", project: str = "") -> tuple[str, ...]:
        """Credit the lessons shown for a successful request in the last minutes, if relevant; return their ids."""
        here = self._sync_and_load_active_lessons(user, project)
        told_in_tools = {engram.id: engram for engram in here.scratchpad}
        return recalling.credit_recently_shown_relevant_lessons(
            self._ledger, request, {**here.lessons, **told_in_tools}
        )

    def record_ignored_rules(self, rules: Iterable[str]) -> tuple[str, ...]:
        """Count rules (by id or text) whose detector fired although the prompt contained them; return their ids."""
        return recalling.record_ignored_rules(self._ledger, rules)

    def prune(
        self, *, dry_run: bool = False, is_thorough: bool = False, also: Sequence[Engram] = ()
    ) -> tuple[Engram, ...]:
        """Archive lessons that never helped or have expired, each with its reason; with `is_thorough`,
        duplicates too.
        """
        aged = {e.id: e for e in (*recalling.list_prunable_lessons(self._ledger, with_duplicates=is_thorough), *also)}
        gone = tuple(e for e in aged.values() if self._viewer.can_see(e))
        return gone if dry_run else self._archive_lessons_and_sync_pages(gone)

    def compact(self, choose: CompactionChooser | None = None, *, dry_run: bool = False) -> tuple[Engram, ...]:
        """Archive entries of kinds that have too many in one scope, keeping those whose list indexes `choose` returns.

        Texts are never rewritten. If the choice fails or makes no sense, everything is kept. Without `choose` the most
        useful rules stay; lessons have a cap of their own.
        """
        gone = tuple(
            e for e in recalling.select_engrams_to_compact_away(self._ledger, choose) if self._viewer.can_see(e)
        )
        return gone if dry_run else self._archive_lessons_and_sync_pages(gone, "a compaction kept others")

    def _archive_lessons_and_sync_pages(self, engrams: Sequence[Engram], reason: str = "") -> tuple[Engram, ...]:
        if not engrams:
            return ()
        ledger, why = self._ledger, {engram.id: reason or engram.reason for engram in engrams}
        with ledger.write_transaction():
            found = ledger.store.load_engrams_by_ids(list(why)).values()
            gone = tuple(one for e in found for one in ledger.archive_engrams([e], "habitus", why[e.id]))
        self._pages.sync_after_change_logging_failures()
        return gone

    def list_lessons(
        self, scope: str = "all", limit: int = 50, *, kind: LessonKind | str | None = None, user: str | None = None
    ) -> tuple[Engram, ...]:
        """Return the lessons learned `today`, this `week`, in `self-play`, or all of them, newest first."""
        self._pages.sync_if_changed()
        self._mirror.sync()
        since = _get_lesson_period_start(scope, self._clock())
        wanted = None if kind is None else parse_lesson_kind(kind)
        found = [
            engram
            for engram in self._mirror.list_active()
            if (wanted is None or engram.kind is wanted)
            and (since is None or (engram.created_on or since) >= since)
            and (scope != "self-play" or engram.is_from_self_play)
            and self._viewer.can_see(engram, user or "")
        ]
        found.sort(key=lambda engram: (str(engram.created_on), engram.id), reverse=True)
        return tuple(found[:limit])

    def get(self, id: str) -> Engram:
        """Return the lesson with this id or unique prefix of an id; raise NotFound for unknown and other users'
        ones.
        """
        return self._ledger.get_by_id_or_unique_prefix(id)

    def get_history(self, id: str) -> tuple[EngramVersion, ...]:
        """Return the versions of a lesson, oldest first."""
        return self._ledger.store.load_history(self.get(id).id)

    def list_archived_lessons(self) -> tuple[Engram, ...]:
        """Return the archived lessons, latest first."""
        return self._ledger.list_by_state(LessonState.ARCHIVED, LessonState.REMOVED)

    def list_pending_lessons(self, *, user: str = "") -> tuple[Engram, ...]:
        """Return the lessons that are pending review, oldest first."""
        return tuple(reversed(self._ledger.list_by_state(LessonState.PENDING, user=user)))

    def add(
        self,
        text: str,
        *,
        kind: LessonKind | str = LessonKind.LESSON,
        scope: LessonScope | str = LessonScope.USER,
        topic: str = "",
        **more: Any,
    ) -> LessonDraftResult:
        """Add a lesson in a person's own words; raise Invalid if it is refused."""
        encoded = self.encode(
            LessonDraft(
                text=text,
                kind=kind,
                scope=scope,
                topic=topic,
                confidence=HIGH_CONFIDENCE,
                produced_by=LessonProducer.USER,
                **more,
            )
        )
        if encoded.status is LessonDraftOutcome.REFUSED:
            raise Invalid(f"The lesson can't be stored: {encoded.reason}.", hint="Write it in one sentence.")
        return encoded

    def edit(
        self,
        id: str,
        *,
        by: str,
        text: str | None = None,
        kind: LessonKind | str | None = None,
        scope: LessonScope | str | None = None,
        topic: str | None = None,
        project: str = "",
        expected_version: int | None = None,
    ) -> Engram:
        """Edit a lesson; it then counts as the person's own, but a pending one stays pending."""
        before = self.get(id)
        wanted = before.scope if scope is None else parse_lesson_scope(scope)
        owner = {LessonScope.USER: self._user, LessonScope.PROJECT: project}.get(wanted, "")
        changed = replace(
            before,
            text=before.text if text is None else self._intake.clean_text(text),
            kind=before.kind if kind is None else parse_lesson_kind(kind),
            scope=wanted,
            owner=before.owner if wanted is before.scope else owner,
            topic=before.topic if topic is None else normalize_topic(self._intake.clean_text(topic)),
        )
        after = intake.build_edited_engram(before, changed)
        if after.scope_and_owner != before.scope_and_owner:
            self._viewer.require_can_remove(before)
        if after == before and expected_version in (None, before.version):
            return before
        return self._save_change_and_sync_pages(after, by, "edited", expected_version)

    def remove(self, id: str, *, by: str, reason: str = "removed") -> Engram:
        """Archive a lesson; automatic learning does not bring it back."""
        engram = self.get(id)
        self._viewer.require_can_remove(engram)
        return self._save_change_and_sync_pages(intake.build_removed_engram(engram, by, reason), by, reason)

    def list_lessons_taught_by(self, turns: Collection[str] = (), *, session: str = "") -> tuple[Engram, ...]:
        """Return the active and pending lessons that these turns, or a session, taught, oldest first."""
        self._pages.sync_if_changed()
        return tuple(
            engram
            for engram in reversed(self._ledger.list_by_state(LessonState.ACTIVE, LessonState.PENDING))
            if (engram.evidence.trace in turns or (session and engram.evidence.session == session))
            and self._viewer.has_taught(engram)
        )

    def restore(self, id: str, *, by: str) -> Engram:
        """Restore an archived lesson, which then counts as confirmed by a person."""
        return self._save_change_and_sync_pages(intake.build_restored_engram(self.get(id)), by, "restored")

    def undo_version(self, id: str, number: int, *, by: str) -> Engram:
        """Revert the changes of one version; raise Refused if a later version changed the same fields."""
        now = self.get(id)
        versions = {version.number: version.engram for version in self.get_history(now.id)}
        if number not in versions:
            raise build_unknown_version_error(id, number, versions)
        before = versions.get(max((known for known in versions if known < number), default=0))
        if before is None and now.version == number:
            return self.remove(now.id, by=by)
        back = build_engram_with_version_undone(before, versions[number], now) if before is not None else None
        if back is None:
            raise Refused(
                f"Version {number} of '{now.id}' can't be undone on its own: the same place has changed since.",
                hint=f"See 'habitus lessons show {now.id}' and edit it; nothing was changed.",
            )
        return now if back == now else self._save_change_and_sync_pages(back, by, f"version {number} undone")

    @contextmanager
    def collect_changes(self) -> Iterator[list[Engram]]:
        """Collect the lessons changed inside the block, without edits that people made in the pages before."""
        self._pages.sync_if_changed()
        with self._ledger.collect_changes() as made:
            yield made

    def approve(self, id: str, *, by: str) -> Engram:
        """Approve a pending lesson."""
        return self._save_change_and_sync_pages(intake.build_approved_engram(self.get(id)), by, "approved")

    def reject(self, id: str, *, by: str, reason: str = "") -> Engram:
        """Reject a pending lesson; it is not proposed again, and the agent that proposed it is told why."""
        return self._save_change_and_sync_pages(
            intake.build_rejected_engram(self.get(id), by, self._intake.clean_text(reason)), by, "rejected"
        )

    def list_untold_rejections(self, user: str) -> tuple[Engram, ...]:
        """Return the rejected proposals of this user's agent that no agent was told about, as of the last sync."""
        return tuple(e for e in self._mirror.engrams.values() if e.is_untold and e.belongs_to(user))

    def mark_rejections_told(self, ids: Iterable[str]) -> None:
        """Mark rejections as told to the agent."""
        with self._ledger.update_counters_inside_block(tuple(ids)) as found:
            found.update({id: replace(engram, is_untold=False) for id, engram in found.items()})

    def _save_change_and_sync_pages(
        self, engram: Engram, by: str, reason: str, expected_version: int | None = None
    ) -> Engram:
        self._ledger.check_writable()
        self._pages.sync_if_changed()
        saved = self._ledger.save_engram_at_expected_version(engram, by, reason, expected_version)
        self._pages.sync_after_change_logging_failures()
        return saved

    def roll_back_to(self, timestamp: datetime, *, by: str, dry_run: bool = False) -> tuple[LessonRollbackStep, ...]:
        """Roll memory back to a point in time with new versions; later lessons are archived."""
        ledger = self._ledger
        with ledger.write_transaction():
            then = ledger.store.load_all_engrams_as_of(timestamp)
            known = self._mirror.engrams.values()
            now = [engram for engram in known if self._viewer.can_roll_back(engram, then.get(engram.id, engram))]
            changes = plan_memory_rollback(timestamp, then, now)
            if not dry_run:
                ledger.check_writable()
                ledger.save([engram for _, engram in changes], by, f"back to {timestamp:%Y-%m-%d %H:%M} UTC")
        if not dry_run:
            self._pages.sync_after_change_logging_failures()
        return tuple(step for step, _ in changes)

    def erase_user(self, user: str) -> int:
        """Erase the lessons of a user, and those that their conversations taught; only ids remain. Returns how many."""
        self._ledger.check_writable()
        self._mirror.sync()
        mine = [engram.id for engram in self._mirror.engrams.values() if engram.belongs_to(user)]
        if mine:
            self._ledger.store.erase(mine, self._clock())
            self._mirror.sync()
            self._mirror.get_updated_search_index()
        self._pages.rewrite_pages_and_delete_renderings()
        return len(mine)

    def has_imported(self, digest: str) -> bool:
        """Return whether a lesson with this digest was ever imported, even if it was removed since."""
        self._mirror.sync()
        return any(digest in engram.evidence.imported for engram in self._mirror.engrams.values())

    def sync_pages(self) -> PageSyncResult:
        """Apply the edits that people made in the pages, and rewrite them."""
        return self._pages.sync()

    def preview_page_texts(self, texts: Mapping[str, str]) -> PagesWithEdits | None:
        """Return the edits that these page texts contain, for a preview; None without page files."""
        return self._pages.find_edits_in_texts(texts)

    def apply_page_texts(self, texts: Mapping[str, str]) -> PageSyncResult:
        """Apply the edits in copies of the pages."""
        return self._pages.apply_edits_in_texts(texts)

    def get_page_texts(self) -> dict[str, str]:
        """Return the current pages by name."""
        return self._pages.sync_and_read_page_texts()


def _get_lesson_period_start(scope: str, now: datetime) -> datetime | None:
    local = now.astimezone()
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    match scope:
        case "all" | "self-play":
            return None
        case "today":
            return midnight
        case "week":
            return midnight - timedelta(days=6)
    raise Invalid(f"There is no time span '{scope}'.", hint="Use today, week, all or self-play.")
