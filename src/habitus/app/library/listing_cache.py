"""Keeping the listing beside the database, for commands that read it without the database's toolkit."""

from __future__ import annotations

import os

from habitus import sql
from habitus.app.home import Home
from habitus.app.home_directory import read_settings
from habitus.app.use_cases.skills import manifest_of, waiting_skills
from habitus.settings import Settings
from habitus.skills.choosing.finding import mark
from habitus.skills.layers.listing_cache import KeptItem, KeptShelf, View, Viewer, answers_of, keep
from habitus.skills.stores.files import DirectoryShelf
from habitus.skills.stores.ledger import Row


def keep_listing(home: Home) -> None:
    """Keep it where this process has composed it, and a command that lists says nothing else of the home."""
    settings, skills = home.settings, home.skills
    if not skills.last.listing or home.local is not home.shared or home.is_read_only or not _is_usual(settings):
        return
    with sql.reading(home.local) as connection:
        seen = skills.snapshot(look=False)
        listing = (*seen.listing, *waiting_skills(home.review))
        answers = answers_of(lambda query: [tuple(row) for row in connection.exec_driver_sql(query)])
    if answers is None:
        return
    shelves: dict[str, KeptShelf] = {}
    rows: dict[tuple[str, str], Row] = {}
    for layer in skills.layers:
        shelf, known = layer.store.shelf, sorted(layer.store.rows(), key=lambda row: row.folder, reverse=True)
        assert isinstance(shelf, DirectoryShelf)  # where there is one database
        stamps = {row.folder: row.stamp for row in known}
        shelves[layer.name] = KeptShelf(root=str(shelf.root), follow_links=shelf.follow_links, stamps=stamps)
        rows |= {(layer.name, row.name): row for row in known}
    found = ((item, rows.get((item.layer, item.name))) for item in listing)
    items = (
        KeptItem(
            item=item,
            manifest=manifest_of(skills, item),
            folder="" if row is None else row.folder,
            row=0 if row is None else row.id,
        )
        for item, row in found
    )
    view = View(home=settings.home, cwd=settings.cwd, environ=os.environ)
    marks = {name: mark(tree_hash) for name, tree_hash in seen.hashes.items()}
    viewer = Viewer(user=settings.user, count=len(seen.listing), encoder=settings.search.encoder, marks=marks)
    keep(view, viewer, answers, shelves, items)


def _is_usual(settings: Settings) -> bool:
    """Whether the next process would read the same settings, and say nothing of them."""
    operator = settings.operator_skills
    is_fixed = operator is None or operator.is_absolute()
    return is_fixed and not settings.warnings and settings == read_settings(settings.home)
