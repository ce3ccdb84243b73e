"""What the readers of code share: one finding in code, and what they know of the skill while they read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from habitus.screening.findings import RiskLevel
from habitus.screening.hosts import (
    HostClassifier,
    HostKind,
    find_services_of_named_keys,
    is_host_of_other_service,
    load_rule_table,
)

_MOST_NESTED = 3  # scripts inside of scripts
_MOST_TEXT = 2_000
# Each alone is ordinary; both in one skill are a theft, even where the flow between them can't be followed.
READS_SECRETS, SENDS_FAR = "reads_secrets", "sends_far"
_EITHER = ("secret", "token", "fetched", "decoded", "personal", "shell")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeFinding:
    """What the code does in one line of it."""

    rule: str
    severity: RiskLevel
    line: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillCodeContext:
    """The hosts of the skill, and the way to read code in another language that stands in this one."""

    hosts: HostClassifier
    read: Callable[[str, str, SkillCodeContext], tuple[CodeFinding, ...]]
    nested: int = 0

    def is_foreign_host(self, host: str) -> bool:
        return bool(host) and self.hosts.classify(host) is HostKind.FOREIGN

    def judge_secret_sending(self, secret: str, host: str) -> tuple[str, RiskLevel]:
        """Return what sending a secret to a host is, in one sentence, and how bad that is."""
        kind = self.hosts.classify(host) if host else HostKind.FOREIGN
        what = secret if secret.startswith(("all ", "the ")) else f"the contents of {secret}"
        risk = RiskLevel.HIGH if kind in (HostKind.FOREIGN, HostKind.PLACEHOLDER) else RiskLevel.NOTE
        return f"Sends {what} to {host or 'a server'}.", risk

    def find_keys_of_other_services(self, keys: frozenset[str], host: str) -> list[str]:
        """Return the keys that are named after another service than the host's."""
        services = {key: find_services_of_named_keys(key) for key in sorted(keys)} if self.is_foreign_host(host) else {}
        return [
            key for key, named in services.items() if any(is_host_of_other_service(service, host) for service in named)
        ]

    def find_inner_code_threats(self, code: str, language: str) -> tuple[CodeFinding, ...]:
        """Return what a script inside of this one does; scripts nested deeper than anybody writes are left."""
        return self.read(code, language, replace(self, nested=self.nested + 1)) if self.nested < _MOST_NESTED else ()


@dataclass(frozen=True, slots=True)
class Taint:
    """What a stream, a variable or a file holds, as far as it matters."""

    token: str = ""  # what a login prints, which belongs into a header
    secret: str = ""  # the file or store that it was read from
    keys: frozenset[str] = frozenset()  # the names of single keys in it
    fetched: str = ""  # the host that it was downloaded from
    decoded: bool = False
    personal: str = ""  # the person's folder whose files it lists
    shell: bool = False  # what an interactive shell answers
    text: str = ""

    def __or__(self, other: Taint) -> Taint:
        if other is NOTHING or self is NOTHING:
            return self if other is NOTHING else other
        either = {name: getattr(self, name) or getattr(other, name) for name in _EITHER}
        text = f"{self.text}\n{other.text}".strip()[:_MOST_TEXT]
        return Taint(keys=self.keys | other.keys, text=text, **either)


NOTHING = Taint()


def merge_taints(flows: Iterable[Taint]) -> Taint:
    return functools.reduce(lambda a, b: a | b, flows, NOTHING)


def replace_taint_text(flow: Taint, text: str) -> Taint:
    return replace(flow, text=text)


@functools.cache
def get_command_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of `rules/commands.toml`."""
    table = load_rule_table("commands")
    return re.compile({**table["pieces"], **table["javascript"], **table["python"], **table["unparsed"]}[name])


@functools.cache
def get_command_names(kind: str) -> frozenset[str]:
    """Return the commands of a kind."""
    return frozenset(load_rule_table("commands")["names"][kind].split())
