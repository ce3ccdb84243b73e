"""Plots in the terminal: an effect and how sure it is, as one line between fewer and more."""

from __future__ import annotations

from habitus.evidence.lift import Effect

WIDTH = 41  # columns from a hundred fewer to a hundred more, an odd number so that nothing has one of its own
_DRAWN, _PLAIN = ("├", "─", "┤", "●", "│"), ("|", "-", "|", "o", "|")


def interval(effect: Effect | None, *, is_unicode: bool = True) -> str:
    """The interval with its middle, beside the line where nothing changes."""
    left, bar, right, dot, zero = _DRAWN if is_unicode else _PLAIN
    line = [" "] * WIDTH
    line[WIDTH // 2] = zero
    if effect is not None:
        low, value, high = (_column(part) for part in (effect.low, effect.value, effect.high))
        for at in range(low, high + 1):
            line[at] = bar
        line[low], line[high], line[value] = left, right, dot
    return "".join(line).rstrip()


def _column(share: float) -> int:
    return round((min(max(share, -1.0), 1.0) + 1) / 2 * (WIDTH - 1))


def axis(*, is_unicode: bool = True) -> str:
    """What lies on which side."""
    fewer, more = ("← fewer go well", "more go well →") if is_unicode else ("< fewer go well", "more go well >")
    return fewer + " " * (WIDTH - len(fewer) - len(more)) + more
