"""`habitus evidence` and `habitus outcome`: shows the measured effect of items and records how a turn went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from habitus.app.learning.evidence import USUAL_SHARE
from habitus.app.learning.learning import Judged
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.evidence import EvidenceFilter, EvidencePage, EvidencePlans, TurnJudgement
from habitus.cli import output
from habitus.cli.completion import Wide
from habitus.evidence.estimation import Arm, Basis, Effect
from habitus.evidence.findings import Finding, Plan
from habitus.evidence.model import Item, ItemKind
from habitus.text import one_line

# Below 100 tokens, an effect per 1,000 tokens says more about rounding than about the item.
_WEIGHTY = 100


def show(context: typer.Context, wanted: EvidenceFilter, done: EvidencePage, wide: Wide = False) -> None:
    if wanted.name is not None:
        for one in done.items:
            _print_one(one, done.lessons)
    else:
        _print_all(done.items, done.lessons, is_wide=wide)
    output.say_more(len(done.items), done.total, done.next)
    output.say(_withholding(done.withhold), style="dim")


def _print_all(items: Sequence[Finding], lessons: Mapping[str, str], *, is_wide: bool) -> None:
    """Print a table and a plot of the items with a known effect, and how many others there are."""
    # Items without any feedback would bury the few that are known.
    known = sorted((one for one in items if is_wide or _effect(one) is not None), key=_sort_key, reverse=True)
    if not items:
        output.say("Nothing was offered yet.")
        return
    rows = [
        (
            *_name_and_version(one.item, lessons),
            _units(one.estimate.offered),
            _units(one.estimate.withheld),
            one.sentence,
        )
        for one in known
    ]
    if rows:
        output.table(("what", "version", "offered", "withheld", "known"), rows, wide="known")
        output.say()
        _print_plot(lessons, [one for one in known if _effect(one) is not None])
    if len(known) < len(items):
        more = output.count_of(len(items) - len(known), "item")
        output.say(f"{more} of which nothing is known yet: nobody said how those conversations went.")


def _print_plot(lessons: Mapping[str, str], items: Sequence[Finding]) -> None:
    """Print the confidence interval of each item on a common axis."""
    labels = [" ".join(_name_and_version(one.item, lessons)) for one in items]
    # Labels are padded by hand, because the plot has to start in the same column on every line.
    width = max(map(len, labels), default=0)
    output.say(f"{'':<{width}}  {axis(is_unicode=output.is_unicode())}")
    for label, one in zip(labels, items, strict=True):
        output.say(f"{label:<{width}}  {interval(_effect(one), is_unicode=output.is_unicode())}")


def _print_one(one: Finding, lessons: Mapping[str, str]) -> None:
    """Print an item's effect with the counts behind it."""
    estimate = one.estimate
    output.say(" ".join(_name_and_version(one.item, lessons)))
    output.say(axis(is_unicode=output.is_unicode()), style="dim")
    output.say(interval(_effect(one), is_unicode=output.is_unicode()))
    output.say(one.sentence)
    facts = [
        ("verdict", f"{one.judgement.verdict}. {one.judgement.reason}"),
        ("offered", _arm(estimate.offered)),
        ("withheld", _arm(estimate.withheld)),
        ("in trials", f"{one.trial_offered:,} with it, {one.trial_withheld:,} without" if _is_tried(one) else ""),
        ("used", f"in {estimate.used:,}, without a trace in {estimate.ignored:,}" if estimate.used else "never"),
        ("using it", "" if estimate.using is None else f"changes {_range(estimate.using)} where it was used"),
        ("weak signs", "" if estimate.weak is None else f"{_range(estimate.weak)}; they decide nothing"),
        ("for tokens", _per_tokens(estimate.per_1000_tokens) if estimate.tokens >= _WEIGHTY else ""),
    ]
    for label, value in facts:
        if value:
            output.say(f"  {label:<10}  {one_line(value)}")
    output.say()


def plan(context: typer.Context, wanted: Nothing, done: EvidencePlans, wide: Wide = False) -> None:
    rows = [
        (*_name_and_version(one.item, done.lessons), *_describe_plan(one.plan))
        for one in done.plans
        if wide or one.plan.a_day
    ]
    columns = ("what", "version", "to notice", "judged a day", "still needed", "takes", "costs a day")
    empty = "Nothing waits for a verdict: no conversation with an open question was judged in the last 30 days."
    output.rows_or(empty, columns, rows, wide="what")
    reckoned = "" if done.withhold else f" The plan reckons with {USUAL_SHARE:.0%}."
    output.say(_withholding(done.withhold) + reckoned, style="dim")


def _describe_plan(found: Plan) -> tuple[str, ...]:
    """Return the table cells of an item's plan: detectable effect, rate, conversations, days and cost."""
    cost = f"{abs(found.cost_a_day):.1f} {'fewer' if found.cost_a_day >= 0 else 'more'} go well"
    return (
        f"{100 * found.effect:.0f} of 100",
        f"{found.a_day:.1f}",
        "not withheld" if found.missing is None else output.count_of(found.missing, "conversation"),
        "at this rate never" if found.days is None else output.count_of(max(1, round(found.days)), "day"),
        cost if round(abs(found.cost_a_day), 1) else "nothing known",
    )


def _withholding(share: float) -> str:
    """Return a sentence on the share of offers that are withheld at random."""
    if share:
        return f"{share:.0%} of all offers are withheld at random (evidence.withhold)."
    return "Nothing is withheld at random; 'habitus config set evidence.withhold 0.1' begins to."


def _name_and_version(item: Item, lessons: Mapping[str, str]) -> tuple[str, str]:
    """Return an item's name as a person knows it, and its version."""
    version = f"v{item.version}"
    if item.kind is ItemKind.SKILL:
        return item.name, version
    if item.kind is not ItemKind.LESSON:
        return f"{item.name} ({item.kind})", version
    return f"{item.name} ({one_line(lessons.get(item.name, ''))[:40] or 'a lesson'})", version


def _is_tried(one: Finding) -> bool:
    return bool(one.trial_offered or one.trial_withheld)


def _effect(one: Finding) -> Effect | None:
    """Return the measured effect, else the one from weak signals, else None."""
    return one.estimate.offering or one.estimate.weak


def _sort_key(one: Finding) -> tuple[bool, int]:
    """Sort randomised results first, then by the number of explicit judgements."""
    offered, withheld = one.estimate.offered, one.estimate.withheld
    return one.estimate.basis is Basis.RANDOMISED, offered.explicit + withheld.explicit


def _units(arm: Arm) -> int:
    """Return the number of conversations in a variant."""
    return arm.explicit + arm.weak + arm.missing


def _arm(arm: Arm) -> str:
    """Return in words how many conversations of a variant were judged, and how."""
    return (
        f"in {output.count_of(_units(arm), 'conversation')}: {arm.explicit:,} judged, "
        f"{arm.weak:,} by weak signs alone, {arm.missing:,} not at all"
    )


def _range(effect: Effect) -> str:
    """Return an effect with its interval, in conversations of 100."""
    return f"{100 * effect.value:+.0f} of 100 ({100 * effect.low:+.0f} to {100 * effect.high:+.0f})"


def _per_tokens(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.0f} of 100 for every 1,000 tokens of the prompt"


# From 100 fewer to 100 more; odd, so that zero has a column of its own.
WIDTH = 41
_DRAWN, _PLAIN = ("├", "─", "┤", "●", "│"), ("|", "-", "|", "o", "|")


def interval(effect: Effect | None, *, is_unicode: bool = True) -> str:
    """Return a confidence interval drawn as text, with its middle and the zero line."""
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
    # Bounds can lie outside -1 to 1, which would draw past the axis.
    return round((min(max(share, -1.0), 1.0) + 1) / 2 * (WIDTH - 1))


def axis(*, is_unicode: bool = True) -> str:
    """Return the labels of both ends of the axis."""
    fewer, more = ("← fewer go well", "more go well →") if is_unicode else ("< fewer go well", "more go well >")
    return fewer + " " * (WIDTH - len(fewer) - len(more)) + more


def outcome(context: typer.Context, wanted: TurnJudgement, done: Judged) -> None:
    request = output.clean(" ".join(done.request.split()))[:60]
    which = f"{done.turn} ({request})" if request else done.turn
    output.say(f"{which}: {done.outcome.kind.value}, says {wanted.by}.")
