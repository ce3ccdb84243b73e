"""Uses of skills as tests need them: recorded through the journal, with the result of their own code or none."""

from __future__ import annotations

import secrets

from habitus.app.home import Home
from habitus.events import OutcomeKind
from habitus.journal.model import ItemUse, UseManner
from habitus.skills.model import Stage


def record_use(
    home: Home,
    name: str,
    *,
    stage: Stage = Stage.STEPS,
    succeeded: bool | None = None,
    turn: str = "",
    manner: UseManner = UseManner.RAN,
) -> None:
    """Record one use of a skill as it is now."""
    item = home.skills.find(name)
    assert item.summary is not None
    id = f"run:{secrets.token_hex(8)}"
    results = {True: OutcomeKind.OK, False: OutcomeKind.FAILED, None: None}
    home.journal.record_use(
        ItemUse(
            id=id,
            turn=turn or id,
            item=item.name,
            layer=home.skills.get_layer(item.layer).store.key,
            version=item.summary.version,
            stage=stage.value,
            manner=manner,
            result=results[succeeded],
            at=home.clock(),
            user=home.settings.user,
        )
    )
