"""Statements compiled once in a process: SQLAlchemy keeps them for each engine, and every test opens its own."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def share_compiled_statements() -> None:
    """From now on every SQLite engine of this process uses what another has compiled."""
    sa.event.listen(sa.Engine, "engine_connect", _share)


def _share(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.execution_options(compiled_cache=_COMPILED)


class _Compiled(dict[Any, Any]):
    """A cache whose keys begin with the dialect of an engine; those of SQLite differ in nothing."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


_COMPILED = _Compiled()
