"""Charts that compare: what speaks for a skill, its effect over time, which are confused, and what is in vain."""

from __future__ import annotations

from markupsafe import Markup

from habitus.app.growth.insights import Confusion, SkillEffect
from habitus.evidence.lift import Effect
from habitus.search import Hit

_PARTS = {  # what search calls a part of a score, to what the page calls it
    **dict.fromkeys(("meaning", "part"), "meaning"),
    **dict.fromkeys(("name", "lexical.name"), "name"),
    **dict.fromkeys(("used_meaning", "used_words", "used_before"), "use"),
    **dict.fromkeys(("says_when", "detail"), "description"),
}


def of_fit(hit: Hit, least: float) -> Markup:
    """A bar as long as a skill fits a request, made of what speaks for it, and the line below which none is offered."""
    shares: dict[str, float] = {}
    for name, value in hit.parts.items():
        kind = _PARTS.get(name, "words")
        shares[kind] = shares.get(kind, 0.0) + max(value, 0.0)
    total = sum(shares.values()) or 1.0
    drawn, at = [], 0.0
    for kind in FIT_PARTS:
        wide = 100 * hit.score * shares.get(kind, 0.0) / total
        css = "name-part" if kind == "name" else kind
        drawn.append(f'<rect class="{css}" x="{at:.2f}" y="0" width="{wide:.2f}" height="12"/>')
        at += wide
    said = ", ".join(f"{kind} {100 * shares[kind] / total:.0f} %" for kind in FIT_PARTS if shares.get(kind))
    line = f'<line x1="{100 * least:.2f}" y1="0" x2="{100 * least:.2f}" y2="12"/>'
    label = f"Fits to {100 * hit.score:.0f} %: {said}. Nothing below {100 * least:.0f} % is offered."
    return Markup(
        '<svg class="bar" role="img" viewBox="0 0 100 12" preserveAspectRatio="none" aria-label="{}">'
        '<rect class="back" x="0" y="0" width="100" height="12"/>{}{}</svg>'
    ).format(label, Markup("".join(drawn)), Markup(line))


FIT_PARTS = ("words", "meaning", "name", "use", "description")


_WEEK_WIDTH, _TALL = 40, 56


def over_time(one: SkillEffect) -> Markup:
    """An effect as it was known week by week: of a hundred conversations how many go better, from low to high."""
    reach = max((max(abs(at.effect.low), abs(at.effect.high)) for at in one.over_time if at.effect), default=0) or 1.0
    drawn, said = [], []
    for number, at in enumerate(one.over_time):
        if at.effect is None:
            continue
        effect, x = at.effect, number * _WEEK_WIDTH + _WEEK_WIDTH / 2
        low, value, high = (_TALL / 2 * (1 - each / reach) for each in (effect.low, effect.value, effect.high))
        kind = _kind(effect)
        drawn.append(f'<line class="{kind}" x1="{x}" y1="{low:.1f}" x2="{x}" y2="{high:.1f}"/>')
        drawn.append(f'<circle class="{kind}" cx="{x}" cy="{value:.1f}" r="4"/>')
        said.append(f"{at.at:%b} {at.at.day}: {100 * effect.low:+.0f} to {100 * effect.high:+.0f}")
    wide = _WEEK_WIDTH * len(one.over_time)
    zero = f'<line class="zero" x1="0" y1="{_TALL / 2}" x2="{wide}" y2="{_TALL / 2}"/>'
    size = Markup('viewBox="0 -4 {0} {2}" width="{0}" height="{1}"').format(wide, _TALL, _TALL + 8)
    label = f"{one.name}, more that go well of 100. {'; '.join(said)}"
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}{}</svg>').format(
        size, label, Markup(zero), Markup("".join(drawn))
    )


_CELL, _NAMES = 40, 210


def matrix(found: Confusion) -> Markup:
    """A row for each skill, asked in its own words; the darker a cell, the better the skill of its column fits too."""
    count = len(found.names)
    parts = []
    for row, (name, cells) in enumerate(zip(found.names, found.rows, strict=True)):
        top = (row + 1) * _CELL
        short = name if len(name) <= 26 else f"{name[:25]}…"
        parts.append(Markup('<text x="0" y="{}">{} {}</text>').format(top + 25, row + 1, short))
        parts.append(Markup('<text x="{}" y="28" text-anchor="middle">{}</text>').format(_column(row) + 18, row + 1))
        for column, value in enumerate(cells):
            kind = "self" if row == column else "near" if value >= max(cells[row] * _NEARLY, 0.01) else "far"
            parts.append(
                Markup(
                    '<rect class="{}" x="{}" y="{}" width="36" height="36" rx="4" fill-opacity="{:.2f}">'
                    "<title>{} for what {} says: {:.0f} %</title></rect>"
                ).format(kind, _column(column), top, 0.08 + 0.92 * value, found.names[column], name, 100 * value)
            )
    pairs = confused_pairs(found)
    said = "; ".join(f"{one} with {other}" for one, other in pairs) or "nothing is confused"
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(_NAMES + _CELL * count, _CELL * (count + 1))
    return Markup('<svg class="chart matrix" role="img" {} aria-label="Confused: {}">{}</svg>').format(
        size, said, Markup("").join(parts)
    )


def _column(number: int) -> int:
    return _NAMES + number * _CELL


_NEARLY = 0.9  # of how well a skill fits its own words: whatever comes so near may be taken for it


def confused_pairs(found: Confusion) -> list[tuple[str, str]]:
    """Which skill is taken for which, by their names."""
    return [
        (found.names[row], found.names[column])
        for row, cells in enumerate(found.rows)
        for column, value in enumerate(cells)
        if row != column and value >= max(cells[row] * _NEARLY, 0.01)
    ]


def share(label: str, part: int, of: int, *, marked: int = 0) -> Markup:
    """How much of something is taken, and of that what is marked as in vain."""
    whole = max(of, part, 1)
    return Markup(
        '<svg class="bar" role="img" viewBox="0 0 100 12" preserveAspectRatio="none" aria-label="{}">'
        '<rect class="back" x="0" y="0" width="100" height="12"/>'
        '<rect class="words" x="0" y="0" width="{:.2f}" height="12"/>'
        '<rect class="vain" x="0" y="0" width="{:.2f}" height="12"/></svg>'
    ).format(label, 100 * part / whole, 100 * marked / whole)


def _kind(effect: Effect) -> str:
    return "good" if effect.low > 0 else "bad" if effect.high < 0 else "unknown"
