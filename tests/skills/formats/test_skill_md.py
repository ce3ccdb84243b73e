"""SKILL.md: strict out, lenient in, never silent."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.skills.formats import frontmatter_fields, skill_md
from habitus.skills.model import Diagnostic, Manifest, Severity, Skill, SkillSource
from habitus.skills.stores import records
from tests.skills.formats.strategies import SKILLS, as_kept, files

FULL = Skill(
    name="csv-summary",
    title="CSV summary",
    description="Sums up a CSV file.",
    when_to_use="Somebody asks for totals",
    tags=("data", "csv"),
    source=SkillSource.AGENT,
    license="MIT",
    compatibility="Needs Python",
    allowed_tools="Read Bash(git:*)",
    manifest=Manifest(
        triggers=("sum", "total"), always_include=True, dependencies=("pandas~=2.2",), user_invocable=False
    ),
    provenance={"from": "session", "turns": [1, 2]},
    metadata={"author": "ann"},
    extra={"model": "small", "hooks": {"a": ["b"]}},
    body="1. Read it.\n2. Sum it.",
)


def _skill(content: str | bytes, folder: str = "a", **more: Any) -> Skill:
    found = skill_md.parse_skill_md_with_diagnostics(
        folder, content.encode() if isinstance(content, str) else content, **more
    ).skill
    assert found is not None
    return found


def _said(content: str | bytes, folder: str = "a", **more: Any) -> list[tuple[str, str]]:
    """(severity, what) of each diagnostic."""
    parsed = skill_md.parse_skill_md_with_diagnostics(
        folder, content.encode() if isinstance(content, str) else content, **more
    )
    assert all(diagnostic.hint for diagnostic in parsed.diagnostics)
    return [(diagnostic.severity.value, diagnostic.message) for diagnostic in parsed.diagnostics]


def _plain(skill: Skill | None) -> Skill:
    assert skill is not None
    return replace(skill, stated=frozenset())


# What we write


@pytest.mark.req("SK-01", "SK-03")
def test_a_written_skill_has_only_standard_keys_and_ours_as_text_under_metadata() -> None:
    assert skill_md.render_skill_md(FULL).decode() == (
        "---\n"
        "name: csv-summary\n"
        "description: Sums up a CSV file. Use when somebody asks for totals\n"
        "license: MIT\n"
        "compatibility: Needs Python\n"
        'allowed-tools: "Read Bash(git:*)"\n'
        "metadata:\n"
        "  author: ann\n"
        "  habitus.title: CSV summary\n"
        "  habitus.description: Sums up a CSV file.\n"
        "  habitus.when_to_use: Somebody asks for totals\n"
        '  habitus.tags: \'["data","csv"]\'\n'
        "  habitus.source: agent\n"
        '  habitus.provenance: \'{"from":"session","turns":[1,2]}\'\n'
        '  habitus.extra: \'{"model":"small","hooks":{"a":["b"]}}\'\n'
        '  habitus.triggers: \'["sum","total"]\'\n'
        '  habitus.always_include: "true"\n'
        "  habitus.dependencies: '[\"pandas~=2.2\"]'\n"
        '  habitus.user_invocable: "false"\n'
        "---\n"
        "\n"
        "1. Read it.\n"
        "2. Sum it.\n"
    )


@pytest.mark.req("SK-01")
def test_what_the_database_knows_is_never_in_the_file() -> None:
    known = replace(FULL, version=7, enabled=False, layer="user", created_on=datetime(2026, 1, 1, tzinfo=UTC))
    assert skill_md.render_skill_md(known) == skill_md.render_skill_md(FULL)


@pytest.mark.full
@pytest.mark.req("SK-01", "SK-03")
@example(FULL)
@given(SKILLS)
def test_a_written_skill_reads_back_the_same(skill: Skill) -> None:
    assert _plain(
        skill_md.parse_skill_md_with_diagnostics(skill.name, skill_md.render_skill_md(skill)).skill
    ) == as_kept(skill)


@pytest.mark.some(14)
@pytest.mark.req("SK-01")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "../x"}, "can't be the name of a skill"),
        ({"name": "Bad Name"}, "can't be the name of a skill"),
        ({"name": "a" * 65}, "can't be the name of a skill"),
        ({"description": ""}, "A skill needs a description."),
        ({"description": " \n"}, "A skill needs a description."),
        ({"description": "x" * 1025}, "The description has 1025 characters."),
        ({"description": "a <b>"}, "The description has a '<' or '>' in it."),
        ({"when_to_use": "x" * 1025}, "The when_to_use has 1025 characters."),
        ({"when_to_use": "a > b"}, "The when_to_use has a '<' or '>' in it."),
        ({"compatibility": "x" * 501}, "The compatibility has 501 characters."),
        ({"body": "a\x00b"}, "The body has a NUL byte at character 1."),
        ({"body": "a\ud800"}, r"'\ud800' is half of a character"),
        ({"title": "a\udcff"}, r"'\udcff' is half of a character"),
        ({"body": "x" * 1024 * 1024}, "SKILL.md may have 1,048,576."),
        ({"title": "\x07" * 300_000}, "SKILL.md may have 1,048,576."),
    ],
)
def test_what_the_standard_forbids_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid) as caught:
        skill_md.render_skill_md(replace(FULL, **change))
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.req("SK-01")
def test_a_skill_at_the_limits_is_written_and_can_be_read() -> None:
    skill = replace(FULL, name="a" * 64, description="d" * 1024, when_to_use="w" * 1024, compatibility="c" * 500)
    assert _plain(
        skill_md.parse_skill_md_with_diagnostics(skill.name, skill_md.render_skill_md(skill)).skill
    ) == _plain(skill)


# What others see


@pytest.mark.req("SK-03")
@pytest.mark.parametrize(
    ("description", "when", "outward"),
    [
        ("Sums up a file.", "", "Sums up a file."),
        ("Sums up a file.", "  ", "Sums up a file."),
        ("Sums up a file", "Totals are asked for", "Sums up a file. Use when totals are asked for"),
        ("Sums it up!", "when totals are asked for", "Sums it up! Use when totals are asked for"),
        ("Sums it up.", "Whenever you like", "Sums it up. Use whenever you like"),
        ("Sums it up.", "Use for totals", "Sums it up. Use for totals"),
        ("Sums it up.", "use it", "Sums it up. Use it"),
        ("Sums it up.", "For totals", "Sums it up. Use for totals"),
        ("Sums it up.", "If asked", "Sums it up. Use if asked"),
        ("Sums it up.", "CSV files come in", "Sums it up. Use when CSV files come in"),
        ("Sums it up.", "I ask", "Sums it up. Use when I ask"),
        ("Sums it up.", "Used cars", "Sums it up. Use when used cars"),
        ("总结。", "有人要总数", "总结。 Use when 有人要总数"),
        ("", "now", "Use when now"),
    ],
)
def test_the_description_we_write_carries_the_cue(description: str, when: str, outward: str) -> None:
    assert frontmatter_fields.build_full_description(description, when) == outward


@pytest.mark.req("SK-03")
@given(st.integers(0, 1024), st.integers(1, 1024))
def test_the_cue_is_whole_as_long_as_it_fits(description: int, when: int) -> None:
    outward = frontmatter_fields.build_full_description("d" * description, "w" * when)
    assert len(outward) <= 1024
    assert outward.endswith("Use when " + "w" * when) or when > 1024 - len("Use when ")
    assert description == 0 or outward.startswith("d") or when > 990


@pytest.mark.req("SK-03")
@given(st.integers(1000, 1024), st.text("ab ", max_size=40))
def test_a_cut_description_still_keeps_its_parts(length: int, words: str) -> None:
    skill = replace(FULL, when_to_use=((words + "word ") * 1024)[:length].strip() or "x")
    assert _plain(_skill(skill_md.render_skill_md(skill), FULL.name)) == _plain(skill)


@pytest.mark.req("SK-03")
def test_a_description_changed_by_hand_wins_over_the_stored_parts() -> None:
    content = skill_md.render_skill_md(FULL).replace(b"description: Sums up", b"description: Adds up", 1)
    found = _skill(content, FULL.name)
    assert (found.description, found.when_to_use) == ("Adds up a CSV file. Use when somebody asks for totals", "")
    assert found.when_to_use_line == found.description
    again = _skill(skill_md.update_skill_md(content, replace(found, title="New")), FULL.name)
    assert (again.description, again.when_to_use, again.title) == (found.description, "", "New")


@pytest.mark.req("SK-03")
def test_parts_that_were_overruled_never_come_back() -> None:
    content = skill_md.render_skill_md(FULL).replace(b"description: Sums up", b"description: Adds up", 1)
    wanted = replace(_skill(content, FULL.name), description="Sums up a CSV file. Use when somebody asks for totals")
    assert _plain(_skill(skill_md.update_skill_md(content, wanted), FULL.name)) == _plain(wanted)


@pytest.mark.req("SK-03")
def test_the_cue_is_when_to_use_or_else_the_description() -> None:
    assert FULL.when_to_use_line == "Somebody asks for totals"
    assert replace(FULL, when_to_use="").when_to_use_line == "Sums up a CSV file."


# What we read


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    "content",
    [
        "---\nname: a\ndescription: D\n---\n\nBody\n",
        "\ufeff---\nname: a\ndescription: D\n---\n\nBody\n",
        "---\r\nname: a\r\ndescription: D\r\n---\r\n\r\nBody\r\n",
        "---\nname: A\ndescription: 'D'\n---\nBody",
        '---  \nname: "a"\ndescription: >\n  D\n---\t\n\n\nBody\n\n\n',
        "---\nmetadata:\nname: a\ndescription: D\n---\nBody",
    ],
)
def test_one_skill_in_many_hands(content: str) -> None:
    assert skill_md.parse_skill_md_with_diagnostics("a", content.encode()).skill == Skill(
        name="a", description="D", body="Body", stated=frozenset({"name", "description", "body"})
    )


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("\ufeff---\nname: a\ndescription: D\n---\n\nBody\n", "byte order mark"),
        ("---\nname: A\ndescription: D\n---\nBody", "is spelt 'A'"),
    ],
)
def test_what_is_odd_about_a_file_that_loads_is_said(content: str, what: str) -> None:
    (diagnostic,) = skill_md.parse_skill_md_with_diagnostics("a", content.encode()).diagnostics
    assert what in diagnostic.message


@pytest.mark.req("SK-02")
def test_dashes_inside_a_value_end_nothing() -> None:
    found = _skill("---\nname: a\ndescription: one --- two\nlicense: '---'\n---\n\nBody --- more\n---\nend\n")
    assert (found.description, found.license, found.body) == ("one --- two", "---", "Body --- more\n---\nend")


@pytest.mark.req("SK-02")
def test_fields_of_other_agents_are_read_kept_and_said() -> None:
    content = (
        "---\nname: a\ndescription: D\nwhen_to_use: Often\nallowed-tools: [Read, Grep]\nargument-hint: '[file]'\n"
        "model: opus\ndisable-model-invocation: true\nuser-invocable: false\nversion: 1.0\n---\n\nBody\n"
    )
    found = _skill(content)
    assert _plain(found) == Skill(
        name="a",
        description="D",
        when_to_use="Often",
        allowed_tools="Read Grep",
        manifest=Manifest(disable_model_invocation=True, user_invocable=False),
        extra={"argument-hint": "[file]", "model": "opus", "version": "1.0"},
        body="Body",
    )
    assert [severity for severity, _ in _said(content)] == ["note"]
    assert "'argument-hint', 'model'" in _said(content)[0][1]


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("folder", "name", "found", "says"),
    [
        (
            "csv-summary",
            "other",
            "csv-summary",
            "The file says name 'other', the folder 'csv-summary'; the folder counts.",
        ),
        ("csv-summary", "yes", "csv-summary", "The file says name 'yes', the folder 'csv-summary'; the folder counts."),
        ("csv-summary", "csv-summary", "csv-summary", None),
        ("csv-summary", "CSV_Summary", "csv-summary", "The name is spelt 'CSV_Summary', the folder 'csv-summary'."),
        (
            "CSV_Summary",
            "csv-summary",
            "csv-summary",
            "The folder is spelt 'CSV_Summary'; the skill is called 'csv-summary'.",
        ),
        (
            "My Skill!",
            "my-skill",
            "my-skill",
            "The folder 'My Skill!' is not a legal name; the skill is called 'my-skill'.",
        ),
        ("caf\u00e9", "cafe\u0301", "caf\u00e9", None),
        ("cafe\u0301", "caf\u00e9", "caf\u00e9", None),
        ("навык", "навык", "навык", None),
        ("a", "''", "a", "There is no name."),
        ("a", "[b, c]", "a", "The file says name 'b c', the folder 'a'; the folder counts."),
    ],
)
def test_the_folder_names_the_skill(folder: str, name: str, found: str, says: str | None) -> None:
    content = f"---\nname: {name}\ndescription: D\n---\n\nBody\n"
    assert _skill(content, folder).name == found
    said = [what for _, what in _said(content, folder)]
    assert said == [] if says is None else says in said


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    "stated",
    [
        "tags: [a, b]",
        "tags: a, b",
        "tags: ' a ,, b '",
        "tags:\n- a\n- b",
        'tags: \'["a", "b"]\'',
        'metadata:\n  habitus.tags: \'["a","b"]\'',
        "metadata:\n  habitus.tags: [a, b]",
    ],
)
def test_a_list_may_be_written_in_any_way(stated: str) -> None:
    assert _skill(f"---\nname: a\ndescription: D\n{stated}\n---\n\nBody\n").tags == ("a", "b")


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(("text", "value"), [("yes", True), ("True", True), ("1", True), ("off", False), ("NO", False)])
def test_a_switch_may_be_written_in_any_way(text: str, value: bool) -> None:
    assert _skill(f"---\nname: a\ndescription: D\ncli: {text}\n---\n\nBody\n").manifest.cli is value


@pytest.mark.req("SK-03")
def test_every_manifest_field_is_read_at_the_top_and_under_our_prefix() -> None:
    lists = {name: ("x", "y") for name, value in _manifest_defaults().items() if value == ()} | {"env": ({"var": "A"},)}
    switches = {name: not value for name, value in _manifest_defaults().items() if isinstance(value, bool)}
    wanted = Manifest(**lists, **switches)  # type: ignore[arg-type]  # by their defaults, lists and switches
    top = "".join(f"{name}: [x, y]\n" for name in lists if name != "env") + "env: [{var: A}]\n"
    top += "".join(f"{name}: {'yes' if value else 'no'}\n" for name, value in switches.items())
    assert _skill(f"---\nname: a\ndescription: D\n{top}---\n\nBody\n").manifest == wanted
    assert _skill(skill_md.render_skill_md(Skill(name="a", description="D", manifest=wanted))).manifest == wanted


def _manifest_defaults() -> dict[str, Any]:
    return {name: getattr(Manifest(), name) for name in Manifest.__slots__ if name != "unreadable"}


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cli: perhaps", "'cli' is 'perhaps', which is not true or false."),
        ("triggers: {a: b}", "'triggers' is \"{'a': 'b'}\", which is not a list of texts."),
        ("triggers: [[a]]", "'triggers' is \"[['a']]\", which is not a list of texts."),
        ("env: text", "'env' is 'text', which is not a list of objects."),
        ("provenance: text", "'provenance' is 'text', which is not an object."),
        ("metadata: text", "'metadata' is not a block of fields and was ignored."),
        ("title: a\ntitle: b", "The field 'title' appears twice; the last one is used."),
        ("metadata:\n  habitus.tags: '" + "[" * 5000 + "'", None),
        ("metadata:\n  habitus.provenance: '" + '{"a":' * 60 + "1" + "}" * 60 + "'", "'provenance' is"),
        ('metadata:\n  habitus.provenance: \'{"a": "\\ud800"}\'', "'provenance' is"),
    ],
)
def test_an_odd_value_is_said_and_loses_nothing_else(line: str, says: str | None) -> None:
    content = f"---\nname: a\ndescription: D\n{line}\n---\n\nBody\n"
    found = _skill(content)
    assert (found.name, found.description, found.body) == ("a", "D", "Body")
    assert found.title == ("b" if line.startswith("title") else "")
    assert records.pack_summary(found).encode()
    if says is not None:
        assert any(severity == "warning" and says in what for severity, what in _said(content))


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("---\nname: a\n---\n\nBody\n", ("warning", "There is no description.")),
        (f"---\nname: a\ndescription: {'x' * 1025}\n---\n\nB\n", ("warning", "The description has 1025 characters.")),
        ("---\nname: a\ndescription: a <b>\n---\n\nB\n", ("note", "The description has a '<' or '>' in it.")),
        ("---\nname: a\ndescription: D\n---\n", ("warning", "There are no steps below the frontmatter.")),
        ("---\nname: a\ndescription: D\nsource: moon\n---\nB", ("note", "'moon' is not a source.")),
    ],
)
def test_what_a_strict_reader_would_refuse_is_said(content: str, says: tuple[str, str]) -> None:
    assert says in _said(content)
    assert _skill(content).name == "a"


@pytest.mark.req("SK-02", "SC-01")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "There is no frontmatter."),
        (b"# Just a heading\n", "There is no frontmatter."),
        (b"---\nname: a\n", "The frontmatter is opened with '---' and never closed."),
        (b"---\n- a\n- b\n---\n", "The frontmatter is a list, not fields."),
        (b"---\ntext\n---\n", "The frontmatter is a single text, not fields."),
        (b"---\nname: [a\n---\n", "The frontmatter is not valid YAML (line 3):"),
        (
            b'---\nname: a\ndescription: "A\n  b\n---\n',
            "(line 3): a quotation mark or bracket is opened there and never closed.",
        ),
        (b"---\n\tname: a\n---\n", "The frontmatter is not valid YAML (line 2):"),
        (b"---\nname: a\n---\n\nBo\x00dy\n", "There is a NUL byte at position 19."),
        (b"---\nname: \xff\n---\n", "Not UTF-8 at byte 10."),
        ("---\nname: a\n---\n".encode("utf-16"), "There is a NUL byte at position"),
        (b"---\nname: a\n---\n" + b"x" * 1024 * 1024, "The file has 1,048,592 bytes; at most 1,048,576 are read."),
        (b"---\n" + b"k" * 5000 + b": v\n---\n", "The frontmatter is not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(content: bytes, says: str) -> None:
    parsed = skill_md.parse_skill_md_with_diagnostics("a", content, file="a/SKILL.md")
    assert parsed.skill is None
    last = parsed.diagnostics[-1]
    assert last == Diagnostic(file="a/SKILL.md", message=last.message, hint=last.hint, severity=Severity.ERROR)
    assert says in last.message
    assert last.hint
    assert "\n" not in str(last)


@pytest.mark.req("SK-02", "SC-01")
@example(b"---\nname: a\ndescription: &d [x]\nextra: *d\n---\n", "\udcff")
@example(b"---\na: !!timestamp x\nb: !!bool x\n---\n", "a")
@given(st.binary(max_size=300) | files(), st.text(st.characters(codec=None), max_size=20))
def test_no_bytes_and_no_folder_make_reading_raise(content: bytes, folder: str) -> None:
    parsed = skill_md.parse_skill_md_with_diagnostics(folder, content)
    assert (parsed.skill is None) == any(d.severity is Severity.ERROR for d in parsed.diagnostics)
    if parsed.skill is not None:
        packed = records.pack_summary(parsed.skill).encode()
        assert records.unpack_summary(json.loads(packed), name=parsed.skill.name).title == parsed.skill.title


# skill.toml beside it


@pytest.mark.req("SK-13")
def test_fields_beside_the_file_are_read_and_the_file_wins() -> None:
    toml = b'[skill]\nname = "a"\ndescription = "T"\ntriggers = ["x"]\nalways_include = true\nsince = 2024-01-02\n'
    found = _skill("Body only\n", toml=toml)
    assert (found.description, found.manifest, found.body) == (
        "T",
        Manifest(triggers=("x",), always_include=True),
        "Body only",
    )
    assert found.extra == {"since": "2024-01-02"}
    assert records.pack_summary(found)
    assert _skill("---\ndescription: F\n---\nBody\n", toml=toml).description == "F"


@pytest.mark.req("SC-01")
@pytest.mark.parametrize("toml", [b"broken =", b"\xff", b"a = " + b"[" * 5000, b"a = " + b"[" * 100 + b"]" * 100])
def test_a_toml_file_that_makes_no_sense_is_said(toml: bytes) -> None:
    parsed = skill_md.parse_skill_md_with_diagnostics("a", b"Body", toml=toml)
    assert parsed.skill is None
    assert parsed.diagnostics[-1].file == "skill.toml"
    assert "Not valid TOML" in parsed.diagnostics[-1].message


# Changing a file


@pytest.mark.req("SK-02")
@given(files())
@example(b"\n# Sum a table\n\nAdd up its rows.\n")
def test_saying_what_a_file_says_already_keeps_every_byte(content: bytes) -> None:
    skill = skill_md.parse_skill_md_with_diagnostics("csv-summary", content).skill
    if skill is not None:
        assert skill_md.update_skill_md(content, skill) == content


_CHANGED = (
    "title",
    "description",
    "when_to_use",
    "tags",
    "license",
    "provenance",
    "metadata",
    "extra",
    "manifest",
    "body",
)


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
def test_an_edit_keeps_what_only_yaml_takes_for_the_end_of_a_line(end: str) -> None:
    content = b"---\nname: csv-summary\ndescription: D\nname: csv-summary\nmetadata: {a: b}\n---"
    skill = skill_md.parse_skill_md_with_diagnostics("csv-summary", content).skill
    assert skill is not None
    wanted = replace(skill, manifest=Manifest(requires_tools=(f"---{end}---",)), when_to_use=f"x{end}---y")
    found = skill_md.parse_skill_md_with_diagnostics("csv-summary", skill_md.update_skill_md(content, wanted)).skill
    assert found is not None
    assert (found.manifest, found.when_to_use) == (wanted.manifest, wanted.when_to_use)


@pytest.mark.full
@given(files(), SKILLS, st.sampled_from(_CHANGED))
def test_an_edit_of_one_field_reads_back_as_asked(content: bytes, other: Skill, field: str) -> None:
    skill = skill_md.parse_skill_md_with_diagnostics("csv-summary", content).skill
    if skill is None:
        return
    wanted = replace(skill, **{field: getattr(as_kept(other), field)})
    wanted = replace(wanted, description=wanted.description.strip())
    try:
        after = skill_md.update_skill_md(content, wanted)
    except Invalid:
        return
    kept = replace(_plain(wanted), manifest=replace(wanted.manifest, unreadable=()))
    found = _plain(skill_md.parse_skill_md_with_diagnostics("csv-summary", after).skill)
    assert replace(found, manifest=replace(found.manifest, unreadable=())) == kept


BY_HAND = """\
\ufeff---\r
# who wrote this\r
title: T   # why\r
name: a\r
\r
description: D\r
custom-key: {x: [1, 2]}\r
metadata:\r
    # four spaces\r
    author: "ann"\r
    habitus.tags: '["x"]'\r
--- \r
\r
\r
Body\r
last line"""


@pytest.mark.parametrize(
    ("change", "gone", "come"),
    [
        ({"title": "U"}, ["title: T   # why"], ["    habitus.title: U"]),
        ({"tags": ("y",)}, ["    habitus.tags: '[\"x\"]'"], ["    habitus.tags: '[\"y\"]'"]),
        ({"license": "MIT"}, [], ["license: MIT"]),
        ({"body": "Body\nmore\nlast line"}, [], ["more"]),
    ],
)
def test_an_edit_keeps_every_line_it_does_not_touch(change: dict[str, Any], gone: list[str], come: list[str]) -> None:
    before = _skill(BY_HAND)
    after = skill_md.update_skill_md(BY_HAND.encode(), replace(before, **change)).decode()
    assert [line for line in after.split("\r\n") if line not in come] == [
        line for line in BY_HAND.split("\r\n") if line not in gone
    ] + ([""] if "body" in change else [])
    assert all(line in after.split("\r\n") for line in come)
    assert "\n" not in after.replace("\r\n", "")
    assert _plain(_skill(after)) == _plain(replace(before, **change))


def test_the_cue_of_another_agents_file_can_be_changed() -> None:
    content = b"---\nname: a\ndescription: D\nwhen_to_use: Often\n---\n\nBody\n"
    wanted = replace(_skill(content), when_to_use="Seldom")
    assert _plain(_skill(skill_md.update_skill_md(content, wanted))) == _plain(wanted)


def test_a_field_that_nobody_knows_survives_a_change_of_its_neighbour() -> None:
    content = skill_md.render_skill_md(Skill(name="a", description="D", extra={"x": 1, "y": 2}))
    wanted = replace(_skill(content), extra={"x": 1, "y": 3})
    assert _skill(skill_md.update_skill_md(content, wanted)).extra == {"x": 1, "y": 3}
    assert _skill(skill_md.update_skill_md(content, replace(wanted, extra={"x": 1}))).extra == {"x": 1}


def test_a_file_that_was_lenient_stays_editable() -> None:
    content = b"---\nname: a\ndescription: <b> " + b"x" * 2000 + b"\n---\n\nBody\n"
    before = _skill(content)
    assert skill_md.update_skill_md(content, replace(before, title="T")).startswith(
        b"---\nname: a\ndescription: <b> xx"
    )
    with pytest.raises(Invalid, match="characters"):
        skill_md.update_skill_md(content, replace(before, description=before.description + "y"))


def test_a_file_that_cannot_be_read_is_written_anew() -> None:
    assert skill_md.update_skill_md(b"no frontmatter", FULL) == skill_md.render_skill_md(FULL)


def test_a_trigger_that_is_taken_away_does_not_come_back_by_its_old_name() -> None:
    old = b"---\nname: a\ndescription: D\nkeywords: [memo, jot]\n# a comment\nlicense: MIT\n---\nB\n"
    before = skill_md.parse_skill_md_with_diagnostics("a", old, file="a/skill.md").skill
    assert before is not None
    assert before.manifest.triggers == ("memo", "jot")
    fewer = replace(before, manifest=replace(before.manifest, triggers=("jot",)))
    changed = skill_md.update_skill_md(old, fewer, file="skill.md")
    after = skill_md.parse_skill_md_with_diagnostics("a", changed, file="a/skill.md").skill
    assert after is not None
    assert after.manifest.triggers == ("jot",)
    assert b"keywords" not in changed
    assert b"# a comment" in changed
    assert skill_md.update_skill_md(old, before, file="skill.md") == old


def test_a_bare_file_keeps_its_words_when_it_is_changed_or_renamed() -> None:
    bare = b"# Tea\n\nBrews tea.\n\n1. Boil.\n"
    skill = skill_md.parse_skill_md_with_diagnostics("tea", bare, file="tea/SKILL.md").skill
    assert skill is not None
    for content in (
        skill_md.update_skill_md(bare, replace(skill, license="MIT")),
        skill_md.change_name_in_skill_md(bare, "tea"),
    ):
        again = skill_md.parse_skill_md_with_diagnostics("tea", content, file="tea/SKILL.md").skill
        assert again is not None
        assert (again.title, again.description, again.body) == (skill.title, skill.description, skill.body)
