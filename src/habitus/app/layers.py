"""Which layers of skills there are in a home, and the store behind each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

import habitus
from habitus.agent.identity import LAYER
from habitus.app.content import high_findings
from habitus.settings import Settings
from habitus.skills.layers import AGENTS, USER, Layer, project_places
from habitus.skills.model import Source
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.stores.noticing import Inspect
from habitus.skills.stores.sql import SqlShelf
from habitus.skills.stores.versioned import VersionedStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    settings: Settings
    local: sa.Engine  # what is known of this machine's directories
    shared: sa.Engine  # what every host shares
    clock: Callable[[], datetime]
    cache: Path  # what can be made again
    is_read_only: bool

    def all(self) -> list[Layer]:
        """Lowest first; a higher layer wins."""
        settings = self.settings
        bundled = Path(habitus.__file__).parent / "bundled"
        layers = [
            Layer(
                name="bundled",
                store=self._store("bundled", bundled, can_write=False),
                source=Source.BUNDLED,
                fills_placeholders=True,
            )
        ]
        if settings.operator_skills is not None:
            root = settings.operator_skills.expanduser()
            layers.append(
                Layer(
                    name="operator",
                    store=self._store("operator", root, can_write=False, key=f"operator:{root}"),
                    source=Source.OPERATOR,
                    fills_placeholders=True,
                )
            )
        for agent in AGENTS:
            root = settings.user_home / f".{agent}" / "skills"
            store = self._store(agent, root, follow_links=True, inspect=high_findings)
            layers.append(Layer(name=agent, store=store, claims_root=str(root)))
        layers.append(Layer(name=USER, store=self._user_store()))
        layers += [
            Layer(
                name=place.name,
                store=self._store(place.name, place.root, key=f"project:{place.root}"),
                trust_root=str(place.root),
            )
            for place in project_places(settings.cwd, settings.user_home)
        ]
        identity = self._store(LAYER, settings.home / LAYER)
        return [*layers, Layer(name=LAYER, store=identity, is_listed=False)]

    def _user_store(self) -> VersionedStore:
        """The person's own layer: a directory, or a table where a database is shared."""
        if self.shared is self.local:
            return self._store(USER, self.settings.home / "skills")
        shelf = SqlShelf(self.shared, self.cache / "skills")
        return VersionedStore(shelf, self.shared, layer=USER, clock=self.clock, look_every=self.settings.look_every)

    def _store(
        self,
        layer: str,
        root: Path,
        *,
        key: str = "",
        can_write: bool = True,
        follow_links: bool = False,
        inspect: Inspect = lambda tree: (),
    ) -> VersionedStore:
        shelf = DirectoryShelf(
            root,
            self.settings.home / "archive",
            can_write=can_write and not self.is_read_only,
            follow_links=follow_links,
            is_durable=self.settings.durable,
            is_private=root.is_relative_to(self.settings.home),
        )
        return VersionedStore(
            shelf,
            self.local,
            layer=layer,
            key=key,
            clock=self.clock,
            look_every=self.settings.look_every,
            inspect=inspect,
        )
