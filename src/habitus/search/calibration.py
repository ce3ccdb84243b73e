"""All measured constants of the search.

The field weights come from a sweep (docs/decisions/search.md). A `RankingCalibration` is the output of

    python benchmarks/calibrate_search.py --sets DIR --most 300    the static model
    python benchmarks/calibrate_search.py --sets DIR --most 150 --confidence-only    its `confidence_used`
    python benchmarks/calibrate_search.py --sets DIR --most 50 --model minilm
    python benchmarks/calibrate_search.py --sets DIR --most 200 --model none

The stated weights were swept. For MiniLM, DIR had no sealtools and no toolret_apigen, and 2,040 of the 11,491 skills of
skillroute.
"""

from __future__ import annotations

from dataclasses import dataclass

# Weight, share of length normalization, and usual number of words.
_FIELDS = {
    "name": (3.0, 0.5, 3.0),
    "cue": (4.0, 0.1, 20.0),
    "tags": (3.0, 0.5, 4.0),
    "description": (4.0, 0.1, 20.0),
    "excluded": (0.0, 0.0, 1.0),
    "excluded_below": (0.0, 0.0, 1.0),
    "body": (0.5, 0.5, 300.0),
}
FIELD_WEIGHTS, FIELD_NORMS, FIELD_LENGTHS = (
    {field: values[place] for field, values in _FIELDS.items()} for place in range(3)
)
SATURATION = 2.0
# Plain BM25 over the whole text, with the usual constants; documents are compared with a fixed length.
TEXT_SATURATION, TEXT_NORM, TEXT_LENGTH = 1.5, 0.75, 340.0
# In the order borders, excluded, project, as_text.
STATED_WEIGHTS = (1.0, -4.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankingCalibration:
    """The weights for one embedding model; `short` is for documents without bodies, `long` for those with them."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    used: tuple[float, ...]
    trusted_base: float
    trusted_used: tuple[float, ...]
    confidence_new: tuple[float, ...]
    confidence_used: tuple[float, ...]
    floor: float


_STATIC = RankingCalibration(
    short=(1.489, 0.927, 0.0, 1.439, 2.494, 3.486, 2.175, 2.797, 3.656, 0.0, 0.444),
    long=(3.587, 2.426, 1.93, 1.793, 0.246, 2.134, 1.736, 0.934, 1.684, 0.734, 2.206),
    used=(0.575, 0.894, 3.343),
    trusted_base=0.191,
    trusted_used=(0.921, 1.107, 1.294),
    confidence_new=(0.25, 0.83, 0.133, 2.21, 1.573, 0.649, 0.246, 0.863, 0.0, 2.632, -2.544),
    confidence_used=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.401, 1.624, 3.482, -3.137),
    floor=0.53,
)

_MINILM = RankingCalibration(
    short=(1.697, 1.845, 0.0, 1.301, 3.684, 2.222, 2.349, 3.058, 4.089, 0.0, 0.543),
    long=(2.752, 2.016, 3.062, 2.596, 3.207, 2.343, 0.545, 1.31, 2.315, 0.344, 2.895),
    used=(0.803, 0.452, 2.434),
    trusted_base=0.105,
    trusted_used=(0.936, 0.283, 2.539),
    confidence_new=(0.0, 0.588, 3.696, 1.236, 1.626, 0.118, 0.706, 0.989, 0.601, 2.242, -3.237),
    confidence_used=(0.565, 0.256, 0.0, 1.53, 0.4, 0.0, 0.0, 3.282, 2.104, 2.868, -5.261),
    floor=0.53,
)

_LEXICAL = RankingCalibration(
    short=(2.862, 1.542, 0.0, 2.657, 0.0, 0.0, 1.816, 3.238, 2.984, 0.0, 0.0),
    long=(4.543, 2.088, 1.201, 2.253, 0.0, 0.0, 1.348, 1.416, 1.452, 0.674, 2.192),
    used=(0.0, 3.898, 7.369),
    trusted_base=0.457,
    trusted_used=(0.0, 2.485, 5.046),
    confidence_new=(0.0, 1.242, 0.006, 0.006, 2.131, 0.981, 0.775, 2.897, 0.006, 1.453, -1.889),
    confidence_used=(0.0, 0.0, 0.006, 0.006, 1.216, 0.0, 0.0, 6.587, 0.006, 3.181, -1.796),
    floor=0.53,
)

TIERS = {"wordllama-256": _STATIC, "minilm-l6-v2": _MINILM, "none": _LEXICAL}


def get_calibration(model: str) -> RankingCalibration:
    """Return the tier of an embedding model; an unknown model gets that of the static one."""
    return TIERS.get(model, _STATIC)
