"""Optional extras: checks whether one is installed, and says how to install it from where this installation came."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from habitus.errors import UserError

# Module → the extra that provides it, with the names of pyproject.toml.
EXTRA_BY_MODULE: Mapping[str, str] = {
    "anthropic": "anthropic",
    "authlib": "oidc",
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
    "pypdf": "attachments",
    "python_calamine": "attachments",
    "uv": "packages",
    "uvicorn": "web",
}


def is_installed(module: str) -> bool:
    """Return whether a module is installed, importing only its parent packages."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def build_missing_error(feature: str, module: str) -> UserError:
    """Return the error for a feature whose module is not installed."""
    return UserError(
        f"{feature} needs the extra '{EXTRA_BY_MODULE[module]}', which is not installed.", hint=describe_install(module)
    )


def describe_install(module: str) -> str:
    """Return the hint that says how to install the extra of a module."""
    extra = EXTRA_BY_MODULE[module]
    whole, part = build_habitus_requirement("all"), build_habitus_requirement(extra)
    return f"Run: uv tool install '{whole}', or: pip install '{part}'."


def build_habitus_requirement(extra: str) -> str:
    """Return what installs Habitus with an extra from where this one was installed: a folder, a file or a commit.

    Only if that was a registry, its name says it: whoever owns the name in another one would run code here.
    """
    from importlib import metadata  # imported late, because it costs 20 ms

    origin: dict[str, Any] = {}
    with suppress(metadata.PackageNotFoundError, ValueError):
        origin = json.loads(metadata.distribution("habitus").read_text("direct_url.json") or "{}")
    match origin:
        case {"url": str(url), "vcs_info": {"vcs": str(kind), "commit_id": str(commit)}}:
            return f"habitus[{extra}] @ {kind}+{url}@{commit}"
        case {"url": str(url)}:
            return f"habitus[{extra}] @ {url}"
        case _:
            return f"habitus[{extra}]"


def suggest_permanent_install_command() -> str:
    """Return the command that installs Habitus for good if it runs from a cache (`uvx`, `pipx run`), else ''."""
    # Installers mark caches, whose content may be deleted at any time; they mark environments that last as well.
    is_in_cache = any((folder / "CACHEDIR.TAG").is_file() for folder in Path(sys.prefix).parents)
    return f"uv tool install '{build_habitus_requirement('all')}'" if is_in_cache else ""
