"""The models of a session: those in the settings, or those of a provider whose key is set."""

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
    """Return the main and cheap model, opened on first use. Using one without a name raises `NoModel`."""
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
    """Refuse an agent program as a chat model."""
    if not name:
        raise _no_model(environ, [])
    # A program rereads the whole conversation for every reply: too slow and too expensive for a chat.
    if program := program_of(name):
        raise Refused(
            f"{program.title} can be the model for drafts, lessons and self-play, not for a chat.",
            hint=f"Talk to it directly ('{program.command}'), or set another: --model provider:model.",
        )


def _no_model(environ: Mapping[str, str], agents: Sequence[Program]) -> NoModel:
    """Return the error for a missing model, with every way to get one."""
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
    return NoModel(hint="\n".join(ways), agent=name, title=title)


def model_names(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the main and the cheap model; empty if nothing determines them."""
    if settings.model:
        return settings.model, settings.cheap_model
    default = default_models(environ)
    return default.main, settings.cheap_model or default.cheap


def chosen_by(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the reason for a default model, to append to a sentence; empty if the settings name the model."""
    return "" if settings.model else f" (chosen by {default_models(environ).key})"


def models_named(settings: Settings, name: str) -> Models:
    """Open a model by name, ignoring the settings."""
    return models(settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)
