"""Who may import what, beside the rows that a tool of their own checks; starting up imports nothing heavy."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from habitus.cli.commands import build_commands
from habitus.cli.lazy_commands import LazyCommand

HEAVY = (
    "alembic",
    "anyascii",
    "httpx2",
    "packaging",
    "pydantic",
    "pydantic_ai",
    "rich",
    "ruamel",
    "sqlalchemy",
    "yaml",
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["habitus", "habitus.cli.main"])
def test_starting_up_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_the_package_imports_nothing_of_it_until_a_name_is_asked_for() -> None:
    code = "import sys, habitus; print(*(name for name in sys.modules if name.startswith('habitus.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_file_is_longer_than_a_reader_holds_in_mind() -> None:
    """Comments and blank lines are not counted: an explanation must not cost room for code."""
    lines = {
        path: sum(line.strip()[:1] not in ("", "#") for line in path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "src").rglob("*.py")
    }
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > 440} == {}


def test_only_the_wire_knows_a_provider_s_library() -> None:
    """It takes seconds to import and changes often; one who imports the integration has it anyway."""
    knowing = {
        str(path.relative_to(ROOT / "src" / "habitus"))
        for path in (ROOT / "src" / "habitus").rglob("*.py")
        for name in _imports_of(path)
        if name.partition(".")[0] in ("pydantic_ai", "httpx2", "openai", "anthropic", "google", "genai_prices")
    }
    assert knowing == {
        "llm/providers/wire.py",
        "llm/providers/faults.py",
        "llm/prices.py",
        "app/operating/identity_provider.py",
        "integrations/pydantic_ai.py",
    }


@pytest.mark.parametrize("package", ["cli", "repl"])
def test_surfaces_import_at_the_top_and_only_the_lazy_group_imports_later(package: str) -> None:
    local = {
        f"{path.name}: {name}"
        for path in (ROOT / "src" / "habitus" / package).glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        for name in _imported(node)
        if name.partition(".")[0] == "habitus"
    }
    assert local == set()


def test_nothing_inside_imports_the_facade() -> None:
    """`Habitus` stands on top of app: a use case takes a home, or the parts of one that it uses."""
    package = ROOT / "src" / "habitus"
    importing = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if "habitus.app.habitus" in _imports_of(path)
    }
    assert importing == {"app/__init__.py"}


def test_who_needs_one_part_of_a_home_takes_that_part() -> None:
    by_contract = {
        "_find_lesson_added_since",
        "_report_configured_model",
    }  # called with a home by whoever calls them all; one that may fail is asked late
    handed_more = {
        f"{path.name} {function.name}"
        for path in (ROOT / "src" / "habitus" / "app").rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not function.decorator_list
        if function.name not in by_contract and _uses_one_part(function)
    }
    assert handed_more == set()


def _uses_one_part(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = function.args.args[0] if function.args.args else None
    if first is None or first.annotation is None or ast.unparse(first.annotation) not in ("Home", "Habitus"):
        return False
    named = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == first.arg]
    parts = [
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == first.arg
    ]
    return len(named) == len(parts) and len(set(parts)) == 1


@pytest.mark.req("PF-01")
def test_a_hook_imports_what_is_built_into_python_and_no_more() -> None:
    """Every prompt of a person waits for it: `os` alone takes as long as all that it does."""
    assert _imports_of(ROOT / "src" / "habitus" / "hosts" / "hook.py") == {
        "posix",
        "sys",
        "_socket",
        "json",
        "time",
        "nt",
        "subprocess",
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone count too."""
    graph = _import_graph(ROOT / "src")
    assert _circles(graph) == []


def test_circles_are_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def _import_graph(src: Path) -> dict[str, set[str]]:
    files = {
        ".".join(path.relative_to(src).with_suffix("").parts): path
        for path in src.rglob("*.py")
        if path.name != "__init__.py"
    }
    return {
        name: {target for target in _imports_of(path) if target in files and target != name}
        for name, path in files.items()
    }


@functools.cache
def _imports_of(path: Path) -> set[str]:
    """The modules that a file imports anywhere, and `module.name` for every name it takes from one."""
    found = set()
    for node in _statements(ast.parse(path.read_text())):
        found |= set(_imported(node))
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement, without looking into expressions, which are most of a file."""
    for place in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, place, ()):
            yield child
            yield from _statements(child)


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one."""
    reached = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        ring = {other for other in reached[name] if name in reached[other]} | {name}
        if len(ring) > 1 and ring not in found:
            found.append(ring)
    return found


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        for other in graph[ahead.pop()] - reached:
            reached.add(other)
            ahead.append(other)
    return reached


def test_every_command_is_found_and_its_one_line_is_what_its_own_help_says() -> None:
    def leaves(below: Sequence[Any]) -> Iterator[LazyCommand]:
        for command in below:
            if isinstance(command, LazyCommand):
                yield command
            else:
                yield from leaves([*filter(None, [command.default]), *command.commands.values()])

    found = list(leaves(build_commands()))
    assert len(found) > 50
    assert [" ".join((one.help or "").split()) for one in found] == [
        " ".join((one.load().help or "").split()) for one in found
    ]


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []


def test_every_public_name_can_be_imported() -> None:
    import habitus

    for name in habitus.__all__:
        assert getattr(habitus, name).__module__.startswith("habitus")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(habitus, "nothing")  # noqa: B009 # checkers know that it is not there
