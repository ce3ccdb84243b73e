"""A shorter version by rule: what is said twice or in too many words goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.files import build_tree_file
from habitus.improve.candidates import find_candidate_objection
from habitus.improve.shortening import drop_redundant_skill_text
from habitus.skills import trees
from habitus.skills.model import Skill
from habitus.text import estimate_tokens

LONG = """# Totals

Sums up the columns of a table by group.

## When to use this skill

- Somebody asks for totals.

## Steps

1. Please note that the header is not a row. Read the file as UTF-8 with its header.
2. In order to sum, group by the first column.
3. Read the file as UTF-8 with its header.

```bash
# When to use this skill
sum table.csv
```

## Examples

By month:

```bash
sum --by month table.csv
```

By year:

```bash
sum --by year table.csv
```

Good luck!
"""
SHORT = """# Totals

## Steps

1. The header is not a row. Read the file as UTF-8 with its header.
2. To sum, group by the first column.

```bash
# When to use this skill
sum table.csv
```

## Examples

By month:

```bash
sum --by month table.csv
```

"""


def _skill(body: str) -> Skill:
    text = f"---\nname: totals\ndescription: Sums up the columns of a table by group.\n---\n{body}"
    skill = trees.parse_skill_tree("totals", {"SKILL.md": build_tree_file(text.encode())}).skill
    assert skill is not None
    return skill


@pytest.mark.req("IM-04")
def test_what_is_said_twice_or_in_too_many_words_goes() -> None:
    shorter = drop_redundant_skill_text(_skill(LONG))
    assert shorter is not None
    assert shorter.body == SHORT
    assert drop_redundant_skill_text(_skill(SHORT)) is None


@pytest.mark.req("IM-04")
@given(st.lists(st.sampled_from([*LONG.splitlines(keepends=True), "```\n", "\n", "Ü. Ü.\n", "tail"]), max_size=60))
def test_whatever_the_text_is_a_shorter_one_stays_within_its_bounds(lines: list[str]) -> None:
    skill = _skill("".join(lines))
    if (new := drop_redundant_skill_text(skill)) is not None:
        assert (estimate_tokens(new.body) < estimate_tokens(skill.body), find_candidate_objection(skill, new, [])) == (
            True,
            "",
        )
