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
    short=(1.723, 0.839, 0.0, 1.604, 2.511, 3.64, 2.039, 2.672, 3.34, 0.0, 0.316),
    long=(3.797, 1.471, 1.798, 2.44, 0.012, 2.696, 2.443, 0.0, 1.931, 2.731, 5.077),
    used=(0.542, 0.834, 0.055),
    trusted_base=0.129,
    trusted_used=(1.094, 0.523, 4.486),
    confidence_new=(0.0, 0.442, 0.0, 1.988, 1.026, 0.195, 0.362, 1.998, 0.602, 0.475, 1.617, -2.701),
    confidence_used=(0.0, 0.017, 0.0, 0.0, 0.664, 0.0, 0.0, 0.016, 1.89, 1.571, 2.82, -3.162),
    floor=0.49,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _STATIC, "none": _STATIC}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
