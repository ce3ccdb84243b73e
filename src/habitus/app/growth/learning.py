"""Learning put together: the learner of a session, and what teaches memory from transcripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from habitus.app.growth.remedies import remedy_of
from habitus.errors import NotFound
from habitus.learning.acc.monitor import Mode
from habitus.learning.cerebellum import Cerebellum
from habitus.learning.observer import Learner, LessonKeeper, TakesNothing
from habitus.learning.remedies.calls import Call
from habitus.learning.transcripts.applying import Applier
from habitus.learning.transcripts.ledger import TurnLedger
from habitus.learning.transcripts.model import SkillUse
from habitus.llm.model import Model
from habitus.memory.cortex import Cortex
from habitus.redact import Redactor
from habitus.settings import AccMode, MemoryMode

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus


def open_learner(
    habitus: Habitus,
    keeper: LessonKeeper,
    model: Model | None,
    lessons: Cortex | None = None,
    *,
    learns: bool = True,
) -> Learner:
    """What learns from errors in one session; `model` is the cheap one, none where no model is to be asked.

    `lessons` is where remedies for what fails are looked up.
    """
    settings = habitus.settings
    is_off = not learns or settings.memory is MemoryMode.OFF
    mode = Mode.OFF if is_off else Mode(settings.acc_mode.value)
    cells = Cerebellum(model, keeper.encode, spending=habitus.spending, redactor=habitus.redactor)

    def remedy(call: Call) -> str:
        return remedy_of(lessons, call, habitus.project) if lessons else ""

    return Learner(keeper, cells, mode=mode, redactor=habitus.redactor, remedy=remedy)


def open_adviser(habitus: Habitus) -> Learner:
    """What says beside a failure what it shows, and learns nothing: it sees only a part of what happens."""
    settings = habitus.settings
    is_off = settings.memory is MemoryMode.OFF or settings.acc_mode is AccMode.OFF
    cells = Cerebellum(None, TakesNothing().encode, spending=habitus.spending, redactor=habitus.redactor)
    return Learner(TakesNothing(), cells, mode=Mode.OFF if is_off else Mode.ACTIVE, redactor=habitus.redactor)


def open_applier(habitus: Habitus, keeper: LessonKeeper, redactor: Redactor) -> Applier:
    """What teaches memory from transcripts."""

    def count_skill(use: SkillUse) -> bool:
        name = use.skill.rpartition(":")[2]  # a plugin's skill is written plugin:name
        if use.success is False:  # it was not loaded, so it was neither shown nor used
            return False
        try:
            habitus.skills.find(name)  # counting does not look at the directories
            habitus.skills.count_recommended(name)
            habitus.skills.count_use(name)
        except NotFound:
            return False
        return True

    return Applier(
        keeper,
        turn_ledger(habitus),
        redactor=redactor,
        count_skill=count_skill,
        user=habitus.settings.user,
        project=habitus.project,
    )


def turn_ledger(habitus: Habitus) -> TurnLedger:
    """Which turns of transcripts have been learned from."""
    return TurnLedger(habitus.shared, clock=habitus.clock)
