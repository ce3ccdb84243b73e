"""A busy machine is not a slow server: a database that answers late is there all the same, unless a test says not."""

from __future__ import annotations

import sys

from habitus.sql import outage

ANSWERS_S = 5.0


def wait_for_answers() -> None:
    """From now on a server may take longer than people are made to wait, in this process and those forked from it."""
    outage.PROBE_TIMEOUT_S = ANSWERS_S
    for name, module in sys.modules.items():
        if name.startswith("habitus.") and hasattr(module, "PROBE_TIMEOUT_S"):
            module.PROBE_TIMEOUT_S = ANSWERS_S  # type: ignore[attr-defined]  # it has it
