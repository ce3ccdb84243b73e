"""The block at the head of a Markdown file: taken apart, read leniently, written strictly."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from habitus.plain_data import measure_nesting_depth
from habitus.skills.formats import frontmatter
from habitus.skills.formats.frontmatter import FrontMatterDocument
from habitus.skills.model import MalformedFileError
from tests.skills.formats.strategies import files, texts


def _read(front: str) -> frontmatter.FrontMatterFields:
    return frontmatter.parse_fields_with_diagnostics(front, "SKILL.md")[0]


def _said(front: str) -> list[str]:
    return [diagnostic.message for diagnostic in frontmatter.parse_fields_with_diagnostics(front, "SKILL.md")[1]]


def test_a_file_is_taken_apart() -> None:
    assert frontmatter.split_front_matter(
        "\ufeff--- \r\na: b\r\n---\t\r\n\r\n# Body\r\ntext\r\n\r\n", "SKILL.md"
    ) == FrontMatterDocument(
        opening="\ufeff--- \r\n",
        front="a: b\r\n",
        closing="---\t\r\n",
        gap="\r\n",
        body="# Body\r\ntext",
        ending="\r\n\r\n",
    )


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\na: b\n---\nbody", "a: b\n", "body"),
        ("---\n---\nbody", "", "body"),
        ("---\na: b\n---", "a: b\n", ""),
        ("---\na: x --- y\nb: ---z\n---\n---\nbody", "a: x --- y\nb: ---z\n", "---\nbody"),
        ("no block", None, "no block"),
        ("----\na: b\n---\n", None, "----\na: b\n---"),
        (" ---\na: b\n---\n", None, " ---\na: b\n---"),
        ("\n---\na: b\n---\n", None, "---\na: b\n---"),
        ("--- a\nb\n---\n", None, "--- a\nb\n---"),
        ("---\ra: b\r---\rbody", "a: b\r", "body"),
    ],
)
def test_fences_are_whole_lines_and_the_first_is_the_first(text: str, front: str | None, body: str) -> None:
    parts = frontmatter.split_front_matter(text, "SKILL.md")
    assert (parts.front, parts.body) == (front, body)


@pytest.mark.req("SK-02")
@pytest.mark.parametrize("text", ["---\na: b\n", "---\n", "---\na: b\n ---\n", "---\na: b\n----\n", "---\na: b\n--- x"])
def test_a_block_that_is_never_closed_is_unreadable(text: str) -> None:
    with pytest.raises(MalformedFileError, match="never closed") as caught:
        frontmatter.split_front_matter(text, "SKILL.md")
    assert caught.value.diagnostic.hint == "Put a line '---' after the last field."


@given(files().map(bytes.decode) | texts())
def test_the_parts_put_together_are_the_file(text: str) -> None:
    try:
        parts = frontmatter.split_front_matter(text, "SKILL.md")
    except MalformedFileError:
        return
    assert parts.render_document() == text


def test_a_changed_part_takes_the_line_ends_of_the_file() -> None:
    parts = frontmatter.split_front_matter("---\r\na: b\r\n---", "SKILL.md")
    assert parts.with_front("a: c\n").render_document() == "---\r\na: c\r\n---"
    assert parts.with_body("x\ny").render_document() == "---\r\na: b\r\n---\r\n\r\nx\r\ny\r\n"
    assert parts.with_body("x").with_body("").render_document() == "---\r\na: b\r\n---\r\n"


@pytest.mark.parametrize(
    ("front", "fields"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("a: no\nb: 1.0\nc: 2024-01-01\nd: ~\n", {"a": "no", "b": "1.0", "c": "2024-01-01", "d": "~"}),
        ("a:\n", {"a": ""}),
        ("a: [b, c]\nd: {e: f}\n", {"a": ["b", "c"], "d": {"e": "f"}}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("a: >-\n  one\n  two\n", {"a": "one two"}),
        ("a: &x [b]\nc: *x\n", {"a": ["b"], "c": ["b"]}),
        ("? [a, b]\n: c\n", {'["a", "b"]': "c"}),
        ("a: !!int 5\nb: !!bool maybe\nc: !!binary x\n", {"a": "5", "b": "maybe", "c": "x"}),
        ("a: !!python/name:os.system x\n", {"a": "x"}),
        ("a: !!set {b, c}\nd: !foo [e]\n", {"a": {"b": "", "c": ""}, "d": ["e"]}),
        ("<<: {a: b}\n", {"<<": {"a": "b"}}),
    ],
)  # fmt: skip
def test_every_scalar_is_text(front: str, fields: frontmatter.FrontMatterFields) -> None:
    assert _read(front) == fields
    assert _said(front) == []


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("Use it: now", "Use it: now"),
        ("Sums up: totals, means: all", "Sums up: totals, means: all"),
        ("Ends in a colon:", "Ends in a colon:"),
        ('Says "x": y', 'Says "x": y'),
        ("C:\\path: here", "C:\\path: here"),
    ],
)
def test_an_unquoted_colon_is_mended_and_said(line: str, value: str) -> None:
    front = f"name: a\ndescription: {line}\n"
    assert _read(front) == {"name": "a", "description": value}
    assert _said(front) == ["A value has a ': ' in it and no quotes around it; it was read as one text."]


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("front", "says"),
    [
        ("a: b\n  c: d\n", "not valid YAML"),
        ("a: 'b\n", "not valid YAML"),
        ("a: *nobody\n", "nothing before this is called '&nobody'"),
        ("a: &a [*a]\n", "nothing before this is called '&a'"),
        ("a: b\n--- {c: d}\n", "a second document begins here"),
        ("a: \x07\n", "not valid YAML"),
    ],
)
def test_what_cannot_be_read_says_why_and_where(front: str, says: str) -> None:
    with pytest.raises(MalformedFileError) as caught:
        frontmatter.parse_fields_with_diagnostics(front, "SKILL.md")
    assert says in caught.value.diagnostic.message
    assert caught.value.diagnostic.hint
    assert "\n" not in str(caught.value.diagnostic)


_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
)
_CHAIN = "a0: &a0 x\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))


@pytest.mark.req("SC-01")
@pytest.mark.parametrize(
    ("front", "says"),
    [
        (_BOMB, "aliases repeat too much"),
        (_CHAIN, "aliases repeat too much"),
        ("a: " + "[" * 400_000, "nested more than 50 deep"),
        ("a: " + "{b: " * 200_000, "nested more than 50 deep"),
        ("- " * 400_000, "nested more than 50 deep"),
        ("? " * 400_000, "nested more than 50 deep"),
    ],
    ids=["billion laughs", "chain of aliases", "lists", "mappings", "block lists", "keys"],
)
def test_a_block_made_to_exhaust_the_reader_is_refused(front: str, says: str) -> None:
    with pytest.raises(MalformedFileError, match=says):
        frontmatter.parse_fields_with_diagnostics(front, "SKILL.md")


@example("a---b")
@example("no")
@example("'")
@example("a: b # c")
@given(texts(max_size=300))
def test_a_written_text_reads_back_the_same_in_every_reader(text: str) -> None:
    front = frontmatter.render_fields({"key": text, "block": {"inner": text}})
    assert _read(front) == {"key": text, "block": {"inner": text}}
    assert yaml.safe_load(front) == {"key": text, "block": {"inner": text}}
    assert "---" not in front
    assert front.count("\n") == 3


@given(texts(max_size=100).filter(lambda key: len(key.encode()) < 100))
def test_a_written_key_reads_back_the_same_in_every_reader(key: str) -> None:
    front = frontmatter.render_fields({key: "value"})
    assert _read(front) == yaml.safe_load(front) == {key: "value"}
    assert "---" not in front


@pytest.mark.parametrize("text", ["plain words", "with, commas (and more)", "a/b.c", "it's"])
def test_a_harmless_text_is_written_plainly(text: str) -> None:
    assert frontmatter.format_scalar(text) == text


@given(
    st.recursive(st.text(max_size=2), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner))
)
def test_the_height_of_a_value_is_that_of_its_tallest_part_and_one(value: object) -> None:
    assert measure_nesting_depth([value, "x"]) == measure_nesting_depth(value) + 1
