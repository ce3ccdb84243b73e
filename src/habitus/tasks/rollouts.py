"""A rollout: one attempt at a task. The same record is planned, judged, stored, compared and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from habitus.events import Outcome, OutcomeKind
from habitus.llm.model import TokenUsage
from habitus.text import clean_to_one_line

LOST = "lost"  # the outcome of a rollout whose process was killed
PASSED = "passed"
SAID = "said: "  # begins the reply in a record, after the calls


class TaskSplit(StrEnum):
    PRACTICE = "practice"  # drafters read its rollouts
    GATE = "gate"  # only scores come back
    EXAM = "exam"  # asked once for each accepted change


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One attempt at a task. Those that ended as `infra` or lost are paid for and count for neither version.

    The first line of `record` is the reason of the outcome, the rest is what the solver did.
    """

    id: str = ""
    skill: str = ""  # none in self-play
    run: str
    side: TaskSplit
    round: int
    task: str
    is_new: bool  # solved with the candidate (in a trial: with the skill), else with today's version
    version: int = 0
    candidate: str = ""  # of practice: the program that solves, none for our own agent; or `trial`
    outcome: str = ""  # an OutcomeKind, or lost; empty while it runs
    is_opened: bool = False  # the skill's text was shown to the model
    is_followed: bool = False  # and its text left a trace
    tokens: int = 0
    steps: int = 0
    dollars: float = 0.0
    record: str = ""
    at: datetime | None = None  # when it ended, once it is stored

    def with_outcome(
        self,
        outcome: Outcome,
        did: str = "",
        *,
        usage: TokenUsage | None = None,
        steps: int = 0,
        is_opened: bool = False,
        is_followed: bool = False,
    ) -> Rollout:
        """Return the finished rollout."""
        used = usage or TokenUsage()
        return replace(
            self,
            outcome=outcome.kind.value,
            is_opened=is_opened,
            is_followed=is_followed,
            tokens=used.input_tokens + used.output_tokens,
            steps=steps,
            dollars=used.cost or 0.0,
            record=f"{clean_to_one_line(outcome.reason) or PASSED}\n{did}",
        )

    @property
    def is_counted(self) -> bool:
        return self.outcome in (OutcomeKind.OK.value, OutcomeKind.FAILED.value)

    @property
    def is_ok(self) -> bool:
        return self.outcome == OutcomeKind.OK.value

    @property
    def is_infra(self) -> bool:
        return self.outcome == OutcomeKind.INFRA.value

    @property
    def reason(self) -> str:
        return self.record.partition("\n")[0]

    @property
    def solver_actions(self) -> str:
        """What the solver did, in words."""
        return self.record.partition("\n")[2]

    @property
    def reply(self) -> str:
        """What the solver answered; empty if it ended without an answer."""
        return f"\n{self.solver_actions}".rpartition(f"\n{SAID}")[2] if SAID in self.solver_actions else ""
