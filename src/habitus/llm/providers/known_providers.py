"""The known providers with their addresses, keys and retry policy; imports no provider library."""

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
from habitus.text import clean_to_one_line


class ProviderDialect(StrEnum):
    """The API that a server speaks, as pydantic-ai names it."""

    # OpenAI itself.
    OPENAI = "openai"
    # Understood by every OpenAI-compatible server.
    CHAT = "openai-chat"
    # The same with Ollama's deviations.
    OLLAMA = "ollama"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderSpec:
    """Everything about a provider except its API, which `wire` implements by dialect."""

    dialect: ProviderDialect
    # Environment variables that may contain the key; the first that is set wins.
    keys: tuple[str, ...] = ()
    # The variable with another address.
    address_in: str = ""
    # The default address of a local server.
    address: str = ""
    # Appended to a bare host and port.
    path: str = ""
    # The command that starts the local server.
    start: str = ""
    example: str
    # The default model if only the key is set.
    main: str = ""
    cheap: str = ""
    other_names: tuple[str, ...] = ()
    # Prefixes of its model names.
    families: tuple[str, ...] = ()


PROVIDERS: Mapping[str, ProviderSpec] = {
    "anthropic": ProviderSpec(
        dialect=ProviderDialect.ANTHROPIC,
        keys=("ANTHROPIC_API_KEY",),
        address_in="ANTHROPIC_BASE_URL",
        example="anthropic:claude-sonnet-5-5",
        main="claude-sonnet-5-5",
        cheap="claude-haiku-5-5",
        other_names=("claude",),
        families=("claude",),
    ),
    "openai": ProviderSpec(
        dialect=ProviderDialect.OPENAI,
        keys=("OPENAI_API_KEY",),
        address_in="OPENAI_BASE_URL",
        example="openai:gpt-5.4-mini",
        main="gpt-5",
        cheap="gpt-5-mini",
        families=("gpt", "o1", "o3", "o4"),
    ),
    "google": ProviderSpec(
        dialect=ProviderDialect.GOOGLE,
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        address_in="GOOGLE_GEMINI_BASE_URL",
        example="google:gemini-flash-latest",
        main="gemini-2.5-pro",
        cheap="gemini-2.5-flash",
        other_names=("google-gla", "gemini"),
        families=("gemini",),
    ),
    "ollama": ProviderSpec(
        dialect=ProviderDialect.OLLAMA,
        keys=("OLLAMA_API_KEY",),
        address_in="OLLAMA_HOST",
        address="http://127.0.0.1:11434/v1",
        path="/v1",
        start="ollama serve",
        example="ollama:qwen3",
    ),
    "llamacpp": ProviderSpec(
        dialect=ProviderDialect.CHAT,
        keys=("LLAMA_API_KEY",),
        address_in="LLAMACPP_BASE_URL",
        address="http://127.0.0.1:8080/v1",
        path="/v1",
        start="llama-server -m MODEL.gguf",
        example="llamacpp:default",
        other_names=("llama.cpp",),
    ),
    "vllm": ProviderSpec(
        dialect=ProviderDialect.CHAT,
        keys=("VLLM_API_KEY",),
        address_in="VLLM_BASE_URL",
        address="http://127.0.0.1:8000/v1",
        path="/v1",
        start="vllm serve MODEL",
        example="vllm:Qwen/Qwen3-8B",
    ),
}
KEY_VARIABLES = frozenset(key for provider in PROVIDERS.values() for key in provider.keys)
_OTHER_NAMES = {other: name for name, provider in PROVIDERS.items() for other in provider.other_names}
_FAMILIES = {start: name for name, provider in PROVIDERS.items() for start in provider.families}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelWithAddressAndKey:
    """A model at an address, with its key."""

    # provider:model, as the user writes it.
    name: str
    model: str
    provider: ProviderSpec
    dialect: ProviderDialect
    # Empty for the provider's own address.
    address: str
    key: str = field(repr=False)
    # The variable that contains the key, or should.
    key_variable: str

    @property
    def is_on_this_machine(self) -> bool:
        return bool(self.address) and _is_loopback(urlsplit(self.address).hostname or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultModels:
    """The models to use if nothing but a key is set."""

    main: str = ""
    cheap: str = ""
    # The variable that decided.
    key: str = ""


def find_default_models(environ: Mapping[str, str]) -> DefaultModels:
    """Return the default models of the first provider whose key is set; empty without one."""
    for name, provider in PROVIDERS.items():
        variable, key = _find_key_variable_and_value(provider, environ)
        if provider.main and key:
            return DefaultModels(main=f"{name}:{provider.main}", cheap=f"{name}:{provider.cheap}", key=variable)
    return DefaultModels()


def list_default_models_with_key(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the default model of each provider whose key is set, with the variable of the key."""
    return [
        (_find_key_variable_and_value(provider, environ)[0], f"{name}:{provider.main}")
        for name, provider in PROVIDERS.items()
        if provider.main and _find_key_variable_and_value(provider, environ)[1]
    ]


def list_provider_key_variables() -> list[str]:
    """Return the variables that are enough to choose a model."""
    return [provider.keys[0] for provider in PROVIDERS.values() if provider.main]


def resolve_model_choice(name: str, environ: Mapping[str, str], base_url: str = "") -> ModelWithAddressAndKey:
    """Return the choice for `provider:model`; every mistake in it raises an error with a hint."""
    provider_name, model = split_model_name(name.strip())
    provider = PROVIDERS[provider_name]
    address = _find_address(provider, environ, base_url if provider_name == "openai" else "")
    variable, key = _find_key_variable_and_value(provider, environ)
    if not key and not address:
        raise Refused(
            f"No key for {provider_name}: {' or '.join(provider.keys)} is not set.",
            hint=f"Set it: export {provider.keys[0]}=…",
        )
    # A custom address need not support OpenAI's own API, but chat is understood everywhere.
    dialect = ProviderDialect.CHAT if provider.dialect is ProviderDialect.OPENAI and address else provider.dialect
    return ModelWithAddressAndKey(
        name=f"{provider_name}:{model}",
        model=model,
        provider=provider,
        dialect=dialect,
        address=address,
        key=key,
        key_variable=variable,
    )


def split_model_name(name: str) -> tuple[str, str]:
    """Split a name into provider and model; unknown names raise an error with the closest known one."""
    if not name:
        examples = ", ".join(provider.example for provider in PROVIDERS.values())
        raise Invalid("No model is set.", hint=f"Set HABITUS_MODEL to one like {examples}.")
    before, colon, model = name.partition(":")
    provider = _OTHER_NAMES.get(before.lower(), before.lower())
    if provider in PROVIDERS and model:
        return provider, model
    if provider in PROVIDERS:
        raise Invalid(f"'{name}' names no model.", hint=f"Write provider:model, like {PROVIDERS[provider].example}.")
    if not colon:
        hint = did_you_mean(name, PROGRAMS, cutoff=0.8) or _build_missing_provider_hint(name)
        raise Invalid(f"'{name}' names no provider.", hint=hint)
    nearest = did_you_mean(provider, PROVIDERS) or f"Known are {', '.join(PROVIDERS)}."
    raise NotFound(
        f"No provider '{before}'.", hint=f"{nearest} Any OpenAI-compatible server works as openai:… with base_url set."
    )


def _build_missing_provider_hint(model: str) -> str:
    family = next((provider for start, provider in _FAMILIES.items() if model.lower().startswith(start)), "")
    example = PROVIDERS["anthropic"].example
    return f"Did you mean '{family}:{model}'?" if family else f"Write provider:model, like {example}."


def _find_address(provider: ProviderSpec, environ: Mapping[str, str], base_url: str) -> str:
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
        raise Invalid(f"'{given}' is no address of a server.", hint="Write one like http://127.0.0.1:8080/v1.")
    # A server listens there, but clients can't always connect to it.
    if host == "0.0.0.0":
        address = address.replace("0.0.0.0", "127.0.0.1", 1)
    return address.rstrip("/") + (provider.path if parts.path in ("", "/") else "")


def _find_key_variable_and_value(provider: ProviderSpec, environ: Mapping[str, str]) -> tuple[str, str]:
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


def accepts_images(choice: ModelWithAddressAndKey) -> bool:
    """Return whether a model accepts images: models of big providers unless known not to, others if the name
    says so.
    """
    if _BLIND.search(choice.model.lower()):
        return False
    if choice.dialect in (ProviderDialect.CHAT, ProviderDialect.OLLAMA):
        return _SEEING.search(choice.model) is not None
    return True


_PROBE_TIMEOUT_S = 0.5


def list_one_model_per_local_server(environ: Mapping[str, str]) -> list[str]:
    """Return one model of every local server that answers, as HABITUS_MODEL names it."""
    local = [name for name, provider in PROVIDERS.items() if provider.address]
    with ThreadPoolExecutor(len(local)) as asking:
        found = asking.map(lambda name: _fetch_first_model_of_local_server(name, environ), local)
        return [name for name in found if name]


def _fetch_first_model_of_local_server(provider: str, environ: Mapping[str, str]) -> str:
    choice = resolve_model_choice(f"{provider}:any", environ)
    address = urlsplit(choice.address)
    if not choice.is_on_this_machine or address.scheme != "http":
        return ""
    try:
        with closing(HTTPConnection(address.hostname or "", address.port or 80, timeout=_PROBE_TIMEOUT_S)) as server:
            server.request("GET", f"{address.path.rstrip('/')}/models")
            listed = json.loads(server.getresponse().read(1_000_000))
        return f"{provider}:{clean_to_one_line(str(listed['data'][0]['id']))}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryAndTimeoutPolicy:
    """Timeouts and retries. A request is retried only while none of its answer was yielded."""

    # Seconds without any output.
    silence: float = 300.0
    # Seconds for one answer, all attempts included.
    total: float = 1800.0
    attempts: int = 4
    # Seconds, doubled each time.
    first_pause: float = 1.0
    # If a provider asks for a longer pause, the request fails.
    longest_pause: float = 60.0
    # Jitter, which stops many clients from retrying at the same time.
    spread: Callable[[], float] = random.random

    def get_seconds_until_retry(self, fault: ClassifiedFault, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if not fault.is_transient or attempt >= self.attempts:
            return None
        if fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= self.longest_pause else None
        longest = min(self.first_pause * 2.0 ** (attempt - 1), self.longest_pause)
        return longest * (0.5 + 0.5 * self.spread())


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifiedFault:
    """A failure of a provider as one of our errors, and whether a retry may help."""

    error: HabitusError
    is_transient: bool = False
    # Seconds, if the provider said so.
    retry_after: float | None = None


class SilenceTimeoutError(Exception):
    """Nothing arrived for this many seconds."""

    def __init__(self, seconds: float, *, is_final: bool) -> None:
        self.seconds = seconds
        self.is_final = is_final
        super().__init__(f"no word for {seconds:g} seconds")


class AnswerTimeLimits:
    """The time limits of one answer, from the first attempt to the last piece."""

    def __init__(self, patience: RetryAndTimeoutPolicy) -> None:
        self._patience = patience
        self._end = asyncio.get_running_loop().time() + patience.total

    @asynccontextmanager
    async def limit_wait_for_next_piece(self) -> AsyncIterator[None]:
        """Cancel the block if it takes longer than the allowed silence or the remaining time."""
        left = self._end - asyncio.get_running_loop().time()
        is_final = left <= self._patience.silence
        try:
            async with asyncio.timeout(max(0.0, min(left, self._patience.silence))) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            seconds = self._patience.total if is_final else self._patience.silence
            raise SilenceTimeoutError(seconds, is_final=is_final) from error
