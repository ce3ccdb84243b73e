"""Taking skills in: a verdict for each, a second run that changes nothing, and no local edit overwritten."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.app.library.importing import ImportOptions, import_skills, open_importer
from habitus.skills import trees
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.formats import detect
from habitus.skills.formats.base import IncomingSkill
from habitus.skills.model import Skill, Stage
from habitus.skills.sources.importing import ImportVerdict
from habitus.skills.stores.base import IMPORTED_COUNTS_VERSION
from habitus.use_counts import UsageCounts
from tests.skills.test_trust import EVIL

APPEND = TextEdit(operation=EditOperation.APPEND, content="mine")


def put(root: Path, name: str, body: str = "1. Do it.") -> Path:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n---\n\n{body}\n")
    return root


def taken(
    habitus: Habitus, source: Path, *, overwrite: bool = False, is_trusted: bool = False
) -> dict[str, tuple[str, str]]:
    entries = detect.read_entries(source)
    results = open_importer(habitus).import_entries(
        entries, habitus.build_author(), overwrite=overwrite, is_trusted=is_trusted
    )
    return {result.name: (result.verdict.value, result.reason) for result in results}


def verdicts(habitus: Habitus, source: Path, *, overwrite: bool = False, is_trusted: bool = False) -> dict[str, str]:
    found = taken(habitus, source, overwrite=overwrite, is_trusted=is_trusted)
    return {name: verdict for name, (verdict, _) in found.items()}


@pytest.mark.req("SK-18")
def test_a_tree_of_skills_is_taken_in_and_a_second_run_changes_nothing(habitus: Habitus, tmp_path: Path) -> None:
    theirs = tmp_path / "checkout"
    for name in ("alpha", "beta"):
        put(theirs / "skills", name)
    put(theirs / "more/deep", "gamma")
    assert verdicts(habitus, theirs) == dict.fromkeys(("alpha", "beta", "gamma"), "imported")
    before = {item.name: item.summary for item in habitus.skills.list_skills()}
    assert verdicts(habitus, theirs) == dict.fromkeys(("alpha", "beta", "gamma"), "unchanged")
    assert {item.name: item.summary for item in habitus.skills.list_skills()} == before


@pytest.mark.req("SK-18", "PF-04")
def test_what_is_unchanged_is_not_parsed_again_and_what_is_odd_about_it_is_still_said(
    habitus: Habitus, tmp_path: Path
) -> None:
    put(tmp_path / "theirs", "alpha")
    put(tmp_path / "theirs", "beta")
    odd = tmp_path / "theirs" / "beta" / "SKILL.md"
    odd.write_text(
        odd.read_text().replace("About beta.", "About: beta.\nallowed-tools: {}\npackages: nowhere-to-be-had")
    )
    first, again = (import_skills(habitus, tmp_path / "theirs", (), "user", ImportOptions()).results for _ in range(2))
    trees._parse_main_file.cache_clear()
    assert import_skills(habitus, tmp_path / "theirs", (), "user", ImportOptions()).results == again
    assert trees._parse_main_file.cache_info().misses == 0
    assert [one.verdict for one in (*first, *again)] == [ImportVerdict.IMPORTED] * 2 + [ImportVerdict.UNCHANGED] * 2
    assert [one.notes for one in first] == [one.notes for one in again]
    assert again[1].notes


@pytest.mark.full
@pytest.mark.req("SK-18")
def test_a_change_there_updates_and_a_change_here_is_kept(habitus: Habitus, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    put(theirs, "alpha", "one")
    put(theirs, "beta", "one")
    taken(habitus, theirs)
    habitus.skills.edit("beta", APPEND, habitus.build_author())
    assert taken(habitus, theirs)["beta"] == ("unchanged", "edited here since; your version stays")
    put(theirs, "alpha", "two")
    put(theirs, "beta", "two")
    found = taken(habitus, theirs)
    assert found["alpha"][0] == "updated"
    assert found["beta"][0] == "refused"
    assert "was edited here" in found["beta"][1]
    assert habitus.skills.load("beta").body == "one\nmine"
    assert verdicts(habitus, theirs, overwrite=True)["beta"] == "updated"
    assert habitus.skills.load("beta").body == "two"
    assert len(habitus.skills.list_versions("beta")) == 3


@pytest.mark.req("SK-18")
def test_a_skill_of_ones_own_is_not_overwritten(habitus: Habitus, tmp_path: Path) -> None:
    put(habitus.settings.home / "skills", "alpha", "my own")
    put(tmp_path / "theirs", "alpha", "theirs")
    verdict, reason = taken(habitus, tmp_path / "theirs")["alpha"]
    assert verdict == "refused"
    assert "is there already" in reason


@pytest.mark.req("SK-18")
def test_a_removed_skill_can_be_imported_again(habitus: Habitus, tmp_path: Path) -> None:
    put(tmp_path / "theirs", "alpha")
    taken(habitus, tmp_path / "theirs")
    habitus.skills.remove("alpha", habitus.build_author())
    assert verdicts(habitus, tmp_path / "theirs") == {"alpha": "imported"}


@pytest.mark.req("SK-18", "SC-07")
def test_findings_hold_a_skill_until_a_person_decides(habitus: Habitus, tmp_path: Path) -> None:
    put(tmp_path / "theirs", "nice")
    put(tmp_path / "theirs", "nasty", EVIL)
    found = taken(habitus, tmp_path / "theirs")
    assert found["nice"][0] == "imported"
    assert found["nasty"][0] == "held"
    assert "habitus review show 1" in found["nasty"][1]
    assert not habitus.skills.is_name_taken("nasty")
    assert verdicts(habitus, tmp_path / "theirs") == {"nice": "unchanged", "nasty": "held"}
    assert habitus.review.count_pending() == 1

    habitus.review.approve(1, habitus.build_author())
    assert habitus.skills.load("nasty").body == EVIL
    assert verdicts(habitus, tmp_path / "theirs")["nasty"] == "unchanged"


@pytest.mark.req("SK-18")
def test_an_update_that_is_held_disturbs_nothing_and_an_approved_one_goes_on_being_updated(
    habitus: Habitus, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    put(theirs, "alpha", "one")
    taken(habitus, theirs)
    put(theirs, "alpha", EVIL)
    assert [verdicts(habitus, theirs)["alpha"] for _ in range(2)] == ["held", "held"]
    put(theirs, "alpha", "two")
    assert verdicts(habitus, theirs)["alpha"] == "updated"
    put(theirs, "alpha", f"{EVIL} Now.")
    assert verdicts(habitus, theirs)["alpha"] == "held"
    habitus.review.approve(habitus.review.list_proposals_by_state()[-1].id, habitus.build_author())
    assert verdicts(habitus, theirs)["alpha"] == "unchanged"
    put(theirs, "alpha", "three")
    assert verdicts(habitus, theirs)["alpha"] == "updated"


@pytest.mark.req("SK-18", "SK-19")
def test_an_approved_import_brings_its_counters_and_its_switch(habitus: Habitus, tmp_path: Path) -> None:
    counters = {Stage.STEPS: UsageCounts(recommended=4, used=2)}
    (entry,) = detect.read_entries(put(tmp_path / "theirs", "alpha", EVIL))
    assert isinstance(entry, IncomingSkill)
    held = replace(entry, counters=counters, enabled=False)
    (result,) = open_importer(habitus).import_entries([held], habitus.build_author())
    assert result.verdict is ImportVerdict.HELD
    habitus.review.approve(1, habitus.build_author())
    assert habitus.skills.read_counters("alpha", version=IMPORTED_COUNTS_VERSION) == counters
    assert habitus.skills.load("alpha").enabled is False
    assert habitus.skills.load("alpha").source == "imported"


@pytest.mark.req("SK-18", "SC-02")
def test_a_run_that_was_killed_after_writing_is_finished_by_the_next(habitus: Habitus, tmp_path: Path) -> None:
    (entry,) = detect.read_entries(put(tmp_path / "theirs", "alpha"))
    assert isinstance(entry, IncomingSkill)
    counted = replace(entry, counters={Stage.STEPS: UsageCounts(used=3)})
    open_importer(habitus)._record_origins({"alpha": counted}, "user")
    habitus.skills.write_trees("user", {"alpha": entry.tree}, habitus.build_author())
    for _ in range(2):
        (result,) = open_importer(habitus).import_entries([counted], habitus.build_author())
        assert result.verdict is ImportVerdict.UNCHANGED
    assert habitus.skills.read_counters("alpha", version=IMPORTED_COUNTS_VERSION) == {Stage.STEPS: UsageCounts(used=3)}


@pytest.mark.req("SK-15")
def test_a_skill_of_ones_own_under_the_name_of_a_removed_import_is_ones_own(habitus: Habitus, tmp_path: Path) -> None:
    put(tmp_path / "theirs", "alpha")
    taken(habitus, tmp_path / "theirs")
    habitus.skills.remove("alpha", habitus.build_author())
    habitus.skills.create(Skill(name="alpha", description="Mine.", body="Mine."), habitus.build_author())
    assert habitus.skills.load("alpha").source == "user"


@pytest.mark.req("SK-19")
def test_versions_and_dates_come_along(habitus: Habitus, tmp_path: Path) -> None:
    (entry,) = detect.read_entries(put(tmp_path / "theirs", "alpha"))
    assert isinstance(entry, IncomingSkill)
    born = datetime(2020, 1, 2, tzinfo=UTC)
    list(open_importer(habitus).import_entries([replace(entry, version=7, created_on=born)], habitus.build_author()))
    skill = habitus.skills.load("alpha")
    assert (skill.version, skill.created_on) == (7, born)
    habitus.skills.edit("alpha", APPEND, habitus.build_author())
    assert [version.number for version in habitus.skills.list_versions("alpha")] == [7, 8]


@pytest.mark.req("SK-18")
def test_what_was_turned_down_stays_out_and_says_why(habitus: Habitus, tmp_path: Path) -> None:
    put(tmp_path / "theirs", "nasty", EVIL)
    taken(habitus, tmp_path / "theirs")
    habitus.review.reject(1, habitus.build_author(), "no thanks")
    verdict, reason = taken(habitus, tmp_path / "theirs")["nasty"]
    assert verdict == "refused"
    assert reason.endswith("no thanks")
    assert verdicts(habitus, tmp_path / "theirs", is_trusted=True)["nasty"] == "imported"


@pytest.mark.req("SK-18")
def test_two_skills_of_one_name_are_told_apart(habitus: Habitus, tmp_path: Path) -> None:
    put(tmp_path / "theirs/a", "my-skill", "one")
    put(tmp_path / "theirs/b", "my_skill", "two")
    results = list(
        open_importer(habitus).import_entries(detect.read_entries(tmp_path / "theirs"), habitus.build_author())
    )
    assert sorted(result.verdict for result in results) == [ImportVerdict.IMPORTED, ImportVerdict.REFUSED]
    assert "came first" in next(result.reason for result in results if result.verdict is ImportVerdict.REFUSED)


@pytest.mark.req("SK-18")
def test_every_kind_of_upload_comes_in(habitus: Habitus, tmp_path: Path) -> None:
    (tmp_path / "Release Notes.md").write_text("# Release notes\n\nHow we write them.\n\n1. Collect.\n")
    assert verdicts(habitus, tmp_path / "Release Notes.md") == {"release-notes": "imported"}
    archive = tmp_path / "pack.skill"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped/SKILL.md", "---\nname: zipped\ndescription: In a zip.\n---\n\nUnpack.\n")
        file.writestr("zipped/scripts/run.py", "print(1)\n")
    assert verdicts(habitus, archive) == {"zipped": "imported"}
    assert set(habitus.skills.read_tree("zipped")) == {"SKILL.md", "scripts/run.py"}
    put(tmp_path / "checkout", "tarred", "In a tar.")
    with tarfile.open(tmp_path / "checkout.tar.gz", "w:gz") as file:
        file.add(tmp_path / "checkout", arcname=".")
    assert verdicts(habitus, tmp_path / "checkout.tar.gz") == {"tarred": "imported"}
    assert verdicts(habitus, tmp_path / "checkout.tar.gz") == {"tarred": "unchanged"}


@pytest.mark.req("SK-18", "SC-01")
def test_a_hostile_archive_is_refused_and_leaves_nothing(habitus: Habitus, tmp_path: Path) -> None:
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../escape/SKILL.md", "---\nname: escape\ndescription: Out.\n---\n")
    (found,) = taken(habitus, archive).values()
    assert found[0] == "refused"
    link = tarfile.TarInfo("skill/out")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
    with tarfile.open(tmp_path / "linked.tgz", "w:gz") as packed:
        packed.addfile(link)
        packed.addfile(tarfile.TarInfo("skill/out/escape"))
    assert taken(habitus, tmp_path / "linked.tgz") == {"linked": ("refused", "'skill/out' is a link.")}
    assert not (tmp_path / "escape").exists()


@pytest.mark.req("SK-19")
def test_counters_and_switches_come_along(habitus: Habitus, tmp_path: Path) -> None:
    folder = tmp_path / "anton/csv_summary"
    folder.mkdir(parents=True)
    meta = {"label": "csv_summary", "name": "CSV", "description": "Sums.", "when_to_use": "A CSV comes"}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "declarative.md").write_text("1. Read it.\n")
    (folder / "stats.json").write_text(json.dumps({"stage_1": {"recommended": 7}}))
    database = tmp_path / "skills.db"
    with sqlite3.connect(database) as connection:
        connection.execute(
            "CREATE TABLE agent_skills (_id TEXT, title TEXT, description TEXT, content TEXT, tags TEXT, source TEXT,"
            " version INTEGER, enabled INTEGER, created_on TEXT, modified_on TEXT)"
        )
        row = ("off", "Off", "Is off.", "Steps.", "[]", "user", 3, 0, "2024-01-01", "2024-01-01")
        connection.execute("INSERT INTO agent_skills VALUES (?,?,?,?,?,?,?,?,?,?)", row)
    connection.close()
    assert verdicts(habitus, tmp_path / "anton") == {"csv-summary": "imported"}
    assert verdicts(habitus, database) == {"off": "imported"}
    assert habitus.skills.read_counters("csv-summary", version=IMPORTED_COUNTS_VERSION)[Stage.STEPS].recommended == 7
    assert habitus.skills.load("off").enabled is False
    taken(habitus, tmp_path / "anton")
    assert habitus.skills.read_counters("csv-summary", version=IMPORTED_COUNTS_VERSION)[Stage.STEPS].recommended == 7


@pytest.mark.full
@pytest.mark.req("SK-18")
def test_an_interrupted_import_goes_on_when_repeated(habitus: Habitus, tmp_path: Path) -> None:
    for number in range(520):
        put(tmp_path / "theirs", f"skill-{number:03d}")
    run = open_importer(habitus).import_entries(detect.read_entries(tmp_path / "theirs"), habitus.build_author())
    for _ in range(250):
        next(run)
    run.close()  # type: ignore[attr-defined]  # it is a generator
    counts = list(verdicts(habitus, tmp_path / "theirs").values())
    assert (counts.count("imported"), counts.count("unchanged")) == (20, 500)
