"""Transcripts of any size, read in pieces, and what they teach applied once."""

from __future__ import annotations

from pathlib import Path

import pytest

from habitus import sql
from habitus.learning.post_mortem import PostMortemResult
from habitus.learning.transcripts import SkillUse, read_pieces, read_transcripts
from habitus.learning.transcripts.applying import TranscriptLessonRecorder, TranscriptLessonRecordingCounts
from habitus.learning.transcripts.failed_calls import MAX_FAILURES_PER_FILE, FailedCallCollector
from habitus.learning.transcripts.learned_turns import LearnedTurnStore
from habitus.learning.transcripts.model import MAX_TURN_EVENTS, PIECE_EVENTS
from habitus.learning.transcripts.study import StudiedTurn, StudiedTurnCountsResult, visit_studied_turns_of_file
from habitus.memory.model import HIGH_CONFIDENCE, MEDIUM_CONFIDENCE, LessonDraft, LessonProducer, LessonProvenance
from habitus.redact import PATTERNS_ONLY
from tests.learning.keeper import NOW, RecordingKeeper
from tests.learning.logs import Line, asked, came, clean, failing, used, write

SKILL = [used("s-1", "Skill", {"skill": "docs:tables"}), came("s-1", "Launching skill: tables")]


def applier(
    keeper: RecordingKeeper, ledger: LearnedTurnStore | None = None
) -> tuple[TranscriptLessonRecorder, list[SkillUse]]:
    uses: list[SkillUse] = []
    ledger = ledger or LearnedTurnStore(sql.create_in_memory_engine(), clock=lambda: NOW)

    def count(use: SkillUse) -> bool:
        uses.append(use)
        return use.skill == "docs:tables"

    return TranscriptLessonRecorder(
        keeper, ledger, redactor=PATTERNS_ONLY, count_skill=count, user="ann", project="/here"
    ), uses


@pytest.mark.full
@pytest.mark.req("EL-08")
def test_a_long_session_comes_in_pieces_that_are_the_whole_together(tmp_path: Path) -> None:
    lines = [line for turn in range(PIECE_EVENTS) for line in (failing(turn) if turn % 50 == 0 else clean(turn))]
    path = write(tmp_path / "long.jsonl", lines)
    parts = list(read_pieces(path))
    assert [part.goes_on for part in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) > 1
    assert max(part.event_count for part in parts) <= PIECE_EVENTS + 10
    (whole,) = read_transcripts(path)
    assert whole.turns == tuple(turn for part in parts for turn in part.turns)
    assert [turn.id for turn in whole.turns] == [str(number) for number in range(1, PIECE_EVENTS + 1)]
    assert (whole.event_count, whole.unread) == (sum(part.event_count for part in parts), {})


@pytest.mark.full
@pytest.mark.req("EL-08")
def test_an_endless_turn_is_cut_and_the_rest_counted(tmp_path: Path) -> None:
    more = 100
    lines: list[Line] = [asked("go on for ever")]
    for number in range((MAX_TURN_EVENTS + more) // 2):
        lines += [used(f"c{number}", "Read", {"path": number}), came(f"c{number}", str(number))]
    seen: list[StudiedTurn] = []
    read_file = visit_studied_turns_of_file(write(tmp_path / "endless.jsonl", lines), PATTERNS_ONLY, seen.append)
    assert [len(each.turn.events) for each in seen] == [MAX_TURN_EVENTS]
    assert read_file == StudiedTurnCountsResult(
        path=tmp_path / "endless.jsonl",
        format="claude_code",
        transcripts=1,
        turns=1,
        events=MAX_TURN_EVENTS,
        unread={"event of an endless turn": more},
    )


def apply_file(path: Path, by: TranscriptLessonRecorder) -> None:
    def apply(studied: StudiedTurn) -> None:
        if taught := by.build_lesson_batch_of_turn(studied):
            by.store_lesson_batch_once(taught)

    visit_studied_turns_of_file(path, PATTERNS_ONLY, apply)


@pytest.mark.req("EL-08")
def test_what_a_turn_teaches_is_encoded_with_its_evidence_and_only_once(tmp_path: Path) -> None:
    keeper = RecordingKeeper()
    ledger = LearnedTurnStore(sql.create_in_memory_engine(), clock=lambda: NOW)
    path = write(tmp_path / "s.jsonl", [asked("hi", cwd="/work/shop"), *failing(1), *SKILL])
    first, uses = applier(keeper, ledger)
    apply_file(path, first)
    assert [(each.text[:35], each) for each in keeper.learned] == [
        (
            "When a tool fails twice in a row, s",
            LessonDraft(
                text=keeper.learned[0].text,
                kind="when",
                scope="global",
                confidence=HIGH_CONFIDENCE,
                produced_by=LessonProducer.DETECTOR,
                source="consolidation",
                evidence=LessonProvenance(
                    detector="repeated_tool_error", error_signature="No module named <str>", trace="s.jsonl turn 2"
                ),
                user="ann",
                project="/work/shop",
            ),
        )
    ]
    assert first.applied == TranscriptLessonRecordingCounts(lessons=first.applied.lessons, skill_uses=1)
    assert first.applied.lessons == {"stored": 1}
    assert [use.skill for use in uses] == ["docs:tables"]

    # The same turns under another name, with a new one at the end.
    copy = write(tmp_path / "copy.jsonl", [asked("hi", cwd="/work/shop"), *failing(1), *SKILL, *failing(2)])
    second, uses = applier(keeper, ledger)
    apply_file(copy, second)
    assert (second.applied.already_learned, second.applied.lessons, uses) == (1, {"reinforced": 1}, [])


@pytest.mark.req("EL-08", "ME-03")
def test_what_memory_did_not_take_can_be_learned_later(tmp_path: Path) -> None:
    keeper = RecordingKeeper(is_on=False)
    ledger = LearnedTurnStore(sql.create_in_memory_engine(), clock=lambda: NOW)
    path = write(tmp_path / "s.jsonl", failing(1))
    first, _ = applier(keeper, ledger)
    apply_file(path, first)
    assert first.applied.lessons == {"off": 1}
    keeper.is_on = True
    second, _ = applier(keeper, ledger)
    apply_file(path, second)
    assert (second.applied.lessons, second.applied.already_learned) == ({"stored": 1}, 0)


@pytest.mark.req("EL-08")
def test_an_encoder_that_fails_leaves_the_turn_to_be_learned_from(tmp_path: Path) -> None:
    ledger = LearnedTurnStore(sql.create_in_memory_engine(), clock=lambda: NOW)
    path = write(tmp_path / "s.jsonl", failing(1))
    broken, _ = applier(RecordingKeeper(raises=True), ledger)
    apply_file(path, broken)
    assert broken.applied.lessons == {"not stored": 1}
    keeper = RecordingKeeper()
    apply_file(path, applier(keeper, ledger)[0])
    assert len(keeper.learned) == 1


@pytest.mark.req("EL-08", "EL-01")
def test_what_a_call_was_meant_for_is_its_declared_intent(tmp_path: Path) -> None:
    call = used("1", "Bash", {"command": "make", "description": 'Build "all" targets'})
    failures = FailedCallCollector(file=tmp_path / "s.jsonl")
    lines = [asked("build"), call, came("1", "no rule", is_error=True)]
    visit_studied_turns_of_file(write(tmp_path / "s.jsonl", lines), PATTERNS_ONLY, failures.add_turn)
    assert [cell.description for cell in failures.cells.values()] == [r"Build \"all\" targets"]


@pytest.mark.req("EL-08")
def test_failed_calls_go_to_the_post_mortem_each_kind_once(tmp_path: Path) -> None:
    lines = [
        line
        for turn in range(40)
        for line in failing(turn, error=f"{'Type' if turn % 2 else 'Value'}Error: no {turn} in '{turn}'", times=3)
    ]
    failures = FailedCallCollector(file=tmp_path / "s.jsonl")
    visit_studied_turns_of_file(write(tmp_path / "s.jsonl", lines), PATTERNS_ONLY, failures.add_turn)
    cells = list(failures.cells.values())
    assert [(cell.description, cell.code, cell.error) for cell in cells] == [
        ("", 'Bash(command="pytest -k 0")', "ValueError: no 0 in '0'"),
        ("", 'Bash(command="pytest -k 0")', "TypeError: no 1 in '1'"),
    ]
    assert len(cells) <= MAX_FAILURES_PER_FILE

    keeper = RecordingKeeper()
    teacher, _ = applier(keeper)
    found = PostMortemResult(lessons=("When a key is missing, list the keys before asking for one.",))
    teacher.store_post_mortem_lessons(failures, found)
    teacher.store_post_mortem_lessons(failures, found)
    assert keeper.learned == [
        LessonDraft(
            text=found.lessons[0],
            kind="lesson",
            scope="project",
            confidence=MEDIUM_CONFIDENCE,
            topic="tools",
            produced_by=LessonProducer.CEREBELLUM,
            source="consolidation",
            evidence=LessonProvenance(error_signature="TypeError: no <num> in <str>", trace="s.jsonl"),
            user="ann",
            project="/here",
        )
    ]
