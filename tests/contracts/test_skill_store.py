"""What every skill store promises, whatever it is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from habitus.errors import Invalid, NotFound, Refused, Stale
from habitus.files import build_tree_file, compute_tree_hash
from habitus.skills.formats import skill_md
from habitus.skills.model import ActorKind, Author, Manifest, Skill, SkillSource, Stage
from habitus.skills.stores.base import IMPORTED_COUNTS_VERSION, RestoreAction
from habitus.skills.stores.usage_cache import UsageCache
from habitus.skills.stores.versioned import SkillStore
from habitus.use_counts import UsageCounts
from tests.contracts.stores import Ticking, count, counts_of, load, load_all_entries, read_tree

ME = Author(actor=ActorKind.USER, name="ada", reason="because")
AGENT = Author(actor=ActorKind.AGENT, name="main")

SKILL = Skill(
    name="csv-summary",
    title="CSV summary",
    description="Summarises a CSV file.",
    when_to_use="Somebody hands over a CSV",
    tags=("csv", "data"),
    source=SkillSource.AGENT,
    manifest=Manifest(file_types=("csv",), companion_skills=("plotting",)),
    body="1. Read it.\n2. Describe it.",
)


def saved(store: SkillStore, name: str = "csv-summary", body: str = "1. Do it.") -> Skill:
    return store.save(replace(SKILL, name=name, body=body), ME)


def content(skill: Skill | None) -> Skill | None:
    """A skill without what the store adds."""
    if skill is None:
        return None
    return replace(
        skill, stated=frozenset(), layer="", version=0, created_on=None, modified_on=None, stages=SKILL.stages
    )


@pytest.mark.req("SK-03", "SK-07")
def test_a_saved_skill_is_loaded_as_it_was(store: SkillStore) -> None:
    store.save(SKILL, ME)
    assert content(store.load("csv-summary")) == SKILL


@pytest.mark.req("SK-03")
def test_dates_are_utc_and_modified_moves_on(store: SkillStore) -> None:
    first = saved(store)
    second = saved(store, body="2. Do more.")
    assert first.created_on is not None
    assert second.modified_on is not None
    assert first.created_on == second.created_on
    assert first.created_on < second.modified_on
    assert second.modified_on.utcoffset() is not None


@pytest.mark.req("SK-07")
def test_listing_is_sorted_and_has_no_bodies(store: SkillStore) -> None:
    for name in ("zebra", "ant", "moth"):
        saved(store, name)
    summaries = store.list_summaries()
    assert [summary.name for summary in summaries] == ["ant", "moth", "zebra"]
    assert not any(hasattr(summary, "body") for summary in summaries)
    assert [skill.name for skill in load_all_entries(store)] == ["ant", "moth", "zebra"]
    assert all(skill.body for skill in load_all_entries(store))


@pytest.mark.req("SK-07")
def test_an_absent_skill_is_none(store: SkillStore) -> None:
    assert store.load("nothing") is None
    assert store.get_summary("nothing") is None
    assert store.delete("nothing", ME) is False
    assert store.set_enabled("nothing", False, ME) is False
    assert store.list_versions("nothing") == []


@pytest.mark.req("SK-04")
def test_every_spelling_names_the_same_skill(store: SkillStore) -> None:
    saved(store)
    for spelling in ("csv-summary", "csv_summary", "CSV_Summary", "Csv-Summary"):
        assert load(store, spelling).name == "csv-summary"
        assert store.is_name_taken(spelling)
    assert store.delete("CSV_Summary", ME)
    assert store.load("csv-summary") is None


@pytest.mark.req("SK-07")
def test_closest_match_corrects_a_typo_and_nothing_else(store: SkillStore) -> None:
    saved(store)
    assert store.find_closest_name("csv_sumary") == "csv-summary"
    assert store.find_closest_name("weather") is None


@pytest.mark.req("SK-04")
def test_no_name_leaves_its_root(store: SkillStore) -> None:
    mixed = "\u0430pple"  # a Cyrillic letter before Latin ones
    for name in ["../x", "a/b", "/etc", "a\0b", "", ".", "..", "-a", "a--b", "x" * 65, mixed]:
        with pytest.raises(Invalid, match="can't be the name"):
            store.save(replace(SKILL, name=name), ME)
    assert store.list_summaries() == []


@pytest.mark.req("SK-10")
def test_a_change_makes_a_version_and_no_change_makes_none(store: SkillStore) -> None:
    assert saved(store, body="one").version == 1
    assert saved(store, body="two").version == 2
    assert saved(store, body="two").version == 2
    assert [version.number for version in store.list_versions("csv-summary")] == [1, 2]


@pytest.mark.req("SK-10")
def test_a_stale_write_is_refused_with_the_current_version(store: SkillStore) -> None:
    saved(store, body="one")
    saved(store, body="two")
    with pytest.raises(Stale, match="at version 2 now, not 1"):
        store.save(replace(SKILL, body="three"), ME, expected_version=1)
    with pytest.raises(Stale, match="already"):
        store.save(replace(SKILL, body="three"), ME, expected_version=0)
    assert load(store, "csv-summary").body == "two"


@pytest.mark.req("SK-10")
def test_switching_off_makes_no_version(store: SkillStore) -> None:
    saved(store)
    assert store.set_enabled("csv-summary", False, ME)
    loaded = load(store, "csv-summary")
    assert (loaded.enabled, loaded.version) == (False, 1)
    assert saved(store, body="changed").enabled is False


@pytest.mark.req("SK-11")
def test_history_keeps_every_text_with_its_author(store: SkillStore) -> None:
    saved(store, body="one")
    store.save(replace(SKILL, body="two"), AGENT)
    first, second = store.list_versions("csv-summary")
    assert (first.number, first.author) == (1, ME)
    assert (second.number, second.author) == (2, AGENT)
    assert first.made_on < second.made_on
    for number, text in ((1, b"one"), (2, b"two")):
        assert text in (read_tree(store, "csv-summary", number)["SKILL.md"].content or b"")


@pytest.mark.req("SK-11")
def test_rollback_is_a_new_version_with_the_old_text(store: SkillStore) -> None:
    saved(store, body="one")
    saved(store, body="two")
    assert store.rollback("csv-summary", 1, ME).version == 3
    loaded = load(store, "csv-summary")
    assert (loaded.version, loaded.body) == (3, "one")
    with pytest.raises(NotFound, match="no version 9"):
        store.rollback("csv-summary", 9, ME)


@pytest.mark.req("SK-06", "SK-11")
def test_counters_survive_edits_and_are_kept_per_version_and_stage(store: SkillStore) -> None:
    saved(store, body="one")
    count(store, recommended=1, used=1, succeeded=1)
    saved(store, body="two")
    count(store, used=1, failed=1)
    count(store, used=1, stage=Stage.CODE)
    assert counts_of(store) == {
        Stage.STEPS: UsageCounts(recommended=1, used=2, succeeded=1, failed=1),
        Stage.CODE: UsageCounts(used=1),
    }
    assert counts_of(store, version=1) == {Stage.STEPS: UsageCounts(recommended=1, used=1, succeeded=1)}


@pytest.mark.req("SK-12")
def test_what_is_deleted_is_archived_and_comes_back_whole(store: SkillStore) -> None:
    saved(store, body="one")
    saved(store, body="two")
    count(store, used=1)
    before = store.load("csv-summary")
    assert store.delete("csv-summary", ME)
    assert (store.load("csv-summary"), store.list_summaries()) == (None, [])
    (archived,) = store.list_archived()
    assert (archived.name, archived.version, archived.author) == ("csv-summary", 2, ME)
    assert store.restore(archived.id, ME) == "csv-summary"
    assert store.load("csv-summary") == before
    assert counts_of(store)[Stage.STEPS].used == 1
    assert len(store.list_versions("csv-summary")) == 2
    assert store.list_archived() == []


@pytest.mark.req("SK-12")
def test_a_new_skill_under_an_old_name_starts_anew_and_hides_nothing(store: SkillStore) -> None:
    saved(store, body="old")
    store.delete("csv-summary", ME)
    assert saved(store, body="new").version == 1
    (archived,) = store.list_archived()
    with pytest.raises(Refused, match="already"):
        store.restore(archived.id, ME)
    assert store.restore(archived.id, ME, new_name="csv_summary_old") == "csv-summary-old"
    assert load(store, "csv-summary-old").body == "old"
    assert store.read_contents().diagnostics.get("csv-summary-old", ()) == ()


@pytest.mark.req("SK-05")
def test_stages_and_other_files_survive_every_operation(store: SkillStore) -> None:
    saved(store)
    tree = read_tree(store, "csv-summary")
    others = {
        "chunks.md": build_tree_file(b"## recipe\n"),
        "tool.json": build_tree_file(b"{}"),
        "scripts/tool.py": build_tree_file(b"print(1)\n", executable=True),
        "references/a b.txt": build_tree_file(bytes(range(256))),
        "assets/deep/er/x.bin": build_tree_file(b"\x00\xff"),
    }
    store.save_tree("csv-summary", {**tree, **others}, ME)
    assert load(store, "csv-summary").stages == {Stage.STEPS, Stage.CHUNKS, Stage.CODE}

    store.update_skill("csv-summary", lambda skill: replace(skill, body="changed", title="New"), ME)
    store.set_enabled("csv-summary", False, ME)
    store.rollback("csv-summary", 2, ME)
    store.delete("csv-summary", ME)
    store.restore(store.list_archived()[0].id, ME)

    assert {path: file for path, file in read_tree(store, "csv-summary").items() if path != "SKILL.md"} == others


@pytest.mark.req("SK-05", "SK-11")
def test_rolling_back_to_before_a_stage_takes_the_stage_away(store: SkillStore) -> None:
    saved(store)
    store.save_tree("csv-summary", {**read_tree(store, "csv-summary"), "chunks.md": build_tree_file(b"x")}, ME)
    store.rollback("csv-summary", 1, ME)
    assert load(store, "csv-summary").stages == {Stage.STEPS}


@pytest.mark.req("SK-04")
def test_no_file_leaves_its_skill(store: SkillStore) -> None:
    saved(store)
    tree = read_tree(store, "csv-summary")
    for path in ["../x", "/etc/x", "a/../b", "", "a\\b", "./a", "a//b"]:
        with pytest.raises(Invalid, match="not a path inside a skill"):
            store.save_tree("csv-summary", {**tree, path: build_tree_file(b"x")}, ME)


@pytest.mark.req("SK-10")
def test_a_change_sees_the_skill_as_it_is_at_that_time(store: SkillStore) -> None:
    saved(store, body="a")
    for letter in "bcd":
        store.update_skill("csv-summary", lambda skill, letter=letter: replace(skill, body=skill.body + letter), ME)  # type: ignore[misc]  # the default binds the loop variable
    loaded = load(store, "csv-summary")
    assert (loaded.body, loaded.version) == ("abcd", 4)


@pytest.mark.some(1)
@pytest.mark.req("SK-22")
def test_returning_to_a_timestamp_rewrites_restores_and_archives(store: SkillStore, clock: Ticking) -> None:
    saved(store, "changed-later", "before")
    saved(store, "deleted-later", "before")
    saved(store, "untouched", "before")
    timestamp = clock()
    saved(store, "changed-later", "after")
    store.delete("deleted-later", ME)
    saved(store, "made-later", "after")

    plan = store.restore_state_at(timestamp, ME, dry_run=True)
    assert {(step.name, step.action, step.version) for step in plan} == {
        ("changed-later", "rewrite", 1),
        ("deleted-later", "restore", 1),
        ("made-later", "archive", 0),
    }
    assert store.load("made-later") is not None

    store.restore_state_at(timestamp, ME)
    assert {skill.name: (skill.body, skill.version) for skill in load_all_entries(store)} == {
        "changed-later": ("before", 3),
        "deleted-later": ("before", 1),
        "untouched": ("before", 1),
    }
    assert [item.name for item in store.list_archived()] == ["made-later"]
    assert store.restore_state_at(timestamp, ME, dry_run=True) == []


@pytest.mark.req("SK-22")
def test_returning_to_before_a_recreation_brings_the_first_one_back(store: SkillStore, clock: Ticking) -> None:
    saved(store, body="first")
    timestamp = clock()
    store.delete("csv-summary", ME)
    saved(store, body="second")
    assert [step.action for step in store.restore_state_at(timestamp, ME)] == ["archive", "restore"]
    assert load(store, "csv-summary").body == "first"
    assert RestoreAction(skill=2, name="csv-summary", action="restore", version=1) not in store.restore_state_at(
        timestamp, ME
    )


@pytest.mark.req("SK-01")
def test_what_breaks_the_standard_is_refused_and_changes_nothing(store: SkillStore) -> None:
    saved(store)
    with pytest.raises(Invalid, match="needs a description"):
        store.save(replace(SKILL, description=""), ME)
    assert [version.number for version in store.list_versions("csv-summary")] == [1]


@pytest.mark.some(1)
@pytest.mark.req("SK-18")
def test_many_skills_are_saved_at_once_and_only_what_changed_is_a_version(store: SkillStore) -> None:
    saved(store, "there", "old")
    saved(store, "same", "old")
    same = read_tree(store, "same")
    many = {
        f"new-{n}": {"SKILL.md": build_tree_file(skill_md.render_skill_md(replace(SKILL, name=f"new-{n}")))}
        for n in range(7)
    }
    changed = {
        "SKILL.md": build_tree_file(skill_md.render_skill_md(replace(SKILL, name="there"))),
        "a/b.txt": build_tree_file(b"x"),
    }
    versions = store.save_trees({**many, "There": changed, "same": same}, AGENT)
    assert versions == {**{f"new-{n}": 1 for n in range(7)}, "there": 2, "same": 1}
    assert len(store.list_summaries()) == 9
    assert store.list_versions("there")[-1].author == AGENT
    tree = read_tree(store, "there")
    assert set(tree) == {"SKILL.md", "a/b.txt"}
    assert store.read_contents().hashes["there"] == compute_tree_hash(tree)


@pytest.mark.req("SK-19")
def test_counters_of_another_system_are_kept_apart(store: SkillStore) -> None:
    saved(store)
    count(store, used=1, succeeded=1)
    told = {Stage.STEPS: UsageCounts(recommended=5, used=3, succeeded=2, failed=1)}
    usage = UsageCache(store.engine)
    for _ in range(2):  # said again, it is not more
        usage.store_imported_counts(store.key, {"csv-summary": told})
    assert counts_of(store) == {Stage.STEPS: UsageCounts(used=1, succeeded=1)}
    assert counts_of(store, version=IMPORTED_COUNTS_VERSION) == told
    assert counts_of(store, with_imported=True)[Stage.STEPS].used == 4
