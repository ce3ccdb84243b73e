"""Charts as SVG, rendered on the server, coloured by the stylesheet, each with a text alternative."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from markupsafe import Markup, escape

from habitus.app.learning.insights import ConfusionMatrix, SkillEffect, SkillUsageHistory
from habitus.app.library.browsing import MapDot, SkillMap
from habitus.evidence.findings import ItemFinding
from habitus.evidence.model import EffectEstimate
from habitus.improve.report import CandidateReport, VersionComparison
from habitus.journal.usage import DailyRequestCounts
from habitus.search.model import IndexHit
from habitus.use_counts import UsageCounts
from habitus.web.labels import describe_effect, describe_skill_uses

_WIDTH, _HEIGHT, _FOOT, _HEAD = 54, 136, 22, 20
# Length and height of an interval's line, which runs from 100 fewer to 100 more.
_LONG, _LINE = 420, 34
_SPARK = (96, 30)
_WEEK_STEP, _LEAST_WEEKS = 64, 8
_OUTCOME_COLOURS = (("unknown", "no_feedback"), ("bad", "failed"), ("good", "succeeded"))
_MAP, _NAMED = (960, 560), 10
_DAY, _DAYS_HIGH = 15, 110
# Least and greatest width of the labels, and the average width of a letter.
_SIDE, _WIDEST, _LETTER = 60, 190, 7


def render_usage_charts(usage: SkillUsageHistory) -> dict[str, Markup]:
    """Return the charts of uses by week and by version; empty if there are none."""
    versions = {f"v{number}": uses for number, uses in usage.versions}
    drawn = {}
    if any(uses.used for _, uses in usage.weeks):
        drawn["By week"] = render_weekly_lines(usage.weeks, usage.made)
    if any(uses.used for uses in versions.values()):
        drawn["By version"] = render_usage_bars("By version", versions)
    return drawn


def render_weekly_lines(weeks: Sequence[tuple[date, UsageCounts]], made: Mapping[date, Sequence[int]]) -> Markup:
    """Return a line each for succeeded, failed and no feedback, with a mark where versions were made."""
    earlier = [weeks[0][0] - timedelta(weeks=number) for number in range(_LEAST_WEEKS - len(weeks), 0, -1)]
    weeks = [*((week, UsageCounts()) for week in earlier), *weeks]
    most = max((getattr(uses, name) for _, uses in weeks for _, name in _OUTCOME_COLOURS), default=0) or 1
    wide = _WEEK_STEP * len(weeks)
    drawn, said = [], []
    for number, (week, uses) in enumerate(weeks):
        x = number * _WEEK_STEP + _WEEK_STEP / 2
        if versions := made.get(week):
            label = f"v{versions[-1]}" if len(versions) == 1 else f"v{versions[0]}–{versions[-1]}"
            drawn.append(
                f'<line class="version" x1="{x}" y1="{_HEAD - 4}" x2="{x}" y2="{_HEIGHT}"/>'
                f'<text x="{x}" y="12" text-anchor="middle">{label}</text>'
            )
        drawn.append(f'<text x="{x}" y="{_HEIGHT + 16}" text-anchor="middle">{week:%b} {week.day}</text>')
        said.append(
            f"{week:%b} {week.day}: {uses.succeeded} succeeded, {uses.failed} failed, {uses.no_feedback} unknown"
        )
    for kind, name in _OUTCOME_COLOURS:
        points = [
            (number * _WEEK_STEP + _WEEK_STEP / 2, _HEIGHT - (_HEIGHT - _HEAD) * getattr(uses, name) / most)
            for number, (_, uses) in enumerate(weeks)
        ]
        drawn.append(f'<polyline class="{kind}" points="{" ".join(f"{x},{y:.1f}" for x, y in points)}"/>')
        for (x, y), (week, uses) in zip(points, weeks, strict=True):
            if count := getattr(uses, name):
                mark = f'<circle class="{kind}" cx="{x}" cy="{y:.1f}" r="4"><title>{count}</title></circle>'
                drawn.append(_link_mark(mark, uses.links.get(name, ""), f"{week:%b} {week.day}: {count} {name}"))
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(wide, _HEIGHT + _FOOT)
    return Markup('<svg class="chart" role="group" {} aria-label="By week. {}">{}</svg>').format(
        size, "; ".join(said), Markup("".join(drawn))
    )


def render_version_effects(found: Sequence[ItemFinding]) -> Markup | None:
    """Return a chart of the effect of offering each version, or None if no feedback exists."""
    known = {f"v{one.item.version}": one.estimate.offering for one in reversed(found)}
    drawn = {label: effect for label, effect in known.items() if effect is not None}
    return render_intervals("Per 100 conversations", drawn) if drawn else None


def render_candidate_effects(found: Sequence[CandidateReport]) -> Markup | None:
    """Return a chart of each candidate's effect on the gate's tasks, compared with its base version, or None."""
    return _render_comparisons({f"no. {one.candidate.number}": one.gate for one in found})


def render_exam_effects(found: Sequence[CandidateReport]) -> Markup | None:
    """Return a chart of what each candidate's exam measured, or None if no exam was taken."""
    return _render_comparisons({f"exam of no. {one.candidate.number}": one.exam for one in found})


def _render_comparisons(found: Mapping[str, VersionComparison | None]) -> Markup | None:
    drawn = {
        label: EffectEstimate(value=one.difference, low=one.interval.low, high=one.interval.high)
        for label, one in found.items()
        if one is not None
    }
    return render_intervals("Per 100 rollouts", drawn) if drawn else None


def render_usage_bars(title: str, of: Mapping[str, UsageCounts]) -> Markup:
    """Return one stacked bar per label, from below: succeeded, failed, no feedback."""
    most = max((uses.used for uses in of.values()), default=0) or 1
    parts = [_render_usage_bar(number, label, uses, most) for number, (label, uses) in enumerate(of.items())]
    said = "; ".join(f"{label}: {uses.succeeded} succeeded, {uses.failed} failed" for label, uses in of.items())
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(_WIDTH * len(of) or _WIDTH, _HEIGHT + _FOOT)
    return Markup('<svg class="chart" role="group" {} aria-label="{}">{}</svg>').format(
        size, f"{title}. {said}", Markup("").join(parts)
    )


def _render_usage_bar(number: int, label: str, uses: UsageCounts, most: int) -> Markup:
    """Return one stacked bar with its total and label."""
    left, top = number * _WIDTH + 11, float(_HEIGHT)
    drawn = []
    for kind, name in (("good", "succeeded"), ("bad", "failed"), ("unknown", "no_feedback")):
        count = getattr(uses, name)
        tall = (_HEIGHT - _HEAD) * count / most
        top -= tall
        if count:
            place = f'x="{left}" y="{top:.1f}" width="{_WIDTH - 22}" height="{tall:.1f}"'
            mark = f'<rect class="{kind}" {place} rx="3"/>'
            drawn.append(_link_mark(mark, uses.links.get(name, ""), f"{label}: {count} {name}"))
    middle = left + (_WIDTH - 22) / 2
    if uses.used:
        total = f'<text x="{middle}" y="{top - 6:.1f}" text-anchor="middle">{uses.used}</text>'
        drawn.append(_link_mark(total, uses.links.get("used", ""), f"{label}: used {uses.used} times"))
    drawn.append(f'<text x="{middle}" y="{_HEIGHT + 16}" text-anchor="middle">{escape(label)}</text>')
    return Markup("".join(drawn))


def _link_mark(mark: str, address: str, label: str) -> str:
    """Return a mark of a chart as a link to what it counts, if there is an address."""
    said = escape(label.replace("no_feedback", "without feedback"))
    return f'<a href="{escape(address)}" aria-label="{said}">{mark}</a>' if address else mark


def render_sparkline(values: Sequence[float | None]) -> Markup:
    """Return a small line without labels; days without a value are skipped."""
    # A day without feedback is a gap, not zero per cent.
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    most = max((value for _, value in known), default=0) or 1
    step = _SPARK[0] / max(len(values) - 1, 1)
    points = " ".join(f"{at * step:.1f},{_SPARK[1] - 2 - (_SPARK[1] - 4) * value / most:.1f}" for at, value in known)
    size = 'viewBox="0 0 {0} {1}" width="{0}" height="{1}"'.format(*_SPARK)
    return Markup(f'<svg class="spark" aria-hidden="true" {size}><polyline points="{points}"/></svg>')


def render_daily_bars(of: Sequence[DailyRequestCounts]) -> Markup:
    """Return one stacked bar per day, from below: succeeded, failed, no feedback."""
    most = max((day.total for day in of), default=0) or 1
    drawn = [_render_daily_bar(number, day, most) for number, day in enumerate(of)]
    first, last = (f"{day.day:%b} {day.day.day}" for day in (of[0], of[-1]))
    wide = _DAY * len(of)
    drawn.append(f'<text x="0" y="{_DAYS_HIGH + 15}">{first}</text>')
    drawn.append(f'<text x="{wide}" y="{_DAYS_HIGH + 15}" text-anchor="end">{last}</text>')
    good, bad = sum(day.succeeded for day in of), sum(day.failed for day in of)
    said = f"{len(of)} days: {good} succeeded, {bad} failed, at most {most} on a day"
    size = f'viewBox="0 0 {wide} {_DAYS_HIGH + 20}"'
    return Markup('<svg class="chart wide" role="img" {} aria-label="{}">{}</svg>').format(
        Markup(size), said, Markup("".join(drawn))
    )


def _render_daily_bar(number: int, day: DailyRequestCounts, most: int) -> str:
    top, drawn = float(_DAYS_HIGH), []
    for kind, count in (("good", day.succeeded), ("bad", day.failed), ("unknown", day.no_feedback)):
        tall = (_DAYS_HIGH - 4) * count / most
        top -= tall
        if count:
            place = f'x="{number * _DAY + 2}" y="{top:.1f}" width="{_DAY - 4}" height="{tall:.1f}"'
            drawn.append(f'<rect class="{kind}" {place}/>')
    told = f"{day.day:%b} {day.day.day}: {day.succeeded} succeeded, {day.failed} failed"
    return f"<g><title>{told}</title>{''.join(drawn)}</g>" if drawn else ""


def render_skill_map(found: SkillMap) -> Markup:
    """Return a map with a dot per skill, placed by meaning; the most used ones and the areas are labelled."""
    most = max((dot.row.counters.used for dot in found.dots), default=0) or 1
    rings = [
        Markup('<g class="ring"><circle cx="{0}" cy="{1}" r="{2}"/><text x="{0}" y="{1}">{3} {4}</text></g>').format(
            *_get_map_position(one.x, one.y), round(16 + 6 * math.log10(one.number), 1), one.number, one.label
        )
        for one in found.clusters
    ]
    # Labels of all skills would cover each other, so only the most used have one.
    dots = [_render_skill_dot(dot, most, is_named=number < _NAMED) for number, dot in enumerate(found.dots)]
    areas = [
        Markup('<text class="area" x="{}" y="{}">{}</text>').format(*_get_map_position(one.x, one.y), one.label)
        for one in found.areas
    ]
    size = f'viewBox="0 0 {_MAP[0]} {_MAP[1]}"'
    # SVG paints in order: reversed, the most used skills end up on top.
    drawn = Markup("").join([*rings, *reversed(dots), *areas])
    return Markup('<svg class="chart wide" {} role="group" aria-label="Map of skills">{}</svg>').format(
        Markup(size), drawn
    )


def _render_skill_dot(dot: MapDot, most: int, *, is_named: bool) -> Markup:
    used, effect = dot.row.counters.used, dot.row.effect
    kind = "unknown" if effect is None else "good" if effect.low > 0 else "bad" if effect.high < 0 else "unknown"
    x, y = _get_map_position(dot.x, dot.y)
    title = (dot.row.item.summary.title if dot.row.item.summary else "") or dot.row.item.name
    anchor = "end" if x > _MAP[0] * 0.8 else "start"
    return Markup(
        '<a href="/skills/{}"{} data-card="{}" aria-label="{}"><circle class="{}" cx="{}" cy="{}" r="{}"/>'
        '<text x="{}" y="{}" text-anchor="{}">{}</text></a>'
    ).format(
        dot.row.item.name,
        Markup(' class="named"') if is_named and used else "",
        _describe_dot(dot),
        title,
        kind,
        x,
        y,
        # The square root makes the area, not the radius, proportional to use.
        round(4 + 9 * math.sqrt(used / most), 1),
        x + (-9 if anchor == "end" else 9),
        y - 8,
        anchor,
        title,
    )


# Characters of when-to-use that the card of a dot shows.
_CARD_CHARS = 90


def _describe_dot(dot: MapDot) -> str:
    """Return the card of a skill on the map: when to use it, its uses and its effect."""
    about = dot.row.item.summary.when_to_use_line if dot.row.item.summary else ""
    effect = "" if dot.row.effect is None else f", {describe_effect(dot.row.effect)}"
    shown = about if len(about) <= _CARD_CHARS else f"{about[: _CARD_CHARS - 1]}…"
    return f"{shown}\n{describe_skill_uses(dot.row.counters)}{effect}"


def _get_map_position(x: float, y: float) -> tuple[float, float]:
    return round(30 + x * (_MAP[0] - 60), 1), round(24 + y * (_MAP[1] - 48), 1)


def render_intervals(title: str, of: Mapping[str, EffectEstimate], line: int = _LINE, long: int = _LONG) -> Markup:
    """Return one line per label with the confidence interval and its middle, in conversations of 100."""
    tall = line * len(of)
    longest = max(map(len, of))
    side = min(max(_SIDE, _LETTER * longest + 12), _WIDEST) if longest else 6
    parts = [
        _render_interval(number * line + line / 2, label, effect, side, long)
        for number, (label, effect) in enumerate(of.items())
    ]
    center = _get_axis_position(0, side, long)
    zero = f'<line class="zero" x1="{center}" y1="0" x2="{center}" y2="{tall}"/>'
    foot = (
        f'<text x="{_get_axis_position(-1, side, long)}" y="{tall + 16}">fewer succeed</text>'
        f'<text x="{_get_axis_position(1, side, long)}" y="{tall + 16}" text-anchor="end">more succeed</text>'
    )
    said = "; ".join(
        f"{label}: {_format_of_100(one.low)} to {_format_of_100(one.high)} of 100" for label, one in of.items()
    )
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(side + long + 10, tall + _FOOT)
    drawn = Markup(zero) + Markup("").join(parts) + Markup(foot)
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}</svg>').format(size, f"{title}. {said}", drawn)


def _render_interval(middle: float, label: str, effect: EffectEstimate, side: int, long: int) -> Markup:
    """Return one interval's line, dot and shortened label."""
    kind = "good" if effect.low > 0 else "bad" if effect.high < 0 else "unknown"
    short = label if len(label) * _LETTER <= side else f"{label[: side // _LETTER - 1]}…"
    low, value, high = (_get_axis_position(share, side, long) for share in (effect.low, effect.value, effect.high))
    return Markup(
        f'<text x="0" y="{middle + 4}">{escape(short)}</text>'
        f'<line class="{kind}" x1="{low}" y1="{middle}" x2="{high}" y2="{middle}"/>'
        f'<circle class="{kind}" cx="{value}" cy="{middle}" r="5"/>'
    )


def _get_axis_position(share: float, side: int, long: int) -> float:
    """Return the x position of a share between -1 and 1."""
    return round(side + (min(max(share, -1.0), 1.0) + 1) / 2 * long, 1)


def _format_of_100(share: float) -> str:
    return f"{100 * share:+.0f}"


# Parts of a score as search names them, mapped to the groups that the page shows.
_SCORE_PART_LABELS = {
    **dict.fromkeys(("meaning", "part"), "meaning"),
    **dict.fromkeys(("name", "lexical.name"), "name"),
    **dict.fromkeys(("used_meaning", "used_words", "used_before"), "use"),
    **dict.fromkeys(("says_when", "detail"), "description"),
}


def render_relevance_bar(hit: IndexHit, threshold: float) -> Markup:
    """Return a bar as long as a skill is relevant to a request, split into its reasons, with the offer threshold."""
    shares: dict[str, float] = {}
    for name, value in hit.parts.items():
        kind = _SCORE_PART_LABELS.get(name, "words")
        # Negative parts lower the score but can't be drawn as a width.
        shares[kind] = shares.get(kind, 0.0) + max(value, 0.0)
    total = sum(shares.values()) or 1.0
    drawn, at = [], 0.0
    for kind in RELEVANCE_PARTS:
        wide = 100 * hit.score * shares.get(kind, 0.0) / total
        css = "name-part" if kind == "name" else kind
        drawn.append(f'<rect class="{css}" x="{at:.2f}" y="0" width="{wide:.2f}" height="12"/>')
        at += wide
    said = ", ".join(f"{kind} {100 * shares[kind] / total:.0f} %" for kind in RELEVANCE_PARTS if shares.get(kind))
    line = f'<line x1="{100 * threshold:.2f}" y1="0" x2="{100 * threshold:.2f}" y2="12"/>'
    label = f"Relevance {100 * hit.score:.0f} %: {said}. Nothing below {100 * threshold:.0f} % is offered."
    return Markup(
        '<svg class="bar" role="img" viewBox="0 0 100 12" preserveAspectRatio="none" aria-label="{}">'
        '<rect class="back" x="0" y="0" width="100" height="12"/>{}{}</svg>'
    ).format(label, Markup("".join(drawn)), Markup(line))


RELEVANCE_PARTS = ("words", "meaning", "name", "use", "description")
_WEEK_WIDTH, _TALL = 40, 56


def render_effect_over_time(one: SkillEffect) -> Markup:
    """Return the effect as it was known week by week, each with its interval."""
    reach = max((max(abs(at.effect.low), abs(at.effect.high)) for at in one.over_time if at.effect), default=0) or 1.0
    drawn, said = [], []
    for number, at in enumerate(one.over_time):
        if at.effect is None:
            continue
        effect, x = at.effect, number * _WEEK_WIDTH + _WEEK_WIDTH / 2
        low, value, high = (_TALL / 2 * (1 - each / reach) for each in (effect.low, effect.value, effect.high))
        kind = _classify_effect(effect)
        drawn.append(f'<line class="{kind}" x1="{x}" y1="{low:.1f}" x2="{x}" y2="{high:.1f}"/>')
        drawn.append(f'<circle class="{kind}" cx="{x}" cy="{value:.1f}" r="4"/>')
        said.append(f"{at.at:%b} {at.at.day}: {100 * effect.low:+.0f} to {100 * effect.high:+.0f}")
    wide = _WEEK_WIDTH * len(one.over_time)
    zero = f'<line class="zero" x1="0" y1="{_TALL / 2}" x2="{wide}" y2="{_TALL / 2}"/>'
    size = Markup('viewBox="0 -4 {0} {2}" width="{0}" height="{1}"').format(wide, _TALL, _TALL + 8)
    label = f"{one.name}, more successes per 100 conversations. {'; '.join(said)}"
    return Markup('<svg class="chart" role="img" {} aria-label="{}">{}{}</svg>').format(
        size, label, Markup(zero), Markup("".join(drawn))
    )


_CELL, _NAMES = 40, 210


def render_confusion_matrix(found: ConfusionMatrix) -> Markup:
    """Return a matrix of skills: the darker a cell, the better the column's skill matches the row's own description."""
    count = len(found.names)
    parts = []
    for row, (name, cells) in enumerate(zip(found.names, found.rows, strict=True)):
        top = (row + 1) * _CELL
        short = name if len(name) <= 26 else f"{name[:25]}…"
        parts.append(Markup('<text x="0" y="{}">{} {}</text>').format(top + 25, row + 1, short))
        parts.append(
            Markup('<text x="{}" y="28" text-anchor="middle">{}</text>').format(_get_column_position(row) + 18, row + 1)
        )
        for column, value in enumerate(cells):
            kind = "self" if row == column else "near" if value >= max(cells[row] * _CONFUSION_RATIO, 0.01) else "far"
            parts.append(
                Markup(
                    '<rect class="{}" x="{}" y="{}" width="36" height="36" rx="4" fill-opacity="{:.2f}">'
                    "<title>{} for the description of {}: {:.0f} %</title></rect>"
                ).format(
                    kind, _get_column_position(column), top, 0.08 + 0.92 * value, found.names[column], name, 100 * value
                )
            )
    pairs = list_confused_pairs(found)
    said = "; ".join(f"{one} with {other}" for one, other in pairs) or "none"
    size = Markup('viewBox="0 0 {0} {1}" width="{0}" height="{1}"').format(_NAMES + _CELL * count, _CELL * (count + 1))
    return Markup('<svg class="chart matrix" role="img" {} aria-label="Confused: {}">{}</svg>').format(
        size, said, Markup("").join(parts)
    )


def _get_column_position(number: int) -> int:
    return _NAMES + number * _CELL


# A skill that reaches this share of another's own score may be mistaken for it.
_CONFUSION_RATIO = 0.9


def list_confused_pairs(found: ConfusionMatrix) -> list[tuple[str, str]]:
    """Return the pairs of names in which the second skill may be chosen instead of the first."""
    return [
        (found.names[row], found.names[column])
        for row, cells in enumerate(found.rows)
        for column, value in enumerate(cells)
        if row != column and value >= max(cells[row] * _CONFUSION_RATIO, 0.01)
    ]


def render_span(offset: float, length: float, whole: float, *, is_bad: bool = False) -> Markup:
    """Return a bar that shows when a part of something began and how long it took."""
    begin = min(99.0, 100 * offset / max(whole, 0.001))
    wide = max(1.0, min(100 - begin, 100 * length / max(whole, 0.001)))
    return Markup(
        '<svg class="bar" aria-hidden="true" viewBox="0 0 100 12" preserveAspectRatio="none">'
        '<rect class="back" x="0" y="5" width="100" height="2"/>'
        '<rect class="{}" x="{:.2f}" y="1" width="{:.2f}" height="10"/></svg>'
    ).format("bad" if is_bad else "words", begin, wide)


def render_share_bar(label: str, part: int, of: int, *, marked: int = 0) -> Markup:
    """Return a bar that shows a part of a whole, with a marked section for the wasted part."""
    whole = max(of, part, 1)
    return Markup(
        '<svg class="bar" role="img" viewBox="0 0 100 12" preserveAspectRatio="none" aria-label="{}">'
        '<rect class="back" x="0" y="0" width="100" height="12"/>'
        '<rect class="words" x="0" y="0" width="{:.2f}" height="12"/>'
        '<rect class="vain" x="0" y="0" width="{:.2f}" height="12"/></svg>'
    ).format(label, 100 * part / whole, 100 * marked / whole)


def _classify_effect(effect: EffectEstimate) -> str:
    """Return the CSS class of an effect: good or bad only if the whole interval agrees."""
    return "good" if effect.low > 0 else "bad" if effect.high < 0 else "unknown"
