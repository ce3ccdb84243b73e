"""Record a person's or a program's judgement of a turn, with the credit that a success gives."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.agent.recording.outcomes import build_full_weight_outcome, record_judgement_and_credit_success
from habitus.agent.user_memory import UserProjectMemory
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.home_directory import OUTBOX_DIR
from habitus.events import OutcomeKind
from habitus.journal.model import JudgementSourceKind, TurnOutcome
from habitus.journal.outbox import JournalOutbox
from habitus.text import clean_to_one_line

# For another process that writes pending turns, perhaps the one to judge.
_REPLAY_WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnJudgementResult:
    """A judged turn with its request and the recorded outcome."""

    turn: str
    request: str
    outcome: TurnOutcome


def record_turn_judgement(
    home: Home, turn: str, *, ok: bool, by: str, source_kind: JudgementSourceKind, reason: str = ""
) -> TurnJudgementResult:
    """Record whether a turn succeeded; `turn` is its id or the caller's own id. An admin may judge anyone's turns."""
    refuse_if_read_only(home)
    user = None if home.settings.is_admin else home.settings.user
    kind = OutcomeKind.OK if ok else OutcomeKind.FAILED
    said = build_full_weight_outcome(kind, clean_to_one_line(by), source_kind, home.redact(clean_to_one_line(reason)))
    # A turn that ended while the database was busy may still be in the outbox.
    JournalOutbox(home.writable_dir / OUTBOX_DIR, home.redactor).replay_into_journal(
        home.journal, wait_s=_REPLAY_WAIT_S
    )
    judged = home.journal.find_brief_turn(turn, user=user)
    # The text of the turn may be erased by now; the outcome still counts.
    if judged is None:
        return TurnJudgementResult(turn=home.journal.record_outcome(turn, said, user=user), request="", outcome=said)
    is_own = judged.user == home.settings.user
    cortex = home.memory if is_own else home.open_memory(user=judged.user)
    memory = UserProjectMemory(cortex=cortex, user=judged.user, project=home.project)
    record_judgement_and_credit_success(home.journal, home.finder, memory, judged.id, said, user=judged.user)
    return TurnJudgementResult(turn=judged.id, request=judged.request, outcome=said)
