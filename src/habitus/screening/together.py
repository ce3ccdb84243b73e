"""Signs that mean little alone and much together: an order for every task next to an upload, for example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from habitus.screening.findings import Category, Risk


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Rules that must match within a few lines of each other."""

    name: str
    category: Category
    severity: Risk
    signs: tuple[frozenset[str], ...]  # one of each; the first is the rare one, whose place is reported
    within: int  # lines
    why: str


def _signs(*groups: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split()) for group in groups)


_SENDS = "posts_file uploads_placeholder to_our_server private_data_sent rented_host_request chat_hook"
_INSISTS = "standing_order always"

ALL = (
    Together(
        name="standing_upload",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=10,
        signs=_signs(
            "uploads_placeholder to_our_server private_data_sent rented_host_request chat_hook",
            "standing_order",
            "always mentions_sending",
        ),
        why="After every task, something is to be sent to a server.",
    ),
    Together(
        name="upload_to_rented_host",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=2,
        signs=_signs("rented_host numeric_host", "posts_file mentions_sending mass_mail to_our_server"),
        why="Sends something to a host that anyone can have for a minute.",
    ),
    Together(
        name="agent_data_upload",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=1,
        signs=_signs(
            "uploads_placeholder",
            "mentions_sending to_our_server private_data_sent",
            "to_our_server private_data_sent always standing_order",
        ),
        why="Sends what the agent has at hand to a server.",
    ),
    Together(
        name="spying",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=8,
        signs=_signs("spies", "uploads_placeholder to_our_server rented_host_request rented_host"),
        why="Reads what belongs to the person and sends it away.",
    ),
    Together(
        name="credentials_upload",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=6,
        signs=_signs(
            "secrets_gathering reads_secret_file",
            "uploads_placeholder to_our_server rented_host_request rented_host chat_hook telling_host",
        ),
        why="Reads credentials and sends them away.",
    ),
    Together(
        name="standing_script",
        category=Category.DANGEROUS_CODE,
        severity=Risk.HIGH,
        within=1,
        signs=_signs("runs_own_script", "standing_order always_run"),
        why="A script is to be run with every task, whatever the task is.",
    ),
    Together(
        name="ransom",
        category=Category.DANGEROUS_CODE,
        severity=Risk.HIGH,
        within=8,
        signs=_signs("deletes_originals", "locks_files"),
        why="Locks files and deletes the originals.",
    ),
    Together(
        name="download_in_standing_order",
        category=Category.DANGEROUS_CODE,
        severity=Risk.HIGH,
        within=6,
        signs=_signs(
            "pipe_to_shell shell_of_download",
            "standing_order blind_execution override_instructions override_everything no_confirmation",
        ),
        why="Foreign code is to be run with every task or without a question.",
    ),
    Together(
        name="lasting_download",
        category=Category.DANGEROUS_CODE,
        severity=Risk.HIGH,
        within=0,
        signs=_signs("pipe_to_shell shell_of_download", "shell_profile scheduled git_hook"),
        why="Has foreign code run again and again.",
    ),
    Together(
        name="quiet_upload",
        category=Category.EXFILTRATION,
        severity=Risk.HIGH,
        within=4,
        signs=_signs("silently no_confirmation", _SENDS),
        why="Something is sent away without a question or a word.",
    ),
)


def found(
    lines: Mapping[str, Sequence[int]], is_near: Callable[[str, int, int], bool]
) -> Iterator[tuple[Together, int]]:
    """Which of them occur, and on which line.

    `lines` says where each rule matched; `is_near(rule, line, within)` tries one around a line.
    """
    matched = {name for name, where in lines.items() if where}
    for pair in ALL if matched else ():
        first, *others = pair.signs
        for line in sorted({line for name in first & matched for line in lines[name]}):
            if all(any(is_near(name, line, pair.within) for name in sorted(group)) for group in others):
                yield pair, line
                break
