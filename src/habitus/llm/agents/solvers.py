"""Agent programs that solve a task in a temporary home with one skill."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from habitus.errors import Invalid, Refused, did_you_mean
from habitus.llm.agents.program import (
    AgentProgram,
    AgentProgramCommand,
    AgentProgramPrompt,
    dict_or_empty,
    link_user_files,
    read_json_file,
    write_text_file,
)
from habitus.llm.agents.programs import (
    PROGRAMS,
    QUIET_CLAUDE_ENVIRONMENT,
    build_copilot_call,
    build_opencode_call,
    create_codex_home_with_sign_in,
    create_gemini_home_with_sign_in,
    read_opencode_config,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverProgram:
    """An agent program that solves tasks. It has the same tools for every task: a task file grants none."""

    program: AgentProgram
    build_call: Callable[[AgentProgramPrompt], AgentProgramCommand]
    # The folder in its home with the skills it reads.
    skills: str
    # A pattern for the transcripts it writes there.
    transcripts: str
    # Returns the hosts of the provider that it uses, for its requests and to renew its sign-in.
    find_hosts: Callable[[AgentProgramPrompt], tuple[str, ...]]
    # The file in its home with the sign-in, and the entry that is used of a file with others.
    sign_in: str = ""
    sign_in_entry: str = ""
    # Returns the provider of a program that has several: its entry of the sign-in is the only one that is needed.
    find_provider: Callable[[AgentProgramPrompt], str] = lambda question: ""
    # Returns the user's own file with the sign-ins at those providers, and where it can sign in without a key.
    find_user_sign_in: Callable[[AgentProgramPrompt], Path] = lambda question: Path()
    oauth_providers: tuple[str, ...] = ()
    # Returns whether a renewal replaces no secret: it can be done in a copy.
    reuses_refresh_token: Callable[[AgentProgramPrompt], bool] = lambda question: False

    def list_provider_addresses_from_environment(self, question: AgentProgramPrompt) -> list[str]:
        """Return the addresses of its provider that the environment names."""
        provider = self.find_provider(question)
        used = _PROVIDERS[provider].variables if provider in _PROVIDERS else () if provider else self.program.variables
        return [value for key, value in question.environ.items() if key.endswith("_BASE_URL") and key.startswith(used)]

    def remove_keys_of_other_providers(self, question: AgentProgramPrompt) -> AgentProgramPrompt:
        """Return the request without the variables of known providers that it does not use."""
        provider = self.find_provider(question)
        if provider not in _PROVIDERS:
            return question
        own = _PROVIDERS[provider].variables
        others = tuple(one for other in _PROVIDERS.values() for one in other.variables if one not in own)
        kept = {key: value for key, value in question.environ.items() if not key.startswith(others)}
        return replace(question, environ=kept)


def find_solver_program(name: str) -> SolverProgram:
    """Return the solver of a name such as `claude-code` or `claude-code:MODEL`; raise Invalid for an unknown one."""
    if (found := SOLVERS.get(name.partition(":")[0])) is not None:
        return found
    near = did_you_mean(name, SOLVERS)
    raise Invalid(f"'{name}' solves no tasks.", hint=near or f"These do: {', '.join(SOLVERS)}; or leave it to ours.")


def _build_claude_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    own = question.workspace / ".claude"
    link_user_files(question.get_user_settings_folder("CLAUDE_CONFIG_DIR", ".claude"), own, ".credentials.json")
    return AgentProgramCommand(
        arguments=(
            *("-p", "--output-format", "json", "--strict-mcp-config", "--setting-sources", "user"),
            *("--tools", "Skill,Read,Glob,Grep,Write,Edit,Bash", "--allowedTools", "Skill,Bash"),
            *("--permission-mode", "acceptEdits"),
            *question.build_model_arguments(),
        ),
        stdin=question.prompt,
        environ={**QUIET_CLAUDE_ENVIRONMENT, "HOME": str(question.workspace), "CLAUDE_CONFIG_DIR": str(own)},
    )


_DISABLED_SOLVER_FEATURES = (
    "hooks",
    "apps",
    "plugins",
    "memories",
    "multi_agent",
    "tool_suggest",
    "browser_use",
    "computer_use",
)


def _build_codex_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    own = create_codex_home_with_sign_in(question, {"features": dict.fromkeys(_DISABLED_SOLVER_FEATURES, False)})
    sandbox = "danger-full-access" if question.is_boxed else "workspace-write"
    held = ("--skip-git-repo-check", "--ignore-rules", "--sandbox", sandbox)
    return AgentProgramCommand(
        arguments=("exec", "--json", *held, *question.build_model_arguments(), "-"),
        stdin=question.prompt,
        environ={"HOME": str(question.workspace), "CODEX_HOME": str(own)},
    )


def _build_gemini_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    environ = create_gemini_home_with_sign_in(question, {})
    alone = ("--skip-trust", "--approval-mode", "yolo", "-e", "none")
    return AgentProgramCommand(
        arguments=("-p", "", "-o", "json", *alone, *question.build_model_arguments("-m")),
        stdin=question.prompt,
        environ=environ,
    )


def _build_opencode_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    agent = {"mode": "primary", "permission": {"*": "allow", "webfetch": "deny"}}
    call = build_opencode_call(question, agent, provider=_find_opencode_provider(question))
    # It has a list of models, and would fetch a newer one from another host.
    alone = {"HOME": str(question.workspace), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return replace(call, environ={**call.environ, **alone})


def _get_opencode_sign_in_file(question: AgentProgramPrompt) -> Path:
    return question.get_user_settings_folder("XDG_DATA_HOME", ".local/share") / "opencode" / "auth.json"


def _find_opencode_provider(question: AgentProgramPrompt) -> str:
    config = read_opencode_config(question)
    named = question.model or str(config.get("model") or "")
    own = dict_or_empty(config.get("provider"))
    return _choose_named_or_only_provider(
        "opencode", question, named.partition("/")[0], _get_opencode_sign_in_file(question), own
    )


def _build_copilot_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    call = build_copilot_call(question, "--allow-all-tools")
    return replace(call, environ={**call.environ, "HOME": str(question.workspace)})


def _get_pi_folder(question: AgentProgramPrompt) -> Path:
    return question.get_user_settings_folder("PI_CODING_AGENT_DIR", ".pi/agent")


def _get_pi_sign_in_file(question: AgentProgramPrompt) -> Path:
    return _get_pi_folder(question) / "auth.json"


def _find_pi_provider(question: AgentProgramPrompt) -> str:
    folder = _get_pi_folder(question)
    own = dict_or_empty(read_json_file(folder / "models.json").get("providers"))
    named, _, model = question.model.partition("/")
    if not model or named not in {*_PROVIDERS, *own}:
        # A name such as `meta/llama` is that of a model, which the provider knows.
        named = str(read_json_file(folder / "settings.json").get("defaultProvider") or "")
    return _choose_named_or_only_provider("pi", question, named, _get_pi_sign_in_file(question), own)


def _build_pi_solver_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    own, folder, provider = question.workspace / "pi", _get_pi_folder(question), _find_pi_provider(question)
    link_user_files(folder, own, "auth.json")
    models = dict_or_empty(read_json_file(folder / "models.json").get("providers"))
    write_text_file(own / "models.json", json.dumps({"providers": {k: v for k, v in models.items() if k == provider}}))
    kept = ("defaultModel", "defaultThinkingLevel")
    theirs = read_json_file(folder / "settings.json")
    settings = {"defaultProvider": provider} | {key: theirs[key] for key in kept if key in theirs}
    write_text_file(own / "settings.json", json.dumps(settings))
    without = ("context-files", "extensions", "prompt-templates", "themes")
    return AgentProgramCommand(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *(
                "--tools",
                "read,grep,find,ls,write,edit,bash",
                "--provider",
                provider,
                *question.build_model_arguments(),
            ),
        ),
        stdin=question.prompt,
        environ={
            "HOME": str(question.workspace),
            "PI_CODING_AGENT_DIR": str(own),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        },
    )


_COPILOT_HOSTS = tuple(f"api{kind}.githubcopilot.com" for kind in ("", ".individual", ".business", ".enterprise"))


@dataclass(frozen=True, kw_only=True, slots=True)
class _ProviderHosts:
    """The hosts of a provider: for requests, and those that only a sign-in needs."""

    hosts: tuple[str, ...]
    sign_in_hosts: tuple[str, ...] = ()
    # The variables of the environment that hold its key or its address begin with one of these.
    variables: tuple[str, ...] = ()


_PROVIDERS: Mapping[str, _ProviderHosts] = {
    "anthropic": _ProviderHosts(hosts=("api.anthropic.com",), variables=("ANTHROPIC_",)),
    "openai": _ProviderHosts(hosts=("api.openai.com",), sign_in_hosts=("chatgpt.com",), variables=("OPENAI_",)),
    "openai-codex": _ProviderHosts(hosts=("chatgpt.com",)),
    "github-copilot": _ProviderHosts(hosts=("api.github.com", *_COPILOT_HOSTS)),
    "google": _ProviderHosts(hosts=("generativelanguage.googleapis.com",), variables=("GEMINI_", "GOOGLE_GEMINI_")),
    "openrouter": _ProviderHosts(hosts=("openrouter.ai",), variables=("OPENROUTER_",)),
    "groq": _ProviderHosts(hosts=("api.groq.com",), variables=("GROQ_",)),
    "mistral": _ProviderHosts(hosts=("api.mistral.ai",), variables=("MISTRAL_",)),
    "xai": _ProviderHosts(hosts=("api.x.ai",), variables=("XAI_",)),
    "deepseek": _ProviderHosts(hosts=("api.deepseek.com",), variables=("DEEPSEEK_",)),
    "cerebras": _ProviderHosts(hosts=("api.cerebras.ai",), variables=("CEREBRAS_",)),
    "opencode": _ProviderHosts(hosts=("opencode.ai",), variables=("OPENCODE_API_",)),
}


# Their sign-ins are renewed with the same refresh token again.
_REUSING_PROVIDERS = ("github-copilot", "google")


def _choose_named_or_only_provider(
    program: str, question: AgentProgramPrompt, named: str, sign_in: Path, own: Mapping[str, object]
) -> str:
    """Return the provider that is named, or the only one that the person has; raise `Refused` if it is not clear."""
    if named:
        return named
    variables = [key for key, value in question.environ.items() if value]
    keys = {name for name, one in _PROVIDERS.items() if any(key.startswith(one.variables) for key in variables)}
    found = sorted(read_json_file(sign_in)) or sorted(own) or sorted(keys)
    if len(found) == 1:
        return found[0]
    title = PROGRAMS[program].title
    have = f"{title} has {' and '.join(found)}" if found else f"{title} is signed in nowhere"
    raise Refused(f"{have}, and it is not said which to use.", hint=f"Name it: --solver {program}:PROVIDER/MODEL.")


def _make_provider_hosts_finder(
    find_provider: Callable[[AgentProgramPrompt], str], get_sign_in: Callable[[AgentProgramPrompt], Path]
) -> Callable[[AgentProgramPrompt], tuple[str, ...]]:
    """Return a function that finds the hosts of the one provider that a request uses, and its configured address."""

    def find_hosts(question: AgentProgramPrompt) -> tuple[str, ...]:
        provider = find_provider(question)
        known = _PROVIDERS.get(provider, _ProviderHosts(hosts=()))
        sign_in = dict_or_empty(read_json_file(get_sign_in(question)).get(provider))
        if provider == "github-copilot" and (host := _get_host(sign_in.get("enterpriseUrl"))):
            return _list_copilot_enterprise_hosts(host)
        return (*known.hosts, *(known.sign_in_hosts if sign_in.get("type") == "oauth" else ()))

    return find_hosts


def _find_copilot_hosts(question: AgentProgramPrompt) -> tuple[str, ...]:
    environ = question.environ
    if environ.get("COPILOT_PROVIDER_BASE_URL"):
        return ()
    if host := environ.get("COPILOT_GH_HOST") or environ.get("GH_HOST") or _find_copilot_enterprise_host(question):
        return _list_copilot_enterprise_hosts(host)
    return _PROVIDERS["github-copilot"].hosts


def _find_copilot_enterprise_host(question: AgentProgramPrompt) -> str:
    """Return the GitHub Enterprise host that the user last signed in at; empty for GitHub itself."""
    config = read_json_file(question.get_user_settings_folder("COPILOT_HOME", ".copilot") / "config.json")
    last = dict_or_empty(config.get("last_logged_in_user") or config.get("lastLoggedInUser"))
    host = _get_host(last.get("host"))
    return "" if host == "github.com" else host


def _list_copilot_enterprise_hosts(host: str) -> tuple[str, ...]:
    return (f"api.{host}", f"copilot-api.{host}")


def _get_host(address: object) -> str:
    """Return the host of an address with or without its scheme; empty if it has none."""
    text = address if isinstance(address, str) else ""
    return urlsplit(text if "//" in text else f"//{text}").netloc


def _make_fixed_hosts_finder(*hosts: str) -> Callable[[AgentProgramPrompt], tuple[str, ...]]:
    return lambda question: hosts


SOLVERS: Mapping[str, SolverProgram] = {
    one.program.name: one
    for one in (
        SolverProgram(
            program=PROGRAMS["claude-code"],
            build_call=_build_claude_solver_call,
            skills=".claude/skills",
            transcripts=".claude/projects/*/*.jsonl",
            find_hosts=_make_fixed_hosts_finder("api.anthropic.com"),
            sign_in=".claude/.credentials.json",
            # Beside it lie the sign-ins at the user's MCP servers.
            sign_in_entry="claudeAiOauth",
        ),
        SolverProgram(
            program=PROGRAMS["codex"],
            build_call=_build_codex_solver_call,
            skills=".agents/skills",
            transcripts="codex/sessions/**/rollout-*.jsonl",
            find_hosts=_make_fixed_hosts_finder("api.openai.com", "chatgpt.com"),
            sign_in="codex/auth.json",
        ),
        SolverProgram(
            program=PROGRAMS["gemini-cli"],
            build_call=_build_gemini_solver_call,
            skills=".gemini/skills",
            transcripts=".gemini/tmp/*/chats/session-*.json*",
            find_hosts=_make_fixed_hosts_finder(
                "generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"
            ),
            sign_in=".gemini/oauth_creds.json",
            reuses_refresh_token=lambda question: True,
        ),
        SolverProgram(
            program=PROGRAMS["opencode"],
            build_call=_build_opencode_solver_call,
            skills="config/opencode/skills",
            transcripts="data/opencode/opencode*.db",
            find_hosts=_make_provider_hosts_finder(_find_opencode_provider, _get_opencode_sign_in_file),
            sign_in="data/opencode/auth.json",
            find_provider=_find_opencode_provider,
            find_user_sign_in=_get_opencode_sign_in_file,
            oauth_providers=("openai", "github-copilot", "xai"),
            reuses_refresh_token=lambda question: _find_opencode_provider(question).startswith(_REUSING_PROVIDERS),
        ),
        SolverProgram(
            program=PROGRAMS["copilot"],
            build_call=_build_copilot_solver_call,
            skills="copilot/skills",
            transcripts="copilot/session-state/*/events.jsonl",
            find_hosts=_find_copilot_hosts,
        ),
        SolverProgram(
            program=PROGRAMS["pi"],
            build_call=_build_pi_solver_call,
            skills="pi/skills",
            transcripts="pi/sessions/*/*.jsonl",
            find_hosts=_make_provider_hosts_finder(_find_pi_provider, _get_pi_sign_in_file),
            sign_in="pi/auth.json",
            find_provider=_find_pi_provider,
            find_user_sign_in=_get_pi_sign_in_file,
            oauth_providers=("anthropic", "github-copilot", "openai-codex"),
            reuses_refresh_token=lambda question: _find_pi_provider(question).startswith(_REUSING_PROVIDERS),
        ),
    )
}
