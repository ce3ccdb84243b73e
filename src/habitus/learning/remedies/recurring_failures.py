"""Failures that several sessions share, by what they cost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from habitus.learning.remedies.alignment import NoRemedyReason
from habitus.learning.remedies.calls import find_program_index, get_program_name, is_flag, quote_for_shell
from habitus.learning.remedies.corrections import UserCorrection
from habitus.learning.remedies.session_facts import FailedCallDetails, SessionFailuresAndCorrections
from habitus.learning.transcripts.model import LOOKUP_PROGRAMS

VARYING_WORD = "…"  # stands for a word that varied
_SHOWN_WORDS = 6  # of a command that keeps failing
# Programs that an agent asks what is there; that they find nothing is an answer.
_PROBES = LOOKUP_PROGRAMS | {
    *("ls", "stat", "file", "cat", "head", "tail", "wc", "ps", "pwd", "cd", "echo", "tree"),
    *("curl", "wget", "nc", "ping", "dig", "host", "nslookup", "whois", "lsof", "pgrep", "squeue", "sacct", "sinfo"),
}
_QUESTIONS = tuple((word,) for word in ("ping", "status", "version", "--version", "-v", "-V", "info", "ps", "whoami"))
_LOOKUP_VERBS = frozenset({"view", "show", "list", "get", "describe", "inspect", "search", "find"})
# What was looked up is not there, or what was to be made is: an answer, and no failure of the command.
_FOUND_NOTHING = re.compile(r"\bno \w+(?: \w+)? (?:found|match)|\bnot found|\bdoes not exist", re.I)
_IS_THERE_ALREADY = re.compile(r"\balready (?:exists?|installed|running|up.to.date)", re.I)
# Programs that complain of the work at hand until it is edited.
_CHECKERS = frozenset(
    """
    black eslint flake8 golangci-lint hadolint ktlint mypy phpcs phpstan pint prettier psalm pylint pyright rubocop ruff
    shellcheck standardrb stylelint swiftlint tflint tsc yamllint
    """.split()  # noqa: SIM905
)


def is_probe_command(words: Sequence[str]) -> bool:
    """Return whether a command only looks something up, or asks who is there: `redis-cli ping`, `docker ps`."""
    if not words:
        return False
    is_printing = words[0] == "sed" and not any(word.startswith(("-i", "--in-place")) for word in words)
    return is_printing or get_program_name(words[0]) in _PROBES or words[1:] in _QUESTIONS


def _is_checker_command(words: tuple[str, ...]) -> bool:
    """Return whether a command examines the work at hand, so that it fails until that is edited."""
    named = words[(at := find_program_index(words)) : at + 2] if words else ()
    return any(get_program_name(word) in _CHECKERS for word in named) or named[1:] in (("lint",), ("credo",))


def _only_examines(words: tuple[str, ...], signature: str) -> bool:
    has_answer = _IS_THERE_ALREADY.search(signature) or (
        not _LOOKUP_VERBS.isdisjoint(words[1:4]) and _FOUND_NOTHING.search(signature)
    )
    return is_probe_command(words) or _is_checker_command(words) or bool(has_answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingOccurrence:
    """A failed call that a finding counts, with its cost, or a statement of a rule."""

    session: str
    file: str  # the name of its transcript; empty for a conversation in the journal
    turn: str
    at: str
    calls: int = 0  # spent on the failure, with itself
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurringFailure:
    """A failure that several sessions share, and its cost."""

    IN_JSON: ClassVar = ("calls", "minutes")

    what: str
    tool: str
    project: str
    sessions: int
    rows: tuple[FindingOccurrence, ...]  # what `calls` counts, oldest first
    last: str
    signature: str
    command: str = ""  # the last failing command line; empty for tools
    is_open: bool = False  # neither the next call nor a similar one succeeded later, in any session
    has_worked_later: bool = True  # a similar call succeeded later in a session
    can_have_remedy: bool = False  # it is not about the work at hand, such as a failing test, and not transient
    is_probe_command: bool = False  # it only looked something up or examined the work, which fails as it should

    @property
    def calls(self) -> int:
        return len(self.rows)

    @property
    def minutes(self) -> float:
        return sum_minutes(self.rows)


def _shorten_command_for_display(words: Sequence[str]) -> Sequence[str]:
    """Return the first words of a command, without an option whose value would be cut off, and a mark if it goes on."""
    shown = words[:_SHOWN_WORDS]
    if len(words) == len(shown):
        return shown
    return (*(shown[:-1] if is_flag(shown[-1]) else shown), VARYING_WORD)


def list_recurring_failures_by_cost(seen: Sequence[SessionFailuresAndCorrections]) -> tuple[RecurringFailure, ...]:
    groups: dict[tuple[str, str, str], list[tuple[SessionFailuresAndCorrections, FailedCallDetails]]] = defaultdict(
        list
    )
    for facts in seen:
        for failure in facts.failures:
            groups[failure.signature, failure.tool, facts.project].append((facts, failure))
    found = []
    for (signature, tool, project), members in groups.items():
        rows = tuple(build_finding_occurrence(facts, failure) for facts, failure in members)
        # What a lookup met, other commands may meet as well, and they name it better.
        telling = [one for one in members if not _only_examines(one[1].words, signature)] or members
        endings = {failure.ending for _, failure in members}
        shared = find_shared_beginning([failure.words for _, failure in telling])
        # A program alone, such as `git`, does not say what fails.
        command = quote_for_shell(_shorten_command_for_display(shared if shared[1:] else telling[-1][1].words))
        recurring = RecurringFailure(
            what=f"{command}: {signature}" if command else signature,
            tool=tool,
            project=project,
            sessions=len({facts.conversation for facts, _ in members}),
            rows=rows,
            last=max(failure.at or facts.last for facts, failure in members),
            signature=signature,
            command=command,
            is_open=endings <= {NoRemedyReason.NOTHING},
            has_worked_later=not endings <= {NoRemedyReason.NOTHING, NoRemedyReason.BYPASSED},
            can_have_remedy=members[-1][1].cause.can_have_remedy,
            is_probe_command=_only_examines(telling[-1][1].words, signature),
        )
        found.append((-compute_cost_in_seconds(rows), signature, project, recurring))
    return tuple(one[-1] for one in sorted(found, key=lambda one: one[:3]))


def build_finding_occurrence(
    facts: SessionFailuresAndCorrections, found: FailedCallDetails | UserCorrection
) -> FindingOccurrence:
    # Of the journal's sessions, the file is the session.
    file = "" if facts.file == facts.session else facts.file
    row = FindingOccurrence(session=facts.session, file=file, turn=found.turn, at=found.at)
    if isinstance(found, UserCorrection):
        return row
    return replace(row, calls=found.calls, seconds=round(found.seconds, 1))


def sum_minutes(rows: Iterable[FindingOccurrence]) -> float:
    return round(sum(row.seconds for row in rows) / 60, 1)


def compute_cost_in_seconds(rows: Sequence[FindingOccurrence]) -> float:
    """Return the cost of failed calls, in seconds."""
    return sum(row.seconds + 20 * row.calls for row in rows)


def find_shared_beginning(wrongs: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    shared = wrongs[0]
    for wrong in wrongs[1:]:
        count = next(
            (at for at, pair in enumerate(zip(shared, wrong, strict=False)) if pair[0] != pair[1]), len(shared)
        )
        shared = shared[: min(count, len(wrong))]
    return shared
