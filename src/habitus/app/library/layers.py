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
from habitus.app.home import (
    open_read_transaction_if_single_database,
    refuse_change_if_unwritable_or_paused,
    refuse_non_admin_on_shared_database,
)
from habitus.skills.layers.layer import (
    AGENT_LAYERS,
    OWN_LAYERS,
    PROMPT_LAYER,
    USER_LAYER,
    Layer,
    find_project_skill_folders,
)
from habitus.skills.library import Library
from habitus.skills.lifecycle import GateContext
from habitus.skills.model import SkillSource
from habitus.skills.names import canonicalize_name
from habitus.skills.sources.trust import OutsideContentPolicy
from habitus.skills.stores.files import DirectoryBackend
from habitus.skills.stores.layer_database import read_newest_generation
from habitus.skills.stores.recording import RiskInspector
from habitus.skills.stores.sql import SqlBackend
from habitus.skills.stores.tables import skills
from habitus.skills.stores.usage_cache import UsageCache
from habitus.skills.stores.versioned import SkillStore
from habitus.sql.change_notifications import ChangeTopic, get_change_feed

if TYPE_CHECKING:
    from habitus.app.home import Home
    from habitus.settings import Settings
    from habitus.skills.choosing.selection import RequestUser

# Next to the skill folders of the user's and the operator's layer.
CHANGELOG = "CHANGELOG.md"


def open_library(home: Home, *, only: str = "") -> Library:
    """Open the library of a home; `only` limits it to one name, as if there were no other skills."""
    local, shared = home.local, home.shared
    with open_read_transaction_if_single_database(home):
        own = _open_user_store(home, only)
        with sql.read_transaction(local):
            layers = _build_layers(home, own, only)
    # Writes that a killed process left unfinished are completed before anything is read.
    for layer in layers:
        layer.store.complete_pending_writes()
    return Library(
        layers,
        usage=UsageCache(shared, None if local is shared else local, USER_LAYER),
        gate_context=build_skill_gate_context(home.settings, home.get_user()),
        placeholder_values=get_placeholder_values(home.settings),
        authorize=partial(refuse_change_if_unwritable_or_paused, home),
        read_revision=partial(_read_revision_of_trust_and_databases, home),
        open_transaction=partial(open_read_transaction_if_single_database, home),
        outside=OutsideContentPolicy(home.trust, shared),
    )


def get_placeholder_values(settings: Settings) -> dict[str, str]:
    """Return the values for placeholders in skills."""
    return {"BOT_NAME": settings.bot_name, "BOT_DIR": str(settings.home), "USER": settings.user}


def build_skill_gate_context(settings: Settings, user: RequestUser) -> GateContext:
    """Return the gates that decide which skills a user sees, independent of this process's user."""
    known = settings.model_copy(update={"user": user.name})
    return GateContext(
        disabled=frozenset(map(canonicalize_name, known.disabled_skill_names)),
        is_admin=user.is_admin,
        features=frozenset(known.experimental.features),
        layers=frozenset(known.layers),
    )


def is_layer_in_shared_database(home: Home, layer: str) -> bool:
    """Whether a layer's skills are stored in the database that counts their uses."""
    return home.skills.get_layer(layer).store.engine is home.shared


def has_any_skill_code_or_recipes(shared: sa.Engine, local: sa.Engine) -> bool:
    """Whether any skill may have code or recipes; answered from the database, without reading the library."""
    return any(map(_has_skill_beyond_steps_stage, dict.fromkeys((local, shared))))


def _has_skill_beyond_steps_stage(engine: sa.Engine) -> bool:
    """Whether a database knows a skill with another stage than steps, in any layer."""
    # Summaries omit the field if steps are the only stage.
    states_it = skills.c.summary.contains('"stages":')
    query = sa.select(skills.c.id).where(skills.c.archived_on.is_(None), states_it).limit(1)
    with sql.read_transaction(engine) as conn:
        return conn.execute(query).first() is not None


def get_library_revision(home: Home) -> Hashable:
    """Return a value that changes with every change to skills and trust; it costs no directory scan."""
    return _read_revision_of_trust_and_databases(
        home
    ), None if home.local is home.shared else home.approvals.read_revision()


def _read_revision_of_trust_and_databases(home: Home) -> tuple[Hashable, Hashable]:
    """Return a value that changes with local trust and with any layer stored in a database."""
    local, shared = home.local, home.shared
    with sql.read_transaction(local):
        trusted, here = home.trust.read_revision(), read_newest_generation(local)
    if local is shared:
        return trusted, here
    return trusted, (
        here,
        get_change_feed(shared).fetch_cached(ChangeTopic.SKILLS, partial(read_newest_generation, shared)),
    )


def _build_layers(home: Home, own: SkillStore, only: str) -> list[Layer]:
    """Return the layers, lowest first; a higher layer wins."""
    settings, opened = home.settings, partial(_get_or_open_directory_skill_store, home, only=only)
    bundled = opened("bundled", Path(package.__file__).parent / "bundled", can_write=False)
    layers = [Layer(name="bundled", store=bundled, source=SkillSource.BUNDLED, fills_placeholders=True)]
    if settings.operator_skills is not None:
        root = settings.operator_skills.expanduser()
        operator = opened("operator", root, can_write=False, key=f"operator:{root}")
        layers.append(
            Layer(
                name="operator",
                store=operator,
                source=SkillSource.OPERATOR,
                fills_placeholders=True,
                changelog=root / CHANGELOG,
            )
        )
    for agent in AGENT_LAYERS:
        root = settings.user_home / f".{agent}" / "skills"
        store = opened(agent, root, follow_links=True, inspect=home.scan_tree)
        layers.append(Layer(name=agent, store=store, claims_root=str(root)))
    layers.append(
        Layer(
            name=USER_LAYER,
            store=own,
            changelog=settings.home / "skills" / CHANGELOG,
            allow_removal=partial(refuse_non_admin_on_shared_database, home, "remove a shared skill"),
        )
    )
    for place in find_project_skill_folders(settings.cwd, settings.user_home):
        store = opened(place.name, place.root, key=f"project:{place.root}")
        layers.append(Layer(name=place.name, store=store, trust_root=str(place.root)))
    identity = opened(PROMPT_LAYER, settings.home / PROMPT_LAYER)
    return [*layers, Layer(name=PROMPT_LAYER, store=identity, is_listed=False)]


def _open_user_store(home: Home, only: str) -> SkillStore:
    """Open the user's own layer: a directory, or a table in a shared database."""
    settings, shared = home.settings, home.shared
    if shared is home.local:
        return _get_or_open_directory_skill_store(home, USER_LAYER, settings.home / "skills", only=only)
    shelf = SqlBackend(shared, home.writable_dir / "cache" / "skills", only=only)
    return SkillStore(
        shelf,
        shared,
        layer=USER_LAYER,
        only=only,
        clock=home.clock,
        check_interval=settings.look_every,
        read_change_marker=partial(get_change_feed(shared).get_token_of_announced_changes, ChangeTopic.ROWS),
        recover_on_open=False,
    )


def _get_or_open_directory_skill_store(
    home: Home,
    layer: str,
    root: Path,
    *,
    only: str,
    key: str = "",
    can_write: bool = True,
    follow_links: bool = False,
    inspect: RiskInspector = lambda tree: (),
) -> SkillStore:
    settings, place = home.settings, (layer, root, key)
    # Stores are shared between the users of a process, so a directory is scanned once for all.
    known = {} if only else home.open_stores
    if place in known:
        return known[place]
    shelf = DirectoryBackend(
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
        check_interval=settings.look_every,
        inspect=inspect,
        recover_on_open=False,
    )
    return known.setdefault(place, store)


class LayerOwnerKind(StrEnum):
    """Who is responsible for the skills of a layer."""

    YOURS = "yours"
    TRUSTED = "trusted"
    MUST_BE_TRUSTED = "must be trusted"
    ELSEWHERE = "from elsewhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSummary:
    """A layer with visible skills, and how many."""

    name: str
    skills: int
    owner: LayerOwnerKind


def list_layer_summaries(skills: Library) -> tuple[LayerSummary, ...]:
    """Return the layers that visible skills come from, highest first."""
    counted = Counter(item.layer for item in skills.list_skills())
    layers = [layer for layer in reversed(skills.layers) if layer.is_listed and counted[layer.name]]
    return tuple(
        LayerSummary(name=layer.name, skills=counted[layer.name], owner=_get_layer_owner_kind(layer))
        for layer in layers
    )


def _get_layer_owner_kind(layer: Layer) -> LayerOwnerKind:
    if layer.name == USER_LAYER:
        return LayerOwnerKind.YOURS
    if layer.name in OWN_LAYERS:
        return LayerOwnerKind.TRUSTED
    return LayerOwnerKind.MUST_BE_TRUSTED if layer.trust_root else LayerOwnerKind.ELSEWHERE
