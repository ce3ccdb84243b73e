"""The menu and its budget, and the news of the library."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills.choosing import menu
from habitus.skills.choosing.selection import SkillSelection
from habitus.skills.model import SkillSource, SkillSummary, Stage
from habitus.use_counts import UsageCounts


def skills(count: int, cue: str = "the user asks for it") -> list[SkillSummary]:
    return [SkillSummary(name=f"skill-{n:04d}", when_to_use=f"{cue} {n}", tags=("t",)) for n in range(count)]


def estimate_once() -> defaultdict[str, float]:
    """Expect one use of every skill."""
    return defaultdict(lambda: 1.0)


@pytest.mark.req("SE-06")
def test_the_menu_is_one_line_each_in_name_order_and_nothing_when_empty() -> None:
    assert menu.compose_menu([], 100, estimate_once).text == ""
    found = menu.compose_menu(list(reversed(skills(2))), 1000, estimate_once)
    assert found.text == (
        "## Available skills (load on demand)\n\n"
        "- skill-0000 — the user asks for it 0 [t]\n"
        "- skill-0001 — the user asks for it 1 [t]"
    )


@pytest.mark.req("SE-06")
def test_the_description_serves_where_there_is_no_cue() -> None:
    assert menu.format_menu_line(SkillSummary(name="a", description="Does a.")) == "- a — Does a."
    assert menu.format_menu_line(SkillSummary(name="a")) == "- a"


@pytest.mark.req("SE-07")
def test_cues_shorten_before_any_line_falls() -> None:
    many = skills(50, cue="word " * 60)
    found = menu.compose_menu(many, menu.compute_menu_budget(128_000, 4_000), estimate_once)
    assert len(found.shown) == 50
    assert found.cut == ()
    assert found.max_line_length < 300
    assert found.tokens <= found.budget


@pytest.mark.req("SE-07")
def test_when_lines_must_fall_the_most_useful_stay_and_the_rest_is_said() -> None:
    many = skills(2000)
    useful = {f"skill-{n:04d}": 1.0 for n in range(1500, 1510)}
    found = menu.compose_menu(many, menu.compute_menu_budget(128_000, 1_000), lambda: defaultdict(float, useful))
    assert set(useful) == set(found.shown)
    assert list(found.shown) == sorted(found.shown)
    assert len(found.shown) + len(found.cut) == 2000
    assert f"({len(found.cut)} more skills are not listed here; search_skills finds them.)" in found.text
    assert found.tokens <= found.budget


NOW = datetime(2026, 11, 18, tzinfo=UTC)


def composed(many: list[SkillSummary], used: dict[str, datetime] | None = None, **options: Any) -> menu.SkillMenu:
    counters = {("user", name): {Stage.STEPS: UsageCounts(used=2, last_used=on)} for name, on in (used or {}).items()}
    chosen = SkillSelection(menu=tuple(replace(one, layer="user") for one in many))
    given = menu.MenuOptions(budget=1_000, clock=lambda: NOW, **options)
    return menu.build_menu_for_selection(chosen, counters, given)


@pytest.mark.req("SE-07")
def test_a_large_library_lists_what_is_pinned_bundled_used_lately_or_likely_in_this_project() -> None:
    many = skills(2000)
    many[7] = replace(many[7], source=SkillSource.BUNDLED)
    many[9] = replace(many[9], tags=("Rust",))
    used = {"skill-0100": NOW - timedelta(days=3), "skill-0200": NOW - timedelta(days=300)}
    found = composed(many, used, pinned={"skill-1999"}, project=lambda: ("rust", "golang"))
    assert found.shown == ("skill-0007", "skill-0009", "skill-0100", "skill-1999")
    assert found.tokens < 150
    assert "(1996 more skills are not listed here; search_skills finds them.)" in found.text


@pytest.mark.req("SE-07")
def test_words_that_many_skills_share_with_the_project_list_none_of_them() -> None:
    many = [replace(one, tags=("python",)) for one in skills(2000)]
    assert composed(many, project=lambda: ("python",)).shown == ()
    assert len(composed(many[:30], project=lambda: ("python",)).shown) == 30


@pytest.mark.req("SE-07")
@given(st.integers(0, 300), st.integers(60, 4000), st.sampled_from(["word " * 9, "日本語" * 30]))
def test_the_menu_stays_within_its_budget_and_loses_nobody(count: int, budget: int, cue: str) -> None:
    found = menu.compose_menu(skills(count, cue=cue), budget, estimate_once)
    assert found.tokens <= budget
    assert sorted([*found.shown, *found.cut]) == [f"skill-{n:04d}" for n in range(count)]
    assert found == menu.compose_menu(skills(count, cue=cue), budget, estimate_once)


@pytest.mark.req("SK-16")
def test_news_are_what_was_added_changed_and_removed() -> None:
    before, now = {"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"}
    found = menu.find_skill_changes_since_visit(
        before, now, changelog=lambda: "## 2.0\n- d: does wonders\n- unrelated\n"
    )
    assert (found.added, found.changed, found.removed) == (("d",), ("b",), ("a",))
    assert found.lines == ("d: does wonders",)
    assert found.render_prompt_section().startswith("## What's new\n\n- new: d\n- changed: b\n- gone: a")
    assert not menu.find_skill_changes_since_visit(now, now)
    assert not menu.find_skill_changes_since_visit(None, now)
    assert menu.compute_library_fingerprint(before) != menu.compute_library_fingerprint(now)
    assert menu.compute_library_fingerprint(now) == menu.compute_library_fingerprint(dict(reversed(now.items())))
