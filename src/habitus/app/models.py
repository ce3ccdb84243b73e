"""Models of a session: those of the settings, or of the provider whose key is there."""

from __future__ import annotations

from collections.abc import Mapping

from habitus.errors import Invalid
from habitus.llm.model import Model
from habitus.llm.providers import open_model
from habitus.llm.providers.patience import Patience
from habitus.llm.roles import Models
from habitus.llm.script_file import PREFIX, script_model
from habitus.settings import Settings

# Which models to take when only a key says which provider: the main one and the cheap one.
DEFAULTS = {
    "ANTHROPIC_API_KEY": ("anthropic:claude-sonnet-5-5", "anthropic:claude-haiku-5-5"),
    "OPENAI_API_KEY": ("openai:gpt-5", "openai:gpt-5-mini"),
    "GEMINI_API_KEY": ("google:gemini-2.5-pro", "google:gemini-2.5-flash"),
    "GOOGLE_API_KEY": ("google:gemini-2.5-pro", "google:gemini-2.5-flash"),
}


def models(settings: Settings, environ: Mapping[str, str]) -> Models:
    main, cheap = chosen(settings, environ)

    def opened(name: str) -> Model:
        if not name:
            raise Invalid(
                "No model is set.",
                mend="Set HABITUS_MODEL to provider:model, or a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY.",
            )
        if name.startswith(PREFIX):
            return script_model(name)
        patience = Patience(silence=settings.model_silence, total=settings.model_total)
        return open_model(name, environ, base_url=settings.base_url, patience=patience)

    return Models(main, cheap, open_model=opened)


def chosen(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """The names of the main and the cheap model; empty when nothing says which."""
    if settings.model:
        return settings.model, settings.cheap_model
    for key, (main, cheap) in DEFAULTS.items():
        if environ.get(key):
            return main, settings.cheap_model or cheap
    return "", settings.cheap_model
