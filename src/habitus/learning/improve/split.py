"""Practice, gate and exam: every task of a skill gets one side, once; near-copies of one task get the same."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from habitus.tasks.model import Task

_COPY = 0.85  # of the words of two tasks with the same checks, so many in common
_WORD = re.compile(r"\w+")


class Side(StrEnum):
    PRACTICE = "practice"  # failures are read by who drafts
    GATE = "gate"  # only scores come back
    EXAM = "exam"  # asked once for each accepted change


SHARES: Mapping[Side, float] = {Side.PRACTICE: 0.25, Side.GATE: 0.5, Side.EXAM: 0.25}


def split(tasks: Sequence[Task], known: Mapping[str, Side], *, seed: str = "") -> dict[str, Side]:
    """The sides of those that have none yet, so that all sides together come as near to their shares as they can."""
    by_id = {task.id: task for task in tasks}
    sides = {task.id: known[task.id] for task in tasks if task.id in known}
    counts, total = Counter(sides.values()), len(tasks)
    found: dict[str, Side] = {}
    for task in sorted(tasks, key=lambda one: hashlib.sha256(f"{seed}\0{one.id}".encode()).digest()):
        if task.id in sides:
            continue
        copied = next((other for other in sides if _is_copy(task, by_id[other])), None)
        side = sides[copied] if copied else max(Side, key=lambda one: SHARES[one] * total - counts[one])
        sides[task.id] = found[task.id] = side
        counts[side] += 1
    return found


def _words(task: Task) -> frozenset[str]:
    whole = "\n".join((task.request, task.setup, *task.files.values()))
    return frozenset(_WORD.findall(whole.casefold()))


def _is_copy(one: Task, other: Task) -> bool:
    """One task in other words has the same checks; the same words with other values have others, and are no copy."""
    ours, theirs = _words(one), _words(other)
    return ours == theirs or (one.checks == other.checks and len(ours & theirs) >= _COPY * len(ours | theirs))
