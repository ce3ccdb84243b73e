"""The lockfiles of `npx skills`: what it installed is known and updated by us, and what we add to a project by it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from habitus.skills.sources.lockfiles import (
    NpxLockEntry,
    compute_git_tree_hash,
    compute_npx_hash,
    get_project_npx_lockfile,
)
from tests import npm
from tests.cli.conftest import Direct
from tests.journeys.test_skills_from_anywhere import Repository

pytestmark = pytest.mark.req("CL-11")

# As the real package computed it for `folder`.
RECORDED = "8dc003176f59b345a7bcf7a0058be20a5a6913428d3bdb92d25e8a90462f3dac"


def folder(path: Path) -> Path:
    """A skill whose files the package sorts otherwise than by bytes."""
    (path / "references").mkdir(parents=True)
    (path / "SKILL.md").write_text("---\nname: alpha\ndescription: Does alpha.\n---\n\n1. Go.\n")
    texts = {"references/a.md": "note", "Zed.txt": "x", "_b.txt": "y", "10.txt": "z", "9.txt": "z"}
    for name, text in {**texts, "metadata.json": "k"}.items():
        (path / name).write_text(f"{text}\n")
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "upstream")
    made.put("alpha", "one")
    return made


@pytest.fixture
def project(direct: Direct) -> Path:
    (direct.cli.cwd / ".git").mkdir()
    return direct.cli.cwd


def installed(repository: Repository, there: Path) -> str:
    """Alpha as `npx skills` lays it down, and its hash."""
    source = repository.path / "skills/alpha"
    shutil.copytree(source, there / "alpha")
    return compute_npx_hash(source)


def skills_of(file: Path) -> Any:
    return json.loads(file.read_text())["skills"]


def test_a_folder_has_the_hash_that_the_real_package_computed(tmp_path: Path) -> None:
    made = folder(tmp_path / "alpha")
    (made / "node_modules").mkdir()
    (made / "node_modules/left.js").write_text("out")
    (made / "link.md").symlink_to("SKILL.md")
    assert compute_npx_hash(made) == RECORDED


def test_git_knows_a_folder_by_the_same_hash(repository: Repository) -> None:
    (repository.path / "skills/alpha/run.sh").write_text("true\n")
    (repository.path / "skills/alpha/run.sh").chmod(0o755)
    (repository.path / "skills/alpha/link").symlink_to("run.sh")
    folder(repository.path / "skills/alpha/a")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "more")
    assert (
        compute_git_tree_hash(repository.path / "skills/alpha")
        == repository.git("rev-parse", "HEAD:skills/alpha").strip()
    )


def test_what_is_added_to_a_project_is_locked_as_the_package_locks_it_and_updated(
    direct: Direct, project: Path, repository: Repository
) -> None:
    address = f"file://{repository.path}"
    assert "imported  alpha" in direct.ok("skills", "add", address, "--project")
    entry = {"source": address, "sourceUrl": address, "sourceType": "git", "skillPath": "skills/alpha/SKILL.md"}
    before = compute_npx_hash(repository.path / "skills/alpha")
    written = json.dumps({"version": 1, "skills": {"alpha": {**entry, "computedHash": before}}}, indent=2)
    assert (project / "skills-lock.json").read_text() == written + "\n"
    assert direct.json("skills", "show", "alpha@project-agents")["origin"] == f"{address}, by 'npx skills'"
    assert not direct.home.joinpath("habitus-lock.json").exists()

    repository.put("alpha", "two")
    ran = direct("skills", "update")
    assert (ran.code, "alpha@project-agents is not trusted; name it to update it" in ran.err) == (0, True)
    assert "updated   alpha" in direct.ok("skills", "update", "alpha")
    assert "two" in (project / ".agents/skills/alpha/SKILL.md").read_text()
    assert skills_of(project / "skills-lock.json")["alpha"]["computedHash"] != before

    (project / ".agents/skills/alpha/SKILL.md").write_text("---\nname: alpha\ndescription: Mine.\n---\n")
    repository.put("alpha", "three")
    refused = direct("skills", "update", "alpha")
    assert (refused.code, "was edited here; --overwrite uses theirs" in refused.out) == (1, True)
    assert "Mine." in (project / ".agents/skills/alpha/SKILL.md").read_text()


@pytest.mark.parametrize("kind", ["git", "github"])
def test_what_the_package_installed_for_all_projects_is_known_and_updated(
    direct: Direct, repository: Repository, kind: str
) -> None:
    folder, file = direct.cli.user_home / ".agents/skills", direct.cli.user_home / ".agents/.skill-lock.json"
    entry = {"source": "upstream/alpha", "sourceType": kind, "sourceUrl": f"file://{repository.path}"}
    digest = installed(repository, folder)
    if kind == "github":
        entry |= {"source": f"{repository.path.parent.name}/upstream"}
        digest = compute_git_tree_hash(folder / "alpha")
    times = {"installedAt": "2026-08-01T00:00:00.000Z", "updatedAt": "2026-08-01T00:00:00.000Z"}
    entry |= {"skillPath": "skills/alpha/SKILL.md", "skillFolderHash": digest, "pluginName": "kept", **times}
    file.write_text(json.dumps({"version": 3, "skills": {"alpha": entry}, "lastSelectedAgents": ["codex"]}))
    assert f"{entry['source']}, by 'npx skills'" in direct.ok("skills", "show", "alpha")

    repository.put("alpha", "two")
    given = {"HABITUS_GIT_HOST": f"file://{repository.path.parents[1]}"}
    assert "updated   alpha" in direct.ok("skills", "update", env=given)
    assert "two" in (folder / "alpha/SKILL.md").read_text()
    now = json.loads(file.read_text())
    hashed = compute_git_tree_hash if kind == "github" else compute_npx_hash
    assert now["skills"]["alpha"]["skillFolderHash"] == hashed(folder / "alpha")
    assert now["skills"]["alpha"]["updatedAt"] > entry["updatedAt"]
    same = {key: value for key, value in entry.items() if key not in ("skillFolderHash", "updatedAt")}
    assert same.items() <= now["skills"]["alpha"].items()
    assert now["lastSelectedAgents"] == ["codex"]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 1, "skills": {', "skills-lock.json can't be read. Restore it from version control, or remove it"),
        ('{"version": 2, "skills": {}}', "has version 2; version 1 is known here. Use 'npx skills' for what it lists"),
        ('{"version": 1, "skills": {"a": 1}}', "skills-lock.json can't be read."),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_stays(
    direct: Direct, project: Path, repository: Repository, text: str, said: str
) -> None:
    direct.ok("skills", "add", f"file://{repository.path}")
    (project / ".agents/skills").mkdir(parents=True)
    (project / "skills-lock.json").write_text(text)
    repository.put("alpha", "two")
    ran = direct("skills", "update")
    assert (ran.code, "updated   alpha" in ran.out) == (0, True)
    assert (len(ran.err.splitlines()), said in ran.err) == (1, True)
    refused = direct("skills", "add", f"file://{repository.path}", "--project")
    assert (refused.code, said in " ".join(refused.err.split())) == (1, True)
    assert (project / "skills-lock.json").read_text() == text
    assert list((project / ".agents/skills").iterdir()) == []


def test_two_tools_on_one_file_lose_nothing(tmp_path: Path) -> None:
    file = get_project_npx_lockfile(tmp_path)

    def adding(name: str) -> Callable[[dict[str, NpxLockEntry]], None]:
        return lambda skills: skills.update({name: {"source": name}})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: file.update_entries(adding(f"s{number}")), range(16)))
    seen: list[int] = []

    def change(skills: dict[str, NpxLockEntry]) -> None:
        """The other tool writes between our reading and our writing, the first time."""
        if not seen:
            file.path.write_text(json.dumps({"version": 1, "skills": {**skills, "theirs": {"source": "t"}}}))
        seen.append(len(skills))
        adding("ours")(skills)

    file.update_entries(change)
    assert seen == [16, 17]
    assert file.read_entries().keys() == {f"s{number}" for number in range(16)} | {"ours", "theirs"}


@pytest.fixture(scope="module")
def npx_skills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the real package's programs, with a Node that it runs on."""
    return npm.install(tmp_path_factory.mktemp("npx"), npm.NODE, "skills@1.7.4")


@pytest.mark.full
def test_the_real_package_and_we_agree(direct: Direct, project: Path, repository: Repository, npx_skills: Path) -> None:
    environ = {**os.environ, "HOME": str(direct.cli.user_home), "PATH": f"{npx_skills}:{os.environ['PATH']}"}

    def skills(*words: str) -> str:
        command = [str(npx_skills / "skills"), *words, "-y"]
        quiet = {**environ, "DISABLE_TELEMETRY": "1", "NO_COLOR": "1"}
        return subprocess.run(command, cwd=project, env=quiet, capture_output=True, text=True, check=True).stdout

    folder(repository.path / "skills/alpha/more").joinpath("SKILL.md").rename(repository.path / "skills/alpha/Skim.md")
    (repository.path / "skills/alpha/Ünïcode.md").write_text("x")
    (repository.path / "skills/alpha/more/metadata.json").unlink()  # which the package hashes, and does not copy
    repository.git("add", "-A")
    repository.git("commit", "-qm", "more")
    repository.put("beta", "one")
    address, file = f"file://{repository.path}", project / "skills-lock.json"
    skills("add", address, "--agent", "codex")
    theirs = file.read_text()
    shutil.rmtree(project / ".agents")
    file.unlink()
    direct.ok("skills", "add", address, "--project")
    assert file.read_text() == theirs
    assert "up to date" in skills("update")

    repository.put("alpha", "two")
    assert "updated   alpha" in direct.ok("skills", "update", "alpha", "beta")
    assert "up to date" in skills("update")
    repository.put("alpha", "three")
    skills("add", address, "--agent", "codex")  # its own update takes no file:// address
    assert "three" in (project / ".agents/skills/alpha/SKILL.md").read_text()
    assert "unchanged alpha" in direct.ok("skills", "update", "alpha")

    skills("add", str(repository.path), "--agent", "codex", "--global")
    repository.put("alpha", "four")
    assert "updated   alpha" in direct.ok("skills", "update", "alpha@agents")
    kept = skills_of(direct.cli.user_home / ".agents/.skill-lock.json")
    assert kept["alpha"]["skillFolderHash"] == compute_npx_hash(repository.path / "skills/alpha")
