"""The gate of memory: decides whether a draft is stored, waits for review or is refused, and turns it into a lesson.

Descriptions may enter automatically; instructions that could steer the agent may not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from anyascii import anyascii

from habitus.errors import Invalid
from habitus.memory.ledger import EngramLedger
from habitus.memory.model import (
    LONGEST,
    SURE,
    TRUST_ORDER,
    Draft,
    Encoded,
    Engram,
    Kind,
    LessonBody,
    LessonCounters,
    LessonState,
    Producer,
    Scope,
    Status,
    TrustLevel,
    kind_of,
    scope_of,
)
from habitus.redact import Redactor
from habitus.screening.findings import Policy, Risk, excerpt_of, held_texts
from habitus.screening.readable import plain
from habitus.screening.rules import found_commands, intents, lesson_intents, neighbourhood
from habitus.screening.sentences import sentences
from habitus.settings import MemoryMode
from habitus.text import one_line

_WRITTEN_BY_MODELS = (Producer.MODEL, Producer.CEREBELLUM, Producer.DREAM)


def refusal(draft: Draft) -> str:
    """Return why a cleaned draft can't be stored at all; empty if it can."""
    if not draft.text:
        return "there is no text in it"
    if len(draft.text) > LONGEST:
        return f"it has {len(draft.text):,} characters; a lesson has at most {LONGEST:,}"
    return ""


def reason_to_wait(
    draft: Draft,
    kind: Kind,
    mode: MemoryMode,
    *,
    is_shared: bool,
    screening: Policy,
) -> str:
    """Return why a person has to review the draft first; empty if nobody has to."""
    if draft.trust is TrustLevel.USER:
        return ""
    # A detector's texts are our own, so there is nothing to screen.
    if draft.produced_by is not Producer.DETECTOR:
        found = (objection(text, screening) for text in _texts_of(draft))
        if first := next(filter(None, found), None):
            return first.reason
        if kind.is_rule:
            return "it wants to be a standing rule, and no person said it"
    if mode is MemoryMode.COPILOT and draft.confidence < SURE:
        return f"confidence {draft.confidence:.1f} is below {SURE}, and memory is in copilot mode"
    if is_shared and draft.produced_by in _WRITTEN_BY_MODELS:
        return "a model wrote it, and this database is shared"
    return ""


def _texts_of(draft: Draft) -> list[str]:
    body = draft.body
    return [draft.text, *((body.trigger, body.anti_pattern, body.correct_pattern) if body else ())]


def earned_trust(draft: Draft) -> TrustLevel:
    """Return the trust a draft deserves: only a person's own words, or confirmed ones, count as a person's."""
    if draft.produced_by is Producer.USER:
        return TrustLevel.USER
    if draft.produced_by in (Producer.MODEL, Producer.TRANSCRIPTS):
        return draft.trust
    return TrustLevel.VERIFIED if draft.verified or draft.trust is TrustLevel.VERIFIED else TrustLevel.AUTOMATIC


def merge_engrams(twin: Engram, wanted: Engram) -> Engram:
    """Merge two engrams that say the same: counts add up, the longer text wins, domains are combined."""
    # A pending or less trusted engram must not reword an existing one.
    may_reword = wanted.state is LessonState.ACTIVE and _rank(wanted.trust) >= _rank(twin.trust)
    is_reworded = may_reword and len(wanted.text) > len(twin.text)
    is_said_by_person = wanted.trust is TrustLevel.USER
    body = wanted.body if is_reworded and wanted.body else twin.body
    if body is not None:
        domains = (*(twin.body.domains if twin.body else ()), *(wanted.body.domains if wanted.body else ()))
        body = replace(body, domains=tuple(dict.fromkeys(domains)))
    return replace(
        twin,
        text=wanted.text if is_reworded else twin.text,
        body=body,
        confidence=max(twin.confidence, wanted.confidence),
        trust=wanted.trust if may_reword else twin.trust,
        verified=twin.verified or (may_reword and wanted.verified),
        evidence=replace(
            twin.evidence, imported=tuple(dict.fromkeys((*twin.evidence.imported, *wanted.evidence.imported)))
        ),
        state=LessonState.ACTIVE if is_said_by_person else twin.state,
        reason="" if is_said_by_person else twin.reason,
        counters=_add_counters(twin.counters, wanted.counters),
    )


def _rank(trust: TrustLevel) -> int:
    return TRUST_ORDER.index(trust)


def _add_counters(a: LessonCounters, b: LessonCounters) -> LessonCounters:
    return replace(
        a,
        frequency=a.frequency + b.frequency,
        retrievals=a.retrievals + b.retrievals,
        helpful=a.helpful + b.helpful,
        last_retrieved=max(filter(None, (a.last_retrieved, b.last_retrieved)), default=None),
    )


def edit_engram(before: Engram, after: Engram) -> Engram:
    """Return the lesson as a person edited it; it now counts as theirs, but a pending one stays pending."""
    why = refusal(Draft(text=after.text, kind=after.kind))
    if why:
        raise Invalid(f"That can't be kept: {why}.", hint="Say it in a sentence.")
    if after == before or before.state is LessonState.WAITING:
        return after
    return replace(after, trust=TrustLevel.USER)


def remove_engram(engram: Engram, by: str, why: str = "removed") -> Engram:
    """Return the lesson as removed, with who removed it and why."""
    if engram.state.is_put_away:
        raise Invalid(f"'{engram.id}' is in the archive already.", hint=f"See 'habitus lessons restore {engram.id}'.")
    return replace(engram, state=LessonState.REMOVED, reason=f"{why} by {by}")


def restore_engram(engram: Engram) -> Engram:
    """Return an archived lesson as active."""
    if engram.state is LessonState.ACTIVE:
        raise Invalid(f"'{engram.id}' is not in the archive.", hint="See 'habitus lessons archive'.")
    if engram.state is LessonState.WAITING:
        raise Invalid(f"'{engram.id}' waits for you.", hint=f"Run 'habitus review approve {engram.id}'.")
    return _activate(engram)


def approve_engram(engram: Engram) -> Engram:
    """Return a pending lesson as active."""
    _check_waits(engram)
    return _activate(engram)


def reject_engram(engram: Engram, by: str, reason: str) -> Engram:
    """Return a pending lesson as rejected; if a model proposed it, its agent will be told why."""
    _check_waits(engram)
    why = f"{reason[:500].rstrip('.') or 'no reason given'} ({by})"
    return replace(engram, state=LessonState.REJECTED, reason=why, is_untold=engram.produced_by is Producer.MODEL)


def _check_waits(engram: Engram) -> None:
    if engram.state is not LessonState.WAITING:
        raise Invalid(f"'{engram.id}' does not wait; it is {engram.state.value}.", hint="See 'habitus review list'.")


def _activate(engram: Engram) -> Engram:
    return replace(engram, state=LessonState.ACTIVE, reason="", is_untold=False, trust=TrustLevel.USER).with_counts(
        missed=0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Intake:
    """Cleans drafts and stores them as engrams, or merges them with engrams that say the same."""

    ledger: EngramLedger
    redactor: Redactor
    mode: MemoryMode
    is_shared: bool
    user: str
    new_id: Callable[[], str]
    screening: Policy
    # Called with each engram that starts to wait for review.
    tell: Callable[[Engram], None] = lambda engram: None

    def clean_draft(self, draft: Draft) -> tuple[Draft, Mapping[str, int]]:
        """Return the draft without secrets, line breaks and invisible characters, and the number of secrets by kind."""
        taken = self.redactor.redact(draft.text)
        body, evidence = draft.body, draft.evidence
        return replace(
            draft,
            text=one_line(taken.text),
            topic=topic_of(self.clean(draft.topic)),
            source=self.clean(draft.source),
            confidence=0.0 if math.isnan(draft.confidence) else min(max(draft.confidence, 0.0), 1.0),
            trust=earned_trust(draft),
            body=body
            and LessonBody(
                trigger=self.clean(body.trigger),
                anti_pattern=self.clean(body.anti_pattern),
                correct_pattern=self.clean(body.correct_pattern),
                domains=tuple(map(self.clean, body.domains)),
                source_challenge_hash=self.clean(body.source_challenge_hash),
            ),
            evidence=replace(
                evidence,
                error_signature=self.clean(evidence.error_signature),
                trace=self.clean(evidence.trace),
                session=self.clean(evidence.session),
            ),
            user=one_line(draft.user) or self.user,
            project=one_line(draft.project),
        ), taken.counts

    def clean(self, text: str) -> str:
        """Return the text as one line, with secrets redacted."""
        return one_line(self.redactor.redact(text).text)

    def keep(self, draft: Draft) -> Encoded:
        """Store a cleaned draft as a new engram, or reinforce an engram that already says the same."""
        self.ledger.mirror.sync()
        # Before the transaction: building the index may take long and reads the database itself.
        index = self.ledger.mirror.index()
        wanted = self._engram(draft)
        with self.ledger.writing():
            twin = self.ledger.mirror.twin(wanted, index)
            if twin is None:
                (saved,) = self.ledger.save([wanted], draft.produced_by.value, wanted.reason or "new")
                if saved.state is LessonState.WAITING:
                    self.tell(saved)
                return self._outcome(saved, Status.STORED, "new")
            # A person decided against it once, so only a person can bring it back.
            is_closed = twin.state in (LessonState.REJECTED, LessonState.REMOVED)
            if is_closed and draft.trust is not TrustLevel.USER:
                reason = (
                    f"turned down: {twin.reason}" if twin.state is LessonState.REJECTED else f"it was {twin.reason}"
                )
                return Encoded(status=Status.REFUSED, engram=twin, reason=reason)
            (saved,) = self.ledger.save([merge_engrams(twin, wanted)], draft.produced_by.value, "said again")
            return self._outcome(saved, Status.REINFORCED, f"says the same as {saved.id}")

    def _outcome(self, saved: Engram, status: Status, reason: str) -> Encoded:
        if saved.state is LessonState.WAITING:
            return Encoded(status=Status.WAITING, engram=saved, reason=saved.reason)
        return Encoded(status=status, engram=saved, reason=reason, archived=self.ledger.make_room(saved))

    def _engram(self, draft: Draft) -> Engram:
        kind, scope = kind_of(draft.kind), scope_of(draft.scope)
        is_taught = draft.produced_by in (Producer.MODEL, Producer.CEREBELLUM, Producer.TRANSCRIPTS)
        is_of_conversation = is_taught or draft.produced_by is Producer.DETECTOR
        if self.is_shared and is_taught and draft.trust is TrustLevel.AUTOMATIC:
            # In a shared database, a conversation teaches only its own user until a person widens the scope.
            scope = Scope.USER
        wait = reason_to_wait(draft, kind, self.mode, is_shared=self.is_shared, screening=self.screening)
        return Engram(
            id=self.new_id(),
            text=draft.text,
            kind=kind,
            scope=scope,
            owner={Scope.USER: draft.user, Scope.PROJECT: draft.project}.get(scope, ""),
            confidence=draft.confidence,
            topic=draft.topic,
            source=draft.source or draft.produced_by.value,
            trust=draft.trust,
            produced_by=draft.produced_by,
            evidence=replace(draft.evidence, user=draft.user if is_of_conversation else ""),
            body=draft.body,
            counters=draft.counters,
            verified=draft.verified,
            state=LessonState.WAITING if wait else LessonState.ACTIVE,
            reason=wait,
            created_on=draft.created_on,
        )


def topic_of(text: str) -> str:
    """Normalize a topic to lower case, digits and hyphens."""
    return re.sub(r"[^\w-]+", "-", text.lower()).strip("-_")[:40]


_LONGEST = 4_000
_MOST_SENTENCES = 24
_NOWHERE = neighbourhood((), "")
_SPACED_OUT = re.compile(r"(?:\b\w[ .·_-]){4,}\w\b")
_LEET = re.compile(r"[a-z][013457@$][a-z]|\b[013457@$][a-z]{3}")
_LEET_LETTERS = str.maketrans("013457@$", "oieastas")
_MIXED = re.compile(r"\b(?=\w*[a-z])(?=\w*[\u0370-\u04ff])\w+\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """A reason why a text needs review: the rule, the concern and the excerpt that matched."""

    rule: str
    concern: str
    found: str

    @property
    def reason(self) -> str:
        shown = self.found if len(self.found) <= 60 else f"{self.found[:59]}…"
        return f"{self.concern}: “{shown}”"


def objection(text: str, policy: Policy = Policy()) -> Objection | None:  # noqa: B008 - a frozen value
    """Return the first objection to storing this text without review; None for an ordinary one."""
    # Bounded, because a text of any length arrives here before it is refused for its length.
    for reading in _readings(text[:_LONGEST]):
        if found := next((one for one in _objections(reading, policy) if one.rule not in policy.silence), None):
            return found
    return None


def _objections(text: str, policy: Policy) -> Iterator[Objection]:
    """Yield objections by the user's hold words, harmful commands and intents."""
    lower = text.lower()
    for _, held, why in held_texts(lower, policy):
        yield Objection(rule="hold", concern=why, found=held)
    for match in found_commands(lower):
        is_forged = match.rule.name == "forged_turn"
        # Commands that need a network are harmless in a lesson without an address.
        if is_forged or (match.rule.in_code is Risk.HIGH and (not match.rule.needs or "://" in lower)):
            why = f"it holds a command. {match.rule.why.rstrip('.')}"
            yield Objection(rule=match.rule.name, concern=why, found=excerpt_of(lower[match.start : match.end]))
    for table, asked in (("words", intents()), ("lessons", lesson_intents())):
        for sentence in islice(sentences(text, _NOWHERE.kind, table), _MOST_SENTENCES):
            for intent in asked:
                if intent.concern and intent.is_met(sentence.words, sentence.own, sentence.around):
                    yield Objection(rule=intent.name, concern=intent.concern, found=excerpt_of(sentence.text))


def _readings(text: str) -> Iterator[str]:
    """Yield the text as a model would read it, with each kind of obfuscation undone."""
    seen = _MIXED.sub(lambda word: anyascii(word.group()), plain(text).casefold())
    yield seen
    if _SPACED_OUT.search(seen):
        yield re.sub(r"(?<=\b\w)[ .·_-](?=\w\b)", "", seen)
    if _LEET.search(seen):
        yield seen.translate(_LEET_LETTERS)
