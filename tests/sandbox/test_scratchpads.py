"""Scratchpads in the local sandbox: clocks, deaths, observers, packages. What all runtimes do is in the contracts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.errors import NotFound, ToolFailed
from habitus.sandbox.model import MIB, Cell, CellTimeouts, SandboxLimits
from habitus.sandbox.scratchpads import SessionScratchpads
from habitus.sandbox.venvs import VenvBuilder, get_site_packages, guess_package_name

MakePads = Callable[..., SessionScratchpads]


@pytest.mark.req("SB-02")
async def test_silence_interrupts_the_cell_and_keeps_the_variables(make_pads: MakePads) -> None:
    pads = make_pads(timeouts=CellTimeouts(total_s=300, silence_s=0.3))
    await pads.execute_code("one", "x = 5")
    cell = await pads.execute_code("one", "while True: pass", estimated_s=1)
    assert cell.error == (
        "Cell timed out after 0.3 s of silence (no output, no progress()). It was interrupted; variables are kept."
    )
    assert cell.outcome.kind == "infra"
    assert (await pads.execute_code("one", "x")).stdout == "5\n"


@pytest.mark.full
@pytest.mark.req("SB-02")
async def test_a_cell_that_ignores_the_interrupt_is_ended(make_pads: MakePads) -> None:
    pads = make_pads(timeouts=CellTimeouts(total_s=300, silence_s=15), grace_s=0.3)
    await pads.execute_code("one", "import signal, time")
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    cell = await pads.execute_code("one", code, estimated_s=1)
    assert cell.error is not None
    assert cell.error.startswith("Cell timed out after 15 s of silence")
    assert cell.error.endswith("its process was ended, earlier variables are gone.")
    after = await pads.execute_code("one", "1")
    assert after.stdout == "1\n"
    assert after.logs == (
        "The scratchpad's process had ended (it was stopped): a new one was started, earlier variables are gone.",
    )


@pytest.mark.full
@pytest.mark.req("SB-02")
async def test_progress_and_output_hold_off_the_silence_but_not_the_total(make_pads: MakePads) -> None:
    pads = make_pads(timeouts=CellTimeouts(total_s=15, silence_s=14.9))
    code = "import time\nfor n in range(1000):\n    progress(n) if n % 2 else print(n)\n    time.sleep(0.1)"
    cell = await pads.execute_code("one", code, estimated_s=1)
    assert cell.error is not None
    assert cell.error.startswith("Cell timed out after 15 s in total.")


@pytest.mark.req("SB-02")
async def test_a_cancelled_task_ends_the_cell(make_pads: MakePads) -> None:
    pads = make_pads()
    started = asyncio.Event()
    task = asyncio.ensure_future(
        pads.execute_code("one", "print('go')\nwhile True: pass", watch=lambda _: started.set())
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [cell.error for cell in pads.list_cells("one")] == ["Cancelled."]
    assert (await pads.execute_code("one", "1")).stdout == "1\n"


@pytest.mark.req("SB-02")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("import os; os.closerange(3, 1024)", "exit code 70"),
    ],
)
async def test_a_death_is_told_and_survived(make_pads: MakePads, code: str, why: str) -> None:
    pads = make_pads()
    cell = await pads.execute_code("one", code)
    assert cell.error == f"Cell killed: its process ended ({why}); earlier variables are gone."
    assert cell.stderr == ""
    assert (await pads.execute_code("one", "1")).stdout == "1\n"


async def test_a_cell_that_closes_its_streams_hurts_only_itself(make_pads: MakePads) -> None:
    pads = make_pads()
    await pads.execute_code("one", "x = 1")
    cell = await pads.execute_code("one", "import os\nos.closerange(0, 3)\nprint('lost')")
    assert cell.error is not None
    assert "Bad file descriptor" in cell.error
    assert (await pads.execute_code("one", "import sys\nsys.stdout.close()")).error is None
    after = await pads.execute_code("one", "print('found', x)")
    assert (after.stdout, after.error) == ("found 1\n", None)


async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_cell(make_pads: MakePads) -> None:
    pads = make_pads()
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('parent')"
    assert (await pads.execute_code("one", code)).stdout == "parent\n"
    assert (await pads.execute_code("one", "print('next')")).stdout == "next\n"


async def test_a_fork_that_runs_on_does_not_become_a_second_pad(make_pads: MakePads) -> None:
    pads = make_pads()
    await pads.execute_code("one", "import os\nchild = os.fork()")
    assert [(await pads.execute_code("one", f"print({number})")).stdout for number in range(3)] == ["0\n", "1\n", "2\n"]


async def test_threads_print_and_go_on(make_pads: MakePads) -> None:
    pads = make_pads()
    code = "import threading\nt = threading.Thread(target=print, args=('from a thread',))\nt.start()\nt.join()"
    assert (await pads.execute_code("one", code)).stdout == "from a thread\n"


@pytest.mark.full
@pytest.mark.req("SB-03")
async def test_gigabytes_are_cut_with_a_mark(make_pads: MakePads) -> None:
    pads = make_pads()
    cell = await pads.execute_code("one", "import os\nfor _ in range(1024): os.write(1, b'x' * (1 << 20))")
    assert cell.error is None
    assert cell.stdout == "x" * 10_000 + f"\n[… {(1 << 30) - 10_000:,} more characters were cut]"


async def test_a_long_traceback_is_cut_too(make_pads: MakePads) -> None:
    cell = await make_pads().execute_code("one", "raise ValueError('x' * 10_000_000)")
    assert cell.error is not None
    assert len(cell.error) < 25_000


async def test_output_of_programs_it_starts_is_captured(make_pads: MakePads) -> None:
    code = "import subprocess, sys, os\nsubprocess.run([sys.executable, '-S', '-c', 'print(6 * 7)'])\nNone"
    cell = await make_pads().execute_code("one", code)
    assert (cell.stdout, cell.error) == ("42\n", None)


async def test_the_last_expression_is_shown_and_none_is_not(make_pads: MakePads) -> None:
    pads = make_pads()
    shown = [(await pads.execute_code("one", code)).stdout for code in ("1 + 1", "None", "x = 3", "x;", "'a'\n'b'", "")]
    assert shown == ["2\n", "", "", "3\n", "'b'\n", ""]


async def test_log_records_are_kept_apart(make_pads: MakePads) -> None:
    cell = await make_pads().execute_code("one", "import logging\nlogging.getLogger('app').warning('careful %s', 1)")
    assert (cell.stderr, cell.logs) == ("", ("WARNING app: careful 1",))


@pytest.mark.req("SB-09")
async def test_a_memory_bomb_kills_the_cell_not_the_machine(make_pads: MakePads) -> None:
    pads = make_pads(limits=SandboxLimits(cpu_s=None, memory=128 * MIB))
    code = """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 1 << 24))
    held[-1].write(b"x" * (1 << 24))
"""
    cell = await pads.execute_code("one", code)
    assert cell.error is not None
    assert "emory" in cell.error
    assert (await pads.execute_code("one", "1")).stdout == "1\n"


@pytest.mark.req("SB-09")
async def test_a_folder_that_overflows_ends_the_cell(make_pads: MakePads) -> None:
    pads = make_pads(limits=SandboxLimits(cpu_s=None, folder_size=16 * MIB, file_size=8 * MIB))
    code = """
import time
for number in range(100):
    with open(f"f{number}", "wb") as file:
        file.write(b"x" * (1 << 20))
time.sleep(60)
"""
    cell = await pads.execute_code("one", code)
    assert cell.error == "Cell killed: its process ended (its folder grew beyond 16 MiB); earlier variables are gone."


@pytest.mark.req("SB-09")
async def test_a_symlink_in_the_folder_leads_nobody_out(make_pads: MakePads, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("gold")
    pads = make_pads()
    code = f"import os\nos.symlink({str(treasure)!r}, 'link')\nos.symlink('/', 'root')\nos.path.exists('link/gold')"
    assert (await pads.execute_code("one", code)).stdout == "False\n"
    await pads.close_and_delete_scratchpad("one")
    assert (treasure / "gold").read_text() == "gold"


@pytest.mark.req("SB-09")
async def test_packages_can_not_be_planted(make_pads: MakePads, pads_folder: Path) -> None:
    code = """
import site, sys
won = []
for folder in {*sys.path, sys.prefix, sys.base_prefix, *site.getsitepackages()} - {""}:
    try:
        open(folder + "/planted.pth", "w")
        won.append(folder)
    except OSError:
        pass
won
"""
    assert (await make_pads().execute_code("one", code)).stdout == "[]\n"
    assert not list(pads_folder.rglob("planted.pth"))


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str | None]] = []

    def on_pre_execute(self, cell: Cell) -> None:
        self.seen.append(("before", cell.description, cell.error))

    def on_post_execute(self, cell: Cell) -> None:
        self.seen.append(("after", cell.description, cell.error and cell.error.splitlines()[-1]))


class Grumpy:
    def on_pre_execute(self, cell: Cell) -> None:
        raise RuntimeError("no")

    def on_post_execute(self, cell: Cell) -> None:
        raise RuntimeError("no")


@pytest.mark.req("SB-04")
async def test_observers_see_a_cell_before_and_after_and_never_fail_it(
    make_pads: MakePads, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    cell = await make_pads().execute_code("one", "1 / 0", description="divide", observers=[Grumpy(), recorder])
    assert cell.error is not None
    assert recorder.seen == [("before", "divide", None), ("after", "divide", "ZeroDivisionError: division by zero")]
    assert caplog.text.count("A cell observer failed") == 2


@pytest.mark.req("SB-12")
async def test_skills_can_be_listed_and_read_from_inside(make_pads: MakePads) -> None:
    async def listed(tag: object) -> list[str]:
        return ["csv-summary", f"tagged {tag}"]

    async def read(name: object) -> str:
        if name != "csv-summary":
            raise NotFound(f"No skill '{name}'.")
        return "# CSV"

    pads = make_pads(services={"skills.list": listed, "skills.read": read})
    cell = await pads.execute_code(
        "one", "import skills\nskills.list('data'), skills.list(), skills.read('csv-summary')"
    )
    assert cell.stdout == "(['csv-summary', 'tagged data'], ['csv-summary', 'tagged None'], '# CSV')\n"
    missing = await pads.execute_code("one", "skills.read('nope')")
    assert missing.error is not None
    assert missing.error.endswith("LookupError: No skill 'nope'.")


@pytest.mark.req("SB-01")
async def test_a_pad_can_be_viewed_and_dumped(make_pads: MakePads) -> None:
    pads = make_pads()
    await pads.execute_code("one", "print('```')", description="say fence")
    await pads.execute_code("one", "oops")
    assert [(cell.code, cell.description) for cell in pads.list_cells("one")] == [
        ("print('```')", "say fence"),
        ("oops", ""),
    ]
    text = pads.render_markdown("one")
    assert text.startswith("# Scratchpad one\n\n## Cell 1: say fence\n\n````python\nprint('```')\n````")
    assert "NameError: name 'oops' is not defined" in text
    with pytest.raises(NotFound, match="Did you mean 'one'"):
        pads.list_cells("ones")


@pytest.mark.full
@pytest.mark.req("SB-01", "SB-03")
async def test_an_installed_package_can_be_imported_at_once(make_pads: MakePads, shelf: VenvBuilder) -> None:
    pads = make_pads(venvs=shelf)
    await pads.execute_code("one", "x = 1")
    await pads.install_allowed_packages("one", ["habitus-greeting>=1"])
    assert (
        await pads.execute_code("one", "import habitus_greeting\nhabitus_greeting.HELLO, x")
    ).stdout == "('hello', 1)\n"


@pytest.mark.req("SB-03")
async def test_only_wheels_are_installed(make_pads: MakePads, shelf: VenvBuilder) -> None:
    with pytest.raises(ToolFailed, match="Could not install habitus-source"):
        await make_pads(venvs=shelf).install_allowed_packages("one", ["habitus-source"])


@pytest.mark.full
@pytest.mark.req("SB-03")
async def test_a_missing_module_is_installed_once_when_allowed(make_pads: MakePads, shelf: VenvBuilder) -> None:
    asked: list[str] = []

    async def allow(package: str) -> bool:
        asked.append(package)
        return True

    pads = make_pads(venvs=shelf, may_install=allow)
    cell = await pads.execute_code("one", "import habitus_greeting\nhabitus_greeting.HELLO")
    assert (cell.stdout, cell.error) == ("'hello'\n", None)
    assert cell.logs == ("Installed habitus_greeting and ran the cell again.",)
    gone = await pads.execute_code("one", "import habitus_nowhere")
    assert gone.error is not None
    assert gone.error.endswith("ModuleNotFoundError: No module named 'habitus_nowhere'")
    assert asked == ["habitus_greeting", "habitus_nowhere"]


@pytest.mark.req("SB-03")
async def test_nothing_is_installed_unless_allowed(make_pads: MakePads, shelf: VenvBuilder) -> None:
    async def refuse(package: str) -> bool:
        return False

    for options in ({}, {"may_install": refuse}):
        pads = make_pads(venvs=shelf, **options)
        cell = await pads.execute_code("one", "import habitus_greeting")
        assert cell.error is not None
        await pads.close()


def test_import_names_lead_to_packages() -> None:
    assert [guess_package_name(name) for name in ("yaml", "PIL.Image", "pandas.core")] == ["pyyaml", "pillow", "pandas"]


async def test_closing_leaves_no_process_and_no_descriptor(make_pads: MakePads) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    pads = make_pads()
    await pads.execute_code("one", "import os\nos.fork() or __import__('time').sleep(600)")
    await pads.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert _workers() == []


def _workers() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and b"inside.worker" in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


@pytest.mark.req("SB-01", "AG-11")
async def test_packages_of_one_pad_are_in_the_next_without_an_index(
    make_pads: MakePads, shelf: VenvBuilder, tmp_path: Path
) -> None:
    first = make_pads(venvs=shelf)
    assert await first.install_allowed_packages("one", ["habitus-greeting"]) == "Installed habitus_greeting 1.0."
    assert await first.install_allowed_packages("one", ["habitus-greeting"]) == "Already there: habitus-greeting."
    shutil.rmtree(tmp_path / "shelf")
    shutil.rmtree(tmp_path / "cache")
    await first.execute_code("two", "1")
    await first.install_allowed_packages("two", ["habitus-greeting"])
    files = [get_site_packages(tmp_path / "pads" / pad / "venv") / "habitus_greeting.py" for pad in ("one", "two")]
    assert files[0].samefile(files[1]), "it is linked, not installed again"
    assert (await first.execute_code("two", "import habitus_greeting as g; g.HELLO")).stdout == "'hello'\n"


@pytest.mark.full
async def test_a_later_word_on_a_package_replaces_the_earlier(make_pads: MakePads, shelf: VenvBuilder) -> None:
    pads = make_pads(venvs=shelf)
    await pads.install_allowed_packages("one", ["habitus_greeting<5"])
    await pads.install_allowed_packages("one", ["Habitus-Greeting==1.0"])
    assert (await pads.execute_code("one", "import habitus_greeting as g; g.HELLO")).stdout == "'hello'\n"
    with pytest.raises(ToolFailed, match="Could not install habitus-greeting==2"):
        await pads.install_allowed_packages("one", ["habitus-greeting==2"])
    assert (await pads.execute_code("one", "g.HELLO")).stdout == "'hello'\n"
