"""Texts of the inbox: who wants what, why it is pending, and the decision."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from habitus.app.library.content import FileChange
from habitus.app.review.inbox import ReviewInboxItem
from habitus.memory.model import Engram
from habitus.skills.review import Proposal, ProposalAction, ProposalState
from habitus.text import format_quantity
from habitus.web.labels import (
    ACTIONS,
    PRODUCERS,
    capitalise_first,
    describe_author,
    describe_pending_reason,
    remove_fingerprint_from_capability,
)

_IMPORT_PREFIX = "import of "
# The form in which the scan writes a finding: path:line: “quote” reason, and N more places (rule).
_FINDING_PATTERN = re.compile(
    r"(?P<path>\S.*?):(?P<line>\d+): (?:(?P<quote>“.*”) )?(?P<why>.+?)(?:, and (?P<more>\d+) more places?)? \([\w.]+\)"
)


def describe_item(item: ReviewInboxItem, reader: str = "") -> str:
    """Return an item as one sentence; `reader` is the name of the person who reads it."""
    match item.subject:
        case Engram(text=text):
            return f"Remember: {text}"
        case Proposal() as proposal:
            change, by = proposal.change, describe_author(proposal.author)
            where = f" in {change.layer} on {proposal.host}" if proposal.host else ""
            if get_import_origin(proposal):
                return (
                    f"You import {change.name}{where}"
                    if by in (reader, "you")
                    else f"{by} imports {change.name}{where}"
                )
            if change.action is ProposalAction.WRITE and not proposal.base_hash:
                return f"{capitalise_first(by)} wants to add the skill {change.name}{where}"
            return f"{capitalise_first(by)} wants to {ACTIONS[change.action]} {change.name}{where}"


def describe_item_briefly(item: ReviewInboxItem) -> str:
    """Return an item in a few words, for a row."""
    match item.subject:
        case Engram(text=text):
            return f"Remember: {text}"
        case Proposal() as proposal:
            action = "add" if proposal.would_add_skill else ACTIONS[proposal.change.action]
            return f"{capitalise_first(action)} {proposal.change.name}"


# What an item asks for, by the key that the inbox is filtered by.
KINDS = {
    "new": "new skills",
    "import": "imports",
    "write": "changes to skills",
    "learn": "lessons",
    "examine": "tasks",
    "remove": "skills to archive",
    "enable": "skills to switch on",
    "disable": "skills to switch off",
}


def get_item_kind(item: ReviewInboxItem) -> str:
    """Return the key of what an item asks for."""
    subject = item.subject
    if not isinstance(subject, Proposal):
        return "learn"
    if get_import_origin(subject):
        return "import"
    return (
        "new"
        if subject.would_add_skill and subject.change.action is ProposalAction.WRITE
        else subject.change.action.value
    )


def get_item_origin(item: ReviewInboxItem) -> str:
    """Return who an item comes from."""
    subject = item.subject
    return describe_author(subject.author) if isinstance(subject, Proposal) else PRODUCERS[subject.produced_by]


def list_filter_choices(
    counts: Mapping[str, int], current: str, labels: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the values of a filter with their labels and counts, the most frequent first."""
    found = sorted({**dict.fromkeys([current] if current else [], 0), **counts}.items(), key=lambda one: -one[1])
    return [(value, f"{labels[value] if labels else value} ({count})") for value, count in found]


def get_item_name_and_wanted_change(item: ReviewInboxItem, reader: str = "") -> tuple[str, str]:
    """Return an item's name and the wanted change, for a row of a list."""
    match item.subject:
        case Engram(text=text):
            return text, "new lesson"
        case Proposal() as proposal:
            name = proposal.change.name
            said = describe_item(item, reader).replace(f" the skill {name}", " it").replace(f" {name}", " it")
            return name, re.sub(r"\bswitch (on|off) it", r"switch it \1", said)


def get_import_origin(proposal: Proposal) -> str:
    """Return the source of a person's import, or nothing if the proposal is no import."""
    is_import = not proposal.author.is_automatic and proposal.author.reason.startswith(_IMPORT_PREFIX)
    return proposal.author.reason.removeprefix(_IMPORT_PREFIX) if is_import else ""


def list_pending_reasons(reasons: Sequence[str]) -> list[str]:
    """Return why an item is pending, one sentence per reason; a finding in several places is said once."""
    kinds: dict[str, list[re.Match[str]]] = {}
    said: list[str] = []
    for reason in reasons:
        if (found := _FINDING_PATTERN.fullmatch(reason)) is not None:
            kinds.setdefault(found["why"], []).append(found)
        elif reason:
            said.append(
                capitalise_first(remove_fingerprint_from_capability(describe_pending_reason(reason))).rstrip(".") + "."
            )
    for why, places in kinds.items():
        more = len(places) - 1 + sum(int(one["more"] or 0) for one in places)
        others = f", and in {format_quantity(more, 'more place')}" if more else ""
        quote = f": {places[0]['quote']}" if places[0]["quote"] else ""
        where = f"{places[0]['path']}, line {places[0]['line']}{others}"
        said.append(f"{capitalise_first(why.rstrip('.'))} ({where}){quote}.")
    return list(dict.fromkeys(said))


def describe_file_change(change: FileChange) -> str:
    """Return a file's change in a few words."""
    if not change.is_text:
        return "binary"
    if change.before is None:
        return f"new, {format_quantity(len((change.after or '').splitlines()), 'line')}"
    return "removed" if change.after is None else "changed"


def describe_decision(item: ReviewInboxItem) -> str:
    """Return the decision in words."""
    match item.state:
        case ProposalState.REJECTED:
            return "rejected"
        case ProposalState.APPROVED:
            return "approved"
    return "approved; its host applies it"


# The turns that a reason names; the item's own page has them.
_NAMED_TURNS = re.compile(r": turns? [^ ,]+(?:, [^ ,]+)*(?: and \d+ before)?(?=\.)")


def get_author_or_pending_reason(item: ReviewInboxItem) -> str:
    """Return the agent's reason for the proposal without the turns it names, or else why it is pending."""
    if isinstance(item.subject, Proposal) and item.subject.author.reason:
        return _NAMED_TURNS.sub("", item.subject.author.reason)
    return "; ".join(describe_pending_reason(reason) for reason in item.reasons if reason)
