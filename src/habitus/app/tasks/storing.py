"""The tasks of a skill: beside it in `evals/`, in the home where its layer can't be written, and its tool's cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.app.home import Home
from habitus.errors import HabitusError, NotFound, did_you_mean
from habitus.files import Tree, TreeFile, build_file, is_eval_file, write_atomically
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.choosing import evals
from habitus.skills.layers.layer import AGENT_LAYERS, Layer
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.model import Stage
from habitus.skills.proposals import Proposal, ProposalAction, SkillChange
from habitus.tasks import files
from habitus.tasks.model import Origin, OriginKind, Task

if TYPE_CHECKING:
    from habitus.tools.tools import ToolService

FOLDER = "tasks"  # of the home, with the tasks of skills that lie elsewhere


def tasks_of(home: Home, name: str) -> tuple[Task, ...]:
    """All tasks of a skill; of those with one id, the one that is easier to change."""
    item = home.skills.find(name)
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    found = [*_in_home(home.settings, item.name), *_beside(item.name, tree), *_in_evals(item.name, tree)]
    if item.summary is not None and Stage.CODE in item.summary.stages:
        found += _of_tool(home.tools, item.name)
    return tuple({task.id: task for task in reversed(found)}.values())[::-1]


def keep_tasks(home: Home, name: str, tasks: Iterable[Task]) -> None:
    """Write the tasks of a skill that can be changed, all of them."""
    home.refuse_if_read_only()
    item, text = home.skills.find(name), files.write_tasks(tasks).encode()
    if lies_beside(home.skills.get_layer(item.layer)):
        home.skills.edit_file(
            f"{item.name}@{item.layer}", trees.TASKS_FILE, text, home.build_author("changed its tasks")
        )
        return
    path = place_in_home(home.settings, item.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, text, mode=0o600)


def add_new_tasks(home: Home, name: str, text: str) -> str:
    """Keep those of a file of tasks that the skill has none of under their ids; a word about it, if there is one."""
    try:
        coming = files.read_tasks(text, about=f"{trees.TASKS_FILE} of '{name}'")
    except HabitusError as error:
        return f"Its tasks were not taken: {error}"
    here = {task.id for task in tasks_of(home, name)}
    new = [task for task in coming if task.id not in here]
    if new:
        keep_tasks(home, name, (*kept_tasks(home, home.skills.find(name)), *new))
    return f"New tasks of it: {len(new)}." if new else ""


def lies_beside(layer: Layer) -> bool:
    """Whether tasks lie beside a skill of this layer, and not in the home: it is the person's own or a project's, and
    no folder of another agent."""
    return layer.can_write and not layer.name.startswith((*AGENT_LAYERS, "project-"))


def task_named(home: Home, name: str, id: str) -> Task:
    found = {task.id: task for task in tasks_of(home, name)}
    if id in found:
        return found[id]
    raise NotFound(f"'{name}' has no task '{id}'.", hint=did_you_mean(id, found) or f"See 'habitus tasks list {name}'.")


def take_proposed(home: Home, proposal: Proposal) -> None:
    """Keep the tasks of a proposal that a person said yes to."""
    if proposal.change.action is not ProposalAction.TASKS:
        return
    item = home.skills.find(f"{proposal.change.name}@{proposal.change.layer}")
    new = [
        replace(task, reviewed_by=proposal.decided_by or home.settings.signature)
        for task in proposed_tasks(proposal.change)
    ]
    known = {task.id for task in new}
    keep_tasks(home, f"{item.name}@{item.layer}", (*(t for t in kept_tasks(home, item) if t.id not in known), *new))


def drop_proposed(home: Home, change: SkillChange) -> None:
    """Take back what `take_proposed` kept."""
    item = home.skills.find(f"{change.name}@{change.layer}")
    gone = {task.id for task in proposed_tasks(change)}
    keep_tasks(home, f"{item.name}@{item.layer}", (task for task in kept_tasks(home, item) if task.id not in gone))


def proposed_tasks(change: SkillChange) -> tuple[Task, ...]:
    return _beside(change.name, change.tree)


def examination_to_share(home: Home, name: str) -> dict[str, TreeFile]:
    """The files that a skill is examined by, wherever they lie, without secrets and without who asked for what."""
    item = home.skills.find(name)
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    shared = {
        path: build_file(home.redact(_text(tree, path)).encode())
        for path in tree
        if is_eval_file(path) and path != trees.TASKS_FILE
    }
    tasks = [replace(task, origin=Origin(kind=task.origin.kind)) for task in kept_tasks(home, item)]
    return {**shared, trees.TASKS_FILE: build_file(home.redact(files.write_tasks(tasks)).encode())} if tasks else shared


def kept_tasks(home: Home, item: ListedSkill) -> tuple[Task, ...]:
    """The tasks of a skill that can be changed here: in the home, or in its `evals/tasks.toml`."""
    tree = home.skills.get_layer(item.layer).store.read_tree(item.name) or {}
    return (*_in_home(home.settings, item.name), *_beside(item.name, tree))


def _in_home(settings: Settings, name: str) -> tuple[Task, ...]:
    path = place_in_home(settings, name)
    return files.read_tasks(path.read_text("utf-8", "replace"), about=str(path)) if path.is_file() else ()


def place_in_home(settings: Settings, name: str) -> Path:
    return settings.home / FOLDER / f"{name}.toml"


def _beside(name: str, tree: Tree) -> tuple[Task, ...]:
    text = _text(tree, trees.TASKS_FILE)
    return files.read_tasks(text, about=f"{trees.TASKS_FILE} of '{name}'") if text else ()


def _in_evals(name: str, tree: Tree) -> list[Task]:
    """Rows of `evals/evals.json` that say what is expected; the others only say what brings the skill up."""
    text, about = _text(tree, evals.EVALS_FILE), f"{evals.EVALS_FILE} of '{name}'"
    rows = files.rows_of_json(text, about=about) if text else ()
    origin = Origin(kind=OriginKind.FILE)
    return [
        files.task_of(row, f"row {number} of {about}", origin=origin, is_foreign=True)
        for number, row in enumerate(rows, 1)
        if files.says_how_it_went(row)
    ]


def _of_tool(tools: ToolService, name: str) -> tuple[Task, ...]:
    try:
        return tools.cases(name)
    except HabitusError:
        return ()  # what is wrong with its files, its listing says


def _text(tree: Tree, path: str) -> str:
    file = tree.get(path)
    return "" if file is None or file.content is None else file.content.decode("utf-8", "replace")
