"""What tables are declared with: the metadata of all of them, and moments that every database keeps alike."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import sqlalchemy as sa

metadata = sa.MetaData()


class Utc(sa.types.TypeDecorator[datetime]):
    """A moment as ISO 8601 text in UTC: reads the same in every database, and sorts by time."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _written(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


@functools.lru_cache(maxsize=64)  # thousands of rows of one change bear one moment
def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
