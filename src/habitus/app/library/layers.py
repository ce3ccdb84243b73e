"""The library put together: which layers of skills there are in a home, and the store behind each."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

import habitus as package
from habitus.app.whose import refuse_unless_admin
from habitus.settings import Settings
from habitus.skills import names
from habitus.skills.gates import GateContext
from habitus.skills.importing import forget, origins
from habitus.skills.layers import AGENTS, PROMPT, USER, Layer, project_places
from habitus.skills.ledger import has_more_than_steps, newest_generation
from habitus.skills.library import Library
from habitus.skills.model import Source
from habitus.skills.outside import OutsideContent
from habitus.skills.selection import User
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.stores.noticing import Inspect
from habitus.skills.stores.sql import SqlShelf
from habitus.skills.stores.versioned import VersionedStore
from habitus.sql.news import Topic, news_of

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus

CHANGELOG = "CHANGELOG.md"  # beside the skill folders of a layer that is the person's own or the operator's


def open_library(habitus: Habitus, *, only: str = "") -> Library:
    """The library of a home, or what it knows of only one name: as if there were no other skills."""
    local, shared = habitus.local, habitus.shared
    return Library(
        _layers(habitus, only),
        gate_context=habitus.gates(habitus.user()),
        fill=habitus.fill,
        allow=habitus.allow,
        newest=partial(_newest, local, shared),
        outside=OutsideContent(
            habitus.trust,
            imported=lambda layer: origins(shared, layer),
            forget=lambda layer, name: forget(shared, layer, name),
        ),
    )


def gates_of(settings: Settings, user: User) -> GateContext:
    """What is switched off or closed for somebody, whoever the process belongs to."""
    known = settings.model_copy(update={"user": user.name})
    return GateContext(
        disabled=frozenset(names.canonical(name) for name in known.switched_off),
        is_admin=user.is_admin,
        features=frozenset(known.experimental.features),
        layers=frozenset(known.layers),
    )


def may_have_tools(habitus: Habitus) -> bool:
    """Whether any skill is known to have code or recipes; it costs no look at the library."""
    return any(map(has_more_than_steps, dict.fromkeys((habitus.local, habitus.shared))))


def revision(habitus: Habitus) -> Hashable:
    """Changes with every change to a skill and to what somebody trusts; it costs no look either."""
    newest = _newest(habitus.local, habitus.shared)
    is_one = habitus.local is habitus.shared
    return newest, habitus.trust.revision(), None if is_one else habitus.approvals.revision()


def _newest(local: sa.Engine, shared: sa.Engine) -> Hashable:
    here = newest_generation(local)
    if local is shared:
        return here
    return here, news_of(shared).fresh(Topic.SKILLS, partial(newest_generation, shared))


def _layers(habitus: Habitus, only: str) -> list[Layer]:
    """Lowest first; a higher layer wins."""
    settings, opened = habitus.settings, partial(_open_store, habitus, only=only)
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
        store = opened(agent, root, follow_links=True, inspect=habitus.scan)
        layers.append(Layer(name=agent, store=store, claims_root=str(root)))
    layers.append(
        Layer(
            name=USER,
            store=_user_store(habitus, only),
            changelog=settings.home / "skills" / CHANGELOG,
            allow_removal=partial(refuse_unless_admin, habitus, "remove a skill that everybody uses"),
        )
    )
    for place in project_places(settings.cwd, settings.user_home):
        store = opened(place.name, place.root, key=f"project:{place.root}")
        layers.append(Layer(name=place.name, store=store, trust_root=str(place.root)))
    identity = opened(PROMPT, settings.home / PROMPT)
    return [*layers, Layer(name=PROMPT, store=identity, is_listed=False)]


def _user_store(habitus: Habitus, only: str) -> VersionedStore:
    """The person's own layer: a directory, or a table where a database is shared."""
    settings, shared = habitus.settings, habitus.shared
    if shared is habitus.local:
        return _open_store(habitus, USER, settings.home / "skills", only=only)
    shelf = SqlShelf(shared, habitus.place / "cache" / "skills", only=only)
    return VersionedStore(
        shelf,
        shared,
        layer=USER,
        only=only,
        clock=habitus.clock,
        look_every=settings.look_every,
        heard=partial(news_of(shared).heard, Topic.ROWS),
    )


def _open_store(
    habitus: Habitus,
    layer: str,
    root: Path,
    *,
    only: str,
    key: str = "",
    can_write: bool = True,
    follow_links: bool = False,
    inspect: Inspect = lambda tree: (),
) -> VersionedStore:
    settings = habitus.settings
    shelf = DirectoryShelf(
        root,
        settings.home / "archive",
        can_write=can_write and not habitus.is_read_only,
        follow_links=follow_links,
        is_durable=settings.durable,
        is_private=root.is_relative_to(settings.home),
        only=only,
    )
    return VersionedStore(
        shelf,
        habitus.local,
        layer=layer,
        key=key,
        only=only,
        clock=habitus.clock,
        look_every=settings.look_every,
        inspect=inspect,
    )
