"""A remedy: what failed and what worked, how they differ, and whether it may be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from habitus.learning.remedies.commands import word_set, written
from habitus.learning.remedies.troubles import Cause

LONGEST = 160  # characters of a remedy; what is longer is no habit but a piece of work
_ODD = re.compile(r"\$\(|`|\[redacted|\n|[<>]|…")  # computed, secret, or cut
_GUARDS = word_set(
    "sudo doas --force -f --force-with-lease --no-verify --insecure -k --no-check-certificate --hard --privileged",
    "--break-system-packages --allow-root --no-sandbox --skip-checks --disable-warnings --trusted-host --no-gpg-sign",
    "777 -rf -fr --no-strict --yolo --unsafe-perm --allow-unauthenticated --nodeps -lock --no-lock",
)


class Change(StrEnum):
    """How what worked differs from what failed."""

    INSTEAD = "instead"  # another program, or the same through something else
    PLACE = "place"
    VARIABLE = "variable"
    FLAGS = "flags"
    NAME = "name"  # another word: a subcommand, a script, a path
    ARGUMENT = "argument"  # of a tool that is no shell
    FIRST = "first"  # the same, after another call


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What failed and what worked, in the words that matter for it."""

    change: Change
    cause: Cause
    about: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]
    tool: str = ""  # of a call that is no shell's

    @property
    def can_be_quoted(self) -> bool:
        """Short, plain, and with no address that only what worked has: that is fetched from elsewhere."""
        if len(written((*self.wrong, *self.right))) > LONGEST:
            return False
        return not any(_ODD.search(word) or ("://" in word and word not in self.wrong) for word in self.right)

    @property
    def goes_round_a_guard(self) -> bool:
        added = set(self.right) - set(self.wrong)
        return any(
            word.partition("=")[0] in _GUARDS or "dangerous" in word or "StrictHostKey" in word for word in added
        )
