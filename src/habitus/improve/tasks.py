"""The tasks of a run: each belongs to practice, gate or exam for good, and near-copies of one task belong together."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from habitus.files import Tree
from habitus.skills import trees
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Skill
from habitus.tasks.model import VARIANT_MARK, Task, get_task_family
from habitus.tasks.rollouts import TaskSplit

MOST_PRACTICE = 12  # tasks that a drafter practises on: fresh instances of accepted work replace the oldest
SHARES: Mapping[TaskSplit, float] = {TaskSplit.PRACTICE: 0.25, TaskSplit.GATE: 0.5, TaskSplit.EXAM: 0.25}
_COPY_SHARE = 0.85  # of the words of two tasks with the same checks, so many in common
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillWithTasks:
    """A skill as it is today, and its tasks by split."""

    item: ListedSkill
    layer: str
    tree: Tree
    skill: Skill
    version: int
    tasks: Mapping[TaskSplit, tuple[Task, ...]] = field(default_factory=dict)
    worn_tasks: int = 0  # of the gate, that have judged as many candidates as they may
    main_text: str = ""  # of its main file
    previous: tuple[Skill, str] | None = None  # with its main file's text, before the last edit
    remedies: tuple[str, ...] = ()  # that work with it has taught

    @property
    def name(self) -> str:
        return self.item.name


def get_main_text(tree: Tree) -> str:
    """Return the text of a skill's main file; empty if it has none."""
    return trees.read_main_files({"": tree}).get("", b"").decode("utf-8", "replace")


def choose_splits_for_new_tasks(
    tasks: Sequence[Task], known: Mapping[str, TaskSplit], *, seed: str = ""
) -> dict[str, TaskSplit]:
    """Return the splits of the tasks that have none yet, so that all splits come near their shares."""
    by_id = {task.id: task for task in tasks}
    splits = {task.id: known[task.id] for task in tasks if task.id in known}
    counts, total = Counter(splits.values()), len(tasks)
    added: dict[str, TaskSplit] = {}
    for task in sorted(tasks, key=lambda one: hashlib.sha256(f"{seed}\0{one.id}".encode()).digest()):
        if task.id in splits:
            continue
        copied = next((other for other in splits if is_near_copy_of_task(task, by_id[other])), None)
        chosen = splits[copied] if copied else max(TaskSplit, key=lambda one: SHARES[one] * total - counts[one])
        # The whole family at once, or tasks of others would fill the split before its own members come.
        family = [one.id for one in tasks if one.id not in splits and is_near_copy_of_task(task, one)]
        added |= dict.fromkeys(family, chosen)
        splits |= dict.fromkeys(family, chosen)
        counts[chosen] += len(family)
    return added


def pick_practice_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks to practise on, given oldest first: the newest of each family before a second of any."""
    ranks, found = Counter[str](), []
    for place, task in enumerate(reversed(tasks)):
        found.append((ranks[get_task_family(task.id)], place, task))
        ranks[get_task_family(task.id)] += 1
    newest = sorted(found, key=lambda one: one[:2])[:MOST_PRACTICE]
    return tuple(task for _, _, task in sorted(newest, key=lambda one: -one[1]))


def is_near_copy_of_task(one: Task, other: Task) -> bool:
    """Return whether two tasks are of one family: variants, or the same in other words.

    The same words with other values and other answers are two tasks.
    """
    if get_task_family(one.id) == get_task_family(other.id):
        return True
    ours, theirs = _build_word_set_of_task(one), _build_word_set_of_task(other)
    return ours == theirs or (one.checks == other.checks and len(ours & theirs) >= _COPY_SHARE * len(ours | theirs))


def rename_near_copies_as_variants(coming: Iterable[Task], here: Iterable[Task]) -> list[Task]:
    """Return new tasks, those that copy another one named as variants of it: else they would count as observations."""
    known, named = [task for task in here if not task.is_for_tool], list[Task]()
    for task in coming:
        if not task.is_for_tool and VARIANT_MARK not in task.id:
            family = next((get_task_family(one.id) for one in known if is_near_copy_of_task(task, one)), task.id)
            task = task if family == task.id else replace(task, id=f"{family}{VARIANT_MARK}{task.id}")
        named.append(task)
        known += [] if task.is_for_tool else [task]
    return named


def _build_word_set_of_task(task: Task) -> frozenset[str]:
    return _build_word_set("\n".join((task.request, task.setup, *task.files.values())))


@lru_cache(1_000)  # each task is compared with every other
def _build_word_set(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
