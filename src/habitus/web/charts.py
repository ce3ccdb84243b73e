"""Charts as SVG, rendered on the server, coloured by the stylesheet, each with a text alternative."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta

from markupsafe import Markup

from habitus.app.learning.insights import SkillEffectHistory, SkillUsageHistory
from habitus.app.library.browsing import SkillMap, SkillMapCluster, SkillMapDot
from habitus.evidence.findings import ItemFinding
from habitus.evidence.model import EffectEstimate
from habitus.improve.report import CandidateReport, VersionComparison
from habitus.journal.usage import DailyRequestCounts
from habitus.search.model import IndexHit
from habitus.use_counts import UsageCounts
from habitus.web.labels import describe_offer_effect, get_effect_label_and_css_class

# The outcomes from the bottom of a stacked bar to its top, each with its CSS class.
_OUTCOMES = (("good", "succeeded"), ("bad", "failed"), ("unknown", "no_feedback"))


def _render_svg_element(name: str, *inside: str, **attributes: str | float | None) -> Markup:
    """Return an SVG element; `css` is its class, `_` stands for `-`, and an attribute that is None is left out."""
    given = Markup("").join(
        Markup(' {}="{}"').format(
            "class" if key == "css" else key.replace("_", "-"), round(value, 2) if isinstance(value, float) else value
        )
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, Markup("").join(inside))


def _wrap_elements_in_chart_svg(
    label: str, size: tuple[int, int], *inside: str, css: str = "chart", role: str = "img", is_wide: bool = False
) -> Markup:
    """Return a chart of this size, or with `is_wide` as wide as its place."""
    width, height = (None, None) if is_wide else size
    css = f"{css} wide" if is_wide else css
    box = f"0 0 {size[0]} {size[1]}"
    return _render_svg_element(
        "svg", *inside, css=css, role=role, viewBox=box, width=width, height=height, aria_label=label
    )


def _wrap_elements_in_bar_svg(label: str | None, *inside: str, back: tuple[int, int] = (0, 12)) -> Markup:
    """Return a bar as wide as its place, with x from 0 to 100; without a label it is decoration."""
    ground = _render_svg_element("rect", css="back", x=0, y=back[0], width=100, height=back[1])
    described = {"aria_hidden": "true"} if label is None else {"role": "img", "aria_label": label}
    box = {"viewBox": "0 0 100 12", "preserveAspectRatio": "none"}
    return _render_svg_element("svg", ground, *inside, css="bar", **box, **described)


def _get_effect_css_class(effect: EffectEstimate) -> str:
    """Return the CSS class of an effect: good or bad only if the whole interval agrees."""
    return get_effect_label_and_css_class(effect)[1] or "unknown"


def render_usage_charts(usage: SkillUsageHistory) -> dict[str, Markup]:
    """Return the charts of uses by week and by version; empty if there are none."""
    versions = {f"v{number}": uses for number, uses in usage.versions}
    drawn = {}
    if any(uses.used for _, uses in usage.weeks):
        drawn["By week"] = _render_weekly_outcome_lines(usage.weeks, usage.made)
    if any(uses.used for uses in versions.values()):
        drawn["By version"] = _render_outcome_bars_by_version(versions)
    return drawn


_HEIGHT, _FOOT, _HEAD = 136, 22, 20
_WEEK_STEP, _LEAST_WEEKS = 64, 8


def _render_weekly_outcome_lines(
    weeks: Sequence[tuple[date, UsageCounts]], made: Mapping[date, Sequence[int]]
) -> Markup:
    """Return a line each for succeeded, failed and no feedback, with a mark where versions were made."""
    earlier = [weeks[0][0] - timedelta(weeks=number) for number in range(_LEAST_WEEKS - len(weeks), 0, -1)]
    weeks = [*((week, UsageCounts()) for week in earlier), *weeks]
    most = max((getattr(uses, name) for _, uses in weeks for _, name in _OUTCOMES), default=0) or 1
    drawn, said = [], []
    for number, (week, uses) in enumerate(weeks):
        x = number * _WEEK_STEP + _WEEK_STEP / 2
        if versions := made.get(week):
            label = f"v{versions[-1]}" if len(versions) == 1 else f"v{versions[0]}–{versions[-1]}"
            drawn.append(_render_svg_element("line", css="version", x1=x, y1=_HEAD - 4, x2=x, y2=_HEIGHT))
            drawn.append(_render_svg_element("text", label, x=x, y=12, text_anchor="middle"))
        drawn.append(_render_svg_element("text", _format_day(week), x=x, y=_HEIGHT + 16, text_anchor="middle"))
        said.append(
            f"{_format_day(week)}: {_describe_succeeded_and_failed_counts(uses)}, {uses.no_feedback} without feedback"
        )
    # The last line is painted on top.
    for css, name in reversed(_OUTCOMES):
        points = [
            (number * _WEEK_STEP + _WEEK_STEP / 2, _HEIGHT - (_HEIGHT - _HEAD) * getattr(uses, name) / most)
            for number, (_, uses) in enumerate(weeks)
        ]
        drawn.append(_render_svg_element("polyline", css=css, points=" ".join(f"{x},{y:.1f}" for x, y in points)))
        for (x, y), (week, uses) in zip(points, weeks, strict=True):
            if count := getattr(uses, name):
                mark = _render_svg_element("circle", _render_svg_element("title", str(count)), css=css, cx=x, cy=y, r=4)
                drawn.append(_render_linked_mark(mark, uses, name, f"{_format_day(week)}: {count}"))
    size = (_WEEK_STEP * len(weeks), _HEIGHT + _FOOT)
    drawn.append(_render_svg_element("text", f"{most:,}", x=0, y=_HEAD + 4))
    return _wrap_elements_in_chart_svg(f"By week. {'; '.join(said)}", size, *drawn, css="chart weeks", role="group")


def _format_day(day: date) -> str:
    return f"{day:%b} {day.day}"


def _describe_succeeded_and_failed_counts(counts: UsageCounts | DailyRequestCounts) -> str:
    return f"{counts.succeeded} succeeded, {counts.failed} failed"


def _render_linked_mark(mark: Markup, uses: UsageCounts, name: str, label: str) -> Markup:
    """Return a mark of a chart as a link to the uses that it counts, if there is an address."""
    said = f"{label} {_get_outcome_label(name)}"
    return _render_svg_element("a", mark, href=uses.links[name], aria_label=said) if uses.links.get(name) else mark


def _get_outcome_label(name: str) -> str:
    return name.replace("no_feedback", "without feedback")


_COLUMN = 54


def _render_outcome_bars_by_version(versions: Mapping[str, UsageCounts]) -> Markup:
    """Return one stacked bar per version, each with its total."""
    most = max(uses.used for uses in versions.values())
    drawn = []
    for number, (label, uses) in enumerate(versions.items()):
        left, width, top = number * _COLUMN + 11, _COLUMN - 22, float(_HEIGHT)
        for name, mark in _iterate_segments_of_outcome_bar(uses, left, width, _HEIGHT, (_HEIGHT - _HEAD) / most):
            drawn.append(_render_linked_mark(mark, uses, name, f"{label}: {getattr(uses, name)}"))
            top -= (_HEIGHT - _HEAD) * getattr(uses, name) / most
        if uses.used:
            total = _render_svg_element("text", str(uses.used), x=left + width / 2, y=top - 6, text_anchor="middle")
            drawn.append(_render_linked_mark(total, uses, "used", f"{label}: {uses.used} times"))
        drawn.append(_render_svg_element("text", label, x=left + width / 2, y=_HEIGHT + 16, text_anchor="middle"))
    said = "; ".join(f"{label}: {_describe_succeeded_and_failed_counts(uses)}" for label, uses in versions.items())
    return _wrap_elements_in_chart_svg(
        f"By version. {said}", (_COLUMN * len(versions), _HEIGHT + _FOOT), *drawn, role="group"
    )


def _iterate_segments_of_outcome_bar(
    counts: UsageCounts | DailyRequestCounts, left: float, width: float, bottom: float, scale: float
) -> Iterator[tuple[str, Markup]]:
    """Yield the outcomes that occurred with their part of a stacked bar, from below."""
    for css, name in _OUTCOMES:
        if count := getattr(counts, name):
            bottom -= scale * count
            yield name, _render_svg_element("rect", css=css, x=left, y=bottom, width=width, height=scale * count)


_DAY, _DAYS_HIGH = 15, 110


def render_daily_outcome_bars(days: Sequence[DailyRequestCounts], locate: Callable[[date, str], str]) -> Markup:
    """Return one stacked bar per day, from below: succeeded, failed, no feedback.

    `locate` returns the address of the requests of a day with an outcome.
    """
    most = max((day.total for day in days), default=0) or 1
    drawn = []
    for number, day in enumerate(days):
        stack = _iterate_segments_of_outcome_bar(day, number * _DAY + 2, _DAY - 4, _DAYS_HIGH, (_DAYS_HIGH - 4) / most)
        title = _render_svg_element("title", f"{_format_day(day.day)}: {_describe_succeeded_and_failed_counts(day)}")
        # The sums below the chart are links too, so Tab does not stop at each bar.
        linked = [
            _render_svg_element(
                "a",
                mark,
                href=locate(day.day, name),
                tabindex=-1,
                aria_label=f"{getattr(day, name)} {_get_outcome_label(name)}",
            )
            for name, mark in stack
        ]
        drawn.append(_render_svg_element("g", title, *linked))
    wide, low = _DAY * len(days), _DAYS_HIGH + 15
    drawn.append(_render_svg_element("text", _format_day(days[0].day), x=0, y=low))
    drawn.append(_render_svg_element("text", _format_day(days[-1].day), x=wide, y=low, text_anchor="end"))
    good, bad = sum(day.succeeded for day in days), sum(day.failed for day in days)
    said = f"{len(days)} days: {good} succeeded, {bad} failed, at most {most} on a day"
    return _wrap_elements_in_chart_svg(
        said, (wide, _DAYS_HIGH + 20), *drawn, css="chart days", role="group", is_wide=True
    )


_SPARK = (96, 30)


def render_sparkline(values: Sequence[float | None]) -> Markup:
    """Return a small line without labels; days without a value are skipped."""
    # A day without feedback is a gap, not zero per cent.
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    most = max((value for _, value in known), default=0) or 1
    step = _SPARK[0] / max(len(values) - 1, 1)
    points = " ".join(f"{at * step:.1f},{_SPARK[1] - 2 - (_SPARK[1] - 4) * value / most:.1f}" for at, value in known)
    size = 'viewBox="0 0 {0} {1}" width="{0}" height="{1}"'.format(*_SPARK)
    # Written out, because a list of skills has one in every row.
    return Markup(f'<svg class="spark" aria-hidden="true" {size}><polyline points="{points}"/></svg>')


def render_version_effects(found: Sequence[ItemFinding]) -> Markup | None:
    """Return a chart of the effect of offering each version, or None if no feedback exists."""
    known = {f"v{one.item.version}": one.estimate.offering for one in reversed(found)}
    drawn = {label: effect for label, effect in known.items() if effect is not None}
    return render_confidence_intervals("Per 100 conversations", drawn) if drawn else None


def render_candidate_effects(found: Sequence[CandidateReport]) -> Markup | None:
    """Return a chart of each candidate's effect on the gate's tasks, compared with its base version, or None."""
    return _render_version_comparisons({f"no. {one.candidate.number}": one.gate for one in found})


def render_exam_effects(found: Sequence[CandidateReport]) -> Markup | None:
    """Return a chart of what each candidate's exam measured, or None if no exam was taken."""
    return _render_version_comparisons({f"exam of no. {one.candidate.number}": one.exam for one in found})


def _render_version_comparisons(found: Mapping[str, VersionComparison | None]) -> Markup | None:
    drawn = {
        label: EffectEstimate(value=one.difference, low=one.interval.low, high=one.interval.high)
        for label, one in found.items()
        if one is not None
    }
    return render_confidence_intervals("Per 100 rollouts", drawn) if drawn else None


def render_confidence_intervals(title: str, effects: Mapping[str, EffectEstimate]) -> Markup:
    """Return one line per label with the confidence interval, its middle and the number, from 100 fewer to 100 more."""

    def locate(share: float) -> float:
        return 50 * (min(max(share, -1.0), 1.0) + 1)

    rows = [
        Markup("<span>{}</span>{}<b>{:+.0f}</b>").format(label, _render_interval(effect, locate), 100 * effect.value)
        for label, effect in effects.items()
    ]
    said = "; ".join(f"{label}: {_describe_interval(effect)} of 100" for label, effect in effects.items())
    ends = Markup('<p class="ends"><span>fewer succeed</span><span>more succeed</span></p>')
    return Markup('<div class="intervals" role="img" aria-label="{}. {}">{}{}</div>').format(
        title, said, Markup("").join(rows), ends
    )


def _render_interval(effect: EffectEstimate, locate: Callable[[float], float]) -> Markup:
    """Return an interval as wide as its place; the width of its strokes, and so its point, does not follow."""
    css, middle = _get_effect_css_class(effect), locate(effect.value)
    ends = (
        ("zero", 50.0, 50.0, 0),
        (css, locate(effect.low), locate(effect.high), 6),
        (f"{css} point", middle, middle, 6),
    )
    drawn = (
        _render_svg_element("line", css=name, x1=low, x2=high, y1=top, y2=12 - top) for name, low, high, top in ends
    )
    return _render_svg_element("svg", *drawn, css="chart", viewBox="0 0 100 12", preserveAspectRatio="none")


def _describe_interval(effect: EffectEstimate) -> str:
    return f"{100 * effect.low:+.0f} to {100 * effect.high:+.0f}"


_WEEK_WIDTH, _TALL = 40, 64


def render_effect_over_time(skill: SkillEffectHistory) -> Markup:
    """Return the effect as it was known week by week, each with its interval."""
    known = [(number, week.at, week.effect) for number, week in enumerate(skill.over_time) if week.effect]
    reach = max((max(abs(effect.low), abs(effect.high)) for _, _, effect in known), default=0) or 1.0

    def locate(share: float) -> float:
        return _TALL / 2 - (_TALL / 2 - 4) * share / reach

    wide = _WEEK_WIDTH * len(skill.over_time)
    drawn = [_render_svg_element("line", css="zero", x1=0, y1=locate(0), x2=wide, y2=locate(0))]
    for number, _, effect in known:
        x, css = number * _WEEK_WIDTH + _WEEK_WIDTH / 2, _get_effect_css_class(effect)
        drawn.append(_render_svg_element("line", css=css, x1=x, y1=locate(effect.low), x2=x, y2=locate(effect.high)))
        drawn.append(_render_svg_element("circle", css=css, cx=x, cy=locate(effect.value), r=4))
    said = "; ".join(f"{_format_day(at)}: {_describe_interval(effect)}" for _, at, effect in known)
    return _wrap_elements_in_chart_svg(
        f"{skill.name}, more successes per 100 conversations. {said}", (wide, _TALL), *drawn
    )


# Dots whose names are shown.
_MAP, _FEW = (960, 560), 24
# Characters of when-to-use that the card of a dot shows.
_CARD_CHARS = 90


def render_skill_map(found: SkillMap) -> Markup:
    """Return a map with a dot per skill, placed by meaning; the most used ones and the areas are labelled."""
    most = max((dot.row.counters.used for dot in found.dots), default=0) or 1
    named = _choose_skills_with_labels(found)
    dots = [_render_skill_dot(dot, most, is_named=dot.row.item.name in named) for dot in found.dots]
    rings = [_render_cluster_ring(area) for area in found.clusters]
    areas = [_render_area_label(area) for area in found.areas]
    # SVG paints in order: reversed, the most used skills end up on top.
    return _wrap_elements_in_chart_svg(
        "Map of skills", _MAP, *rings, *reversed(dots), *areas, role="group", is_wide=True
    )


def _choose_skills_with_labels(found: SkillMap) -> set[str]:
    """Return the names of the most used skills, or of all if there are few; the page hides labels that overlap."""
    is_small = len(found.dots) <= _FEW
    return {dot.row.item.name for dot in found.dots[:_FEW] if is_small or dot.row.counters.used}


def _render_skill_dot(dot: SkillMapDot, most: int, *, is_named: bool) -> Markup:
    """Return a dot with its label and the text of its card: when to use the skill, whether it was used, its effect."""
    row, title, (x, y) = dot.row, _get_dot_title(dot), _scale_to_map_coordinates(dot.x, dot.y)
    about = row.item.summary.when_to_use_line if row.item.summary else ""
    effect = "" if row.effect is None else f", {describe_offer_effect(row.effect)}"
    # A card can't be clicked, so it has no number that could be opened; the dot opens the skill, which has them.
    use = "used" if row.counters.used else "not used yet"
    shown = about if len(about) <= _CARD_CHARS else f"{about[: _CARD_CHARS - 1]}…"
    # The square root makes the area, not the radius, proportional to use.
    radius = 4 + 9 * math.sqrt(row.counters.used / most)
    css = _get_effect_css_class(row.effect) if row.effect else "unknown"
    anchor = _get_label_anchor(x)
    return _render_svg_element(
        "a",
        _render_svg_element("circle", css=css, cx=x, cy=y, r=radius),
        _render_svg_element("text", title, x=x - 9 if anchor == "end" else x + 9, y=y - 8, text_anchor=anchor),
        href=f"/skills/{row.item.name}",
        css="named" if is_named else None,
        data_card=f"{shown}\n{use}{effect}",
        aria_label=title,
    )


def _render_cluster_ring(area: SkillMapCluster) -> Markup:
    """Return a ring that stands for several rarely used skills."""
    x, y = _scale_to_map_coordinates(area.x, area.y)
    ring = _render_svg_element("circle", cx=x, cy=y, r=16 + 6 * math.log10(area.number))
    return _render_svg_element(
        "g",
        ring,
        _render_svg_element("text", f"{area.number} {area.label}", x=x, y=y, text_anchor="middle"),
        css="ring",
    )


def _render_area_label(area: SkillMapCluster) -> Markup:
    x, y = _scale_to_map_coordinates(area.x, area.y)
    return _render_svg_element("text", area.label, css="area", x=x, y=y, text_anchor=_get_label_anchor(x) or "middle")


def _get_dot_title(dot: SkillMapDot) -> str:
    return (dot.row.item.summary.title if dot.row.item.summary else "") or dot.row.item.name


def _scale_to_map_coordinates(x: float, y: float) -> tuple[float, float]:
    return 30 + x * (_MAP[0] - 60), 24 + y * (_MAP[1] - 48)


def _get_label_anchor(x: float) -> str | None:
    """Return where a label begins that would otherwise be cut off at an edge of the map."""
    return "end" if x > _MAP[0] * 0.8 else "start" if x < _MAP[0] * 0.2 else None


# Parts of a score as search names them, mapped to the groups that the page shows.
_SCORE_PART_LABELS = {
    **dict.fromkeys(("meaning", "part"), "meaning"),
    **dict.fromkeys(("name", "lexical.name"), "name"),
    **dict.fromkeys(("used_meaning", "used_words", "used_before"), "use"),
    **dict.fromkeys(("says_when", "detail"), "description"),
}
RELEVANCE_PARTS = ("words", "meaning", "name", "use", "description")


def render_relevance_bar(hit: IndexHit, threshold: float) -> Markup:
    """Return a bar as long as a skill is relevant to a request, split into its reasons, with the offer threshold."""
    shares = dict.fromkeys(RELEVANCE_PARTS, 0.0)
    for name, value in hit.parts.items():
        # Negative parts lower the score but can't be drawn as a width.
        shares[_SCORE_PART_LABELS.get(name, "words")] += max(value, 0.0)
    total = sum(shares.values()) or 1.0
    drawn, at = [], 0.0
    for kind, share in shares.items():
        wide = 100 * hit.score * share / total
        drawn.append(
            _render_svg_element(
                "rect", css="name-part" if kind == "name" else kind, x=round(at, 2), y=0, width=wide, height=12
            )
        )
        at += wide
    drawn.append(_render_svg_element("line", x1=100 * threshold, y1=0, x2=100 * threshold, y2=12))
    said = ", ".join(f"{kind} {100 * share / total:.0f} %" for kind, share in shares.items() if share)
    label = f"Relevance {100 * hit.score:.0f} %: {said}. Nothing below {100 * threshold:.0f} % is offered."
    return _wrap_elements_in_bar_svg(label, *drawn)


def render_timeline_span(offset: float, length: float, whole: float, *, is_bad: bool = False) -> Markup:
    """Return a bar that shows when a part of something began and how long it took."""
    begin = min(99.0, 100 * offset / max(whole, 0.001))
    wide = max(1.0, min(100 - begin, 100 * length / max(whole, 0.001)))
    span = _render_svg_element("rect", css="bad" if is_bad else "words", x=begin, y=1, width=wide, height=10)
    return _wrap_elements_in_bar_svg(None, span, back=(5, 2))


def render_share_bar(label: str, part: int, of: int, *, marked: int = 0) -> Markup:
    """Return a bar that shows a part of a whole, with a marked section for the wasted part."""
    whole = max(of, part, 1)
    shares = (("words", 100 * part / whole), ("vain", 100 * marked / whole))
    return _wrap_elements_in_bar_svg(
        label, *(_render_svg_element("rect", css=css, x=0, y=0, width=wide, height=12) for css, wide in shares)
    )
