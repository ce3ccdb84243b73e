"""Write the manifests of the plugin in plugin/ and the marketplaces at the root, for every agent that takes plugins.

The texts in plugin/ are the source of what a plugin says; this file is the source of all forms that name it.
`plugin.py` writes them; `plugin.py --check` only says which are out of date, and exits 1 when one is.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from habitus.hosts.known_agents import AGENT_HOOKS

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "plugin"


def main() -> int:
    files = {PLUGIN / name: _json(content) for name, content in manifests().items()}
    files |= {PLUGIN / f"commands/habitus/{path.stem}.toml": _gemini_command(path) for path in _commands()}
    files |= {ROOT / name: _json(content) for name, content in marketplaces().items()}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        name = path.relative_to(ROOT)
        if "--check" in sys.argv[1:]:
            print(f"{name} is out of date. Run 'make docs'.")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
        print(f"wrote {name}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


def manifests() -> dict[str, dict[str, Any]]:
    """Below plugin/: what each agent reads."""
    about = _about()
    keywords = ["skills", "memory", "mcp", "lessons"]
    return {
        "plugin.json": {
            "$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json",
            **about,
            "license": "MIT",
            "keywords": keywords,
        },
        "mcp.json": {"mcpServers": {"habitus": {"type": "stdio", **_server("${PLUGIN_ROOT}")}}},
        ".claude-plugin/plugin.json": {**about, "displayName": "Habitus", "license": "MIT", "keywords": keywords}
        | {"mcpServers": {"habitus": {**_server("${CLAUDE_PLUGIN_ROOT}"), "alwaysLoad": True}}},
        "hooks/hooks.json": {"hooks": {one.event: [{"hooks": [_hook(one.event, one.timeout)]}] for one in AGENT_HOOKS}},
        ".codex-plugin/plugin.json": about,
        ".mcp.json": {"mcpServers": {"habitus": _server(".")}},
        ".cursor-plugin/plugin.json": {**about, "license": "MIT", "keywords": keywords},
        "gemini-extension.json": {
            "name": about["name"],
            "version": about["version"],
            "description": about["description"],
            "mcpServers": {"habitus": _server("${extensionPath}")},
            "contextFileName": "skills/habitus/SKILL.md",
        },
    }


def marketplaces() -> dict[str, dict[str, Any]]:
    """At the root of the repository, so that it can be added as it is."""
    entry = {"name": "habitus", "description": _about()["description"]}
    return {
        ".claude-plugin/marketplace.json": {
            "name": "habitus",
            "owner": _about()["author"],
            "metadata": {"description": _about()["description"]},
            "plugins": [{**entry, "source": "./plugin"}],
        },
        ".agents/plugins/marketplace.json": {
            "name": "habitus",
            "plugins": [{**entry, "source": {"source": "local", "path": "./plugin"}}],
        },
    }


def _about() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "name": "habitus",
        "version": project["version"],
        "description": project["description"],
        "author": {"name": "Habitus"},
    }


def _server(folder: str) -> dict[str, Any]:
    return {"command": "sh", "args": [f"{folder}/bin/habitus.sh", "mcp"]}


def _hook(event: str, timeout: int) -> dict[str, Any]:
    command = f'sh "${{CLAUDE_PLUGIN_ROOT}}/bin/hook.sh" {event}'
    return {"type": "command", "command": command, "timeout": timeout * (4 if event == "SessionStart" else 1)}


def _commands() -> list[Path]:
    return sorted((PLUGIN / "commands").glob("*.md"))


def _gemini_command(path: Path) -> str:
    """A slash command in Gemini CLI's form."""
    _, head, text = path.read_text(encoding="utf-8").split("---\n", 2)
    description = head.strip().removeprefix("description: ")
    prompt = text.strip().replace("$ARGUMENTS", "{{args}}")
    return f'description = {json.dumps(description)}\nprompt = """\n{prompt}\n"""\n'


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
