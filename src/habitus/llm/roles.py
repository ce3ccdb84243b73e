"""The two models of a session: one that talks, and a cheaper one that drafts and draws lessons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from habitus.llm.model import Model, Role


@runtime_checkable
class _Connected(Protocol):
    async def close(self) -> None: ...


class Models:
    """Opened when first asked for; without a name of its own the cheap one is the main one."""

    def __init__(self, main: str, cheap: str = "", *, open_model: Callable[[str], Model]) -> None:
        self._names = {Role.MAIN: main, Role.CHEAP: cheap or main}
        self._open = open_model
        self._opened: dict[str, Model] = {}

    @property
    def main(self) -> Model:
        return self[Role.MAIN]

    @property
    def cheap(self) -> Model:
        return self[Role.CHEAP]

    def __getitem__(self, role: Role) -> Model:
        name = self._names[role]
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def close(self) -> None:
        """Lets go of the connections; asking again opens new ones."""
        for model in self._opened.values():
            if isinstance(model, _Connected):
                await model.close()
