"""Models of a session: those of the settings, or of the provider whose key is there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from habitus.errors import Invalid
from habitus.llm.model import Model
from habitus.llm.providers import open_model
from habitus.llm.providers.naming import default_models, telling_keys
from habitus.llm.providers.on_this_machine import running_here
from habitus.llm.providers.patience import Patience
from habitus.llm.roles import Models
from habitus.llm.script_file import PREFIX, script_model
from habitus.settings import Settings


def models(settings: Settings, environ: Mapping[str, str]) -> Models:
    main, cheap = chosen(settings, environ)

    def opened(name: str) -> Model:
        if not name:
            raise Invalid("No model is set.", mend="\n".join(_ways(environ)))
        if name.startswith(PREFIX):
            return script_model(name)
        patience = Patience(silence=settings.model_silence, total=settings.model_total)
        return open_model(name, environ, base_url=settings.base_url, patience=patience)

    return Models(main, cheap, open_model=opened)


def _ways(environ: Mapping[str, str]) -> list[str]:
    """What a person without a model can do next."""
    here = running_here(environ)
    local = "Or run one on this machine: 'ollama serve' is one way."
    if here:
        local = f"One runs on this machine: export HABITUS_MODEL={here[0]}"
    return [
        f"Set a key ({', '.join(telling_keys())}), or HABITUS_MODEL to provider:model.",
        local,
        "Without any, see what Habitus does: habitus tour",
    ]


def chosen(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """The names of the main and the cheap model; empty when nothing says which."""
    if settings.model:
        return settings.model, settings.cheap_model
    default = default_models(environ)
    return default.main, settings.cheap_model or default.cheap


def chosen_by(settings: Settings, environ: Mapping[str, str]) -> str:
    """What made the choice where nobody named a model, in words to go on with."""
    return "" if settings.model else f" (chosen by {default_models(environ).key})"


def models_named(settings: Settings, name: str) -> Models:
    """A model by its name, whatever the settings say."""
    return models(settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)
