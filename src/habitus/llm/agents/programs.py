"""The supported programs as data: how each is called once without tools, hooks, servers or memory, and how its output
is parsed.

Settings and leftovers of a request lie in a folder of its own, which is removed afterwards. The user's sign-in is
linked there, so a program that renews it renews the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from habitus.llm.agents.program import (
    AgentProgram,
    AgentProgramCommand,
    AgentProgramPrompt,
    ProgramOutput,
    dict_or_empty,
    format_toml_value,
    link_user_files,
    parse_dollars,
    parse_json_objects,
    parse_token_usage,
    read_json_file,
    read_toml_file,
    write_text_file,
)
from habitus.llm.model import TokenUsage

QUIET_CLAUDE_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "3",
    "DISABLE_AUTOUPDATER": "1",
}


def _build_claude_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    alone = ("--safe-mode", "--tools", "", "--no-session-persistence")
    return AgentProgramCommand(
        arguments=(
            *("-p", "--output-format", "json", *alone),
            *("--system-prompt-file", question.path_of_written_system_prompt, *question.build_model_arguments()),
        ),
        stdin=question.prompt,
        environ=QUIET_CLAUDE_ENVIRONMENT,
    )


def _parse_claude_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    for said in parse_json_objects(written):
        if said.get("type") != "result":
            continue
        text, used = str(said.get("result") or ""), dict_or_empty(said.get("usage"))
        if said.get("is_error"):
            return ProgramOutput(problem=text or str(said.get("subtype")))
        cached = "cache_read_input_tokens"
        read = ("cache_creation_input_tokens", cached, "input_tokens")
        usage = parse_token_usage(used, read=read, wrote=("output_tokens",), cached=cached)
        return ProgramOutput(text=text, usage=replace(usage, cost=parse_dollars(said.get("total_cost_usd"))))
    return ProgramOutput()


_KEPT_CODEX_SETTINGS = (
    *("model", "model_provider", "model_providers", "model_reasoning_effort", "service_tier"),
    *("openai_base_url", "chatgpt_base_url", "forced_login_method", "forced_chatgpt_workspace_id"),
)
_DISABLED_CODEX_FEATURES = (
    *("shell_tool", "unified_exec", "multi_agent", "goals", "memories", "hooks", "apps", "plugins", "tool_suggest"),
    *("view_image", "image_generation", "skill_search", "browser_use", "computer_use"),
)


def _build_codex_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    own = create_codex_home_with_sign_in(
        question,
        {
            "model_instructions_file": question.path_of_written_system_prompt,
            "include_permissions_instructions": False,
            "include_environment_context": False,
            "features": dict.fromkeys(_DISABLED_CODEX_FEATURES, False),
        },
    )
    alone = ("--ephemeral", "--skip-git-repo-check", "--ignore-rules", "--sandbox", "read-only")
    return AgentProgramCommand(
        arguments=("exec", "--json", *alone, *question.build_model_arguments(), "-"),
        stdin=question.prompt,
        environ={"CODEX_HOME": str(own)},
    )


def create_codex_home_with_sign_in(question: AgentProgramPrompt, more: Mapping[str, object]) -> Path:
    """Create a home for this request with only the user's sign-in and model choice."""
    theirs, own = question.get_user_settings_folder("CODEX_HOME", ".codex"), question.workspace / "codex"
    link_user_files(theirs, own, "auth.json", "auth.lock")
    config = {
        key: value for key, value in read_toml_file(theirs / "config.toml").items() if key in _KEPT_CODEX_SETTINGS
    }
    config |= {"web_search": "disabled", "project_doc_max_bytes": 0, "skills": {"bundled": {"enabled": False}}, **more}
    write_text_file(
        own / "config.toml", "\n".join(f"{key} = {format_toml_value(value)}" for key, value in config.items())
    )
    return own


def _parse_codex_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    text, usage, problem = "", None, ""
    for said in parse_json_objects(written):
        match said:
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str(message)}}:
                text = message
            case {"type": "turn.completed", "usage": dict(used)}:
                usage = parse_token_usage(
                    used, read=("input_tokens",), wrote=("output_tokens",), cached="cached_input_tokens"
                )
            case {"type": "turn.failed", "error": {"message": message}} | {"type": "error", "message": message}:
                problem = str(message)
    model = str(read_toml_file(question.workspace / "codex" / "config.toml").get("model", ""))
    return ProgramOutput(text=text, usage=usage, model=model, problem="" if usage is not None else problem)


def _build_gemini_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    environ = create_gemini_home_with_sign_in(question, {"tools": {"core": []}, "skills": {"enabled": False}})
    alone = ("--skip-trust", "--approval-mode", "plan", "-e", "none")
    return AgentProgramCommand(
        arguments=("-p", "", "-o", "json", *alone, *question.build_model_arguments("-m")),
        stdin=question.prompt,
        environ={**environ, "GEMINI_SYSTEM_MD": question.path_of_written_system_prompt},
    )


def create_gemini_home_with_sign_in(question: AgentProgramPrompt, more: Mapping[str, object]) -> dict[str, str]:
    """Make the workspace a home with only the user's sign-in; return its environment variables."""
    theirs, own = question.get_user_settings_folder("GEMINI_CLI_HOME", "") / ".gemini", question.workspace / ".gemini"
    link_user_files(theirs, own, "oauth_creds.json", "google_accounts.json", "installation_id", ".env")
    if not question.is_boxed:
        # It also holds the sign-ins at MCP servers, encrypted with the host's name.
        link_user_files(theirs, own, "gemini-credentials.json")
        link_user_files(question.user_home / ".config", question.workspace / ".config", "gcloud")
    auth = dict_or_empty(dict_or_empty(read_json_file(theirs / "settings.json").get("security")).get("auth"))
    if not auth and question.environ.get("GEMINI_API_KEY"):
        auth = {"selectedType": "gemini-api-key"}
    settings = {
        **({"security": {"auth": auth}} if auth else {}),
        "hooksConfig": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        **more,
    }
    write_text_file(own / "settings.json", json.dumps(settings))
    return {"HOME": str(question.workspace), "GEMINI_CLI_HOME": str(question.workspace)}


def _parse_gemini_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    said = next(iter(parse_json_objects(written)), {})
    if problem := dict_or_empty(said.get("error")):
        return ProgramOutput(problem=f"{problem.get('message')} ({problem.get('code')})")
    models = dict_or_empty(dict_or_empty(said.get("stats")).get("models"))
    used = [dict_or_empty(dict_or_empty(each).get("tokens")) for each in models.values()]
    usages = [
        parse_token_usage(each, read=("prompt",), wrote=("candidates", "thoughts"), cached="cached") for each in used
    ]
    usage = sum(usages, TokenUsage()) if usages else None
    return ProgramOutput(text=str(said.get("response") or ""), usage=usage, model=next(iter(models), ""))


_OPENCODE_AGENT = "answer"


def _build_opencode_call_without_tools(question: AgentProgramPrompt) -> AgentProgramCommand:
    agent = {"mode": "primary", "prompt": question.system, "permission": {"*": "deny"}}
    call = build_opencode_call(question, agent)
    return replace(call, environ={**call.environ, "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1"})


def read_opencode_config(question: AgentProgramPrompt) -> dict[str, Any]:
    """Return the user's settings of opencode."""
    return read_json_file(
        question.get_user_settings_folder("XDG_CONFIG_HOME", ".config") / "opencode" / "opencode.json"
    )


def build_opencode_call(
    question: AgentProgramPrompt, agent: Mapping[str, object], *, provider: str = ""
) -> AgentProgramCommand:
    """Return a run of our own agent with only the user's sign-in and model choice, or only those of one provider."""
    places = {f"XDG_{kind.upper()}_HOME": str(question.workspace / kind) for kind in ("config", "data", "state")}
    link_user_files(
        question.get_user_settings_folder("XDG_DATA_HOME", ".local/share") / "opencode",
        question.workspace / "data/opencode",
        "auth.json",
    )
    kept = ("model", "provider", "enabled_providers", "disabled_providers")
    config = {key: value for key, value in read_opencode_config(question).items() if key in kept}
    if provider:
        own = {key: value for key, value in dict_or_empty(config.get("provider")).items() if key == provider}
        config |= {"provider": own, "enabled_providers": [provider]}
    config |= {
        "snapshot": False,
        "share": "disabled",
        "autoupdate": False,
        "agent": {_OPENCODE_AGENT: agent},
    }
    given = write_text_file(question.workspace / "opencode.json", json.dumps(config))
    return AgentProgramCommand(
        arguments=(
            *("run", "--pure", "--format", "json", "--agent", _OPENCODE_AGENT, "--title", "habitus"),
            *question.build_model_arguments(),
        ),
        stdin=question.prompt,
        environ={
            **places,
            "OPENCODE_CONFIG": str(given),
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
    )


def _parse_opencode_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    texts, usage, problem = list[str](), None, ""
    for said in parse_json_objects(written):
        match said:
            case {"type": "step_start"}:
                # Text before the last step is not the answer.
                texts = []
            case {"type": "text", "part": {"text": str(text)}}:
                texts.append(text)
            case {"type": "step_finish", "part": {"tokens": dict(used)} as part}:
                used |= dict_or_empty(used.get("cache"))
                step = parse_token_usage(
                    used, read=("input", "read", "write"), wrote=("output", "reasoning"), cached="read"
                )
                # 0 means that it does not know the price.
                cost = parse_dollars(part.get("cost")) or None
                usage = (usage or TokenUsage()) + replace(step, cost=cost)
            case {"type": "error", "error": dict(error)}:
                problem = str(dict_or_empty(error.get("data")).get("message") or error.get("name"))
    return ProgramOutput(text="".join(texts), usage=usage, problem=problem)


def build_copilot_call(question: AgentProgramPrompt, *tools: str) -> AgentProgramCommand:
    """Return a run in a home with only the user's sign-in, without tools unless they are given."""
    tools = tools or ("--available-tools", "none")
    own = question.workspace / "copilot"
    theirs = read_json_file(question.get_user_settings_folder("COPILOT_HOME", ".copilot") / "config.json")
    kept = {key: value for key, value in theirs.items() if "logged" in key.lower() or "token" in key.lower()}
    write_text_file(own / "config.json", json.dumps(kept))
    alone = ("--disable-builtin-mcps", "--no-custom-instructions", "--no-ask-user")
    return AgentProgramCommand(
        arguments=(
            *("-p", question.prompt_with_system_prompt, "--output-format", "json", *tools, *alone),
            *("--usage-output-file", str(question.workspace / "usage.json"), *question.build_model_arguments()),
        ),
        environ={"COPILOT_HOME": str(own), "COPILOT_AUTO_UPDATE": "false"},
    )


def _parse_copilot_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    texts, problem = [], ""
    for said in parse_json_objects(written):
        match said:
            case {"type": "assistant.message", "data": {"content": str(text)}} if text:
                # The last message is the answer.
                texts = [text]
            case {"type": "session.error", "data": {"message": message}}:
                problem = str(message)
    metrics = dict_or_empty(read_json_file(question.workspace / "usage.json").get("modelMetrics"))
    used = [dict_or_empty(dict_or_empty(each).get("usage")) for each in metrics.values()]
    usages = [
        parse_token_usage(each, read=("inputTokens",), wrote=("outputTokens",), cached="cacheReadTokens")
        for each in used
    ]
    usage, model = sum(usages, TokenUsage()) if usages else None, next(iter(metrics), "")
    return ProgramOutput(text="".join(texts), usage=usage, model=model, problem="" if texts else problem)


def _build_pi_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    without = ("tools", "skills", "context-files", "extensions", "prompt-templates", "themes", "session")
    return AgentProgramCommand(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *(
                "--system-prompt",
                question.path_of_written_system_prompt,
                "--append-system-prompt",
                "",
                *question.build_model_arguments(),
            ),
        ),
        stdin=question.prompt,
        environ={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    )


def _parse_pi_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    """Parse Pi's output: the last message is the answer, and the usage of all messages counts."""
    output, spent = ProgramOutput(), TokenUsage()
    for said in parse_json_objects(written):
        message = dict_or_empty(said.get("message"))
        if said.get("type") != "message_end" or message.get("role") != "assistant":
            continue
        used = dict_or_empty(message.get("usage"))
        usage = parse_token_usage(
            used, read=("input", "cacheRead", "cacheWrite"), wrote=("output",), cached="cacheRead"
        )
        spent += replace(usage, cost=parse_dollars(dict_or_empty(used.get("cost")).get("total")))
        parts = [str(dict_or_empty(part).get("text") or "") for part in message.get("content") or ()]
        problem = str(message.get("errorMessage") or "") if message.get("stopReason") == "error" else ""
        output = ProgramOutput(text="".join(parts), usage=spent, problem=problem)
    return output


def _build_cursor_call(question: AgentProgramPrompt) -> AgentProgramCommand:
    own = question.workspace / "cursor"
    denied = {"permissions": {"allow": [], "deny": ["Read(**)", "Write(**)", "Shell(*)", "Mcp(*:*)"]}, "version": 1}
    write_text_file(own / "cli-config.json", json.dumps(denied))
    return AgentProgramCommand(
        arguments=("-p", "--output-format", "json", "--trust", "--mode", "ask", *question.build_model_arguments()),
        stdin=question.prompt_with_system_prompt,
        environ={"CURSOR_CONFIG_DIR": str(own), "CURSOR_DATA_DIR": str(question.workspace / "data")},
    )


def _parse_cursor_output(written: str, question: AgentProgramPrompt) -> ProgramOutput:
    for said in parse_json_objects(written):
        if said.get("type") == "result":
            text = str(said.get("result") or "")
            return (
                ProgramOutput(problem=text or "no reason given") if said.get("is_error") else ProgramOutput(text=text)
            )
    return ProgramOutput()


CLOUD_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "VERTEX_", "CLOUD_ML_")

PROGRAMS: Mapping[str, AgentProgram] = {
    program.name: program
    for program in (
        AgentProgram(
            name="claude-code",
            title="Claude Code",
            command="claude",
            install="npm install -g @anthropic-ai/claude-code",
            sign_in="start 'claude' and type /login",
            variables=(
                *("ANTHROPIC_", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_", "CLAUDE_CODE_USE_", "CLAUDE_CODE_SKIP_"),
                *CLOUD_VARIABLES,
            ),
            build_call=_build_claude_call,
            parse_output=_parse_claude_output,
            price_provider="anthropic",
            reports_cost=True,
        ),
        AgentProgram(
            name="codex",
            title="Codex",
            command="codex",
            install="npm install -g @openai/codex",
            sign_in="codex login (a sign-in in the system's keyring is not found: cli_auth_credentials_store = 'file')",
            variables=("OPENAI_", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE", "AZURE_"),
            build_call=_build_codex_call,
            parse_output=_parse_codex_output,
            price_provider="openai",
        ),
        AgentProgram(
            name="gemini-cli",
            title="Gemini CLI",
            command="gemini",
            install="npm install -g @google/gemini-cli",
            sign_in="start 'gemini' and type /auth, or set GEMINI_API_KEY",
            variables=("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_"),
            build_call=_build_gemini_call,
            parse_output=_parse_gemini_output,
            price_provider="google",
        ),
        AgentProgram(
            name="opencode",
            title="opencode",
            command="opencode",
            install="npm install -g opencode-ai",
            sign_in="opencode auth login",
            variables=(
                *("ANTHROPIC_", "OPENAI_", "GEMINI_API_KEY", "OPENROUTER_", "OPENCODE_API_KEY", "GROQ_", "MISTRAL_"),
                *("XAI_", "DEEPSEEK_", "CEREBRAS_", *CLOUD_VARIABLES),
            ),
            build_call=_build_opencode_call_without_tools,
            parse_output=_parse_opencode_output,
        ),
        AgentProgram(
            name="copilot",
            title="Copilot CLI",
            command="copilot",
            install="npm install -g @github/copilot",
            sign_in="start 'copilot' and type /login",
            variables=(
                *("COPILOT_GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_PROVIDER_", "COPILOT_OFFLINE"),
                *("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "COPILOT_GH_HOST"),
            ),
            build_call=build_copilot_call,
            parse_output=_parse_copilot_output,
        ),
        AgentProgram(
            name="pi",
            title="Pi",
            command="pi",
            install="npm install -g @earendil-works/pi-coding-agent",
            sign_in="start 'pi' and type /login, or set the key of a provider",
            variables=(
                *("ANTHROPIC_", "OPENAI_", "GEMINI_API_KEY", "OPENROUTER_", "PI_CODING_AGENT_DIR", "GROQ_", "MISTRAL_"),
                *("XAI_", "DEEPSEEK_", "CEREBRAS_", *CLOUD_VARIABLES),
            ),
            build_call=_build_pi_call,
            parse_output=_parse_pi_output,
            reports_cost=True,
        ),
        AgentProgram(
            name="cursor-agent",
            title="Cursor",
            command="cursor-agent",
            install="see cursor.com/cli",
            sign_in="cursor-agent login",
            variables=("CURSOR_API_KEY",),
            build_call=_build_cursor_call,
            parse_output=_parse_cursor_output,
            is_experimental=True,
        ),
    )
}
