"""Uses of skills as tests need them, recorded through the journal; and the numbers of evidence, by their links."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

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


def list_evidence_numbers(finding: Mapping[str, Any]) -> list[tuple[int, dict[str, str]]]:
    """Return every count of conversations in the JSON of a finding, with the parameters of what it opens."""
    estimate, links = finding["estimate"], finding["links"]
    numbers = {name: estimate[name] for name in ("used", "ignored")}
    for variant in ("offered", "withheld"):
        numbers |= {f"{variant}_{name}": number for name, number in estimate[variant].items()}
        numbers[variant] = sum(estimate[variant].values())
        numbers[f"bound_{variant}"], numbers[f"trial_{variant}"] = (
            finding["bound"][variant],
            finding[f"trial_{variant}"],
        )
    assert numbers.keys() | {"sentence"} == links.keys() | {"sentence"}
    return [(number, dict(parse_qsl(links[name].partition("?")[2]))) for name, number in numbers.items()]
