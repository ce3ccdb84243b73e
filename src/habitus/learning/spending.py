"""What learning spends on models: so many tokens a day, counted together by every process on the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from habitus import sql
from habitus.llm.model import ProviderFault

spending = sa.Table(
    "learning_spending",
    sql.metadata,
    sa.Column("day", sa.String(10), primary_key=True),  # in UTC
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("is_told", sa.Boolean, nullable=False),  # somebody was told that the cap is reached
)


class CapReached(ProviderFault):
    """There is nothing left for the request that learning wants to make: today, or in the budget of its run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What learning has spent on a day."""

    day: str
    tokens: int
    calls: int
    cap: int

    @property
    def line(self) -> str:
        return (
            f"{self.tokens:,} of {self.cap:,} tokens spent today in {self.calls} call{'s' if self.calls != 1 else ''}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserved:
    day: str
    tokens: int


class Spending:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], cap: int) -> None:
        self._engine = engine
        self._clock = clock
        self.cap = cap

    def reserve(self, tokens: int) -> Reserved:
        """Take tokens for a call out of today's before it is made, so that two processes never take the same ones."""
        day = self._today()
        with sql.writing(self._engine) as connection:
            sql.insert_missing(connection, spending, [{"day": day, "tokens": 0, "calls": 0, "is_told": False}])
            fits = spending.update().where(spending.c.day == day, spending.c.tokens + tokens <= self.cap)
            taken = fits.values(tokens=spending.c.tokens + tokens, calls=spending.c.calls + 1)
            if connection.execute(taken).rowcount:
                return Reserved(day=day, tokens=tokens)
        raise CapReached(
            f"Learning may spend {self.cap:,} tokens a day, and {self.today().tokens:,} are spent; this call could "
            f"take {tokens:,}. It waits until tomorrow (UTC), or for a higher HABITUS_LEARNING_TOKENS."
        )

    def settle(self, reserved: Reserved, used: int) -> None:
        """The call is over, and this is what it took."""
        with sql.writing(self._engine) as connection:
            connection.execute(
                spending.update()
                .where(spending.c.day == reserved.day)
                .values(tokens=spending.c.tokens + (used - reserved.tokens))
            )

    def today(self) -> Spent:
        day = self._today()
        with sql.reading(self._engine) as connection:
            row = connection.execute(sa.select(spending).where(spending.c.day == day)).first()
        return Spent(day=day, tokens=row.tokens if row else 0, calls=row.calls if row else 0, cap=self.cap)

    def is_first_to_tell(self) -> bool:
        """Whether nobody has been told today that the cap is reached; only one of all processes hears yes."""
        telling = spending.update().where(spending.c.day == self._today(), spending.c.is_told == sa.false())
        with sql.writing(self._engine) as connection:
            return connection.execute(telling.values(is_told=True)).rowcount > 0

    def _today(self) -> str:
        return self._clock().astimezone(UTC).date().isoformat()
