"""Every declared use case, called for an admin who is not the owner: the machine itself is out of reach.

An audit hook of the interpreter sees each path that is opened or listed, each program that is started and each
connection, whichever module does it. What a request names is replaced by a secret file, a program and addresses of this
machine, one field at a time.
"""

from __future__ import annotations

import ast
import os
import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from habitus.app.use_cases.declaration import UseCase, load_all_use_cases
from habitus.errors import HabitusError
from tests.cli.conftest import Direct, direct, stock, stocked
from tests.contracts.test_both_doors import PREPARED, _opened

__all__ = ["direct", "stock", "stocked"]
pytestmark = pytest.mark.req("CL-04")
ROOT = Path(__file__).parents[2]
SECRET = "the-owner-has-4711-apples"
# The sandbox, which is how code of others runs for everybody.
_SANDBOX_PROGRAMS = {
    "bwrap",
    "uv",
    *(Path(sys.executable).with_name(name).resolve().name for name in ("python", "python3")),
}
# Where a model may run that the owner has not named; a home without a model looks there.
MODEL_SERVERS = {("host", f"('127.0.0.1', {port})") for port in (8000, 8080, 11434)}
_seen: list[tuple[str, str]] | None = None


def _observe(event: str, details: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in ("open", "os.listdir", "os.scandir") and isinstance(details[0], str | bytes | os.PathLike):
        _seen.append(("file", str(Path(os.fsdecode(details[0])).absolute())))
    elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
        _seen.append(("program", Path(os.fsdecode(details[0])).name))
    elif event == "socket.connect" and details[0].family != socket.AF_UNIX:
        _seen.append(("host", str(details[1])))


@contextmanager
def observed() -> Iterator[list[tuple[str, str]]]:
    global _seen  # an audit hook can't be removed
    found: list[tuple[str, str]] = []
    _seen = found
    try:
        yield found
    finally:
        _seen = None


@pytest.fixture(scope="module", autouse=True)
def audit_hook() -> None:
    sys.addaudithook(_observe)


def list_reached(found: list[tuple[str, str]], home: Path) -> set[tuple[str, str]]:
    """Return what was reached besides the home, Python, temporary files and the sandbox."""
    paths = sysconfig.get_paths()
    allowed = (
        *(str(home), str(ROOT), *paths.values(), sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", "/usr", "/etc"),
        *(path for path in sys.path if path),
    )
    return {
        (kind, what)
        for kind, what in found
        if not (kind == "program" and what in _SANDBOX_PROGRAMS)
        if not (kind == "file" and (what.startswith(allowed) or _is_temporary(what)))
    }


def _is_temporary(path: str) -> bool:
    # The test's own folders are temporary, too: only what was made besides them counts.
    return path.startswith(tempfile.gettempdir()) and "pytest-of" not in path


@pytest.mark.parametrize("case", list(load_all_use_cases()), ids=lambda case: case.command or case.path)
def test_no_use_case_reaches_the_machine_for_a_guest(direct: Direct, case: UseCase[..., Any]) -> None:
    secret = direct.cli.user_home / "secret.csv"
    secret.write_text(SECRET)
    (direct.cli.cwd / "secret.csv").write_text(SECRET)
    with _opened(direct, direct.home) as owner:
        prepare = PREPARED.get(case.command)
        example = case.example if prepare is None else prepare(owner)
        guest = owner.as_user("eve", is_admin=True)
        told, reached = [], set()
        for one in _list_variants(case, example, secret):
            with observed() as found, suppress(HabitusError, ValueError):
                told.append(repr(case(guest, **case.bind_arguments(one))))
            reached |= list_reached(found, direct.home)
    assert reached - list_agent_folders(direct) - MODEL_SERVERS == set()
    assert SECRET not in "".join(told)


def list_agent_folders(direct: Direct) -> set[tuple[str, str]]:
    """Return the folders of agents that the owner has made a layer of the library."""
    return {("file", str(direct.cli.user_home / f".{each}/skills")) for each in ("claude", "codex", "agents")}


def _list_variants(case: UseCase[..., Any], example: Mapping[str, Any], secret: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the example, and one for each text in it with each thing of the machine that it could name."""
    yield example
    hostile = (str(secret), "./secret.csv", "claude-code", f"script:{secret}", "https://127.0.0.1:9/x", "file:///etc")
    for one in case.input_fields:
        for named in hostile:
            if one.type_without_none is str:
                yield {**example, one.name: named}
            elif one.is_list and one.item_type is str:
                yield {**example, one.name: (*example.get(one.name, ()), named)}


@pytest.mark.parametrize("event", ["file", "program", "host"])
def test_the_hook_sees_what_a_use_case_would_do(tmp_path: Path, event: str) -> None:
    """Otherwise the test above could not fail."""
    with observed() as found, suppress(OSError):
        match event:
            case "file":
                (tmp_path / "x").write_text("x")
            case "program":
                os.posix_spawn("/bin/none", ["none"], {})
            case _:
                socket.create_connection(("127.0.0.1", 9), 0.1)
    assert [kind for kind, _ in list_reached(found, tmp_path / "home")] == [event]


# Use cases open, start and connect through the home's host and the packages below; the rest is wiring.
_MACHINE = {"subprocess", "socket", "urllib.request", "http.client", "httpx", "requests", "shutil"}


def test_no_use_case_module_imports_what_reaches_the_machine() -> None:
    found = {
        (path.name, module)
        for path in (ROOT / "src" / "habitus" / "app" / "use_cases").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for module in _list_imports(node)
        if module in _MACHINE
    }
    assert found == set()


def test_only_the_host_asks_whether_a_user_is_a_guest() -> None:
    found = {
        str(path.relative_to(ROOT / "src" / "habitus"))
        for path in (ROOT / "src" / "habitus").rglob("*.py")
        if re.search(r"\bis_guest\b", path.read_text())
    }
    assert found == {"settings.py", "app/host_access.py"}


def _list_imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
