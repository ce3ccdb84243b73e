"""Budgets for asking models: limits in tokens, dollars and minutes for a run, and tokens per day.

The most that a request may use is reserved before it is sent, and its real usage is settled afterwards: as reported by
the provider, or else estimated. This module also asks a model for a structured value, and judges a submission by a
rubric.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel

from habitus import sql
from habitus.errors import Invalid
from habitus.events import OK, Outcome, failure, infra
from habitus.llm.agents import program_of
from habitus.llm.model import (
    Answer,
    Ask,
    Asked,
    Model,
    NoUsableAnswer,
    ProviderFault,
    Streamed,
    Text,
    TextDelta,
    TryingAgain,
    Usage,
    message_tokens,
)
from habitus.llm.prices import price
from habitus.llm.structured import ask_for
from habitus.redact import Redactor
from habitus.tasks.checks import Rubric
from habitus.tasks.model import Submission, Task
from habitus.text import count_of, prompt_text, tokens

spending = sa.Table(
    "learning_spending",
    sql.metadata,
    # In UTC.
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("calls", sa.BigInteger, nullable=False),
    # Whether a user was told that the cap is reached.
    sa.Column("is_told", sa.Boolean, nullable=False),
)


class CapReached(ProviderFault):
    """The day's or the run's budget does not allow the request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """The tokens that learning has spent on a day."""

    day: str
    tokens: int
    calls: int
    cap: int

    @property
    def line(self) -> str:
        """The spending in words."""
        return f"{self.tokens:,} of {self.cap:,} tokens spent today in {count_of(self.calls, 'call')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserved:
    """Tokens of a day that are reserved for a call."""

    day: str
    tokens: int


class Spending:
    """Stores the tokens that learning spends per day, shared by all processes of a home."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], cap: int) -> None:
        self._engine = engine
        self._clock = clock
        self.cap = cap

    def reserve(self, tokens: int) -> Reserved:
        """Reserve tokens of today for a call; `BudgetReachedError` if too few are left."""
        day = self._today()
        with sql.writing(self._engine) as connection:
            sql.insert_missing(connection, spending, [{"day": day, "tokens": 0, "calls": 0, "is_told": False}])
            # One conditional update, so two processes never reserve the same tokens.
            fits = spending.update().where(spending.c.day == day, spending.c.tokens + tokens <= self.cap)
            taken = fits.values(tokens=spending.c.tokens + tokens, calls=spending.c.calls + 1)
            if connection.execute(taken).rowcount:
                return Reserved(day=day, tokens=tokens)
        raise CapReached(
            f"Learning may spend {self.cap:,} tokens a day, and {self.today().tokens:,} are spent; this call could "
            f"take {tokens:,}. It waits until tomorrow (UTC), or for a higher HABITUS_LEARNING_TOKENS."
        )

    def settle(self, reserved: Reserved, used: int) -> None:
        """Replace a reservation with the tokens that the call used."""
        with sql.writing(self._engine) as connection:
            connection.execute(
                spending.update()
                .where(spending.c.day == reserved.day)
                .values(tokens=spending.c.tokens + (used - reserved.tokens))
            )

    def today(self) -> Spent:
        """Return today's spending."""
        day = self._today()
        with sql.reading(self._engine) as connection:
            row = connection.execute(sa.select(spending).where(spending.c.day == day)).first()
        return Spent(day=day, tokens=row.tokens if row else 0, calls=row.calls if row else 0, cap=self.cap)

    def is_first_to_tell(self) -> bool:
        """Whether the user has yet to be told today that the cap is reached; True for only one process."""
        telling = spending.update().where(spending.c.day == self._today(), spending.c.is_told == sa.false())
        with sql.writing(self._engine) as connection:
            return connection.execute(telling.values(is_told=True)).rowcount > 0

    def _today(self) -> str:
        return self._clock().astimezone(UTC).date().isoformat()


# Tokens reserved for an answer without a limit of its own.
_ROOM = 2_000
# A shorter answer would be cut off before it says anything.
_LEAST_ROOM = 200
_LIMIT = re.compile(r"(\$?)\s*(\d+(?:\.\d+)?)\s*(k|m|min|minutes?|tokens?|\$|usd|dollars?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The most that a run may use; None means no limit."""

    tokens: int | None = None
    dollars: float | None = None
    minutes: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse limits such as 50000, 50k, 30m or $2, or several separated by commas; `Invalid` otherwise."""
        found: dict[str, float] = {}
        for part in filter(None, (each.strip() for each in text.lower().split(","))):
            said = _LIMIT.fullmatch(part)
            if said is None or float(said[2]) <= 0 or (said[1] and said[3]):
                raise Invalid(
                    f"'{part}' is no budget.", hint="Say tokens, as 50000 or 50k, minutes, as 30m, or dollars, as $2."
                )
            unit = said[1] or said[3] or "tokens"
            if unit.startswith("m"):
                found["minutes"] = float(said[2])
            elif unit in ("k", "token", "tokens"):
                found["tokens"] = int(float(said[2]) * (1000 if unit == "k" else 1))
            else:
                found["dollars"] = float(said[2])
        return cls(**found)  # type: ignore[arg-type]  # tokens are made an int above


@dataclass(frozen=True, kw_only=True, slots=True)
class _Aside:
    """A request that may be sent, with the most that it can use."""

    ask: Ask
    most: Usage
    day: Reserved | None


class Budget:
    """The limits and the usage of a run, within the limits of a day. Threads and tasks may share one."""

    def __init__(
        self, limits: Limits | None = None, *, day: Spending | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or Limits()
        self.usage = Usage()
        self.requests = 0
        # Set once a request was refused for lack of budget.
        self.is_reached = False
        self._day = day
        self._clock = clock
        self._began = clock()
        self._aside = Usage()
        self._lock = threading.Lock()

    def model(self, model: Model) -> BudgetedModel:
        """Return the model with every request paid from this budget; `Invalid` if its price is needed and unknown."""
        program = program_of(model.name)
        is_known = _dollars(Usage(), model.name) is not None or (program is not None and program.tells_dollars)
        if self.limits.dollars is not None and not is_known:
            raise Invalid(
                f"Nobody knows what {model.name} costs, so a budget in dollars can't be kept.",
                hint="Say it in tokens or minutes.",
            )
        return BudgetedModel(model, self)

    @property
    def tokens(self) -> int:
        """The tokens used so far."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def line(self) -> str:
        """The usage in words."""
        cost = f", about ${self.usage.cost:.2f}" if self.usage.cost else ""
        return f"{self.tokens:,} tokens spent in {count_of(self.requests, 'request')}{cost}"

    def reserve(self, ask: Ask, model: str) -> _Aside:
        """Reserve the most that a request can use, and shorten its answer to what is left.

        `BudgetReachedError` if too little is.
        """
        # A third more than estimated, because tokenizers differ between models.
        read = _tokens_to_read(ask) * 4 // 3 + 500
        try:
            with self._lock:
                most = self._fit_usage(Usage(input_tokens=read, output_tokens=ask.max_tokens or _ROOM), model)
                day = self._day.reserve(read + most.output_tokens) if self._day is not None else None
                self._aside += most
                self.requests += 1
        except CapReached as reached:
            self.is_reached = True
            raise CapReached(f"{reached} {self.line}.") from None
        is_shorter = most.output_tokens < (ask.max_tokens or _ROOM)
        return _Aside(ask=replace(ask, max_tokens=most.output_tokens) if is_shorter else ask, most=most, day=day)

    def _fit_usage(self, most: Usage, model: str) -> Usage:
        limits, taken = self.limits, self.usage + self._aside
        if limits.minutes is not None and self._clock() - self._began >= 60 * limits.minutes:
            raise CapReached("Its time is up.")
        if limits.tokens is not None:
            left = limits.tokens - taken.input_tokens - taken.output_tokens
            most = replace(most, output_tokens=min(most.output_tokens, left - most.input_tokens))
            if most.output_tokens < _LEAST_ROOM:
                least = most.input_tokens + _LEAST_ROOM
                raise CapReached(f"The next request could take {least:,} tokens, and {max(left, 0):,} are left.")
        if limits.dollars is None:
            return most
        while ((cost := _dollars(most, model)) or 0) + (taken.cost or 0) > limits.dollars:
            # Halved until it fits, because a price can't be turned back into tokens.
            most = replace(most, output_tokens=most.output_tokens // 2)
            if most.output_tokens < _LEAST_ROOM:
                left_over = max(limits.dollars - (taken.cost or 0), 0)
                raise CapReached(f"The next request could take ${cost or 0:.3f}, and ${left_over:.3f} are left.")
        return replace(most, cost=cost)

    def settle(self, aside: _Aside, used: Usage, model: str) -> None:
        """Replace a reservation with the real usage of the request."""
        if used.cost is None and self.limits.dollars is not None:
            used = replace(used, cost=_dollars(used, model))
        with self._lock:
            self.usage += used
            self._aside = _minus(self._aside, aside.most)
        if self._day is not None and aside.day is not None:
            self._day.settle(aside.day, used.input_tokens + used.output_tokens)


class BudgetedModel:
    """A model that reserves from a budget before each request and settles it afterwards."""

    def __init__(self, model: Model, budget: Budget) -> None:
        self.name = model.name
        self.sees_images = model.sees_images
        self.budget = budget
        self._model = model

    @property
    def context_tokens(self) -> int | None:
        return self._model.context_tokens

    async def stream(self, ask: Ask) -> AsyncGenerator[Streamed, None]:
        """Stream the answer; a retry by the provider is settled and reserved like a request of its own."""
        aside: _Aside | None = await self._reserve(ask)
        assert aside is not None
        read, heard, unheard = _tokens_to_read(ask), 0, aside.most.output_tokens // 4
        known: Usage | None = None
        pieces = self._model.stream(aside.ask)
        try:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    heard += len(piece.text.encode("utf-8", "replace"))
                elif isinstance(piece, TryingAgain):
                    paid, aside = aside, None
                    await self._settle(paid, Usage(input_tokens=read))
                    aside = await self._reserve(ask)
                elif isinstance(piece, Answer):
                    paid, aside = aside, None
                    said = Usage(input_tokens=read, output_tokens=message_tokens(piece.message))
                    await self._settle(paid, piece.usage if _is_told(piece.usage) else said)
                yield piece
        except ProviderFault as fault:
            known, unheard = fault.usage, 0
            raise
        finally:
            # After a fault or a cancelled answer no usage is reported, so it is estimated.
            if aside is not None:
                estimate = Usage(input_tokens=read, output_tokens=max(heard // 4, unheard))
                await self._settle(aside, known or estimate)
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    # Both run in threads: a busy database must not hold up a turn that runs meanwhile.

    async def _reserve(self, ask: Ask) -> _Aside:
        reserving = asyncio.ensure_future(asyncio.to_thread(self.budget.reserve, ask, self.name))
        try:
            return await asyncio.shield(reserving)
        # The request is not sent any more, but its reservation may still be made by the thread.
        except asyncio.CancelledError:
            with suppress(CapReached):
                await self._settle(await reserving, Usage())
            raise

    async def _settle(self, aside: _Aside | None, used: Usage) -> None:
        assert aside is not None
        await asyncio.to_thread(self.budget.settle, aside, used, self.name)


def _tokens_to_read(ask: Ask) -> int:
    """Estimate the tokens of a request."""
    asked = sum(map(message_tokens, ask.messages)) + sum(tool.tokens for tool in ask.tools)
    return tokens(ask.system) + asked + (tokens(str(ask.schema)) if ask.schema else 0)


def _is_told(usage: Usage) -> bool:
    return usage.input_tokens + usage.output_tokens > 0


def _dollars(usage: Usage, model: str) -> float | None:
    provider, _, name = model.partition(":")
    program = program_of(provider)
    provider = program.prices_of if program is not None else provider
    return price(usage, name, provider=provider)


def _minus(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens - other.input_tokens,
        output_tokens=one.output_tokens - other.output_tokens,
        cost=(one.cost or 0) - (other.cost or 0),
    )


T = TypeVar("T", bound=BaseModel)

ATTEMPTS = 2
PATIENCE_S = 60.0


async def ask_within(
    model: BudgetedModel, kind: type[T], *, system: str, record: str, room: int, patience_s: float | None = PATIENCE_S
) -> T:
    """Ask the model for one value of this type.

    Raises `BudgetReachedError`, `ProviderFault`, `NoUsableAnswer` or `TimeoutError`.
    """
    messages = (Asked(parts=(Text(text=record),)),)
    async with asyncio.timeout(patience_s):
        asked = await ask_for(model, kind, system=system, messages=messages, max_tokens=room, attempts=ATTEMPTS)
    return asked.value


_RUBRIC_ROOM = 400
# Characters of a reply that the model is shown.
_LONGEST = 8_000


class RubricAnswer(BaseModel):
    """The model's answer about a rubric; the prompt describes the fields."""

    is_met: bool
    reason: str = ""


async def judge_rubric(
    task: Task, rubric: Rubric, submission: Submission, *, model: BudgetedModel, redactor: Redactor
) -> Outcome:
    """Return whether the submission meets the rubric; the outcome is `infra` if the model gave no answer."""
    calls = [f"{call.tool} {call.command or call.arguments}"[:300] for call in submission.calls[-20:]]
    record = json.dumps(
        {"request": task.request, "rubric": rubric.text, "reply": submission.reply[-_LONGEST:], "calls": calls},
        ensure_ascii=False,
    )
    try:
        said = await ask_within(
            model,
            RubricAnswer,
            system=prompt_text("learning", "judge-rubric"),
            record=redactor.redact(record).text,
            room=_RUBRIC_ROOM,
        )
    except (CapReached, ProviderFault, NoUsableAnswer, TimeoutError) as fault:
        return infra(str(fault) or "the model took too long")
    reason = " ".join(said.reason.split())[:300]
    return OK if said.is_met else failure(f"{model.name} says: {reason or 'it is not as the rubric wants it'}")
