"""`habitus tools scratchpad …`: variables outlive the command, and nothing outlives the pad."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Direct
from tests.contracts.sshd import another_machine
from tests.planted import KEYS

pytestmark = pytest.mark.req("SB-01", "SB-09")


@pytest.fixture
def pad(direct: Direct) -> Iterator[Direct]:
    yield direct
    for found in (direct.home / "pads").glob("*"):
        direct("tools", "scratchpad", "remove", found.name, "--yes")


def _keepers(home: Path) -> list[int]:
    """The processes that hold a pad of this home, by their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(home).encode() in words and b"keep" in words:
            found.append(int(folder.name))
    return found


@pytest.mark.req("SB-14")
def test_a_key_that_a_cell_prints_in_two_pieces_is_neither_shown_nor_kept(pad: Direct) -> None:
    key = KEYS["github"]
    code = f"print('it is\\n{key[:9]}', end='', flush=True)\nprint({key[9:]!r})\nprint({{'x': '\\n{key}'}})"
    ran = pad("tools", "scratchpad", "exec", "p", code)
    kept = (pad.home / "pads" / "p" / "cells.jsonl").read_text()
    assert (ran.code, ran.err) == (0, "Secrets removed: 2 × github.\n")
    assert [key in ran.out, key in kept, json.loads(kept)["stdout"] == ran.out] == [False, False, True]


def test_variables_stay_from_command_to_command(pad: Direct) -> None:
    assert pad.ok("tools", "scratchpad", "exec", "one", "total = 40") == ""
    assert pad.ok("tools", "scratchpad", "exec", "one", "-", stdin="print(total + 2)") == "42\n"
    (pad.cli.cwd / "cell.py").write_text("print('from a file')")
    cell = pad.json("tools", "scratchpad", "exec", "one", "--file", "cell.py", "-d", "reads")
    assert (cell["stdout"], cell["error"], cell["description"]) == ("from a file\n", None, "reads")
    assert pad.json("tools", "scratchpad", "list") == {"pads": [{"name": "one", "running": True, "cells": 3}]}
    shown = pad.ok("tools", "scratchpad", "view", "one")
    assert shown.startswith("# cell 1\ntotal = 40\n\n# cell 2\nprint(total + 2)\n42\n")


@pytest.mark.req("SB-12")
def test_a_cell_reads_the_library_as_it_is_at_that_time(pad: Direct) -> None:
    pad.ok("skills", "new", "brew-tea", "-d", "Brews tea.", "-f", "-", stdin="1. Boil.")
    brews = "[s['name'] for s in skills.list() if s['name'].startswith('brew')]"
    seen = f"print({brews}, skills.read('brew-tea')['content'])"
    assert pad.ok("tools", "scratchpad", "exec", "one", seen) == "['brew-tea'] 1. Boil.\n"
    pad.ok("skills", "edit", "brew-tea", "--append", "2. Wait.")
    pad.ok("skills", "new", "brew-coffee", "-d", "Brews coffee.", "-f", "-", stdin="1. Grind.")
    assert pad.ok("tools", "scratchpad", "exec", "one", seen) == "['brew-coffee', 'brew-tea'] 1. Boil.\n2. Wait.\n"


@pytest.mark.full
def test_a_failing_cell_fails_the_command_and_keeps_the_variables(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1")
    ran = pad("tools", "scratchpad", "exec", "one", "print('so far'); 1 / 0")
    assert (ran.code, ran.out) == (1, "so far\n")
    assert ran.err.endswith("ZeroDivisionError: division by zero\n")
    assert pad.ok("tools", "scratchpad", "exec", "one", "print(x)") == "1\n"


@pytest.mark.full
def test_reset_forgets_variables_and_cells_and_keeps_files(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1; open('kept.txt', 'w').write('here')")
    [keeper] = _keepers(pad.home)
    assert "1 cell deleted" in pad.ok("tools", "scratchpad", "reset", "one")
    assert _keepers(pad.home) in ([], [keeper])  # a moment may pass until it is gone
    assert pad.ok("tools", "scratchpad", "view", "one") == "No cells yet.\n"
    assert (
        pad.ok("tools", "scratchpad", "exec", "one", "print('x' in globals(), open('kept.txt').read())")
        == "False here\n"
    )


@pytest.mark.full
def test_remove_ends_the_process_and_deletes_everything(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1")
    assert pad("tools", "scratchpad", "remove", "one").code == 2
    pad.ok("tools", "scratchpad", "remove", "one", "--yes")
    _wait(lambda: _keepers(pad.home) == [])
    assert not (pad.home / "pads" / "one").exists()
    assert (
        pad("tools", "scratchpad", "view", "one").err
        == "habitus: There is no scratchpad 'one'. See 'habitus tools scratchpad list'.\n"
    )


@pytest.mark.full
def test_an_idle_pad_goes_to_sleep_and_says_so_when_it_wakes(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1", "--idle", "0.2")
    _wait(lambda: _keepers(pad.home) == [])
    assert pad.json("tools", "scratchpad", "list")["pads"] == [{"name": "one", "running": False, "cells": 1}]
    ran = pad("tools", "scratchpad", "exec", "one", "print('x' in globals())")
    assert (ran.out, ran.err) == ("False\n", "The scratchpad was restarted: earlier variables are lost.\n")


@pytest.mark.full
def test_a_killed_keeper_is_replaced(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1")
    [keeper] = _keepers(pad.home)
    os.kill(keeper, signal.SIGKILL)
    _wait(lambda: _keepers(pad.home) == [])
    ran = pad("tools", "scratchpad", "exec", "one", "print(2)")
    assert ran.out == "2\n", ran


@pytest.mark.full
@pytest.mark.req("SB-12")
def test_a_keeper_that_is_killed_before_it_reads_a_cell_is_replaced(pad: Direct) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "x = 1")
    [keeper] = _keepers(pad.home)
    os.kill(keeper, signal.SIGKILL)
    _wait(lambda: _keepers(pad.home) == [])
    [address] = pad.home.rglob("keeper.socket")
    address.unlink()
    folder = os.open(address.parent, os.O_DIRECTORY)  # a short way to a long path
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(f"/proc/self/fd/{folder}/{address.name}")
        dying.listen()

        def die() -> None:
            looks, _ = dying.accept()  # whether anybody is there
            asks, _ = dying.accept()
            select.select([asks], [], [])
            dying.close()
            looks.close()
            asks.close()

        thread = threading.Thread(target=die)
        thread.start()
        ran = pad("tools", "scratchpad", "exec", "one", "print(2)")
        assert (ran.code, ran.out) == (0, "2\n"), ran
        thread.join()
    os.close(folder)


@pytest.mark.full
def test_an_interrupted_command_stops_its_cell(pad: Direct, program: Path) -> None:
    pad.ok("tools", "scratchpad", "exec", "one", "import time; x = 1")
    command = [str(program), "tools", "scratchpad", "exec", "one", "print('on'); time.sleep(100)"]
    with subprocess.Popen(
        command, env=pad.cli.environ(), cwd=pad.cli.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert pad.ok("tools", "scratchpad", "exec", "one", "print(x)") == "1\n"
    assert pad.json("tools", "scratchpad", "view", "one")["cells"][1]["error"].startswith("Cancelled")


@pytest.mark.full
def test_secrets_are_not_written_down(pad: Direct) -> None:
    secret = "sk-ant-api03-" + "Zk3" * 20
    ran = pad("tools", "scratchpad", "exec", "one", f"key = '{secret}'; print(key)")
    assert (ran.code, ran.err, secret in ran.out) == (0, "Secrets removed: 1 × anthropic.\n", False)
    assert secret not in (pad.home / "pads/one/cells.jsonl").read_text()
    assert secret not in json.dumps(pad.json("tools", "scratchpad", "view", "one"))


def test_wrong_calls_are_told_in_one_line(pad: Direct) -> None:
    for words in (
        ["tools", "scratchpad", "exec", "one"],
        ["tools", "scratchpad", "exec", "one", "1", "--file", "x"],
        ["tools", "scratchpad", "exec", "../up", "1"],
    ):
        ran = pad(*words)
        assert ran.code in (1, 2)
        assert ran.err.count("\n") == 1
    assert not (pad.home / "up").exists()


def _wait(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.02)


@pytest.mark.full
def test_no_character_loses_a_result(pad: Direct) -> None:
    shown = "a\\u2028b\\x85c\\x0bd"
    pad.ok("tools", "scratchpad", "exec", "one", f"print('{shown}')")
    broken = pad("tools", "scratchpad", "exec", "one", "raise ValueError('\\ud83d')")
    assert (broken.code, broken.err.splitlines()[-1]) == (1, "ValueError: \ufffd")
    cells = pad.json("tools", "scratchpad", "view", "one")["cells"]
    assert [cell["stdout"] for cell in cells] == ["a\u2028b\x85c\x0bd\n", ""]


@pytest.fixture
def elsewhere(pad: Direct, tmp_path: Path) -> Iterator[Path]:
    """Another machine's folder, which the settings name; the key and the host are known to `ssh`."""
    there = tmp_path / "there"
    with another_machine(tmp_path, pad.patch) as address:
        pad.home.mkdir(exist_ok=True)
        (pad.home / "habitus.toml").write_text(f'[sandbox]\nruntime = "{address}{there}"\n')
        yield there


@pytest.mark.full
@pytest.mark.req("SB-13")
def test_pads_live_on_the_machine_that_the_settings_name(pad: Direct, elsewhere: Path) -> None:
    assert pad.ok("tools", "scratchpad", "exec", "one", "open('note.txt', 'w').write('over there'); x = 20") == ""
    assert (elsewhere / "pads/one/files/note.txt").read_text() == "over there"
    assert not (pad.home / "pads/one/files").exists()
    assert pad.ok("tools", "scratchpad", "exec", "one", "print(x + 1)") == "21\n"
    assert pad.json("tools", "scratchpad", "list") == {"pads": [{"name": "one", "running": True, "cells": 2}]}
    checks = {check["name"]: check for check in pad.json("doctor")["checks"]}
    assert checks["sandbox: runtime"]["detail"].endswith("/there, which answers")
    assert pad.ok("tools", "scratchpad", "remove", "one", "--yes") == "one was deleted.\n"
    assert not (elsewhere / "pads/one").exists()
    assert pad.json("tools", "scratchpad", "list") == {"pads": []}


@pytest.mark.req("SB-13")
@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("ssh://127.0.0.1:1/x", "Could not reach '127.0.0.1' by SSH"),
        ("ssh://:22/x", "is no address of a machine"),
        ("ssh://-oProxyCommand=x/y", "is not the name of a host"),
    ],
)
def test_the_doctor_says_when_the_other_machine_does_not_answer(direct: Direct, runtime: str, words: str) -> None:
    direct.home.mkdir(exist_ok=True)
    (direct.home / "habitus.toml").write_text(f'[sandbox]\nruntime = "{runtime}"\n')
    checks = {check["name"]: check for check in json.loads(direct("doctor", "--json").out)["checks"]}
    assert checks["sandbox: runtime"]["state"] == "broken"
    assert words in checks["sandbox: runtime"]["detail"]
