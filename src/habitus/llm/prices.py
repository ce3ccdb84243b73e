"""Prices of tokens by a list that comes with the installation, for those who tell tokens and no dollars."""

from __future__ import annotations

from habitus.llm.model import Usage


def price(usage: Usage, model: str, *, provider: str = "") -> float | None:
    """US dollars; none where nobody knows the price of this model."""
    try:
        from genai_prices import Usage as Priced  # the list takes a moment to read
        from genai_prices import calc_price

        priced = Priced(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cache_read_tokens=usage.cached_tokens
        )
        return float(calc_price(priced, model, provider_id=provider or None).total_price)
    except (ImportError, LookupError, ValueError, AssertionError):
        return None
