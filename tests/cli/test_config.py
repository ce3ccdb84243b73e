"""`habitus config`, through the command line."""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from habitus.app.operating.configuring import edit_settings_text
from tests.cli.conftest import Direct

_FILE = """# Mine.
model = "openai:small"  # the quick one
disabled_skills = [
  "one",  # noisy
  "two",
]

# How long things stay.
[retention]
lessons = 30
"""


def _write(direct: Direct, text: str) -> None:
    (direct.home / "habitus.toml").write_text(text)


def _text(direct: Direct) -> str:
    return (direct.home / "habitus.toml").read_text()


def _undo(direct: Direct, out: str) -> None:
    (line,) = re.findall(r"^Undo: habitus (.*)$", out, re.MULTILINE)
    direct.ok(*shlex.split(line))


def test_every_setting_is_listed_with_its_origin(direct: Direct) -> None:
    _write(direct, _FILE)
    told = direct.json("config", "list", env={"HABITUS_RETENTION_LESSON_DAYS": "9"})["settings"]
    found = {one["key"]: (one["value"], one["origin"]) for one in told}
    assert found["model"] == ("openai:small", "file")
    assert found["disabled_skills"] == (["one", "two"], "file")
    assert found["retention.lessons"] == (30, "file")
    assert found["retention.lesson_days"] == (9, "environment")
    assert found["memory"] == ("autopilot", "default")
    assert direct.ok("config", "get", "retention.lessons") == "30\n"


def test_a_value_is_set_where_it_stands_and_comments_stay(direct: Direct) -> None:
    _write(direct, _FILE)
    out = direct.ok("config", "set", "model", "anthropic:large")
    assert _text(direct) == _FILE.replace("openai:small", "anthropic:large")
    _undo(direct, out)
    assert _text(direct) == _FILE
    out = direct.ok("config", "set", "disabled_skills", "three, four")
    assert tomllib.loads(_text(direct))["disabled_skills"] == ["three", "four"]
    _undo(direct, out)
    assert tomllib.loads(_text(direct)) == tomllib.loads(_FILE)


@pytest.mark.parametrize("key", ["review.auto", "durable", "retention.degraded_tool_days", "learning_tokens"])
def test_what_was_not_in_the_file_is_taken_out_again(direct: Direct, key: str) -> None:
    _write(direct, _FILE)
    value = {"review.auto": "true", "durable": "no"}.get(key, "7")
    out = direct.ok("config", "set", key, value)
    assert direct.json("config", "get", key)["origin"] == "file"
    assert [line for line in _FILE.splitlines() if line not in _text(direct).splitlines()] == []
    _undo(direct, out)
    assert direct.json("config", "get", key)["origin"] == "default"


def test_a_home_without_a_file_gets_one_for_its_owner_alone(direct: Direct) -> None:
    direct.ok("config", "set", "memory", "copilot")
    assert _text(direct) == 'memory = "copilot"\n'
    assert (direct.home / "habitus.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "memory", "sometimes"), "Setting 'memory' can't be 'sometimes'"),
        (("set", "retention.lessons", "0"), "Setting 'retention.lessons' can't be '0'"),
        (("set", "modle", "x"), "There is no setting 'modle'. Did you mean 'model'?"),
        (("get", "users"), "There is no setting 'users'."),
    ],
)
def test_what_cannot_be_set_is_said_and_the_file_stays(direct: Direct, args: tuple[str, ...], said: str) -> None:
    _write(direct, _FILE)
    ran = direct("config", *args)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert _text(direct) == _FILE


@pytest.mark.req("CL-02")
def test_that_somebody_else_must_approve_takes_somebody_else(direct: Direct) -> None:
    alone = direct("config", "set", "review.somebody-else", "true")
    assert (alone.code, "No other person could approve. Invite" in alone.err) == (1, True)
    direct.ok("config", "set", "review.somebody_else", "false")
    direct.ok("users", "add", "ben", "--role", "reviewer")
    assert "is set to true" in direct.ok("config", "set", "review.somebody_else", "true")


def test_the_same_value_again_changes_nothing(direct: Direct) -> None:
    _write(direct, _FILE)
    assert direct.ok("config", "set", "model", "openai:small") == "Nothing was changed.\n"


def test_where_the_environment_wins_that_is_said(direct: Direct) -> None:
    out = direct.ok("config", "set", "model", "openai:a", env={"HABITUS_MODEL": "openai:b"})
    assert "an environment variable overrides it" in out


@pytest.mark.req("SC-02")
def test_secrets_are_never_shown(direct: Direct) -> None:
    secret = "sk-" + "proj-" + "a1B2c3D4e5" * 4
    out = direct.ok("config", "set", "base_url", f"https://u:{secret}@example.org/v1")
    again = direct.ok("config", "set", "base_url", "https://example.org/v1")
    direct.ok("config", "set", "base_url", f"https://u:{secret}@example.org/v1")
    for shown in (out, again, direct.ok("config", "list"), direct.ok("config", "get", "base_url", "--json")):
        assert secret not in shown


_LINES = st.lists(
    st.sampled_from(
        [
            "# a comment",
            "",
            'bot_name = "A#B" # c',
            "look_every = 1.5",
            "[retention]",
            "lesson_days = 3",
            "[review]  # r",
        ]
    ),
    unique=True,
    max_size=7,
)


@given(_LINES, st.sampled_from([("bot_name", "X"), ("retention.lesson_days", 4), ("review.auto", True)]))
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_an_edit_keeps_every_other_line(lines: list[str], change: tuple[str, Any]) -> None:
    text = "\n".join(lines) + "\n" if lines else ""
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    key, value = change
    section, _, name = key.rpartition(".")
    after = edit_settings_text(text, key, value)
    kept = [line for line in lines if not line.startswith(name)]
    assert [line for line in after.splitlines() if line in kept and line] == [line for line in kept if line]
    found = tomllib.loads(after)
    assert (found[section] if section else found)[name] == value
    assert before == tomllib.loads(text)


@pytest.mark.req("IM-05")
@pytest.mark.parametrize(
    ("name", "told"),
    [("claudecode", "Did you mean 'claude-code'?"), ("anthropc:large", "anthropic"), ("anthropic:", "names no model")],
)
def test_a_model_whose_name_nobody_knows_is_refused_with_the_closest(direct: Direct, name: str, told: str) -> None:
    for key in ("model", "cheap_model"):
        ran = direct("config", "set", key, name)
        assert (ran.code, told in ran.err, ran.err.count("\n")) == (1, True, 1)
    direct.ok("config", "set", "model", "claude-code:opus")
