"""Assemble the library: the layers of skills in a home, and the store behind each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

import habitus as package
from habitus import sql
from habitus.app.home import refuse_unless_admin
from habitus.skills.layers.layer import AGENTS, OWN, PROMPT, USER, Layer, project_places
from habitus.skills.library import Library
from habitus.skills.model import Source
from habitus.skills.sources.trust import OutsideContent
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.stores.ledger import newest_generation
from habitus.skills.stores.recording import Inspect
from habitus.skills.stores.sql import SqlShelf
from habitus.skills.stores.tables import skills
from habitus.skills.stores.versioned import SkillStore
from habitus.sql.notifications import Topic, news_of

if TYPE_CHECKING:
    from habitus.app.home import Home

# Next to the skill folders of the user's and the operator's layer.
CHANGELOG = "CHANGELOG.md"


def open_library(home: Home, *, only: str = "") -> Library:
    """Open the library of a home; `only` limits it to one name, as if there were no other skills."""
    local, shared = home.local, home.shared
    with home.reading():
        own = _user_store(home, only)
        with sql.reading(local):
            layers = _layers(home, own, only)
    # Writes that a killed process left unfinished are completed before anything is read.
    for layer in layers:
        layer.store.complete()
    return Library(
        layers,
        gate_context=home.gates(home.user()),
        fill=home.fill,
        allow=home.allow,
        newest=partial(_newest, home),
        reading=home.reading,
        outside=OutsideContent(home.trust, shared),
    )


def may_have_tools(shared: sa.Engine, local: sa.Engine) -> bool:
    """Whether any skill may have code or recipes; answered from the database, without reading the library."""
    return any(map(_has_more_than_steps, dict.fromkeys((local, shared))))


def _has_more_than_steps(engine: sa.Engine) -> bool:
    """Whether a database knows a skill with another stage than steps, in any layer."""
    # Summaries omit the field if steps are the only stage.
    states_it = skills.c.summary.contains('"stages":')
    query = sa.select(skills.c.id).where(skills.c.archived_on.is_(None), states_it).limit(1)
    with sql.reading(engine) as connection:
        return connection.execute(query).first() is not None


def revision(home: Home) -> Hashable:
    """Return a value that changes with every change to skills and trust; it costs no directory scan."""
    return _newest(home), None if home.local is home.shared else home.approvals.revision()


def _newest(home: Home) -> tuple[Hashable, Hashable]:
    """Return a value that changes with local trust and with any layer stored in a database."""
    local, shared = home.local, home.shared
    with sql.reading(local):
        trusted, here = home.trust.revision(), newest_generation(local)
    if local is shared:
        return trusted, here
    return trusted, (here, news_of(shared).fresh(Topic.SKILLS, partial(newest_generation, shared)))


def _layers(home: Home, own: SkillStore, only: str) -> list[Layer]:
    """Return the layers, lowest first; a higher layer wins."""
    settings, opened = home.settings, partial(_open_store, home, only=only)
    bundled = opened("bundled", Path(package.__file__).parent / "bundled", can_write=False)
    layers = [Layer(name="bundled", store=bundled, source=Source.BUNDLED, fills_placeholders=True)]
    if settings.operator_skills is not None:
        root = settings.operator_skills.expanduser()
        operator = opened("operator", root, can_write=False, key=f"operator:{root}")
        layers.append(
            Layer(
                name="operator",
                store=operator,
                source=Source.OPERATOR,
                fills_placeholders=True,
                changelog=root / CHANGELOG,
            )
        )
    for agent in AGENTS:
        root = settings.user_home / f".{agent}" / "skills"
        store = opened(agent, root, follow_links=True, inspect=home.scan)
        layers.append(Layer(name=agent, store=store, claims_root=str(root)))
    layers.append(
        Layer(
            name=USER,
            store=own,
            changelog=settings.home / "skills" / CHANGELOG,
            allow_removal=partial(refuse_unless_admin, home, "remove a skill that everybody uses"),
        )
    )
    for place in project_places(settings.cwd, settings.user_home):
        store = opened(place.name, place.root, key=f"project:{place.root}")
        layers.append(Layer(name=place.name, store=store, trust_root=str(place.root)))
    identity = opened(PROMPT, settings.home / PROMPT)
    return [*layers, Layer(name=PROMPT, store=identity, is_listed=False)]


def _user_store(home: Home, only: str) -> SkillStore:
    """Open the user's own layer: a directory, or a table in a shared database."""
    settings, shared = home.settings, home.shared
    if shared is home.local:
        return _open_store(home, USER, settings.home / "skills", only=only)
    shelf = SqlShelf(shared, home.place / "cache" / "skills", only=only)
    return SkillStore(
        shelf,
        shared,
        layer=USER,
        only=only,
        clock=home.clock,
        look_every=settings.look_every,
        heard=partial(news_of(shared).last_change, Topic.ROWS),
        completes=False,
    )


def _open_store(
    home: Home,
    layer: str,
    root: Path,
    *,
    only: str,
    key: str = "",
    can_write: bool = True,
    follow_links: bool = False,
    inspect: Inspect = lambda tree: (),
) -> SkillStore:
    settings, place = home.settings, (layer, root, key)
    # Stores are shared between the users of a process, so a directory is scanned once for all.
    known = {} if only else home.stores
    if place in known:
        return known[place]
    shelf = DirectoryShelf(
        root,
        settings.home / "archive",
        can_write=can_write and not home.is_read_only,
        follow_links=follow_links,
        is_durable=settings.durable,
        is_private=root.is_relative_to(settings.home),
        only=only,
    )
    store = SkillStore(
        shelf,
        home.local,
        layer=layer,
        key=key,
        only=only,
        clock=home.clock,
        look_every=settings.look_every,
        inspect=inspect,
        completes=False,
    )
    return known.setdefault(place, store)


class Whose(StrEnum):
    """Who is responsible for the skills of a layer."""

    YOURS = "yours"
    TRUSTED = "trusted"
    MUST_BE_TRUSTED = "must be trusted"
    ELSEWHERE = "from elsewhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A layer with visible skills, and how many."""

    name: str
    skills: int
    whose: Whose


def places(skills: Library) -> tuple[Place, ...]:
    """Return the layers that visible skills come from, highest first."""
    counted = Counter(item.layer for item in skills.listing())
    layers = [layer for layer in reversed(skills.layers) if layer.is_listed and counted[layer.name]]
    return tuple(Place(name=layer.name, skills=counted[layer.name], whose=_whose(layer)) for layer in layers)


def _whose(layer: Layer) -> Whose:
    if layer.name == USER:
        return Whose.YOURS
    if layer.name in OWN:
        return Whose.TRUSTED
    return Whose.MUST_BE_TRUSTED if layer.trust_root else Whose.ELSEWHERE
