"""Files that cells make for people: kept outside the pad, named, and nothing but what the cell made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from habitus.sandbox.files import MadeFilesTracker
from habitus.sandbox.scratchpads import SessionScratchpads

pytestmark = pytest.mark.req("AG-11")
MakePads = Callable[..., SessionScratchpads]


async def test_what_a_cell_makes_outlives_its_pad(make_pads: MakePads, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    pads = make_pads(keep_made=kept)
    cell = await pads.execute_code("one", "open('plot.png', 'wb').write(b'1'); open('notes.tmp', 'w').write('x')")
    assert cell.made == (str(kept / "plot.png"),)
    assert (await pads.execute_code("one", "1")).made == ()
    cell = await pads.execute_code(
        "one", "open('plot.png', 'wb').write(b'22'); import os; os.mkdir('out'); open('out/t.csv', 'w').write('a')"
    )
    assert cell.made == (str(kept / "plot-2.png"), str(kept / "t.csv"))
    await pads.close_and_delete_scratchpad("one")
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        "plot.png": b"1",
        "plot-2.png": b"22",
        "t.csv": b"a",
    }


def test_no_link_and_no_pipe_is_kept(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_text("secret")
    folder = tmp_path / "files"
    made = MadeFilesTracker(folder)
    (folder / "deep/er/and/er/still").mkdir(parents=True)
    (folder / "link.png").symlink_to(secret)
    (folder / "away").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    (folder / "empty.png").touch()
    (folder / ".cache").mkdir()
    for name in (".cache/hidden.png", "deep/er/and/er/still/lost.png", "ok'; rm -rf.png"):
        (folder / name).write_text("x")
    assert made.copy_new_files(tmp_path / "kept") == (str(tmp_path / "kept/ok__ rm -rf.png"),)


def test_a_crowd_is_bounded(tmp_path: Path) -> None:
    made = MadeFilesTracker(tmp_path)
    for number in range(30):
        (tmp_path / f"{number:03}.png").write_text("x")
    kept = tmp_path.with_name("kept")
    assert len(made.copy_new_files(kept)) == 10
    assert made.copy_new_files(kept) == ()
