"""Content from outside, as the library sees it: its text may be read, its claims wait for a person's word."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TypeVar

from habitus.skills.importing import Origin
from habitus.skills.layers import Layer
from habitus.skills.model import Source, Summary
from habitus.skills.trust import IMPORTED, Trust

AnySkill = TypeVar("AnySkill", bound=Summary)


class OutsideContent:
    def __init__(
        self, trust: Trust, imported: Callable[[str], Mapping[str, Origin]], forget: Callable[[str, str], None]
    ) -> None:
        self._trust = trust
        self._forget = forget
        self._imported = imported  # the imported skills of a layer, by name
        self._names: dict[str, frozenset[str]] = {}

    def revision(self) -> Hashable:
        return self._trust.revision()

    def look(self) -> None:
        self._names = {}

    def objection(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Why a project's skill may not be used at all."""
        if not layer.trust_root:
            return ""
        return self._trust.objection(layer.trust_root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def seen(self, layer: Layer, summary: AnySkill, tree_hash: str) -> AnySkill:
        if self._is_imported(layer, summary.name):
            summary = replace(summary, source=Source.IMPORTED)
        if not summary.manifest.claims or self.is_trusted(layer, summary.name, tree_hash):
            return summary
        return replace(summary, manifest=summary.manifest.without_force())

    def is_trusted(self, layer: Layer, name: str, tree_hash: str) -> bool:
        """Whether it is the person's own, or they trust it as it is."""
        if self._is_imported(layer, name):
            return self._trust.is_trusted_as_it_is(IMPORTED, name, tree_hash)
        root = layer.trust_root or layer.claims_root
        if not root:
            return True
        return not self._trust.objection(root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def origin(self, layer: Layer, name: str, tree_hash: str) -> str:
        if not self._is_imported(layer, name) or self.is_trusted(layer, name, tree_hash):
            return ""
        return self._imported(layer.name)[name].origin

    def forget(self, layer: Layer, name: str) -> None:
        self._forget(layer.name, name)

    def _is_imported(self, layer: Layer, name: str) -> bool:
        if layer.name not in self._names:
            self._names[layer.name] = frozenset(self._imported(layer.name))
        return name in self._names[layer.name]
