"""The menu: one line for each skill that is not in the prompt, within a budget, and nothing silently invisible."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.skills.model import Counters, Stage, Summary
from habitus.skills.selection import Selection
from habitus.text import byte_length, one_line, tokens

HEADING = "## Available skills (load on demand)"
SHARE = 0.02  # of the model's context
_CAPS = (10_000, 240, 160, 120, 80, 60, 40)  # how long a cue may be, in the order in which they are tried
_SHORTEST = 8  # characters of the shortest line there can be
_TAGS_FROM = 120  # with shorter cues than that there is no room for tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """The section as the model sees it; `shown` in its order, `cut` for lack of room."""

    text: str
    tokens: int
    budget: int
    shown: tuple[str, ...]
    cut: tuple[str, ...] = ()
    cue_length: int = _CAPS[0]
    edge: tuple[str, str] | None = None  # used as often: the last one in, and the first for which there was no room

    def without(self, names: Collection[str]) -> Menu:
        """The lines of these left out, and nothing in their place."""
        if not names:
            return self
        first, *rest = self.text.split("\n\n", 1)
        lines = rest[0].split("\n") if rest else []
        kept = [line for name, line in zip(self.shown, lines, strict=False) if name not in names]
        kept += lines[len(self.shown) :]
        text = "\n".join([first, "", *kept]) if kept else ""
        shown = tuple(name for name in self.shown if name not in names)
        return replace(self, text=text, tokens=tokens(text), shown=shown)


def budget_for(context_tokens: int) -> int:
    return int(context_tokens * SHARE)


def make_menu(
    selection: Selection,
    counters: Mapping[tuple[str, str], Mapping[Stage, Counters]],
    context_tokens: int,
    prefer: str = "",
) -> Menu:
    """The menu of a selection, with the skills used most where there is no room for all.

    Among those used as often, the one to `prefer` comes first.
    """
    used: dict[str, float] = {
        name: sum(counted.used + counted.recommended for counted in stages.values())
        for (_, name), stages in counters.items()
    }
    if prefer:
        used[prefer] = used.get(prefer, 0) + 0.5
    return compose(selection.menu, budget_for(context_tokens), utility=used)


def compose(summaries: Sequence[Summary], budget: int, *, utility: Mapping[str, float] | None = None) -> Menu:
    """The menu within `budget` tokens: all lines in full; else shorter cues; else the most useful lines.

    `utility` says what each skill is worth; without it earlier names win. The order is always by name, so that the
    section stays the same while the library does.
    """
    summaries = sorted(summaries, key=_by_name)
    if not summaries:
        return Menu(text="", tokens=0, budget=budget, shown=())
    room = budget * 4 - len(HEADING) - 2
    if len(summaries) * _SHORTEST > room:
        return _most_useful(summaries, budget, utility or {})
    # Lengths first: a thousand lines are not drawn seven times over.
    lengths = [(len(s.name) + 8, s.cue, sum(map(byte_length, s.tags)) + 2 * len(s.tags) + 1) for s in summaries]
    for cap in _CAPS:
        tags = cap >= _TAGS_FROM
        cost = sum(
            name + byte_length(cue[:cap]) + 2 * (len(cue) > cap) + (tag if tags and tag > 1 else 0)
            for name, cue, tag in lengths
        )
        if cost <= room:
            return _menu([line(summary, cap) for summary in summaries], summaries, (), budget, cap)
    return _most_useful(summaries, budget, utility or {})


_by_name = operator.attrgetter("name")


def line(summary: Summary, cap: int = _CAPS[0]) -> str:
    cue = one_line(summary.cue)
    if len(cue) > cap:
        cue = cue[: cap - 1].rstrip() + "…"
    tags = f" [{', '.join(map(one_line, summary.tags))}]" if summary.tags and cap >= _TAGS_FROM else ""
    return f"- {summary.name} — {cue}{tags}" if cue else f"- {summary.name}{tags}"


def _most_useful(summaries: Sequence[Summary], budget: int, utility: Mapping[str, float]) -> Menu:
    cap = _CAPS[-1]
    room = budget * 4 - len(HEADING) - len(_more(len(summaries))) - 4
    ranked: Iterable[Summary] = summaries
    if utility:
        ranked = sorted(summaries, key=lambda summary: (-utility.get(summary.name, 0.0), summary.name))
    kept: dict[str, str] = {}
    edge: tuple[str, str] | None = None
    for summary in ranked:
        drawn = line(summary, cap)
        room -= byte_length(drawn) + 1
        if room < 0:
            last = next(reversed(kept), summary.name)
            is_tie = last != summary.name and utility.get(last, 0.0) == utility.get(summary.name, 0.0)
            edge = (last, summary.name) if is_tie else None
            break
        kept[summary.name] = drawn
    # Without utility the kept ones are simply the first.
    shown = [summary for summary in summaries if summary.name in kept] if utility else summaries[: len(kept)]
    others = [summary for summary in summaries if summary.name not in kept] if utility else summaries[len(kept) :]
    menu = _menu([kept[s.name] for s in shown], shown, tuple(map(_by_name, others)), budget, cap)
    return replace(menu, edge=edge)


def _menu(lines: Sequence[str], shown: Sequence[Summary], cut: tuple[str, ...], budget: int, cap: int) -> Menu:
    text = "\n".join([HEADING, "", *lines, *([_more(len(cut))] if cut else [])])
    names = tuple(summary.name for summary in shown)
    return Menu(text=text, tokens=tokens(text), budget=budget, shown=names, cut=cut, cue_length=cap)


def _more(count: int) -> str:
    return f"({count} more skills are not listed here; search_skills finds them.)"
