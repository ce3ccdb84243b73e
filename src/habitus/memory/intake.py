"""The intake of memory: decides whether a draft is stored, waits for review or is refused, and turns it into a lesson.

Descriptions may enter automatically; instructions that could steer the agent may not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from anyascii import anyascii

from habitus.errors import Invalid
from habitus.memory.model import (
    MAX_LESSON_CHARACTERS,
    REVIEW_FREE_CONFIDENCE,
    TRUST_ORDER,
    Engram,
    LessonCounters,
    LessonDraft,
    LessonDraftOutcome,
    LessonDraftResult,
    LessonKind,
    LessonProducer,
    LessonScope,
    LessonState,
    SelfPlayLessonBody,
    TrustLevel,
    parse_lesson_kind,
    parse_lesson_scope,
)
from habitus.memory.repository import EngramRepository
from habitus.redact import Redactor
from habitus.screening.findings import RiskLevel, ScreeningPolicy
from habitus.screening.readable import normalize_lookalikes
from habitus.settings import MemoryLearningMode
from habitus.text import clean_to_one_line

_MODEL_PRODUCERS = (LessonProducer.MODEL, LessonProducer.CEREBELLUM, LessonProducer.DREAM)


def explain_draft_refusal(draft: LessonDraft) -> str:
    """Return why a cleaned draft can't be stored at all; empty if it can."""
    if not draft.text:
        return "there is no text in it"
    if len(draft.text) > MAX_LESSON_CHARACTERS:
        return f"it has {len(draft.text):,} characters; a lesson has at most {MAX_LESSON_CHARACTERS:,}"
    return ""


def find_draft_review_reason(
    draft: LessonDraft, kind: LessonKind, mode: MemoryLearningMode, *, is_shared: bool, screening: ScreeningPolicy
) -> str:
    """Return why a person has to review the draft first; empty if nobody has to."""
    if draft.trust is TrustLevel.USER:
        return ""
    # A detector's texts are our own, so there is nothing to screen.
    if draft.produced_by is not LessonProducer.DETECTOR:
        needs_screening = not (_is_learned_from_own_errors(draft) or _is_proved_by_trial(draft))
        found = (find_text_objection(text, screening) for text in _list_draft_texts(draft) if needs_screening)
        if objection := next(filter(None, found), ""):
            return objection
        if kind.is_rule:
            return "it would be a standing rule, which only a person can approve"
    if mode is MemoryLearningMode.COPILOT and draft.confidence < REVIEW_FREE_CONFIDENCE:
        return f"confidence {draft.confidence:.1f} is below {REVIEW_FREE_CONFIDENCE}, and memory is in copilot mode"
    if is_shared and draft.produced_by in _MODEL_PRODUCERS:
        return "a model wrote it, and this database is shared"
    return ""


def _is_learned_from_own_errors(draft: LessonDraft) -> bool:
    """Whether nobody else could have put the words there: redaction and undo are enough then."""
    return draft.is_own and draft.produced_by is LessonProducer.CEREBELLUM


def _is_proved_by_trial(draft: LessonDraft) -> bool:
    return draft.verified and draft.produced_by is LessonProducer.DREAM


def _list_draft_texts(draft: LessonDraft) -> list[str]:
    body = draft.body
    return [draft.text, *((body.trigger, body.anti_pattern, body.correct_pattern) if body else ())]


def determine_draft_trust(draft: LessonDraft) -> TrustLevel:
    """Return the trust a draft deserves: only a person's own words, or confirmed ones, count as a person's."""
    if draft.produced_by is LessonProducer.USER:
        return TrustLevel.USER
    if draft.produced_by in (LessonProducer.MODEL, LessonProducer.TRANSCRIPTS):
        return draft.trust
    return TrustLevel.VERIFIED if draft.verified or draft.trust is TrustLevel.VERIFIED else TrustLevel.AUTOMATIC


def merge_engrams(known: Engram, new: Engram) -> Engram:
    """Merge two engrams that say the same: counts add up, the longer text wins, domains are combined."""
    # A pending or less trusted engram must not reword an existing one.
    may_reword = new.state is LessonState.ACTIVE and _get_trust_rank(new.trust) >= _get_trust_rank(known.trust)
    is_reworded = may_reword and len(new.text) > len(known.text)
    is_said_by_person = new.trust is TrustLevel.USER
    body = new.body if is_reworded and new.body else known.body
    if body is not None:
        domains = (*(known.body.domains if known.body else ()), *(new.body.domains if new.body else ()))
        body = replace(body, domains=tuple(dict.fromkeys(domains)))
    return replace(
        known,
        text=new.text if is_reworded else known.text,
        body=body,
        confidence=max(known.confidence, new.confidence),
        trust=new.trust if may_reword else known.trust,
        verified=known.verified or (may_reword and new.verified),
        evidence=replace(
            known.evidence, imported=tuple(dict.fromkeys((*known.evidence.imported, *new.evidence.imported)))
        ),
        state=LessonState.ACTIVE if is_said_by_person else known.state,
        reason="" if is_said_by_person else known.reason,
        counters=_add_counters(known.counters, new.counters),
    )


def _get_trust_rank(trust: TrustLevel) -> int:
    return TRUST_ORDER.index(trust)


def _add_counters(a: LessonCounters, b: LessonCounters) -> LessonCounters:
    return replace(
        a,
        frequency=a.frequency + b.frequency,
        retrievals=a.retrievals + b.retrievals,
        helpful=a.helpful + b.helpful,
        last_retrieved=max(filter(None, (a.last_retrieved, b.last_retrieved)), default=None),
    )


def build_edited_engram(before: Engram, after: Engram) -> Engram:
    """Return the lesson as a person edited it; it now counts as theirs, but a pending one stays pending."""
    why = explain_draft_refusal(LessonDraft(text=after.text, kind=after.kind))
    if why:
        raise Invalid(f"The lesson can't be stored: {why}.", hint="Write it in one sentence.")
    if after == before or before.state is LessonState.PENDING:
        return after
    return replace(after, trust=TrustLevel.USER)


def build_removed_engram(engram: Engram, by: str, reason: str = "removed") -> Engram:
    """Return the lesson as removed, with who removed it and why."""
    if engram.state.is_archived:
        raise Invalid(f"'{engram.id}' is in the archive already.", hint=f"See 'habitus lessons restore {engram.id}'.")
    return replace(engram, state=LessonState.REMOVED, reason=f"{reason} by {by}")


def build_restored_engram(engram: Engram) -> Engram:
    """Return an archived lesson as active."""
    if engram.state is LessonState.ACTIVE:
        raise Invalid(f"'{engram.id}' is not in the archive.", hint="See 'habitus lessons archive'.")
    if engram.state is LessonState.PENDING:
        raise Invalid(f"'{engram.id}' is pending review.", hint=f"Run 'habitus review approve {engram.id}'.")
    return _build_active_engram(engram)


def build_approved_engram(engram: Engram) -> Engram:
    """Return a pending lesson as active."""
    _require_pending(engram)
    return _build_active_engram(engram)


def build_rejected_engram(engram: Engram, by: str, reason: str) -> Engram:
    """Return a pending lesson as rejected; if a model proposed it, its agent will be told why."""
    _require_pending(engram)
    why = f"{reason[:500].rstrip('.') or 'no reason given'} ({by})"
    return replace(engram, state=LessonState.REJECTED, reason=why, is_untold=engram.produced_by is LessonProducer.MODEL)


def _require_pending(engram: Engram) -> None:
    if engram.state is not LessonState.PENDING:
        raise Invalid(f"'{engram.id}' is not pending; it is {engram.state.value}.", hint="See 'habitus review list'.")


def _build_active_engram(engram: Engram) -> Engram:
    return replace(engram, state=LessonState.ACTIVE, reason="", is_untold=False, trust=TrustLevel.USER).with_counts(
        missed=0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonDraftIntake:
    """Cleans drafts and stores them as engrams, or merges them with engrams that say the same."""

    ledger: EngramRepository
    redactor: Redactor
    mode: MemoryLearningMode
    is_shared: bool
    user: str
    new_id: Callable[[], str]
    screening: ScreeningPolicy
    # Called with each engram that starts to wait for review.
    on_pending: Callable[[Engram], None] = lambda engram: None

    def clean_draft_and_count_secrets(self, draft: LessonDraft) -> tuple[LessonDraft, Mapping[str, int]]:
        """Return the draft without secrets, line breaks and invisible characters, and the number of secrets by kind."""
        taken = self.redactor.redact(draft.text)
        body, evidence = draft.body, draft.evidence
        return replace(
            draft,
            text=clean_to_one_line(taken.text),
            topic=normalize_topic(self.clean_text(draft.topic)),
            source=self.clean_text(draft.source),
            confidence=0.0 if math.isnan(draft.confidence) else min(max(draft.confidence, 0.0), 1.0),
            trust=determine_draft_trust(draft),
            body=body
            and SelfPlayLessonBody(
                trigger=self.clean_text(body.trigger),
                anti_pattern=self.clean_text(body.anti_pattern),
                correct_pattern=self.clean_text(body.correct_pattern),
                domains=tuple(map(self.clean_text, body.domains)),
                source_challenge_hash=self.clean_text(body.source_challenge_hash),
            ),
            evidence=replace(
                evidence,
                error_signature=self.clean_text(evidence.error_signature),
                trace=self.clean_text(evidence.trace),
                session=self.clean_text(evidence.session),
            ),
            user=clean_to_one_line(draft.user) or self.user,
            project=clean_to_one_line(draft.project),
        ), taken.counts

    def clean_text(self, text: str) -> str:
        """Return the text as one line, with secrets redacted."""
        return clean_to_one_line(self.redactor.redact(text).text)

    def store_draft(self, draft: LessonDraft) -> LessonDraftResult:
        """Store a cleaned draft as a new engram, or reinforce an engram that already says the same."""
        self.ledger.cache.sync()
        # Before the transaction: building the index may take long and reads the database itself.
        index = self.ledger.cache.get_updated_search_index()
        wanted = self._build_engram(draft)
        with self.ledger.write_transaction():
            twin = self.ledger.cache.find_duplicate(wanted, index)
            if twin is None:
                (saved,) = self.ledger.save([wanted], draft.produced_by.value, wanted.reason or "new")
                if saved.state is LessonState.PENDING:
                    self.on_pending(saved)
                return self._apply_cap_and_build_result(saved, LessonDraftOutcome.STORED, "new")
            # A person decided against it once, so only a person can bring it back.
            is_closed = twin.state in (LessonState.REJECTED, LessonState.REMOVED)
            if is_closed and draft.trust is not TrustLevel.USER:
                reason = f"rejected: {twin.reason}" if twin.state is LessonState.REJECTED else f"it was {twin.reason}"
                return LessonDraftResult(status=LessonDraftOutcome.REFUSED, engram=twin, reason=reason)
            (saved,) = self.ledger.save([merge_engrams(twin, wanted)], draft.produced_by.value, "said again")
            return self._apply_cap_and_build_result(
                saved, LessonDraftOutcome.REINFORCED, f"says the same as {saved.id}"
            )

    def _apply_cap_and_build_result(self, saved: Engram, status: LessonDraftOutcome, reason: str) -> LessonDraftResult:
        if saved.state is LessonState.PENDING:
            return LessonDraftResult(status=LessonDraftOutcome.PENDING, engram=saved, reason=saved.reason)
        return LessonDraftResult(
            status=status, engram=saved, reason=reason, archived=self.ledger.enforce_lesson_cap(saved)
        )

    def _build_engram(self, draft: LessonDraft) -> Engram:
        kind, scope = parse_lesson_kind(draft.kind), parse_lesson_scope(draft.scope)
        is_taught = draft.produced_by in (LessonProducer.MODEL, LessonProducer.CEREBELLUM, LessonProducer.TRANSCRIPTS)
        is_of_conversation = is_taught or draft.produced_by is LessonProducer.DETECTOR
        if self.is_shared and is_taught and draft.trust is TrustLevel.AUTOMATIC:
            # In a shared database, a conversation teaches only its own user until a person widens the scope.
            scope = LessonScope.USER
        wait = find_draft_review_reason(draft, kind, self.mode, is_shared=self.is_shared, screening=self.screening)
        return Engram(
            id=self.new_id(),
            text=draft.text,
            kind=kind,
            scope=scope,
            owner={LessonScope.USER: draft.user, LessonScope.PROJECT: draft.project}.get(scope, ""),
            confidence=draft.confidence,
            topic=draft.topic,
            source=draft.source or draft.produced_by.value,
            trust=draft.trust,
            produced_by=draft.produced_by,
            evidence=replace(draft.evidence, user=draft.user if is_of_conversation else ""),
            body=draft.body,
            counters=draft.counters,
            verified=draft.verified,
            state=LessonState.PENDING if wait else LessonState.ACTIVE,
            reason=wait,
            created_on=draft.created_on,
        )


def normalize_topic(text: str) -> str:
    """Normalize a topic to lower case, digits and hyphens."""
    return re.sub(r"[^\w-]+", "-", text.lower()).strip("-_")[:40]


_MAX_CHARACTERS = 4_000
_SPACED_OUT = re.compile(r"(?:\b\w[ .·_-]){4,}\w\b")
_LEET = re.compile(r"[a-z][013457@$][a-z]|\b[013457@$][a-z]{3}")
_LEET_LETTERS = str.maketrans("013457@$", "oieastas")
_MIXED = re.compile(r"\b(?=\w*[A-Za-z])(?=\w*[\u0370-\u04ff])\w+\b")


def find_text_objection(text: str, policy: ScreeningPolicy = ScreeningPolicy()) -> str:  # noqa: B008 - a frozen value
    """Return why this text needs review, what it would do and the words that say so; empty for an ordinary one."""
    from habitus.screening.scanner import (
        scan_prompt_text_for_threats,
    )  # its parsers are needed only once something is screened

    # Bounded, because a text of any length arrives here before it is refused for its length.
    for reading in _iterate_deobfuscated_readings(text[:_MAX_CHARACTERS]):
        for found in scan_prompt_text_for_threats(reading, policy):
            if found.severity is RiskLevel.HIGH:
                concern = f"it {found.why[:1].lower()}{found.why[1:].rstrip('.')}"
                return f"{concern}: “{found.quote if len(found.quote) <= 60 else f'{found.quote[:59]}…'}”"
    return ""


def _iterate_deobfuscated_readings(text: str) -> Iterator[str]:
    """Yield the text as a model would read it, with each kind of obfuscation undone."""
    seen = _MIXED.sub(lambda word: anyascii(word.group()), normalize_lookalikes(text))
    yield seen
    lower = seen.casefold()
    # A command in capitals runs as it stands in no shell, but a model reads it as the command that it spells.
    if lower != seen:
        yield lower
    if _SPACED_OUT.search(lower):
        yield re.sub(r"(?<=\b\w)[ .·_-](?=\w\b)", "", lower)
    if _LEET.search(lower):
        yield lower.translate(_LEET_LETTERS)
