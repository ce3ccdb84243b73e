"""Texts that keep difflib busy for days are compared at once, by every door that compares."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.comparing import BoundedSequenceMatcher, ComparisonStepBudget
from habitus.files import build_tree_file
from habitus.skills.edits import diff_trees, merge_lines_three_way
from habitus.skills.layers.layer import USER_LAYER
from habitus.web.rendering import build_diff_rows
from tests.web.conftest import api, app, habitus_skills, keys  # noqa: F401  # fixtures of the page

pytestmark = pytest.mark.req("SC-07", "CL-04")

WORDS = "tea " * 200_000
LINES = "tea\n" * 200_000
# Each line is too rare for difflib's own shortcut.
TURNED = [f"{number % 101}\n" for number in range(100_000)]


@pytest.mark.parametrize("body", [WORDS, LINES, "".join(TURNED)])
def test_versions_of_a_skill_are_compared_on_the_page_and_by_the_program(
    api: TestClient,  # noqa: F811
    habitus: Habitus,
    body: str,
) -> None:
    head = "---\nname: brew-tea\ndescription: How tea is brewed\n---\n"
    author = habitus.build_author()
    for text in (body, "cup " + " ".join(reversed(body.split(" "))) + "\nend"):
        habitus.skills.write_tree(USER_LAYER, "brew-tea", {"SKILL.md": build_tree_file((head + text).encode())}, author)
    latest = habitus.skills.list_versions("brew-tea")[-1].number
    assert "cup" in habitus.skills.diff_versions("brew-tea", latest - 1, latest)
    assert api.get(f"/skills/brew-tea?tab=history&version={latest}").status_code == 200


def test_a_merge_and_a_long_line_end_and_lose_nothing() -> None:
    base, ours = ["tea"] * 100_000, ["cup", *["tea"] * 100_000]
    assert merge_lines_three_way(base, ours, base) in (ours, None)  # a person decides
    (row,) = build_diff_rows(WORDS, f"cup {WORDS}")
    assert "".join(text for _, text in row.after or ()) == f"cup {WORDS}"
    turned = "".join(reversed(TURNED))
    shown = diff_trees(
        {"x": build_tree_file("".join(TURNED).encode())}, {"x": build_tree_file(turned.encode())}, "a", "b"
    )
    assert sum(line.startswith("-") for line in shown.splitlines()) - 1 <= len(TURNED)


def test_comparisons_share_what_they_may_take() -> None:
    budget = ComparisonStepBudget(100)
    first = BoundedSequenceMatcher(["a", "b"], ["a", "c"], budget).get_opcodes()
    assert [what for what, *_ in first] == ["equal", "replace"]
    second = BoundedSequenceMatcher(["a"] * 20, ["a"] * 20, budget).get_opcodes()
    assert [what for what, *_ in second] == ["replace"]
