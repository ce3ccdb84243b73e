"""The library: layers, overrides, gates, and every door for a change."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.errors import Invalid, NotFound, Refused, Stale
from habitus.settings import Settings, load_settings
from habitus.skills.editable_fields import FieldChanges
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.layers.layer import find_project_skill_folders
from habitus.skills.library import Library
from habitus.skills.model import ActorKind, Author, Skill, SkillSource, SkillState
from habitus.skills.stores.base import SkillWriteResult
from tests.homes import furnish

AGENT = Author(actor=ActorKind.AGENT, name="main")
APPEND = TextEdit(operation=EditOperation.APPEND, content="2. More.")


def write(root: Path, name: str, front: str = "", body: str = "1. Do it.", file: str = "SKILL.md") -> Path:
    path = root / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: About {name}.\n{front}---\n\n{body}\n")
    return path


class World:
    """A person's machine: home, operator's skills, other agents' folders, a project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = furnish(root / "person/.habitus")
        self.operator = root / "operator"
        self.claude = root / "person/.claude/skills"
        self.agents = root / "person/.agents/skills"
        self.user = self.home / "skills"
        self.project = root / "project"
        (self.project / ".git").mkdir(parents=True)
        self.cwd = self.project
        self.toml = ""
        self.environ = {"HOME": str(root / "person"), "USER": "ada", "HABITUS_OPERATOR_SKILLS": str(self.operator)}
        self.opened: list[Habitus] = []

    def settings(self) -> Settings:
        (self.home / "habitus.toml").write_text(self.toml)
        return load_settings(self.environ | {"HABITUS_LOOK_EVERY": "0"}, self.cwd)

    def open(self) -> Habitus:
        self.opened.append(Habitus.open(self.settings()))
        return self.opened[-1]

    def library(self) -> Library:
        return self.open().skills


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for habitus in world.opened:
        habitus.close()


def me(reason: str = "") -> Author:
    return Author(actor=ActorKind.USER, name="ada", reason=reason)


@pytest.mark.req("SK-13")
def test_a_higher_layer_replaces_a_skill_whole_and_the_copy_below_stays_addressable(world: World) -> None:
    for root, word in ((world.operator, "operator"), (world.agents, "agents"), (world.claude, "claude")):
        write(root, "deploy", f"tags: [{word}]\n", body=f"by {word}")
    write(world.user, "deploy", body="by user")
    library = world.library()
    item = library.find("deploy")
    assert (item.layer, item.hidden) == ("user", ("operator", "agents", "claude"))
    assert library.load("deploy").body == "by user"
    assert library.load("deploy").tags == ()
    for layer in ("operator", "agents", "claude", "user"):
        assert library.load(f"deploy@{layer}").body == f"by {layer}"


@pytest.mark.req("SK-13")
def test_project_layers_run_from_the_git_root_down_and_the_nearer_wins(world: World) -> None:
    deep = world.project / "packages/api"
    deep.mkdir(parents=True)
    for place in (world.project, deep):
        for kind in (".agents", ".claude", ".habitus"):
            (place / kind / "skills").mkdir(parents=True)
    (world.root / ".claude/skills").mkdir(parents=True)  # above the git root: not part of the project
    assert [place.name for place in find_project_skill_folders(deep, world.root / "person")] == [
        "project-agents",
        "project-claude",
        "project",
        "project-agents:packages/api",
        "project-claude:packages/api",
        "project:packages/api",
    ]


@pytest.mark.req("SK-13")
def test_folders_of_the_person_are_not_folders_of_a_project(world: World) -> None:
    (world.claude).mkdir(parents=True)
    assert list(find_project_skill_folders(world.root / "person", world.root / "person")) == []


@pytest.mark.req("SK-13", "SK-14")
def test_skills_of_a_project_are_listed_as_untrusted(world: World) -> None:
    write(world.project / ".claude/skills", "evil")
    item = world.library().find("evil")
    assert (item.state, item.layer) == (SkillState.UNTRUSTED, "project-claude")


@pytest.mark.req("SK-13")
def test_extends_changes_only_what_it_states(world: World) -> None:
    write(world.operator, "deploy", "tags: [ops]\ntriggers: [ship]\nadmin_only: true\n", body="the long way")
    path = world.user / "deploy/SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text('---\nname: deploy\ntags: [mine]\nmetadata:\n  habitus.extends: "true"\n---\n')
    library = world.library()
    skill = library.load("deploy")
    assert (skill.tags, skill.body, skill.description) == (("mine",), "the long way", "About deploy.")
    assert (skill.manifest.triggers, skill.manifest.admin_only) == (("ship",), True)
    path.write_text(path.read_text() + "\nthe short way\n")
    assert library.load("deploy").body == "the short way"
    assert library.load("deploy@operator").body == "the long way"


@pytest.mark.req("SK-13")
def test_an_operator_may_write_skill_toml(world: World) -> None:
    folder = world.operator / "legacy"
    folder.mkdir(parents=True)
    (folder / "skill.toml").write_text('description = "Old style."\ntriggers = ["old"]\nalways_include = true\n')
    (folder / "skill.md").write_text("# Legacy\n\nDo it the old way.\n")
    skill = world.library().load("legacy")
    assert (skill.description, skill.manifest.triggers, skill.manifest.always_include) == ("Old style.", ("old",), True)
    assert skill.body.startswith("# Legacy")
    assert skill.source is SkillSource.OPERATOR


@pytest.mark.req("SK-13")
def test_editing_a_read_only_skill_writes_an_override_above_it(world: World) -> None:
    write(world.operator, "deploy")
    (world.operator / "deploy/scripts").mkdir()
    (world.operator / "deploy/scripts/run.sh").write_text("echo")
    library = world.library()
    edited = library.edit("deploy", APPEND, me())
    assert (library.load("deploy").body, edited.layer) == ("1. Do it.\n2. More.", "user")
    assert library.load("deploy@operator").body == "1. Do it."
    assert (world.user / "deploy/scripts/run.sh").read_text() == "echo"
    assert library.list_versions("deploy")[0].author.reason == "override of deploy@operator"
    with pytest.raises(Refused, match="read-only"):
        library.edit("deploy@operator", APPEND, me())
    with pytest.raises(Refused, match="read-only"):
        library.remove("deploy@operator", me())
    library.remove("deploy", me())
    assert library.find("deploy").layer == "operator"


@pytest.mark.req("SK-14")
def test_an_edit_goes_into_the_file_that_the_other_agent_reads(world: World) -> None:
    path = write(world.claude, "deploy")
    world.library().edit("deploy", APPEND, me())
    assert path.read_text().endswith("1. Do it.\n2. More.\n")
    assert not (world.user / "deploy").exists()


@pytest.mark.req("SK-14")
def test_a_linked_directory_of_another_agent_is_followed_and_listed_once(world: World) -> None:
    real = write(world.root / "checkout", "deploy").parent
    world.claude.mkdir(parents=True)
    (world.claude / "deploy").symlink_to(real)
    (world.claude / "deploy-again").symlink_to(real)
    library = world.library()
    assert [item.name for item in library.list_skills() if item.layer == "claude"] == ["deploy"]
    library.edit("deploy", APPEND, me())
    assert "2. More." in (real / "SKILL.md").read_text()
    assert (world.claude / "deploy").is_symlink()


@pytest.mark.req("SK-15")
def test_settings_switch_skills_off_for_everybody_or_one_user(world: World) -> None:
    for name in ("one", "two", "three"):
        write(world.user, name)
    world.toml = 'disabled_skills = ["One"]\n[users.ada]\ndisabled_skills = ["two"]\n[users.bob]\nadmin = true\n'
    states = {item.name: item.state for item in world.library().list_skills() if item.layer == "user"}
    assert states == {"one": SkillState.DISABLED, "two": SkillState.DISABLED, "three": SkillState.OK}


@pytest.mark.req("SK-17")
def test_placeholders_are_filled_where_they_are_meant(world: World) -> None:
    text = "{BOT_NAME} {USER} {SKILL_DIR} ${USER} {OTHER}"
    write(world.operator, "theirs", body=text)
    write(world.user, "mine", body=text)
    write(world.user, "asked", 'metadata:\n  habitus.placeholders: "true"\n', body=text)
    library = world.library()
    assert library.load("theirs").body == f"Habitus ada {world.operator}/theirs ${{USER}} {{OTHER}}"
    assert library.load("mine").body == text
    assert library.load("asked").body == f"Habitus ada {world.user}/asked ${{USER}} {{OTHER}}"


@pytest.mark.req("SK-04")
def test_every_wrong_name_gets_the_nearest_right_one(world: World) -> None:
    write(world.user, "csv-summary")
    library = world.library()
    with pytest.raises(NotFound, match="Did you mean 'csv-summary'"):
        library.load("csv_sumary")
    with pytest.raises(NotFound, match="There are: bundled, operator"):
        library.load("csv-summary@nowhere")
    with pytest.raises(Invalid, match="names no layer"):
        library.load("csv-summary@")


@pytest.mark.req("SK-10")
def test_fields_and_body_change_in_one_version(world: World) -> None:
    library = world.library()
    library.create(Skill(name="x", description="Does x.", body="1. Do it."), me())
    edited = library.edit(
        "x", APPEND, me(), fields=FieldChanges(title="X", tags=("a", "b"), when_to_use="x is asked for")
    )
    assert edited == SkillWriteResult(name="x", layer="user", version=2, is_changed=True)
    assert (library.load("x").title, library.load("x").tags) == ("X", ("a", "b"))
    assert library.edit("x", TextEdit(), me(), fields=FieldChanges(title="X")) == replace(edited, is_changed=False)
    with pytest.raises(Stale, match="version 2 now, not 1"):
        library.edit("x", APPEND, me(), expected_version=1)
    with pytest.raises(Stale, match="already"):
        library.create(Skill(name="x", description="Another.", body="y"), me())


@pytest.mark.req("SK-11")
def test_a_diff_shows_what_changed_in_every_file(world: World) -> None:
    library = world.library()
    library.create(Skill(name="x", description="Does x.", body="1. Do it."), me())
    library.edit("x", APPEND, me())
    (world.user / "x/notes.bin").write_bytes(b"\xff\xfe")
    assert "+2. More.\n" in library.diff_versions("x", 1, 2)
    assert "notes.bin" in library.diff_versions("x", 2, 3)
    assert library.diff_versions("x", 2, 2) == ""
    with pytest.raises(NotFound, match="no version 9"):
        library.diff_versions("x", 1, 9)


@pytest.mark.req("SK-12")
def test_removing_says_what_comes_into_view_and_restoring_takes_the_newest(world: World) -> None:
    library = world.library()
    for text in ("first", "second"):
        library.create(Skill(name="x", description="Does x.", body=text), me())
        library.remove("x", me())
    assert library.restore("x", me()) == ("x", "user")
    assert library.load("x").body == "second"
    with pytest.raises(NotFound, match="archive has no skill 'y'"):
        library.restore("y", me())
    (older,) = library.list_archived()
    library.restore(f"#{older.id}", me(), new_name="x-old")
    assert library.load("x-old").body == "first"


@pytest.mark.req("SK-22")
def test_pause_stops_the_agent_everywhere_and_not_the_person(world: World) -> None:
    here, there = world.open(), world.open()
    here.skills.create(Skill(name="x", description="Does x.", body="1."), me())
    there.pause.pause("ada")
    for door in (
        lambda: here.skills.create(Skill(name="y", description="Does y.", body="1."), AGENT),
        lambda: here.skills.edit("x", APPEND, AGENT),
        lambda: here.skills.remove("x", AGENT),
        lambda: here.skills.set_enabled("x", False, AGENT),
        lambda: here.skills.rollback("x", 1, AGENT),
    ):
        with pytest.raises(Refused, match="paused since"):
            door()
    here.skills.edit("x", APPEND, me())
    assert there.pause.resume()
    here.skills.edit("x", APPEND, AGENT)


@pytest.mark.req("SK-22")
def test_every_layer_that_can_be_written_returns_and_what_others_put_there_stays(world: World) -> None:
    library = world.library()
    library.create(Skill(name="x", description="Does x.", body="before"), me(), layer="claude")
    timestamp = datetime.now(UTC)
    library.edit("x@claude", TextEdit(operation=EditOperation.REPLACE, content="after"), me())
    library.create(Skill(name="made", description="Made here.", body="1."), me(), layer="claude")
    theirs = world.claude / "theirs"
    theirs.mkdir()
    (theirs / "SKILL.md").write_text("---\nname: theirs\ndescription: Theirs.\n---\n1.\n")
    found = [(step.layer, step.action, step.name) for step in library.restore_state_at(timestamp, me())]
    assert found == [("claude", "archive", "made"), ("claude", "rewrite", "x")]
    assert library.load("x@claude").body == "before"
    assert library.load("theirs").layer == "claude"


@pytest.mark.req("SC-02")
def test_a_read_only_home_is_shown_and_refuses_changes(world: World) -> None:
    with Habitus.open(world.settings()) as habitus:
        habitus.skills.create(Skill(name="x", description="Does x.", body="1."), me())
        habitus.skills.edit("x", APPEND, me())
    mounted = subprocess.run(
        ["mount", "--bind", "-o", "ro", str(world.home), str(world.home)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip("can't mount here: " + mounted.stderr.strip())
    try:
        # The file of settings is there already; nothing else may be written.
        with Habitus.open(load_settings(world.environ, world.cwd)) as habitus:
            assert habitus.is_read_only
            assert habitus.skills.load("x").version == 2
            with pytest.raises(Refused, match="read-only"):
                habitus.skills.edit("x", APPEND, me())
    finally:
        subprocess.run(["umount", "-l", str(world.home)], check=True)


def test_the_home_is_private(world: World) -> None:
    world.open()
    assert world.home.stat().st_mode & 0o777 == 0o700
    assert (world.home / "habitus.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.req("PF-04", "OP-01")
def test_after_a_change_only_its_names_are_composed_anew_and_the_listing_is_what_it_would_be(world: World) -> None:
    for root, name in ((world.claude, "deploy"), (world.claude, "test"), (world.user, "deploy"), (world.user, "zip")):
        write(root, name)
    library = world.library()
    before = library.snapshot()
    steps = (
        lambda: library.edit("deploy", APPEND, me()),
        lambda: library.remove("deploy", me()),
        lambda: library.create(Skill(name="build", description="Builds.", body="1. Do it."), me()),
        lambda: library.set_enabled("zip", False, me()),
        lambda: write(world.user, "zip", body="- : no\x00thing"),
    )
    for step in steps:
        step()
        now, fresh = library.snapshot(user="bob"), world.library().snapshot(user="bob")
        assert now.listing == fresh.listing
        assert (dict(now.by_name), dict(now.hashes)) == (dict(fresh.by_name), dict(fresh.hashes))
    assert library.last_snapshot.changes.list_names_changed_since(before.revision) == frozenset(
        {"deploy", "build", "zip"}
    )
    untouched = next(item for item in before.listing if item.name == "test")
    assert any(item is untouched for item in library.last_snapshot.listing)


@pytest.mark.req("OP-05")
def test_all_users_of_a_process_share_one_look_at_a_directory(world: World) -> None:
    owner = world.open()
    other = owner.as_user("bob", is_admin=False)
    assert [a.store is b.store for a, b in zip(owner.skills.layers, other.skills.layers, strict=True)] == [
        True for _ in owner.skills.layers
    ]


@pytest.mark.req("OP-05")
def test_whoever_has_changed_something_sees_it_while_others_look(world: World) -> None:
    """Threads share a look only with one that began after they asked."""
    owner = world.open()

    def change_and_look(number: int) -> list[bool]:
        seen = []
        for turn in range(5):
            name = f"skill-{number}-{turn}"
            owner.skills.create(Skill(name=name, description="Does it.", body="1. Do it."), owner.build_author())
            seen.append(name in owner.skills.snapshot(check_disk=bool(turn % 2)).by_name)
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert [all(seen) for seen in pool.map(change_and_look, range(8))] == [True] * 8
