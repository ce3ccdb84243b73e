"""Outcomes of turns, stated or inferred from the next request, and the credit for what served a success."""

from __future__ import annotations

import re
from collections.abc import Sequence

from habitus.agent.user_memory import UserProjectMemory
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal
from habitus.journal.model import JudgementSourceKind, SkillPlacementKind, TurnOutcome
from habitus.journal.usage import NEXT_TURN
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.layers.listing import LibrarySnapshot

# The source of a judgement that was inferred.
SIGNAL = "signal"
MODEL = "model"  # the model judges its own work
_EXPLICIT = 1.0
# How much a successful request teaches search: less if only the signals suggest success.
SEEMED_GOOD, SAID_GOOD = 0.5, 1.0


def record_judgement_and_credit_success(
    journal: Journal, finder: SkillFinder, memory: UserProjectMemory, turn: str, said: TurnOutcome, *, user: str | None
) -> None:
    """Record a judgement of a turn and, if it succeeded, credit what helped. `user` None may judge every turn."""
    judged = journal.find_brief_turn(journal.record_outcome(turn, said, user=user))
    # The text of an old turn may have been deleted.
    if said.kind is OutcomeKind.OK and judged is not None and judged.is_real:
        loaded = [entry.name for entry in judged.selected if entry.place is SkillPlacementKind.LOADED]
        credit_skills_and_lessons_of_request(finder, memory, judged.request, loaded, SAID_GOOD * said.weight)


def credit_skills_and_lessons_of_request(
    finder: SkillFinder,
    memory: UserProjectMemory,
    request: str,
    loaded: Sequence[str],
    weight: float,
    *,
    at: LibrarySnapshot | None = None,
) -> None:
    """Teach search which skills served a successful request, and memory which lessons were shown."""
    for name in loaded:
        finder.learn_request(name, request, weight=weight, at=at)
    memory.credit_lessons_for_successful_request(request)


def build_full_weight_outcome(
    kind: OutcomeKind, source: str, source_kind: JudgementSourceKind, reason: str = ""
) -> TurnOutcome:
    """Return a judgement with full weight, by a person, a validator or the calling program."""
    return TurnOutcome(kind=kind, weight=_EXPLICIT, source=source, source_kind=source_kind, reason=reason)


def infer_outcome_from_next_request(before: str, now: str) -> TurnOutcome | None:
    """Judge the previous turn by the next request: a correction or repetition means failure. None otherwise."""
    if is_correction_of_last_answer(now):
        return build_inferred_outcome(OutcomeKind.FAILED, 0.4, NEXT_TURN, "the user corrected it")
    if _is_repetition_of_previous_request(before, now):
        return build_inferred_outcome(OutcomeKind.FAILED, 0.3, NEXT_TURN, "the user asked the same again")
    return None


def build_inferred_outcome(kind: OutcomeKind, weight: float, source: str, reason: str) -> TurnOutcome:
    """Return an outcome that nobody stated, with the weight of the sign that it was inferred from."""
    return TurnOutcome(kind=kind, weight=weight, source=source, source_kind=JudgementSourceKind.SIGNAL, reason=reason)


_CORRECTION = re.compile(
    r"""(?ix) ^\W* (?:
        no [,.!—-] | nope\b | wrong\b | incorrect\b
      | (?:that|this|it)(?:['’]s|\s+is|\s+was)? \s+ (?:not\s+(?:what|right|correct|it)|wrong|incorrect)
      | (?:that|it) \s+ (?:did\s*n['’]?o?t|does\s*n['’]?o?t) \s+ work
      | you (?:['’]re|\s+are|\s+got|\s+did|\s+have|\s+made) \b .{0,20} \b (?:wrong|mistake|mistaken)
      | you (?:['’]ve|\s+have)? \s+ (?:misunderstood|forgot|forgotten|missed) \b
      | i \s+ (?:said|meant|asked\s+for|did\s*n['’]?t\s+ask)
      | not \s+ what \s+ i
      | try \s+ again
      | nein [,.!—-] | falsch\b | das \s+ (?:ist|war) \s+ (?:falsch|nicht) | ich \s+ meinte
      | non [,.!—-] | c['’]est \s+ faux | ce \s+ n['’]est \s+ pas
      | está \s+ mal | eso \s+ no | no \s+ es \s+ (?:eso|lo)
    )"""
)


def is_correction_of_last_answer(text: str) -> bool:
    """Whether a request begins by saying that the last answer was wrong."""
    return _CORRECTION.match(text[:200]) is not None


# Eight of ten words in common is the same request in other words.
def _is_repetition_of_previous_request(before: str, now: str) -> bool:
    a, b = (set(re.findall(r"\w+", text[:2000].lower())) for text in (before, now))
    if min(len(a), len(b)) < 3:
        return before.strip().lower() == now.strip().lower() and bool(now.strip())
    return len(a & b) / len(a | b) >= 0.8
