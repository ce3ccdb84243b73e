"""Learning put together: the learner of a session, and what teaches memory from transcripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from habitus.app.growth.remedies import remedy_of
from habitus.app.home import Clock
from habitus.errors import NotFound
from habitus.learning.acc.monitor import Mode
from habitus.learning.cerebellum import Cerebellum
from habitus.learning.observer import Learner, LessonKeeper, TakesNothing
from habitus.learning.remedies.calls import Call
from habitus.learning.transcripts.ledger import TurnLedger
from habitus.learning.transcripts.model import SkillUse
from habitus.learning.transcripts.study import Applier
from habitus.llm.model import Model
from habitus.memory.cortex import Cortex
from habitus.redact import Redactor
from habitus.settings import AccMode, MemoryMode

if TYPE_CHECKING:
    from habitus.app.home import Home


def open_learner(
    home: Home,
    keeper: LessonKeeper,
    model: Model | None,
    lessons: Cortex | None = None,
    *,
    learns: bool = True,
) -> Learner:
    """What learns from errors in one session; `model` is the cheap one, none where no model is to be asked.

    `lessons` is where remedies for what fails are looked up.
    """
    settings = home.settings
    is_off = not learns or settings.memory is MemoryMode.OFF
    mode = Mode.OFF if is_off else Mode(settings.acc_mode.value)
    cells = Cerebellum(model, keeper.encode, spending=home.spending, redactor=home.redactor)

    def remedy(call: Call) -> str:
        return remedy_of(lessons, call, home.project) if lessons else ""

    return Learner(keeper, cells, mode=mode, redactor=home.redactor, remedy=remedy)


def open_adviser(home: Home) -> Learner:
    """What says beside a failure what it shows, and learns nothing: it sees only a part of what happens."""
    settings = home.settings
    is_off = settings.memory is MemoryMode.OFF or settings.acc_mode is AccMode.OFF
    cells = Cerebellum(None, TakesNothing().encode, spending=home.spending, redactor=home.redactor)
    return Learner(TakesNothing(), cells, mode=Mode.OFF if is_off else Mode.ACTIVE, redactor=home.redactor)


def open_applier(home: Home, keeper: LessonKeeper, redactor: Redactor) -> Applier:
    """What teaches memory from transcripts."""

    def count_skill(use: SkillUse) -> bool:
        name = use.skill.rpartition(":")[2]  # a plugin's skill is written plugin:name
        if use.success is False:  # it was not loaded, so it was neither shown nor used
            return False
        try:
            home.skills.find(name)  # counting does not look at the directories
            home.skills.count_recommended(name)
            home.skills.count_use(name)
        except NotFound:
            return False
        return True

    return Applier(
        keeper,
        turn_ledger(home.shared, home.clock),
        redactor=redactor,
        count_skill=count_skill,
        user=home.settings.user,
        project=home.project,
    )


def turn_ledger(shared: sa.Engine, clock: Clock) -> TurnLedger:
    """Which turns of transcripts have been learned from."""
    return TurnLedger(shared, clock=clock)
