from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.sandbox.child import OutputCapture
from habitus.sandbox.model import Cell, CellTimeouts, compute_cell_timeouts


@pytest.mark.req("SB-02")
@pytest.mark.parametrize(
    ("estimate", "total", "silence"),
    [
        (None, 120, 30),
        (1, 31, 30),
        (10, 40, 30),
        (30, 60, 30),
        (100, 200, 50),
        (300, 600, 60),
        (5000, 3600, 60),
        (0, 120, 30),
        (-5, 120, 30),
        (float("nan"), 120, 30),
        (float("inf"), 120, 30),
    ],
)
def test_timeouts_follow_the_estimate(estimate: float | None, total: float, silence: float) -> None:
    assert compute_cell_timeouts(estimate) == CellTimeouts(total_s=total, silence_s=silence)


@pytest.mark.req("SB-02")
@given(st.floats(min_value=0.001, max_value=1e9))
def test_timeouts_stay_within_their_bounds(estimate: float) -> None:
    limits = compute_cell_timeouts(estimate)
    assert 30 <= limits.silence_s <= 60
    assert limits.silence_s <= limits.total_s <= 3600


def test_a_cell_that_printed_nothing_worth_reading_is_clean() -> None:
    assert Cell(code="", stderr=" \n").has_no_error_or_stderr


@pytest.mark.req("SB-03")
@given(st.text(), st.integers(0, 50), st.integers(1, 7))
def test_a_capture_keeps_the_head_and_counts_the_rest(text: str, limit: int, step: int) -> None:
    data = text.encode("utf-8", errors="replace")
    whole = data.decode()
    capture = OutputCapture(limit)
    for start in range(0, len(data), step):
        capture.feed(data[start : start + step])
    assert capture.get_text_with_cut_note().startswith(whole[:limit])
    assert capture.cut == max(0, len(whole) - limit)
