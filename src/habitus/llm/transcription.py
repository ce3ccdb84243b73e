"""Local speech-to-text for recordings that come with a request."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import wave
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from habitus import optional_packages

SAMPLE_RATE = 16_000
MAX_SECONDS = 600
# Peak amplitude of 32768 below which a recording is silent.
SILENCE_PEAK = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptionResult:
    """The words of a recording, or why they are unknown."""

    text: str | None
    reason: str = ""
    # From 0 to 1: how sure the transcriber is of the words; None if it does not say.
    confidence: float | None = None


Transcriber = Callable[[Path], Awaitable[TranscriptionResult]]


def get_local_or_explaining_transcriber() -> Transcriber:
    """Return the installed transcriber, or one that explains how to install it."""
    return (
        transcribe_recording if optional_packages.is_installed("pocketsphinx") else _return_missing_transcriber_result
    )


async def _return_missing_transcriber_result(path: Path) -> TranscriptionResult:
    return TranscriptionResult(
        text=None, reason=f"no transcriber is installed. {optional_packages.describe_install('pocketsphinx')}"
    )


async def transcribe_recording(path: Path) -> TranscriptionResult:
    """Transcribe a recording with PocketSphinx: English, offline and rough, but enough to find the right skill."""
    try:
        sound = _convert_wav_to_mono_16khz_samples(await _read_as_wav(path))
        # In a separate process: it holds the interpreter lock while it listens, and is native code fed with untrusted
        # data.
        heard = json.loads(await _run_command(sys.executable, "-P", "-m", __name__, given=sound))
    except _ProgramMissingError as error:
        return TranscriptionResult(
            text=None, reason=f"{path.suffix or 'this format'} needs {error}; install it, or send a .wav"
        )
    except (OSError, wave.Error, EOFError, ValueError) as error:
        return TranscriptionResult(
            text=None, reason=f"it could not be read ({getattr(error, 'strerror', None) or error})"
        )
    if not heard["text"].strip():
        return TranscriptionResult(text=None, reason="no words were recognised in it")
    return TranscriptionResult(text=heard["text"].strip(), confidence=heard["confidence"])


class _ProgramMissingError(Exception):
    """A required program is not installed."""


async def _read_as_wav(path: Path) -> bytes:
    """Return the recording as WAV; other formats are converted by ffmpeg, which may open only this file."""
    data = path.read_bytes()
    if data.startswith(b"RIFF"):
        return data
    reading = ("-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-i", f"file:{path}")
    return await _run_command(
        "ffmpeg", *reading, "-t", str(MAX_SECONDS), "-ac", "1", "-ar", str(SAMPLE_RATE), "-f", "wav", "-"
    )


async def _run_command(*command: str, given: bytes = b"") -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    except FileNotFoundError:
        raise _ProgramMissingError(command[0]) from None
    try:
        said, problem = await process.communicate(given)
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise ValueError(" ".join(problem.decode("utf-8", "replace").split())[-200:] or f"{command[0]} failed")
    return said


def _convert_wav_to_mono_16khz_samples(data: bytes) -> bytes:
    import numpy

    with wave.open(io.BytesIO(data)) as sound:
        rate, channels, width = sound.getframerate(), sound.getnchannels(), sound.getsampwidth()
        raw = sound.readframes(min(sound.getnframes(), rate * MAX_SECONDS))
    if width not in _WIDTHS:
        raise ValueError(f"{width * 8} bits a sample are not supported")
    samples = numpy.frombuffer(raw[: len(raw) - len(raw) % (width * channels)], dtype=_WIDTHS[width])
    if not samples.size:
        raise ValueError("it is empty")
    centred = samples.astype(numpy.float64) - (128 if width == 1 else 0)
    mono = centred.reshape(-1, channels).mean(axis=1) * 2.0 ** (16 - 8 * width)
    if abs(mono).max() < SILENCE_PEAK:
        # The recogniser hears words in silence.
        raise ValueError("it is silent")
    wanted = max(2, round(len(mono) * SAMPLE_RATE / rate))
    spectrum = numpy.fft.rfft(mono)
    # Frequencies above the lower rate's limit are left out.
    kept = numpy.zeros(wanted // 2 + 1, dtype=complex)
    kept[: min(len(kept), len(spectrum))] = spectrum[: min(len(kept), len(spectrum))]
    loud = numpy.fft.irfft(kept, wanted) * wanted / len(mono)
    return bytes(numpy.clip(loud, -32768, 32767).astype("<i2").tobytes())


_WIDTHS = {1: "u1", 2: "<i2", 4: "<i4"}


def _recognize_speech_from_stdin() -> None:
    from pocketsphinx import Decoder

    decoder = Decoder(samprate=float(SAMPLE_RATE), loglevel="FATAL")
    decoder.start_utt()
    decoder.process_raw(sys.stdin.buffer.read(), full_utt=True)
    decoder.end_utt()
    said = decoder.hyp()
    # The mean over the words: that of the whole utterance falls with its length.
    scores = [part.prob for part in decoder.seg() or () if part.word[0] not in "<["]
    confidence = round(min(sum(scores) / len(scores), 1.0), 2) if scores else 0.0
    sys.stdout.write(json.dumps({"text": said.hypstr if said is not None else "", "confidence": confidence}))


if __name__ == "__main__":
    _recognize_speech_from_stdin()
