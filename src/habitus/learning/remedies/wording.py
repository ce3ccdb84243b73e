"""Wording of a remedy as a lesson: the agent's own commands and words of ours, never what a tool said."""

from __future__ import annotations

import posixpath
import re
from datetime import datetime

from habitus.learning.remedies.calls import moment
from habitus.learning.remedies.commands import written
from habitus.learning.remedies.findings import Held, ProposedRule
from habitus.learning.remedies.remedy import Change, Remedy
from habitus.learning.remedies.troubles import Cause

_PLAIN = re.compile(r"[\w@./+:=-]{1,60}")  # a name from an error that can say nothing but a name
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def lesson(held: Held) -> str:
    """One sentence that says what to do and what not."""
    here = "In this project " if held.project else ""
    said = _said(held.remedy)
    return f"{here}{said[0].lower() if here else said[0].upper()}{said[1:]}."


def _said(remedy: Remedy) -> str:
    right, wrong, fails = written(remedy.right), written(remedy.wrong), _fails(remedy)
    match remedy.change:
        case Change.ARGUMENT:
            wanted = f"call {remedy.tool} with `{right}`" if right else f"call {remedy.tool} without `{wrong}`"
            return f"{wanted}; `{wrong}` {fails}" if right and wrong else f"{wanted}, else it fails"
        case Change.FIRST:
            failed = f"`{wrong}`" if wrong else remedy.tool
            doing = f"run `{right}`" if not remedy.tool else f"call {remedy.right[0]}"
            return f"{doing} first when {failed} {fails}"
        case Change.PLACE if remedy.right[1] == ".":
            return f"run `{written(remedy.right[3:])}` in the project's own directory; `{wrong}` {fails}"
        case Change.INSTEAD if remedy.right[-len(remedy.wrong) :] == remedy.wrong:
            return f"run `{right}`; `{wrong}` alone {fails}"
        case _:
            return f"run `{right}`; `{wrong}` {fails}"


def _fails(remedy: Remedy) -> str:
    name = posixpath.basename(remedy.about) if remedy.about.startswith("/") else remedy.about
    about = f" `{name}`" if _PLAIN.fullmatch(name) else ""
    match remedy.cause:
        case Cause.PROGRAM:
            is_itself = not about or remedy.about in remedy.wrong
            return "is not found" if is_itself else f"does not find the program{about}"
        case Cause.MODULE:
            return f"does not find the module{about}" if about else "does not find a module"
        case Cause.OPTION:
            return "is not known" if not about or remedy.change is Change.NAME else f"does not know{about}"
        case Cause.PERMISSION:
            return "is not permitted"
        case Cause.FILE:
            return f"does not find{about}" if about else "does not find a file"
        case Cause.SERVICE:
            return "finds no server running"
        case _:
            return "fails"


def evidence(held: Held, now: datetime) -> str:
    """How often it was seen, and when last."""
    return f"{held.sessions} {'session' if held.sessions == 1 else 'sessions'}{_last(held.last, now)}"


def rule_evidence(rule: ProposedRule, now: datetime) -> str:
    how = f"said after something was {rule.correction.after.value}"
    often = f" in {rule.times} sessions" if rule.times > 1 else ""
    return f"{how}{often}{_last(rule.correction.at, now)}"


def _last(at: str, now: datetime) -> str:
    when = moment(at)
    if when is None:
        return ""
    year = "" if when.year == now.year else f" {when.year}"
    return f", last in {_MONTHS[when.month - 1]}{year}"
