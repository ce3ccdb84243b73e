"""Charts as SVG, made on the server: coloured by the stylesheet, and said in words for who can't see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from habitus.app.library.faring import Fared, Uses
from habitus.evidence.findings import Finding
from habitus.evidence.lift import Effect
from habitus.learning.improve.report import CandidateReport

_WIDTH, _HEIGHT, _FOOT, _HEAD = 54, 136, 22, 20
_LONG, _LINE = 420, 34  # of the lines: from a hundred fewer to a hundred more
_SIDE, _WIDEST, _LETTER = 60, 190, 7  # of their labels


def of_uses(fared: Fared) -> dict[str, Markup]:
    """Uses week by week and version by version, as far as there are any."""
    weeks = {f"{week:%b} {week.day}": uses for week, uses in fared.weeks}
    versions = {f"v{number}": uses for number, uses in fared.versions}
    drawn = {"By week": weeks, "By version": versions}
    return {title: bars(title, of) for title, of in drawn.items() if any(uses.total for uses in of.values())}


def of_findings(found: Sequence[Finding]) -> Markup | None:
    """What offering each version changed, as far as anybody said how it went."""
    known = {f"v{one.item.version}": one.estimate.offering for one in reversed(found)}
    drawn = {label: effect for label, effect in known.items() if effect is not None}
    return intervals("Of a hundred conversations", drawn) if drawn else None


def of_skills(found: Sequence[Finding]) -> Markup | None:
    """What offering each skill changed, as far as anybody said how it went."""
    drawn = {one.item.name.partition("@")[0]: one.estimate.offering for one in found}
    known = {label: effect for label, effect in drawn.items() if effect is not None}
    return intervals("Of a hundred conversations", known) if known else None


def of_candidates(found: Sequence[CandidateReport]) -> Markup | None:
    """What each candidate changed on the tasks of its gate, against the version it began with."""
    drawn = {
        f"no. {one.candidate.number}": Effect(
            value=one.gate.difference, low=one.gate.interval.low, high=one.gate.interval.high
        )
        for one in found
        if one.gate is not None
    }
    return intervals("Of a hundred tries", drawn) if drawn else None


def bars(title: str, of: Mapping[str, Uses]) -> Markup:
    """One bar each, from below: went well, went wrong, nobody said."""
    most = max((uses.total for uses in of.values()), default=0) or 1
    parts = [_bar(number, label, uses, most) for number, (label, uses) in enumerate(of.items())]
    said = "; ".join(f"{label}: {uses.good} went well, {uses.bad} went wrong" for label, uses in of.items())
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(_WIDTH * len(of) or _WIDTH, _HEIGHT + _FOOT)
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}</svg>').format(
        size, f"{title}. {said}", Markup("").join(parts)
    )


def _bar(number: int, label: str, uses: Uses, most: int) -> Markup:
    left, top = number * _WIDTH + 11, float(_HEIGHT)
    drawn = []
    for kind, count in (("good", uses.good), ("bad", uses.bad), ("unknown", uses.unknown)):
        tall = (_HEIGHT - _HEAD) * count / most
        top -= tall
        if count:
            drawn.append(
                f'<rect class="{kind}" x="{left}" y="{top:.1f}" width="{_WIDTH - 22}" height="{tall:.1f}" rx="3"/>'
            )
    middle = left + (_WIDTH - 22) / 2
    if uses.total:
        drawn.append(f'<text x="{middle}" y="{top - 6:.1f}" text-anchor="middle">{uses.total}</text>')
    drawn.append(f'<text x="{middle}" y="{_HEIGHT + 16}" text-anchor="middle">{escape(label)}</text>')
    return Markup("".join(drawn))


def intervals(title: str, of: Mapping[str, Effect]) -> Markup:
    """One line each: how many of a hundred go better or worse, the point in the middle of what may be true."""
    tall = _LINE * len(of)
    side = min(max(_SIDE, _LETTER * max(map(len, of)) + 12), _WIDEST)
    parts = [_interval(number, label, effect, side) for number, (label, effect) in enumerate(of.items())]
    zero = f'<line class="zero" x1="{_at(0, side)}" y1="0" x2="{_at(0, side)}" y2="{tall}"/>'
    foot = (
        f'<text x="{_at(-1, side)}" y="{tall + 16}">fewer go well</text>'
        f'<text x="{_at(1, side)}" y="{tall + 16}" text-anchor="end">more go well</text>'
    )
    said = "; ".join(f"{label}: {_of_100(one.low)} to {_of_100(one.high)} of 100" for label, one in of.items())
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(side + _LONG + 10, tall + _FOOT)
    drawn = Markup(zero) + Markup("").join(parts) + Markup(foot)
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}</svg>').format(size, f"{title}. {said}", drawn)


def _interval(number: int, label: str, effect: Effect, side: int) -> Markup:
    middle = number * _LINE + _LINE / 2
    kind = "good" if effect.low > 0 else "bad" if effect.high < 0 else "unknown"
    short = label if len(label) * _LETTER <= side else f"{label[: side // _LETTER - 1]}…"
    return Markup(
        f'<text x="0" y="{middle + 4}">{escape(short)}</text>'
        f'<line class="{kind}" x1="{_at(effect.low, side)}" y1="{middle}" x2="{_at(effect.high, side)}" y2="{middle}"/>'
        f'<circle class="{kind}" cx="{_at(effect.value, side)}" cy="{middle}" r="5"/>'
    )


def _at(share: float, side: int) -> float:
    return round(side + (min(max(share, -1.0), 1.0) + 1) / 2 * _LONG, 1)


def _of_100(share: float) -> str:
    return f"{100 * share:+.0f}"
