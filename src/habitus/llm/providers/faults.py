"""Classifies failures of a provider: one line for the user, and whether a retry may help."""

from __future__ import annotations

import re
from collections.abc import Iterable

import httpx2
from pydantic_ai import exceptions as theirs
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError

from habitus.errors import HabitusError, NotFound, Refused, did_you_mean
from habitus.llm.model import ContextOverflow, ProviderFault
from habitus.llm.providers.known_providers import Dialect, Fault, ModelChoice, TooSilent
from habitus.redact import Redactor


class BrokeOff(ProviderFault):
    """A stream ended before the provider said so."""


# The last five are what the providers' libraries raise on a malformed stream.
TROUBLES: tuple[type[Exception], ...] = (
    ProviderFault,
    TooSilent,
    AgentRunError,
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


async def fault_of(trouble: Exception, choice: ModelChoice, client: httpx2.AsyncClient) -> Fault:
    """Translate a provider's exception into an error of ours, and decide whether it may pass."""
    said = _quote_provider(trouble, choice)
    match trouble:
        case ProviderFault():
            return Fault(error=trouble, is_passing=isinstance(trouble, BrokeOff))
        case TooSilent(seconds=seconds, is_final=is_final):
            error = f"{choice.name} did not finish in {seconds:g} seconds." if is_final else ""
            return _passing(error or f"{choice.name} said nothing for {seconds:g} seconds.", is_passing=not is_final)
        case theirs.ModelNotFoundError():
            return Fault(error=await _no_such_model(trouble, choice, client))
        case theirs.ModelAuthenticationError():
            return Fault(error=_refusal(choice, said))
        case theirs.ModelQuotaExceededError():
            return Fault(error=ProviderFault(f"{choice.name} has no quota left{said}"))
        case theirs.ModelContextWindowExceededError():
            return Fault(error=_overflow(choice, said))
        case theirs.ModelRequestRejectedError() if _OVERFLOW.search(said):
            return Fault(error=_overflow(choice, said))
        case theirs.ModelRequestRejectedError() if _KEY.search(said):
            # Google answers 400 to a wrong key.
            return Fault(error=_refusal(choice, said))
        case theirs.ModelRequestRejectedError():
            return Fault(error=ProviderFault(f"{choice.name} refused the request{said}"))
        case theirs.ModelRateLimitError():
            return _passing(f"{choice.name} is over its rate limit{said}", after=trouble.retry_after)
        case theirs.ModelOverloadedError():
            return _passing(f"{choice.name} is overloaded{said}", after=trouble.retry_after)
        case theirs.ModelConnectionError() | httpx2.TransportError() | OSError():
            return _unreachable(trouble, choice, said)
        case ModelHTTPError(status_code=status):
            is_passing = status >= 500 and trouble.provider_retry_hint is not False
            # llama.cpp answers some overflows with 500.
            if _OVERFLOW.search(said):
                return Fault(error=_overflow(choice, said))
            return _passing(
                f"{choice.name} failed with {status}{said}", after=trouble.retry_after, is_passing=is_passing
            )
        case ModelAPIError() if _OVERFLOW.search(said):
            return Fault(error=_overflow(choice, said))
        case ModelAPIError():
            return _passing(f"{choice.name} failed{said}")
        case _:
            return _passing(f"{choice.name} sent an answer that can't be read{said}")


def _passing(message: str, *, after: float | None = None, is_passing: bool = True) -> Fault:
    return Fault(error=ProviderFault(message), is_passing=is_passing, retry_after=after)


def _refusal(choice: ModelChoice, said: str) -> HabitusError:
    if not choice.key:
        return Refused(f"{choice.name} wants a key{said}", hint=f"Set it: export {choice.key_variable}=…")
    return Refused(f"{choice.name} refused the key in {choice.key_variable}{said}", hint="Check it, or make a new one.")


def _overflow(choice: ModelChoice, said: str) -> HabitusError:
    return ContextOverflow(f"The request is larger than {choice.name} can read{said}")


def _unreachable(trouble: Exception, choice: ModelChoice, said: str) -> Fault:
    is_refused = "connect" in (getattr(trouble, "phase", None) or "") or any(
        isinstance(cause, ConnectionRefusedError | httpx2.ConnectError) for cause in _causes(trouble)
    )
    if is_refused and choice.is_on_this_machine:
        # A local server that is not running will not appear within seconds, and the user knows how to start it.
        start = f" Start it: {choice.provider.start}" if choice.provider.start else ""
        return _passing(f"Nothing answers at {choice.address} for {choice.name}.{start}", is_passing=False)
    where = choice.address or choice.name
    return _passing(f"{where} could not be reached{said}" if is_refused else f"The connection to {where} broke{said}")


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _no_such_model(trouble: Exception, choice: ModelChoice, client: httpx2.AsyncClient) -> HabitusError:
    provider = choice.name.partition(":")[0]
    names = sorted(await _names_at(choice, client))
    suggested = getattr(trouble, "suggested_model_id", None)
    hint = did_you_mean(choice.model, names) or (f"Did you mean '{suggested}'?" if suggested else "")
    if not hint and names:
        hint = f"It has {', '.join(names[:SHOWN])}{' …' if len(names) > SHOWN else ''}."
    where = f" at {choice.address}" if choice.address else ""
    return NotFound(
        f"{provider} has no model '{choice.model}'{where}.", hint=hint or "Check the name, and the address."
    )


SHOWN = 8
_LISTING_SECONDS = 5.0


async def _names_at(choice: ModelChoice, client: httpx2.AsyncClient) -> list[str]:
    """Return the models that an OpenAI-compatible server lists; empty if it does not."""
    if choice.dialect not in (Dialect.CHAT, Dialect.OLLAMA):
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
LONGEST = 300


def _quote_provider(trouble: Exception, choice: ModelChoice) -> str:
    """Return `: message.` of the provider in one line, without the key; a full stop if there is no message."""
    words = _words(trouble.body) if isinstance(trouble, ModelAPIError) else ""
    words = words or (trouble.message if isinstance(trouble, AgentRunError) else str(trouble))
    # Redacted before it is shortened, because half a secret would not be recognised.
    line = " ".join(Redactor(secrets=[choice.key]).redact(words[: LONGEST * 8]).text.split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return f": {line.rstrip('.')}." if line else "."


def _words(body: object) -> str:
    """Return the message in an error's body, wherever the provider puts it."""
    match body:
        case {"message": str(message)}:
            return message
        case {"error": inner}:
            return _words(inner)
        case [first, *_]:
            return _words(first)
        case str():
            return body
        case _:
            return ""
