"""A skill's directory as data: its main file, stages and parsed skill, and the placeholders in its text, such as
`{BOT_NAME}`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from habitus.errors import Invalid, Refused
from habitus.files import ASIDE, File, Tree, file_of, is_examination, without_examination
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE
from habitus.skills.formats import skill_md
from habitus.skills.formats.skill_md import Parsed
from habitus.skills.model import Diagnostic, Severity, Skill, Stage, Summary

MAIN_FILES = ("SKILL.md", "skill.md")
CHUNKS_FILE = "chunks.md"
TOOL_FILE = "tool.json"
TOOL_CODE = "scripts/tool.py"
CLI_CODE = "scripts/cli.py"
TOML_FILE = "skill.toml"
TASKS_FILE = "evals/tasks.toml"
LEFT_OUT = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__", ".DS_Store"})  # never part of a version
# Folders of version control: hooks in them run when their owner next uses the tool, and no history shows them.
_CONTROL = frozenset({".git", ".hg", ".svn", ".jj", ".sl", ".bzr", ".pijul", "_darcs"})
# Files that editors, shells and agents execute by themselves when they open the folder. `HEAD` turns its folder
# into a bare repository, whose `config` can name commands for git to run. `.env` is not listed: most tools only
# read values from it, and shell add-ons that run it ask first.
_RUN_UNASKED = frozenset(
    {
        "head",
        *(".envrc", ".autoenv.zsh", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".mcp.json", "mise.toml"),
        *("mise.local.toml", ".mise.local.toml", "mise/config.toml", ".mise/config.toml", ".config/mise.toml"),
        *(".rtx.toml", ".lvimrc", ".yarnrc.yml"),
        *(".mise.toml", ".devcontainer.json", ".devcontainer/devcontainer.json", ".vscode/tasks.json"),
        *(".vscode/settings.json", ".vscode/launch.json", ".vscode/mcp.json", ".idea/workspace.xml"),
        *(".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json", ".cursor/hooks.json"),
        *(".codex/config.toml", ".codex/hooks.json", ".gemini/settings.json", ".pre-commit-config.yaml"),
    }
)
# Every file in these folders is executed.
_PLUGINS = (".opencode/plugin/", ".opencode/plugins/")
# Such a file names tasks and settings, like those in `.vscode`.
_WORKSPACE = ".code-workspace"


def is_control(name: str) -> bool:
    """Whether a file or folder name belongs to version control."""
    return name.casefold() in _CONTROL


def runs_unasked(path: str) -> bool:
    """Whether another tool would execute or obey this file by itself; case and parent folders make no difference."""
    # File systems of macOS and Windows ignore case, so `.GIT` is as dangerous as `.git`.
    folded = path.casefold()
    parts = folded.split("/")
    if not _CONTROL.isdisjoint(parts) or not _RUN_UNASKED.isdisjoint(("/".join(parts[-2:]), parts[-1])):
        return True
    return folded.endswith(_WORKSPACE) or any(f"/{folder}" in f"/{folded}" for folder in _PLUGINS)


def is_left_out(path: str) -> bool:
    """Whether reading a directory skips this path."""
    return any(part in LEFT_OUT or part.startswith(ASIDE) for part in path.split("/")) or path.endswith(".pyc")


def main_contents(trees: Mapping[str, Tree]) -> dict[str, bytes]:
    """Return the content of each folder's main file; folders without one are left out."""
    mains = ((folder, tree[main].content) for folder, tree in trees.items() if (main := main_file(tree)) is not None)
    return {folder: content for folder, content in mains if content is not None}


def main_file(tree: Iterable[str]) -> str | None:
    """Return the name of the main file in a tree, or None."""
    paths = tree if isinstance(tree, Mapping) else set(tree)
    return next((name for name in MAIN_FILES if name in paths), None)


def stages(tree: Tree) -> frozenset[Stage]:
    """Return the stages that the files provide; steps are always among them."""
    found = {Stage.STEPS}
    if CHUNKS_FILE in tree:
        found.add(Stage.CHUNKS)
    if TOOL_FILE in tree and TOOL_CODE in tree:
        found.add(Stage.CODE)
    return frozenset(found)


def clash(name: str, tree: Tree) -> str:
    """Explain why this code can't have its skill's name; empty if it can."""
    called = names.callable_name(name)
    is_taken = Stage.CODE in stages(tree) and called in names.BUILT_IN_TOOLS
    return f"'{called}' is the name of a built-in tool, so no code can go by it" if is_taken else ""


def refuse_clash(name: str, tree: Tree) -> None:
    """Raise `Invalid` if the code would take the name of a built-in tool."""
    if reason := clash(name, tree):
        raise Invalid(f"{reason}.", hint="Take another name for the skill.")


def parse(folder: str, tree: Tree) -> Parsed:
    """Parse the skill in a directory; if there is none, the result's diagnostics say why."""
    main = main_file(tree)
    toml = tree.get(TOML_FILE)
    content = tree[main].content if main else (b"" if toml else None)
    if content is None:
        size = tree[main].size if main else 0
        what = f"It has {size:,} bytes." if main else "There is no SKILL.md in this directory."
        hint = "Move reference material into references/." if main else "Add one, or move the directory away."
        diagnostic = Diagnostic(file=f"{folder}/SKILL.md", what=what, hint=hint, severity=Severity.ERROR)
        return Parsed(skill=None, diagnostics=(diagnostic,))
    return _parse_main(folder, content, f"{folder}/{main or TOML_FILE}", toml.content if toml is not None else None)


# An imported skill is parsed by its reader, the scanner and the store in turn; the cache makes that one parse.
@functools.lru_cache(maxsize=1024)
def _parse_main(folder: str, content: bytes, file: str, toml: bytes | None) -> Parsed:
    return skill_md.parse(folder, content, file=file, toml=toml)


def with_skill(tree: Tree, skill: Skill) -> dict[str, File]:
    """Return the files with the main file rewritten to match `skill`."""
    main = main_file(tree)
    if main is None:
        return {**tree, "SKILL.md": file_of(skill_md.render(skill))}
    old = tree[main]
    if old.content is None:
        raise Refused(f"{main} of '{skill.name}' is too large to be edited here.", hint="Shorten it by hand first.")
    return {**tree, main: file_of(skill_md.update(old.content, skill, file=main), executable=old.executable)}


def rename_tree(tree: Tree, name: str) -> dict[str, File]:
    """Return the files with another name in the main file."""
    main = main_file(tree)
    content = tree[main].content if main is not None else None
    if main is None or content is None:
        return dict(tree)
    return {**tree, main: file_of(skill_md.rename(content, name, file=main), executable=tree[main].executable)}


def with_kept(wanted: Tree, current: Tree) -> dict[str, File]:
    """Return a version's files with today's tasks and cases; a file too large for the history is taken from the
    current files, if it is still there.
    """
    kept = {path: file for path, file in without_examination(wanted).items() if file.content is not None}
    large = {path: current[path] for path in wanted if path not in kept and path in current}
    return kept | large | {path: file for path, file in current.items() if is_examination(path)}


def examined_as(tree: Tree, current: Tree) -> dict[str, File]:
    """Return new files of a skill, keeping its current tasks, and its other examination files unless they are
    replaced.
    """
    stay = {path: file for path, file in current.items() if is_examination(path)}
    # Tasks decide whether a change is good, so the change must not bring its own.
    return {**stay, **tree, **{path: file for path, file in stay.items() if path == TASKS_FILE}}


KNOWN = ("BOT_NAME", "BOT_DIR", "SKILL_DIR", "USER")
# `${USER}` is a shell variable, hence the lookbehind.
_OPEN = re.compile(r"(?<!\$)\{(" + "|".join(KNOWN) + r")\}")
_TEXTS = (*(field.name for field in EDITABLE if not field.is_list), "body")
AnySkill = TypeVar("AnySkill", bound=Summary)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the known placeholders; shell variables (`${USER}`) and other braces stay."""
    return _OPEN.sub(lambda found: values.get(found[1], found[0]), text)


def open_texts(skill: Summary) -> dict[str, str]:
    """Return the texts of a skill that contain placeholders, by field."""
    texts = {name: getattr(skill, name, "") for name in _TEXTS}
    return {name: text for name, text in texts.items() if "{" in text and _OPEN.search(text)}


def fill_placeholders(skill: AnySkill, values: Mapping[str, str]) -> AnySkill:
    """Return the skill with its placeholders replaced."""
    texts: dict[str, Any] = {name: fill(text, values) for name, text in open_texts(skill).items()}
    return replace(skill, **texts) if texts else skill


def kept_open(name: str, tree: Tree) -> Tree:
    """Return a copy whose manifest asks for placeholders, for a skill that leaves the layer that filled them."""
    skill = parse(name, tree).skill
    if skill is None or not open_texts(skill):
        return tree
    return with_skill(tree, replace(skill, manifest=replace(skill.manifest, placeholders=True)))
