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

from habitus.llm.agents.program import (
    Call,
    Output,
    Program,
    Question,
    as_dollars,
    as_table,
    link,
    read_json,
    read_objects,
    read_toml,
    toml_value,
    usage_of,
    write_text,
)
from habitus.llm.model import Usage

CLAUDE_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "3",
    "DISABLE_AUTOUPDATER": "1",
}


def _ask_claude(question: Question) -> Call:
    alone = ("--safe-mode", "--tools", "", "--no-session-persistence")
    return Call(
        arguments=(
            *("-p", "--output-format", "json", *alone),
            *("--system-prompt-file", question.system_file, *question.options()),
        ),
        stdin=question.prompt,
        environ=CLAUDE_QUIET,
    )


def _read_claude(written: str, question: Question) -> Output:
    for said in read_objects(written):
        if said.get("type") != "result":
            continue
        text, used = str(said.get("result") or ""), as_table(said.get("usage"))
        if said.get("is_error"):
            return Output(problem=text or str(said.get("subtype")))
        cached = "cache_read_input_tokens"
        read = ("cache_creation_input_tokens", cached, "input_tokens")
        usage = usage_of(used, read=read, wrote=("output_tokens",), cached=cached)
        return Output(text=text, usage=replace(usage, cost=as_dollars(said.get("total_cost_usd"))))
    return Output()


_CODEX_KEPT = (
    *("model", "model_provider", "model_providers", "model_reasoning_effort", "service_tier"),
    *("openai_base_url", "chatgpt_base_url", "forced_login_method", "forced_chatgpt_workspace_id"),
)
_CODEX_OFF = (
    *("shell_tool", "unified_exec", "multi_agent", "goals", "memories", "hooks", "apps", "plugins", "tool_suggest"),
    *("view_image", "image_generation", "skill_search", "browser_use", "computer_use"),
)


def _ask_codex(question: Question) -> Call:
    own = codex_home(
        question,
        {
            "model_instructions_file": question.system_file,
            "include_permissions_instructions": False,
            "include_environment_context": False,
            "features": dict.fromkeys(_CODEX_OFF, False),
        },
    )
    alone = ("--ephemeral", "--skip-git-repo-check", "--ignore-rules", "--sandbox", "read-only")
    return Call(
        arguments=("exec", "--json", *alone, *question.options(), "-"),
        stdin=question.prompt,
        environ={"CODEX_HOME": str(own)},
    )


def codex_home(question: Question, more: Mapping[str, object]) -> Path:
    """Create a home for this request with only the user's sign-in and model choice."""
    theirs, own = question.folder("CODEX_HOME", ".codex"), question.room / "codex"
    link(theirs, own, "auth.json", "auth.lock")
    config = {key: value for key, value in read_toml(theirs / "config.toml").items() if key in _CODEX_KEPT}
    config |= {
        "web_search": "disabled",
        "project_doc_max_bytes": 0,
        "skills": {"bundled": {"enabled": False}},
        **more,
    }
    write_text(own / "config.toml", "\n".join(f"{key} = {toml_value(value)}" for key, value in config.items()))
    return own


def _read_codex(written: str, question: Question) -> Output:
    text, usage, problem = "", None, ""
    for said in read_objects(written):
        match said:
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str(message)}}:
                text = message
            case {"type": "turn.completed", "usage": dict(used)}:
                usage = usage_of(used, read=("input_tokens",), wrote=("output_tokens",), cached="cached_input_tokens")
            case {"type": "turn.failed", "error": {"message": message}} | {"type": "error", "message": message}:
                problem = str(message)
    model = str(read_toml(question.room / "codex" / "config.toml").get("model", ""))
    return Output(text=text, usage=usage, model=model, problem="" if usage is not None else problem)


def _ask_gemini(question: Question) -> Call:
    environ = gemini_home(question, {"tools": {"core": []}, "skills": {"enabled": False}})
    alone = ("--skip-trust", "--approval-mode", "plan", "-e", "none")
    return Call(
        arguments=("-p", "", "-o", "json", *alone, *question.options("-m")),
        stdin=question.prompt,
        environ={**environ, "GEMINI_SYSTEM_MD": question.system_file},
    )


def gemini_home(question: Question, more: Mapping[str, object]) -> dict[str, str]:
    """Make the workspace a home with only the user's sign-in; return its environment variables."""
    theirs, own = question.folder("GEMINI_CLI_HOME", "") / ".gemini", question.room / ".gemini"
    link(theirs, own, "oauth_creds.json", "google_accounts.json", "gemini-credentials.json", "installation_id", ".env")
    link(question.person / ".config", question.room / ".config", "gcloud")
    auth = as_table(as_table(read_json(theirs / "settings.json").get("security")).get("auth"))
    if not auth and question.environ.get("GEMINI_API_KEY"):
        auth = {"selectedType": "gemini-api-key"}
    settings = {
        **({"security": {"auth": auth}} if auth else {}),
        "hooksConfig": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        **more,
    }
    write_text(own / "settings.json", json.dumps(settings))
    return {"HOME": str(question.room), "GEMINI_CLI_HOME": str(question.room)}


def _read_gemini(written: str, question: Question) -> Output:
    said = next(iter(read_objects(written)), {})
    if problem := as_table(said.get("error")):
        return Output(problem=f"{problem.get('message')} ({problem.get('code')})")
    models = as_table(as_table(said.get("stats")).get("models"))
    used = [as_table(as_table(each).get("tokens")) for each in models.values()]
    usages = [usage_of(each, read=("prompt",), wrote=("candidates", "thoughts"), cached="cached") for each in used]
    usage = sum(usages, Usage()) if usages else None
    return Output(text=str(said.get("response") or ""), usage=usage, model=next(iter(models), ""))


_OPENCODE_AGENT = "answer"


def _ask_opencode(question: Question) -> Call:
    agent = {"mode": "primary", "prompt": question.system, "permission": {"*": "deny"}}
    call = opencode_call(question, agent)
    return replace(call, environ={**call.environ, "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1"})


def opencode_call(question: Question, agent: Mapping[str, object]) -> Call:
    """Return a run of our own agent with only the user's sign-in and model choice."""
    places = {f"XDG_{kind.upper()}_HOME": str(question.room / kind) for kind in ("config", "data", "state")}
    link(question.folder("XDG_DATA_HOME", ".local/share") / "opencode", question.room / "data/opencode", "auth.json")
    theirs = read_json(question.folder("XDG_CONFIG_HOME", ".config") / "opencode" / "opencode.json")
    kept = ("model", "provider", "enabled_providers", "disabled_providers")
    config = {key: value for key, value in theirs.items() if key in kept} | {
        "snapshot": False,
        "share": "disabled",
        "autoupdate": False,
        "agent": {_OPENCODE_AGENT: agent},
    }
    given = write_text(question.room / "opencode.json", json.dumps(config))
    return Call(
        arguments=(
            *("run", "--pure", "--format", "json", "--agent", _OPENCODE_AGENT, "--title", "habitus"),
            *question.options(),
        ),
        stdin=question.prompt,
        environ={
            **places,
            "OPENCODE_CONFIG": str(given),
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
    )


def _read_opencode(written: str, question: Question) -> Output:
    texts, usage, problem = list[str](), None, ""
    for said in read_objects(written):
        match said:
            case {"type": "step_start"}:
                # Text before the last step is not the answer.
                texts = []
            case {"type": "text", "part": {"text": str(text)}}:
                texts.append(text)
            case {"type": "step_finish", "part": {"tokens": dict(used)} as part}:
                used |= as_table(used.get("cache"))
                step = usage_of(used, read=("input", "read", "write"), wrote=("output", "reasoning"), cached="read")
                # 0 means that it does not know the price.
                cost = as_dollars(part.get("cost")) or None
                usage = (usage or Usage()) + replace(step, cost=cost)
            case {"type": "error", "error": dict(error)}:
                problem = str(as_table(error.get("data")).get("message") or error.get("name"))
    return Output(text="".join(texts), usage=usage, problem=problem)


def copilot_call(question: Question, *tools: str) -> Call:
    """Return a run in a home with only the user's sign-in, without tools unless they are given."""
    tools = tools or ("--available-tools", "none")
    own = question.room / "copilot"
    theirs = read_json(question.folder("COPILOT_HOME", ".copilot") / "config.json")
    kept = {key: value for key, value in theirs.items() if "logged" in key.lower() or "token" in key.lower()}
    write_text(own / "config.json", json.dumps(kept))
    alone = ("--disable-builtin-mcps", "--no-custom-instructions", "--no-ask-user")
    return Call(
        arguments=(
            *("-p", question.both, "--output-format", "json", *tools, *alone),
            *("--usage-output-file", str(question.room / "usage.json"), *question.options()),
        ),
        environ={"COPILOT_HOME": str(own), "COPILOT_AUTO_UPDATE": "false"},
    )


def _read_copilot(written: str, question: Question) -> Output:
    texts, problem = [], ""
    for said in read_objects(written):
        match said:
            case {"type": "assistant.message", "data": {"content": str(text)}} if text:
                # The last message is the answer.
                texts = [text]
            case {"type": "session.error", "data": {"message": message}}:
                problem = str(message)
    metrics = as_table(read_json(question.room / "usage.json").get("modelMetrics"))
    used = [as_table(as_table(each).get("usage")) for each in metrics.values()]
    usages = [usage_of(each, read=("inputTokens",), wrote=("outputTokens",), cached="cacheReadTokens") for each in used]
    usage, model = sum(usages, Usage()) if usages else None, next(iter(metrics), "")
    return Output(text="".join(texts), usage=usage, model=model, problem="" if texts else problem)


def _ask_pi(question: Question) -> Call:
    without = ("tools", "skills", "context-files", "extensions", "prompt-templates", "themes", "session")
    return Call(
        arguments=(
            *("-p", "--mode", "json", *(f"--no-{each}" for each in without)),
            *("--system-prompt", question.system_file, "--append-system-prompt", "", *question.options()),
        ),
        stdin=question.prompt,
        environ={"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    )


def _read_pi(written: str, question: Question) -> Output:
    """Parse Pi's output: the last message is the answer, and the usage of all messages counts."""
    output, spent = Output(), Usage()
    for said in read_objects(written):
        message = as_table(said.get("message"))
        if said.get("type") != "message_end" or message.get("role") != "assistant":
            continue
        used = as_table(message.get("usage"))
        usage = usage_of(used, read=("input", "cacheRead", "cacheWrite"), wrote=("output",), cached="cacheRead")
        spent += replace(usage, cost=as_dollars(as_table(used.get("cost")).get("total")))
        parts = [str(as_table(part).get("text") or "") for part in message.get("content") or ()]
        problem = str(message.get("errorMessage") or "") if message.get("stopReason") == "error" else ""
        output = Output(text="".join(parts), usage=spent, problem=problem)
    return output


def _ask_cursor(question: Question) -> Call:
    own = question.room / "cursor"
    denied = {"permissions": {"allow": [], "deny": ["Read(**)", "Write(**)", "Shell(*)", "Mcp(*:*)"]}, "version": 1}
    write_text(own / "cli-config.json", json.dumps(denied))
    return Call(
        arguments=("-p", "--output-format", "json", "--trust", "--mode", "ask", *question.options()),
        stdin=question.both,
        environ={"CURSOR_CONFIG_DIR": str(own), "CURSOR_DATA_DIR": str(question.room / "data")},
    )


def _read_cursor(written: str, question: Question) -> Output:
    for said in read_objects(written):
        if said.get("type") == "result":
            text = str(said.get("result") or "")
            return Output(problem=text or "no reason given") if said.get("is_error") else Output(text=text)
    return Output()


_CLOUDS = ("AWS_", "GOOGLE_", "AZURE_", "VERTEX_", "CLOUD_ML_")

PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(
            name="claude-code",
            title="Claude Code",
            command="claude",
            install="npm install -g @anthropic-ai/claude-code",
            sign_in="start 'claude' and type /login",
            variables=(
                *("ANTHROPIC_", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_", "CLAUDE_CODE_USE_", "CLAUDE_CODE_SKIP_"),
                *_CLOUDS,
            ),
            ask=_ask_claude,
            read=_read_claude,
            prices_of="anthropic",
            tells_dollars=True,
        ),
        Program(
            name="codex",
            title="Codex",
            command="codex",
            install="npm install -g @openai/codex",
            sign_in="codex login (a sign-in in the system's keyring is not found: cli_auth_credentials_store = 'file')",
            variables=("OPENAI_", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE", "AZURE_"),
            ask=_ask_codex,
            read=_read_codex,
            prices_of="openai",
        ),
        Program(
            name="gemini-cli",
            title="Gemini CLI",
            command="gemini",
            install="npm install -g @google/gemini-cli",
            sign_in="start 'gemini' and type /auth, or set GEMINI_API_KEY",
            variables=("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_"),
            ask=_ask_gemini,
            read=_read_gemini,
            prices_of="google",
        ),
        Program(
            name="opencode",
            title="opencode",
            command="opencode",
            install="npm install -g opencode-ai",
            sign_in="opencode auth login",
            variables=("ANTHROPIC_", "OPENAI_", "GEMINI_API_KEY", "OPENROUTER_", "OPENCODE_API_KEY", *_CLOUDS),
            ask=_ask_opencode,
            read=_read_opencode,
        ),
        Program(
            name="copilot",
            title="Copilot CLI",
            command="copilot",
            install="npm install -g @github/copilot",
            sign_in="start 'copilot' and type /login",
            variables=(
                *("COPILOT_GITHUB_TOKEN", "COPILOT_MODEL", "COPILOT_PROVIDER_", "COPILOT_OFFLINE"),
                *("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "COPILOT_GH_HOST"),
            ),
            ask=copilot_call,
            read=_read_copilot,
        ),
        Program(
            name="pi",
            title="Pi",
            command="pi",
            install="npm install -g @earendil-works/pi-coding-agent",
            sign_in="start 'pi' and type /login, or set the key of a provider",
            variables=(
                *("ANTHROPIC_", "OPENAI_", "GEMINI_API_KEY", "OPENROUTER_", "PI_CODING_AGENT_DIR", "GROQ_", "MISTRAL_"),
                *("XAI_", "DEEPSEEK_", "CEREBRAS_", *_CLOUDS),
            ),
            ask=_ask_pi,
            read=_read_pi,
            tells_dollars=True,
        ),
        Program(
            name="cursor-agent",
            title="Cursor",
            command="cursor-agent",
            install="see cursor.com/cli",
            sign_in="cursor-agent login",
            variables=("CURSOR_API_KEY",),
            ask=_ask_cursor,
            read=_read_cursor,
            is_experimental=True,
        ),
    )
}
