"""What every place that runs scratchpads must do. A new runtime joins by one line in `RUNTIMES`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.errors import Invalid, NotFound, Refused, StorageFailed
from habitus.sandbox.child import OutputCapture, ProcessGone
from habitus.sandbox.machine import MachineCapabilities, get_base_python, probe_machine
from habitus.sandbox.model import MIB, CellTimeouts, Permissions, SandboxLimits
from habitus.sandbox.runtimes.base import ScratchpadRuntime
from habitus.sandbox.runtimes.local import LocalRuntime
from habitus.sandbox.runtimes.ssh import SshRuntime
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import EnvironmentCache, VenvBuilder
from tests.contracts.sshd import Sshd, options, running_sshd
from tests.wheels import write_wheel

pytestmark = pytest.mark.req("SB-13", "SB-01")

LIMITS = SandboxLimits(cpu_s=None, memory=512 * MIB)
RUNTIMES = (
    "local",
    "local without bubblewrap",
    "local with Landlock alone",
    pytest.param("ssh", marks=pytest.mark.full),  # a login for each takes longer than all the others
)
MakeRuntime = Callable[[], ScratchpadRuntime]


@pytest.fixture(scope="session")
def machine() -> MachineCapabilities:
    return probe_machine()


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One virtual environment, copied into each test's pads: making one costs more than most tests."""
    folder = tmp_path_factory.mktemp("seed") / "venv"
    asyncio.run(VenvBuilder(os.environ, python=get_base_python()).create_venv(folder))
    return folder


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings for an index that is a folder with one small wheel."""
    folder = tmp_path_factory.mktemp("shelf")
    write_wheel(folder, "habitus_greeting", "HELLO = 'hello'\n")
    return {"UV_FIND_LINKS": str(folder), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "cache")}


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory, shelf: dict[str, str]) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd"), shelf) as server:
        yield server


def _ssh_runtime(server: Sshd, folder: str, limits: SandboxLimits = LIMITS) -> SshRuntime:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    return SshRuntime(
        "127.0.0.1",
        folder=folder,
        options=options(server),
        python=get_base_python(),
        uv=uv,
        permissions=Permissions(),
        limits=limits,
    )


@pytest.fixture(params=RUNTIMES)
def make_runtime(
    request: pytest.FixtureRequest, machine: MachineCapabilities, tmp_path: Path, seed: Path, shelf: dict[str, str]
) -> MakeRuntime:
    """Makes runtimes that share one place, as two programs on one machine would."""
    folder = tmp_path / "pads"
    (folder / "one").mkdir(parents=True)
    shutil.copytree(seed, folder / "one" / "venv", symlinks=True)
    if request.param == "ssh":
        server: Sshd = request.getfixturevalue("sshd")
        return lambda: _ssh_runtime(server, str(folder))
    weaker = {
        "local": machine,
        "local without bubblewrap": replace(machine, bubblewrap=None),
        "local with Landlock alone": replace(machine, bubblewrap=None, has_namespaces=False),
    }[request.param]
    venvs = VenvBuilder({**os.environ, **shelf}, python=get_base_python())
    environments = EnvironmentCache(tmp_path / "environments", venvs)
    return lambda: LocalRuntime(weaker, folder, environments, permissions=Permissions(), limits=LIMITS)


@pytest.fixture
async def pads(make_runtime: MakeRuntime) -> AsyncIterator[SessionScratchpads]:
    made = SessionScratchpads(make_runtime(), timeouts=lambda _: CellTimeouts(total_s=300, silence_s=300), grace_s=300)
    yield made
    await made.close()


async def test_variables_live_from_cell_to_cell(pads: SessionScratchpads) -> None:
    await pads.execute_code("one", "answer = 42")
    cell = await pads.execute_code("one", "print('it is')\nanswer")
    assert (cell.stdout, cell.stderr, cell.error) == ("it is\n42\n", "", None)


async def test_an_error_is_in_the_cell_with_its_line(pads: SessionScratchpads) -> None:
    cell = await pads.execute_code("one", "def f():\n    return 1 / 0\n\nf()")
    assert cell.error is not None
    assert cell.error.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in cell.error
    assert cell.outcome.kind == "failed"


async def test_output_and_errors_are_kept_apart_and_bounded(pads: SessionScratchpads) -> None:
    cell = await pads.execute_code("one", "import sys\nprint('é' * 30_000)\nprint('oh', file=sys.stderr)")
    assert cell.stdout == "é" * 10_000 + "\n[… 20,001 more characters were cut]"
    assert cell.stderr == "oh\n"


async def test_output_comes_while_the_cell_runs(pads: SessionScratchpads) -> None:
    seen: list[str] = []
    cell = await pads.execute_code("one", "print('first')\nprogress('half')\nprint('second')", watch=seen.append)
    assert "".join(seen).count("first") == 1
    assert "half\n" in "".join(seen)
    assert (cell.progress, cell.logs) == (("half",), ())


async def test_a_cell_that_ends_its_process_is_reported_and_the_next_one_runs(pads: SessionScratchpads) -> None:
    await pads.execute_code("one", "x = 1")
    dead = await pads.execute_code("one", "import os\nos._exit(3)")
    assert dead.error == "Cell killed: its process ended (exit code 3); earlier variables are gone."
    after = await pads.execute_code("one", "'x' in globals()")
    assert after.stdout == "False\n"
    assert "a new one was started" in after.logs[0]


@pytest.mark.req("SB-02")
async def test_a_cell_can_be_cancelled_and_its_variables_stay(pads: SessionScratchpads) -> None:
    started = asyncio.Event()
    code = "kept = 7\nprint('go')\nwhile True: pass"
    task = asyncio.ensure_future(pads.execute_code("one", code, watch=lambda _: started.set()))
    await started.wait()
    pads.cancel_cell_of_scratchpad("one")
    cell = await task
    assert cell.error == "Cancelled. It was interrupted; variables are kept."
    assert (await pads.execute_code("one", "kept")).stdout == "7\n"


async def test_files_stay_after_a_reset_and_variables_do_not(pads: SessionScratchpads) -> None:
    await pads.execute_code("one", "x = 1\nopen('note.txt', 'w').write('kept')")
    await pads.drop_variables_and_cells("one")
    cell = await pads.execute_code("one", "print(open('note.txt').read(), 'x' in globals())")
    assert cell.stdout == "kept False\n"


async def test_a_removed_pad_is_gone_with_its_files(pads: SessionScratchpads) -> None:
    await pads.execute_code("one", "open('note.txt', 'w').write('kept')")
    assert await pads.list_open_and_stored_names() == ["one"]
    await pads.close_and_delete_scratchpad("one")
    assert await pads.list_open_and_stored_names() == []
    with pytest.raises(NotFound):
        await pads.close_and_delete_scratchpad("one")


async def test_two_programs_can_not_share_a_pad(pads: SessionScratchpads, make_runtime: MakeRuntime) -> None:
    await pads.execute_code("one", "1")
    other = SessionScratchpads(make_runtime())
    with pytest.raises(Refused, match="Scratchpad 'one' is in use by another process"):
        await other.execute_code("one", "1")
    await other.close()


@pytest.mark.parametrize("name", ["../up", "", ".", "a/b", "-x", "a" * 65, "a\n", "ü"])
async def test_a_name_that_is_no_folder_name_is_refused(pads: SessionScratchpads, name: str) -> None:
    with pytest.raises(Invalid):
        await pads.execute_code(name, "1")
    with pytest.raises(Invalid):
        await pads.install_allowed_packages(name, ["six"])


async def test_only_plain_package_names_are_installed(pads: SessionScratchpads) -> None:
    for requirement in ("--index-url=http://evil.example", "x @ file:///etc/passwd", "../here", ""):
        with pytest.raises(Invalid):
            await pads.install_allowed_packages("one", [requirement])


@pytest.mark.req("SB-03")
async def test_a_package_can_be_added_while_the_pad_is_open(pads: SessionScratchpads) -> None:
    await pads.execute_code("one", "x = 1")
    await pads.install_allowed_packages("one", ["habitus-greeting"])
    cell = await pads.execute_code("one", "import habitus_greeting\nhabitus_greeting.HELLO, x")
    assert (cell.stdout, cell.error) == ("('hello', 1)\n", None)


async def test_a_new_pad_gets_its_own_environment(pads: SessionScratchpads) -> None:
    cell = await pads.execute_code("two", "import sys\nsys.prefix != sys.base_prefix, 'two/venv' in sys.prefix")
    assert cell.stdout == "(True, True)\n"


@pytest.mark.req("SB-09")
async def test_a_cell_has_no_network_and_no_foreign_files(pads: SessionScratchpads, tmp_path: Path) -> None:
    (tmp_path / "treasure").write_text("gold")
    code = f"""
import socket
won = []
for deed in (
    lambda: open({str(tmp_path / "treasure")!r}).read(),
    lambda: open("/etc/passwd").read(),
    lambda: open({str(tmp_path / "pads/one/venv/planted.pth")!r}, "w"),
    lambda: socket.create_connection(("127.0.0.1", 22), 1),
    lambda: socket.socket(40, 1),
):
    try:
        won.append(repr(deed()))
    except OSError:
        pass
won
"""
    assert (await pads.execute_code("one", code)).stdout == "[]\n"


@pytest.mark.full
@pytest.mark.req("SB-09")
async def test_another_machine_keeps_a_pads_limits_between_cells(sshd: Sshd, tmp_path: Path, seed: Path) -> None:
    shutil.copytree(seed, tmp_path / "pads" / "one" / "venv", symlinks=True)
    runtime = _ssh_runtime(sshd, str(tmp_path / "pads"), replace(LIMITS, idle_cpu_s=1))
    worker = await runtime.start_worker("one")
    worker.redirect_output(OutputCapture(1000), OutputCapture(1000))
    deed = "import threading\ndef burn():\n    while True: pass\nthreading.Thread(target=burn, daemon=True).start()"
    await worker.send({"exec": deed, "id": "1"})
    assert (await worker.receive())["done"]["error"] is None
    worker.redirect_output(None, None)
    with pytest.raises(ProcessGone, match="it used more than 1 s of processor time between cells"):
        await worker.receive()
    await worker.close()


async def test_a_host_that_does_not_answer_is_an_error_with_its_reason(sshd: Sshd) -> None:
    runtime = SshRuntime("127.0.0.1", options=["-p", "1", "-F", "none"], permissions=Permissions(), limits=LIMITS)
    with pytest.raises(StorageFailed, match=r"Could not reach '127\.0\.0\.1' by SSH"):
        await runtime.list_stored_scratchpad_names()


async def test_an_option_is_not_a_host() -> None:
    with pytest.raises(Invalid):
        SshRuntime("-oProxyCommand=evil", permissions=Permissions(), limits=LIMITS)
