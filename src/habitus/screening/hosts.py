"""Where addresses lead: hosts that everybody knows, hosts that the skill is at home with, and foreign ones. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from habitus.screening.rules import hosts

_ADDRESS = re.compile(
    r"(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]{1,64}@)?([\w.-]{1,253})|(?<=[\w.+-])@((?:[\w-]{1,63}\.){1,5}[a-z]{2,24})\b"
)
_PUBLIC = re.compile(r"(?!(?:127|10|0)\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.)\d{1,3}(?:\.\d{1,3}){3}")
_ELSEWHERE = 3  # how often a skill names a host that is its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """Which hosts a skill is at home with: those it names again and again, and those named like itself."""

    own: Mapping[str, int]
    about: str

    def kind(self, host: str) -> str:
        """Where an address leads; empty for examples and the machine itself."""
        if host.replace(".", "").isdigit():
            return "foreign_host" if _PUBLIC.fullmatch(host) else ""
        domain = domain_of(host)
        if "." not in host or domain in hosts().nowhere or host.rpartition(".")[2] in hosts().nowhere:
            return ""
        if domain in hosts().rented:
            return "foreign_host"
        if domain in hosts().known:
            return "known_host"
        is_own = self.own.get(domain, 0) >= _ELSEWHERE or domain.partition(".")[0] in self.about
        return "own_host" if is_own else "foreign_host"


def neighbourhood(texts: Iterable[str], about: str) -> Neighbourhood:
    named = Counter(domain_of(host) for text in texts for _, host in addresses(text))
    return Neighbourhood(own=named, about=_ADDRESS.sub(" ", about.lower()))


def addresses(lower: str) -> Iterator[tuple[int, str]]:
    """Where addresses stand, and their hosts."""
    if "://" in lower or "@" in lower:
        for found in _ADDRESS.finditer(lower):
            yield found.start(), (found[1] or found[2]).strip(".")


def is_rented(host: str) -> bool:
    return domain_of(host) in hosts().rented


def domain_of(host: str) -> str:
    return ".".join(host.split(".")[-2:])
