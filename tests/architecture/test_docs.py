"""What the documents say is true: links lead somewhere, and marked examples run and print what is shown.

A fenced block below a line `<!-- run -->` is run: `python` and `sh` must exit with 0; in `console` every line after
`$ ` is a command (`> ` continues it), and what follows must be its output. There a line `…` stands for any lines.
The blocks of one page run in order, in one home; `<!-- run in a new home -->` begins another.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts import changelog, docs_site

from habitus.operating_system import get_account_name
from tests.environments import environment
from tests.homes import furnish

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*?)^\1\2`*[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_MARKED = re.compile(
    r"^<!-- run(?P<anew> in a new home)? -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d)?")
_CHANGE = re.compile(r"(?<=Undo: habitus undo )[0-9a-f]{8}\b|(?<=@user)#\d+\b")  # ids of changes, and in the archive


def _pages() -> list[Path]:
    folders = ("changelog.d", "docs", "benchmarks", "examples", "src", "tests")
    return sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))])


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A marked block of a page."""

    language: str
    text: str
    is_anew: bool


def _examples(page: Path) -> list[Example]:
    found = _MARKED.finditer(page.read_text(encoding="utf-8"))
    return [Example(language=one["language"], text=one["text"], is_anew=bool(one["anew"])) for one in found]


PAGES = _pages()
WITH_EXAMPLES = [page for page in PAGES if _examples(page)]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_links_lead_somewhere() -> None:
    assert {_name(page): dead for page in PAGES if (dead := list(_dead_links(page)))} == {}


def _dead_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or not found.is_relative_to(ROOT):
            yield f"{target}: no such file"
        elif anchor and anchor not in _anchors(found):
            yield f"{target}: no such heading"


@functools.cache
def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def test_the_architecture_names_modules_that_are_there() -> None:
    text, package = (ROOT / "ARCHITECTURE.md").read_text(), ROOT / "src" / "habitus"
    there = {str(file.relative_to(ROOT)) for file in package.rglob("*.py")}
    there |= {
        str(file.relative_to(ROOT)) for folder in ("benchmarks", "scripts") for file in (ROOT / folder).glob("*.py")
    }
    files = re.findall(r"(?<![\w/.])[\w./-]+\.py\b", text)
    assert not [file for file in files if not any(f"/{known}".endswith(f"/{file}") for known in there)]
    rows = re.search(r"^row 0 +(.*?)^```", text, re.MULTILINE | re.DOTALL)
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert rows is not None
    assert re.findall(r"\w+", rows[1]) == re.findall(r"\w+", linter["contracts"][0]["layers"][-1])
    for folder, said in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE):
        own = {file.stem for file in (package / "app" / folder).glob("*.py")}
        named = re.findall(r"`(\w+)`", said)
        assert named
        assert not [name for name in named if name not in own], folder


def test_the_docs_stay_short() -> None:
    written = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in written}
    assert sum(words.values()) <= 50_000
    assert {page.name: count for page, count in words.items() if page.parent.name == "decisions" and count > 600} == {}
    glossary = (ROOT / "docs/concepts/glossary.md").read_text(encoding="utf-8")
    assert len([line for line in glossary.splitlines() if line.startswith("| **")]) <= 40


def test_the_front_page_is_read_in_a_minute_and_the_index_has_every_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    assert docs_site.unlisted() == []


@pytest.mark.full
def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
    python = environment(tmp_path / "venv", *declared)
    done = subprocess.run([python, ROOT / "scripts" / "docs_site.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Close the month" in (ROOT / "build" / "site" / "index.html").read_text(encoding="utf-8")


def test_fragments_of_a_release_stand_under_its_version_by_kind() -> None:
    once = changelog.gather("", "0.1.0", {"fixed": ["a fix."], "added": ["A thing."]})
    assert once == "# Changes\n\n## 0.1.0\n\n### Added\n\n- A thing.\n\n### Fixed\n\n- a fix.\n"
    later = changelog.gather(once, "0.2.0", {"added": ["B."]})
    assert changelog.gather(later, "0.1.0", {"fixed": ["C."]}) == (
        "# Changes\n\n## 0.2.0\n\n### Added\n\n- B.\n\n"
        "## 0.1.0\n\n### Added\n\n- A thing.\n\n### Fixed\n\n- a fix.\n- C.\n"
    )


def test_there_are_examples_of_every_kind() -> None:
    assert {example.language for page in WITH_EXAMPLES for example in _examples(page)} == {"python", "sh", "console"}


# Whose examples run in `make test` too; the commands of the other pages are run by other tests as well.
FIRST_READ = ("README", "first-skills", "models", "evidence")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.stem in FIRST_READ else pytest.mark.full) for page in WITH_EXAMPLES],
    ids=_name,
)
def test_examples_run_and_print_what_is_shown(page: Path, tmp_path: Path, program: Path, python: str) -> None:
    desk = _new_desk(tmp_path, program)
    for number, example in enumerate(_examples(page)):
        desk = _new_desk(tmp_path / str(number), program) if example.is_anew else desk
        match example.language:
            case "python":
                desk.run([python, "-c", example.text])
            case "sh":
                desk.run(["sh", "-euc", example.text])
            case "console":
                _follow(desk, example.text)
            case unknown:
                pytest.fail(f"Nobody knows how to run a block of {unknown}.")


def _new_desk(folder: Path, program: Path) -> Desk:
    desk = Desk(person=folder / "ana", program=program)
    furnish(desk.person / ".habitus")
    return desk


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """A person's home and working directory, made for one page."""

    person: Path
    program: Path

    def run(self, command: list[str]) -> str:
        """What the command printed, with the home written as `~`."""
        work = self.person / "work"
        work.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command,
            cwd=work,
            env={
                "HOME": str(self.person),
                "USER": "ana",
                "LANG": "C.UTF-8",
                "PATH": os.pathsep.join(
                    [str(self.program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
                ),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\nended with {done.returncode}:\n{done.stdout}"
        # Names come from the account; the documents are about Ana.
        signed = rf"(?m)(?<=user ){get_account_name()}\b|(?<=by ){get_account_name()}\b|(?<= ){get_account_name()}$"
        return re.sub(signed, "ana", done.stdout.replace(str(self.person), "~"))


def _follow(desk: Desk, session: str) -> None:
    for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        lines = step.splitlines()
        count = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:count])])
        printed, shown = _comparable(desk.run(["sh", "-euc", command])), _comparable("\n".join(lines[count:]))
        if not re.fullmatch(_pattern(shown), printed):
            assert printed == shown, command


def _comparable(text: str) -> str:
    lines = [" ".join(line.split()) if "  " in line.strip() else line.rstrip() for line in text.splitlines()]
    return _CHANGE.sub("CHANGE", _MOMENT.sub("MOMENT", "\n".join(lines).strip("\n") + "\n"))


def _pattern(shown: str) -> str:
    return "".join("(?:.*\n)*" if line == "…" else re.escape(line) + "\n" for line in shown.splitlines())
