"""The models of a session: those in the settings, or those of a provider whose key is set or kept in the vault."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from habitus.app.host_access import HostPermissions, make_host_permissions
from habitus.errors import Invalid, NoModelSet, Refused, UserError
from habitus.hosts.known_agents import CONNECTABLE_AGENTS
from habitus.llm.agents import find_agent_program, list_installed_programs, open_agent_model
from habitus.llm.agents.program import AgentProgram
from habitus.llm.model import CompletionRequest, CompletionResult, Model, PersonMessage, SessionModels, TextContent
from habitus.llm.providers import known_providers, open_provider_model
from habitus.llm.scripted import SCRIPT_PREFIX, open_script_model
from habitus.sandbox.credentials.vault import Vault, open_vault
from habitus.settings import Settings
from habitus.text import clean_to_one_line


def open_main_and_cheap_models(settings: Settings, environ: Mapping[str, str]) -> SessionModels:
    """Return the main and cheap model, opened on first use. Using one without a name raises `NoModelSet`."""
    main, cheap = resolve_main_and_cheap_model_names(settings, environ)
    with_keys = build_environment_with_vault_keys(settings, environ)

    def open_named(name: str) -> Model:
        if not name:
            raise _build_no_model_error(environ, list_installed_programs(environ))
        if name.startswith(SCRIPT_PREFIX):
            return open_script_model(name)
        if find_agent_program(name) is not None:
            return open_agent_model(name, environ, settings.model_silence)
        patience = known_providers.RetryAndTimeoutPolicy(silence=settings.model_silence, total=settings.model_total)
        return open_provider_model(name, with_keys, base_url=settings.base_url, patience=patience)

    return SessionModels(main, cheap, open_model=open_named)


def require_model_program_access(host: HostPermissions, name: str) -> None:
    """Raise `Refused` if a model is a program or a script of this machine, and the caller may not name one."""
    if find_agent_program(name) is not None or name.startswith(SCRIPT_PREFIX):
        host.programs.require_access(name)


def refuse_agent_as_chat_model(name: str, environ: Mapping[str, str]) -> None:
    """Refuse an agent program as a chat model."""
    if not name:
        raise _build_no_model_error(environ, [])
    # A program rereads the whole conversation for every reply: too slow and too expensive for a chat.
    if program := find_agent_program(name):
        connect = f": habitus connect {program.name}" if program.name in CONNECTABLE_AGENTS else ""
        raise Refused(
            f"{program.title} can be the model for learning, drafting and improving, not for a chat.",
            hint=f"To chat, use {program.title} itself with our server{connect}, or set another: "
            "--model provider:model.",
        )


def _build_no_model_error(environ: Mapping[str, str], agents: Sequence[AgentProgram]) -> NoModelSet:
    """Return the error for a missing model, with every way to get one."""
    here = known_providers.list_one_model_per_local_server(environ)
    local = "Or run one on this machine: 'ollama serve' is one way."
    if here:
        local = f"One runs on this machine: export HABITUS_MODEL={here[0]}"
    agent = agents[0] if agents else None
    keys = ", ".join(known_providers.list_provider_key_variables())
    ways = [
        f"Set a key ({keys}), or HABITUS_MODEL to provider:model.",
        local,
        *([f"Or use {agent.title}, which is installed: export HABITUS_MODEL={agent.name}"] if agent else []),
        "Without any, see what Habitus does: habitus tour",
    ]
    name, title = (agent.name, agent.title) if agent else ("", "")
    return NoModelSet(hint="\n".join(ways), agent=name, title=title)


def resolve_main_and_cheap_model_names(settings: Settings, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the main and the cheap model; empty if nothing determines them."""
    if settings.model:
        return settings.model, settings.cheap_model
    default = known_providers.find_default_models(build_environment_with_vault_keys(settings, environ))
    return default.main, settings.cheap_model or default.cheap


def explain_default_model(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the reason for a default model, to append to a sentence; empty if the settings name the model."""
    if settings.model:
        return ""
    return (
        f" (chosen by {known_providers.find_default_models(build_environment_with_vault_keys(settings, environ)).key})"
    )


def build_environment_with_vault_keys(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the providers' keys that the owner keeps in the vault; a key that is set wins."""
    vault = open_vault(settings.home, environ)
    kept = [
        name for name in vault.list_secret_names() if name in known_providers.KEY_VARIABLES and not environ.get(name)
    ]
    found = dict(environ)
    for name in kept:
        # A vault that asks for a password, or whose key is elsewhere, is as good as none here.
        with suppress(UserError):
            if not vault.is_typed_password_needed():
                found[name] = vault.get(name)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class UsableModel:
    """A model that can be used here, and where it comes from; a program answers no chat."""

    name: str
    origin: str
    is_program: bool = False


def list_usable_models(settings: Settings, environ: Mapping[str, str]) -> list[UsableModel]:
    """Return the models that need nothing more: of providers whose key is known, of local servers, and programs."""
    with_keys = build_environment_with_vault_keys(settings, environ)
    options = []
    for variable, name in known_providers.list_default_models_with_key(with_keys):
        where = "is set" if environ.get(variable) else "is kept in the vault"
        options.append(UsableModel(name=name, origin=f"{variable} {where}"))
    options += [
        UsableModel(name=name, origin="a server on this machine")
        for name in known_providers.list_one_model_per_local_server(environ)
    ]
    options += [
        UsableModel(name=program.name, origin=f"{program.title}, installed here", is_program=True)
        for program in list_installed_programs(environ)
    ]
    if settings.model and settings.model not in [option.name for option in options]:
        options.insert(0, UsableModel(name=settings.model, origin="named in the settings"))
    return options


def store_provider_key_and_get_default_model(vault: Vault, provider: str, key: str) -> str:
    """Keep a provider's key in the vault, and return the name of its default model."""
    spec = known_providers.PROVIDERS.get(provider)
    if spec is None or not spec.main:
        raise Invalid(f"No provider '{provider[:80]}' is known here.", hint="Choose one of the list.")
    vault.set(spec.keys[0], key.strip())
    return f"{provider}:{spec.main}"


_TEST_REQUEST = "Answer with one word: ready."


def ask_model_for_test_answer(settings: Settings, name: str) -> str:
    """Return a model's answer to a short request, which costs a few tokens; raises if it can't answer."""
    model = open_session_models_for_name(settings, name).main
    request = CompletionRequest(system="", messages=(PersonMessage(parts=(TextContent(text=_TEST_REQUEST),)),))

    async def ask() -> str:
        answers = [piece.message.text async for piece in model.stream(request) if isinstance(piece, CompletionResult)]
        return clean_to_one_line(answers[-1]) if answers else ""

    return asyncio.run(ask())


def open_session_models_for_name(settings: Settings, name: str) -> SessionModels:
    """Open a model by name, ignoring the settings. A guest's home names no program of this machine."""
    require_model_program_access(make_host_permissions(settings), name)
    return open_main_and_cheap_models(settings.model_copy(update={"model": name, "cheap_model": ""}), os.environ)
