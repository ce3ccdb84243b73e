"""Twice the text costs at most two and a half times as much, whatever it repeats, for all that reads others' texts."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from habitus.errors import ToolFailed
from habitus.files import build_tree_file
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.learning.transcripts.formats import registry
from habitus.memory.intake import find_text_objection
from habitus.redact import Redactor
from habitus.screening.scanner import scan_skill
from habitus.skills import trees
from habitus.tools.code_repair import repair_code

pytestmark = pytest.mark.req("SC-01", "SC-07")

MOST = 2.5
SIZES = (1_000, 2_000, 4_000, 8_000)
_TRIES = 6  # a law that is broken stays broken; a machine that is busy is quiet at times
_CHEAP, _NOISE = 0.02, 0.004  # seconds of CPU


def _repair(text: str) -> None:
    with contextlib.suppress(ToolFailed):
        repair_code(text)


def _stream(text: str) -> None:
    stream = Redactor(["known value"]).open_redacting_stream()
    for start in range(0, len(text), 200):
        stream.feed(text[start : start + 200])
    stream.end()


def _scan(path: str) -> Callable[[str], object]:
    return lambda text: scan_skill({path: build_tree_file(text.encode("utf-8", "replace"))})


def _transcript(text: str) -> None:
    said: list[object] = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    said += [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": text}}]}]
    said += [{"role": "tool", "tool_call_id": "1", "content": text}]
    path = Path(_transcript.folder) / "log.jsonl"  # type: ignore[attr-defined]
    path.write_text(json.dumps({"messages": said}) + "\n")
    assert len(list(registry.read_transcripts(path))) == 1


READERS: dict[str, Callable[[str], object]] = {
    "skill": _scan("SKILL.md"),
    "python": _scan("run.py"),
    "shell": _scan("run.sh"),
    "lesson": find_text_objection,
    "code repair": _repair,
    "redactor": lambda text: Redactor(["known value"]).redact(text),
    "stream": _stream,
    "front matter": lambda text: trees.parse_skill_tree(
        "x", {"SKILL.md": build_tree_file(f"---\n{text}\n---\nx".encode())}
    ),
    "body": lambda text: trees.parse_skill_tree(
        "x", {"SKILL.md": build_tree_file(f"---\nname: x\ndescription: d\n---\n{text}".encode())}
    ),
    "error signature": make_error_signature,
    "transcript": _transcript,
}
PUMPS = (
    *(
        " ",
        "\t",
        "\n",
        "a",
        "a ",
        "`",
        "~~~",
        "\\",
        "\\n",
        '"',
        "'",
        '\\"',
        "<",
        "</a>",
        "<!--",
        "<code ",
        "<![CDATA[",
        "]]>",
        "&#65;",
    ),
    *(
        "%41",
        "\\x41",
        "\\u0041",
        "QUJD",
        "4142",
        "65, ",
        "[",
        "(",
        "{",
        '{"a":',
        "a: ",
        "- ",
        "---\n",
        "password=",
        "sk-",
        "eyJ",
    ),
    *(
        "://a:",
        "a@b.",
        "/a",
        "C:\\",
        "0x",
        "1.",
        "curl a | ",
        "rm -rf ../",
        "$(",
        "ignore all your ",
        "send it to ",
        "do not tell ",
    ),
    *(
        "always run ",
        "https://a.b/",
        "import os\n",
        "x = ",
        "exec(",
        "a+",
        "\u200b",
        "о",
        "\U000e0041",
        "MTA",
        "Error: ",
        "\x1b[",
    ),
)
OPENINGS = ("", "```python", "```python x", "<code", '"', "password=", "curl ", "key: ", "a.b", "/a/", "{", "send ")
GAPS = (" ", "\t", "a", "`", "\\", "1", ".", "-")


def texts() -> Iterator[tuple[str, Callable[[int], str]]]:
    """Every pump, and every opening before two different gaps."""
    for pump in PUMPS:
        yield repr(pump), partial(_pumped, "", pump, pump)
    for opening, one, other in product(OPENINGS, GAPS, GAPS):
        if one != other:
            yield f"{opening} {one!r} {other!r}", partial(_pumped, opening, one, other)


def _pumped(opening: str, one: str, other: str, size: int) -> str:
    half = size // 2
    return opening + (one * half)[:half] + (other * half)[:half] + "end"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    _transcript.folder = tmp_path  # type: ignore[attr-defined]


def _cost(read: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    read(text)
    return time.process_time() - start


def _broken(read: Callable[[str], object], make: Callable[[int], str]) -> str:
    """How a doubling costs too much; empty if none does. What is cheap at the largest size is not looked at further."""
    if _cost(read, make(SIZES[0])) < _CHEAP and _cost(read, make(SIZES[-1])) < _CHEAP:
        return ""
    for size in SIZES[1:]:
        half, whole = _cost(read, make(size // 2)), _cost(read, make(size))
        for _ in range(_TRIES):
            if whole <= MOST * half + _NOISE:
                break
            half, whole = max(half, _cost(read, make(size // 2))), min(whole, _cost(read, make(size)))
        else:
            return f"{size // 2} characters cost {half:.3f} s of CPU, {size} cost {whole:.3f}"
    return ""


@pytest.mark.some(3)
@pytest.mark.parametrize("name", READERS)
def test_twice_the_text_costs_at_most_two_and_a_half_times_as_much(name: str, is_thorough: bool) -> None:
    read = READERS[name]
    read("warm")
    chosen = [*texts()]
    broken = {made: how for made, make in chosen[:: 1 if is_thorough else 17] if (how := _broken(read, make))}
    assert broken == {}


def test_a_fence_before_much_white_space_is_refused_at_once() -> None:
    assert _broken(_repair, lambda size: "```python" + " " * size + "\t" * size + "neverclosed") == ""
