"""Models of a session: those of the settings, or of the provider whose key is there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from habitus.errors import NoModel, Refused
from habitus.llm.agents import open_agent, program_of, programs_here
from habitus.llm.agents.program import Program
from habitus.llm.model import Model, Models
from habitus.llm.providers import open_model
from habitus.llm.providers.known_providers import Patience, default_models, running_here, telling_keys
from habitus.llm.scripted import PREFIX, script_model
from habitus.settings import Settings


def models(settings: Settings, environ: Mapping[str, str]) -> Models:
    main, cheap = model_names(settings, environ)

    def open_named(name: str) -> Model:
        if not name:
            raise _no_model(environ, programs_here(environ))
        if name.startswith(PREFIX):
            return script_model(name)
        if program_of(name) is not None:
            return open_agent(name, environ, settings.model_silence)
        patience = Patience(silence=settings.model_silence, total=settings.model_total)
        return open_model(name, environ, base_url=settings.base_url, patience=patience)

    return Models(main, cheap, open_model=open_named)


def refuse_in_chat(name: str, environ: Mapping[str, str]) -> None:
    """A program of an agent reads the whole talk anew for every answer: too slow and too dear to talk with."""
    if not name:
        raise _no_model(environ, [])
    if program := program_of(name):
        raise Refused(
            f"{program.title} can be the model for drafts, lessons and self-play, not for a chat.",
            mend=f"Talk to it directly ('{program.command}'), or set another: --model provider:model.",
        )


def _no_model(environ: Mapping[str, str], agents: Sequence[Program]) -> NoModel:
    """With what the person can do next."""
    here = running_here(environ)
    local = "Or run one on this machine: 'ollama serve' is one way."
    if here:
        local = f"One runs on this machine: export HABITUS_MODEL={here[0]}"
    agent = agents[0] if agents else None
    ways = [
        f"Set a key ({', '.join(telling_keys())}), or HABITUS_MODEL to provider:model.",
        local,
        *([f"Or use {agent.title}, which is here: export HABITUS_MODEL={agent.name}"] if agent else []),
        "Without any, see what Habitus does: habitus tour",
    ]
    name, title = (agent.name, agent.title) if agent else ("", "")
    return NoModel(mend="\n".join(ways), agent=name, title=title)


def model_names(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """The names of the main and the cheap model; empty when nothing says which."""
    if settings.model:
        return settings.model, settings.cheap_model
    default = default_models(environ)
    return default.main, settings.cheap_model or default.cheap


def chosen_by(settings: Settings, environ: Mapping[str, str]) -> str:
    """The reason for a choice that nobody made by name, in words to go on with."""
    return "" if settings.model else f" (chosen by {default_models(environ).key})"


def models_named(settings: Settings, name: str) -> Models:
    """A model by its name, whatever the settings say."""
    return models(settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)
