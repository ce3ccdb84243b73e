"""Recall: chooses the profile lines, rules and lessons of a prompt, and counts how often they were shown and helped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from habitus.memory import model
from habitus.memory.model import TRUST_ORDER, Engram, LessonKind, LessonState, TrustLevel, compute_lesson_utility
from habitus.memory.repository import EngramRepository
from habitus.search.model import IndexHit, SearchResults
from habitus.text import estimate_tokens

# Measured on labelled requests (docs/decisions/memory.md): below it, unrelated requests would get lessons.
RELEVANCE_FLOOR = 0.335
MAX_LESSONS = 5
LESSON_TOKENS = 1000
RULE_TOKENS = 1500
PROFILE_TOKENS = 500
SCRATCHPAD_TOKENS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class RecalledLesson:
    """An engram chosen for a prompt; `score` is its relevance to the request, 0–1."""

    engram: Engram
    score: float = 0.0
    utility: float = 0.0

    @property
    def id(self) -> str:
        return self.engram.id

    @property
    def text(self) -> str:
        return self.engram.text

    @property
    def kind(self) -> LessonKind:
        return self.engram.kind

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.engram.text)

    @property
    def prompt_line(self) -> str:
        """The engram as the prompt shows it: a rule begins with its kind."""
        label = self.kind.heading
        return self.text if self.text.casefold().startswith(label.casefold()) else f"{label}: {self.text}"

    @property
    def is_from_self_play(self) -> bool:
        """True for a lesson from self-play, which belongs into the playbook."""
        return self.engram.body is not None

    @property
    def is_confirmed_by_person(self) -> bool:
        """True if a person said it, so it is never withheld."""
        return self.engram.trust is TrustLevel.USER


@dataclass(frozen=True, kw_only=True, slots=True)
class OmittedLesson:
    """A lesson that was not chosen, with the reason."""

    engram: Engram
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallResult:
    """The lessons for a request, each part within its budget, and those that were nearly chosen."""

    profile: tuple[RecalledLesson, ...] = ()
    rules: tuple[RecalledLesson, ...] = ()
    lessons: tuple[RecalledLesson, ...] = ()
    left_out: tuple[OmittedLesson, ...] = ()
    confidence: float = 0.0
    # Two equally good lessons, of which the first got the last slot at random.
    tied: tuple[RecalledLesson, RecalledLesson] | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in (*self.profile, *self.rules, *self.lessons))

    @property
    def omitted_rules(self) -> tuple[str, ...]:
        """The ids of the rules that did not fit."""
        return tuple(left.engram.id for left in self.left_out if left.engram.kind.is_rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetedLessonSelection:
    """Lessons that fit into a budget, and those left out."""

    selected: tuple[RecalledLesson, ...] = ()
    left_out: tuple[OmittedLesson, ...] = field(default_factory=tuple)


def fit_rules_or_profile_lines_to_budget(
    engrams: Iterable[Engram], relevance: Mapping[str, float], budget: int
) -> BudgetedLessonSelection:
    """Choose rules or profile lines within the budget: a person's first, then by relevance, then by utility."""
    ranked = sorted(
        (RecalledLesson(engram=e, score=relevance.get(e.id, 0.0), utility=compute_lesson_utility(e)) for e in engrams),
        key=lambda one: (-TRUST_ORDER.index(one.engram.trust), -one.score, -one.utility, one.id),
    )
    return _fit_ranked_to_budget(ranked, budget)


def select_relevant_lessons(
    results: SearchResults, engrams: Mapping[str, Engram], budget: int, max_lessons: int = MAX_LESSONS
) -> BudgetedLessonSelection:
    """Choose the lessons that are relevant to the request, by relevance and utility; none if nothing is."""
    near = [
        RecalledLesson(engram=engrams[h.id], score=h.score, utility=compute_lesson_utility(engrams[h.id]))
        for h in results.hits
        if h.id in engrams
    ]
    fitting = [one for one in near if one.score >= RELEVANCE_FLOOR]
    if not fitting:
        return BudgetedLessonSelection(
            left_out=tuple(
                OmittedLesson(engram=one.engram, reason="not relevant to the request") for one in near[:max_lessons]
            )
        )
    fitting.sort(key=lambda one: (-compute_recall_ordering_score(one), one.id))
    chosen = _fit_ranked_to_budget(fitting[:max_lessons], budget)
    beyond = tuple(
        OmittedLesson(engram=one.engram, reason="others are more relevant")
        for one in fitting[max_lessons : 2 * max_lessons]
    )
    return BudgetedLessonSelection(selected=chosen.selected, left_out=(*chosen.left_out, *beyond))


def compute_recall_ordering_score(recalled: RecalledLesson) -> float:
    """Return the score that orders lessons, from relevance and utility."""
    return recalled.score * (0.5 + recalled.utility)


def is_hit_relevant_by_itself(hit: IndexHit) -> bool:
    """Return whether a hit is relevant by itself, whatever else was found."""
    return hit.score >= RELEVANCE_FLOOR


def fit_engrams_to_budget(engrams: Iterable[Engram], budget: int) -> tuple[RecalledLesson, ...]:
    """Return the first engrams that fit into the budget."""
    return _fit_ranked_to_budget((RecalledLesson(engram=engram) for engram in engrams), budget).selected


def _fit_ranked_to_budget(ranked: Iterable[RecalledLesson], budget: int) -> BudgetedLessonSelection:
    taken: list[RecalledLesson] = []
    left_out: list[OmittedLesson] = []
    used = 0
    for one in ranked:
        if used + one.tokens > budget:
            left_out.append(OmittedLesson(engram=one.engram, reason=f"no room in {budget} tokens"))
        else:
            used += one.tokens
            taken.append(one)
    return BudgetedLessonSelection(selected=tuple(taken), left_out=tuple(left_out))


log = logging.getLogger(__name__)
CompactionChooser = Callable[[Sequence[Engram]], Sequence[int]]


def count_recall_and_list_aged_out_rules(
    ledger: EngramRepository, ids: Iterable[str], omitted: Iterable[str]
) -> list[Engram]:
    """Count engrams as shown, and the `omitted` rules as missed; return the rules that aged out."""
    now = ledger.clock()
    shown, missed = list(dict.fromkeys(ids)), list(dict.fromkeys(omitted))
    with ledger.update_counters_inside_block([*shown, *missed]) as found:
        for id in shown:
            if id in found:
                # A tool's description shows all its lessons to every request, so that says nothing against one.
                chosen = found[id].topic != model.SCRATCHPAD_TOPIC
                retrievals = found[id].counters.retrievals + chosen
                found[id] = found[id].with_counts(retrievals=retrievals, last_retrieved=now, missed=0)
                _log_retrieval(found[id])
        for id in missed:
            if id in found:
                found[id] = found[id].with_counts(missed=found[id].counters.missed + 1)
    return [found[id] for id in missed if id in found and _is_rule_omitted_too_often(found[id])]


def credit_recently_shown_relevant_lessons(
    ledger: EngramRepository, request: str, lessons: Mapping[str, Engram]
) -> tuple[str, ...]:
    """Credit the lessons shown for a successful request in the last minutes, if relevant; return their ids."""
    now, recent = ledger.clock(), timedelta(seconds=model.CREDIT_SECONDS)
    shown = {id for id, engram in lessons.items() if _was_shown_uncredited_since(engram, now - recent)}
    found = ledger.cache.search_lessons(request, lessons) if shown else SearchResults()
    fitting = [hit.id for hit in found.hits if hit.id in shown and is_hit_relevant_by_itself(hit)]
    credited: list[str] = []
    with ledger.update_counters_inside_block(fitting) as engrams:
        for id, engram in engrams.items():
            # Checked again inside the transaction: another process may have credited it meanwhile.
            if _was_shown_uncredited_since(engram, now - recent):
                counters = engram.counters
                # It fitted the request after all, which `count_recall_and_list_aged_out_rules` could not know.
                retrievals = counters.retrievals + (engram.topic == model.SCRATCHPAD_TOPIC)
                engrams[id] = engram.with_counts(retrievals=retrievals, helpful=counters.helpful + 1, credited_on=now)
                credited.append(id)
    return tuple(credited)


def record_ignored_rules(ledger: EngramRepository, rules: Iterable[str]) -> tuple[str, ...]:
    """Count rules (by id or text) whose detector fired although the prompt contained them; return their ids."""
    ledger.cache.sync()
    wanted = {rule.casefold() for rule in rules}
    ids = [e.id for e in ledger.cache.list_active() if e.id in wanted or e.text.casefold() in wanted]
    with ledger.update_counters_inside_block(ids) as found:
        for id, engram in found.items():
            found[id] = engram.with_counts(ignored=engram.counters.ignored + 1)
    return tuple(ids)


def list_prunable_lessons(ledger: EngramRepository, *, with_duplicates: bool) -> list[Engram]:
    """Return the lessons that may be archived, each with its reason; with `with_duplicates`, duplicates too."""
    ledger.cache.sync()
    lessons = list(ledger.cache.list_active())
    gone = model.select_prunable_lessons(lessons, ledger.retention.lesson_days, ledger.clock())
    return (
        [*gone, *_iterate_less_useful_duplicates(ledger, lessons, {engram.id for engram in gone})]
        if with_duplicates
        else gone
    )


def _iterate_less_useful_duplicates(
    ledger: EngramRepository, lessons: Iterable[Engram], gone: set[str]
) -> Iterator[Engram]:
    """Yield all but the most useful of lessons that say the same; pinned ones stay."""
    index = ledger.cache.get_updated_search_index()
    for engram in sorted(lessons, key=lambda engram: (model.compute_lesson_utility(engram), engram.id)):
        if engram.is_pinned or engram.id in gone:
            continue
        twin = ledger.cache.find_duplicate(engram, index)
        if twin is not None and twin.state is LessonState.ACTIVE and twin.id not in gone:
            gone.add(engram.id)
            yield replace(engram, reason=f"{twin.id} says the same")


def select_engrams_to_compact_away(ledger: EngramRepository, choose: CompactionChooser | None) -> list[Engram]:
    """Return the entries that a choice drops where a kind has too many in one scope; empty if the choice fails.

    Without a choice the least useful rules are dropped; lessons have a cap of their own.
    """
    ledger.cache.sync()
    most = model.MAX_ENTRIES
    groups: dict[object, list[Engram]] = {}
    for engram in sorted(ledger.cache.list_active(), key=lambda e: e.id):
        if choose is not None or not engram.kind.is_lesson:
            groups.setdefault((engram.kind, engram.scope_and_owner), []).append(engram)
    gone: list[Engram] = []
    for entries in groups.values():
        if len(entries) > most:
            gone += _select_engrams_dropped_by_choice(
                entries, choose or (lambda entries: model.select_indexes_kept_by_compaction(entries, most))
            )
    return gone


def _log_retrieval(engram: Engram) -> None:
    challenge = engram.body.source_challenge_hash if engram.body else ""
    log.debug("retrieved %s source=%s source_challenge_hash=%s", engram.id, engram.source, challenge)


def _is_rule_omitted_too_often(engram: Engram) -> bool:
    is_due = engram.counters.missed >= model.MAX_MISSES
    return is_due and engram.state is LessonState.ACTIVE and engram.trust is not TrustLevel.USER


def _was_shown_uncredited_since(engram: Engram, timestamp: datetime) -> bool:
    """Return whether it was shown since then and not yet credited for it."""
    shown, credited = engram.counters.last_retrieved, engram.counters.credited_on
    return shown is not None and shown >= timestamp and (credited is None or credited < shown)


def _select_engrams_dropped_by_choice(entries: Sequence[Engram], choose: CompactionChooser) -> list[Engram]:
    try:
        return model.select_dropped_by_compaction(entries, choose(entries))
    # The choice is a model's or a caller's; whatever fails in it, memory stays complete.
    except Exception as error:
        log.warning("Nothing was compacted: %s", error)
        return []
