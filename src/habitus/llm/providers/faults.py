"""Classifies failures of a provider: one line for the user, and whether a retry may help."""

from __future__ import annotations

import re
from collections.abc import Iterable

import httpx2
from pydantic_ai import exceptions as theirs

from habitus.errors import HabitusError, NotFound, Refused, did_you_mean
from habitus.llm.model import ContextOverflowError, ProviderError
from habitus.llm.providers.known_providers import (
    ClassifiedFault,
    ModelWithAddressAndKey,
    ProviderDialect,
    SilenceTimeoutError,
)
from habitus.redact import Redactor


class StreamInterruptedError(ProviderError):
    """A stream ended before the provider said so."""


# The last five are what the providers' libraries raise on a malformed stream.
PROVIDER_EXCEPTIONS: tuple[type[Exception], ...] = (
    ProviderError,
    SilenceTimeoutError,
    theirs.AgentRunError,
    theirs.UserError,
    httpx2.HTTPError,
    httpx2.StreamError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)


async def classify_fault(
    trouble: Exception, choice: ModelWithAddressAndKey, client: httpx2.AsyncClient
) -> ClassifiedFault:
    """Translate a provider's exception into an error of ours, and decide whether it may pass."""
    said = _quote_provider_message(trouble, choice)
    match trouble:
        case ProviderError():
            return ClassifiedFault(error=trouble, is_transient=isinstance(trouble, StreamInterruptedError))
        case SilenceTimeoutError(seconds=seconds, is_final=is_final):
            error = f"{choice.name} did not finish in {seconds:g} seconds." if is_final else ""
            return _build_classified_provider_fault(
                error or f"{choice.name} said nothing for {seconds:g} seconds.", is_passing=not is_final
            )
        case theirs.ModelNotFoundError():
            return ClassifiedFault(error=await _build_unknown_model_error(trouble, choice, client))
        case theirs.ModelAuthenticationError():
            return ClassifiedFault(error=_build_key_error(choice, said))
        case theirs.ModelQuotaExceededError():
            return ClassifiedFault(error=ProviderError(f"{choice.name} has no quota left{said}"))
        case theirs.ModelContextWindowExceededError():
            return ClassifiedFault(error=_build_overflow_error(choice, said))
        case theirs.ModelRequestRejectedError() if _OVERFLOW.search(said):
            return ClassifiedFault(error=_build_overflow_error(choice, said))
        case theirs.ModelRequestRejectedError() if _KEY.search(said):
            # Google answers 400 to a wrong key.
            return ClassifiedFault(error=_build_key_error(choice, said))
        case theirs.ModelRequestRejectedError():
            return ClassifiedFault(error=ProviderError(f"{choice.name} refused the request{said}"))
        case theirs.ModelRateLimitError():
            return _build_classified_provider_fault(
                f"{choice.name} is over its rate limit{said}", after=trouble.retry_after
            )
        case theirs.ModelOverloadedError():
            return _build_classified_provider_fault(f"{choice.name} is overloaded{said}", after=trouble.retry_after)
        case theirs.ModelConnectionError() | httpx2.TransportError() | OSError():
            return _build_unreachable_fault(trouble, choice, said)
        case theirs.ModelHTTPError(status_code=status):
            is_passing = status >= 500 and trouble.provider_retry_hint is not False
            # llama.cpp answers some overflows with 500.
            if _OVERFLOW.search(said):
                return ClassifiedFault(error=_build_overflow_error(choice, said))
            return _build_classified_provider_fault(
                f"{choice.name} failed with {status}{said}", after=trouble.retry_after, is_passing=is_passing
            )
        case theirs.ModelAPIError() if _OVERFLOW.search(said):
            return ClassifiedFault(error=_build_overflow_error(choice, said))
        case theirs.ModelAPIError():
            return _build_classified_provider_fault(f"{choice.name} failed{said}")
        case _:
            return _build_classified_provider_fault(f"{choice.name} sent an answer that can't be read{said}")


def _build_classified_provider_fault(
    message: str, *, after: float | None = None, is_passing: bool = True
) -> ClassifiedFault:
    return ClassifiedFault(error=ProviderError(message), is_transient=is_passing, retry_after=after)


def _build_key_error(choice: ModelWithAddressAndKey, said: str) -> HabitusError:
    if not choice.key:
        return Refused(f"{choice.name} wants a key{said}", hint=f"Set it: export {choice.key_variable}=…")
    return Refused(f"{choice.name} refused the key in {choice.key_variable}{said}", hint="Check it, or make a new one.")


def _build_overflow_error(choice: ModelWithAddressAndKey, said: str) -> HabitusError:
    return ContextOverflowError(f"The request is larger than {choice.name} can read{said}")


def _build_unreachable_fault(trouble: Exception, choice: ModelWithAddressAndKey, said: str) -> ClassifiedFault:
    is_refused = "connect" in (getattr(trouble, "phase", None) or "") or any(
        isinstance(cause, ConnectionRefusedError | httpx2.ConnectError) for cause in _iterate_causes(trouble)
    )
    if is_refused and choice.is_on_this_machine:
        # A local server that is not running will not appear within seconds, and the user knows how to start it.
        start = f" Start it: {choice.provider.start}" if choice.provider.start else ""
        return _build_classified_provider_fault(
            f"Nothing answers at {choice.address} for {choice.name}.{start}", is_passing=False
        )
    where = choice.address or choice.name
    return _build_classified_provider_fault(
        f"{where} could not be reached{said}" if is_refused else f"The connection to {where} broke{said}"
    )


def _iterate_causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _build_unknown_model_error(
    trouble: Exception, choice: ModelWithAddressAndKey, client: httpx2.AsyncClient
) -> HabitusError:
    provider = choice.name.partition(":")[0]
    names = sorted(await _fetch_models_listed_by_server(choice, client))
    suggested = getattr(trouble, "suggested_model_id", None)
    hint = did_you_mean(choice.model, names) or (f"Did you mean '{suggested}'?" if suggested else "")
    if not hint and names:
        hint = f"It has {', '.join(names[:MAX_SHOWN_MODELS])}{' …' if len(names) > MAX_SHOWN_MODELS else ''}."
    where = f" at {choice.address}" if choice.address else ""
    return NotFound(
        f"{provider} has no model '{choice.model}'{where}.", hint=hint or "Check the name, and the address."
    )


MAX_SHOWN_MODELS = 8
_LISTING_SECONDS = 5.0


async def _fetch_models_listed_by_server(choice: ModelWithAddressAndKey, client: httpx2.AsyncClient) -> list[str]:
    """Return the models that an OpenAI-compatible server lists; empty if it does not."""
    if choice.dialect not in (ProviderDialect.CHAT, ProviderDialect.OLLAMA):
        return []
    try:
        headers = {"Authorization": f"Bearer {choice.key}"} if choice.key else {}
        got = await client.get(f"{choice.address}/models", headers=headers, timeout=_LISTING_SECONDS)
        return [str(each["id"]) for each in got.json()["data"]]
    except (httpx2.HTTPError, ValueError, LookupError, TypeError):
        return []


_OVERFLOW = re.compile(
    r"context[ _](?:length|size|window)|exceed_context|prompt is too long|input token count|maximum.{0,40}tokens"
    r"|too many tokens|exceeds the available context",
    re.IGNORECASE,
)
_KEY = re.compile(r"api[ _]key", re.IGNORECASE)
MAX_MESSAGE_CHARACTERS = 300


def _quote_provider_message(trouble: Exception, choice: ModelWithAddressAndKey) -> str:
    """Return `: message.` of the provider in one line, without the key; a full stop if there is no message."""
    words = _extract_message(trouble.body) if isinstance(trouble, theirs.ModelAPIError) else ""
    words = words or (trouble.message if isinstance(trouble, theirs.AgentRunError) else str(trouble))
    # Redacted before it is shortened, because half a secret would not be recognised.
    line = " ".join(Redactor(secrets=[choice.key]).redact(words[: MAX_MESSAGE_CHARACTERS * 8]).text.split())
    line = line if len(line) <= MAX_MESSAGE_CHARACTERS else line[: MAX_MESSAGE_CHARACTERS - 1] + "…"
    return f": {line.rstrip('.')}." if line else "."


def _extract_message(body: object) -> str:
    """Return the message in an error's body, wherever the provider puts it."""
    match body:
        case {"message": str(message)}:
            return message
        case {"error": inner}:
            return _extract_message(inner)
        case [first, *_]:
            return _extract_message(first)
        case str():
            return body
        case _:
            return ""
