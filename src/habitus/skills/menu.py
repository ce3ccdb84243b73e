"""The menu: one line for each skill that is not in the prompt, within a budget, and nothing silently invisible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from habitus.skills.model import Summary
from habitus.skills.selection import Choice

HEADING = "## Available skills (load on demand)"
SHARE = 0.02  # of the model's context
_CAPS = (10_000, 240, 160, 120, 80, 60, 40)  # how long a cue may be, in the order in which they are tried


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """The section as the model sees it; `shown` in its order, `cut` for lack of room."""

    text: str
    tokens: int
    budget: int
    shown: tuple[str, ...]
    cut: tuple[str, ...] = ()
    cue_length: int = _CAPS[0]


def tokens(text: str) -> int:
    """An estimate that needs no model: four characters a token."""
    return (len(text) + 3) // 4


def budget_for(context_tokens: int) -> int:
    return int(context_tokens * SHARE)


def compose(choices: Sequence[Choice], budget: int, *, utility: Mapping[str, float] | None = None) -> Menu:
    """The menu within `budget` tokens: all lines in full; else shorter cues; else the most useful lines.

    `utility` says what each skill is worth; without it earlier names win. The order is always by name, so that the
    section stays the same while the library does.
    """
    summaries = sorted((choice.summary for choice in choices), key=lambda summary: summary.name)
    if not summaries:
        return Menu(text="", tokens=0, budget=budget, shown=())
    for cap in _CAPS:
        lines = [line(summary, cap) for summary in summaries]
        if _cost(lines) <= budget * 4 - len(HEADING) - 2:
            return _menu(lines, summaries, (), budget, cap)
    return _most_useful(summaries, budget, utility or {})


def line(summary: Summary, cap: int = _CAPS[0]) -> str:
    cue = " ".join(summary.cue.split())
    if len(cue) > cap:
        cue = cue[: cap - 1].rstrip() + "…"
    tags = f" [{', '.join(summary.tags)}]" if summary.tags and cap >= 120 else ""
    return f"- {summary.name} — {cue}{tags}" if cue else f"- {summary.name}{tags}"


def _most_useful(summaries: Sequence[Summary], budget: int, utility: Mapping[str, float]) -> Menu:
    cap = _CAPS[-1]
    room = budget * 4 - len(HEADING) - len(_more(len(summaries))) - 4
    ranked = sorted(summaries, key=lambda summary: (-utility.get(summary.name, 0.0), summary.name))
    kept: set[str] = set()
    for summary in ranked:
        room -= len(line(summary, cap)) + 1
        if room < 0:
            break
        kept.add(summary.name)
    shown = [summary for summary in summaries if summary.name in kept]
    cut = tuple(summary.name for summary in summaries if summary.name not in kept)
    return _menu([line(summary, cap) for summary in shown], shown, cut, budget, cap)


def _menu(lines: Sequence[str], shown: Sequence[Summary], cut: tuple[str, ...], budget: int, cap: int) -> Menu:
    text = "\n".join([HEADING, "", *lines, *([_more(len(cut))] if cut else [])])
    names = tuple(summary.name for summary in shown)
    return Menu(text=text, tokens=tokens(text), budget=budget, shown=names, cut=cut, cue_length=cap)


def _more(count: int) -> str:
    return f"({count} more skills are not listed here; search_skills finds them.)"


def _cost(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + len(lines)
