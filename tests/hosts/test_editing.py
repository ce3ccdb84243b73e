"""Configs edited as text: what is put in is there, what is taken out is gone, and nothing else says something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import Invalid
from habitus.hosts import config_editing as editing
from habitus.hosts.config_editing import ConfigEntry, ConfigFormat

SERVER = ConfigEntry(path=("servers", "habitus"), value={"command": "/usr/bin/habitus", "args": ["mcp"]})
HOOK = ConfigEntry(
    path=("hooks", "Stop"), value={"hooks": [{"type": "command", "command": "ours", "timeout": 2}]}, is_item=True
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=8), below, max_size=3),
    max_leaves=8,
)
others = st.dictionaries(st.text(max_size=8), values, max_size=4)
holders = st.fixed_dictionaries({}, optional={"servers": others, "hooks": st.just({}) | st.just({"Stop": [{"x": 1}]})})


@given(said=others, held=holders, indent=st.sampled_from([None, 2, "\t"]), newline=st.sampled_from(["\n", "\r\n"]))
def test_json_with_our_entries_and_without_them_says_what_it_said(
    said: dict[str, Any], held: dict[str, Any], indent: int | None, newline: str
) -> None:
    text = json.dumps({**said, **held}, indent=indent).replace("\n", newline)
    entries = (SERVER, HOOK)
    there = editing.add_entries_to_config_text(text, ConfigFormat.JSON, entries)
    assert json.loads(there)["servers"]["habitus"] == SERVER.value
    assert json.loads(there)["hooks"]["Stop"][-1] == HOOK.value
    if "habitus" not in held.get("servers", {}):
        assert (
            editing.remove_entries_from_config_text(
                there,
                ConfigFormat.JSON,
                entries,
                editing.extract_config_state_before_entries(text, ConfigFormat.JSON, entries),
            )
            == text
        )


WITH_COMMENTS = """\
// mine
{
  "servers": {
    /* theirs */
    "other": {"command": "x"}, // last, with a comma
  },
  "note": "// no comment", // one
}
"""


def test_comments_and_trailing_commas_stay_where_they_are() -> None:
    there = editing.add_entries_to_config_text(WITH_COMMENTS, ConfigFormat.JSONC, (SERVER,))
    assert [line for line in WITH_COMMENTS.splitlines() if line not in there.splitlines()] == []
    assert editing.parse_config_text(there, ConfigFormat.JSONC)["servers"]["habitus"] == SERVER.value
    back = editing.remove_entries_from_config_text(
        there,
        ConfigFormat.JSONC,
        (SERVER,),
        editing.extract_config_state_before_entries(WITH_COMMENTS, ConfigFormat.JSONC, (SERVER,)),
    )
    assert back == WITH_COMMENTS.replace("}, // last", "} // last")


WITH_TABLES = """\
# mine
model = "gpt" # the good one

[servers.other]
command = "x" # theirs

[tui]
theme = "dark"
"""


def test_toml_keeps_its_comments_and_tables() -> None:
    there = editing.add_entries_to_config_text(WITH_TABLES, ConfigFormat.TOML, (SERVER,))
    assert [line for line in WITH_TABLES.splitlines() if line not in there.splitlines()] == []
    back = editing.remove_entries_from_config_text(
        there,
        ConfigFormat.TOML,
        (SERVER,),
        editing.extract_config_state_before_entries(WITH_TABLES, ConfigFormat.TOML, (SERVER,)),
    )
    assert back == WITH_TABLES


@given(before=st.text(alphabet="ab \n", max_size=12), after=st.text(alphabet="ab \n", max_size=12))
def test_a_block_changes_nothing_outside_its_marks(before: str, after: str) -> None:
    """Also where somebody wrote on below it."""
    first = (
        editing.add_entries_to_config_text(before, ConfigFormat.BLOCK, (ConfigEntry(path=(), value="one\ntwo"),))
        + after
    )
    second = editing.add_entries_to_config_text(first, ConfigFormat.BLOCK, (ConfigEntry(path=(), value="three"),))
    assert second == first.replace("one\ntwo", "three")
    left = editing.remove_entries_from_config_text(
        second,
        ConfigFormat.BLOCK,
        (ConfigEntry(path=(), value="three"),),
        editing.ConfigStateBeforeOurEntries(replaced={}, missing=()),
    )
    assert left.split() == f"{before} {after}".split()


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"servers": []}', ConfigFormat.JSON),
        ('{"servers": {"habitus": 1}, "servers": {}} x', ConfigFormat.JSON),
        ('{"a": 1,}', ConfigFormat.JSON),
        ("// note\n{}", ConfigFormat.JSON),
        ('{"a": "unfinished', ConfigFormat.JSONC),
        ("[" * 500, ConfigFormat.JSONC),
        ("[]", ConfigFormat.JSON),
        ("servers = 1\n", ConfigFormat.TOML),
        ("a = \n", ConfigFormat.TOML),
        ("<!-- habitus:end -->\n<!-- habitus:begin -->\n", ConfigFormat.BLOCK),
        ("<!-- habitus:begin -->\n", ConfigFormat.BLOCK),
    ],
)
def test_what_can_not_be_edited_is_refused(text: str, format: ConfigFormat) -> None:
    entry = SERVER if format is not ConfigFormat.BLOCK else ConfigEntry(path=(), value="x")
    with pytest.raises(Invalid):
        editing.add_entries_to_config_text(text, format, (entry,))
