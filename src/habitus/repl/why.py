"""`/why`: what the model was told in the last turn, and why a skill was, or was not, part of it."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.errors import Invalid
from habitus.journal.model import Place
from habitus.repl.plain import clean, one_line
from habitus.repl.surface import Report
from habitus.skills.menu import Menu
from habitus.skills.why import explain


def prompt_report(session: Session) -> Report:
    """Every section of the prompt with its tokens, its budget and what there was no room for."""
    sections = session.sections()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("section")
    table.add_column("tokens", justify="right")
    table.add_column("budget", justify="right")
    table.add_column("no room for", overflow="fold")
    for section in sections:
        cut = one_line(", ".join(section.cut), 300)
        table.add_row(section.name, f"{section.tokens:,}", f"{section.budget:,}" if section.budget else "", Text(cut))
    table.add_row("together", f"{sum(section.tokens for section in sections):,}", "", "", style="dim")
    rows = [
        {"name": section.name, "tokens": section.tokens, "budget": section.budget, "cut": list(section.cut)}
        for section in sections
    ]
    return Report(type="why", shown=table, data={"sections": rows})


def skill_report(habitus: Habitus, session: Session, name: str) -> Report:
    """Why a skill did, or did not, reach the prompt of the last turn."""
    item = habitus.skills.find(name)
    last = session.last
    if last is None or last.selection is None:
        raise Invalid("Nothing was asked yet.", mend=f"Ask something first; then /why {item.name}.")
    eligible = last.selection.eligible()
    if item.name not in eligible and item.name not in last.selection.left_out:
        raise Invalid(f"'{item.name}' was not there yet when the last turn began.", mend="Ask again; then look.")
    request = last.said.request.text
    results = habitus.finder.search(request, k=len(eligible) or 1, among=eligible)
    menu = last.composed.menu if last.composed is not None else None
    said = explain(item, last.selection, menu or Menu(text="", tokens=0, budget=0, shown=()), results).sentences()
    kept = habitus.journal.turn(last.id).selected
    said += [f"In the last turn {one.reason}." for one in kept if (one.name, one.place) == (item.name, Place.LOADED)]
    return Report(
        type="why", shown=Group(*(Text(clean(line)) for line in said)), data={"name": item.name, "because": said}
    )
