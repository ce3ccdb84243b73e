"""Files written whole, and the locks that one process has at a time: the only home of both."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from habitus.errors import StorageFailed
from habitus.files import TEMPORARY_PREFIX, append_to_file, replace_file_when_block_ends, write_atomically
from habitus.locks import hold_lock, try_lock

SOURCES = Path(__file__).parents[1] / "src" / "habitus"


def test_a_replaced_file_keeps_its_mode_and_a_new_one_is_its_owners(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("before")
    old.chmod(0o640)
    for path in (new, old):
        write_atomically(path, b"after")
    assert [(path.read_text(), oct(path.stat().st_mode & 0o777)) for path in (new, old)] == [
        ("after", "0o600"),
        ("after", "0o640"),
    ]
    write_atomically(old, b"again", mode=0o500)
    assert (old.read_text(), oct(old.stat().st_mode & 0o777)) == ("again", "0o500")
    append_to_file(new, b" and more")
    assert new.read_text() == "after and more"


@pytest.mark.req("SC-01")
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("before")
    with (
        pytest.raises(StorageFailed, match=r"No space left to write .*kept"),
        replace_file_when_block_ends(path) as aside,
    ):
        _write_half(aside)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert path.read_text() == "before"
    with pytest.raises(StorageFailed, match=r"Can't write .*missing/file: No such file"):
        write_atomically(tmp_path / "missing" / "file", b"")


def _write_half(aside: Path) -> None:
    aside.write_text("half")
    raise OSError(28, "No space left on device")


@pytest.mark.req("SC-01")
def test_a_writer_that_is_killed_leaves_the_old_file_whole(tmp_path: Path, python: str) -> None:
    path = tmp_path / "kept"
    path.write_text("before")
    code = (
        "import os, signal, sys; from pathlib import Path; from habitus.files import replace_file_when_block_ends\n"
        "with replace_file_when_block_ends(Path(sys.argv[1])) as aside:\n"
        "    aside.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([python, "-c", code, str(path)], check=False)
    assert path.read_text() == "before"
    assert [each.name.startswith(TEMPORARY_PREFIX) for each in tmp_path.iterdir() if each != path] == [True]


@pytest.mark.req("SC-02")
def test_a_lock_is_held_by_one_or_shared_and_let_go_by_the_killed(tmp_path: Path, python: str) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from habitus.locks import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen([python, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with try_lock(path) as held:
        assert held is None
    with pytest.raises(StorageFailed, match=r"has held .*lock for 0 s"), hold_lock(path, shared=True, wait_s=0.05):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with hold_lock(path, shared=True), hold_lock(path, shared=True, wait_s=0), try_lock(path) as held:
        assert held is None
    with hold_lock(tmp_path), try_lock(tmp_path) as held:  # a folder, too
        assert held is None


def test_nothing_else_locks_or_writes_aside() -> None:
    """Code that runs inside the sandbox imports nothing of ours, so it may."""
    words = ("fcntl.", "os.fsync(", "NamedTemporaryFile", "mkstemp")
    found = {
        path.name
        for path in SOURCES.rglob("*.py")
        if "inside" not in path.parts and any(word in path.read_text("utf-8") for word in words)
    }
    assert found == {"files.py", "operating_system.py"}
