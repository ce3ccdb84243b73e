"""Tasks of others do nothing until a person has reviewed them: they hold requests, programs and patterns of a stranger.

A review is trust by content, in the store that holds trust in skills. The `reviewed_by` of a stranger's file is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from habitus.app.home import Home
from habitus.app.tasks.storing import (
    load_tasks,
    load_tasks_of_skill_from_home,
    load_tool_cases,
    parse_proposed_tasks,
    save_tasks_of_approved_proposal,
)
from habitus.errors import Refused
from habitus.files import Tree, build_tree_file, compute_tree_hash
from habitus.skills.model import SkillSource
from habitus.skills.proposals import Proposal, ProposalAction
from habitus.skills.sources.trust import TASKS_ROOT_PREFIX, read_import_origins
from habitus.tasks.files import serialize_task
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind

TASK_FILE = "task.toml"
REQUEST_FILE = "request.md"


def get_trust_root_of_task_reviews(home: Home, name: str) -> str:
    """Return the root under which reviews of a skill's tasks are stored; it says where they come from."""
    return f"{TASKS_ROOT_PREFIX}{home.skills.find(name).name} from {describe_origin_of_foreign_tasks(home, name)}"


def describe_origin_of_foreign_tasks(home: Home, name: str) -> str:
    """Return where the tasks of others come from."""
    return _find_foreign_origin_of_skill(home, name) or "an import"


def _find_foreign_origin_of_skill(home: Home, name: str) -> str:
    """Return where a skill comes from; empty if it is the person's own."""
    item = home.skills.find(name)
    layer = home.skills.get_layer(item.layer)
    if root := layer.trust_root or layer.claims_root:
        return root
    if item.summary is None or item.summary.source is not SkillSource.IMPORTED:
        return ""
    known = read_import_origins(home.shared, item.layer, [item.name]).get(item.name)
    return known.origin if known is not None and known.origin else "an import"


def list_foreign_tasks(home: Home, name: str) -> tuple[Task, ...]:
    """Return the tasks of a skill that another person wrote, reviewed or not."""
    owner, own = _find_foreign_origin_of_skill(home, name), load_tasks_of_skill_from_home(home, name)
    # Cases of a tool are part of its code, which is approved as a whole.
    cases = load_tool_cases(home, name)
    return tuple(
        task
        for task in load_tasks(home, name)
        if task.origin.kind is TaskOriginKind.IMPORTED or (owner and task not in own and task not in cases)
    )


def list_unreviewed_foreign_tasks(home: Home, name: str) -> tuple[Task, ...]:
    """Return the tasks of others that nobody here has reviewed as they are now."""
    foreign = list_foreign_tasks(home, name)
    if not foreign:
        return ()
    # Reads what other processes have stored since.
    home.trust.read_revision()
    root = get_trust_root_of_task_reviews(home, name)
    return tuple(
        task
        for task in foreign
        if not home.trust.is_trusted_exactly(root, task.id, compute_tree_hash(build_task_files_for_review(task)))
    )


def refuse_unreviewed_foreign_tasks(home: Home, name: str) -> None:
    """Raise `Refused` if a skill has tasks of others that nobody has reviewed."""
    if waiting := list_unreviewed_foreign_tasks(home, name):
        owner = describe_origin_of_foreign_tasks(home, name)
        raise Refused(
            f"{len(waiting)} of the tasks of '{name}' came from {owner}, and nobody has reviewed them.",
            hint=f"Review them with 'habitus review trust {name}', or remove them.",
        )


def mark_foreign_tasks_reviewed(home: Home, name: str, tasks: Iterable[Task]) -> None:
    """Record that this home's user has reviewed these of the skill's tasks that count as somebody else's."""
    ids = {task.id for task in tasks}
    found = {task.id: build_task_files_for_review(task) for task in list_foreign_tasks(home, name) if task.id in ids}
    if found:
        home.trust.trust(
            get_trust_root_of_task_reviews(home, name), found, home.settings.author_name, keep_existing=True
        )


def save_approved_tasks_as_reviewed(home: Home, proposal: Proposal) -> None:
    """Keep the tasks of a proposal that a person approved, which is their review."""
    save_tasks_of_approved_proposal(home, proposal)
    change = proposal.change
    if change.action is ProposalAction.TASKS:
        mark_foreign_tasks_reviewed(home, f"{change.name}@{change.layer}", parse_proposed_tasks(change))


def build_task_files_for_review(task: Task) -> Tree:
    """Return the files that a review covers: the whole task, and for the scan its request as a page that a model
    follows and its programs as scripts.
    """
    # Who reviewed a task, and in which conversation it came up, may change without a new review.
    text = serialize_task(replace(task, reviewed_by="", origin=TaskOrigin(kind=TaskOriginKind.IMPORTED)))
    solutions = {"reference": task.reference, "wrong": task.wrong}
    programs = {"setup": task.setup, "validator": task.validator} | {
        name: solution.code for name, solution in solutions.items() if solution is not None
    }
    scripts = {
        f"{name}.py": build_tree_file(code.encode("utf-8", "replace")) for name, code in programs.items() if code
    }
    pages = {TASK_FILE: text, REQUEST_FILE: task.request}
    return {**{path: build_tree_file(page.encode("utf-8", "replace")) for path, page in pages.items()}, **scripts}
