"""`script:PATH`: the model that anybody can write with an editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.errors import UserError
from habitus.llm.model import CompletionRequest, PersonMessage, ProviderError, TextContent, fetch_answer
from habitus.llm.scripted import open_script_model

pytestmark = pytest.mark.req("AG-02")

ASK = CompletionRequest(system="", messages=(PersonMessage(parts=(TextContent(text="hello"),)),))


def _written(path: Path, script: object) -> str:
    path.write_text(json.dumps(script))
    return f"script:{path}"


async def test_the_steps_are_played_in_order_and_the_end_is_a_fault(tmp_path: Path) -> None:
    steps = [
        {"say": "Let me see.", "call": "scratchpad", "arguments": {"code": "1"}},
        {"answer": {"label": "x"}},
        {"fail": "out of order"},
    ]
    model = open_script_model(_written(tmp_path / "a.json", {"pause": 0, "steps": steps}))
    first = await fetch_answer(model, ASK)
    assert (first.message.text, first.message.calls[0].name) == ("Let me see.", "scratchpad")
    assert (await fetch_answer(model, ASK)).message.text == '{"label": "x"}'
    for said in ("out of order", "a.json is over after 3 steps", "a.json is over after 3 steps"):
        with pytest.raises(ProviderError, match=said):
            await fetch_answer(model, ASK)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{", "is not a script"),
        ("7", "is not a script"),
        ('[{"sya": "hello"}]', "0.sya: Extra inputs are not permitted"),
        ('{"steps": [{"call": 5}]}', "steps.0.call: Input should be a valid string"),
    ],
)
def test_a_file_that_is_no_script_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        open_script_model(f"script:{path}")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no script"):
        open_script_model(f"script:{tmp_path / 'none.json'}")
