"""The models of a session: those in the settings, or those of a provider whose key is set."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from habitus.app.host_access import HostAccess, make_host_access
from habitus.errors import NoModelSet, Refused
from habitus.llm.agents import find_program, list_installed_programs, open_agent_model
from habitus.llm.agents.program import AgentProgram
from habitus.llm.model import Model, SessionModels
from habitus.llm.providers import known_providers, open_provider_model
from habitus.llm.scripted import SCRIPT_PREFIX, open_script_model
from habitus.settings import Settings


def open_models(settings: Settings, environ: Mapping[str, str]) -> SessionModels:
    """Return the main and cheap model, opened on first use. Using one without a name raises `NoModelSet`."""
    main, cheap = resolve_model_names(settings, environ)

    def open_named(name: str) -> Model:
        if not name:
            raise _no_model_error(environ, list_installed_programs(environ))
        if name.startswith(SCRIPT_PREFIX):
            return open_script_model(name)
        if find_program(name) is not None:
            return open_agent_model(name, environ, settings.model_silence)
        patience = known_providers.RetryPolicy(silence=settings.model_silence, total=settings.model_total)
        return open_provider_model(name, environ, base_url=settings.base_url, patience=patience)

    return SessionModels(main, cheap, open_model=open_named)


def require_model_program(host: HostAccess, name: str) -> None:
    """Raise `Refused` if a model is a program or a script of this machine, and the caller may not name one."""
    if find_program(name) is not None or name.startswith(SCRIPT_PREFIX):
        host.programs.require(name)


def refuse_agent_model(name: str, environ: Mapping[str, str]) -> None:
    """Refuse an agent program as a chat model."""
    if not name:
        raise _no_model_error(environ, [])
    # A program rereads the whole conversation for every reply: too slow and too expensive for a chat.
    if program := find_program(name):
        raise Refused(
            f"{program.title} can be the model for drafts, lessons and self-play, not for a chat.",
            hint=f"Talk to it directly ('{program.command}'), or set another: --model provider:model.",
        )


def _no_model_error(environ: Mapping[str, str], agents: Sequence[AgentProgram]) -> NoModelSet:
    """Return the error for a missing model, with every way to get one."""
    here = known_providers.list_local_models(environ)
    local = "Or run one on this machine: 'ollama serve' is one way."
    if here:
        local = f"One runs on this machine: export HABITUS_MODEL={here[0]}"
    agent = agents[0] if agents else None
    ways = [
        f"Set a key ({', '.join(known_providers.list_deciding_keys())}), or HABITUS_MODEL to provider:model.",
        local,
        *([f"Or use {agent.title}, which is installed: export HABITUS_MODEL={agent.name}"] if agent else []),
        "Without any, see what Habitus does: habitus tour",
    ]
    name, title = (agent.name, agent.title) if agent else ("", "")
    return NoModelSet(hint="\n".join(ways), agent=name, title=title)


def resolve_model_names(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the main and the cheap model; empty if nothing determines them."""
    if settings.model:
        return settings.model, settings.cheap_model
    default = known_providers.find_default_models(environ)
    return default.main, settings.cheap_model or default.cheap


def describe_default_choice(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the reason for a default model, to append to a sentence; empty if the settings name the model."""
    return "" if settings.model else f" (chosen by {known_providers.find_default_models(environ).key})"


def open_named_models(settings: Settings, name: str) -> SessionModels:
    """Open a model by name, ignoring the settings. A guest's home names no program of this machine."""
    require_model_program(make_host_access(settings), name)
    return open_models(settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)
