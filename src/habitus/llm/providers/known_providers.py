"""Which provider a name means, its address and key, and how long it is waited for; nothing is imported."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from habitus.errors import HabitusError, Invalid, NotFound, Refused, did_you_mean
from habitus.llm.agents.programs import PROGRAMS
from habitus.text import one_line


class Dialect(StrEnum):
    """How a server is spoken to, as pydantic-ai names it."""

    OPENAI = "openai"  # OpenAI itself
    CHAT = "openai-chat"  # what every OpenAI-compatible server understands
    OLLAMA = "ollama"  # the same, with Ollama's own ideas of it
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """All there is to a provider stands in its entry below; what speaks its dialect is in `wire`."""

    dialect: Dialect
    keys: tuple[str, ...] = ()  # the variables that may hold the key; the first that does is taken
    address_in: str = ""  # the variable that names another address
    address: str = ""  # where a local server listens unless told otherwise
    path: str = ""  # what follows a bare host and port
    start: str = ""  # how a person starts the local server
    example: str
    main: str = ""  # the model to take when only a key says which provider
    cheap: str = ""
    other_names: tuple[str, ...] = ()
    families: tuple[str, ...] = ()  # how names of its models begin


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        dialect=Dialect.ANTHROPIC,
        keys=("ANTHROPIC_API_KEY",),
        address_in="ANTHROPIC_BASE_URL",
        example="anthropic:claude-sonnet-5-5",
        main="claude-sonnet-5-5",
        cheap="claude-haiku-5-5",
        other_names=("claude",),
        families=("claude",),
    ),
    "openai": Provider(
        dialect=Dialect.OPENAI,
        keys=("OPENAI_API_KEY",),
        address_in="OPENAI_BASE_URL",
        example="openai:gpt-5.4-mini",
        main="gpt-5",
        cheap="gpt-5-mini",
        families=("gpt", "o1", "o3", "o4"),
    ),
    "google": Provider(
        dialect=Dialect.GOOGLE,
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        address_in="GOOGLE_GEMINI_BASE_URL",
        example="google:gemini-flash-latest",
        main="gemini-2.5-pro",
        cheap="gemini-2.5-flash",
        other_names=("google-gla", "gemini"),
        families=("gemini",),
    ),
    "ollama": Provider(
        dialect=Dialect.OLLAMA,
        keys=("OLLAMA_API_KEY",),
        address_in="OLLAMA_HOST",
        address="http://127.0.0.1:11434/v1",
        path="/v1",
        start="ollama serve",
        example="ollama:qwen3",
    ),
    "llamacpp": Provider(
        dialect=Dialect.CHAT,
        keys=("LLAMA_API_KEY",),
        address_in="LLAMACPP_BASE_URL",
        address="http://127.0.0.1:8080/v1",
        path="/v1",
        start="llama-server -m MODEL.gguf",
        example="llamacpp:default",
        other_names=("llama.cpp",),
    ),
    "vllm": Provider(
        dialect=Dialect.CHAT,
        keys=("VLLM_API_KEY",),
        address_in="VLLM_BASE_URL",
        address="http://127.0.0.1:8000/v1",
        path="/v1",
        start="vllm serve MODEL",
        example="vllm:Qwen/Qwen3-8B",
    ),
}
_OTHER_NAMES = {other: name for name, provider in PROVIDERS.items() for other in provider.other_names}
_FAMILIES = {start: name for name, provider in PROVIDERS.items() for start in provider.families}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """One model at one address, with what opens the door."""

    name: str  # provider:model, as the person knows it
    model: str
    provider: Provider
    dialect: Dialect
    address: str  # empty: where the provider itself answers
    key: str = field(repr=False)
    key_variable: str  # where the key stands, or should

    @property
    def is_on_this_machine(self) -> bool:
        return bool(self.address) and _is_loopback(urlsplit(self.address).hostname or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultModels:
    """The models to take where nothing but a key is set."""

    main: str = ""
    cheap: str = ""
    key: str = ""  # the variable that says so


def default_models(environ: Mapping[str, str]) -> DefaultModels:
    """Those of the first provider whose key is there; none without."""
    for name, provider in PROVIDERS.items():
        variable, key = _key(provider, environ)
        if provider.main and key:
            return DefaultModels(main=f"{name}:{provider.main}", cheap=f"{name}:{provider.cheap}", key=variable)
    return DefaultModels()


def telling_keys() -> list[str]:
    """The variables that are enough to say which model answers."""
    return [provider.keys[0] for provider in PROVIDERS.values() if provider.main]


def choose(name: str, environ: Mapping[str, str], base_url: str = "") -> ModelChoice:
    """The choice that `provider:model` stands for; every mistake in it is one line that says how to mend it."""
    provider_name, model = split_name(name.strip())
    provider = PROVIDERS[provider_name]
    address = _address(provider, environ, base_url if provider_name == "openai" else "")
    variable, key = _key(provider, environ)
    if not key and not address:
        raise Refused(
            f"No key for {provider_name}: {' or '.join(provider.keys)} is not set.",
            mend=f"Set it: export {provider.keys[0]}=…",
        )
    # An address of one's own need not know what only OpenAI's does, but chat is understood everywhere.
    dialect = Dialect.CHAT if provider.dialect is Dialect.OPENAI and address else provider.dialect
    return ModelChoice(
        name=f"{provider_name}:{model}",
        model=model,
        provider=provider,
        dialect=dialect,
        address=address,
        key=key,
        key_variable=variable,
    )


def split_name(name: str) -> tuple[str, str]:
    """Provider and model; what nobody knows is refused with the closest that is known."""
    if not name:
        examples = ", ".join(provider.example for provider in PROVIDERS.values())
        raise Invalid("No model is set.", mend=f"Set HABITUS_MODEL to one like {examples}.")
    before, colon, model = name.partition(":")
    provider = _OTHER_NAMES.get(before.lower(), before.lower())
    if provider in PROVIDERS and model:
        return provider, model
    if provider in PROVIDERS:
        raise Invalid(f"'{name}' names no model.", mend=f"Write provider:model, like {PROVIDERS[provider].example}.")
    if not colon:
        mend = did_you_mean(name, PROGRAMS, cutoff=0.8) or _with_provider(name)
        raise Invalid(f"'{name}' names no provider.", mend=mend)
    hint = did_you_mean(provider, PROVIDERS) or f"Known are {', '.join(PROVIDERS)}."
    raise NotFound(
        f"No provider '{before}'.", mend=f"{hint} Any OpenAI-compatible server works as openai:… with base_url set."
    )


def _with_provider(model: str) -> str:
    family = next((provider for start, provider in _FAMILIES.items() if model.lower().startswith(start)), "")
    example = PROVIDERS["anthropic"].example
    return f"Did you mean '{family}:{model}'?" if family else f"Write provider:model, like {example}."


def _address(provider: Provider, environ: Mapping[str, str], base_url: str) -> str:
    given = (base_url or environ.get(provider.address_in, "")).strip()
    if not given:
        return provider.address
    address = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise Invalid(f"'{given}' is no address of a server.", mend="Write one like http://127.0.0.1:8080/v1.")
    if host == "0.0.0.0":  # where a server listens, not where it is reached
        address = address.replace("0.0.0.0", "127.0.0.1", 1)
    return address.rstrip("/") + (provider.path if parts.path in ("", "/") else "")


def _key(provider: Provider, environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in provider.keys:
        if key := environ.get(variable, "").strip():
            return variable, key
    return provider.keys[0], ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_BLIND = re.compile(r"gpt-3\.5|gpt-4-(?:0|1106)|gpt-4$|o1-mini|o1-preview|o3-mini|claude-2|claude-instant|gpt-oss")
_SEEING = re.compile(
    r"gpt-4o|gpt-4\.1|gpt-[5-9]|claude-|gemini|vision|llava|\bvl\b|[-.\d]vl|gemma-?[34]|llama-?4|pixtral|moondream"
    r"|minicpm-v|internvl|mistral-small-?3",
    re.IGNORECASE,
)


def sees_images(choice: ModelChoice) -> bool:
    """A big provider's model sees unless it is known not to; one of another server, if its name says so."""
    if _BLIND.search(choice.model.lower()):
        return False
    if choice.dialect in (Dialect.CHAT, Dialect.OLLAMA):
        return _SEEING.search(choice.model) is not None
    return True


_PATIENCE_S = 0.5


def running_here(environ: Mapping[str, str]) -> list[str]:
    """One model of every local server that answers, as HABITUS_MODEL names it."""
    local = [name for name, provider in PROVIDERS.items() if provider.address]
    with ThreadPoolExecutor(len(local)) as asking:
        found = asking.map(lambda name: _first(name, environ), local)
        return [name for name in found if name]


def _first(provider: str, environ: Mapping[str, str]) -> str:
    choice = choose(f"{provider}:any", environ)
    address = urlsplit(choice.address)
    if not choice.is_on_this_machine or address.scheme != "http":
        return ""
    try:
        with closing(HTTPConnection(address.hostname or "", address.port or 80, timeout=_PATIENCE_S)) as server:
            server.request("GET", f"{address.path.rstrip('/')}/models")
            listed = json.loads(server.getresponse().read(1_000_000))
        return f"{provider}:{one_line(str(listed['data'][0]['id']))}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """Time-outs and retries. A request is asked again only while nothing of its answer has been handed on."""

    silence: float = 300.0  # seconds without a word
    total: float = 1800.0  # seconds for one answer, every attempt of it included
    attempts: int = 4
    first_pause: float = 1.0  # doubled each time
    longest_pause: float = 60.0  # a provider that asks for more is not waited for
    spread: Callable[[], float] = random.random  # so that many clients don't come back together

    def pause(self, fault: Fault, attempt: int) -> float | None:
        """Seconds to wait before the next attempt; none when there is to be no other."""
        if not fault.is_passing or attempt >= self.attempts:
            return None
        if fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= self.longest_pause else None
        longest = min(self.first_pause * 2.0 ** (attempt - 1), self.longest_pause)
        return longest * (0.5 + 0.5 * self.spread())


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault in our words, and whether it may be different in a moment."""

    error: HabitusError
    is_passing: bool = False
    retry_after: float | None = None  # seconds, where the provider said


class TooSilent(Exception):
    """Nothing came for this many seconds."""

    def __init__(self, seconds: float, *, is_final: bool) -> None:
        self.seconds = seconds
        self.is_final = is_final
        super().__init__(f"no word for {seconds:g} seconds")


class Watch:
    """Runs from the first attempt to the last word."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._end = asyncio.get_running_loop().time() + patience.total

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """What is awaited inside is cancelled when it takes too long."""
        left = self._end - asyncio.get_running_loop().time()
        is_final = left <= self._patience.silence
        try:
            async with asyncio.timeout(max(0.0, min(left, self._patience.silence))) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            seconds = self._patience.total if is_final else self._patience.silence
            raise TooSilent(seconds, is_final=is_final) from error
