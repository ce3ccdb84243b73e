"""The records of the journal: a turn with its request, messages, events, selected skills, exposures and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlencode

from habitus.events import AgentEvent, OutcomeKind
from habitus.plain_data import INTERNAL


class TurnOrigin(StrEnum):
    """Why a turn took place, which decides whether its exposures and outcomes count as evidence."""

    # A request that a user or agent actually needed answered.
    REAL = "real"
    # Self-play and other exercises.
    PRACTICE = "practice"
    # One variant of a paired trial: its assignment counts for lift, but not as a use.
    TRIAL = "trial"
    # An earlier request asked again to compare the answers.
    REPLAY = "replay"


SYNTHETIC_SOURCE_TYPES = {
    "dream": TurnOrigin.PRACTICE,
    "practice": TurnOrigin.PRACTICE,
    "trial": TurnOrigin.TRIAL,
    "replay": TurnOrigin.REPLAY,
}


def classify_turn_origin(source_type: str) -> TurnOrigin:
    """Return the origin of a turn with this source type."""
    return SYNTHETIC_SOURCE_TYPES.get(source_type, TurnOrigin.REAL)


class JudgementSourceKind(StrEnum):
    """The kind of a judgement's source, from the weakest to the strongest; the door sets it, not the caller's text."""

    # Inferred from how the turn ended, or from the next request.
    SIGNAL = "signal"
    # The model about its own work.
    MODEL = "model"
    PROGRAM = "program"
    VALIDATOR = "validator"
    PERSON = "person"

    @cached_property
    def rank(self) -> int:
        """The position in the order above."""
        return list(JudgementSourceKind).index(self)


class UseManner(StrEnum):
    """How an item was used, or that it was only shown."""

    # Loaded because the model asked for it.
    ASKED = "asked"
    # Shown, and it left a trace in the turn.
    TRACE = "trace"
    # Shown for the request, and it left none: recommended, but no use.
    SHOWN = "shown"
    # Its code or recipe ran.
    RAN = "ran"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemUse:
    """One use of a stage of a skill; contains no text and outlives its turn."""

    id: str
    # An id of its own if it was used outside a turn, from the command line.
    turn: str
    item: str
    # The key of the layer's store, which is unique across projects.
    layer: str
    version: int
    stage: str
    manner: UseManner
    at: datetime
    user: str
    origin: TurnOrigin = TurnOrigin.REAL
    # The recipe that ran, if any.
    part: str = ""
    # How its own code or steps ended; None if it has none, or if there was an outage.
    result: OutcomeKind | None = None
    # False if a higher stage of the skill acted in the turn: that one gets credit and blame.
    is_credited: bool = True


class SkillPlacementKind(StrEnum):
    """The slot in which the selection put a skill."""

    EAGER = "eager"
    # In full only because an earlier turn of the conversation had it.
    STICKY = "sticky"
    MENU = "menu"
    # Eligible, but its line did not fit into the menu.
    CUT = "cut"
    LEFT_OUT = "left_out"
    # The model asked for it.
    LOADED = "loaded"
    # Eligible, but left out of this conversation at random.
    WITHHELD = "withheld"


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectedSkill:
    """A skill of a turn with its slot and the reason."""

    name: str
    place: SkillPlacementKind
    reason: str
    layer: str = ""
    version: int = 0


# The kind of exposure that says which version of a skill a conversation got: offered is the new one.
CHANGE = "change"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExposureAssignment:
    """An item that a conversation was offered, or that was withheld from it at random; contains no text.

    Items in the steady part of the prompt are assigned when the session opens, others when they are first chosen.
    """

    kind: str  # skill, lesson, recipe, tool, change
    item: str
    version: int = 0
    is_steady: bool = False
    # False if withheld.
    is_offered: bool = True
    # The probability with which it was offered.
    propensity: float = 1.0
    # The kind of the request at which the item was assigned.
    request_kind: str = ""
    # The cost of the offer in one turn.
    tokens: int = 0
    # A skill that was loaded or left a trace, a tool that was called, a lesson that was read.
    is_used: bool = False
    # Loaded, but without a trace in the turn.
    is_ignored: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredExposure:
    """A recorded exposure with the scores of its conversation from then on."""

    exposure: ExposureAssignment
    # The conversation.
    unit: str
    # The turn in which the exposure began.
    turn: str
    at: datetime
    origin: TurnOrigin = TurnOrigin.REAL
    # 1 or 0 for each later turn with explicit feedback.
    explicit_scores: tuple[float, ...] = ()
    # The same by weak signals, for turns without explicit feedback.
    inferred_scores: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExposureBatch:
    """All exposures of the conversations that began until a time and were in no batch before, in order of time."""

    until: datetime
    exposures: list[ScoredExposure]


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedEvidenceSums:
    """Cached sums over all conversations that began before `until`, as bytes, and the number of resets before them."""

    # The row of the count is made with the first sums or the first reset.
    changes: int = 0
    until: datetime | None = None
    sums: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialVariantCounts:
    """The number of trial conversations in which an item was offered, and withheld."""

    IN_JSON: ClassVar = ("links",)

    item: str
    version: int
    offered: int
    withheld: int
    kind: str = field(metadata=INTERNAL)

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the conversations that each count counts, below the root of REST."""
        about = urlencode({"kind": self.kind, "name": self.item, "version": self.version, "of": "trials"})
        address = f"/evidence/rows?{about}"
        return {"offered": f"{address}&offered=true", "withheld": f"{address}&offered=false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOutcome:
    """One outcome of a turn; the heaviest counts, of equal ones that of the strongest source, then the latest."""

    kind: OutcomeKind
    # 1 for explicit feedback, less for weak signals.
    weight: float
    # Where the outcome comes from: user, validator, api, signal …
    source: str
    reason: str = ""
    at: datetime | None = None
    source_kind: JudgementSourceKind = JudgementSourceKind.PROGRAM


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnMessage:
    """One message of a turn as the journal stores it."""

    role: str
    content: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A recorded turn: one request of a user or agent and everything that followed until the reply."""

    id: str
    session: str
    request: str
    started_on: datetime
    ended_on: datetime | None = None
    # The caller's own id, under which feedback may arrive later.
    caller_id: str = ""
    source_type: str = "repl"
    user: str = "local"
    conversation: str = ""
    reply_to: str = ""
    # The folder of the project it was held in; empty if unknown.
    project: str = field(default="", metadata=INTERNAL)
    # The host that has this folder; empty if the database belongs to one.
    host: str = field(default="", metadata=INTERNAL)
    messages: tuple[TurnMessage, ...] = ()
    events: tuple[AgentEvent, ...] = ()
    selected: tuple[SelectedSkill, ...] = ()
    # Only those that began in this turn.
    exposures: tuple[ExposureAssignment, ...] = ()
    # Those known at the end of the turn; code and recipes record theirs when they run.
    uses: tuple[ItemUse, ...] = ()
    outcomes: tuple[TurnOutcome, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)  # tokens and cost

    @property
    def is_real(self) -> bool:
        """False for practice, trials and replays."""
        return classify_turn_origin(self.source_type) is TurnOrigin.REAL


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFilter:
    """Which turns to find; an empty field matches any. `user=None` means all users."""

    user: str | None = None
    # Searched in the request.
    text: str = ""
    source_type: str = ""
    # A skill that was used; `*` means any.
    skill: str = ""
    # The id of a lesson that was chosen for a request of the conversation, beginning with this turn.
    lesson: str = ""
    # The name of the count that counts the turn, such as "failed".
    verdict: str = ""
    since: datetime | None = None
    before: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionSummary:
    """A session in the journal's list."""

    id: str
    started_on: datetime
    last_turn_on: datetime
    turns: int
    user: str
    title: str
