"""One class name is used for one thing in the whole package, so a reader who sees it knows which one it is."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import pytest

from habitus import Habitus

SOURCES = Path(__file__).parents[2] / "src" / "habitus"


def _shared_class_names(sources: Path) -> dict[str, list[str]]:
    """Return the class names that several classes have, without leading underscores, and where those are."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(sources.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(file.relative_to(sources)))
    return {name: files for name, files in found.items() if len(files) > 1}


def test_one_class_name_is_one_thing() -> None:
    assert _shared_class_names(SOURCES) == {}


@pytest.mark.parametrize("name", ["Room", "_Room"])
def test_a_second_class_of_a_name_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "one.py").write_text("class Room: ...\n")
    (tmp_path / "two.py").write_text(f"def build():\n    class {name}: ...\n")
    assert _shared_class_names(tmp_path) == {"Room": ["one.py", "two.py"]}


def test_habitus_has_few_public_names_and_each_is_documented() -> None:
    names = [name for name in dir(Habitus) if not name.startswith("_")]
    assert len(names) <= 25
    assert [name for name in names if not inspect.getdoc(getattr(Habitus, name))] == []
