"""Texts of the inbox: who wants what, why it is pending, and the decision."""

from __future__ import annotations

import re
from collections.abc import Sequence

from habitus.app.library.content import FileChange
from habitus.app.review.inbox import InboxItem
from habitus.memory.model import Engram
from habitus.skills.review import Action, Proposal, ProposalState
from habitus.text import count_of
from habitus.web.words import ACTIONS, begun, power, waits, who

_IMPORT = "import of "
# The form in which the scan writes a finding: path:line: reason, and N more places (rule).
_FOUND = re.compile(r"(?P<path>\S.*?):(?P<line>\d+): (?P<why>.+?)(?:, and (?P<more>\d+) more places?)? \([\w.]+\)")


def sentence(item: InboxItem, me: str = "") -> str:
    """Return an item as one sentence; `reader` is the name of the person who reads it."""
    match item.subject:
        case Engram(text=text):
            return f"Remember: {text}"
        case Proposal() as proposal:
            change, by = proposal.change, who(proposal.author)
            where = f" in {change.layer} on {proposal.host}" if proposal.host else ""
            if imported_from(proposal):
                return f"You import {change.name}{where}" if by in (me, "you") else f"{by} imports {change.name}{where}"
            if change.action is Action.WRITE and not proposal.base_hash:
                return f"{begun(by)} wants to add the skill {change.name}{where}"
            return f"{begun(by)} wants to {ACTIONS[change.action]} {change.name}{where}"


def in_short(item: InboxItem) -> str:
    """Return an item in a few words, for a row."""
    match item.subject:
        case Engram(text=text):
            return f"Remember: {text}"
        case Proposal() as proposal:
            return f"{begun('add' if proposal.is_new else ACTIONS[proposal.change.action])} {proposal.change.name}"


def headline(item: InboxItem, me: str = "") -> tuple[str, str]:
    """Return an item's name and the wanted change, for a row of a list."""
    match item.subject:
        case Engram(text=text):
            return text, "to remember"
        case Proposal() as proposal:
            name = proposal.change.name
            said = sentence(item, me).replace(f" the skill {name}", " it").replace(f" {name}", " it")
            return name, said


def imported_from(proposal: Proposal) -> str:
    """Return the source of a person's import, or nothing if the proposal is no import."""
    is_import = not proposal.author.is_automatic and proposal.author.reason.startswith(_IMPORT)
    return proposal.author.reason.removeprefix(_IMPORT) if is_import else ""


def concerns(reasons: Sequence[str]) -> list[str]:
    """Return why an item is pending, one sentence per reason; a finding in several places is said once."""
    kinds: dict[str, list[re.Match[str]]] = {}
    said: list[str] = []
    for reason in reasons:
        if (found := _FOUND.fullmatch(reason)) is not None:
            kinds.setdefault(found["why"], []).append(found)
        elif reason:
            said.append(begun(power(waits(reason))).rstrip(".") + ".")
    for why, places in kinds.items():
        more = len(places) - 1 + sum(int(one["more"] or 0) for one in places)
        others = f", and in {count_of(more, 'more place')}" if more else ""
        said.append(f"{begun(why.rstrip('.'))}: {places[0]['path']}, line {places[0]['line']}{others}.")
    return list(dict.fromkeys(said))


def of_file(change: FileChange) -> str:
    """Return a file's change in a few words."""
    if not change.is_text:
        return "no text"
    if change.before is None:
        return f"new, {count_of(len((change.after or '').splitlines()), 'line')}"
    return "taken away" if change.after is None else "changed"


def describe_decision(item: InboxItem) -> str:
    """Return the decision in words."""
    match item.state:
        case ProposalState.REJECTED:
            return "turned down"
        case ProposalState.APPROVED:
            return "approved"
    return "approved, its host carries it out"


def why(item: InboxItem) -> str:
    """Return the agent's reason for the proposal, or else why it is pending."""
    if isinstance(item.subject, Proposal) and item.subject.author.reason:
        return item.subject.author.reason
    return "; ".join(waits(reason) for reason in item.reasons if reason)
