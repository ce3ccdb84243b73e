"""What use teaches about engrams: how often they were shown, what they helped with, which of them may go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from habitus.memory import model
from habitus.memory import recall as recalling
from habitus.memory.ledger import EngramLedger
from habitus.memory.model import Engram, LessonState, TrustLevel
from habitus.search import Results

log = logging.getLogger(__name__)

Choose = Callable[[Sequence[Engram]], Sequence[int]]


def shown_in_prompt(ledger: EngramLedger, ids: Iterable[str], cut: Iterable[str]) -> list[Engram]:
    """These were shown in a prompt; `cut` are the rules that found no room. Says which rules have aged out."""
    now = ledger.clock()
    shown, missed = list(dict.fromkeys(ids)), list(dict.fromkeys(cut))
    with ledger.counting([*shown, *missed]) as found:
        for id in shown:
            if id in found:
                counters = found[id].counters
                found[id] = found[id].with_counts(retrievals=counters.retrievals + 1, last_retrieved=now, missed=0)
                _log_retrieval(found[id])
        for id in missed:
            if id in found:
                found[id] = found[id].with_counts(missed=found[id].counters.missed + 1)
    return [found[id] for id in missed if id in found and _has_aged_out(found[id], ledger.keep.misses)]


def credit_lessons(ledger: EngramLedger, request: str, lessons: Mapping[str, Engram]) -> tuple[str, ...]:
    """The request went well: credit the lessons shown for it in the last minutes, as far as they fit it."""
    now, recent = ledger.clock(), timedelta(seconds=model.CREDIT_SECONDS)
    shown = {id for id, engram in lessons.items() if _was_shown_since(engram, now - recent)}
    found = ledger.mirror.search(request, lessons) if shown else Results()
    fitting = [hit.id for hit in found.hits if hit.id in shown and recalling.fits(hit)]
    credited: list[str] = []
    with ledger.counting(fitting) as engrams:
        for id, engram in engrams.items():
            if _was_shown_since(engram, now - recent):
                engrams[id] = engram.with_counts(helpful=engram.counters.helpful + 1, credited_on=now)
                credited.append(id)
    return tuple(credited)


def count_ignored(ledger: EngramLedger, rules: Iterable[str]) -> tuple[str, ...]:
    """Rules, by id or text, whose detector fired again although they were in the prompt."""
    ledger.mirror.sync()
    wanted = {rule.casefold() for rule in rules}
    ids = [e.id for e in ledger.mirror.active() if e.id in wanted or e.text.casefold() in wanted]
    with ledger.counting(ids) as found:
        for id, engram in found.items():
            found[id] = engram.with_counts(ignored=engram.counters.ignored + 1)
    return tuple(ids)


def aged(ledger: EngramLedger, *, with_twins: bool) -> list[Engram]:
    """Lessons that may go, each with its reason; with twins, also those that another one says."""
    ledger.mirror.sync()
    lessons = list(ledger.mirror.active())
    gone = model.to_prune(lessons, ledger.keep, ledger.clock())
    return [*gone, *_said_twice(ledger, lessons, {engram.id for engram in gone})] if with_twins else gone


def _said_twice(ledger: EngramLedger, lessons: Iterable[Engram], gone: set[str]) -> Iterator[Engram]:
    """Of those that say the same, all but the most useful; what a person or a trial stands behind stays."""
    index = ledger.mirror.index()
    for engram in sorted(lessons, key=lambda engram: (model.utility(engram), engram.id)):
        if engram.is_pinned or engram.id in gone:
            continue
        twin = ledger.mirror.twin(engram, index)
        if twin is not None and twin.state is LessonState.ACTIVE and twin.id not in gone:
            gone.add(engram.id)
            yield replace(engram, reason=f"{twin.id} says the same")


def left_by(ledger: EngramLedger, choose: Choose | None) -> list[Engram]:
    """What a choice lets go, where a kind has too many entries in a place; nothing if it fails or makes no sense.

    Without a choice the least useful go, and lessons stay: those have a cap of their own.
    """
    ledger.mirror.sync()
    most = ledger.keep.entries
    groups: dict[object, list[Engram]] = {}
    for engram in sorted(ledger.mirror.active(), key=lambda e: e.id):
        if choose is not None or not engram.kind.is_lesson:
            groups.setdefault((engram.kind, engram.place), []).append(engram)
    gone: list[Engram] = []
    for entries in groups.values():
        if len(entries) > most:
            gone += _let_go(entries, choose or (lambda entries: model.most_useful(entries, most)))
    return gone


def _log_retrieval(engram: Engram) -> None:
    challenge = engram.body.source_challenge_hash if engram.body else ""
    log.debug("retrieved %s source=%s source_challenge_hash=%s", engram.id, engram.source, challenge)


def _has_aged_out(engram: Engram, misses: int) -> bool:
    is_due = engram.counters.missed >= misses
    return is_due and engram.state is LessonState.ACTIVE and engram.trust is not TrustLevel.USER


def _was_shown_since(engram: Engram, moment: datetime) -> bool:
    """Shown recently, and not yet credited for it."""
    shown, credited = engram.counters.last_retrieved, engram.counters.credited_on
    return shown is not None and shown >= moment and (credited is None or credited < shown)


def _let_go(entries: Sequence[Engram], choose: Choose) -> list[Engram]:
    try:
        return model.to_drop(entries, choose(entries))
    except Exception as error:  # the choice is somebody else's; whatever goes wrong with it, memory stays whole
        log.warning("Nothing was compacted: %s", error)
        return []
