"""The cost of a change over REST, in transactions, looks at directories and YAML read."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.costs import assert_cheap_edit, counted_costs

SKILL = "/api/v1/skills/brew-tea"


@pytest.mark.req("PF-04")
def test_an_edit_takes_few_transactions_one_look_and_one_parse_each_way(api: TestClient) -> None:
    api.get("/api/v1/skills")  # notes what is new on disk
    tag = api.get(SKILL).headers["ETag"]
    for number in (2, 3):  # the second time the file is a moment old
        with counted_costs() as costs:
            changed = api.patch(SKILL, json={"body": f"{number}.", "title": f"T{number}"}, headers={"If-Match": tag})
        assert changed.json()["undo"] == ["undo", f"brew-tea@user:{number}"]
        assert_cheap_edit(costs)
        tag = changed.headers["ETag"]
    shown = api.get(SKILL).json()
    assert (shown["body"], shown["title"], shown["version"]) == ("3.", "T3", 3)
