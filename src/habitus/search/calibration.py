"""Every number that was measured rather than chosen."""

from __future__ import annotations

from dataclasses import dataclass

FIELD_WEIGHTS = {"name": 3.0, "cue": 4.0, "tags": 3.0, "description": 4.0, "body": 0.5}
FIELD_NORMS = {"name": 0.5, "cue": 0.1, "tags": 0.5, "description": 0.1, "body": 0.5}
FIELD_LENGTHS = {"name": 3.0, "cue": 20.0, "tags": 4.0, "description": 20.0, "body": 300.0}
SATURATION = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """The weights that go with one embedding model. `short` is for documents without bodies, `long` with them."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    used: tuple[float, ...]
    trusted_base: float
    trusted_used: tuple[float, ...]
    confidence_new: tuple[float, ...]
    confidence_used: tuple[float, ...]
    floor: float


_STATIC = Tier(
    short=(1.516, 1.032, 0.001, 1.456, 2.555, 3.485, 2.118, 2.699, 3.631, 0.0, 0.371),
    long=(3.697, 1.598, 1.813, 2.368, 0.154, 2.359, 2.531, 0.0, 2.034, 2.726, 5.117),
    used=(0.406, 0.0, 4.449),
    trusted_base=0.373,
    trusted_used=(0.995, 0.864, 1.231),
    confidence_new=(0.0, 0.516, 0.0, 2.411, 0.848, 0.0, 0.348, 1.947, 1.675, 3.41, -2.783),
    confidence_used=(0.0, 0.0, 0.0, 0.981, 0.668, 0.0, 0.729, 0.293, 0.585, 3.356, -3.079),
    floor=0.51,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _STATIC, "none": _STATIC}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
