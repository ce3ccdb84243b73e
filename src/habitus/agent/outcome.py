"""How a turn went when nobody has said so: weak signals with weights, never more than an explicit word.

signal                                      says      weight
the provider did not answer                 infra     1.0   (nobody's mistake, and no doubt about it)
the round cap was reached                   failed    0.5
a tool failed last, and nothing made it good failed   0.3
the answer was empty                        failed    0.3
the user corrects it in the next turn       failed    0.4
the user asks the same again                failed    0.3
the model says so itself                    either    0.25  (more than silence, less than a call that failed)
it ended without any of these               ok        0.2
"""

from __future__ import annotations

import re

from habitus.events import Outcome, OutcomeKind
from habitus.journal.model import TurnOutcome

SIGNAL = "signal"  # the source of a judgement that nobody spoke
LATER = "next turn"
MODEL = "model"  # it judges its own work

_EXPLICIT = 1.0
_BY_ITSELF = 0.25
_WEIGHTS = {OutcomeKind.INFRA: 1.0, OutcomeKind.FAILED: 0.3, OutcomeKind.OK: 0.2}
_CAP = 0.5


def by_itself(outcome: Outcome) -> TurnOutcome:
    """The model's own word on its work."""
    return TurnOutcome(kind=outcome.kind, weight=_BY_ITSELF, source=MODEL, reason=outcome.reason)


def judge_end(outcome: Outcome, *, capped: bool) -> TurnOutcome:
    """The judgement of a turn by how it ended."""
    weight = _CAP if capped else _WEIGHTS[outcome.kind]
    return TurnOutcome(kind=outcome.kind, weight=weight, source=SIGNAL, reason=outcome.reason)


def explicit(kind: OutcomeKind, source: str, reason: str = "") -> TurnOutcome:
    """Somebody who knows has said so: a person, a validator, the program that asked."""
    return TurnOutcome(kind=kind, weight=_EXPLICIT, source=source, reason=reason)


def by_next_request(before: str, now: str) -> TurnOutcome | None:
    """What the next thing a person says tells of the turn before it."""
    if is_correction(now):
        return TurnOutcome(kind=OutcomeKind.FAILED, weight=0.4, source=LATER, reason="the user corrected it")
    if _is_repetition(before, now):
        return TurnOutcome(kind=OutcomeKind.FAILED, weight=0.3, source=LATER, reason="the user asked the same again")
    return None


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


def is_correction(text: str) -> bool:
    """Whether a request begins by saying that the last answer was wrong. Only the beginning is looked at."""
    return _CORRECTION.match(text[:200]) is not None


def _is_repetition(before: str, now: str) -> bool:
    a, b = (set(re.findall(r"\w+", text[:2000].lower())) for text in (before, now))
    if min(len(a), len(b)) < 3:
        return before.strip().lower() == now.strip().lower() and bool(now.strip())
    return len(a & b) / len(a | b) >= 0.8
