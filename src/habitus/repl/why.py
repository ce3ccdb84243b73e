"""`/why`: what the model was told in the last turn, and why a skill was, or was not, part of it."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.app.library import explaining
from habitus.journal.model import Place
from habitus.repl.plain import clean, one_line
from habitus.repl.surface import CommandReport


def prompt_report(session: Session) -> CommandReport:
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
    return CommandReport(type="why", shown=table, data={"sections": rows})


def skill_report(habitus: Habitus, session: Session, name: str) -> CommandReport:
    """Why a skill did, or did not, reach the prompt of the last turn."""
    found, past = explaining.why_in_session(habitus, session, name)
    said = found.sentences()
    said += [f"In the last turn {entry.reason}." for entry in past.selected if entry.place is Place.LOADED]
    return CommandReport(
        type="why", shown=Group(*(Text(clean(line)) for line in said)), data={"name": found.name, "because": said}
    )
