"""What events and answers look like, without a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from habitus.agent.stream import (
    NoticeEvent,
    NudgeEvent,
    ReplyDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnResult,
)
from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.llm.model import TokenUsage
from habitus.repl import display, lines
from habitus.repl.display import TurnDisplay
from habitus.repl.lines import event_to_json
from habitus.text import format_seconds, shorten_to_line, strip_control_characters

pytestmark = pytest.mark.req("AG-07")


def _finished(outcome: Outcome = OK, *, tool: str = "scratchpad", content: str = "") -> ToolFinished:
    return ToolFinished(call="1", tool=tool, outcome=outcome, content=content, seconds=2.34)


def _done(outcome: Outcome = OK, *, cost: float | None = None, waiting: int = 0) -> TurnResult:
    usage = TokenUsage(input_tokens=1234, output_tokens=56, cost=cost)
    return TurnResult(turn="t", reply="r", outcome=outcome, usage=usage, rounds=1, seconds=3.2, pending=waiting)


def test_a_long_notice_goes_on_below_its_beginning() -> None:
    console = Console(file=io.StringIO(), width=30)
    TurnDisplay(console=console).show_event(NoticeEvent(text="The database is away; this turn made do without."))
    shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.rstrip() for line in shown if line] == ["  ! The database is away; this", "  turn made do without."]


@pytest.mark.req("AG-11")
def test_what_a_cell_made_is_offered_to_open() -> None:
    console = Console(file=io.StringIO(), width=80)
    display = TurnDisplay(console=console)
    display.show_event(ToolStarted(call="1", tool="scratchpad", arguments="{}"))
    display.show_event(replace(_finished(), made=("/home/ann/.habitus/sessions/1/_made/plot.png",)))
    assert "open: /home/ann/.habitus/sessions/1/_made/plot.png" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ('{"action": "exec", "code": "x", "one_line_description": "sum it up"}', "scratchpad  sum it up"),
        ('{"action": "view"}', "scratchpad  view"),
        ('{"rows": 3, "wide": true}', "scratchpad  rows=3, wide=True"),
        ("not { json", "scratchpad  not { json"),
        ("{}", "scratchpad  "),
        ('{"code": "a\\nb\\u001b[31mc"}', "scratchpad  a bc"),
    ],
)
def test_a_call_says_what_it_is_about(arguments: str, label: str) -> None:
    assert lines.format_call_label("scratchpad", arguments).plain == label


def test_calls_nudges_notices_and_the_end_are_one_line_each() -> None:
    label = lines.format_call_label("scratchpad", '{"name": "main"}')
    assert lines.format_running_call(label, 61.2, "row 7\n").plain == "scratchpad  main  1 min 01 s  row 7"
    assert lines.format_finished_call(_finished(), label).plain == "  ✓ scratchpad  main  2.3 s"
    assert (
        lines.format_finished_call(_finished(build_failed_outcome("no\nfile")), label).plain
        == "  ✗ scratchpad  main  2.3 s  no file"
    )
    assert (
        lines.format_finished_call(_finished(build_infrastructure_failure_outcome("down")), label).plain
        == "  ! scratchpad  main  2.3 s  down"
    )
    assert lines.format_nudge(NudgeEvent(text="Look at\nthe error.")).plain == "  ↪ nudge Look at the error."
    assert lines.format_notice(NoticeEvent(text="It is long.")).plain == "  ! It is long."
    assert [line.plain for line in lines.format_last_lines_of_turn(_done(cost=0.0123, waiting=2))] == [
        "  1,234 → 56 tokens · $0.0123 · 3.2 s · 2 changes pending review: /review list"
    ]
    assert [
        line.plain
        for line in lines.format_last_lines_of_turn(_done(build_failed_outcome("the rounds ran out"), waiting=1))
    ] == [
        "  ✗ failed: the rounds ran out",
        "  1,234 → 56 tokens · 3.2 s · 1 change pending review: /review list",
    ]


@pytest.mark.req("SK-21")
@pytest.mark.parametrize(
    ("tool", "content", "undo"),
    [
        ("create_skill", {"name": "x", "version": 1}, "    Undo: /undo x:1"),
        ("update_skill", {"name": "x", "version": 3}, "    Undo: /undo x:3"),
        ("delete_skill", {"deleted": True}, "    Undo: /skill restore x"),
        ("disable_skill", {"name": "x", "enabled": False}, "    Undo: /skill enable x"),
        ("create_skill", {"name": "x", "version": 1, "status": "proposed", "proposal": 7}, None),
        ("list_skills", {"name": "x"}, None),
    ],
)
def test_what_a_tool_changed_says_how_to_take_it_back(tool: str, content: dict[str, object], undo: str | None) -> None:
    shown = lines.format_undo_line(_finished(tool=tool, content=json.dumps(content)), '{"name": "x"}')
    assert (None if shown is None else shown.plain) == undo


def test_a_failed_call_is_one_line_however_long_its_reason() -> None:
    console = Console(file=io.StringIO(), width=80)
    display = TurnDisplay(console=console)
    display.show_event(ToolStarted(call="1", tool="scratchpad", arguments="{}"))
    display.show_event(_finished(build_failed_outcome("wrong " * 40)))
    assert len(console.file.getvalue().split("\n")) == 3  # type: ignore[attr-defined]  # an empty line, and it


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "40 ms"), (0.1, "0.1 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (3671, "61 min 11 s")],
)
def test_seconds_are_shown_as_people_read_them(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


@given(st.text())
def test_no_text_can_drive_the_terminal(text: str) -> None:
    for safe in (
        strip_control_characters(text),
        shorten_to_line(text),
        strip_control_characters("\x1b[2J" + text),
        shorten_to_line("\x9b31m\x1b]0;t\x07" + text),
    ):
        assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in safe)
        assert "\u202e" not in safe
    assert "\n" not in shorten_to_line(text)


@pytest.mark.parametrize(
    ("text", "finished", "tail"),
    [
        ("one\n\ntwo", "one\n\n", "two"),
        ("one", "", "one"),
        ("- a\n- b\n\n- c", "", "- a\n- b\n\n- c"),
        ("```\na\n\nb\n", "", "```\na\n\nb\n"),
        ("text\n\n```\na\n\nb\n```\n\nmore", "text\n\n```\na\n\nb\n```\n\n", "more"),
        ("", "", ""),
    ],
)
def test_finished_blocks_are_told_from_the_one_being_written(text: str, finished: str, tail: str) -> None:
    assert display.split_finished_markdown_blocks(text) == (finished, tail)


@given(st.text(alphabet="ab `#*->1.|\n", max_size=80))
def test_splitting_loses_nothing(text: str) -> None:
    assert "".join(display.split_finished_markdown_blocks(text)) == text


ANSWER = """# Result

A long line of words that has to be broken somewhere because terminals are narrow and words are many, is it not?

1. one
2. two

| a | b |
| - | - |
| 1 | 2 |

[click](https://example.org)
"""


async def _shown(events: list[TurnEvent], *, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=False, highlight=False, markup=False)
    display = TurnDisplay(console=console, clock=lambda: 0.0)
    async with display.draw_live():
        for event in events:
            display.show_event(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
async def test_an_answer_fits_every_width_and_is_the_same_however_it_arrives(width: int) -> None:
    whole = await _shown([ReplyDelta(text=ANSWER), _done()], width=width)
    pieces = await _shown([*(ReplyDelta(text=char) for char in ANSWER), _done()], width=width)
    assert pieces == whole
    assert max(map(len, whole.splitlines())) <= min(width, 100)
    assert whole.startswith("\nResult\n\nA long line")
    assert "\n\n\n" not in whole
    assert "click (https://example.org)" in whole
    assert whole.endswith("\n\n  1,234 → 56 tokens · 3.2 s\n")


async def test_a_turn_reads_from_top_to_bottom() -> None:
    shown = await _shown(
        [
            ReplyDelta(text="Let me \x1b[2Jsee."),
            ToolStarted(call="1", tool="scratchpad", arguments='{"code": "1"}'),
            ToolProgress(call="1", text="half"),
            ToolProgress(call="other", text="lost"),
            _finished(),
            NudgeEvent(text="careful"),
            ReplyDelta(text="Done."),
            NoticeEvent(text="It was cut off."),
            _done(),
        ],
        width=80,
    )
    assert [line for line in shown.splitlines() if line and "⠋" not in line] == [
        "Let me [2Jsee.",
        "  ✓ scratchpad  1  2.3 s",
        "  ↪ nudge careful",
        "Done.",
        "  ! It was cut off.",
        "  1,234 → 56 tokens · 3.2 s",
    ]


@pytest.mark.parametrize(
    ("event", "type"),
    [
        (ReplyDelta(text="a"), "text"),
        (ToolStarted(call="1", tool="t", arguments="{}"), "tool_started"),
        (ToolProgress(call="1", text="x"), "tool_progress"),
        (_finished(build_failed_outcome("no")), "tool_finished"),
        (NudgeEvent(text="n"), "nudge"),
        (NoticeEvent(text="n"), "notice"),
        (_done(), "done"),
    ],
)
def test_every_event_is_one_line_of_json(event: TurnEvent, type: str) -> None:
    line = json.dumps(event_to_json(event))
    assert "\n" not in line
    assert json.loads(line)["type"] == type
