"""Token prices from an installed list, for providers and programs that report tokens but no cost."""

from __future__ import annotations

from habitus.llm.model import TokenUsage


def compute_price(usage: TokenUsage, model: str, *, provider: str = "") -> float | None:
    """Return the cost in US dollars; None if the model's price is unknown."""
    try:
        # Imported here because reading the list takes a moment.
        from genai_prices import Usage as Priced
        from genai_prices import calc_price

        priced = Priced(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cache_read_tokens=usage.cached_tokens
        )
        return float(calc_price(priced, model, provider_id=provider or None).total_price)
    except (ImportError, LookupError, ValueError, AssertionError):
        return None
