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
    short=(1.508, 1.041, 0.001, 1.44, 2.529, 3.521, 2.134, 2.681, 3.637, 0.0, 0.361),
    long=(3.681, 1.615, 1.813, 2.344, 0.033, 2.609, 2.536, 0.0, 2.001, 2.73, 5.106),
    used=(0.571, 0.886, 3.375),
    trusted_base=0.19,
    trusted_used=(0.92, 1.108, 1.294),
    confidence_new=(0.0, 0.448, 0.0, 2.259, 0.856, 0.078, 0.118, 2.124, 0.516, 0.0, 2.107, -2.604),
    confidence_used=(0.035, 0.62, 0.0, 0.0, 0.454, 0.0, 0.0, 0.25, 3.53, 1.384, 2.845, -3.794),
    floor=0.5,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _STATIC, "none": _STATIC}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
