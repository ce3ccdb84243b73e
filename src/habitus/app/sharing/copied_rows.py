"""Rows as they are copied: which tables and which of their rows, by key, and when two of them are the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.skills.layers.layer import USER
from habitus.skills.sources.trust import APPROVED
from habitus.skills.stores import records
from habitus.skills.stores.tables import blobs

CHUNK = 200

# What is of one machine: its index, its pages, what it has read, its secrets. Others make their own.
OF_ONE_MACHINE = frozenset(
    (
        "granted_credentials",
        "indexed_skills",
        "job_parts",
        "jobs",
        "memory_views",
        "search_collections",
        "search_documents",
        "search_vectors",
        "signing_keys",
        "skill_calls",
        "studied_files",
    )
)
# What of it no other machine could make anew, as people call it.
_STAYS = {
    "granted_credentials": "grants of secrets to skills",
    "skill_calls": "calls of command lines in the log",
    "studied_files": "transcripts that were studied",
}
# Written by what is copied: the shelf, the trees of versions, and the counters that only grow.
_FOLLOWS = frozenset(
    ("agent_skills", "agent_skill_files", "blobs", "evidence_sums", "memory_revision", "sequences", "skill_intents")
)
_OF_THE_SERVER = frozenset(("search_skills", "search_skill_vectors", "search_terms"))  # made anew where it is needed
_OF_THE_SCHEMA = frozenset(("alembic_version", "schema_compatibility"))
_ONLY = {
    "skills": ("layer", USER),
    "skill_proposals": ("layer", USER),
    "trusted_skills": ("root", APPROVED),  # the rest are folders of one machine
}
_SAYS_IN_USE = {"skills": "skill", "engrams": "lesson", "turns": "turn", "skill_proposals": "proposal"}
_FIXED_ID = "evidence_seed"
# What makes two rows the same thing, whatever their numbers: of the skills that are there a folder alone does.
TOLD_APART = {"skills": ("folder", "created_on", "archived_on"), "skill_proposals": ("name", "action", "made_on")}

Row = dict[str, Any]
Rows = list[Row]


def tables(engine: sa.Engine) -> dict[str, sa.Table]:
    """The tables to copy, each before those that point to it."""
    apart = OF_ONE_MACHINE | _FOLLOWS
    with sql.storage_errors(engine), engine.connect() as connection:
        return {name: table for name, table in reflect(connection).items() if name not in apart}


def reflect(connection: sa.Connection) -> dict[str, sa.Table]:
    """Every table with rows of its own, before those that point to it."""
    apart = _OF_THE_SERVER | _OF_THE_SCHEMA  # the types of the former are not known here
    found = sa.MetaData()
    found.reflect(connection, only=lambda name, _: name not in apart)
    return {table.name: table for table in found.sorted_tables}


@contextmanager
def snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One state of a database, however long it is read."""
    with sql.storage_errors(engine), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def describe_use(connection: sa.Connection, there: Mapping[str, sa.Table]) -> str:
    """How much a database holds that is shared; nothing where it is new."""
    found = []
    for name, word in _SAYS_IN_USE.items():
        query = sa.select(sa.func.count()).select_from(there[name]).where(*ours(there[name]))
        if count := connection.execute(query).scalar_one():
            found.append(f"{count} {word}{'s' if count > 1 else ''}")
    return ", ".join(found)


def stays(engine: sa.Engine) -> dict[str, int]:
    """The tables left where they are, with their number of rows."""
    with sql.reading(engine) as connection:
        count = {
            what: int(connection.execute(sa.select(sa.func.count()).select_from(sa.table(name))).scalar_one())
            for name, what in _STAYS.items()
        }
    return {what: number for what, number in count.items() if number}


def is_numbered(table: sa.Table) -> bool:
    (first, *more) = table.primary_key
    return isinstance(first.type, sa.Integer) and not more and table.name != _FIXED_ID


def ours(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    column, value = _ONLY.get(table.name, ("", ""))
    return [table.c[column] == value] if column else []


def chunks(connection: sa.Connection, table: sa.Table) -> Iterator[Rows]:
    """All rows by their key, some at a time."""
    key = sa.tuple_(*table.primary_key)
    query = sa.select(table).where(*ours(table)).order_by(*table.primary_key).limit(CHUNK)
    rows = rows_of(connection, query)
    while rows:
        yield rows
        last = sa.tuple_(*(sa.literal(rows[-1][column.name], column.type) for column in table.primary_key))
        rows = rows_of(connection, query.where(key > last)) if len(rows) == CHUNK else []


def rows_of(connection: sa.Connection, query: sa.Select[Any]) -> Rows:
    return [dict(row) for row in connection.execute(query).mappings()]


def with_keys_of(connection: sa.Connection, table: sa.Table, rows: Rows) -> Rows:
    """The rows of a table that have the keys of these."""
    if not rows:
        return []
    return rows_of(
        connection, sa.select(table).where(sa.tuple_(*table.primary_key).in_([key_of(table, r) for r in rows]))
    )


def key_of(table: sa.Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in table.primary_key)


def keys_of(table: sa.Table, rows: Rows) -> set[tuple[Any, ...]]:
    return {key_of(table, row) for row in rows}


def identity(row: Row, told: Sequence[str]) -> tuple[Any, ...]:
    is_there = "archived_on" in told and row["archived_on"] is None
    return (row[told[0]],) if is_there else tuple(row[column] for column in told)


def blobs_of(connection: sa.Connection, rows: Sequence[Row]) -> Iterable[Row]:
    """The contents that the trees of versions and proposals name."""
    trees = [row["tree"] for row in rows if row.get("tree")]
    wanted = sorted({file.sha256 for tree in trees for file in records.unpack_tree(tree).values()})
    for start in range(0, len(wanted), CHUNK):
        query = sa.select(blobs).where(blobs.c.sha256.in_(wanted[start : start + CHUNK]))
        yield from rows_of(connection, query)


def digest(row: Row) -> tuple[str, bytes]:
    return row["sha256"], bytes(row["packed"])
