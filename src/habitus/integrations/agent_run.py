"""Shared parts of the integrations: version checks, and one run of a framework's agent as a turn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from importlib import metadata
from types import TracebackType
from typing import Any, Self

from packaging.version import Version

from habitus import Habitus, HostTurn, TurnContextManager
from habitus.agent.background import run_in_thread
from habitus.errors import Invalid, NotInstalled
from habitus.optional_packages import build_habitus_requirement


def require_package_version(package: str, min_version: str, *, extra: str = "") -> None:
    """Raise NotInstalled if the framework is missing or older than the oldest tested version."""
    extra = extra or package
    hint = f"Run: pip install '{build_habitus_requirement(extra)}'."
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise NotInstalled(f"This needs the extra '{extra}', which is not installed.", hint=hint) from None
    if Version(version) < Version(min_version):
        raise NotInstalled(f"This needs {package} {min_version} or later, and {version} is installed.", hint=hint)


def normalize_conversation_id(foreign_id: str) -> str:
    """Return the framework's conversation id if it is valid for us, else a hash of it."""
    is_ours = re.fullmatch(r"[A-Za-z0-9][\w.-]{0,79}|", foreign_id, re.ASCII)
    return foreign_id if is_ours else hashlib.sha256(foreign_id.encode()).hexdigest()


def prepend_context(context: str, text: str) -> str:
    """Return the text, preceded by the context if there is one."""
    return f"{context}\n\n{text}" if context else text


class AgentRun:
    """One run of an agent as a turn, used in `with` or `async with`; subclasses give the agent our tools and text."""

    def __init__(self, habitus: Habitus, text: str, tools: Collection[str], profile: str | Collection[str], about: Any):
        # Which of our tools to offer.
        self.profile = profile
        about = {**about, "conversation": normalize_conversation_id(about.get("conversation", ""))}
        self._door: TurnContextManager = habitus.turn(text, tools=tools, **about)
        self._turn: HostTurn | None = None

    @property
    def turn(self) -> HostTurn:
        """The turn of this run, for its `id`, and for `done` or `failed` if you know the outcome."""
        if self._turn is None:
            raise Invalid("The run is not open.", hint="Use it in a 'with' or 'async with' block.")
        return self._turn

    def __enter__(self) -> Self:
        self._turn = self._door.__enter__()
        try:
            self._attach_to_agent()
        except BaseException as error:
            self._door.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._detach_from_agent()
        finally:
            self._door.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        return await run_in_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_in_thread(lambda: self.__exit__(kind, error, trace))

    def _attach_to_agent(self) -> None:
        """Give the agent our tools and text."""

    def _detach_from_agent(self) -> None:
        """Restore the agent as it was."""
