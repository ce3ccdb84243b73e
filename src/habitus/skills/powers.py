"""What a skill can do beyond being read: its scripts, and the permissions and standing rights it asks for."""

from __future__ import annotations

import json

from habitus.files import Tree
from habitus.skills import trees

_CODE_ENDINGS = (".py", ".sh", ".bash", ".zsh", ".js", ".ts", ".rb", ".pl", ".ps1", ".exe", ".so", ".bin")


def powers(folder: str, tree: Tree) -> frozenset[str]:
    """One text for each power; a script's text holds its hash, so a changed script is a new power."""
    found = {
        f"runs {path} ({file.sha256[:16]})"
        for path, file in tree.items()
        if file.executable or path.startswith("scripts/") or path.endswith(_CODE_ENDINGS)
    }
    skill = trees.parse(folder, tree).skill
    if skill is not None:
        manifest = skill.manifest
        found |= {f"may use the tool {tool}" for tool in skill.allowed_tools.replace(",", " ").split()}
        found |= {f"asks for the variable {spec.get('var', '?')}" for spec in manifest.env}
        found |= {f"is put into every prompt of source {source}" for source in manifest.source_types}
        found |= {f"pushes out the skill {name}" for name in manifest.exclude_skills}
        if manifest.always_include:
            found.add("is put into every prompt")
        if "hooks" in skill.extra:
            found.add(f"installs hooks {json.dumps(skill.extra['hooks'], sort_keys=True, default=str)[:80]}")
    return frozenset(found | _permissions(tree))


def has_code(tree: Tree) -> bool:
    return any(power.startswith("runs ") for power in powers("skill", tree))


def _permissions(tree: Tree) -> set[str]:
    file = tree.get(trees.TOOL_FILE)
    if file is None or file.content is None:
        return set()
    try:
        asked = json.loads(file.content).get("permissions", {})
    except (ValueError, AttributeError, RecursionError):
        return {"has a tool.json that can't be read"}
    if not isinstance(asked, dict):
        return {"has permissions that can't be read"}
    found = {"uses the network"} if asked.get("network") else set()
    for key, words in (("read", "reads files in"), ("write", "writes files in"), ("env", "asks for the variable")):
        values = asked.get(key)
        found |= {f"{words} {value}" for value in values} if isinstance(values, list) else set()
    return found
