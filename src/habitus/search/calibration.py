"""Every number that was measured rather than chosen.

The field weights come from a sweep (docs/decisions/search.md). A `Tier` is the output of

    python benchmarks/calibrate_search.py --sets DIR --most 300              the static model
    python benchmarks/calibrate_search.py --sets DIR --most 150 --model minilm
    python benchmarks/calibrate_search.py --sets DIR --most 200 --model none
"""

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

_MINILM = Tier(
    short=(1.358, 0.618, 0.0, 1.064, 3.94, 4.508, 2.001, 2.297, 3.511, 0.0, 0.442),
    long=(3.629, 1.419, 1.883, 2.036, 2.43, 2.681, 2.337, 0.0, 1.755, 2.9, 5.427),
    used=(0.513, 0.035, 1.785),
    trusted_base=0.094,
    trusted_used=(0.737, 0.486, 0.872),
    confidence_new=(0.0, 0.432, 0.641, 2.822, 0.77, 0.0, 0.179, 1.947, 0.76, 0.875, 1.929, -2.98),
    confidence_used=(0.0, 0.293, 0.996, 0.0, 0.423, 0.0, 0.127, 0.0, 4.102, 4.021, 2.559, -5.948),
    floor=0.52,
)

_LEXICAL = Tier(
    short=(2.893, 1.561, 0.0, 2.662, 0.0, 0.0, 1.797, 3.18, 2.996, 0.0, 0.0),
    long=(4.66, 1.695, 1.391, 3.196, 0.0, 0.0, 1.61, 0.717, 1.882, 2.638, 5.071),
    used=(0.0, 3.916, 6.598),
    trusted_base=0.457,
    trusted_used=(0.0, 2.489, 5.352),
    confidence_new=(0.0, 1.291, 0.008, 0.008, 1.652, 0.67, 0.775, 1.153, 3.158, 0.008, 1.234, -2.076),
    confidence_used=(0.0, 0.15, 0.008, 0.008, 0.598, 0.0, 0.0, 0.851, 6.383, 0.008, 2.454, -2.153),
    floor=0.49,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _MINILM, "none": _LEXICAL}


def tier_of(model: str) -> Tier:
    """An unknown model is used with the weights of the static one."""
    return TIERS.get(model, _STATIC)
