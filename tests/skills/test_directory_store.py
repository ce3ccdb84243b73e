"""Skills in a directory that people and other programs change too."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.errors import Refused, StorageFailed
from habitus.files import MAX_KEPT_BYTES
from habitus.skills.model import ActorKind, Skill
from habitus.skills.stores.base import FolderWrite
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.versioned import SkillStore
from tests.contracts.stores import Ticking, file_store, load, read_tree
from tests.journeys.crash import ME, OLD

GOOD = "---\nname: {name}\ndescription: Does {name}.\n---\n\nSteps of {name}.\n"


def put(home: Path, folder: str, text: str | bytes, file: str = "SKILL.md") -> Path:
    path = home / "skills" / folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def store(tmp_path: Path) -> SkillStore:
    return file_store(tmp_path)


def names(store: SkillStore) -> list[str]:
    return [summary.name for summary in store.list_summaries()]


@pytest.mark.req("SK-11")
def test_a_hand_edit_is_noticed_and_becomes_a_version_of_the_disk(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    path = tmp_path / "skills/report/SKILL.md"
    path.write_text(path.read_text().replace("old steps", "by hand"))
    loaded = load(store, "report")
    assert (loaded.body, loaded.version) == ("by hand", 2)
    assert store.list_versions("report")[-1].author.actor is ActorKind.DISK


@pytest.mark.req("SK-11")
def test_a_hand_edit_of_the_same_size_at_the_same_timestamp_is_noticed(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    path = tmp_path / "skills/report/SKILL.md"
    for word in (b"bad steps", b"new steps", b"odd steps"):
        path.write_bytes(path.read_bytes()[:-10] + word + b"\n")
        assert load(store, "report").body == word.decode()


@pytest.mark.req("SK-11")
def test_a_hand_edit_never_loses_to_a_cached_copy(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    path = tmp_path / "skills/report/SKILL.md"
    path.write_text(path.read_text().replace("old steps", "by hand"))
    changed = store.update_skill("report", lambda skill: replace(skill, body=skill.body + ", then by us"), ME)
    loaded = load(store, "report")
    assert (loaded.body, loaded.version, changed.version) == ("by hand, then by us", 3, 3)


@pytest.mark.req("SK-05", "SK-11")
def test_a_changed_script_is_a_version_too(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    put(tmp_path, "report", "print(1)", "scripts/tool.py")
    assert len(store.list_versions("report")) == 2
    put(tmp_path, "report", "print(2)", "scripts/tool.py")
    assert len(store.list_versions("report")) == 3
    store.rollback("report", 2, ME)
    assert (tmp_path / "skills/report/scripts/tool.py").read_text() == "print(1)"


@pytest.mark.req("SK-12")
def test_a_directory_removed_by_hand_can_be_restored(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    shutil.rmtree(tmp_path / "skills/report")
    assert names(store) == []
    (archived,) = store.list_archived()
    assert archived.author.reason == "removed on disk"
    store.restore(archived.id, ME)
    assert load(store, "report").body == "old steps"


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("---\nname: bad\n", "never closed"),
        (b"---\nname: bad\n---\n\x00", "NUL"),
        ("---\nname: bad\n---\n" + "x" * 1_048_576, "bytes"),
    ],
)
def test_a_bad_file_is_listed_as_broken_and_hides_no_neighbour(
    store: SkillStore, tmp_path: Path, content: str | bytes, what: str
) -> None:
    put(tmp_path, "good", GOOD.format(name="good"))
    put(tmp_path, "bad", content)
    assert names(store) == ["good"]
    (broken,) = store.list_broken()
    assert broken.name == "bad"
    assert what in broken.diagnostics[-1].message
    assert broken.diagnostics[-1].hint
    assert store.load("bad") is None
    assert store.is_name_taken("bad")


@pytest.mark.req("SK-02")
def test_yes_is_a_name_like_any_other(store: SkillStore, tmp_path: Path) -> None:
    put(tmp_path, "yes", "---\nname: yes\ndescription: 1.0\n---\nno\n")
    loaded = load(store, "yes")
    assert (loaded.name, loaded.description, loaded.body) == ("yes", "1.0", "no")


@pytest.mark.req("SK-02")
def test_the_first_of_two_spellings_loads_and_the_other_is_broken(store: SkillStore, tmp_path: Path) -> None:
    put(tmp_path, "my-skill", GOOD.format(name="my-skill"))
    put(tmp_path, "my_skill", GOOD.format(name="my_skill"))
    assert load(store, "my-skill").body == "Steps of my-skill."
    (broken,) = store.list_broken()
    assert "same name as 'my-skill'" in broken.diagnostics[-1].message
    store.update_skill("my_skill", lambda skill: replace(skill, body="x"), ME)
    assert "Steps of my_skill" in (tmp_path / "skills/my_skill/SKILL.md").read_text()


@pytest.mark.req("SK-02")
def test_a_directory_in_place_of_the_file_is_broken(store: SkillStore, tmp_path: Path) -> None:
    (tmp_path / "skills/odd/SKILL.md").mkdir(parents=True)
    (tmp_path / "skills/empty").mkdir()
    assert {item.name: item.diagnostics[-1].message for item in store.list_broken()} == {
        "odd": "SKILL.md is a directory.",
        "empty": "There is no SKILL.md in this directory.",
    }
    with pytest.raises(Refused, match="is a directory"):
        store.save(replace(OLD, name="odd"), ME)


@pytest.mark.req("SK-04")
def test_links_out_of_the_root_are_not_followed(store: SkillStore, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "SKILL.md").write_text(GOOD.format(name="linked"))
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/linked").symlink_to(secret)
    put(tmp_path, "inner", "", "notes.md")
    (tmp_path / "skills/inner/SKILL.md").symlink_to(secret / "SKILL.md")
    put(tmp_path, "fine", GOOD.format(name="fine"))
    (tmp_path / "skills/fine/passwords").symlink_to("/etc/passwd")
    assert names(store) == ["fine"]
    assert {item.name for item in store.list_broken()} == {"linked", "inner"}
    assert set(read_tree(store, "fine")) == {"SKILL.md"}
    store.delete("linked", ME)
    assert (secret / "SKILL.md").exists()


@pytest.mark.req("SK-05")
def test_what_is_not_ours_stays_byte_for_byte(store: SkillStore, tmp_path: Path) -> None:
    put(tmp_path, "report", "# kept\r\n---\n", "references/x.md")
    (tmp_path / "skills/report/.git").mkdir()
    (tmp_path / "skills/report/.git/HEAD").write_text("ref")
    put(tmp_path, "report", GOOD.format(name="report"))
    store.update_skill("report", lambda skill: replace(skill, body="changed", title="T"), ME)
    store.rollback("report", 1, ME)
    assert (tmp_path / "skills/report/references/x.md").read_bytes() == b"# kept\r\n---\n"
    assert (tmp_path / "skills/report/.git/HEAD").read_text() == "ref"


@pytest.mark.req("SK-12")
def test_a_file_too_large_for_the_history_is_never_lost(store: SkillStore, tmp_path: Path) -> None:
    store.save(OLD, ME)
    big = os.urandom(MAX_KEPT_BYTES + 1)
    put(tmp_path, "report", big, "assets/big.bin")
    store.update_skill("report", lambda skill: replace(skill, body="next"), ME)
    store.rollback("report", 2, ME)
    store.delete("report", ME)
    store.restore(store.list_archived()[0].id, ME)
    assert (tmp_path / "skills/report/assets/big.bin").read_bytes() == big


@pytest.mark.req("SK-01")
def test_permissions_of_an_edited_file_stay(store: SkillStore, tmp_path: Path) -> None:
    path = put(tmp_path, "report", GOOD.format(name="report"))
    path.chmod(0o640)
    store.update_skill("report", lambda skill: replace(skill, body="x"), ME)
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_unreadable_directory_is_broken_with_the_reason(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path = put(tmp_path, "locked", GOOD.format(name="locked"))
    path.parent.chmod(0)
    try:
        (broken,) = file_store(tmp_path).list_broken()
        assert "Permission denied" in broken.diagnostics[-1].message
    finally:
        path.parent.chmod(0o700)


@pytest.mark.req("SK-07")
def test_a_listing_looks_at_the_directory_at_most_every_two_seconds(tmp_path: Path) -> None:
    now = [0.0]
    first = file_store(tmp_path)
    store = SkillStore(
        first._backend, first.engine, layer="user", clock=Ticking(), check_interval=2.0, monotonic=lambda: now[0]
    )
    assert names(store) == []
    put(tmp_path, "later", GOOD.format(name="later"))
    now[0] = 1.9
    assert names(store) == []
    now[0] = 2.0
    assert names(store) == ["later"]


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 1 MB, or as large as a test says, where that can be had."""
    size = getattr(request, "param", "1m")
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("can't mount a small file system here: " + made.stderr.decode().strip())
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.req("SC-02", "SK-12")
def test_a_full_disk_loses_nothing_and_says_so(small_disk: Path) -> None:
    store = file_store(small_disk)
    kept = store.save(OLD, ME)
    (small_disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 8192))
    with pytest.raises(StorageFailed, match=r"[Ss]pace"):
        store.save(replace(OLD, body=os.urandom(60_000).hex()), ME)
    (small_disk / "ballast").unlink()
    again = file_store(small_disk)
    assert again.load("report") == kept
    assert again.save(replace(OLD, body="after"), ME).version == 2


@pytest.mark.req("SC-02", "SK-12")
def test_a_disk_that_fills_up_between_plan_and_write_changes_nothing(tmp_path: Path, small_disk: Path) -> None:
    # The database has room, the skills have none.
    (tmp_path / "skills").symlink_to(small_disk)
    store = file_store(tmp_path)
    kept = store.save(OLD, ME)
    (small_disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 8192))
    with pytest.raises(StorageFailed, match="No space left"):
        store.save(replace(OLD, body=os.urandom(60_000).hex()), ME)
    assert store.load("report") == kept
    assert file_store(tmp_path).load("report") == kept
    assert [path.name for path in (small_disk / "report").iterdir()] == ["SKILL.md"]


@pytest.mark.req("SK-07")
def test_a_new_skill_has_a_folder_others_can_read(store: SkillStore, tmp_path: Path) -> None:
    store.save(Skill(name="new-one", description='It\'s: "odd" # --- really', body="go"), ME)
    text = (tmp_path / "skills/new-one/SKILL.md").read_text()
    assert text.startswith("---\nname: new-one\n")
    assert store.read_contents().diagnostics.get("new-one", ()) == ()


class _Cut(DirectoryBackend):
    """A shelf under a process that is killed before it can write its own change."""

    def write_folders(self, writes: Sequence[FolderWrite]) -> None:
        if any(b"by two" in (file.content or b"") for each in writes for file in each.tree.values()):
            raise RuntimeError("killed")
        super().write_folders(writes)


@pytest.mark.req("SK-12")
def test_a_change_that_another_process_has_carried_out_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    one, engine = (
        file_store(tmp_path),
        sql.open_engine_with_current_schema(sql.build_sqlite_url(tmp_path / "habitus.db")),
    )
    one.save(OLD, ME)
    two = SkillStore(_Cut(tmp_path / "skills", tmp_path / "archive"), engine, layer="user", clock=Ticking())

    def take_turns(*_: object) -> None:
        """Between the intent of one and its end: two completes it, and dies over its own, which has the same number."""
        with pytest.raises(RuntimeError, match="killed"):
            two.update_skill("report", lambda skill: replace(skill, body=skill.body + ", by two"), ME)

    sa.event.listen(one.engine, "checkin", take_turns, once=True)
    written = one.update_skill("report", lambda skill: replace(skill, body=skill.body + ", by one"), ME)
    assert (written.version, written.is_changed) == (2, True)
    later = load(file_store(tmp_path), "report")
    assert (later.body, later.version) == ("old steps, by one, by two", 3)


@pytest.mark.req("SC-02", "OP-05")
@pytest.mark.parametrize("small_disk", ["2m"], indirect=True)
def test_what_a_full_disk_refuses_has_not_happened_or_is_said_to_wait(small_disk: Path) -> None:
    """At every size of what is left, because the disk may be full at any step."""
    waited = 0
    for left in range(8192, 72 * 1024, 8192):
        name, ballast = f"of-{left}", small_disk / "ballast"
        store = file_store(small_disk)
        store.save(replace(OLD, name=name), ME)
        said: dict[str, str] = {}
        ballast.write_bytes(b"x" * max(0, shutil.disk_usage(small_disk).free - left))
        edited = replace(OLD, name=name, body=os.urandom(3000).hex())
        for what, change in (("edit", partial(store.save, edited, ME)), ("delete", partial(store.delete, name, ME))):
            try:
                change()
            except StorageFailed as error:
                said[what] = error.message
        ballast.unlink()
        store.engine.dispose()
        again = file_store(small_disk)
        is_waiting = [what for what, message in said.items() if "is recorded but can be neither" in message]
        waited += len(is_waiting)
        if "delete" in said and "delete" not in is_waiting:
            skill = again.load(name)
            assert skill is not None, (left, said)
            assert (skill.version == 1) is ("edit" in said and "edit" not in is_waiting), (left, said)
        again.delete(name, ME)
        again.engine.dispose()
        shutil.rmtree(small_disk / "archive", ignore_errors=True)
    assert waited
