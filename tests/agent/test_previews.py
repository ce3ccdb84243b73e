"""Previews of any bytes at all: short, quick, and never an error."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from habitus.agent import previews
from habitus.agent.previews import build_json_table_preview, build_table_preview, preview_file

pytestmark = pytest.mark.req("AG-11")

ENDINGS = st.sampled_from([".csv", ".tsv", ".json", ".jsonl", ".txt", ".parquet", ""])
TEXTS = st.text(max_size=300).map(lambda text: text.encode("utf-8", "ignore"))


@given(TEXTS | st.binary(max_size=300), ENDINGS, st.sampled_from([0, 10, 8000]))
@example(b'a,b\n"never closed', ".csv", 0)
@example(b"[" * 100_000, ".json", 0)
@example(b"\xff\xfe\x00", ".txt", 8000)
@example(b"\x00\xd8" * 20, ".txt", 8000)
@example(b"PAR1....", ".parquet", 0)
def test_any_bytes_have_a_preview(content: bytes, ending: str, room: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        seen = preview_file(path, ending=ending, room=room)
    assert seen.kind
    assert "\n" not in seen.kind
    assert len("\n".join(seen.lines)) < max(room, 1_600) + 6_000


@given(st.text(min_size=1, max_size=200))
def test_utf_8_is_known_wherever_it_is_cut(text: str) -> None:
    data = text.encode("utf-8", "ignore")
    clean = not any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in data)
    for end in range(len(data), max(len(data) - 4, 0), -1):
        if clean and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
            assert previews.guess_encoding(data[:end], is_all=False) == "utf-8"


def test_lines_of_a_file_cut_short_while_it_is_read_are_those_it_has() -> None:
    assert previews.count_or_estimate_lines(BytesIO(b""), "utf-8", 10) == previews.LineCount(count=0, is_exact=True)
    assert previews.count_or_estimate_lines(BytesIO(b"a\nb"), "utf-8", 10) == previews.LineCount(count=2, is_exact=True)


@pytest.mark.parametrize(
    ("text", "encoded", "guessed"),
    [
        ("Müller, José, São Paulo: 12 €", "cp1252", "cp1252"),
        ("Müller", "latin-1", "cp1252"),
        ("Привет мир, это таблица с продажами", "cp1251", "cp1251"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250", "cp1250"),
        ("日本語のテキストです。売上の表。", "shift_jis", "cp932"),
        ("a;b\n1;2\n", "utf-8-sig", "utf-8-sig"),
        ("a;b\n1;2\n", "utf-16", "utf-16"),
        ("a;b\n1;2\n", "utf-32", "utf-32"),
    ],
)
def test_encodings_are_guessed(text: str, encoded: str, guessed: str) -> None:
    assert previews.guess_encoding(f"{text}\n{text}\n".encode(encoded), is_all=True) == guessed


@given(st.lists(st.lists(st.none() | st.text() | st.floats(), max_size=5), max_size=5), st.integers(0, 5))
def test_every_row_of_a_table_has_every_column(rows: list[list[object]], width: int) -> None:
    found = build_table_preview([f"c{number}" for number in range(width)], rows)
    assert len(found.types) == len(found.columns) == width
    assert all(len(row) == width for row in found.rows)


def test_types_are_those_of_all_values() -> None:
    rows = [["1", "1.5", "1,5", "2026-01-31", "yes", "x", ""], ["-2", "2", "1.200,00", "2026-02-01", "no", "1", ""]]
    assert build_table_preview("abcdefg", rows).types == (
        "integer",
        "number",
        "number with a decimal comma",
        "date",
        "boolean",
        "text",
        "empty",
    )
    found = build_json_table_preview([{"a": 1, "b": [1]}, {"a": None, "c": {}}])
    assert found is not None
    assert dict(zip(found.columns, found.types, strict=True)) == {"a": "integer", "b": "list", "c": "object"}


def test_lines_of_a_large_file_are_estimated(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        for _ in range(70):
            file.write(b"north,1\n" * (1 << 17))
    assert preview_file(path, ending=".csv", room=0).kind == f"table with commas, utf-8, about {70 << 17:,} lines"
