"""Models of providers, named `provider:model`. A provider's library is imported on the first request."""

from __future__ import annotations

import asyncio
import importlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from habitus import optional_packages
from habitus.llm.model import CompletionRequest, RetryStreamMarker, StreamPiece
from habitus.llm.providers.known_providers import (
    AnswerTimeLimits,
    ModelWithAddressAndKey,
    ProviderDialect,
    RetryAndTimeoutPolicy,
    accepts_images,
    resolve_model_choice,
)

if TYPE_CHECKING:
    from habitus.llm.providers.wire import ProviderClient

_LIBRARIES = {
    ProviderDialect.OPENAI: "openai",
    ProviderDialect.CHAT: "openai",
    ProviderDialect.OLLAMA: "openai",
    ProviderDialect.ANTHROPIC: "anthropic",
    ProviderDialect.GOOGLE: "google.genai",
}


def open_provider_model(
    name: str,
    environ: Mapping[str, str],
    *,
    base_url: str = "",
    patience: RetryAndTimeoutPolicy | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    transport: Any = None,
) -> ProviderModel:
    """Open the model that `provider:model` names, with its key from `environ`.

    `base_url` is an OpenAI-compatible server for `openai:…`; `transport` (of httpx2) carries the requests in tests.
    """
    choice = resolve_model_choice(name, environ, base_url)
    library = _LIBRARIES[choice.provider.dialect]
    if not all(map(optional_packages.is_installed, (library, "pydantic_ai", "httpx2"))):
        raise optional_packages.build_missing_error(f"The model {choice.name}", library)
    return ProviderModel(choice, patience=patience or RetryAndTimeoutPolicy(), sleep=sleep, transport=transport)


class ProviderModel:
    """A `Model` behind the network. Transient failures are retried until the first piece was yielded."""

    def __init__(
        self,
        choice: ModelWithAddressAndKey,
        *,
        patience: RetryAndTimeoutPolicy,
        sleep: Callable[[float], Awaitable[object]],
        transport: Any,
    ) -> None:
        self.name = choice.name
        self.sees_images = accepts_images(choice)
        self._choice = choice
        self._patience = patience
        self._sleep = sleep
        self._transport = transport
        self._wire: ProviderClient | None = None

    @property
    def context_tokens(self) -> int | None:
        return self._get_client_for_event_loop().context_tokens

    async def stream(self, ask: CompletionRequest) -> AsyncGenerator[StreamPiece, None]:
        # In a thread, because a spinner turns and Ctrl-C works while the libraries are imported.
        if self._wire is None:
            await asyncio.to_thread(importlib.import_module, "habitus.llm.providers.wire")
        wire = self._get_client_for_event_loop(asyncio.get_running_loop())
        watch = AnswerTimeLimits(self._patience)
        for attempt in itertools.count(1):
            # Text that a user has seen must never be repeated, so there is no retry after the first piece.
            has_spoken = False
            try:
                async with aclosing(wire.stream(ask, watch)) as pieces:
                    async for piece in pieces:
                        has_spoken = True
                        yield piece
                return
            except wire.provider_exceptions as trouble:
                fault = await wire.classify_fault(trouble)
                pause = None if has_spoken else self._patience.get_seconds_until_retry(fault, attempt)
                if pause is None:
                    raise fault.error from trouble
            await self._sleep(pause)
            yield RetryStreamMarker()

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    def _get_client_for_event_loop(self, loop: asyncio.AbstractEventLoop | None = None) -> ProviderClient:
        """Return the connection, reopened if another event loop is running."""
        # The providers' libraries take a second or two to import.
        from habitus.llm.providers.wire import ProviderClient

        # A connection belongs to the event loop that first used it.
        if self._wire is None or (loop and self._wire.loop not in (None, loop)):
            self._wire = ProviderClient(self._choice, transport=self._transport)
        self._wire.loop = loop or self._wire.loop
        return self._wire
