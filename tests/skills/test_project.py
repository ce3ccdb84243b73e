"""What search takes from the project around: its languages and what it is made with."""

from __future__ import annotations

from pathlib import Path

from habitus.skills.choosing.project_words import list_project_words


def test_files_and_manifests_say_what_a_project_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Shop.csproj").write_text("<Project/>")
    (tmp_path / "package.json").write_text('{"dependencies": {"@acme/react": "1"}}')
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["django>=5"]')
    assert {"dotnet", "javascript", "react", "python", "django"} <= set(list_project_words(tmp_path))


def test_a_manifest_that_is_no_manifest_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"dependencies": 3, "devDependencies": [1]}')
    (tmp_path / "pyproject.toml").write_text('project = "x"')
    assert "python" in list_project_words(tmp_path)
    assert list_project_words(tmp_path / "nowhere") == ()
