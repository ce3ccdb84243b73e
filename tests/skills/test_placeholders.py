"""Names in braces that are filled in when a skill is loaded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills import trees

pytestmark = pytest.mark.req("SK-17")

VALUES = {"BOT_NAME": "Nora", "BOT_DIR": "/srv/nora", "SKILL_DIR": "/srv/nora/skills/a", "USER": "ann"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("I am {BOT_NAME}.", "I am Nora."),
        ("{BOT_DIR} {SKILL_DIR} {USER}", "/srv/nora /srv/nora/skills/a ann"),
        ("{USER}{USER}", "annann"),
        ("{{USER}}", "{ann}"),
        ("${USER}", "${USER}"),
        ("cost: $ {USER}", "cost: $ ann"),
        ("echo ${BOT_DIR}/{BOT_NAME}", "echo ${BOT_DIR}/Nora"),
        ("{user} {Bot_Name} { USER } {OTHER} {}", "{user} {Bot_Name} { USER } {OTHER} {}"),
        ('{"USER": 1}', '{"USER": 1}'),
        ("{BOT_NAME", "{BOT_NAME"),
    ],
)
def test_known_names_are_filled_and_everything_else_stays(text: str, filled: str) -> None:
    assert trees.fill_text_placeholders(text, VALUES) == filled


def test_a_value_is_text_not_a_pattern_and_not_filled_again() -> None:
    assert trees.fill_text_placeholders("{USER}", {"USER": r"\1 {BOT_NAME} $&", "BOT_NAME": "x"}) == r"\1 {BOT_NAME} $&"


def test_a_name_without_a_value_stays_open() -> None:
    assert trees.fill_text_placeholders("{USER} {BOT_NAME}", {"USER": "ann"}) == "ann {BOT_NAME}"


@given(st.text("{}$USERBOT_NAME ab", max_size=60))
def test_nothing_is_left_to_fill_unless_it_stands_after_a_dollar(text: str) -> None:
    filled = trees.fill_text_placeholders(text, dict.fromkeys(trees.PLACEHOLDER_NAMES, "·"))
    for name in trees.PLACEHOLDER_NAMES:
        assert filled.count(f"{{{name}}}") == filled.count(f"${{{name}}}") == text.count(f"${{{name}}}")
