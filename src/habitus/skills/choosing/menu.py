"""The menu: one line per skill that is not in the prompt in full, within a token budget; and the news about skills
since a user's last visit.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.skills import lifecycle
from habitus.skills.choosing.selection import NEVER, Selection
from habitus.skills.layers.listing import Snapshot
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import Counters, Stage, Summary
from habitus.text import byte_length, one_line, tokens

HEADING = "## Available skills (load on demand)"
# Share of the model's context.
SHARE = 0.02
# Maximum lengths of a when-to-use line, tried in this order.
_CAPS = (10_000, 240, 160, 120, 80, 60, 40)
_SHORTEST = 8  # characters of the shortest possible line
# With shorter lines there is no room for tags.
_TAGS_FROM = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """The menu section as the model sees it: `shown` in its order, `cut` for lack of room."""

    text: str
    tokens: int
    budget: int
    shown: tuple[str, ...]
    cut: tuple[str, ...] = ()
    cue_length: int = _CAPS[0]
    edge: tuple[str, str] | None = None  # equally used: the last one in, and the first one out

    def without(self, names: Collection[str]) -> Menu:
        """Return the menu without the lines of these skills; none takes their place."""
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
    """Return the token budget of the menu for a model's context size."""
    return int(context_tokens * SHARE)


def make_menu(
    selection: Selection,
    counters: Mapping[tuple[str, str], Mapping[Stage, Counters]],
    context_tokens: int,
    prefer: str = "",
) -> Menu:
    """Build the menu of a selection, preferring the most used skills if there is no room for all.

    Among equally used skills, `prefer` comes first.
    """
    used: dict[str, float] = {
        name: sum(counted.used + counted.recommended for counted in stages.values())
        for (_, name), stages in counters.items()
    }
    if prefer:
        # Half a use breaks ties without overtaking a skill that was used once more.
        used[prefer] = used.get(prefer, 0) + 0.5
    return compose(selection.menu, budget_for(context_tokens), utility=used)


def compose(summaries: Sequence[Summary], budget: int, *, utility: Mapping[str, float] | None = None) -> Menu:
    """Compose a menu within `budget` tokens: all lines in full, or shorter lines, or only the most useful ones.

    `utility` ranks the skills; without it earlier names win. Lines are always in order of name, so the section
    stays the same, and cacheable, while the library does.
    """
    summaries = sorted(summaries, key=_by_name)
    if not summaries:
        return Menu(text="", tokens=0, budget=budget, shown=())
    # Estimated at four bytes per token, minus the heading and its blank line.
    room = budget * 4 - len(HEADING) - 2
    if len(summaries) * _SHORTEST > room:
        return _most_useful(summaries, budget, utility or {})
    # Compare estimated lengths first: rendering a thousand lines up to seven times would be slow.
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
    """Return the menu line of a skill, with its when-to-use line cut to `cap` characters."""
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
    # Without utility the kept skills are simply the first ones.
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


_MOST_LINES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """The skills added, changed and removed since a user's last visit."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # lines of the changelog that name them

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def text(self) -> str:
        """Return the section for an interactive prompt; empty without news."""
        parts = [
            f"- {what}: {', '.join(found)}"
            for what, found in (("new", self.added), ("changed", self.changed), ("gone", self.removed))
            if found
        ]
        return (
            "\n".join(["## What's new", "", *parts, *(f"  - {one_line(line)}" for line in self.lines)]) if parts else ""
        )


def fingerprint(hashes: Mapping[str, str]) -> str:
    """Return one hash over a whole library, given the hash of each skill."""
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def visible(snapshot: Snapshot, context: GateContext) -> dict[str, str]:
    """Return the hashes of the skills that a user may see, disabled ones included, by name."""
    return {
        item.name: item.tree_hash
        for item in snapshot.listing
        if item.summary is not None and item.state not in NEVER and not lifecycle.closed_gates(item.summary, context)
    }


def news(
    before: Mapping[str, str] | None,
    now: Mapping[str, str],
    *,
    hidden: Collection[str] = (),
    changelog: Callable[[], str] = lambda: "",
) -> News:
    """Return the skills that changed since `before`; nothing on a user's first visit.

    `hidden` are skills that exist but must not be shown to this user.
    """
    if before is None:
        return News()
    added = tuple(sorted(name for name in now if name not in before))
    removed = tuple(sorted(name for name in before if name not in now and name not in hidden))
    changed = tuple(sorted(name for name, digest in now.items() if name in before and before[name] != digest))
    found = {*added, *changed, *removed}
    lines = _naming(changelog().splitlines(), found, but=hidden) if found else ()
    return News(added=added, changed=changed, removed=removed, lines=lines)


def _naming(lines: Collection[str], names: Collection[str], *, but: Collection[str]) -> tuple[str, ...]:
    """Return the first lines that name one of these skills and none of the hidden ones."""
    wanted, unwanted = _any_of(names), _any_of(but)
    named = (line.strip(" \t-*+") for line in lines if wanted.search(line) and not (but and unwanted.search(line)))
    return tuple(named)[:_MOST_LINES]


def _any_of(names: Collection[str]) -> re.Pattern[str]:
    # People write `csv summary` and `csv_summary` for csv-summary.
    spellings = (re.escape(name).replace(r"\-", "[-_ ]") for name in names)
    return re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(spellings)})(?![\w-])")
