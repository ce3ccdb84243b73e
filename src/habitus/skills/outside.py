"""The library's view of content from outside: projects wait for trust, imported skills can't give themselves rights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from habitus.skills.layers import Layer
from habitus.skills.model import Source, Summary
from habitus.skills.trust import IMPORTED, Trust

# What a skill may not claim for itself before a person trusts it.
_CLAIMS: dict[str, Any] = {"always_include": False, "source_types": (), "exclude_skills": (), "env": ()}

AnySkill = TypeVar("AnySkill", bound=Summary)


class OutsideContent:
    def __init__(
        self, trust: Trust, imported: Callable[[str], Mapping[str, object]], forget: Callable[[str, str], None]
    ) -> None:
        self._trust = trust
        self._forget = forget
        self._imported = imported  # the imported skills of a layer, by name
        self._names: dict[str, frozenset[str]] = {}

    def revision(self) -> Hashable:
        self._names.clear()
        return self._trust.revision()

    def objection(self, layer: Layer, name: str, tree_hash: str) -> str:
        if not layer.trust_root:
            return ""
        return self._trust.objection(layer.trust_root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def seen(self, layer: Layer, summary: AnySkill, tree_hash: str) -> AnySkill:
        if layer.name not in self._names:
            self._names[layer.name] = frozenset(self._imported(layer.name))
        if summary.name not in self._names[layer.name]:
            return summary
        summary = replace(summary, source=Source.IMPORTED)
        manifest = summary.manifest
        claims = {name: value for name, value in _CLAIMS.items() if getattr(manifest, name) != value}
        if not claims or self._trust.is_trusted_as_it_is(IMPORTED, summary.name, tree_hash):
            return summary
        return replace(summary, manifest=replace(manifest, **claims))

    def forget(self, layer: Layer, name: str) -> None:
        self._forget(layer.name, name)
