"""Where an address leads: to a host that everybody knows, to one the skill is at home with, or to a stranger's."""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import Any

_ADDRESS = re.compile(
    r"(?:https?|wss?|ftp|s3|gs)://(?:[^\s/@\"'<>]{1,64}@)?(?P<url>[\w.-]{1,253})"
    r"|(?<=[\w.+-])@(?P<mail>(?:[\w-]{1,63}\.){1,5}[a-z]{2,24})\b"
    r"|(?<![\w.:/~$-])(?P<ip>\d{1,3}(?:\.\d{1,3}){3})(?![\w.]\d)"
    r"|(?<![\w.:@/~$\\-])(?P<bare>(?:(?:[a-z0-9-]{1,40}\.){1,4}"
    r"(?:com|org|net|io|dev|cc|ru|cn|xyz|biz|onion|top|site|online|live|club|info|app|tk)"
    r"|(?:[a-z0-9-]{1,40}\.){2,4}(?:link|click|lol|cloud|tech|website|icu|pw|ws|gg|ltd|de|uk|eu|fr|nl|ch)))(?![\w(-]|\.\w)(?=/|:\d|[\s,;.)`\"']|$)"
)
_HERE = re.compile(r"(?:127|0)\.\d.*|169\.254\..*")
_PUBLIC = re.compile(r"(?!(?:127|10|0)\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.)\d{1,3}(?:\.\d{1,3}){3}")
_OWN_FROM = 3  # how often a skill names a host that is its own


class HostKind(Enum):
    FOREIGN = "foreign"
    KNOWN = "known"
    OWN = "own"
    PLACEHOLDER = "placeholder"  # example.com and its like
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownHosts:
    rented: frozenset[str]
    known: frozenset[str]
    nowhere: frozenset[str]
    services: Mapping[str, frozenset[str]]  # what keys are named after → where they belong


@functools.cache
def load_known_hosts() -> KnownHosts:
    table = dict(load_rule_table("hosts"))
    services = {name: frozenset(domains.split()) for name, domains in table.pop("services").items()}
    return KnownHosts(services=services, **{name: frozenset(names.split()) for name, names in table.items()})


@functools.cache
def load_rule_table(name: str) -> dict[str, Any]:
    return tomllib.loads((files("habitus.screening") / "rules" / f"{name}.toml").read_text("utf-8"))


@dataclass(frozen=True, kw_only=True, slots=True)
class HostClassifier:
    """Classifies hosts for one skill: its own are those it names again and again, and those named like itself."""

    named: Mapping[str, int]
    about: str

    @classmethod
    def from_texts(cls, texts: Iterable[str], about: str, *, scripts: Iterable[str] = ()) -> HostClassifier:
        """Addresses that only scripts name are not the skill's own; a name alone may be code: `args.app`."""
        named = Counter(get_domain(host) for text in texts for host in find_hosts(text))
        named.update(
            get_domain(found["bare"])
            for text in map(str.lower, scripts)
            for found in _ADDRESS.finditer(text)
            if found["bare"] and text[found.end() : found.end() + 1] not in ("/", ":")
        )
        return cls(named=named, about=_ADDRESS.sub(" ", about.lower()))

    def classify(self, host: str) -> HostKind:
        if host.replace(".", "").isdigit():
            return HostKind.LOCAL if _HERE.fullmatch(host) else HostKind.FOREIGN
        domain, top = get_domain(host), host.rpartition(".")[2]
        if "." not in host or top in ("local", "internal", "localhost"):
            return HostKind.LOCAL
        if domain in load_known_hosts().nowhere:
            return HostKind.PLACEHOLDER
        if domain in load_known_hosts().rented:
            return HostKind.FOREIGN
        if domain in load_known_hosts().known:
            return HostKind.KNOWN
        is_own = self.named.get(domain, 0) >= _OWN_FROM or domain.partition(".")[0] in self.about
        return HostKind.OWN if is_own else HostKind.FOREIGN

    def find_first_foreign_host(self, text: str) -> str:
        """Return the first host in a text that the skill has nothing else to do with; empty if there is none."""
        return next((host for host in find_hosts(text) if self.classify(host) is HostKind.FOREIGN), "")


def find_hosts(text: str) -> Iterator[str]:
    for found in _ADDRESS.finditer(text.lower()):
        yield (found["url"] or found["mail"] or found["ip"] or found["bare"]).strip(".")


def is_throwaway_host(host: str) -> bool:
    """Whether anyone can have the host for a minute: a rented name or a bare public address."""
    return get_domain(host) in load_known_hosts().rented or _PUBLIC.fullmatch(host) is not None


def get_domain(host: str) -> str:
    return host if host.replace(".", "").isdigit() else ".".join(host.split(".")[-2:])


@functools.cache
def _compile_service_key_pattern() -> re.Pattern[str]:
    """The name of a key that belongs to one service: `GITHUB_TOKEN`, `stripe.api_key`."""
    names = "|".join(load_known_hosts().services)
    return re.compile(rf"(?<![a-z0-9])({names})[_.](?:\w{{1,30}}_)?(?:token|key|secret|pat|password)\b")


def find_services_of_named_keys(text: str) -> frozenset[str]:
    """Return the services whose keys a text names."""
    return frozenset(_compile_service_key_pattern().findall(text.lower()))


def is_host_of_other_service(service: str, host: str) -> bool:
    return get_domain(host) not in load_known_hosts().services[service] and service not in host.split(".")
