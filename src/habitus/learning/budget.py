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
from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.llm.agents import find_agent_program
from habitus.llm.model import (
    CompletionRequest,
    CompletionResult,
    Model,
    PersonMessage,
    ProviderError,
    RetryStreamMarker,
    StreamPiece,
    TextContent,
    TextDelta,
    TokenUsage,
    UnusableAnswerError,
    estimate_message_tokens,
)
from habitus.llm.prices import compute_price
from habitus.llm.structured import ask_structured
from habitus.redact import Redactor
from habitus.tasks.checks import RubricCheck
from habitus.tasks.model import Submission, Task
from habitus.text import estimate_tokens, format_quantity, load_prompt

learning_spending = sa.Table(
    "learning_spending",
    sql.metadata,
    # In UTC.
    sa.Column("day", sa.String(10), primary_key=True),
    *sql.build_required_columns(sa.BigInteger, "tokens", "calls"),
    # Whether a user was told that the cap is reached.
    sa.Column("is_told", sa.Boolean, nullable=False),
)


class BudgetReachedError(ProviderError):
    """The day's or the run's budget does not allow the request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DailyTokenUsage:
    """The tokens that learning has spent on a day."""

    day: str
    tokens: int
    calls: int
    cap: int

    @property
    def summary(self) -> str:
        """The spending in words."""
        return f"{self.tokens:,} of {self.cap:,} tokens spent today in {format_quantity(self.calls, 'call')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenReservation:
    """Tokens of a day that are reserved for a call."""

    day: str
    tokens: int


class DailyTokenUsageStore:
    """Stores the tokens that learning spends per day, shared by all processes of a home."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], cap: int) -> None:
        self._engine = engine
        self._clock = clock
        self.cap = cap

    def reserve(self, tokens: int) -> TokenReservation:
        """Reserve tokens of today for a call; `BudgetReachedError` if too few are left."""
        day = self._get_date_today()
        with sql.write_transaction(self._engine) as conn:
            sql.insert_missing_rows(conn, learning_spending, [{"day": day, "tokens": 0, "calls": 0, "is_told": False}])
            # One conditional update, so two processes never reserve the same tokens.
            fits = learning_spending.update().where(
                learning_spending.c.day == day, learning_spending.c.tokens + tokens <= self.cap
            )
            taken = fits.values(tokens=learning_spending.c.tokens + tokens, calls=learning_spending.c.calls + 1)
            if conn.execute(taken).rowcount:
                return TokenReservation(day=day, tokens=tokens)
        raise BudgetReachedError(
            f"Learning may spend {self.cap:,} tokens a day, and {self.get_usage_today().tokens:,} are spent; this call "
            f"could take {tokens:,}. Retry tomorrow (UTC), or raise HABITUS_LEARNING_TOKENS."
        )

    def settle(self, reserved: TokenReservation, used: int) -> None:
        """Replace a reservation with the tokens that the call used."""
        with sql.write_transaction(self._engine) as conn:
            conn.execute(
                learning_spending.update()
                .where(learning_spending.c.day == reserved.day)
                .values(tokens=learning_spending.c.tokens + (used - reserved.tokens))
            )

    def get_usage_today(self) -> DailyTokenUsage:
        """Return today's spending."""
        day = self._get_date_today()
        with sql.read_transaction(self._engine) as conn:
            row = conn.execute(sa.select(learning_spending).where(learning_spending.c.day == day)).first()
        return DailyTokenUsage(day=day, tokens=row.tokens if row else 0, calls=row.calls if row else 0, cap=self.cap)

    def claim_cap_notice(self) -> bool:
        """Whether the user has yet to be told today that the cap is reached; True for only one process."""
        telling = learning_spending.update().where(
            learning_spending.c.day == self._get_date_today(), learning_spending.c.is_told == sa.false()
        )
        with sql.write_transaction(self._engine) as conn:
            return conn.execute(telling.values(is_told=True)).rowcount > 0

    def _get_date_today(self) -> str:
        return self._clock().astimezone(UTC).date().isoformat()


# Tokens reserved for an answer without a limit of its own.
_DEFAULT_ANSWER_TOKENS = 2_000
# A shorter answer would be cut off before it says anything.
_MIN_ANSWER_TOKENS = 200
_LIMIT_PATTERN = re.compile(r"(\$?)\s*(\d+(?:\.\d+)?)\s*(k|m|min|minutes?|tokens?|\$|usd|dollars?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """The most that a run may use; None means no limit."""

    tokens: int | None = None
    dollars: float | None = None
    minutes: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse limits such as 50000, 50k, 30m or $2, or several separated by commas; `Invalid` otherwise."""
        found: dict[str, float] = {}
        for part in filter(None, (each.strip() for each in text.lower().split(","))):
            said = _LIMIT_PATTERN.fullmatch(part)
            if said is None or float(said[2]) <= 0 or (said[1] and said[3]):
                raise Invalid(
                    f"'{part}' is no budget.", hint="Give tokens (50000 or 50k), minutes (30m) or dollars ($2)."
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
class _ReservedRequest:
    """A request that may be sent, with the most that it can use."""

    ask: CompletionRequest
    max_usage: TokenUsage
    day: TokenReservation | None


class RunBudget:
    """The limits and the usage of a run, within the limits of a day. Threads and tasks may share one."""

    def __init__(
        self,
        limits: RunLimits | None = None,
        *,
        day: DailyTokenUsageStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or RunLimits()
        self.usage = TokenUsage()
        self.requests = 0
        # Set once a request was refused for lack of budget.
        self.is_reached = False
        self._day = day
        self._clock = clock
        self._began = clock()
        self._aside = TokenUsage()
        self._lock = threading.Lock()

    def wrap_model(self, model: Model) -> BudgetedModel:
        """Return the model with every request paid from this budget; `Invalid` if its price is needed and unknown."""
        program = find_agent_program(model.name)
        is_known = compute_usage_price(TokenUsage(), model.name) is not None or (
            program is not None and program.reports_cost
        )
        if self.limits.dollars is not None and not is_known:
            raise Invalid(
                f"The price of {model.name} is unknown, so a budget in dollars can't be enforced.",
                hint="Give it in tokens or minutes.",
            )
        return BudgetedModel(model, self)

    @property
    def tokens(self) -> int:
        """The tokens used so far."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def summary(self) -> str:
        """The usage in words."""
        cost = f", about ${self.usage.cost:.2f}" if self.usage.cost else ""
        return f"{self.tokens:,} tokens spent in {format_quantity(self.requests, 'request')}{cost}"

    @property
    def seconds_left_or_zero_without_limit(self) -> float:
        """The seconds until its time is up; 0 without a limit."""
        return 60 * self.limits.minutes - (self._clock() - self._began) if self.limits.minutes is not None else 0.0

    def reserve(self, ask: CompletionRequest, model: str) -> _ReservedRequest:
        """Reserve the most that a request can use, and shorten its answer to what is left.

        `BudgetReachedError` if too little is.
        """
        # A third more than estimated, because tokenizers differ between models.
        read = _estimate_input_tokens(ask) * 4 // 3 + 500
        try:
            with self._lock:
                most = self._cap_request_usage_to_remaining_budget(
                    TokenUsage(input_tokens=read, output_tokens=ask.max_tokens or _DEFAULT_ANSWER_TOKENS), model
                )
                day = self._day.reserve(read + most.output_tokens) if self._day is not None else None
                self._aside += most
                self.requests += 1
        except BudgetReachedError as reached:
            self.is_reached = True
            raise BudgetReachedError(f"{reached} {self.summary}.") from None
        is_shorter = most.output_tokens < (ask.max_tokens or _DEFAULT_ANSWER_TOKENS)
        return _ReservedRequest(
            ask=replace(ask, max_tokens=most.output_tokens) if is_shorter else ask, max_usage=most, day=day
        )

    def _cap_request_usage_to_remaining_budget(self, most: TokenUsage, model: str) -> TokenUsage:
        limits, taken = self.limits, self.usage + self._aside
        if limits.minutes is not None and self._clock() - self._began >= 60 * limits.minutes:
            raise BudgetReachedError("Its time is up.")
        if limits.tokens is not None:
            left = limits.tokens - taken.input_tokens - taken.output_tokens
            most = replace(most, output_tokens=min(most.output_tokens, left - most.input_tokens))
            if most.output_tokens < _MIN_ANSWER_TOKENS:
                least = most.input_tokens + _MIN_ANSWER_TOKENS
                raise BudgetReachedError(
                    f"The next request could take {least:,} tokens, and {max(left, 0):,} are left."
                )
        if limits.dollars is None:
            return most
        while ((cost := compute_usage_price(most, model)) or 0) + (taken.cost or 0) > limits.dollars:
            # Halved until it fits, because a price can't be turned back into tokens.
            most = replace(most, output_tokens=most.output_tokens // 2)
            if most.output_tokens < _MIN_ANSWER_TOKENS:
                left_over = max(limits.dollars - (taken.cost or 0), 0)
                raise BudgetReachedError(
                    f"The next request could take ${cost or 0:.3f}, and ${left_over:.3f} are left."
                )
        return replace(most, cost=cost)

    def settle(self, reserved: _ReservedRequest, used: TokenUsage, model: str) -> TokenUsage:
        """Replace a reservation with the real usage of the request, and return that with its price."""
        if used.cost is None and self.limits.dollars is not None:
            used = replace(used, cost=compute_usage_price(used, model))
        with self._lock:
            self.usage += used
            self._aside = subtract_usage(self._aside, reserved.max_usage)
        if self._day is not None and reserved.day is not None:
            self._day.settle(reserved.day, used.input_tokens + used.output_tokens)
        return used


class BudgetedModel:
    """A model that reserves from a budget before each request and settles it afterwards."""

    def __init__(self, model: Model, budget: RunBudget) -> None:
        self.name = model.name
        self.sees_images = model.sees_images
        self.budget = budget
        # What was asked through this object, of all that its budget has paid.
        self.usage = TokenUsage()
        self._model = model

    def copy_with_own_usage(self) -> BudgetedModel:
        """Return the same model, paid from the same budget, with a usage of its own."""
        return BudgetedModel(self._model, self.budget)

    @property
    def context_tokens(self) -> int | None:
        return self._model.context_tokens

    async def stream(self, ask: CompletionRequest) -> AsyncGenerator[StreamPiece, None]:
        """Stream the answer; a retry by the provider is settled and reserved like a request of its own."""
        aside: _ReservedRequest | None = await self._reserve(ask)
        assert aside is not None
        read, heard, unheard = _estimate_input_tokens(ask), 0, aside.max_usage.output_tokens // 4
        known: TokenUsage | None = None
        pieces = self._model.stream(aside.ask)
        try:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    heard += len(piece.text.encode("utf-8", "replace"))
                elif isinstance(piece, RetryStreamMarker):
                    paid, aside = aside, None
                    await self._settle(paid, TokenUsage(input_tokens=read))
                    aside = await self._reserve(ask)
                elif isinstance(piece, CompletionResult):
                    paid, aside = aside, None
                    said = TokenUsage(input_tokens=read, output_tokens=estimate_message_tokens(piece.message))
                    await self._settle(paid, piece.usage if _is_usage_reported(piece.usage) else said)
                yield piece
        except ProviderError as fault:
            known, unheard = fault.usage, 0
            raise
        finally:
            # After a fault or a cancelled answer no usage is reported, so it is estimated.
            if aside is not None:
                estimate = TokenUsage(input_tokens=read, output_tokens=max(heard // 4, unheard))
                await self._settle(aside, known or estimate)
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    # Both run in threads: a busy database must not hold up a turn that runs meanwhile.

    async def _reserve(self, ask: CompletionRequest) -> _ReservedRequest:
        reserving = asyncio.ensure_future(asyncio.to_thread(self.budget.reserve, ask, self.name))
        try:
            return await asyncio.shield(reserving)
        # The request is not sent any more, but its reservation may still be made by the thread.
        except asyncio.CancelledError:
            with suppress(BudgetReachedError):
                await self._settle(await reserving, TokenUsage())
            raise

    async def _settle(self, aside: _ReservedRequest | None, used: TokenUsage) -> None:
        assert aside is not None
        self.usage += await asyncio.to_thread(self.budget.settle, aside, used, self.name)


def _estimate_input_tokens(ask: CompletionRequest) -> int:
    """Estimate the tokens of a request."""
    asked = sum(map(estimate_message_tokens, ask.messages)) + sum(tool.tokens for tool in ask.tools)
    return estimate_tokens(ask.system) + asked + (estimate_tokens(str(ask.schema)) if ask.schema else 0)


def _is_usage_reported(usage: TokenUsage) -> bool:
    return usage.input_tokens + usage.output_tokens > 0


def compute_usage_price(usage: TokenUsage, model: str) -> float | None:
    """Return the price of a usage by a model such as `provider:name`; None if it is unknown."""
    provider, _, name = model.partition(":")
    program = find_agent_program(provider)
    provider = program.price_provider if program is not None else provider
    return compute_price(usage, name, provider=provider)


def subtract_usage(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    """Return what was used between two states of a budget."""
    return TokenUsage(
        input_tokens=one.input_tokens - other.input_tokens,
        output_tokens=one.output_tokens - other.output_tokens,
        cost=(one.cost or 0) - (other.cost or 0),
    )


AnswerT = TypeVar("AnswerT", bound=BaseModel)

MAX_ATTEMPTS = 2
DEFAULT_PATIENCE_S = 60.0


async def ask_for_structured_answer(
    model: BudgetedModel,
    answer_type: type[AnswerT],
    *,
    system: str,
    record: str,
    max_tokens: int,
    patience_s: float | None = DEFAULT_PATIENCE_S,
) -> AnswerT:
    """Ask the model for one value of this type.

    Raises `BudgetReachedError`, `ProviderError`, `UnusableAnswerError` or `TimeoutError`.
    """
    messages = (PersonMessage(parts=(TextContent(text=record),)),)
    async with asyncio.timeout(patience_s):
        asked = await ask_structured(
            model, answer_type, system=system, messages=messages, max_tokens=max_tokens, attempts=MAX_ATTEMPTS
        )
    return asked.value


_RUBRIC_TOKENS = 400
# Characters of a reply that the model is shown.
_MAX_REPLY_CHARS = 8_000


class RubricAnswer(BaseModel):
    """The model's answer about a rubric; the prompt describes the fields."""

    is_met: bool
    reason: str = ""


async def judge_by_rubric(
    task: Task, rubric: RubricCheck, submission: Submission, *, model: BudgetedModel, redactor: Redactor
) -> Outcome:
    """Return whether the submission meets the rubric; the outcome is `infra` if the model gave no answer."""
    calls = [f"{call.tool} {call.command or call.arguments}"[:300] for call in submission.calls[-20:]]
    record = json.dumps(
        {"request": task.request, "rubric": rubric.text, "reply": submission.reply[-_MAX_REPLY_CHARS:], "calls": calls},
        ensure_ascii=False,
    )
    try:
        said = await ask_for_structured_answer(
            model,
            RubricAnswer,
            system=load_prompt("learning", "judge-rubric"),
            record=redactor.redact(record).text,
            max_tokens=_RUBRIC_TOKENS,
        )
    except (BudgetReachedError, ProviderError, UnusableAnswerError, TimeoutError) as fault:
        return build_infrastructure_failure_outcome(str(fault) or "the model took too long")
    reason = " ".join(said.reason.split())[:300]
    return (
        OK
        if said.is_met
        else build_failed_outcome(f"{model.name} says: {reason or 'it is not as the rubric wants it'}")
    )
