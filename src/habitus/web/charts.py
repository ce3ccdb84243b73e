"""Charts as SVG, made on the server: coloured by the stylesheet, and said in words for who can't see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WIDTH, _HEIGHT, _FOOT = 44, 120, 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    label: str
    good: int
    bad: int
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.good + self.bad + self.unknown


def bars(title: str, of: Sequence[Bar]) -> Markup:
    """One bar each, from below: went well, went wrong, nobody said."""
    most = max((bar.total for bar in of), default=0) or 1
    parts = [_bar(number, bar, most) for number, bar in enumerate(of)]
    said = "; ".join(f"{bar.label}: {bar.good} went well, {bar.bad} went wrong" for bar in of)
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(_WIDTH * len(of) or _WIDTH, _HEIGHT + _FOOT)
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}</svg>').format(
        size, f"{title}. {said}", Markup("").join(parts)
    )


def _bar(number: int, bar: Bar, most: int) -> Markup:
    left, top = number * _WIDTH + 8, float(_HEIGHT)
    drawn = []
    for kind, count in (("good", bar.good), ("bad", bar.bad), ("unknown", bar.unknown)):
        tall = (_HEIGHT - 4) * count / most
        top -= tall
        if count:
            drawn.append(
                f'<rect class="{kind}" x="{left}" y="{top:.1f}" width="{_WIDTH - 16}" height="{tall:.1f}" rx="3"/>'
            )
    middle = left + (_WIDTH - 16) / 2
    drawn.append(f'<text x="{middle}" y="{_HEIGHT + 16}" text-anchor="middle">{escape(bar.label)}</text>')
    return Markup("".join(drawn))
