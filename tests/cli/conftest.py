"""The command line called in this process: as the script does, a hundred times faster."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from habitus.cli import main
from tests.conftest import Cli, Ran
from tests.homes import furnish


@dataclass(frozen=True, kw_only=True, slots=True)
class Direct:
    """`habitus …` through its entry point."""

    cli: Cli
    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    @property
    def home(self) -> Path:
        return self.cli.home

    def __call__(self, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Ran:
        with self.patch.context() as patch:
            for name, value in self.cli.environ(env).items():
                patch.setenv(name, value)
            patch.chdir(self.cli.cwd)
            patch.setattr(sys, "argv", ["habitus", *args])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogateescape"))))
            self.capture.readouterr()
            with pytest.raises(SystemExit) as stopped:
                main.run()
        said = self.capture.readouterr()
        code = stopped.value.code
        return Ran(code=code if isinstance(code, int) else 0, out=said.out, err=said.err)

    def json(self, *args: str, **more: Any) -> Any:
        """The JSON that a command which must succeed prints."""
        ran = self(*args, "--json", **more)
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    def own(self, *options: str) -> Any:
        """The person's own skills, as a listing shows them."""
        return self.json("skills", "list", "--layer", "user", *options)["skills"]

    def ok(self, *args: str, **more: Any) -> str:
        ran = self(*args, **more)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def skill_file(self, name: str) -> Path:
        return self.home / "skills" / name / "SKILL.md"


@pytest.fixture
def direct(installed_cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Direct:
    return Direct(cli=installed_cli, patch=monkeypatch, capture=capsys)


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory, program: Path) -> Path:
    """A home with one skill, made once and copied for each test."""
    place = tmp_path_factory.mktemp("stock")
    cli = Cli(home=furnish(place / "home"), user_home=place, cwd=place, program=(str(program),))
    given = ("-d", "Sums up a CSV file.", "-w", "Totals are asked for", "--tags", "data")
    assert cli("skills", "new", "csv-summary", *given).code == 0
    return cli.home


@pytest.fixture
def stocked(direct: Direct, stock: Path) -> Direct:
    """With one skill, `csv-summary`, at version 1."""
    shutil.copytree(stock, direct.home, dirs_exist_ok=True)
    return direct
