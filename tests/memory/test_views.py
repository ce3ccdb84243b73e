"""The pages people read and edit: there and back, nothing forged, nothing lost, whoever else writes meanwhile."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.memory import page_files
from habitus.memory.cortex import Cortex, PageSyncResult
from habitus.memory.model import Engram, LessonKind, LessonScope, TrustLevel
from habitus.memory.page_files import (
    PAGE_SPECS,
    DetectedPageEdits,
    MemoryPageFiles,
    ParsedPage,
    ParsedPageLine,
    UnparsedPageLine,
)
from habitus.memory.store import EngramStore
from habitus.redact import Redactor
from habitus.search.index import SearchIndex
from habitus.search.texts.embedding import WordLlamaEmbedder
from habitus.text import clean_to_one_line
from tests.journeys.crash import Killer
from tests.memory.conftest import Clock, Make, lesson

LESSONS = PAGE_SPECS[2]
RULES = PAGE_SPECS[1]

texts = st.one_of(
    st.text(min_size=1, max_size=80),
    st.lists(
        st.sampled_from(
            ["<!--", "-->", "<!-- a0000001 -->", "\n", "- ", "# ", "## Never", "&lt;", "&amp;", "&", "a", "\u2028"]
        ),
        max_size=12,
    ).map("".join),
).map(clean_to_one_line).filter(bool)  # fmt: skip
topics = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True) | st.just("")


def engrams() -> st.SearchStrategy[list[Engram]]:
    one = st.builds(
        Engram,
        id=st.from_regex(r"[a-z][a-z0-9]{7}", fullmatch=True),
        text=texts,
        kind=st.sampled_from(LessonKind),
        scope=st.sampled_from(LessonScope),
        topic=topics,
    )
    return st.lists(one, max_size=8, unique_by=lambda engram: engram.id)


@pytest.mark.full
@pytest.mark.req("ME-02")
@given(engrams())
def test_what_is_rendered_is_read_back_and_nothing_else(many: list[Engram]) -> None:
    read = [page_files.parse_page(view, page_files.render_page(view, many)) for view in PAGE_SPECS]
    assert all(page.bad == () for page in read)
    found = {line.id: line for page in read for line in page.lines}
    assert found == {
        one.id: page_files.ParsedPageLine(id=one.id, text=one.text, kind=one.kind, scope=one.scope, topic=one.topic)
        for one in many
    }
    assert not page_files.diff_pages(found.values(), read)


@pytest.mark.full
@pytest.mark.req("ME-02")
@given(engrams(), st.lists(st.text(max_size=60), max_size=6))
def test_whatever_is_on_a_page_is_understood_or_kept(many: list[Engram], scribbles: list[str]) -> None:
    for view in PAGE_SPECS:
        page = page_files.parse_page(view, page_files.render_page(view, many) + "\n".join(scribbles))
        again = page_files.parse_page(view, page_files.render_page(view, many, page.bad))
        assert [bad.raw for bad in again.bad] == [bad.raw for bad in page.bad]
        assert {line.id for line in again.lines} >= {e.id for e in many if e.kind in view.kinds}


@given(texts)
def test_an_escaped_text_holds_no_comment_and_comes_back(text: str) -> None:
    assert "<!--" not in page_files.escape_comment_delimiters(text)
    assert "-->" not in page_files.escape_comment_delimiters(text)
    assert page_files.unescape_comment_delimiters(page_files.escape_comment_delimiters(text)) == text


def test_people_write_lists_in_many_ways() -> None:
    page = page_files.parse_page(
        RULES,
        "# Rules\n\n## always\n* starred\n+ plus\n-   wide\n- wrapped by\n  an editor <!-- a0000001 global #io -->\n"
        "## WHEN\r\n- carried\r\n- only a scope <!-- project -->\n",
    )
    assert page.bad == ()
    assert page.lines == (
        ParsedPageLine(text="starred", kind=LessonKind.ALWAYS),
        ParsedPageLine(text="plus", kind=LessonKind.ALWAYS),
        ParsedPageLine(text="wide", kind=LessonKind.ALWAYS),
        ParsedPageLine(
            text="wrapped by an editor", kind=LessonKind.ALWAYS, id="a0000001", scope=LessonScope.GLOBAL, topic="io"
        ),
        ParsedPageLine(text="carried", kind=LessonKind.WHEN),
        ParsedPageLine(text="only a scope", kind=LessonKind.WHEN, scope=LessonScope.PROJECT),
    )


def test_a_line_that_makes_no_sense_is_pointed_at() -> None:
    page = page_files.parse_page(
        RULES, "- homeless\n## Sometimes\n## Never\nprose\n- two <!-- a --> comments -->\n- odd <!-- huh? -->\n- \n"
    )
    assert [(bad.raw, bad.reason) for bad in page.bad] == [
        ("- homeless", "it is under none of Always, Never, When"),
        ("## Sometimes", "a line starts with '- '"),
        ("prose", "a line starts with '- '"),
        ("- two <!-- a --> comments -->", "there is a comment inside the text"),
        ("- odd <!-- huh? -->", "the comment at its end is none of ours"),
        ("- ", "there is no text"),
    ]


def test_a_copied_line_is_a_new_one() -> None:
    before = [ParsedPageLine(id="a0000001", text="one", kind=LessonKind.LESSON)]
    copied = ParsedPage(lines=(ParsedPageLine(id="a0000001", text="one, changed", kind=LessonKind.LESSON), *before))
    assert page_files.diff_pages(before, [copied]) == DetectedPageEdits(
        new=(ParsedPageLine(text="one, changed", kind=LessonKind.LESSON),)
    )


def test_a_broken_address_does_not_remove_what_it_names() -> None:
    before = [ParsedPageLine(id="a0000001", text="one", kind=LessonKind.LESSON)]
    page = ParsedPage(bad=(UnparsedPageLine(raw="- one <!-- a0000001 glob", reason="?"),))
    assert not page_files.diff_pages(before, [page])


@pytest.fixture
def pages(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: tmp_path / "memory" / name


Pages = Callable[[str], Path]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.req("ME-02")
def test_every_change_is_shown_at_once(cortex: Cortex, pages: Pages) -> None:
    cortex.add("Ann is a nurse.", kind=LessonKind.PROFILE)
    cortex.add("Quote column names.", kind=LessonKind.ALWAYS, scope=LessonScope.GLOBAL)
    cortex.encode(lesson("Dates are day-first.", topic="csv"))
    assert "- Ann is a nurse. <!-- e0000001 user -->" in pages("profile.md").read_text()
    assert "## Always\n\n- Quote column names. <!-- e0000002 global -->" in pages("rules.md").read_text()
    assert "- Dates are day-first. <!-- e0000003 user #csv -->" in pages("lessons.md").read_text()
    cortex.remove("e0000003", by="ann")
    assert "Dates" not in pages("lessons.md").read_text()
    assert oct(pages("lessons.md").stat().st_mode)[-3:] == "600"


def test_who_keeps_the_database_busy_does_not_wait_for_the_pages(
    cortex: Cortex, engine: sa.Engine, pages: Pages
) -> None:
    """Whoever has the pages may be waiting for the database: neither would ever go on."""
    cortex.encode(lesson("Dates are day-first."))
    with (pages(".lock")).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with sql.write_transaction(engine, lock="memory"):
            cortex.encode(lesson("The log is long."))
    assert "The log is long." not in pages("lessons.md").read_text()
    cortex.encode(lesson("The report is short."))
    assert {"- The log is long.", "- The report is short."} <= {
        line.partition(" <!--")[0] for line in pages("lessons.md").read_text().splitlines()
    }


@pytest.mark.req("ME-02")
def test_what_a_person_writes_is_read_back(cortex: Cortex, pages: Pages) -> None:
    for text in ("Dates are day-first.", "The log is long.", "The report is short."):
        cortex.encode(lesson(text))
    path = pages("lessons.md")
    change(path, "Dates are day-first.", "Dates are month-first.")
    change(path, "- The log is long. <!-- e0000002 user -->\n", "")
    path.write_text(path.read_text() + "- Numbers use a comma.\n")
    looked = cortex.sync_pages()
    assert [e.text for e in looked.changed] == ["Dates are month-first."]
    assert [e.text for e in looked.removed] == ["The log is long."]
    assert [(e.text, e.trust) for e in looked.added] == [("Numbers use a comma.", TrustLevel.USER)]
    assert {(e.text, e.trust) for e in cortex.list_lessons()} == {
        ("Dates are month-first.", TrustLevel.USER),
        ("The report is short.", TrustLevel.AUTOMATIC),
        ("Numbers use a comma.", TrustLevel.USER),
    }
    assert cortex.sync_pages() == PageSyncResult()
    assert "Numbers use a comma. <!-- e0000004 user -->" in path.read_text()


@pytest.mark.req("ME-02")
def test_recall_sees_what_was_edited_just_now(cortex: Cortex, pages: Pages) -> None:
    cortex.sync_pages()
    path = pages("rules.md")
    change(path, "## Never\n", "## Never\n- Drop tables on Fridays.\n")
    assert [one.text for one in cortex.recall("anything").rules] == ["Drop tables on Fridays."]


def test_a_line_moved_to_another_page_changes_its_kind(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Quote column names."))
    change(pages("lessons.md"), "- Quote column names. <!-- e0000001 user -->\n", "")
    change(pages("rules.md"), "## Always\n", "## Always\n- Quote column names. <!-- e0000001 user -->\n")
    looked = cortex.sync_pages()
    assert [(e.id, e.kind) for e in looked.changed] == [("e0000001", LessonKind.ALWAYS)]
    assert looked.removed == ()


def test_a_person_widens_a_lesson_in_the_page(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Dates are day-first."))
    change(pages("lessons.md"), "e0000001 user", "e0000001 global")
    cortex.sync_pages()
    assert cortex.get("e0000001").scope_and_owner == (LessonScope.GLOBAL, "")


def test_hand_broken_lines_stay_and_nothing_else_is_lost(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Dates are day-first."))
    cortex.encode(lesson("The log is long."))
    path = pages("lessons.md")
    change(path, "<!-- e0000001 user -->", "<!-- e0000001 us")
    path.write_text(path.read_text() + "some prose\n")
    looked = cortex.sync_pages()
    assert looked.notes == (
        "lessons.md, line 4: there is a comment inside the text; it stays unchanged.",
        "lessons.md, line 6: a line starts with '- '; it stays unchanged.",
    )
    assert (looked.added, looked.changed, looked.removed) == ((), (), ())
    text = path.read_text()
    assert "<!-- e0000001 user -->" in text
    assert "## Not understood" in text
    assert "- Dates are day-first. <!-- e0000001 us\n" in text
    assert "some prose\n" in text
    change(path, "some prose", "- some prose, corrected")
    change(path, "- Dates are day-first. <!-- e0000001 us\n", "")
    assert [engram.text for engram in cortex.sync_pages().added] == ["some prose, corrected"]
    assert "Not understood" not in path.read_text()
    assert len(cortex.list_lessons()) == 3


@pytest.mark.parametrize("emptied", ["", "\n \n", None])
def test_a_deleted_page_is_rendered_again(cortex: Cortex, pages: Pages, emptied: str | None) -> None:
    cortex.encode(lesson("Dates are day-first."))
    before = pages("lessons.md").read_text()
    if emptied is None:
        pages("lessons.md").unlink()
    else:
        pages("lessons.md").write_text(emptied)
    cortex.sync_pages()
    assert pages("lessons.md").read_text() == before
    assert len(cortex.list_lessons()) == 1


def test_a_page_without_its_first_line_is_still_understood(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Dates are day-first."))
    cortex.encode(lesson("The log is long."))
    lines = pages("lessons.md").read_text().splitlines()[1:]
    pages("lessons.md").write_text("\n".join(line for line in lines if "The log" not in line))
    assert [engram.text for engram in cortex.sync_pages().removed] == ["The log is long."]


def test_a_page_newer_than_the_database_is_read(make: Make, tmp_path: Path, engine: object, pages: Pages) -> None:
    make().encode(lesson("Dates are day-first."))
    with closing(sqlite3.connect(tmp_path / "habitus.db")) as db, closing(sqlite3.connect(tmp_path / "old.db")) as old:
        db.backup(old)
    make().encode(lesson("The log is long."))
    make().edit("e0000001", by="ann", text="Dates are month-first.")
    with closing(sqlite3.connect(tmp_path / "habitus.db")) as db, closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.backup(db)
    cortex = make()
    assert {(e.text, e.trust) for e in cortex.list_lessons()} == {
        ("Dates are month-first.", TrustLevel.USER),
        ("The log is long.", TrustLevel.AUTOMATIC),
    }


def test_a_page_that_lay_open_in_an_editor_removes_nothing_it_never_showed(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Dates are day-first."))
    opened = pages("lessons.md").read_text()
    cortex.encode(lesson("The log is long."))
    pages("lessons.md").write_text(opened.replace("day-first", "month-first"))
    looked = cortex.sync_pages()
    assert ([e.text for e in looked.changed], looked.removed) == (["Dates are month-first."], ())
    assert {e.text for e in cortex.list_lessons()} == {"Dates are month-first.", "The log is long."}


def test_what_changed_meanwhile_is_not_removed_with_its_old_text(cortex: Cortex, pages: Pages) -> None:
    cortex.encode(lesson("Dates are day-first."))
    opened = pages("lessons.md").read_text()
    cortex.edit("e0000001", by="bob", text="Dates are ISO.")
    pages("lessons.md").write_text(opened.replace("- Dates are day-first. <!-- e0000001 user -->\n", ""))
    assert cortex.sync_pages().notes == ("e0000001 has changed since you saw it; it stays.",)
    assert [e.text for e in cortex.list_lessons()] == ["Dates are ISO."]


def test_what_was_forgotten_does_not_come_back_from_a_page(cortex: Cortex, pages: Pages, tmp_path: Path) -> None:
    cortex.encode(lesson("Ann has a cat."))
    kept = pages("lessons.md").read_text()
    assert cortex.erase_user("ann") == 1
    pages("lessons.md").write_text(kept)
    cortex.sync_pages()
    assert cortex.list_lessons() == ()
    assert all(b"has a cat" not in path.read_bytes() for path in (tmp_path / "memory").iterdir())


@pytest.mark.parametrize("scope", [LessonScope.PROJECT, LessonScope.WORKSPACE, LessonScope.GLOBAL])
def test_what_a_users_conversation_taught_others_is_forgotten_with_them(make: Make, scope: LessonScope) -> None:
    cortex = make()
    cortex.encode(lesson("Ann's build needs Java 17.", scope=scope, project="p"))
    cortex.encode(lesson("The second sheet holds totals.", scope=scope, project="p", user="bob"))
    cortex.add("Dates are day-first.", scope=scope, project="p")
    assert cortex.erase_user("ann") == 1
    assert {e.text for e in cortex.list_lessons()} == {"The second sheet holds totals.", "Dates are day-first."}
    assert cortex.get_history(cortex.list_lessons()[0].id) != ()


def test_what_was_widened_is_still_forgotten_with_who_taught_it(make: Make) -> None:
    cortex = make()
    cortex.encode(lesson("Ann's build needs Java 17."))
    cortex.edit("e0000001", by="bob", scope=LessonScope.GLOBAL)
    assert cortex.erase_user("ann") == 1
    assert cortex.list_lessons() == ()


_FORK = multiprocessing.get_context("fork")
_ADDS = """
import sys
from pathlib import Path
from habitus import Habitus, read_settings

with Habitus.open(read_settings(Path(sys.argv[1]))) as habitus:
    for number in range(8):
        habitus.memory.add(f"Machine {sys.argv[2]}{number} is number {number}.")
        if number == 4:
            page = Path(sys.argv[1]) / "memory" / "lessons.md"
            with page.open("a") as file:
                file.write(f"- By hand {sys.argv[2]} at {number}.\\n")
    habitus.memory.sync_pages()
"""


@pytest.mark.full
@pytest.mark.req("SC-02")
def test_two_processes_editing_lose_nothing(tmp_path: Path, python: str) -> None:
    home = tmp_path / "home"
    environ = {**os.environ, "HABITUS_USER": "ann"}
    jobs = [subprocess.Popen([python, "-c", _ADDS, str(home), name], env=environ) for name in "ab"]
    assert [job.wait() for job in jobs] == [0, 0]
    shown = (home / "memory" / "lessons.md").read_text()
    with closing(sqlite3.connect(home / "habitus.db")) as db:
        kept = {row[0] for row in db.execute("SELECT text FROM engrams WHERE state = 'active'")}
    assert kept >= {f"Machine {name}{n} is number {n}." for name in "ab" for n in range(8)}
    assert all(f"- {text} <!-- " in shown for text in kept)


def _encode_and_be_killed(make: Make, at: int, steps: Any) -> None:
    killer = Killer(at)
    killer.watch()
    cortex = make(new_id=lambda: "k0000001")
    cortex.sync_pages()
    killer.is_on = True
    cortex.encode(lesson("The log is long."))
    killer.is_on = False
    steps.value = killer.steps


@pytest.mark.full
@pytest.mark.req("SC-02", "ME-02")
def test_killed_at_any_step_the_next_look_heals(
    make: Make, tmp_path: Path, embedder: WordLlamaEmbedder, is_thorough: bool
) -> None:
    first = make()
    first.encode(lesson("Dates are day-first."))
    first.recall("dates")
    steps = _FORK.Value("i", 0)
    outcomes = set()
    for at in range(1, 60, 1 if is_thorough else 3):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        with make_copy(tmp_path, embedder) as copied:
            process = _FORK.Process(target=_encode_and_be_killed, args=(copied, at, steps))
            process.start()
            process.join()
            cortex = copied()
            looked = cortex.sync_pages()
            assert (looked.added, looked.changed, looked.removed) == ((), (), ())
            found = {e.text for e in cortex.list_lessons()}
            assert "Dates are day-first." in found
            shown = (tmp_path / "copy" / "memory" / "lessons.md").read_text()
            assert all(f"- {text} <!-- " in shown for text in found)
            assert ("The log is long." in shown) == ("The log is long." in found)
            outcomes.add((process.exitcode, len(found)))
        if process.exitcode == 0:
            break
    assert outcomes == {(-signal.SIGKILL, 1), (-signal.SIGKILL, 2), (0, 2)}
    assert at > 10


@contextmanager
def make_copy(tmp_path: Path, embedder: WordLlamaEmbedder) -> Iterator[Make]:
    """The test's home, copied, and a way to open memory on it."""
    place = tmp_path / "copy"
    place.mkdir()
    shutil.copytree(tmp_path / "memory", place / "memory")
    with closing(sqlite3.connect(tmp_path / "habitus.db")) as db, closing(sqlite3.connect(place / "habitus.db")) as to:
        db.backup(to)
    engines: list[sa.Engine] = []

    def made(**more: Any) -> Cortex:
        engine = sql.create_engine(sql.build_sqlite_url(place / "habitus.db"))
        engines.append(engine)
        clock = Clock()
        clock.wait(hours=1)
        files = MemoryPageFiles(place / "memory", engine, clock=clock, is_durable=False)
        given = {"redactor": Redactor(), "clock": clock, "user": "ann", "files": files, **more}
        return Cortex(EngramStore(engine), lambda: SearchIndex.open(engine, "memory", embedder=embedder), **given)

    yield made
    for engine in engines:
        engine.dispose()


@pytest.mark.req("OP-05", "SC-02")
def test_a_lesson_that_is_kept_is_not_answered_as_refused_when_its_page_finds_no_room(
    home: Path, tmp_path: Path
) -> None:
    (small := home / "memory").mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})
        with Habitus.open(settings.model_copy(update={"cwd": tmp_path})) as habitus:
            habitus.memory.add("Water boils at a hundred degrees.")
            (small / "ballast").write_bytes(b"x" * shutil.disk_usage(small).free)
            assert habitus.memory.add("Milk boils sooner than water does.").engram is not None
            (small / "ballast").unlink()
            habitus.memory.sync_pages()
            assert "Milk boils sooner" in (small / "lessons.md").read_text()
    finally:
        subprocess.run(["umount", "-l", small], check=True)
