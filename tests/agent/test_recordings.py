"""A recording joins the request as what it is: transcribed, with its confidence, or left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from habitus.agent.user_input import copy_and_describe_attachments
from habitus.llm.model import TextContent
from habitus.llm.scripted import says
from habitus.llm.transcription import TranscriptionResult
from habitus.sandbox.files import GivenFolder
from tests.agent.conftest import Talk


@pytest.mark.req("SE-01")
@pytest.mark.parametrize(
    ("confidence", "joined"),
    [(0.62, ["[transcribed, 62% sure] so i'm all right"]), (0.1, []), (None, ["[transcribed] so i'm all right"])],
)
async def test_a_transcript_says_how_sure_it_is_and_an_unclear_one_is_left_out(
    confidence: float | None, joined: list[str], tmp_path: Path
) -> None:
    voice = tmp_path / "voice.wav"
    voice.write_bytes(b"RIFF")

    async def transcribe(path: Path) -> TranscriptionResult:
        return TranscriptionResult(text="so i'm all right", confidence=confidence)

    found = await copy_and_describe_attachments(
        [voice],
        given=GivenFolder(tmp_path / "given", find_visible_path=lambda: "/given"),
        sees_images=False,
        transcribe=transcribe,
        budget=1000,
    )
    assert found.transcripts == joined
    (part,) = found.parts
    assert isinstance(part, TextContent)
    assert ("all right" in part.text) is bool(joined)
    assert bool(found.notices) is not bool(joined)


@pytest.mark.full
@pytest.mark.req("SE-01")
async def test_a_spoken_request_reaches_the_model_marked_as_transcribed(talk: Talk, spoken: Path) -> None:
    session, model = talk([says("Here they are.")])
    await session.turn("", [spoken])
    asked = str(model.asked[0].messages[-1])
    assert re.search(r"\[transcribed(, \d+% sure)?\] [^\[]*month", asked)
