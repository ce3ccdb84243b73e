"""`--verbose` and HABITUS_LOG, through the command line."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from habitus.cli.main import configure_logging
from habitus.sandbox.credentials.vault import open_vault
from tests.cli.conftest import Direct

_LINE = "INFO habitus.agent.prompts.composer: selection count="
_SECRET = "hunter" + "2-hunter" + "2-hunter"


@pytest.fixture
def model(direct: Direct) -> str:
    path = direct.cli.cwd / "script.json"
    path.write_text(json.dumps([{"say": "Good day."}]))
    return f"script:{path}"


@pytest.mark.full
def test_a_line_per_turn_is_shown_when_it_is_asked_for(direct: Direct, model: str) -> None:
    ask = ("chat", "Good day?", "--model", model)
    assert _LINE in direct("-v", *ask).err
    assert _LINE in direct("--verbose", *ask).err
    assert _LINE in direct(*ask, env={"HABITUS_LOG": "info"}).err
    assert "DEBUG " in direct(*ask, env={"HABITUS_LOG": "debug"}).err
    assert direct(*ask).err == ""


def test_a_file_takes_the_lines(direct: Direct, model: str) -> None:
    file = direct.cli.cwd / "habitus.log"
    assert direct("chat", "Good day?", "--model", model, env={"HABITUS_LOG": str(file)}).err == ""
    assert _LINE in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("SC-02")
def test_no_secret_is_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HABITUS_VAULT_KEY", "a-long-random-text-of-a-variable")
    open_vault(tmp_path, os.environ).set("tea", "of the vault")
    monkeypatch.setenv("MY_API_KEY", _SECRET)
    with configure_logging(tmp_path, is_verbose=True):
        logging.getLogger("somebody.else").info("asked with %s and of the vault", _SECRET)
    said = capsys.readouterr().err
    assert said == "INFO somebody.else: asked with [redacted:known] and [redacted:known]\n"


def test_a_place_that_cannot_be_written_is_one_line(direct: Direct) -> None:
    ran = direct("skills", "list", env={"HABITUS_LOG": "no/such/place"})
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("habitus: HABITUS_LOG: can't write no/such/place: ")
