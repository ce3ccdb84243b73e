"""Lines that are files: pasted or dropped ones are attached, words for the model never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus.repl.chat import find_files_line_consists_of

pytestmark = pytest.mark.req("AG-11")


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("{there}/sales.csv", ["sales.csv"]),
        ("  '{there}/my sales.csv' ", ["my sales.csv"]),
        ("{there}/my sales.csv", ["my sales.csv"]),
        ("{there}/my\\ sales.csv", ["my sales.csv"]),
        ('"{there}/sales.csv" {there}/my\\ sales.csv', ["sales.csv", "my sales.csv"]),
        ("file://{there}/my%20sales.csv", ["my sales.csv"]),
        ("file://localhost{there}/sales.csv", ["sales.csv"]),
        ("sales.csv", ["sales.csv"]),
        ("./word", ["word"]),
        ("~/sales.csv", ["sales.csv"]),
        ("word", []),
        ("{there}/sales.csv please", []),
        ("what is in {there}/sales.csv?", []),
        ("{there}", []),
        ("{there}/none.csv", []),
        ("file://elsewhere{there}/sales.csv", []),
        ("it's fine.", []),
        ("...", []),
        ("{there}/sales.csv\nand this", []),
        ("a" * 5000 + ".csv", []),
        ("\0.csv", []),
    ],
)
def test_a_line_of_files_alone_is_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, files: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("sales.csv", "my sales.csv", "word"):
        (tmp_path / name).write_text("x")
    assert find_files_line_consists_of(line.format(there=tmp_path), tmp_path) == [tmp_path / name for name in files]
