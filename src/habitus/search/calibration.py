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
    short=(1.7, 0.95, 0.0, 1.43, 2.64, 3.65, 2.15, 2.59, 3.37, 0.0, 0.22),
    long=(3.77, 1.52, 1.81, 2.34, 0.18, 2.45, 2.51, 0.0, 1.97, 2.74, 5.02),
    used=(0.54, 0.05, 1.04),
    trusted_base=-0.85,
    trusted_used=(0.2, 0.4, 5.2),
    confidence_new=(2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, -4.0),
    confidence_used=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 1.0, -6.0),
    floor=0.3,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _STATIC, "none": _STATIC}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
