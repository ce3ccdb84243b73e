"""The tools that are offered to the model: the built-in ones first, then the code of skills."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from habitus.agent.outage import Outage
from habitus.agent.parts import Parts
from habitus.agent.tools.registry import Registry, Tool
from habitus.skills.selection import Request

CODE_TOOLS = 25  # with more than that, only those that fit a request are offered


class Offer:
    """The list only grows at its end within a session, so that a provider can go on caching it."""

    def __init__(self, parts: Parts, outage: Outage, built_in: Sequence[Tool]) -> None:
        self._parts = parts
        self._outage = outage
        self._built_in = tuple(built_in)
        self.code: list[Tool] = sorted(parts.code_tools(), key=lambda tool: tool.name)

    def tools(self, request: Request) -> Registry:
        known: Sequence[Tool] = self.code
        now = {tool.name: tool for tool in self._outage.unless_away(self._parts.code_tools, known)}
        kept = [now.get(tool.name, tool) for tool in self.code]  # what left since says so itself when it is called
        added = [tool for name, tool in now.items() if name not in {tool.name for tool in kept}]
        self.code = [*kept, *added]
        few = len(self.code) <= CODE_TOOLS
        return Registry([*self._built_in, *(self.code if few else self._most_fitting(request))])

    def _most_fitting(self, request: Request) -> list[Tool]:
        by_skill = {tool.name.replace("_", "-"): tool for tool in self.code}
        search = partial(self._parts.finder.search, request.text, k=CODE_TOOLS, among=set(by_skill))
        results = self._outage.unless_away(search, None)
        ranked = [by_skill[hit.id] for hit in results.hits] if results else []
        rest = [tool for tool in self.code if tool not in ranked]
        return sorted((ranked + rest)[:CODE_TOOLS], key=lambda tool: tool.name)
