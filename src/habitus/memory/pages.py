"""Keeps the pages that people edit in sync with memory, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from habitus.errors import StorageFailed
from habitus.memory import gate, views
from habitus.memory.gate import Intake
from habitus.memory.model import HIGH, Draft, Engram, LessonState, Producer, Scope, Status, TrustLevel
from habitus.memory.views import FoundPages, Line, ViewFiles

log = logging.getLogger(__name__)

_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """The edits that were read back from the pages."""

    added: tuple[Engram, ...] = ()
    changed: tuple[Engram, ...] = ()
    removed: tuple[Engram, ...] = ()
    # Anything unusual, as messages for the person.
    notes: tuple[str, ...] = ()


class Pages:
    """Reads and writes the pages of one user's memory; does nothing without files."""

    def __init__(self, files: ViewFiles | None, intake: Intake) -> None:
        self._files = files
        self._intake = intake
        self._ledger = intake.ledger
        self._mirror = intake.ledger.mirror
        self._user = intake.user

    def look(self) -> Looked:
        """Apply the edits that people made in the pages, and rewrite them."""
        if self._files is None:
            return Looked()
        self._ledger.allow()
        looked = Looked()
        with self._files.lock() as is_ours:
            # Someone may save a page while we write, which is then read again; without the lock, its holder does this.
            for _ in range(_TRIES if is_ours else 0):
                found = self._files.read()
                looked = _together(looked, self._apply(found))
                if self._files.write(self._texts(found), found):
                    break
        return looked

    def understood(self, texts: Mapping[str, str]) -> FoundPages | None:
        """Return the edits that these page texts contain, for a preview; None without page files."""
        return None if self._files is None else self._files.understood(texts)

    def apply_texts(self, texts: Mapping[str, str]) -> Looked:
        """Apply the edits in copies of the pages."""
        if self._files is None:
            return Looked()
        self.look()
        found = self._files.understood(texts)
        with self._files.lock():
            looked = self._apply(found)
            self._files.write(self._texts(found), None)
        return looked

    def texts(self) -> dict[str, str]:
        """Return the current pages by name."""
        self.look()
        return {} if self._files is None else self._files.texts()

    def notice(self) -> None:
        """Sync the pages if a file has changed."""
        if self._files is not None and self._files.have_changed():
            self.look()

    def show(self) -> None:
        """Update the index and the pages after a change; a failure is only logged."""
        if self._files is not None:
            # The change is already stored, and the next sync will show it.
            try:
                self.look()
            except StorageFailed as error:
                log.warning("Your change is kept; the pages in memory/ do not show it yet: %s", error.message)

    def forget(self) -> None:
        """Rewrite the pages and delete their renderings, because an old one may contain erased text."""
        if self._files is not None:
            self.look()
            self._files.forget_renderings()
            self.look()

    def _texts(self, found: FoundPages) -> dict[str, str]:
        self._mirror.sync()
        shown = [e for e in self._mirror.active() if e.is_open_to(self._user)]
        bad = {
            name: views.redact_lines(page.bad, lambda raw: self._intake.redactor.redact(raw).text)
            for name, page in found.pages.items()
        }
        return {view.name: views.render(view, shown, bad.get(view.name, ())) for view in views.VIEWS}

    def _apply(self, found: FoundPages) -> Looked:
        """Apply a person's edits of the pages."""
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
        if before.state is not LessonState.ERASED and not before.is_open_to(self._user):
            return self._apply_new(line)
        text = self._intake.clean(line.text)
        after = replace(before, text=text, kind=line.kind, scope=line.scope or before.scope, topic=line.topic)
        if (
            before.state is LessonState.ERASED
            or after == before
            or (not has_base and before.state is not LessonState.ACTIVE)
        ):
            return Looked()
        if gate.refusal(Draft(text=text, kind=line.kind)):
            return Looked(notes=(f"'{text[:40]}…' is too long; it stays as it was.",))
        if after.scope is not before.scope:
            if not self._ledger.viewer.may_remove(before):
                return Looked(notes=(f"{line.id} holds for everybody; only an admin may change that.",))
            if after.scope is Scope.PROJECT:
                return Looked(
                    notes=(f"{line.id}: a page can't say which project is meant; use 'habitus lessons edit'.",)
                )
            after = replace(after, owner=self._user if after.scope is Scope.USER else "")
        after = replace(after, state=LessonState.ACTIVE, reason="", trust=TrustLevel.USER)
        with self._ledger.writing():
            return Looked(changed=self._ledger.save([after], self._user, "edited in the page"))

    def _apply_unknown(self, line: Line) -> Looked:
        """Import a line whose id the database does not know: the page is newer than the database."""
        scope = line.scope or Scope.USER
        owner = self._user if scope is Scope.USER else ""
        engram = Engram(
            id=line.id,
            text=self._intake.clean(line.text),
            kind=line.kind,
            scope=scope,
            owner=owner,
            topic=line.topic,
            source="page",
        )
        with self._ledger.writing():
            return Looked(added=self._ledger.save([engram], self._user, "found in the page"))

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
        cleaned, _ = self._intake.clean_draft(draft)
        refusal = gate.refusal(cleaned)
        if refusal:
            return Looked(notes=(f"'{line.text[:40]}…' is not kept: {refusal}.",))
        encoded = self._intake.keep(cleaned)
        if encoded.engram is None:
            return Looked(notes=(encoded.reason,))
        if encoded.status is Status.REINFORCED:
            return Looked(notes=(f"'{line.text[:60]}' {encoded.reason}.",))
        return Looked(added=(encoded.engram,))

    def _apply_removed(self, line: Line) -> Looked:
        engram = self._mirror.engrams.get(line.id)
        if engram is None or engram.state is not LessonState.ACTIVE or not engram.is_open_to(self._user):
            return Looked()
        if not self._ledger.viewer.may_remove(engram):
            return Looked(notes=(f"{engram.id} holds for everybody; only an admin may take it away.",))
        # The person deleted an older text than the current one.
        if engram.text != line.text:
            return Looked(notes=(f"{engram.id} has changed since you saw it; it stays.",))
        with self._ledger.writing():
            return Looked(removed=self._ledger.save([gate.remove_engram(engram, self._user)], self._user, "removed"))


def _together(a: Looked, b: Looked) -> Looked:
    return Looked(
        added=(*a.added, *b.added),
        changed=(*a.changed, *b.changed),
        removed=(*a.removed, *b.removed),
        notes=tuple(dict.fromkeys((*a.notes, *b.notes))),
    )
