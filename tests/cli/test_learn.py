"""`habitus learn` as a person and a program use it."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.conversations import models
from habitus.cli import main
from habitus.learning.transcripts import FORMATS
from habitus.llm.model import AssistantMessage, CompletionRequest, ProviderError, SessionModels
from habitus.llm.scripted import ScriptedModel, says
from habitus.skills.model import Stage
from tests.cli.conftest import Direct
from tests.conftest import Cli
from tests.learning.hosts import Did, claude_code
from tests.learning.logs import Line, asked, came, clean, failing, used, write

SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzCaa"
REPLAYS = Path(__file__).parent.parent / "replays"
LESSON = "When a module is missing, install the project itself before running its tests."


@pytest.fixture
def folder(run_cli: Cli) -> Path:
    """As in ~/.claude/projects: a folder for each project."""
    root = run_cli.user_home / ".claude" / "projects"
    write(root / "shop" / "one.jsonl", [*clean(1), *failing(2, error=f"denied {SECRET}")], tail='{"type": "assi')
    write(root / "site" / "two.jsonl", [*failing(1), {"type": "from-the-future", "sessionId": "s"}])
    write(root / "site" / "fine.jsonl", clean(1))
    return root


@pytest.mark.req("EL-08")
def test_it_says_what_fired_and_where_with_the_evidence(direct: Direct, folder: Path) -> None:
    said = direct.ok("learn", "~/.claude/projects", env={"HOME": str(folder.parents[1])})
    one = folder / "shop" / "one.jsonl"
    assert said.splitlines()[1:6] == [
        "repeated_tool_error: 2 times",
        "  When a tool fails twice in a row, stop calling it. Read the error, check what the tool expects, change what "
        "the error names, or take another way.",
        f"  {one}, turn 2, rounds 1, 2",
        "    round 1: Bash failed: denied [redacted:github]",
        "    round 2: Bash failed: denied [redacted:github]",
    ]
    assert said.splitlines()[9:] == [
        "Read 3 files: 4 turns, 12 events.",
        f"Not read in {one}: 1 × cut line.",
        f"Not read in {folder / 'site' / 'two.jsonl'}: 1 × unknown line.",
        "Secrets removed: 2 × github.",
        "This run: nothing was sent or spent, nothing was written; --apply saves the lessons.",
    ]


@pytest.mark.req("EL-08", "CL-08")
def test_transcripts_that_were_moved_or_packed_are_found(direct: Direct, folder: Path) -> None:
    moved = folder.parent.rename(folder.parents[1] / "elsewhere")
    sessions = folder.parents[1] / ".codex" / "sessions" / "2026"
    sessions.mkdir(parents=True)
    (sessions / "rollout-1.jsonl.zst").write_bytes(b"(\xb5/\xfd of which the rest is lost")
    env = {"HOME": str(folder.parents[1]), "CLAUDE_CONFIG_DIR": str(moved)}
    said = direct.ok("learn", env=env)
    assert "Read 4 files: 4 turns, 12 events." in said
    assert f"Not read in {sessions / 'rollout-1.jsonl.zst'}: 1 × file: not a whole .zst file" in said
    assert "Claude Code" in direct.ok("check", env=env)


@pytest.mark.req("EL-08")
def test_a_program_gets_the_same_as_json(direct: Direct, folder: Path) -> None:
    told = direct.json("learn", str(folder / "*" / "o*.jsonl"))
    (fired,) = told.pop("detectors")
    assert told.pop("remedies")["coverage"]["failures"] == 2
    (firing,) = fired.pop("firings")
    assert (fired["detector"], fired["fired_count"]) == ("repeated_tool_error", 1)
    assert firing == {
        "detector": "repeated_tool_error",
        "file": str(folder / "shop" / "one.jsonl"),
        "transcript": "one",
        "turn": "2",
        "rounds": [1, 2],
        "evidence": [
            "round 1: Bash failed: denied [redacted:github]",
            "round 2: Bash failed: denied [redacted:github]",
        ],
        "is_weak": False,
    }
    assert told == {
        "files": [
            {
                "path": str(folder / "shop" / "one.jsonl"),
                "format": "claude_code",
                "transcripts": 1,
                "turns": 2,
                "events": 6,
                "unread": {"cut line": 1},
            }
        ],
        "skills": {},
        "procedures": [],
        "redacted": {"github": 2},
        "post_mortems": [],
        "stopped": "",
        "applied": None,
        "spent": 0,
        "unchanged": 0,
        "own_sessions": 0,
    }


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere.jsonl",), "'nowhere.jsonl' is no file. Looked for files that end in .jsonl, .json, .ndjson, .zst."),
        (("empty",), "'empty' holds no transcripts. Looked for files that end in .jsonl, .json, .ndjson, .zst."),
        (("/dev/null",), "'/dev/null' is not a regular file. Give a file, a folder or a pattern."),
    ],
)
def test_a_wrong_place_is_said_with_its_hint(direct: Direct, args: tuple[str, ...], said: str) -> None:
    (direct.cli.cwd / "empty").mkdir()
    ran = direct("learn", *args)
    assert (ran.code, ran.out, ran.err) == (1, "", f"habitus: {said}\n")


@pytest.mark.req("EL-08")
@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500, b"{" * 5000, b"[" * 5000, b'"just text"\n', b"no json\n"])
def test_a_file_that_is_no_transcript_is_an_error_alone_and_counted_among_others(
    direct: Direct, folder: Path, content: bytes
) -> None:
    path = direct.cli.cwd / "odd.jsonl"
    path.write_bytes(content)
    ran = direct("learn", str(path))
    known = f"Known formats: {', '.join(FORMATS)}."
    assert (ran.code, ran.out, ran.err) == (1, "", f"habitus: '{path}' is no transcript that can be read. {known}\n")
    (folder / "odd.jsonl").write_bytes(content)
    told = direct.json("learn", str(folder))
    assert [file["turns"] for file in told["files"] if file["path"].endswith("odd.jsonl")] == [0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_counted(direct: Direct) -> None:
    path = write(direct.cli.cwd / "closed.jsonl", failing(1))
    path.chmod(0)
    assert direct.json("learn", str(path))["files"][0]["unread"] == {"file: Permission denied": 1}


@pytest.mark.req("EL-08")
def test_apply_keeps_it_once_and_counts_the_skills_that_were_used(direct: Direct, folder: Path) -> None:
    skills: list[Line] = [asked("use a skill"), used("k", "Skill", {"skill": "any:data-summary"})]
    write(folder / "site" / "skill.jsonl", [*skills, used("l", "Skill", {"skill": "not-ours"})])
    said = direct.ok("learn", str(folder), "--apply")
    *_, kept, undo, account = said.splitlines()
    assert kept == "Lessons: 2 stored, 1 reinforced. Skill uses counted: 1."
    assert undo.startswith("Undo: habitus undo ")
    assert account == "This run: nothing was sent or spent, 3 lessons written."
    again = direct.ok("learn", str(folder), "--apply")
    assert again.splitlines()[-3:] == [
        "Lessons: nothing new.",
        "Already learned from: 3 turns.",
        "This run: nothing was sent or spent, nothing was written.",
    ]
    lessons = direct.json("lessons", "list")["lessons"]
    assert {each["evidence"]["detector"] for each in lessons} == {"repeated_tool_error", "orphaned_tool_call"}
    with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
        counts = habitus.skills.read_counters("data-summary")[Stage.STEPS]
    assert (counts.recommended, counts.used, counts.succeeded, counts.failed) == (1, 1, 0, 0)


def count_times_learned(direct: Direct, text: str) -> int:
    with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
        (lesson,) = [one for one in habitus.memory.list_lessons() if one.text == text]
        return lesson.counters.frequency


@pytest.mark.req("EL-08", "ME-01")
def test_what_is_applied_stands_among_the_lessons_with_its_evidence(direct: Direct, folder: Path) -> None:
    direct.ok("learn", str(folder), "--apply")
    direct.ok("learn", str(folder), "--apply")
    (lesson,) = direct.json("lessons", "list")["lessons"]
    assert lesson["text"].startswith("When a tool fails twice in a row, stop calling it.")
    assert (lesson["kind"], lesson["scope"], lesson["trust"]) == ("when", "global", "automatic")
    assert lesson["evidence"]["detector"] == "repeated_tool_error"
    assert lesson["evidence"]["trace"] == "one.jsonl turn 2"
    assert count_times_learned(direct, lesson["text"]) == 2
    assert SECRET not in json.dumps(lesson)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """What `--model` opens: answers with one lesson, or as a test changes it."""

    def answer(ask: CompletionRequest) -> AssistantMessage:
        return says(json.dumps({"lessons": [LESSON]}))

    scripted = ScriptedModel(answer, name="scripted:cheap")

    def named(habitus: Habitus, name: str) -> SessionModels:
        return SessionModels(name, open_model=lambda _: scripted)

    monkeypatch.setattr(models, "open_session_models_for_name", named)
    return scripted


@pytest.mark.req("EL-08")
def test_without_a_terminal_nothing_is_sent_unless_yes_is_said(
    direct: Direct, folder: Path, model: ScriptedModel
) -> None:
    ran = direct("learn", str(folder), "--model", "scripted:cheap", "--apply")
    assert ran.code == 1
    assert ran.err.startswith("habitus: 2 failed calls of 2 files, about ")
    assert ran.err.endswith(" tokens, would be sent to scripted:cheap. Nothing was sent or saved. Add --yes to send.\n")
    assert (model.asked, direct.json("lessons", "list")["lessons"]) == ([], [])


@pytest.mark.req("EL-08", "SB-14")
def test_with_yes_the_model_sees_failed_calls_without_secrets_and_its_lessons_are_kept_once(
    direct: Direct, folder: Path, model: ScriptedModel
) -> None:
    said = direct.ok("learn", str(folder), "--model", "scripted:cheap", "--yes", "--apply")
    assert "2 failed calls of 2 files, about " in said
    assert f"one.jsonl: {LESSON}" in said
    assert len(model.asked) == 2
    lessons = direct.json("lessons", "list")["lessons"]
    assert SECRET not in repr(model.asked) + said + repr(lessons)
    assert [each["topic"] for each in lessons if each["text"] == LESSON] == ["tools"]
    assert count_times_learned(direct, LESSON) == 2
    again = direct.ok("learn", str(folder), "--model", "scripted:cheap", "--yes", "--apply")
    assert "No failed calls to send to the model." in again
    assert len(model.asked) == 2
    assert "in 2 calls" in direct.ok("doctor")


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(("answer", "sent"), [("n", 0), ("y", 2)])
def test_a_person_is_asked_first(
    direct: Direct, folder: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, answer: str, sent: int
) -> None:
    for name, value in direct.cli.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["habitus", "learn", str(folder), "--model", "scripted:cheap"])
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(f"{answer}\n".encode())))
    with pytest.raises(SystemExit) as stopped:
        main.run()
    assert not stopped.value.code
    said = direct.capture.readouterr().out
    assert "tokens, would be sent to scripted:cheap, without secrets. Send? [y/N]" in said
    assert ("Nothing was sent." in said, len(model.asked)) == (sent == 0, sent)


@pytest.mark.req("EL-08", "AG-02")
def test_the_cap_holds_here_too_and_is_said(direct: Direct, folder: Path, model: ScriptedModel) -> None:
    told = direct.json("learn", str(folder), "--model", "x:y", "--yes", env={"HABITUS_LEARNING_TOKENS": "50"})
    assert told["stopped"].startswith("Learning may spend 50 tokens a day")
    assert model.asked == []


@pytest.mark.req("EL-08")
def test_a_provider_that_is_down_is_said_for_each_file(
    direct: Direct, folder: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_steps", iter([ProviderError("down"), says('{"lessons": []}')]))
    told = direct.json("learn", str(folder), "--model", "x:y", "--yes")
    assert [bool(each["error"]) for each in told["post_mortems"]] == [True, False]


@pytest.mark.req("EL-08", "ME-03")
@pytest.mark.parametrize("how", ["memory", "pause"])
def test_off_and_paused_ask_no_model(direct: Direct, folder: Path, model: ScriptedModel, how: str) -> None:
    if how == "pause":
        direct.ok("learn", "pause")
    ran = direct(
        "learn", str(folder), "--model", "x:y", "--yes", env={"HABITUS_MEMORY": "off"} if how == "memory" else {}
    )
    assert (ran.code, model.asked) == (1, [])
    assert ("Memory is off" if how == "memory" else "paused since") in ran.err


@pytest.mark.req("EL-08", "SB-14")
def test_a_secret_in_a_transcript_is_found_nowhere_afterwards(direct: Direct, folder: Path) -> None:
    said = direct("learn", str(folder), "--apply", "--json")
    assert SECRET not in said.out + said.err
    kept = [path for path in direct.home.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


_PEAK = """
import resource, sys
from habitus.cli import main
sys.argv = ["habitus", "learn", "--json", sys.argv[1]]
try:
    main.run()
finally:
    sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


def _peak(run_cli: Cli, path: Path) -> tuple[Any, float]:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)],
        env=run_cli.environ(),
        cwd=run_cli.cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    unit = 1024 if sys.platform == "linux" else 1
    return json.loads(done.stdout), int(done.stderr) * unit / 1e6


@pytest.mark.full
@pytest.mark.req("EL-08")
def test_a_large_transcript_is_read_in_bounded_memory(run_cli: Cli, tmp_path: Path) -> None:
    small = write(tmp_path / "small.jsonl", clean(1))
    turns = 6_500
    lines = (line for turn in range(turns) for line in (failing(turn) if turn % 100 == 0 else clean(turn, size=8_000)))
    large = write(tmp_path / "large.jsonl", lines)
    assert large.stat().st_size > 50e6
    _, before = _peak(run_cli, small)
    told, peak = _peak(run_cli, large)
    assert told["files"][0]["turns"] == turns
    assert told["detectors"][0]["fired_count"] == turns // 100
    assert peak - before < 40


@pytest.mark.req("EL-09", "EL-03")
def test_every_recording_gives_its_lessons_when_it_is_learned_from(direct: Direct) -> None:
    """The replay folder through the product: each recording as a transcript of our own."""
    recordings = {path.stem: json.loads(path.read_text()) for path in sorted(REPLAYS.glob("*.json"))}
    for name, recording in recordings.items():
        write(
            direct.cli.cwd / "replays" / f"{name}.jsonl",
            [
                {"session": name, "turn": "1", "round": row["round_idx"]}
                | {key: row[key] for key in ("kind", "severity", "detail")}
                for row in recording["events"]
            ],
        )
    told = direct.json("learn", "replays", "--apply")
    fired = [(firing["transcript"], each["detector"]) for each in told["detectors"] for firing in each["firings"]]
    expected = {name: recording["expected"] for name, recording in recordings.items()}
    assert sorted(fired) == sorted((name, one["detector"]) for name in expected for one in expected[name])
    lessons = {each["text"]: each["kind"] for each in direct.json("lessons", "list")["lessons"]}
    assert lessons == {one["rule"]: one["kind"] for given in expected.values() for one in given}


@pytest.mark.req("EL-08")
def test_refused_calls_and_searches_that_find_nothing_teach_nothing(direct: Direct) -> None:
    refused = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    lines = [asked("clean up")]
    results = {"rm a": refused, "rm b": refused, "grep x a": "Exit code 1", "grep y a": "Exit code 1"}
    for number, (command, result) in enumerate([*results.items()] * 2):
        call = str(number)
        lines += [used(call, "Bash", {"command": f"{command}{number}"}), came(call, result, is_error=True)]
    write(direct.cli.cwd / "refused.jsonl", lines)
    told = direct.json("learn", "refused.jsonl", "--apply")
    assert (told["detectors"], told["files"][0]["events"], told["applied"]["lessons"]) == ([], 16, {})


@pytest.mark.req("EL-08")
def test_a_lesson_that_cant_be_stored_is_named_and_the_others_are_kept(direct: Direct) -> None:
    lines = failing(1, times=3)
    for number in range(4):  # the same call again and again
        lines += [used(f"same-{number}", "Read", {"path": "a.md"}), came(f"same-{number}", "the same")]
    write(direct.cli.cwd / "s.jsonl", lines)
    found = direct.json("learn", "s.jsonl")["detectors"]
    fired = [each for each in found if each["detector"] != "repeated_tool_error"]  # a more specific one speaks for it
    assert len(found) > len(fired) > 1
    lost = fired[-1]["rule"]
    with sqlite3.connect(direct.cli.home / "habitus.db") as database:
        says_no = "BEGIN SELECT RAISE(ABORT, 'the disk says no'); END"
        database.execute(
            f"CREATE TRIGGER no BEFORE INSERT ON engrams WHEN NEW.text = '{lost.replace(chr(39), '')}' {says_no}"
        )
    told = direct.json("learn", "s.jsonl", "--apply")["applied"]
    assert told["lessons"] == {"stored": len(fired) - 1, "not stored": 1}
    (reason,) = told["reasons"]
    assert reason.startswith(f"'{lost}' could not be stored (")
    assert "the disk says no" in reason
    kept = [lesson["text"] for lesson in direct.json("lessons", "list")["lessons"]]
    assert sorted(kept) == sorted(each["rule"] for each in fired[:-1])


@pytest.mark.req("EL-08")
def test_commands_that_fail_in_codex_are_failures(direct: Direct) -> None:
    rows: list[Line] = [{"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}}]
    for number in range(3):
        call = {"type": "function_call", "call_id": str(number), "name": "shell", "arguments": '{"cmd": "make"}'}
        said = f"Chunk ID: {number}\nProcess exited with code 2\nOutput:\nmake: no rule"
        result = {"type": "function_call_output", "call_id": str(number), "output": said}
        rows += [{"type": "response_item", "payload": call}, {"type": "response_item", "payload": result}]
    write(direct.cli.cwd / "rollout-1.jsonl", rows)
    fired = {each["detector"]: each for each in direct.json("learn", "rollout-1.jsonl")["detectors"]}
    assert fired["repeated_tool_error"]["firings"][0]["evidence"][-1].endswith("shell failed: make: no rule")


@pytest.mark.req("EL-08", "LA-03")
def test_what_was_done_the_same_way_in_three_sessions_is_proposed_as_a_skill(direct: Direct) -> None:
    for version in ("1.4.0", "1.5.0", "2.0.0"):
        claude_code(
            direct.cli.cwd / f"v{version[0]}{version[2]}",
            [
                Did(said=f"release {version}"),
                Did(command=f"git tag v{version}", said="ok"),
                Did(command=f"git push origin v{version}", said="ok"),
                Did(command=f"make announce VERSION={version}", said="ok"),
            ],
        )
    said = direct.ok("learn", ".")
    assert "Recurring procedures:" in said
    assert "done in 3 turns of 3 sessions" in said
    assert direct.json("review", "list")["proposals"] == []
    (proposed,) = json.loads(direct("learn", ".", "--apply", "--json").out)["procedures"]
    (waiting,) = direct.json("review", "list")["proposals"]
    assert waiting["id"] == proposed["proposal"]
    assert "git push origin v${version}" in direct.ok("review", "show", str(waiting["id"]))
    assert direct.json("learn", ".", "--apply")["procedures"] == []
