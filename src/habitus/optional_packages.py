"""Extras: parts that are installed by name, and what to say where one is absent."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from habitus.errors import UserError

# What is imported → the extra that brings it. pyproject.toml has the same names.
BRINGS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "cryptography": "secrets",
    "fastapi": "web",
    "google.genai": "google",
    "jinja2": "web",
    "keyring": "secrets",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "nh3": "web",
    "openai": "openai",
    "opentelemetry.sdk": "telemetry",
    "pocketsphinx": "audio",
    "prometheus_client": "telemetry",
    "prompt_toolkit": "chat",
    "psycopg": "postgres",
    "pydantic_ai": "pydantic-ai",
    "uv": "packages",
    "uvicorn": "web",
}


def has(module: str) -> bool:
    """Whether what an extra brings is installed; nothing is imported but the packages around it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def absent(what: str, module: str) -> UserError:
    """The error for something that needs a module which is not there."""
    return UserError(f"{what} needs the extra '{BRINGS[module]}', which is not installed.", hint=how(module))


def how(module: str) -> str:
    """How to install what brings a module."""
    return f"Run: uv tool install 'habitus[all]', or: pip install 'habitus[{BRINGS[module]}]'."
