"""Keeps the pages that people edit in sync with memory, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from habitus.errors import StorageFailed
from habitus.memory import intake, page_files
from habitus.memory.intake import LessonDraftIntake
from habitus.memory.model import (
    HIGH_CONFIDENCE,
    Engram,
    LessonDraft,
    LessonDraftOutcome,
    LessonProducer,
    LessonScope,
    LessonState,
    TrustLevel,
)
from habitus.memory.page_files import MemoryPageFiles, PagesWithEdits, ParsedPageLine

log = logging.getLogger(__name__)

_MAX_WRITE_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSyncResult:
    """The edits that were read back from the pages."""

    added: tuple[Engram, ...] = ()
    changed: tuple[Engram, ...] = ()
    removed: tuple[Engram, ...] = ()
    # Anything unusual, as messages for the person.
    notes: tuple[str, ...] = ()


class MemoryPageSynchronizer:
    """Reads and writes the pages of one user's memory; does nothing without files."""

    def __init__(self, files: MemoryPageFiles | None, intake: LessonDraftIntake) -> None:
        self._files = files
        self._intake = intake
        self._ledger = intake.ledger
        self._mirror = intake.ledger.cache
        self._user = intake.user

    def sync(self) -> PageSyncResult:
        """Apply the edits that people made in the pages, and rewrite them."""
        if self._files is None:
            return PageSyncResult()
        self._ledger.check_writable()
        looked = PageSyncResult()
        with self._files.lock() as is_ours:
            # Someone may save a page while we write, which is then read again; without the lock, its holder does this.
            for _ in range(_MAX_WRITE_ATTEMPTS if is_ours else 0):
                found = self._files.read_pages_and_find_edits()
                looked = _merge_sync_results(looked, self._apply_edits(found))
                if self._files.write_pages_unless_saved_meanwhile(self._render_texts(found), found):
                    break
        return looked

    def find_edits_in_texts(self, texts: Mapping[str, str]) -> PagesWithEdits | None:
        """Return the edits that these page texts contain, for a preview; None without page files."""
        return None if self._files is None else self._files.find_person_edits_in_texts(texts)

    def apply_edits_in_texts(self, texts: Mapping[str, str]) -> PageSyncResult:
        """Apply the edits in copies of the pages."""
        if self._files is None:
            return PageSyncResult()
        self.sync()
        found = self._files.find_person_edits_in_texts(texts)
        with self._files.lock():
            looked = self._apply_edits(found)
            self._files.write_pages_unless_saved_meanwhile(self._render_texts(found), None)
        return looked

    def sync_and_read_page_texts(self) -> dict[str, str]:
        """Return the current pages by name."""
        self.sync()
        return {} if self._files is None else self._files.read_texts()

    def sync_if_changed(self) -> None:
        """Sync the pages if a file has changed."""
        if self._files is not None and self._files.has_any_file_changed():
            self.sync()

    def sync_after_change_logging_failures(self) -> None:
        """Update the index and the pages after a change; a failure is only logged."""
        if self._files is not None:
            # The change is already stored, and the next sync will show it.
            try:
                self.sync()
            except StorageFailed as error:
                log.warning("Your change is stored; the pages in memory/ do not show it yet: %s", error.message)

    def rewrite_pages_and_delete_renderings(self) -> None:
        """Rewrite the pages and delete their renderings, because an old one may contain erased text."""
        if self._files is not None:
            self.sync()
            self._files.delete_renderings()
            self.sync()

    def _render_texts(self, found: PagesWithEdits) -> dict[str, str]:
        self._mirror.sync()
        shown = [e for e in self._mirror.list_active() if e.is_visible_to(self._user)]
        bad = {
            name: page_files.redact_unparsed_lines(page.bad, lambda raw: self._intake.redactor.redact(raw).text)
            for name, page in found.pages.items()
        }
        return {one.name: page_files.render_page(one, shown, bad.get(one.name, ())) for one in page_files.PAGE_SPECS}

    def _apply_edits(self, found: PagesWithEdits) -> PageSyncResult:
        """Apply a person's edits of the pages."""
        self._mirror.sync()
        notes = [*found.notes]
        for name, page in found.pages.items():
            notes += [f"{name}, line {bad.number}: {bad.reason}; it stays unchanged." for bad in page.bad]
        looked = PageSyncResult(notes=tuple(notes))
        for line in found.edits.changed:
            looked = _merge_sync_results(looked, self._apply_changed_line(line, found.has_base))
        for line in found.edits.new:
            looked = _merge_sync_results(looked, self._apply_new_line(line))
        for line in found.edits.removed:
            looked = _merge_sync_results(looked, self._apply_removed_line(line))
        return looked

    def _apply_changed_line(self, line: ParsedPageLine, has_base: bool) -> PageSyncResult:
        old = self._mirror.engrams.get(line.id)
        if old is None:
            return self._import_line_with_unknown_id(line)
        if old.state is not LessonState.ERASED and not old.is_visible_to(self._user):
            return self._apply_new_line(line)
        text = self._intake.clean_text(line.text)
        after = replace(old, text=text, kind=line.kind, scope=line.scope or old.scope, topic=line.topic)
        if old.state is LessonState.ERASED or after == old or (not has_base and old.state is not LessonState.ACTIVE):
            return PageSyncResult()
        if intake.explain_draft_refusal(LessonDraft(text=text, kind=line.kind)):
            return PageSyncResult(notes=(f"'{text[:40]}…' is too long; it stays as it was.",))
        if after.scope is not old.scope:
            if not self._ledger.viewer.can_remove(old):
                return PageSyncResult(notes=(f"{line.id} applies to all users; only an admin may change that.",))
            if after.scope is LessonScope.PROJECT:
                return PageSyncResult(
                    notes=(f"{line.id}: a page can't say which project is meant; use 'habitus lessons edit'.",)
                )
            after = replace(after, owner=self._user if after.scope is LessonScope.USER else "")
        after = replace(after, state=LessonState.ACTIVE, reason="", trust=TrustLevel.USER)
        with self._ledger.write_transaction():
            return PageSyncResult(changed=self._ledger.save([after], self._user, "edited in the page"))

    def _import_line_with_unknown_id(self, line: ParsedPageLine) -> PageSyncResult:
        """Import a line whose id the database does not know: the page is newer than the database."""
        scope = line.scope or LessonScope.USER
        owner = self._user if scope is LessonScope.USER else ""
        engram = Engram(
            id=line.id,
            text=self._intake.clean_text(line.text),
            kind=line.kind,
            scope=scope,
            owner=owner,
            topic=line.topic,
            source="page",
        )
        with self._ledger.write_transaction():
            return PageSyncResult(added=self._ledger.save([engram], self._user, "found in the page"))

    def _apply_new_line(self, line: ParsedPageLine) -> PageSyncResult:
        draft = LessonDraft(
            text=line.text,
            kind=line.kind,
            scope=line.scope or LessonScope.USER,
            topic=line.topic,
            confidence=HIGH_CONFIDENCE,
            source="page",
            produced_by=LessonProducer.USER,
        )
        cleaned, _ = self._intake.clean_draft_and_count_secrets(draft)
        refusal = intake.explain_draft_refusal(cleaned)
        if refusal:
            return PageSyncResult(notes=(f"'{line.text[:40]}…' was not stored: {refusal}.",))
        encoded = self._intake.store_draft(cleaned)
        if encoded.engram is None:
            return PageSyncResult(notes=(encoded.reason,))
        if encoded.status is LessonDraftOutcome.REINFORCED:
            return PageSyncResult(notes=(f"'{line.text[:60]}' {encoded.reason}.",))
        return PageSyncResult(added=(encoded.engram,))

    def _apply_removed_line(self, line: ParsedPageLine) -> PageSyncResult:
        engram = self._mirror.engrams.get(line.id)
        if engram is None or engram.state is not LessonState.ACTIVE or not engram.is_visible_to(self._user):
            return PageSyncResult()
        if not self._ledger.viewer.can_remove(engram):
            return PageSyncResult(notes=(f"{engram.id} applies to all users; only an admin may remove it.",))
        # The person deleted an older text than the current one.
        if engram.text != line.text:
            return PageSyncResult(notes=(f"{engram.id} has changed since you saw it; it stays.",))
        with self._ledger.write_transaction():
            return PageSyncResult(
                removed=self._ledger.save([intake.build_removed_engram(engram, self._user)], self._user, "removed")
            )


def _merge_sync_results(a: PageSyncResult, b: PageSyncResult) -> PageSyncResult:
    return PageSyncResult(
        added=(*a.added, *b.added),
        changed=(*a.changed, *b.changed),
        removed=(*a.removed, *b.removed),
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
    )
