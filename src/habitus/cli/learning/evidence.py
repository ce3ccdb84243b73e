"""`habitus skills evidence` and `sessions outcome`: shows the measured effect of items, records how a turn went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from habitus.app.learning.evidence import ASSUMED_SHARE
from habitus.app.learning.judging import TurnJudgementResult
from habitus.app.use_cases.evidence import EvidenceFindingPage, PlanEvidenceResult
from habitus.cli import output
from habitus.cli.completion import WideOption
from habitus.evidence.estimation import EstimateBasis, VariantOutcomeCounts
from habitus.evidence.findings import ItemFinding, WithholdingForecast
from habitus.evidence.model import EffectEstimate, EvidenceItem, ItemKind
from habitus.text import clean_to_one_line

# Below 100 tokens, an effect per 1,000 tokens says more about rounding than about the item.
_MIN_TOKENS_FOR_RATE = 100


def print_result_of_show_evidence(
    context: typer.Context, result: EvidenceFindingPage, name: str | None, wide: WideOption = False
) -> None:
    if name is not None:
        for one in result.items:
            _print_item_effect(one, result.lessons)
    else:
        _print_items_table(result.items, result.lessons, is_wide=wide)
    output.print_paging_hint(len(result.items), result.total, result.next)
    output.print_line(_describe_withholding(result.withhold), style="dim")


def _print_items_table(items: Sequence[ItemFinding], lessons: Mapping[str, str], *, is_wide: bool) -> None:
    """Print a table and a plot of the items with a known effect, and how many others there are."""
    # Items without any feedback would bury the few that are known.
    known = sorted(
        (one for one in items if is_wide or _get_measured_or_weak_effect(one) is not None),
        key=_get_evidence_sort_key,
        reverse=True,
    )
    if not items:
        output.print_line("No data yet: nothing has been offered.")
        return
    rows = [
        (
            *_format_name_and_version(one.item, lessons),
            _count_variant_conversations(one.estimate.offered),
            _count_variant_conversations(one.estimate.withheld),
            one.sentence,
        )
        for one in known
    ]
    if rows:
        output.print_table(("what", "version", "offered", "withheld", "known"), rows, wide="known")
        output.print_line()
        _print_interval_plot(lessons, [one for one in known if _get_measured_or_weak_effect(one) is not None])
    if len(known) < len(items):
        more = output.format_quantity(len(items) - len(known), "item")
        output.print_line(f"{more} without a known effect: not opened, or without feedback.")


def _print_interval_plot(lessons: Mapping[str, str], items: Sequence[ItemFinding]) -> None:
    """Print the confidence interval of each item on a common axis."""
    labels = [" ".join(_format_name_and_version(one.item, lessons)) for one in items]
    # Labels are padded by hand, because the plot has to start in the same column on every line.
    width = max(map(len, labels), default=0)
    output.print_line(f"{'':<{width}}  {render_axis_labels(is_unicode=output.is_unicode_output())}")
    for label, one in zip(labels, items, strict=True):
        effect = _get_measured_or_weak_effect(one)
        interval = draw_confidence_interval(effect, is_unicode=output.is_unicode_output())
        output.print_line(f"{label:<{width}}  {interval}")


def _print_item_effect(one: ItemFinding, lessons: Mapping[str, str]) -> None:
    """Print an item's effect with the counts behind it."""
    estimate = one.estimate
    output.print_line(" ".join(_format_name_and_version(one.item, lessons)))
    output.print_line(render_axis_labels(is_unicode=output.is_unicode_output()), style="dim")
    output.print_line(
        draw_confidence_interval(_get_measured_or_weak_effect(one), is_unicode=output.is_unicode_output())
    )
    output.print_line(one.sentence)
    facts = [
        ("verdict", f"{one.decision.verdict}. {one.decision.reason}"),
        ("offered", _describe_judgement_counts_of_variant(estimate.offered)),
        ("withheld", _describe_judgement_counts_of_variant(estimate.withheld)),
        (
            "in trials",
            f"{one.trial_offered:,} with it, {one.trial_withheld:,} without" if _has_trial_conversations(one) else "",
        ),
        ("used", f"in {estimate.used:,}, ignored in {estimate.ignored:,}" if estimate.used else "never"),
        ("using it", "" if estimate.using is None else f"{_format_effect(estimate.using)} where it was used"),
        ("weak signals", "" if estimate.weak is None else f"{_format_effect(estimate.weak)}; not used for verdicts"),
        (
            "for tokens",
            _format_effect_per_tokens(estimate.per_1000_tokens) if estimate.tokens >= _MIN_TOKENS_FOR_RATE else "",
        ),
    ]
    for label, value in facts:
        if value:
            output.print_line(f"  {label:<10}  {clean_to_one_line(value)}")
    output.print_line()


def print_result_of_plan_evidence(context: typer.Context, result: PlanEvidenceResult, wide: WideOption = False) -> None:
    rows = [
        (*_format_name_and_version(one.item, result.lessons), *_format_plan_table_cells(one.plan))
        for one in result.plans
        if wide or one.plan.a_day
    ]
    columns = ("what", "version", "detectable effect", "judged per day", "still needed", "time left", "cost per day")
    empty = "No open questions: no relevant conversation got feedback in the last 30 days."
    output.print_table_or_message(empty, columns, rows, wide="what")
    reckoned = "" if result.withhold else f" The plan assumes {ASSUMED_SHARE:.0%}."
    output.print_line(_describe_withholding(result.withhold) + reckoned, style="dim")


def _format_plan_table_cells(found: WithholdingForecast) -> tuple[str, ...]:
    """Return the table cells of an item's plan: detectable effect, rate, conversations, days and cost."""
    cost = f"{abs(found.cost_a_day):.1f} {'fewer' if found.cost_a_day >= 0 else 'more'} succeed"
    return (
        f"{100 * found.effect:.0f} of 100",
        f"{found.a_day:.1f}",
        "not withheld" if found.missing is None else output.format_quantity(found.missing, "conversation"),
        output.format_quantity(max(1, round(found.days or 0)), "day")
        if found.is_waiting_time_practical
        else f"too long; a trial takes {found.trials:,}",
        cost if round(abs(found.cost_a_day), 1) else "unknown",
    )


def _describe_withholding(share: float) -> str:
    """Return a sentence on the share of offers that are withheld at random."""
    if share:
        return f"{share:.0%} of all offers are withheld at random (evidence.withhold)."
    return "Nothing is withheld at random; start with 'habitus config set evidence.withhold 0.1'."


def _format_name_and_version(item: EvidenceItem, lessons: Mapping[str, str]) -> tuple[str, str]:
    """Return an item's name as a person knows it, and its version."""
    version = f"v{item.version}"
    if item.kind is ItemKind.SKILL:
        return item.name, version
    if item.kind is not ItemKind.LESSON:
        return f"{item.name} ({item.kind})", version
    return f"{item.name} ({clean_to_one_line(lessons.get(item.name, ''))[:40] or 'a lesson'})", version


def _has_trial_conversations(one: ItemFinding) -> bool:
    return bool(one.trial_offered or one.trial_withheld)


def _get_measured_or_weak_effect(one: ItemFinding) -> EffectEstimate | None:
    """Return the measured effect, else the one from weak signals, else None."""
    return one.estimate.offering or one.estimate.weak


def _get_evidence_sort_key(one: ItemFinding) -> tuple[bool, int]:
    """Sort randomised results first, then by the number of explicit judgements."""
    offered, withheld = one.estimate.offered, one.estimate.withheld
    return one.estimate.basis is EstimateBasis.RANDOMISED, offered.explicit + withheld.explicit


def _count_variant_conversations(arm: VariantOutcomeCounts) -> int:
    """Return the number of conversations in a variant."""
    return arm.explicit + arm.weak + arm.missing


def _describe_judgement_counts_of_variant(arm: VariantOutcomeCounts) -> str:
    """Return in words how many conversations of a variant were judged, and how."""
    return (
        f"in {output.format_quantity(_count_variant_conversations(arm), 'conversation')}: {arm.explicit:,} judged, "
        f"{arm.weak:,} by weak signals only, {arm.missing:,} without feedback"
    )


def _format_effect(effect: EffectEstimate) -> str:
    """Return an effect with its interval, in conversations of 100."""
    return f"{100 * effect.value:+.0f} of 100 ({100 * effect.low:+.0f} to {100 * effect.high:+.0f})"


def _format_effect_per_tokens(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.0f} of 100 for every 1,000 tokens of the prompt"


# From 100 fewer to 100 more; odd, so that zero has a column of its own.
PLOT_WIDTH = 41
_UNICODE_MARKS, _ASCII_MARKS = ("├", "─", "┤", "●", "│"), ("|", "-", "|", "o", "|")


def draw_confidence_interval(effect: EffectEstimate | None, *, is_unicode: bool = True) -> str:
    """Return a confidence interval drawn as text, with its middle and the zero line."""
    left, bar, right, dot, zero = _UNICODE_MARKS if is_unicode else _ASCII_MARKS
    line = [" "] * PLOT_WIDTH
    line[PLOT_WIDTH // 2] = zero
    if effect is not None:
        low, value, high = (_get_plot_column(part) for part in (effect.low, effect.value, effect.high))
        for at in range(low, high + 1):
            line[at] = bar
        line[low], line[high], line[value] = left, right, dot
    return "".join(line).rstrip()


def _get_plot_column(share: float) -> int:
    # Bounds can lie outside -1 to 1, which would draw past the axis.
    return round((min(max(share, -1.0), 1.0) + 1) / 2 * (PLOT_WIDTH - 1))


def render_axis_labels(*, is_unicode: bool = True) -> str:
    """Return the labels of both ends of the axis."""
    fewer, more = ("← fewer succeed", "more succeed →") if is_unicode else ("< fewer succeed", "more succeed >")
    return fewer + " " * (PLOT_WIDTH - len(fewer) - len(more)) + more


def print_result_of_record_outcome(context: typer.Context, result: TurnJudgementResult, by: str) -> None:
    request = output.strip_control_characters(" ".join(result.request.split()))[:60]
    which = f"{result.turn} ({request})" if request else result.turn
    output.print_line(f"{which}: {result.outcome.kind.value} (by {by}).")
