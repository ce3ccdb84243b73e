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
    used=(0.546, 0.899, 3.473),
    trusted_base=0.223,
    trusted_used=(1.018, 1.018, 1.435),
    confidence_new=(0.0, 0.469, 0.0, 2.157, 0.857, 0.125, 0.131, 2.094, 0.472, 0.106, 1.876, -2.577),
    confidence_used=(0.182, 0.417, 0.0, 0.0, 0.407, 0.0, 0.0, 0.654, 1.541, 0.899, 2.674, -2.862),
    floor=0.51,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _STATIC, "none": _STATIC}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
