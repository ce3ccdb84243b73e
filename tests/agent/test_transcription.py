"""Speech that a machine speaks, written down on this machine."""

from __future__ import annotations

import asyncio
import sys
import wave
from pathlib import Path

import pytest

from habitus.llm.transcription import TranscriptionResult, get_local_or_explaining_transcriber, transcribe_recording


@pytest.mark.full
async def test_what_is_said_is_written_down(spoken: Path) -> None:
    heard = await transcribe_recording(spoken)
    assert heard.text is not None
    assert {"show", "last", "month"} <= set(heard.text.split())  # a voice of formants is hard to follow


@pytest.mark.full
async def test_other_rates_channels_and_widths_are_understood_the_same(spoken: Path, tmp_path: Path) -> None:
    other = tmp_path / "stereo.wav"
    with wave.open(str(spoken)) as one, wave.open(str(other), "wb") as two:
        two.setparams(one.getparams())
        two.setnchannels(2)
        two.setsampwidth(4)
        frames = one.readframes(one.getnframes())
        samples = [frames[at : at + 2] for at in range(0, len(frames), 2)]
        two.writeframes(b"".join((b"\0\0" + sample) * 2 for sample in samples))
    assert await transcribe_recording(other) == await transcribe_recording(spoken)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("broken.wav", b"RIFF\0\0\0\0WAVE", "it could not be read"),
        ("cut.wav", b"RIFF", "it could not be read"),
        ("voice.mp3", b"ID3 not really", ".mp3 needs ffmpeg; install it, or send a .wav"),
    ],
)
async def test_a_recording_that_can_t_be_read_says_why(
    name: str, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # whether ffmpeg is installed here does not matter
    path = tmp_path / name
    path.write_bytes(content)
    heard = await transcribe_recording(path)
    assert heard.text is None
    assert heard.reason.startswith(reason)


@pytest.mark.full
async def test_other_formats_go_through_ffmpeg(spoken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the program, which gives the recording whatever it is asked."""
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexec /bin/cat {spoken}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    voice = tmp_path / "-i voice.ogg"
    voice.write_bytes(b"OggS")
    heard = await transcribe_recording(voice)
    assert heard.text is not None
    assert "month" in heard.text
    assert f"-i file:{voice}" in (tmp_path / "asked").read_text()


async def test_silence_and_missing_files_say_so(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet.wav"
    with wave.open(str(quiet), "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(b"\0" * 16000)
    assert await transcribe_recording(quiet) == TranscriptionResult(
        text=None, reason="it could not be read (it is silent)"
    )
    assert await transcribe_recording(tmp_path / "gone.wav") == TranscriptionResult(
        text=None, reason="it could not be read (No such file or directory)"
    )


async def test_without_a_transcriber_the_reason_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_local_or_explaining_transcriber() is transcribe_recording
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    heard = await get_local_or_explaining_transcriber()(tmp_path)
    assert (heard.text, heard.reason.partition(".")[0]) == (None, "no transcriber is installed")


async def test_listening_holds_nothing_up_and_can_be_cancelled(spoken: Path) -> None:
    listening = asyncio.create_task(transcribe_recording(spoken))
    await asyncio.sleep(0.01)  # hearing a sentence takes a second
    assert not listening.done()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
