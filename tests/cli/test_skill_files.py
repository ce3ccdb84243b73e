"""A skill's other files for people: shown one by one, and carried along by an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("SK-23")

FILES = {
    "references/fields.md": "# Felder\n\nStraße, Ort\n".encode(),
    "assets/large.bin": bytes(range(256)) * 4 * 1200,  # more than a version keeps
    "scripts/fill.py": b"print('filled')\n",
}


@pytest.fixture
def skill(direct: Direct) -> Path:
    folder = direct.home / "skills" / "fill-form"
    for path, content in {"SKILL.md": b"---\nname: fill-form\ndescription: Fills.\n---\nFill.\n", **FILES}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "scripts/fill.py").chmod(0o755)
    return folder


@pytest.mark.usefixtures("skill")
def test_a_file_is_shown_as_it_is(direct: Direct) -> None:
    assert (
        direct.ok("skills", "show", "fill-form", "--file", "references/fields.md").encode()
        == FILES["references/fields.md"]
    )
    for wrong, hint in (
        ("references/field.md", "Did you mean 'references/fields.md'?"),
        ("../../habitus.db", "It has: "),
    ):
        ran = direct("skills", "show", "fill-form", "--file", wrong)
        assert ran.code == 1
        assert f"'fill-form' has no file '{wrong}'. {hint}" in ran.err


def test_an_earlier_version_of_a_file_is_shown(direct: Direct, skill: Path) -> None:
    direct.ok("skills", "show", "fill-form")
    (skill / "references/fields.md").write_text("other")
    direct.ok("skills", "show", "fill-form")
    show = ("skills", "show", "fill-form", "--file", "references/fields.md")
    assert direct.ok(*show) == "other"
    assert direct.ok(*show, "--version", "1").startswith("# Felder")


@pytest.mark.usefixtures("skill")
def test_an_export_carries_every_file(direct: Direct, tmp_path: Path) -> None:
    direct.ok("skills", "export", "fill-form", "--to", str(tmp_path / "out"))
    (main,) = (tmp_path / "out").rglob("SKILL.md")
    found = {str(path.relative_to(main.parent)): path.read_bytes() for path in main.parent.rglob("*") if path.is_file()}
    del found["SKILL.md"]
    assert found == FILES
    assert (main.parent / "scripts/fill.py").stat().st_mode & 0o100
