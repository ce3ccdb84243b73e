"""Folders that untrusted code filled: nothing in them is overlooked, and nothing stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from habitus.sandbox.inside import folders

BLOCK = 4096


def _nested(top: Path, levels: int) -> int:
    """Folders in folders, made without a path; a descriptor of the innermost."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("n" * 200, dir_fd=here)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    return here


@pytest.mark.req("SB-09")
def test_what_no_path_reaches_is_measured_and_removed(tmp_path: Path) -> None:
    innermost = _nested(tmp_path, 1100)  # deeper than Python recurses, longer than any path
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=innermost)
    os.write(file, b"x" * 10 * BLOCK)
    os.close(file)
    os.close(innermost)
    assert folders.measure_folder_disk_space(str(tmp_path)) >= 1110 * BLOCK
    folders.remove_folder(str(tmp_path))
    assert not tmp_path.exists()


def test_a_file_counts_once_and_an_empty_one_takes_a_block(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100 * BLOCK)
    once = folders.measure_folder_disk_space(str(tmp_path))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert folders.measure_folder_disk_space(str(tmp_path)) == once
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("/usr")
    assert folders.measure_folder_disk_space(str(tmp_path)) == once + 2 * BLOCK


def test_locked_folders_are_opened_and_links_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    pad = tmp_path / "pad"
    (pad / "shut").mkdir(parents=True)
    (pad / "shut" / "file").write_bytes(b"x" * 100 * BLOCK)
    (pad / "link").symlink_to(kept)
    (pad / "lock").touch()
    (pad / "shut").chmod(0o300)
    assert folders.measure_folder_disk_space(str(pad)) >= 100 * BLOCK
    folders.empty_folder(str(pad), but="lock")
    assert [path.name for path in pad.iterdir()] == ["lock"]
    folders.remove_folder(str(pad), last="lock")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
