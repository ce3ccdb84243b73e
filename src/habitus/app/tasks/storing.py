"""Storage of a skill's tasks: beside it in `evals/`, in the home for read-only layers, and as cases of its tool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.app.home import Home, refuse_if_read_only
from habitus.errors import HabitusError, NotFound, did_you_mean
from habitus.files import Tree, TreeFile, build_tree_file, is_eval_file, write_atomically
from habitus.improve.tasks import rename_near_copies_as_variants
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.choosing import evals
from habitus.skills.layers.layer import AGENT_LAYERS, Layer
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Stage
from habitus.skills.proposals import Proposal, ProposalAction, SkillChange
from habitus.tasks import files
from habitus.tasks.model import VARIANT_MARK, Task, TaskOrigin, TaskOriginKind

if TYPE_CHECKING:
    from habitus.tools.service import ToolService

FOLDER = "tasks"  # of the home, with the tasks of skills that lie elsewhere


def load_tasks(home: Home, name: str) -> tuple[Task, ...]:
    """Return all tasks of a skill; of two with one id, the one that is easier to edit."""
    item = home.skills.find(name)
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    found = [
        *_load_tasks_from_home(home.settings, item.name),
        *_load_tasks_beside_skill(item.name, tree),
        *_load_tasks_from_evals(item.name, tree),
    ]
    found += load_tool_cases(home, name)
    return tuple({task.id: task for task in reversed(found)}.values())[::-1]


def replace_editable_tasks(home: Home, name: str, tasks: Iterable[Task]) -> None:
    """Replace the editable tasks of a skill."""
    refuse_if_read_only(home)
    item, text = home.skills.find(name), files.serialize_tasks(tasks).encode()
    if are_tasks_stored_beside_skills(home.skills.get_layer(item.layer)):
        home.skills.edit_file(
            f"{item.name}@{item.layer}", trees.TASKS_FILE, text, home.build_author("changed its tasks")
        )
        return
    path = get_path_of_skill_tasks_in_home(home.settings, item.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, text, mode=0o600)


def add_new_tasks_from_text(home: Home, name: str, text: str) -> str:
    """Add the tasks of a file that have new ids, and return a message; empty if nothing was added."""
    try:
        coming = files.parse_tasks_toml(text, about=f"{trees.TASKS_FILE} of '{name}'")
    except HabitusError as error:
        return f"Its tasks were not added: {error}"
    here = load_tasks(home, name)
    known = {id for task in here for id in (task.id, task.id.rpartition(VARIANT_MARK)[2])}
    # Where it came from and who reviewed it is not for the file to say.
    imported = TaskOrigin(kind=TaskOriginKind.IMPORTED)
    new = [replace(task, origin=imported, reviewed_by="") for task in coming if task.id not in known]
    if new:
        new = rename_near_copies_as_variants(new, here)
        replace_editable_tasks(home, name, (*load_editable_tasks(home, home.skills.find(name)), *new))
    return f"New tasks of it: {len(new)}." if new else ""


def rename_near_copies_in_tasks_file(content: bytes) -> bytes:
    """Return a tasks file with near-copies named as variants; one without any, or that can't be read, as it is."""
    try:
        tasks = files.parse_tasks_toml(content.decode("utf-8", "replace"), about=trees.TASKS_FILE)
    except HabitusError:
        return content
    named = rename_near_copies_as_variants(tasks, ())
    return content if tuple(named) == tasks else files.serialize_tasks(named).encode()


def are_tasks_stored_beside_skills(layer: Layer) -> bool:
    """Return whether tasks of this layer's skills are stored beside them: it is writable and not another agent's
    folder.
    """
    return layer.can_write and not layer.name.startswith((*AGENT_LAYERS, "project-"))


def get_task(home: Home, name: str, id: str) -> Task:
    found = {task.id: task for task in load_tasks(home, name)}
    if id in found:
        return found[id]
    raise NotFound(f"'{name}' has no task '{id}'.", hint=did_you_mean(id, found) or f"See 'habitus tasks list {name}'.")


def save_tasks_of_approved_proposal(home: Home, proposal: Proposal) -> None:
    """Save the tasks of an approved proposal."""
    if proposal.change.action is not ProposalAction.TASKS:
        return
    item = home.skills.find(f"{proposal.change.name}@{proposal.change.layer}")
    new = [
        replace(task, reviewed_by=proposal.decided_by or home.settings.author_name)
        for task in parse_proposed_tasks(proposal.change)
    ]
    known = {task.id for task in new}
    replace_editable_tasks(
        home, f"{item.name}@{item.layer}", (*(t for t in load_editable_tasks(home, item) if t.id not in known), *new)
    )


def remove_tasks_of_approved_proposal(home: Home, change: SkillChange) -> None:
    """Undo `save_tasks_of_approved_proposal`."""
    item = home.skills.find(f"{change.name}@{change.layer}")
    gone = {task.id for task in parse_proposed_tasks(change)}
    replace_editable_tasks(
        home, f"{item.name}@{item.layer}", (task for task in load_editable_tasks(home, item) if task.id not in gone)
    )


def parse_proposed_tasks(change: SkillChange) -> tuple[Task, ...]:
    return _load_tasks_beside_skill(change.name, change.tree)


def collect_publishable_evals(home: Home, name: str) -> dict[str, TreeFile]:
    """Return the evaluation files of a skill for publishing, without secrets and without who asked."""
    item = home.skills.find(name)
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    shared = {
        path: build_tree_file(home.redact(_read_tree_file_text(tree, path)).encode())
        for path in tree
        if is_eval_file(path) and path != trees.TASKS_FILE
    }
    tasks = [replace(task, origin=TaskOrigin(kind=task.origin.kind)) for task in load_editable_tasks(home, item)]
    return (
        {**shared, trees.TASKS_FILE: build_tree_file(home.redact(files.serialize_tasks(tasks)).encode())}
        if tasks
        else shared
    )


def load_editable_tasks(home: Home, item: ListedSkill) -> tuple[Task, ...]:
    """Return the tasks that can be edited here: in the home, or in the skill's `evals/tasks.toml`."""
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    return (*_load_tasks_from_home(home.settings, item.name), *_load_tasks_beside_skill(item.name, tree))


def load_tasks_of_skill_from_home(home: Home, name: str) -> tuple[Task, ...]:
    """Return the tasks of a skill that lie in the home."""
    return _load_tasks_from_home(home.settings, home.skills.find(name).name)


def load_tool_cases(home: Home, name: str) -> tuple[Task, ...]:
    """Return the cases of a skill's tool; none if it has no tool."""
    item = home.skills.find(name)
    has_tool = item.summary is not None and Stage.CODE in item.summary.stages
    return _load_cases_of_tool_if_readable(home.tools, item.name) if has_tool else ()


def _load_tasks_from_home(settings: Settings, name: str) -> tuple[Task, ...]:
    path = get_path_of_skill_tasks_in_home(settings, name)
    return files.parse_tasks_toml(path.read_text("utf-8", "replace"), about=str(path)) if path.is_file() else ()


def get_path_of_skill_tasks_in_home(settings: Settings, name: str) -> Path:
    return settings.home / FOLDER / f"{name}.toml"


def _load_tasks_beside_skill(name: str, tree: Tree) -> tuple[Task, ...]:
    text = _read_tree_file_text(tree, trees.TASKS_FILE)
    return files.parse_tasks_toml(text, about=f"{trees.TASKS_FILE} of '{name}'") if text else ()


def _load_tasks_from_evals(name: str, tree: Tree) -> list[Task]:
    """Return rows of `evals/evals.json` that state an expected result; the others are trigger cases of selection."""
    text, about = _read_tree_file_text(tree, evals.EVALS_FILE), f"{evals.EVALS_FILE} of '{name}'"
    rows = files.parse_json_rows(text, about=about) if text else ()
    origin = TaskOrigin(kind=TaskOriginKind.FILE)
    stated = [
        (f"row {number} of {about}", row)
        for number, row in enumerate(rows, 1)
        if files.is_evals_row_with_expected_result(row)
    ]
    return files.parse_task_rows(stated, about=about, origin=origin, is_foreign=True)


def _load_cases_of_tool_if_readable(tools: ToolService, name: str) -> tuple[Task, ...]:
    try:
        return tools.cases(name)
    except HabitusError:
        return ()  # what is wrong with its files, its listing says


def _read_tree_file_text(tree: Tree, path: str) -> str:
    file = tree.get(path)
    return "" if file is None or file.content is None else file.content.decode("utf-8", "replace")
