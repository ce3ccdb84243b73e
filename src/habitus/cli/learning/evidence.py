"""`habitus evidence` and `habitus outcome`: what helps, how sure that is, and saying how a turn went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.learning.evidence import USUAL_SHARE
from habitus.app.learning.learning import judge
from habitus.cli import completion, output
from habitus.cli.completion import AsJson, Wide
from habitus.cli.opening import open_habitus
from habitus.evidence.estimation import Arm, Basis, Effect
from habitus.evidence.findings import Finding, Plan, Verdict
from habitus.evidence.model import ItemKind
from habitus.text import one_line

Name = Annotated[
    str | None,
    typer.Argument(help="A skill, recipe or tool, or the id of a lesson.", autocompletion=completion.skill_names),
]


_WEIGHTY = 100  # tokens from which on it is worth saying what a thousand of them would bring


def show(context: typer.Context, name: Name = None, wide: Wide = False, as_json: AsJson = False) -> None:
    """What offering skills, lessons, recipes and tools changes, per version, and how sure that is."""
    with open_habitus(context) as habitus:
        evidence = habitus.evidence
        found = evidence.findings()
        items = found.items if name is None else evidence.of(name)
        if as_json:
            page = {"items": items, "next": None, "total": len(items)}
            output.print_json({"withhold": evidence.share, "rollbacks": found.rollbacks, **page})
            return
        if name is not None:
            for one in items:
                _print_one(habitus, one)
        else:
            _print_all(habitus, items, is_wide=wide)
        output.say(_withholding(evidence.share), style="dim")


def _print_all(habitus: Habitus, items: Sequence[Finding], *, is_wide: bool) -> None:
    known = sorted((one for one in items if is_wide or _effect(one) is not None), key=_sort_key, reverse=True)
    if not items:
        output.say("Nothing was offered yet.")
        return
    rows = [
        (*_name_and_version(habitus, one), _units(one.estimate.offered), _units(one.estimate.withheld), one.sentence)
        for one in known
    ]
    if rows:
        output.table(("what", "version", "offered", "withheld", "known"), rows, wide="known")
        output.say()
        _print_plot(habitus, [one for one in known if _effect(one) is not None])
    if len(known) < len(items):
        more = output.count_of(len(items) - len(known), "item")
        output.say(f"{more} of which nothing is known yet: nobody said how those conversations went.")


def _print_plot(habitus: Habitus, items: Sequence[Finding]) -> None:
    labels = [" ".join(_name_and_version(habitus, one)) for one in items]
    width = max(map(len, labels), default=0)
    output.say(f"{'':<{width}}  {axis(is_unicode=output.is_unicode())}")
    for label, one in zip(labels, items, strict=True):
        output.say(f"{label:<{width}}  {interval(_effect(one), is_unicode=output.is_unicode())}")


def _print_one(habitus: Habitus, one: Finding) -> None:
    estimate = one.estimate
    output.say(" ".join(_name_and_version(habitus, one)))
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


def plan(context: typer.Context, wide: Wide = False, as_json: AsJson = False) -> None:
    """How long until a verdict at today's rate, and what withholding costs meanwhile."""
    with open_habitus(context) as habitus:
        evidence = habitus.evidence
        open_ones = [one for one in evidence.findings().items if one.judgement.verdict is Verdict.UNKNOWN]
        share = evidence.share or USUAL_SHARE
        rows = [
            (*_name_and_version(habitus, one), *_describe_plan(one.plan)) for one in open_ones if wide or one.plan.a_day
        ]
        data = {"withhold": evidence.share, "plans": [{"item": one.item, "plan": one.plan} for one in open_ones]}
        columns = ("what", "version", "to notice", "judged a day", "still needed", "takes", "costs a day")
        empty = "Nothing waits for a verdict: no conversation with an open question was judged in the last 30 days."
        output.say_list(as_json, data, columns, rows, wide="what", empty=empty)
        if not as_json:
            reckoned = "" if evidence.share else f" The plan reckons with {share:.0%}."
            output.say(_withholding(evidence.share) + reckoned, style="dim")


def _describe_plan(found: Plan) -> tuple[str, ...]:
    cost = f"{abs(found.cost_a_day):.1f} {'fewer' if found.cost_a_day >= 0 else 'more'} go well"
    return (
        f"{100 * found.effect:.0f} of 100",
        f"{found.a_day:.1f}",
        "not withheld" if found.missing is None else output.count_of(found.missing, "conversation"),
        "at this rate never" if found.days is None else output.count_of(max(1, round(found.days)), "day"),
        cost if round(abs(found.cost_a_day), 1) else "nothing known",
    )


def _withholding(share: float) -> str:
    if share:
        return f"{share:.0%} of all offers are withheld at random (evidence.withhold)."
    return "Nothing is withheld at random; 'habitus config set evidence.withhold 0.1' begins to."


def _name_and_version(habitus: Habitus, one: Finding) -> tuple[str, str]:
    """An item's name, in words a person knows it by, and its version."""
    item = one.item
    version = f"v{item.version}"
    if item.kind is ItemKind.SKILL:
        return item.name, version
    if item.kind is not ItemKind.LESSON:
        return f"{item.name} ({item.kind})", version
    text = next((lesson.text for lesson in habitus.memory.list_lessons() if lesson.id == item.name), "")
    return f"{item.name} ({one_line(text)[:40] or 'a lesson'})", version


def _is_tried(one: Finding) -> bool:
    return bool(one.trial_offered or one.trial_withheld)


def _effect(one: Finding) -> Effect | None:
    return one.estimate.offering or one.estimate.weak


def _sort_key(one: Finding) -> tuple[bool, int]:
    offered, withheld = one.estimate.offered, one.estimate.withheld
    return one.estimate.basis is Basis.RANDOMISED, offered.explicit + withheld.explicit


def _units(arm: Arm) -> int:
    return arm.explicit + arm.weak + arm.missing


def _arm(arm: Arm) -> str:
    return (
        f"in {output.count_of(_units(arm), 'conversation')}: {arm.explicit:,} judged, "
        f"{arm.weak:,} by weak signs alone, {arm.missing:,} not at all"
    )


def _range(effect: Effect) -> str:
    return f"{100 * effect.value:+.0f} of 100 ({100 * effect.low:+.0f} to {100 * effect.high:+.0f})"


def _per_tokens(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.0f} of 100 for every 1,000 tokens of the prompt"


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
    """The labels of both sides."""
    fewer, more = ("← fewer go well", "more go well →") if is_unicode else ("< fewer go well", "more go well >")
    return fewer + " " * (WIDTH - len(fewer) - len(more)) + more


def outcome(
    context: typer.Context,
    turn: Annotated[str, typer.Argument(help="A turn's id, or the one that the program gave it.")],
    ok: Annotated[bool | None, typer.Option("--ok/--failed", help="Whether it did what was asked.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, in a line.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who says so; the same one corrects itself.")] = "user",
    as_json: AsJson = False,
) -> None:
    """Say how a turn went, whoever ran it; what served a good one gets the credit."""
    if ok is None:
        raise typer.BadParameter("Say --ok or --failed.")
    with open_habitus(context) as habitus:
        judged = judge(habitus, turn, ok=ok, by=by, reason=reason)
        request = output.clean(" ".join(judged.request.split()))[:60]
        which = f"{judged.turn} ({request})" if request else judged.turn
        output.say_done(context, as_json, judged, f"{which}: {judged.outcome.kind.value}, says {by}.")
