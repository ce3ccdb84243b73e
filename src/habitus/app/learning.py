"""Learning put together: memory as those who learn see it, and the learner of a session."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from habitus.errors import NotFound
from habitus.learning.acc.monitor import Mode
from habitus.learning.cerebellum import Cerebellum
from habitus.learning.learned import Kept, KeptAs, Learned, LearnedBy, LessonKeeper
from habitus.learning.observer import Learner
from habitus.learning.transcripts.applying import Applier
from habitus.learning.transcripts.model import SkillUse
from habitus.llm.model import Model
from habitus.llm.roles import Models
from habitus.memory.model import Draft, Evidence, Producer
from habitus.redact import Redactor
from habitus.settings import MemoryMode

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus
    from habitus.memory.cortex import Cortex


def open_learner(habitus: Habitus, keeper: LessonKeeper, model: Model | None) -> Learner:
    """What learns from errors in one session; `model` is the cheap one, none where no model is to be asked."""
    settings = habitus.settings
    mode = Mode.OFF if settings.memory is MemoryMode.OFF else Mode(settings.acc_mode.value)
    cells = Cerebellum(model, keeper.encode, spending=habitus.spending, redactor=habitus.redactor)
    return Learner(keeper, cells, mode=mode, redactor=habitus.redactor)


def open_applier(habitus: Habitus, keeper: LessonKeeper, redactor: Redactor) -> Applier:
    """What teaches memory from transcripts."""

    def count_skill(use: SkillUse) -> bool:
        name = use.skill.rpartition(":")[2]  # a plugin's skill is written plugin:name
        if use.success is False:  # it was not loaded, so it was neither shown nor used
            return False
        try:
            habitus.skills.count_recommended(name)
            habitus.skills.count_use(name)
        except NotFound:
            return False
        return True

    return Applier(
        keeper,
        habitus.learned_turns,
        redactor=redactor,
        count_skill=count_skill,
        user=habitus.settings.user,
        project=habitus.project,
    )


def models_named(habitus: Habitus, name: str) -> Models:
    """A model by its name, whatever the settings say."""
    from habitus.app.models import models  # a provider's library, for those who call a model

    return models(habitus.settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)


def lesson_keeper(habitus: Habitus) -> LessonKeeper:
    """The memory of this home, as those who learn see it. It works in a thread beside the session's own view."""
    return MemoryKeeper(habitus)


class MemoryKeeper:
    def __init__(self, habitus: Habitus) -> None:
        self._habitus = habitus

    @functools.cached_property
    def _cortex(self) -> Cortex:
        return self._habitus.open_memory()

    def is_taking(self) -> bool:
        return self._habitus.settings.memory is not MemoryMode.OFF and self._habitus.pause.state() is None

    def encode(self, learned: Learned) -> Kept:
        found = learned.evidence
        encoded = self._cortex.encode(
            Draft(
                text=learned.text,
                kind=learned.kind,
                scope=learned.scope,
                confidence=learned.confidence,
                topic=learned.topic,
                source=learned.source,
                evidence=Evidence(error_signature=found.error_signature, trace=found.trace, detector=found.detector),
                user=learned.user,
                project=learned.project,
                produced_by=_PRODUCERS[learned.producer],
            )
        )
        return Kept(status=KeptAs(encoded.status.value), reason=encoded.reason)

    def has_similar(self, text: str) -> bool:
        return self._cortex.has_similar(text)

    def ignored(self, rules: Sequence[str]) -> None:
        self._cortex.ignored(rules)


_PRODUCERS = {LearnedBy.DETECTOR: Producer.DETECTOR, LearnedBy.CEREBELLUM: Producer.CEREBELLUM}
