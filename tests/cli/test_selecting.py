"""`habitus ask`, `chat`, `why` and `skills select`: what a request brings besides its words reaches selection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Direct

AROUND = ("--path", "src/a.py", "--resource", "calendar", "--feature", "skill_try_this")
FIELDS = {
    "lint-code": 'metadata:\n  habitus.paths: "src/*.py"\n',
    "plan-week": 'metadata:\n  habitus.resource_types: "calendar"\n',
    "try-this": 'metadata:\n  habitus.experimental: "true"\n',
}


@pytest.fixture
def asking(direct: Direct) -> Direct:
    """With a skill for a path, one for a resource and one for a feature."""
    for name, fields in FIELDS.items():
        file = direct.skill_file(name)
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\ndescription: Does {name}.\n{fields}---\n\n1. Do it.\n")
    return direct


def _selected(direct: Direct, turn: str) -> dict[str, str]:
    return {name: direct.json("why", name, "--turn", turn)["selected"][0]["place"] for name in FIELDS}


def _done(out: str) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, out.splitlines()) if row["type"] == "done"]


@pytest.mark.req("SE-02", "SE-04", "SE-08", "SK-15")
def test_ask_and_chat_take_paths_resources_and_features(asking: Direct) -> None:
    (asking.cli.cwd / "model.json").write_text(json.dumps([{"say": "one"}, {"say": "two"}]))
    model = ("--model", "script:model.json", "--json")
    plain = _done(asking.ok("ask", "hello", *model))
    assert set(_selected(asking, plain[0]["turn"]).values()) == {"menu", "left_out"}
    opened = {"lint-code": "eager", "plan-week": "menu", "try-this": "menu"}
    asked = _done(asking.ok("ask", "hello", *AROUND, *model))
    assert _selected(asking, asked[0]["turn"]) == opened
    chatted = _done(asking.cli("chat", *AROUND, *model, stdin="hello\nand again\n").out)
    assert [_selected(asking, row["turn"]) for row in chatted] == [opened, opened]


@pytest.mark.req("SE-08")
def test_why_and_select_take_them_too(asking: Direct) -> None:
    request = ("--request", "hello")
    assert asking.ok("why", "lint-code", *request, *AROUND).startswith("lint-code is in the prompt in full: path=src/*")
    assert asking.json("why", "plan-week", *request)["reason"] == "needs one of the resources calendar"
    assert [asking.json("why", name, *request, *AROUND)["place"] for name in FIELDS] == ["eager", "menu", "menu"]
    seen = asking.json("skills", "select", *request, *AROUND)
    assert [one["name"] for one in seen["eager"]] == ["lint-code"]
    assert {"plan-week", "try-this"} < set(seen["menu"])
    assert "lint-code" not in seen["menu"]
