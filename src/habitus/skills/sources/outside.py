"""Content from outside, as the library sees it: its text may be read, its claims wait for a person's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.skills.layers import Layer
from habitus.skills.model import Source
from habitus.skills.sources.trust import IMPORTED, Trust
from habitus.skills.stores.ledger import count_up
from habitus.skills.stores.tables import imports, sequences
from habitus.skills.trees import AnySkill


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a skill came from, and its files' hashes as they came and as they were saved."""

    origin: str  # in words for a person
    source_hash: str
    written_hash: str
    imported_on: datetime
    is_finished: bool  # whether counters and switches were taken over
    place: str = ""  # exactly; what was imported long ago has none


def origins(engine: sa.Engine, layer: str, names: Collection[str] | None = None) -> dict[str, Origin]:
    """Name → where it came from, for the imported skills of a layer, or only these names of it."""
    query = sa.select(imports).where(imports.c.layer == layer)
    if names is not None:
        query = query.where(imports.c.name.in_(list(names)))
    with sql.reading(engine) as connection:
        return {
            row["name"]: Origin(
                origin=row["origin"],
                source_hash=row["source_hash"],
                written_hash=row["written_hash"],
                imported_on=row["imported_on"],
                is_finished=row["is_finished"],
                place=row["place"],
            )
            for row in connection.execute(query).mappings()
        }


class OutsideContent:
    """Whether content from outside is trusted, and what it may claim for itself; `engine` knows what was imported."""

    def __init__(self, trust: Trust, engine: sa.Engine) -> None:
        self._trust = trust
        self._engine = engine
        self._layers: dict[str, frozenset[str]] | None = (
            None  # of each name that was imported, those it was imported to
        )
        self._mark: int | None = None

    def look(self, names: Collection[str] | None) -> frozenset[str]:
        """Skills of these names have changed, or nobody knows which: the names that come from elsewhere than before."""
        with sql.reading(self._engine) as connection:
            mark = connection.execute(_MARK).scalar() or 0
            is_same = mark == self._mark and self._layers is not None
            wanted = names if is_same else None
            now = _layers_of(connection, wanted)
        known, self._mark = self._layers or {}, mark
        before = known if wanted is None else {name: known[name] for name in wanted if name in known}
        changed = frozenset(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed or self._layers is None:
            self._layers = {name: layers for name, layers in known.items() if name not in changed} | now
        return changed

    def objection(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Why a project's skill may not be used at all."""
        if not layer.trust_root:
            return ""
        return self._trust.objection(layer.trust_root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def apply_trust(self, layer: Layer, summary: AnySkill, tree_hash: str) -> AnySkill:
        """The summary as it counts: claims from outside have no force until a person trusts the skill as it is."""
        if self._is_imported(layer, summary.name):
            summary = replace(summary, source=Source.IMPORTED)
        if not summary.manifest.claims or self.is_trusted(layer, summary.name, tree_hash):
            return summary
        return replace(summary, manifest=summary.manifest.without_force())

    def is_trusted(self, layer: Layer, name: str, tree_hash: str) -> bool:
        """Whether it is the person's own, or they trust it as it is."""
        if not layer.claims_root and self._is_imported(layer, name):
            return self._trust.is_trusted_as_it_is(IMPORTED, name, tree_hash)
        root = layer.trust_root or layer.claims_root
        if not root:
            return True
        return not self._trust.objection(root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def origin(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Where a skill was imported from whose files no person has trusted as they are; nothing for the others."""
        if not self._is_imported(layer, name) or self.is_trusted(layer, name, tree_hash):
            return ""
        return origins(self._engine, layer.name, [name])[name].origin

    def forget(self, layer: Layer, name: str) -> None:
        """The name is now that of a skill written here: nothing about an earlier import holds for it."""
        with sql.writing(self._engine) as connection:
            mine = imports.delete().where(imports.c.layer == layer.name, imports.c.name == name)
            if connection.execute(mine).rowcount:
                imports_changed(connection)

    def _is_imported(self, layer: Layer, name: str) -> bool:
        if self._layers is None:
            with sql.reading(self._engine) as connection:
                self._layers = _layers_of(connection, None)
        return layer.name in self._layers.get(name, ())


_IMPORTS = "skill_imports"
_MARK = sa.select(sequences.c.value).where(sequences.c.name == _IMPORTS)


def imports_changed(connection: sa.Connection) -> None:
    """Whoever remembers or forgets where a skill came from says so, or all of it would be read after every change."""
    count_up(connection, _IMPORTS)


def _layers_of(connection: sa.Connection, names: Collection[str] | None) -> dict[str, frozenset[str]]:
    """Name → the layers it was imported to, of these or of all that were imported."""
    query = sa.select(imports.c.name, imports.c.layer)
    found = defaultdict[str, set[str]](set)
    for name, layer in connection.execute(query if names is None else query.where(imports.c.name.in_(list(names)))):
        found[name].add(layer)
    return {name: frozenset(layers) for name, layers in found.items()}
