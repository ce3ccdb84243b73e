"""The tasks of a skill: beside it in `evals/`, in the home where its layer can't be written, and its tool's cases."""

from __future__ import annotations

from pathlib import Path

from habitus.app.home import Home
from habitus.errors import HabitusError
from habitus.files import Tree
from habitus.skills import evals
from habitus.skills.model import Stage
from habitus.tasks import files
from habitus.tasks.model import Origin, OriginKind, Task

FOLDER = "tasks"  # of the home, with the tasks of skills that lie elsewhere


def tasks_of(home: Home, name: str) -> tuple[Task, ...]:
    """All tasks of a skill; of those with one id, the one that is easier to change."""
    item = home.skills.find(name)
    tree = home.skills.layer(item.layer).store.tree(item.name) or {}
    found = [*_in_home(home, item.name), *_beside(item.name, tree), *_in_evals(item.name, tree)]
    if item.summary is not None and Stage.CODE in item.summary.stages:
        found += _of_tool(home, item.name)
    return tuple({task.id: task for task in reversed(found)}.values())[::-1]


def _in_home(home: Home, name: str) -> tuple[Task, ...]:
    path = place_in_home(home, name)
    return files.read_tasks(path.read_text("utf-8", "replace"), about=str(path)) if path.is_file() else ()


def place_in_home(home: Home, name: str) -> Path:
    return home.settings.home / FOLDER / f"{name}.toml"


def _beside(name: str, tree: Tree) -> tuple[Task, ...]:
    text = _text(tree, files.FILE)
    return files.read_tasks(text, about=f"{files.FILE} of '{name}'") if text else ()


def _in_evals(name: str, tree: Tree) -> list[Task]:
    """Rows of `evals/evals.json` that say what is expected; the others only say what brings the skill up."""
    text, about = _text(tree, evals.FILE), f"{evals.FILE} of '{name}'"
    rows = files.rows_of_json(text, about=about) if text else ()
    origin = Origin(kind=OriginKind.FILE)
    return [
        files.task_of(row, f"row {number} of {about}", origin=origin, is_foreign=True)
        for number, row in enumerate(rows, 1)
        if files.says_how_it_went(row)
    ]


def _of_tool(home: Home, name: str) -> tuple[Task, ...]:
    try:
        return home.tools.cases(name)
    except HabitusError:
        return ()  # what is wrong with its files, its listing says


def _text(tree: Tree, path: str) -> str:
    file = tree.get(path)
    return "" if file is None or file.content is None else file.content.decode("utf-8", "replace")
