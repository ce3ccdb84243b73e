"""Pages stay small however much there is: two thousand skills and five hundred changes that wait."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library import browsing
from habitus.search.texts.embedding import NoEmbedder
from tests.web.furnished import furnish_with_life, furnish_with_much
from tests.web.test_pages import PAGES

MOST_BYTES, MOST_NODES = 300_000, 5_000


@pytest.mark.full
@pytest.mark.req("CL-02")
@pytest.mark.parametrize(
    ("skills", "waiting", "on_map"),
    [(140, 55, 100), pytest.param(2000, 500, browsing.MAX_DOTS, marks=pytest.mark.full)],
)
def test_no_page_is_large_where_there_is_much(
    browser: TestClient, habitus: Habitus, monkeypatch: pytest.MonkeyPatch, skills: int, waiting: int, on_map: int
) -> None:
    monkeypatch.setattr(browsing, "MAX_DOTS", on_map)
    furnish_with_life(habitus)
    furnish_with_much(habitus, skills=skills, waiting=waiting, requests=20)
    item = f"/inbox/{habitus.review.list_proposals_by_state(with_contents=False)[0].id}"
    large = {}
    for path in (*PAGES, "/skills?sort=effect", "/skills?page=40", item, "/find?q=letters"):
        text = browser.get(path).text
        nodes = len(re.findall(r"<[a-z]", text))
        if len(text.encode()) > MOST_BYTES or nodes > MOST_NODES:
            large[path] = len(text.encode()), nodes
    assert large == {}
    first = browser.get("/api/v1/map").json()
    assert len(first["skills"]) == browsing.MAX_DOTS
    assert sum(one["number"] for one in first["clusters"]) == len(habitus.skills.snapshot().by_name) - browsing.MAX_DOTS
    kept = {one["name"]: (one["x"], one["y"]) for one in first["skills"]}
    (habitus.settings.home / browsing.MAP_FILE).unlink()
    again = browser.get("/api/v1/map").json()["skills"]
    assert {one["name"]: (one["x"], one["y"]) for one in again} == kept  # laid out anew, and the same
    habitus.skills.remove("close-the-month", habitus.build_author())
    again = browser.get("/api/v1/map").json()["skills"]
    assert {one["name"]: (one["x"], one["y"]) for one in again if one["name"] in kept}.items() <= kept.items()


@pytest.mark.req("CL-02")
@pytest.mark.parametrize("skills", [1, 2, 7])
def test_a_map_without_an_encoder_spreads_the_skills(skills: int) -> None:
    places = browsing.compute_map_layout(NoEmbedder().embed(["same"] * skills).astype(np.float64))
    assert len({tuple(place) for place in places.round(3).tolist()}) == skills
    assert places.min() >= 0
    assert places.max() <= 1
