"""A turn so far, as the journal keeps it, and how it seems to have gone when nobody has said so."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from habitus.agent.history import pack
from habitus.agent.prompt import Composed
from habitus.agent.user_input import UserInput
from habitus.events import OK, Event, Outcome, OutcomeKind
from habitus.journal.model import Exposure, Place, Selected, Turn, TurnOutcome
from habitus.llm.model import Message, Usage
from habitus.memory.model import SCRATCHPAD
from habitus.skills.model import Skill, Summary
from habitus.skills.selection import Selection

AT_RANDOM = "withheld from this conversation at random (evidence.withhold)"
_MOST_LINES = 2000  # of a menu that are written down for one turn


@dataclass(kw_only=True, eq=False)
class TurnState:
    """All that is known of a turn so far."""

    id: str
    said: UserInput
    began_on: datetime
    selection: Selection | None = None
    composed: Composed | None = None
    shown_tools: set[str] | None = None  # by name, those that the model was shown; None for all there are
    loaded: tuple[Skill, ...] = ()  # brought up by the model, the person or another skill, known at the end
    asked: frozenset[str] = frozenset()  # of those, what the model itself asked for
    messages: Sequence[Message] = ()  # as far as whoever runs the loop has them
    events: list[Event] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    rounds: int = 0
    reply: str = ""
    outcome: Outcome = OK
    judged_by: str = ""  # who said how it went; nobody where the outcome is only what the signals tell
    is_capped: bool = False
    is_cancelled: bool = False

    @property
    def shows_pad(self) -> bool:
        """Whether the model saw the scratchpad, and with it the lessons in its description."""
        return self.shown_tools is None or SCRATCHPAD in self.shown_tools


def journal_turn(
    turn: TurnState,
    *,
    session: str,
    ended_on: datetime | None,
    exposures: Sequence[Exposure] = (),
    withheld: Collection[str] = (),
) -> Turn:
    """`exposures` are those that began in it or were used, `withheld` the skills that chance keeps from it.

    Of a turn that has not ended, only what was asked.
    """
    request = turn.said.request
    kept = Turn(
        id=turn.id,
        session=session,
        request=request.text,
        started_on=turn.began_on,
        ended_on=ended_on,
        caller_id=turn.said.caller_id,
        source_type=request.source_type,
        user=request.user.name,
        conversation=request.conversation,
        reply_to=request.reply_to,
        messages=tuple(pack(message) for message in turn.messages),
        events=tuple(turn.events),
        usage=_usage(turn),
    )
    if ended_on is None:
        return kept
    return replace(
        kept,
        selected=(*_selected_skills(turn, withheld), *(_loaded_skill(skill, turn) for skill in turn.loaded)),
        exposures=tuple(exposures),
        outcomes=() if turn.is_cancelled else (_went(turn),),
    )


def _went(turn: TurnState) -> TurnOutcome:
    if turn.judged_by == MODEL:
        return by_itself(turn.outcome)
    if turn.judged_by:
        return explicit(turn.outcome.kind, turn.judged_by, turn.outcome.reason)
    return judge_end(turn.outcome, capped=turn.is_capped)


def _usage(turn: TurnState) -> dict[str, float]:
    used = turn.usage
    counted: dict[str, float] = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cached_tokens": used.cached_tokens,
        "rounds": turn.rounds,
    }
    return counted if used.cost is None else {**counted, "cost": used.cost}


def _selected_skills(turn: TurnState, withheld: Collection[str]) -> list[Selected]:
    """Where selection put what; nothing where no prompt was made of it."""
    if turn.selection is None or turn.composed is None or turn.composed.menu is None:
        return []
    cut = set(turn.composed.menu.cut)
    chosen = [
        _placed_skill(choice.summary, Place.STICKY if choice.is_sticky else Place.EAGER, choice.reason)
        for choice in turn.selection.eager
    ]
    menu = [
        _placed_skill(summary, Place.CUT, "no room on the menu")
        if summary.name in cut
        else _placed_skill(summary, Place.MENU, "eligible")
        for summary in turn.selection.menu[:_MOST_LINES]
    ]
    found = [
        replace(one, place=Place.WITHHELD, reason=AT_RANDOM) if one.name in withheld else one
        for one in (*chosen, *menu)
    ]
    out = [Selected(name=name, place=Place.LEFT_OUT, reason=why) for name, why in turn.selection.left_out.items()]
    return [*found, *out[:_MOST_LINES]]


def _loaded_skill(skill: Skill, turn: TurnState) -> Selected:
    invoked = turn.said.invoked
    is_by_person = invoked is not None and invoked.name == skill.name and skill.name not in turn.asked
    came = "the person asked for it" if is_by_person else "it came with another"
    return _placed_skill(skill, Place.LOADED, "the model asked for it" if skill.name in turn.asked else came)


def _placed_skill(skill: Summary, place: Place, reason: str) -> Selected:
    return Selected(name=skill.name, place=place, reason=reason, layer=skill.layer, version=skill.version)


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
