"""Models of a session: those of the settings, or of the provider whose key is there."""

from __future__ import annotations

from collections.abc import Mapping

from habitus.errors import Invalid
from habitus.llm.model import Model
from habitus.llm.providers import open_model
from habitus.llm.providers.naming import default_models, telling_keys
from habitus.llm.providers.patience import Patience
from habitus.llm.roles import Models
from habitus.llm.script_file import PREFIX, script_model
from habitus.settings import Settings


def models(settings: Settings, environ: Mapping[str, str]) -> Models:
    main, cheap = chosen(settings, environ)

    def opened(name: str) -> Model:
        if not name:
            raise Invalid(
                "No model is set.",
                mend=f"Set HABITUS_MODEL to provider:model, or a key: {', '.join(telling_keys())}.",
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
    default = default_models(environ)
    return default.main, settings.cheap_model or default.cheap
