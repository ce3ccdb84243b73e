from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import NotFound
from habitus.events import AgentEvent, EventKind
from habitus.learning import detectors
from habitus.learning.remedies.calls import pair_calls_with_results
from habitus.learning.remedies.findings import collect_remedy_findings
from habitus.learning.remedies.session_facts import FailuresAndCorrectionsCollector
from habitus.learning.remedies.wording import describe_remedy_lesson
from habitus.learning.transcripts import SkillUse, Transcript, TranscriptTurn, detect_format, read_transcripts
from habitus.learning.transcripts.formats import habitus
from habitus.learning.transcripts.model import UserStopKind
from tests.learning.hosts import WRITERS, Did

SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzCaa"


def write(path: Path, rows: Iterable[object], *, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def only(path: Path) -> Transcript:
    (transcript,) = read_transcripts(path)
    return transcript


def outcomes(turn: TranscriptTurn) -> list[tuple[object, object]]:
    return [
        (event.detail["name"], event.detail["success"]) for event in turn.events if event.kind is EventKind.TOOL_RESULT
    ]


# Claude Code


def asked(text: str, **more: object) -> dict[str, object]:
    return {"type": "user", "sessionId": "s", "message": {"role": "user", "content": text}, **more}


def used(call: str, tool: str, args: object, **more: object) -> dict[str, object]:
    block = {"type": "tool_use", "id": call, "name": tool, "input": args}
    return {"type": "assistant", "sessionId": "s", "message": {"id": f"m-{call}", "content": [block]}, **more}


def came(call: str, text: object, *, is_error: bool | None = None, **more: object) -> dict[str, object]:
    block = {"type": "tool_result", "tool_use_id": call, "content": text}
    block |= {} if is_error is None else {"is_error": is_error}
    return {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [block]}, **more}


@pytest.mark.req("EL-08")
def test_claude_code_session_becomes_turns_with_outcomes(tmp_path: Path) -> None:
    rows = [
        {"type": "summary", "summary": "fixing a test", "leafUuid": "x"},
        asked("fix the test"),
        used("1", "Bash", {"command": "pytest"}),
        came("1", "1 failed", is_error=True),
        used("2", "Bash", {"command": "pytest -x"}),
        came("2", [{"type": "text", "text": "1 failed again"}], is_error=True),
        asked("and now the docs"),
        used("3", "Read", {"file_path": "a.md"}),
        came("3", "# Docs"),
    ]
    transcript = only(write(tmp_path / "session.jsonl", rows))
    assert (transcript.source, transcript.id, transcript.unread) == ("claude_code", "session", {})
    assert [outcomes(turn) for turn in transcript.turns] == [[("Bash", False), ("Bash", False)], [("Read", True)]]
    assert [lesson.detector for lesson in detectors.run_detectors(transcript.turns[0].events)] == [
        "repeated_tool_error"
    ]
    assert [event.round_idx for event in transcript.turns[0].events] == [1, 1, 2, 2]


@pytest.mark.req("EL-08")
def test_claude_code_skill_calls_are_uses_in_both_spellings(tmp_path: Path) -> None:
    rows = [
        asked("make a pdf"),
        used("1", "Skill", {"skill": "pdf", "args": "x"}),
        came("1", "Launching skill: pdf"),
        used("2", "Skill", {"command": "docs:table"}),
        came("2", "no such skill", is_error=True),
        used("3", "Skill", {"skill": "chart"}),
    ]
    assert only(write(tmp_path / "s.jsonl", rows)).skill_uses == (
        SkillUse(skill="pdf", turn="1", round_idx=1, success=True),
        SkillUse(skill="docs:table", turn="1", round_idx=2, success=False),
        SkillUse(skill="chart", turn="1", round_idx=3, success=None),
    )


def test_claude_code_sidechains_are_turns_of_their_own(tmp_path: Path) -> None:
    rows = [
        asked("research it"),
        used("1", "Task", {"prompt": "look"}),
        asked("look", isSidechain=True, uuid="a"),
        asked("look too", isSidechain=True, uuid="b"),
        used("2", "Grep", {"pattern": "x"}, isSidechain=True, uuid="a2", parentUuid="a"),
        used("3", "Grep", {"pattern": "x"}, isSidechain=True, uuid="b2", parentUuid="b"),
        came("2", "one match", isSidechain=True, uuid="a3", parentUuid="a2"),
        came("3", "one match", isSidechain=True, uuid="b3", parentUuid="b2"),
        came("1", "found it"),
    ]
    transcript = only(write(tmp_path / "s.jsonl", rows))
    assert [(turn.is_sidechain, outcomes(turn)) for turn in transcript.turns] == [
        (False, [("Task", True)]),
        (True, [("Grep", True)]),
        (True, [("Grep", True)]),
    ]


@pytest.mark.req("CL-08")
@pytest.mark.parametrize(
    "told",
    [
        {"parent_thread_id": "parent"},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}}},
        {"source": {"subagent": "review"}},
        {"originator": "codex_exec"},
    ],
)
def test_a_rollout_that_no_person_asked_for_is_no_session(tmp_path: Path, told: dict[str, object]) -> None:
    WRITERS["codex"](tmp_path / "s", [Did(said="Look."), Did(command="ls")])
    (path,) = tmp_path.iterdir()
    first, *rest = path.read_text().splitlines()
    meta = json.loads(first)
    meta["payload"] |= told
    path.write_text("\n".join([json.dumps(meta), *rest]))
    assert [turn.is_sidechain for turn in only(path).turns] == [True]


@pytest.mark.req("CL-08")
@pytest.mark.parametrize("kind", ["main", "subagent"])
def test_a_subagent_of_gemini_is_no_session(tmp_path: Path, kind: str) -> None:
    WRITERS["gemini"](tmp_path / "s", [Did(said="Look."), Did(command="ls")])
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": kind}))
    assert [turn.is_sidechain for turn in only(path).turns] == [kind == "subagent"]


def test_claude_code_structured_results_tell_failures_that_blocks_do_not(tmp_path: Path) -> None:
    rows = [
        asked("go"),
        used("1", "Bash", {"command": "a"}),
        came("1", "out", toolUseResult={"stdout": "out", "interrupted": True}),
        used("2", "Bash", {"command": "b"}),
        came("2", "out", toolUseResult={"stdout": "", "stderr": "bad", "exitCode": 2}),
        used("3", "Bash", {"command": "c"}),
        came("3", "Error: this is the content of a log", toolUseResult={"stdout": "…", "exitCode": 0}),
        used("4", "Edit", {"file_path": "a"}),
        came("4", "declined", is_error=True, toolUseResult="User rejected tool use"),
    ]
    (turn,) = only(write(tmp_path / "s.jsonl", rows)).turns
    assert outcomes(turn) == [("Bash", None), ("Bash", False), ("Bash", True), ("Edit", None)]


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("The user doesn't want to proceed with this tool use. The tool use was rejected. the user said: no", {}),
        ("The user doesn’t want to take this action right now.", {}),
        ("whatever it says", {"toolUseResult": "User rejected tool use"}),
        ("whatever it says", {"toolUseResult": "Error: The user doesn't want to proceed with this tool use."}),
        ("whatever it says", {"toolDenialKind": "user-rejected"}),
        ("whatever it says", {"toolDenialKind": "interrupted"}),
        ("[Request interrupted by user for tool use]", {}),
        ("Exit code 137\n[Request interrupted by user for tool use]", {}),
        ("Exit code 137", {"toolUseResult": {"stdout": "", "interrupted": True}}),
        ("Permission to use Bash with command rm has been denied.", {}),
        ("Claude requested permissions to write to a.txt, but you haven't granted it yet.", {}),
        ("This command requires approval", {}),
        ("PreToolUse:Bash hook error: not on main", {}),
    ],
)
def test_what_a_person_a_rule_or_a_hook_refused_is_no_failure(
    tmp_path: Path, text: str, more: dict[str, object]
) -> None:
    rows = [asked("go")]
    for call in "123":
        rows += [used(call, "Bash", {"command": f"rm {call}"}), came(call, text, is_error=True, **more)]
    (turn,) = only(write(tmp_path / "s.jsonl", rows)).turns
    assert outcomes(turn) == [("Bash", None)] * 3
    assert detectors.run_detectors(turn.events) == []


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(
    "text",
    [
        "exec command rejected by user",
        "patch rejected by user",
        "user rejected MCP tool call",
        "user cancelled MCP tool call",
        "aborted by user after 3.1s",
        "command blocked by PreToolUse hook: no",
        "<turn_aborted>",
        "The user rejected permission to use this specific tool call.",
        "Tool execution aborted",
    ],
)
def test_what_a_person_refused_in_codex_or_opencode_is_no_failure_and_no_success(tmp_path: Path, text: str) -> None:
    rows: list[object] = [
        {"type": "function_call", "call_id": "1", "name": "shell", "arguments": '{"command": ["bash", "-lc", "rm a"]}'},
        {"type": "function_call_output", "call_id": "1", "output": text},
    ]
    (turn,) = only(write(tmp_path / "s.jsonl", rows)).turns
    assert outcomes(turn) == [("shell", None)]


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(
    ("command", "result", "is_fine"),
    [
        ("grep -rn needle src", "Exit code 1", True),
        ("cat a | LC_ALL=C grep x", "Exit code 1\n", True),
        ("rg x && echo found", "Error: Exit code 1", True),
        ("cd /a && test -f b", "Exit code 1", True),
        ("git grep x; diff a b", "Exit code 1\n1c1\n< a\n> b", True),
        ("/usr/bin/find . -name x", "Exit code 1", True),
        ("grep -rn needle src", "Exit code 2\ngrep: src: No such file or directory", False),
        ("grep -rn needle src", "Exit code 1\nsomething else was said", False),
        ("pytest -q", "Exit code 1", False),
        ("grep x a; make", "Exit code 1", False),
    ],
)
def test_a_search_that_finds_nothing_is_no_error(tmp_path: Path, command: str, result: str, is_fine: bool) -> None:
    rows = [asked("go"), used("1", "Bash", {"command": command}), came("1", result, is_error=True)]
    (turn,) = only(write(tmp_path / "s.jsonl", rows)).turns
    assert outcomes(turn) == [("Bash", is_fine)]
    code = 2 if "code 2" in result else 1
    output = result.partition("\n")[2]
    arguments = json.dumps({"command": ["bash", "-lc", command]})
    for said in (
        json.dumps({"output": output, "metadata": {"exit_code": code}}),
        f"Exit code: {code}\nWall time: 0.1 seconds\nOutput:\n{output}",
        f"Chunk ID: a1\nProcess exited with code {code}\nOriginal token count: 0\nOutput:\n{output}",
    ):
        codex: list[object] = [
            {"type": "function_call", "call_id": "1", "name": "shell", "arguments": arguments},
            {"type": "function_call_output", "call_id": "1", "output": said},
        ]
        (turn,) = only(write(tmp_path / "codex.jsonl", codex)).turns
        assert outcomes(turn) == [("shell", is_fine)]
    row = {"trace": "a", "turn": 0, "tool": "bash", "args": {"command": command}, "success": False, "error": result}
    (turn,) = only(write(tmp_path / "rows.jsonl", [row])).turns
    assert outcomes(turn) == [("bash", is_fine)]


@pytest.mark.req("LA-03")
def test_a_codex_command_that_was_waited_for_ends_as_its_last_wait_says(tmp_path: Path) -> None:
    def call(id: str, name: str, **args: object) -> object:
        item = {"type": "function_call", "name": name, "arguments": json.dumps(args), "call_id": id}
        return {"type": "response_item", "payload": item}

    def returned(id: str, ending: str, output: str) -> object:
        said = f"Chunk ID: 1f\nWall time: 1.0 seconds\n{ending}\nOutput:\n{output}"
        return {"type": "response_item", "payload": {"type": "function_call_output", "call_id": id, "output": said}}

    running = "Process running with session ID 7"
    rows = [
        call("1", "exec_command", cmd="conda env create"),
        returned("1", running, "Collecting\n"),
        call("2", "write_stdin", session_id=7, chars=""),
        returned("2", running, "Solving\n"),
        call("3", "write_stdin", session_id=7, chars=""),
        returned("3", "Process exited with code 1", "error: nothing provides x\n"),
    ]
    (turn,) = only(write(tmp_path / "codex.jsonl", rows)).turns
    told = [(each.name, each.success, each.error) for each in pair_calls_with_results(turn.events)]
    failed = "Collecting\nSolving\nerror: nothing provides x"
    assert told == [("exec_command", True, ""), ("exec_command", False, failed)]


@pytest.mark.req("EL-08")
@pytest.mark.parametrize(
    ("said", "success", "error"),
    [
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nExit code: 1", True, ""),
        ("Exit code: 101\nWall time: 1 seconds\nOutput:\nno such crate", False, "no such crate"),
        ("Chunk ID: 1\nProcess exited with code 127\nOutput:\n", False, "exit code 127"),
        ("Process exited with code 0", True, ""),
        ("Process running with session ID 4\nOutput:\n", True, ""),
        ("a log\nProcess exited with code 1\nand so on", True, ""),
        ("\n" * 20 + "line\n" * 20 + "Exit code: 1\nOutput:\n", True, ""),
        ('{"output": "aborted", "metadata": {"exit_code": -1}}', False, "aborted"),
    ],
)
def test_codex_tells_a_failure_by_its_exit_code(tmp_path: Path, said: str, success: bool, error: str) -> None:
    rows: list[object] = [
        {"type": "function_call", "call_id": "1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": said},
    ]
    (turn,) = only(write(tmp_path / "s.jsonl", rows)).turns
    assert [(event.detail["success"], event.detail["error"]) for event in turn.events[1:]] == [(success, error)]


@pytest.mark.req("EL-08")
def test_a_refusal_in_rows_is_no_failure(tmp_path: Path) -> None:
    row = {"trace": "a", "turn": 0, "tool": "bash", "args": {}, "success": False, "error": "User rejected tool use"}
    (turn,) = only(write(tmp_path / "rows.jsonl", [row])).turns
    assert outcomes(turn) == [("bash", None)]


def test_claude_code_lines_of_a_resumed_session_count_once(tmp_path: Path) -> None:
    rows = [asked("go", uuid="1"), used("1", "Bash", {"command": "a"}, uuid="2"), came("1", "out", uuid="3")]
    assert only(write(tmp_path / "s.jsonl", rows + rows)).event_count == 2


@pytest.mark.req("EL-08")
def test_cut_unknown_and_odd_lines_are_counted_and_never_raised(tmp_path: Path) -> None:
    rows: list[object] = [
        asked("go"),
        {"type": "hologram", "sessionId": "s", "version": "99.0"},
        ["not", "an", "object"],
        {"type": "assistant", "sessionId": "s", "message": None},
        used("1", "Bash", {"command": "a"}),
        came("9", "a result without its call"),
        came("1", "out"),
    ]
    transcript = only(write(tmp_path / "s.jsonl", rows, tail="{broken}\n" + '{"type": "assistant", "mess'))
    assert transcript.event_count == 2
    assert transcript.unread == {
        "unknown line": 1,
        "message without content": 1,
        "result without a call": 1,
        "not an object": 1,
        "not JSON": 1,
        "cut line": 1,
    }


# OpenAI


CHAT: list[dict[str, object]] = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Error: no such city"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c2", "function": {"name": "weather", "arguments": '{"city": "Berne"}'}}],
    },
    {"role": "tool", "tool_call_id": "c2", "content": '{"status": "error", "message": "no such city"}'},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "function_call": {"name": "note", "arguments": "{}"}},
    {"role": "function", "name": "note", "content": "The log says: Error: all is well"},
]


@pytest.mark.req("EL-08")
@pytest.mark.parametrize("shape", ["lines", "array", "document", "pretty document", "conversation a line"])
def test_openai_logs_of_every_shape_give_the_same_turns(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "log.json"
    match shape:
        case "lines":
            write(path, CHAT)
        case "array":
            path.write_text(json.dumps(CHAT, indent=1))
        case "document":
            path.write_text(json.dumps({"messages": CHAT}))
        case "pretty document":
            path.write_text(json.dumps({"messages": CHAT}, indent=2))
        case _:
            write(path, [{"messages": CHAT}])
    transcript = only(path)
    assert (transcript.source, transcript.is_weak, transcript.unread) == ("openai", True, {})
    assert [outcomes(turn) for turn in transcript.turns] == [[("weather", False), ("weather", False)], [("note", True)]]
    assert [lesson.detector for lesson in detectors.run_detectors(transcript.turns[0].events)] == [
        "repeated_tool_error"
    ]


def test_openai_responses_items_and_exit_codes(tmp_path: Path) -> None:
    rows = [
        {"type": "session_meta", "payload": {"type": "session_meta"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}},
        {
            "type": "response_item",
            "payload": {"type": "function_call", "call_id": "1", "name": "shell", "arguments": "{}"},
        },
        {
            "type": "response_item",
            "payload": {
                "type": "function_call_output",
                "call_id": "1",
                "output": json.dumps({"output": "no such file", "metadata": {"exit_code": 2}}),
            },
        },
    ]
    (turn,) = only(write(tmp_path / "rollout.jsonl", rows)).turns
    assert outcomes(turn) == [("shell", False)]
    assert turn.events[1].detail["error"] == "no such file"


def test_a_long_array_is_read_item_by_item_and_its_cut_end_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    messages = [*CHAT, {"role": "tool", "tool_call_id": "c1", "content": "x" * 3_000_000}] * 2
    path.write_text(json.dumps(messages)[:-40])
    transcript = only(path)
    assert transcript.unread == {"cut line": 1}
    assert transcript.event_count == 13


# rows and our own


@pytest.mark.req("EL-08")
def test_rows_give_one_turn_per_trace(tmp_path: Path) -> None:
    rows = [
        {
            "trace": trace,
            "step": n,
            "turn": n,
            "tool": "t",
            "args": '{"n": 1}',
            "success": n > 1,
            "error": "no",
            "result_len": 3,
        }
        for trace in ("a", "b")
        for n in range(3)
    ]
    first, second = read_transcripts(write(tmp_path / "rows.jsonl", rows))
    assert (first.id, second.id, first.source) == ("a", "b", "rows")
    assert outcomes(first.turns[0]) == [("t", False), ("t", False), ("t", True)]
    assert [event.round_idx for event in first.turns[0].events] == [0, 0, 1, 1, 2, 2]


texts = st.text("abc xyz", max_size=8)
turns = st.builds(
    TranscriptTurn,
    id=st.integers(1, 99).map(str),
    events=st.lists(
        st.builds(
            AgentEvent,
            kind=st.sampled_from(EventKind),
            detail=st.dictionaries(st.sampled_from(["name", "error"]), texts)
            | st.just({"name": "a", "success": False}),
            severity=st.integers(0, 9),
            round_idx=st.integers(0, 9),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
)


@pytest.mark.req("EL-08")
@given(st.lists(turns, min_size=1, max_size=4, unique_by=lambda turn: turn.id).map(tuple))
def test_our_own_export_reads_back_the_same(turns: tuple[TranscriptTurn, ...]) -> None:
    transcript = Transcript(id="s1", source="habitus", turns=turns)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export.jsonl"
        path.write_text("".join(habitus.render_transcript_as_lines(transcript)))
        assert list(read_transcripts(path)) == [transcript]


def test_own_events_of_unknown_kinds_are_counted(tmp_path: Path) -> None:
    good = {"session": "s", "turn": "1", "kind": "cap_exhausted", "severity": 9, "detail": {}, "round": 3}
    path = write(
        tmp_path / "e.jsonl", [good, {**good, "kind": "sneeze"}, {**good, "detail": 5}, {**good, "round": "x"}]
    )
    transcript = only(path)
    assert (transcript.event_count, transcript.unread) == (1, {"unknown row": 3})


# all of them


@pytest.mark.req("EL-08", "SB-14")
def test_no_planted_secret_survives_any_reader(tmp_path: Path) -> None:
    error = f"denied for {SECRET}"
    args = {"query": f"who owns the key {SECRET} and why", "command": f"curl -H 'token: {SECRET}'", "pad": "x" * 300}
    files = [
        write(tmp_path / "a.jsonl", [asked(f"use {SECRET}"), used("1", "Bash", args), came("1", error, is_error=True)]),
        write(
            tmp_path / "b.jsonl",
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "function": {"name": "t", "arguments": json.dumps(args)}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": f"Error: {error}"},
            ],
        ),
        write(
            tmp_path / "c.jsonl",
            [{"trace": "a", "tool": "t", "args": json.dumps(args), "success": False, "error": error}],
        ),
        write(
            tmp_path / "d.jsonl",
            [
                {
                    "session": "s",
                    "turn": "1",
                    "kind": "tool_result",
                    "severity": 5,
                    "detail": {"error": error},
                    "round": 1,
                }
            ],
        ),
    ]
    for path in files:
        transcript = only(path)
        assert transcript.event_count
        assert SECRET not in repr(transcript)
        assert SECRET.lower() not in repr(transcript).lower()
        assert "[redacted:github]" in repr(transcript)


def test_a_secret_at_the_cut_of_a_summary_leaves_no_half(tmp_path: Path) -> None:
    for pad in range(120, 220, 7):
        path = write(tmp_path / "a.jsonl", [asked("go"), used("1", "Bash", {"command": "x" * pad + f" {SECRET}"})])
        assert "ghp_" not in repr(only(path))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([asked("hi")], "claude_code"),
        ([{"type": "summary", "summary": "x", "leafUuid": "y"}, asked("hi")], "claude_code"),
        ([{"role": "user", "content": "hi"}], "openai"),
        ([{"messages": []}], "openai"),
        ([{"trace": "a", "tool": "t"}], "rows"),
        ([{"session": "a", "kind": "tool_call", "detail": {}}], "habitus"),
        ([{"colour": "blue"}], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_format_is_found_from_the_first_lines(tmp_path: Path, rows: list[object], expected: str) -> None:
    assert detect_format(write(tmp_path / "f.jsonl", rows)) == expected


def test_a_file_of_no_known_format_is_told_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", [{"colour": "blue"}, {"colour": "red"}], tail="\x00\x01")
    assert only(path) == Transcript(id="f", source="unknown", unread={"unknown line": 2, "cut line": 1})


def test_a_missing_file_is_an_error_for_the_person(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No transcript at"):
        list(read_transcripts(tmp_path / "nothing.jsonl"))


@given(
    st.binary(max_size=300) | st.text(st.sampled_from('{}[]":,\n typerolemessagskid1'), max_size=200).map(str.encode)
)
def test_no_bytes_make_a_reader_raise(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f.jsonl"
        path.write_bytes(content)
        for source in ("", "claude_code", "openai", "rows", "habitus"):
            list(read_transcripts(path, source=source))


words = st.sampled_from(
    ["user", "assistant", "tool", "tool_use", "tool_result", "result", "function_call", "Skill", "x"]
)
fields = st.sampled_from(
    [
        "type",
        "role",
        "message",
        "content",
        "tool_calls",
        "function",
        "function_call",
        "id",
        "name",
        "input",
        "arguments",
    ]
)
more_fields = st.sampled_from(
    ["uuid", "isSidechain", "tool_use_id", "toolUseResult", "messages", "payload", "request", "response", "choices"]
)
trees = st.recursive(
    words | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields | more_fields, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(fields | more_fields, trees, min_size=1, max_size=6), max_size=6))
def test_no_mixed_up_message_makes_a_reader_raise(rows: list[dict[str, object]]) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "f.jsonl", rows)
        for source in ("", "claude_code", "openai"):
            for transcript in read_transcripts(path, source=source):
                detectors.run_detectors([event for turn in transcript.turns for event in turn.events])


@pytest.mark.req("EL-08", "EL-10")
@pytest.mark.parametrize("host", WRITERS)
def test_a_session_shows_the_same_whoever_wrote_it_down(tmp_path: Path, host: str) -> None:
    WRITERS[host](
        tmp_path / "s",
        [
            Did(said="run the tests"),
            Did(command="pytest -q", code=127, said="bash: line 1: pytest: command not found"),
            Did(command="uv run pytest -q", said="3 passed"),
            Did(command="git push --force", code=None),
            Did(said="No, don't ever force-push to main."),
            Did(command="git push", said="ok"),
        ],
    )
    beside = {"message", "part", "workspace.json", ".project_root"}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not beside & {*path.parts}]
    (transcript,) = [found for path in files for found in read_transcripts(path)]
    assert (transcript.source, transcript.project, transcript.unread) == (host.split(",")[0], "/srv/shop", {})
    reader = FailuresAndCorrectionsCollector(session=transcript.id, project=transcript.project)
    for turn in transcript.turns:
        reader.add_turn(turn)
    told = collect_remedy_findings([reader.build_facts()])
    assert [describe_remedy_lesson(held) for held in told.candidates] == [
        "In this project run `uv run pytest`; `pytest` alone is not found."
    ]
    assert [(rule.correction.text, rule.correction.after) for rule in told.rules] == [
        ("Don't ever force-push to main.", UserStopKind.REFUSED)
    ]
    assert (told.coverage.calls, told.coverage.failures) == (4, 1)


@pytest.mark.req("EL-08")
def test_cursor_tells_requests_and_corrections_and_no_calls(tmp_path: Path) -> None:
    def row(role: str, *parts: object) -> dict[str, object]:
        return {"role": role, "message": {"content": list(parts)}}

    use = {"type": "tool_use", "name": "Shell", "input": {"command": "git push --force"}}
    rows = [
        row("user", {"type": "text", "text": "<now>1</now><user_query>push it</user_query>"}),
        row("assistant", use),
        {"type": "turn_ended", "status": "aborted"},
        row("user", {"type": "text", "text": "<user_query>Never force-push.</user_query>"}),
    ]
    transcript = only(write(tmp_path / "1.jsonl", rows))
    assert (transcript.source, transcript.unread, transcript.event_count) == ("cursor", {}, 0)
    said = [(said.text, said.after) for turn in transcript.turns for said in turn.utterances]
    assert said == [("push it", None), ("Never force-push.", "interrupted")]


@pytest.mark.req("EL-08")
def test_a_database_of_another_make_is_said(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "opencode.db")
    database.execute("CREATE TABLE other (id TEXT)")
    database.commit()
    database.close()
    (transcript,) = read_transcripts(tmp_path / "opencode.db")
    assert (transcript.turns, transcript.unread) == ((), {"database: no such table: session": 1})
