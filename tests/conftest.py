"""What every test may ask for: a home of its own, the installed command, and no network."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.compiled import share_compiled_statements
from tests.forked import forked_habitus, wait_for_server
from tests.homes import furnish
from tests.hurried import wait_for_no_disk
from tests.one_connection import (
    forget_connections,
    no_model_in_a_transaction,
    no_waiting_in_a_transaction,
    one_connection_each,
    refuse_in_transaction,
)
from tests.patient import wait_for_answers
from tests.real_model import real_model

if TYPE_CHECKING:
    from habitus.app import Habitus
    from habitus.settings import Settings
    from habitus.skills.model import Skill

# The same examples every time, few in `make test` and many in `make test-full`; new ones only in `make fuzz`.
settings.register_profile("quick", deadline=None, print_blob=True, max_examples=8, derandomize=True)
settings.register_profile("full", deadline=None, print_blob=True, max_examples=250, derandomize=True)
settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=1_000)
settings.load_profile("quick")

HABITUS = Path(sys.executable).with_name("habitus")
_PROGRAM = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs the tests in the background makes them, and all they start, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    share_compiled_statements()
    wait_for_no_disk()
    wait_for_answers()
    one_connection_each()
    no_model_in_a_transaction()
    no_waiting_in_a_transaction()
    if getattr(config.option, "numprocesses", None):
        # One forked command for all workers, begun while they collect.
        stack = contextlib.ExitStack()
        folder = stack.enter_context(TemporaryDirectory(prefix="habitus-forked-"))
        config.stash[_PROGRAM] = stack.enter_context(forked_habitus(Path(folder)))
        config.add_cleanup(stack.close)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["program"] = str(node.config.stash[_PROGRAM])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases beyond the first ones of a test that is marked `some` are `full`."""
    cases = Counter[str]()
    for item in items:
        for mark in item.iter_markers("some"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > mark.args[0]:
                item.add_marker(pytest.mark.full)


def pytest_runtest_setup() -> None:
    forget_connections()


def pytest_collection() -> None:
    gc.disable()  # until all tests are there: nothing that is made before is ever let go


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # half a million objects that stay to the end: nobody need look at them again


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a command that ran came to."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cli:
    """The command in a process of its own, on a home, a person's home and a directory of its own.

    `command` is the installed console script; `program`, which is called, is the same without its time to start.
    """

    home: Path
    user_home: Path
    cwd: Path
    command: tuple[str, ...] = (str(HABITUS),)
    program: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self,
        *args: str | bytes,
        stdin: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Ran:
        done = subprocess.run(
            [*(self.program or self.command), *args],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            cwd=self.cwd,
            env=self.environ(env),
            check=False,
            **more,
        )
        return Ran(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "HABITUS_HOME": str(self.home),
            "HOME": str(self.user_home),
            "USER": "ann",
            **self.env,
            **(more or {}),
        }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where Habitus keeps everything: with an empty database, as a home has after its first command."""
    return furnish(tmp_path / "home")


@pytest.fixture
def habitus_settings(home: Path, tmp_path: Path) -> Settings:
    """The settings that `habitus` is opened with: ann's, who works in `tmp_path`. A module with others overrides it."""
    from habitus.app import read_settings  # tests that run as another user have no database at all

    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})
    return settings.model_copy(update={"cwd": tmp_path, "look_every": 0.0, "durable": False})


@pytest.fixture
def habitus_clock() -> Callable[[], datetime]:
    """The clock of `habitus`; a module with another one overrides it."""
    return lambda: datetime.now(UTC)


@pytest.fixture
def habitus_skills() -> Sequence[Skill]:
    """The skills that `habitus` has beside the bundled ones; a module with some overrides it."""
    return ()


@pytest.fixture
def habitus(
    habitus_settings: Settings, habitus_clock: Callable[[], datetime], habitus_skills: Sequence[Skill]
) -> Iterator[Habitus]:
    """Habitus, open on `home`."""
    from habitus.app import Habitus  # as above

    with Habitus.open(habitus_settings, clock=habitus_clock) as opened:
        for skill in habitus_skills:
            opened.skills.create(skill, opened.build_author())
        yield opened


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> Iterator[Path]:
    """`habitus`, in a process that needs no time to start."""
    with contextlib.ExitStack() as stack:
        if shared := getattr(pytestconfig, "workerinput", {}).get("program"):
            program = Path(shared)
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="habitus-forked-"))
            program = stack.enter_context(forked_habitus(Path(folder)))
        wait_for_server(program)
        yield program


@pytest.fixture(scope="session")
def python(program: Path) -> str:
    """Python for a script or `-c`, in a process that has imported everything of Habitus already."""
    return str(program.with_name("python"))


@pytest.fixture
def installed_cli(home: Path, tmp_path: Path) -> Cli:
    """The console script itself: for what Python makes of its environment when it starts."""
    places = [tmp_path / "person", tmp_path / "work"]
    for place in places:
        place.mkdir()
    return Cli(home=home, user_home=places[0], cwd=places[1])


@pytest.fixture
def run_cli(installed_cli: Cli, program: Path) -> Cli:
    return replace(installed_cli, program=(str(program),))


@pytest.fixture(scope="session")
def real_address() -> Iterator[str]:
    """Where a real language model answers, one for each worker."""
    with real_model() as address:
        yield address


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL; see `tests/contracts/postgres.py` for schemas in it."""
    from tests.contracts import postgres  # tests that run as another user have no database at all

    with postgres.server(tmp_path_factory) as url:
        yield url


@pytest.fixture(scope="session")
def is_thorough(pytestconfig: pytest.Config) -> bool:
    """`make test-full`: take every step, not some of them."""
    return bool(pytestconfig.getoption("--hypothesis-profile") == "full")


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """A test that reaches out of this machine fails, whatever answers there."""
    patch = pytest.MonkeyPatch()
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse_the_world(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_the_world(self, address)
        return connect_ex(self, address)

    patch.setattr(socket.socket, "connect", guarded_connect)
    patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    yield
    patch.undo()


def _refuse_the_world(used: socket.socket, address: Any) -> None:
    if used.family not in (socket.AF_INET, socket.AF_INET6):
        return
    try:
        refuse_in_transaction(f"connects to {address}")
    except AssertionError:
        used.close()  # nobody expects this failure, so nobody else would
        raise
    host = str(address[0])
    if host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback):
        return
    pytest.fail(f"A test wanted to connect to {address!r}; tests use no network.")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
