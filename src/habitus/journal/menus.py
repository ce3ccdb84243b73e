"""Lists that hardly change from turn to turn, stored once by their digest: a turn's menu and its steady exposures.

A turn's own rows say only what differs: what was chosen, loaded, withheld or used.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.journal.model import ExposureAssignment, SelectedSkill, SkillPlacementKind
from habitus.journal.tables import menu_exposures, turn_menus, turns

_STEADY = frozenset({SkillPlacementKind.MENU, SkillPlacementKind.CUT, SkillPlacementKind.LEFT_OUT})
# A chosen or withheld skill counts as an ordinary line of the menu, so that every turn has the same one.
_ON_MENU = (SkillPlacementKind.MENU, "eligible")


def split_selection_into_menu_and_rows(
    selected: Sequence[SelectedSkill],
) -> tuple[list[SelectedSkill], list[SelectedSkill]]:
    """Split a turn's selection into the menu, the same for most turns, and the rows that differ from it."""
    own = [one for one in selected if one.place not in _STEADY]
    # A skill that was loaded keeps its line of the menu besides.
    moved = [one for one in own if one.place is not SkillPlacementKind.LOADED]
    menu = [one for one in selected if one.place in _STEADY]
    menu += [replace(one, place=_ON_MENU[0], reason=_ON_MENU[1]) for one in moved]
    return sorted(menu, key=lambda one: (one.name, one.layer, one.version)), own


def join_selection_from_menu_and_rows(
    menu: Iterable[SelectedSkill], own: Sequence[SelectedSkill]
) -> tuple[SelectedSkill, ...]:
    """Return the selection that `split_selection_into_menu_and_rows` split, the turn's own rows first."""
    moved = {(one.name, one.layer) for one in own if one.place is not SkillPlacementKind.LOADED}
    return (*own, *(one for one in menu if (one.name, one.layer) not in moved))


def store_selection_menu(connection: sa.Connection, user: str, menu: Sequence[SelectedSkill], now: datetime) -> str:
    """Store a menu if it is new, and return its digest; empty for an empty menu."""
    rows = [[one.place.value, one.reason, one.name, one.layer, one.version] for one in menu]
    return _store_menu(connection, user, rows, now)


def load_selection_menu(connection: sa.Connection, digest: str) -> list[SelectedSkill]:
    """Return a menu by its digest; empty if there is none."""
    return [
        SelectedSkill(place=SkillPlacementKind(place), reason=reason, name=name, layer=layer, version=version)
        for place, reason, name, layer, version in _load_menus(connection, [digest] if digest else []).get(digest, [])
    ]


def store_steady_exposures_as_menu(
    connection: sa.Connection, belongs: Mapping[str, Any], steady: Sequence[ExposureAssignment], now: datetime
) -> None:
    """Store the steady exposures that began in a turn; `belongs` are the columns that say whose they are."""
    ordered = sorted(steady, key=lambda one: (one.kind, one.item, one.version))
    rows = [[one.kind, one.item, one.version, one.propensity, one.tokens] for one in ordered]
    row = {
        **belongs,
        "menu": _store_menu(connection, belongs["user"], rows, now),
        "request_kind": ordered[0].request_kind,
        "withheld": json.dumps([number for number, one in enumerate(ordered) if not one.is_offered]),
    }
    sql.insert_missing_rows(connection, menu_exposures, [row])


def load_steady_exposures_from_menus(
    connection: sa.Connection,
    *where: sa.ColumnElement[bool],
    items: Collection[str] | None = None,
    without: Collection[tuple[str, str]] = (),
) -> Sequence[tuple[Mapping[Any, Any], list[ExposureAssignment]]]:
    """Return the matching rows of `menu_exposures` with the exposures that each stands for.

    These are of `items` or all, `without` those of these kinds and names.
    """
    rows = connection.execute(sa.select(menu_exposures).where(*where)).mappings().all()
    # Chosen once per menu, because many conversations share one.
    menus = {
        digest: [(number, *one) for number, one in enumerate(entries) if _is_menu_entry_of_items(one, items, without)]
        for digest, entries in _load_menus(connection, {row["menu"] for row in rows}).items()
    }
    found = []
    for row in rows:
        withheld = set(json.loads(row["withheld"]))
        exposures = [
            ExposureAssignment(
                kind=kind,
                item=item,
                version=version,
                is_steady=True,
                is_offered=number not in withheld,
                propensity=propensity,
                request_kind=row["request_kind"],
                tokens=tokens,
            )
            for number, kind, item, version, propensity, tokens in menus.get(row["menu"], [])
        ]
        if exposures:
            found.append((row, exposures))
    return found


def _is_menu_entry_of_items(
    entry: Sequence[Any], items: Collection[str] | None, without: Collection[tuple[str, str]]
) -> bool:
    kind, item = entry[:2]
    return (items is None or item in items) and (kind, item) not in without


def delete_unused_menus(connection: sa.Connection, before: datetime) -> int:
    """Delete the menus stored before a time that nothing refers to any more; return how many."""
    used = sa.union(sa.select(turns.c.menu), sa.select(menu_exposures.c.menu))
    unused = (turn_menus.c.stored_on < before, turn_menus.c.digest.not_in(used))
    return connection.execute(turn_menus.delete().where(*unused)).rowcount


def _store_menu(connection: sa.Connection, user: str, rows: Sequence[Sequence[Any]], now: datetime) -> str:
    if not rows:
        return ""
    packed = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    # Per user, because a menu is erased with its user.
    digest = hashlib.sha256(user.encode(errors="replace") + b"\0" + packed).hexdigest()[:32]
    row = {"digest": digest, "user": user, "stored_on": now, "entries": zlib.compress(packed)}
    sql.insert_missing_rows(connection, turn_menus, [row])
    return digest


def _load_menus(connection: sa.Connection, digests: Collection[str]) -> dict[str, list[list[Any]]]:
    query = sa.select(turn_menus.c.digest, turn_menus.c.entries)
    # All of them are read if there are many: databases limit the parameters of one IN clause.
    few = query.where(turn_menus.c.digest.in_(digests)) if len(digests) < 500 else query
    rows = connection.execute(few).all() if digests else []
    return {digest: json.loads(zlib.decompress(entries)) for digest, entries in rows if digest in digests}
