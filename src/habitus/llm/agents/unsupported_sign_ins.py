"""Sign-ins that a solver's run can't use: they lie in a keyring, need a plugin, or are at a host out of its reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import Refused
from habitus.llm.agents.program import AgentProgramPrompt, dict_or_empty, read_json_file, read_toml_file
from habitus.llm.agents.running import is_variable_passed_into_sandbox
from habitus.llm.agents.solvers import SolverProgram


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInProblem:
    """Why a sign-in does not work in a run, as what is said of the program, and what to do about it."""

    what: str
    hint: str


def refuse_unsupported_sign_in(solver: SolverProgram, question: AgentProgramPrompt) -> None:
    """Raise `Refused` if the user is signed in by a way that can't work in the run, before anything is paid for."""
    find_problem = _CHECKS.get(solver.program.name)
    if find_problem is not None and (problem := find_problem(solver, question)) is not None:
        raise Refused(f"{solver.program.title} {problem.what}.", hint=problem.hint)


def _find_claude_problem(solver: SolverProgram, question: AgentProgramPrompt) -> SignInProblem | None:
    if not question.is_boxed:
        return None
    for cloud in ("BEDROCK", "VERTEX", "FOUNDRY", "MANTLE"):
        if _is_variable_switched_on(question, variable := f"CLAUDE_CODE_USE_{cloud}"):
            return SignInProblem(
                what=f"uses the sign-in of a cloud ({variable}), which does not reach its box",
                hint=f"Unset {variable}, and sign in with /login or set ANTHROPIC_API_KEY.",
            )
    folder = question.get_user_settings_folder("CLAUDE_CONFIG_DIR", ".claude")
    variables = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    if _is_any_variable_set(question, *variables) or read_json_file(folder / ".credentials.json").get("claudeAiOauth"):
        return None
    hint = "Set ANTHROPIC_API_KEY."
    if read_json_file(folder / "settings.json").get("apiKeyHelper"):
        return SignInProblem(what="gets its key from its apiKeyHelper, which does not run in its box", hint=hint)
    configs = (folder / ".claude.json", question.user_home / ".claude.json")
    if any(read_json_file(config).get("primaryApiKey") for config in configs):
        return SignInProblem(what="has its key in .claude.json, which is not copied into its box", hint=hint)
    return None


def _find_codex_problem(solver: SolverProgram, question: AgentProgramPrompt) -> SignInProblem | None:
    folder = question.get_user_settings_folder("CODEX_HOME", ".codex")
    config = read_toml_file(folder / "config.toml")
    provider = str(config.get("model_provider") or "openai")
    own = dict_or_empty(dict_or_empty(config.get("model_providers")).get(provider))
    key = "AWS_BEARER_TOKEN_BEDROCK" if provider == "amazon-bedrock" else str(own.get("env_key") or "")
    if key and question.is_boxed and not is_variable_passed_into_sandbox(solver.program, key):
        return SignInProblem(
            what=f"reads the key of '{provider}' from {key}, which does not reach its box",
            hint="Set a variable that begins with OPENAI_ as its env_key in config.toml.",
        )
    stores = str(config.get("cli_auth_credentials_store") or "")
    needs_file = provider == "openai" or own.get("requires_openai_auth")
    has_key = _is_any_variable_set(question, "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
    if needs_file and not has_key and stores in ("keyring", "auto") and not (folder / "auth.json").exists():
        return SignInProblem(
            what="is signed in by the system's keyring, which does not reach its run",
            hint="Set cli_auth_credentials_store = 'file' in config.toml, and start 'codex login'.",
        )
    return None


_GEMINI_HINT = "Set GEMINI_API_KEY, and choose it with /auth."


def _find_gemini_problem(solver: SolverProgram, question: AgentProgramPrompt) -> SignInProblem | None:
    if not question.is_boxed:
        return None
    folder = question.get_user_settings_folder("GEMINI_CLI_HOME", "") / ".gemini"
    auth = dict_or_empty(dict_or_empty(read_json_file(folder / "settings.json").get("security")).get("auth"))
    kind = str(auth.get("selectedType") or "")
    asked = [
        one for one in ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA") if _is_variable_switched_on(question, one)
    ]
    if kind in ("vertex-ai", "cloud-shell", "compute-default-credentials", "gateway") or (asked and not kind):
        return SignInProblem(what=f"is signed in by {kind or asked[0]}, which its box can't reach", hint=_GEMINI_HINT)
    is_readable = {
        "oauth-personal": (folder / "oauth_creds.json").exists(),
        "gemini-api-key": _has_gemini_key(question, folder / ".env"),
    }
    if (folder / "gemini-credentials.json").exists() and not is_readable.get(kind, True):
        return SignInProblem(what="has its sign-in encrypted, so it is not copied into its box", hint=_GEMINI_HINT)
    return None


def _has_gemini_key(question: AgentProgramPrompt, variables: Path) -> bool:
    with suppress(OSError):
        return "GEMINI_API_KEY" in variables.read_text("utf-8", "replace") or _is_any_variable_set(
            question, "GEMINI_API_KEY"
        )
    return _is_any_variable_set(question, "GEMINI_API_KEY")


def _find_copilot_problem(solver: SolverProgram, question: AgentProgramPrompt) -> SignInProblem | None:
    variables = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")
    config = read_json_file(question.get_user_settings_folder("COPILOT_HOME", ".copilot") / "config.json")
    is_signed_in = any(value for key, value in config.items() if "logged" in key.lower())
    has_token = any(value for key, value in config.items() if "token" in key.lower())
    if _is_any_variable_set(question, *variables) or has_token or not is_signed_in:
        return None
    return SignInProblem(
        what="is signed in by the system's keyring, which does not reach its run", hint="Set COPILOT_GITHUB_TOKEN."
    )


def _find_plugin_sign_in_problem(solver: SolverProgram, question: AgentProgramPrompt) -> SignInProblem | None:
    """Find a sign-in that only a plugin or an extension can use: they are switched off in a run."""
    provider = solver.find_provider(question)
    said = dict_or_empty(read_json_file(solver.find_user_sign_in(question)).get(provider))
    if said.get("type") != "oauth" or provider in solver.oauth_providers:
        return None
    return SignInProblem(
        what=f"is signed in at '{provider}' without a key, which does not work in its run",
        hint="Replace it by a key of the provider, or name another PROVIDER/MODEL.",
    )


def _is_any_variable_set(question: AgentProgramPrompt, *variables: str) -> bool:
    return any(question.environ.get(one) for one in variables)


def _is_variable_switched_on(question: AgentProgramPrompt, variable: str) -> bool:
    return question.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


_CHECKS: Mapping[str, Callable[[SolverProgram, AgentProgramPrompt], SignInProblem | None]] = {
    "claude-code": _find_claude_problem,
    "codex": _find_codex_problem,
    "gemini-cli": _find_gemini_problem,
    "copilot": _find_copilot_problem,
    "opencode": _find_plugin_sign_in_problem,
    "pi": _find_plugin_sign_in_problem,
}
