"""Keys of thirty kinds in eight writings, put in at every door: no byte of the home has one afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.agent.stream import NoticeEvent, TurnEvent
from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from habitus.llm.scripted import ScriptedModel, build_call, calls, says
from tests.cli.conftest import Direct
from tests.homes import furnish
from tests.learning.logs import failing, write
from tests.planted import KEYS, WAYS, pieces

SCHEMA = '{"type": "object", "properties": {"text": {"type": "string"}}}'


def leaks(said: str | bytes) -> set[str]:
    """The kinds of keys that can be found in something."""
    data = said.encode() if isinstance(said, str) else said
    return {kind for kind, key in KEYS.items() if any(piece.encode() in data for piece in pieces(key))}


def leaks_below(home: Path) -> dict[str, set[str]]:
    """Every file of a home, the database with its log and free pages among them, that has a key in it."""
    files = [path for path in home.rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): found for path in files if (found := leaks(path.read_bytes()))}


def written(way: str) -> str:
    return "\n\n".join(WAYS[way](key) for key in KEYS.values())


@pytest.mark.some(1)
@pytest.mark.req("SB-14")
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=() if way in ("plain", "base64", "json", "shell") else pytest.mark.full) for way in WAYS],
)
async def test_a_conversation_keeps_sends_and_shows_no_key(tmp_path: Path, way: str) -> None:
    text, home = written(way), furnish(tmp_path / "home")
    (tmp_path / "notes.md").write_text(text)
    halves = [text[start : start + 5] for start in range(0, len(text), 5)]
    cell = f"import sys\nfor piece in {halves!r}:\n    print(piece, end='', flush=True)\nraise ValueError({text!r})"
    skill = {"name": f"use-{way}", "title": text, "description": text, "content": text, "tags": [text[:200]]}
    model = ScriptedModel(
        [
            says(
                text,
                build_call("create_skill", skill),
                build_call("search_skills", {"query": text}),
                build_call("memorize", {"text": text, "kind": "lesson"}),
                build_call("memorize", {"text": text, "kind": "always"}),
                build_call("scratchpad", {"action": "exec", "code": cell, "one_line_description": text}),
                build_call("scratchpad", {"action": "dump"}),
                build_call("recall_skill", {"name": text}),
                build_call(text[:60], {"x": text}),
            ),
            calls("update_skill", {"name": f"use-{way}", "operation": "append", "content": text}),
            calls("edit_system_prompt", {"operation": "append", "content": text}),
            says(text),
            says("Done."),
        ]
    )
    shown: list[TurnEvent] = []
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
        async with habitus.session(model) as session:
            async for event in session.turn_stream(text, [tmp_path / "notes.md"]):
                shown.append(event)
            session.judge(OutcomeKind.FAILED, reason=text)
            await session.turn("and now?")
        for waiting in habitus.review.list_proposals_by_state():
            habitus.review.reject(waiting.id, habitus.build_author(), text)
        assert leaks_below(home) == {}  # with the log of the database still beside it
    assert leaks_below(home) == {}
    assert leaks(repr(model.asked)) == set()
    assert leaks(repr(shown)) == set()
    assert any(isinstance(event, NoticeEvent) and "Secrets were removed" in event.text for event in shown)


@pytest.mark.req("SB-14")
def test_commands_keep_and_show_no_key(direct: Direct, tmp_path: Path) -> None:
    texts = [written(way) for way in WAYS]
    program = "import sys, json\ntext = json.loads(sys.argv[1])['text']\nsys.stdout.write(text)\n"
    direct.ok(
        "tools", "new", "echo", "-d", "Says it.", "--code", "-", "-p", '{"text": "hi"}', "-s", SCHEMA, stdin=program
    )
    log = write(tmp_path / "log.jsonl", [line for text in texts for line in failing(1, error=text)])
    playbook = [{"trigger": text, "correct_pattern": text, "anti_pattern": text, "source": text} for text in texts]
    (tmp_path / "skills_playbook.json").write_text(json.dumps(playbook))
    said = [
        direct.ok("learn", str(log), "--apply"),
        direct("skills", "import", str(tmp_path / "skills_playbook.json")).out,
        direct.ok("lessons", "list"),
        *(direct("lessons", "add", text).out for text in texts),
    ]
    for text in texts:
        ran = direct("tools", "run", "echo", json.dumps({"text": text}))
        assert ran.err.startswith("Secrets removed: ")
        said.append(ran.out)
    assert leaks("\n".join(said)) == set()
    assert leaks_below(direct.home) == {}
