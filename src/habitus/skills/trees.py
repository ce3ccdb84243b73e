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
from habitus.files import TEMPORARY_PREFIX, Tree, TreeFile, build_tree_file, drop_eval_files, is_eval_file
from habitus.skills import names
from habitus.skills.editable_fields import EDITABLE_FIELDS
from habitus.skills.formats import skill_md
from habitus.skills.formats.skill_md import ParsedSkillFile
from habitus.skills.model import Diagnostic, Severity, Skill, SkillSummary, Stage

MAIN_FILES = ("SKILL.md", "skill.md")
CHUNKS_FILE = "chunks.md"
TOOL_FILE = "tool.json"
TOOL_CODE = "scripts/tool.py"
CLI_CODE = "scripts/cli.py"
TOML_FILE = "skill.toml"
TASKS_FILE = "evals/tasks.toml"
CARD_FILE = "evals/card.json"  # of its exam
IGNORED_NAMES = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__", ".DS_Store"})  # never part of a version


def refuse_ignored_path(path: str) -> None:
    """Raise `Refused` for a path that reading a directory skips."""
    is_hidden = any(part in IGNORED_NAMES or part.startswith(TEMPORARY_PREFIX) for part in path.split("/"))
    if is_hidden or path.endswith(".pyc"):
        raise Refused(f"'{path}' can't be a file of a skill.", hint="No history keeps it.")


def read_main_files(trees: Mapping[str, Tree]) -> dict[str, bytes]:
    """Return the content of each folder's main file; folders without one are left out."""
    mains = ((name, tree[main].content) for name, tree in trees.items() if (main := find_main_file(tree)) is not None)
    return {name: content for name, content in mains if content is not None}


def find_main_file(tree: Iterable[str]) -> str | None:
    """Return the name of the main file in a tree, or None."""
    paths = tree if isinstance(tree, Mapping) else set(tree)
    return next((name for name in MAIN_FILES if name in paths), None)


def detect_stages(tree: Tree) -> frozenset[Stage]:
    """Return the stages that the files provide; steps are always among them."""
    found = {Stage.STEPS}
    if CHUNKS_FILE in tree:
        found.add(Stage.CHUNKS)
    if TOOL_FILE in tree and TOOL_CODE in tree:
        found.add(Stage.CODE)
    return frozenset(found)


def explain_code_name_conflict(name: str, tree: Tree) -> str:
    """Explain why this code can't have its skill's name; empty if it can."""
    called = names.to_tool_name(name)
    is_taken = Stage.CODE in detect_stages(tree) and called in names.BUILT_IN_TOOLS
    return f"'{called}' is the name of a built-in tool, so no code can go by it" if is_taken else ""


def refuse_code_name_conflict(name: str, tree: Tree) -> None:
    """Raise `Invalid` if the code would take the name of a built-in tool."""
    if reason := explain_code_name_conflict(name, tree):
        raise Invalid(f"{reason}.", hint="Take another name for the skill.")


def parse_skill_tree(folder: str, tree: Tree) -> ParsedSkillFile:
    """Parse the skill in a directory; if there is none, the result's diagnostics say why."""
    main = find_main_file(tree)
    toml = tree.get(TOML_FILE)
    content = tree[main].content if main else (b"" if toml else None)
    if content is None:
        size = tree[main].size if main else 0
        what = f"It has {size:,} bytes." if main else "There is no SKILL.md in this directory."
        hint = "Move reference material into references/." if main else "Add one, or move the directory away."
        diagnostic = Diagnostic(file=f"{folder}/SKILL.md", message=what, hint=hint, severity=Severity.ERROR)
        return ParsedSkillFile(skill=None, diagnostics=(diagnostic,))
    return _parse_main_file(
        folder, content, f"{folder}/{main or TOML_FILE}", toml.content if toml is not None else None
    )


# An imported skill is parsed by its reader, the scanner and the store in turn; the cache makes that one parse.
@functools.lru_cache(maxsize=1024)
def _parse_main_file(folder: str, content: bytes, file: str, toml: bytes | None) -> ParsedSkillFile:
    return skill_md.parse_skill_md_with_diagnostics(folder, content, file=file, toml=toml)


def update_main_file(tree: Tree, skill: Skill) -> dict[str, TreeFile]:
    """Return the files with the main file rewritten to match `skill`."""
    main = find_main_file(tree)
    if main is None:
        return {**tree, "SKILL.md": build_tree_file(skill_md.render_skill_md(skill))}
    old = tree[main]
    if old.content is None:
        raise Refused(f"{main} of '{skill.name}' is too large to be edited here.", hint="Shorten it by hand first.")
    return {
        **tree,
        main: build_tree_file(skill_md.update_skill_md(old.content, skill, file=main), executable=old.executable),
    }


def rename_skill_in_main_file(tree: Tree, name: str) -> dict[str, TreeFile]:
    """Return the files with another name in the main file."""
    main = find_main_file(tree)
    content = tree[main].content if main is not None else None
    if main is None or content is None:
        return dict(tree)
    return {
        **tree,
        main: build_tree_file(
            skill_md.change_name_in_skill_md(content, name, file=main), executable=tree[main].executable
        ),
    }


def combine_version_with_current_eval_files(version: Tree, current: Tree) -> dict[str, TreeFile]:
    """Return a version's files with today's tasks and cases; a file too large for the history is taken from the
    current files, if it is still there.
    """
    kept = {path: file for path, file in drop_eval_files(version).items() if file.content is not None}
    large = {path: current[path] for path in version if path not in kept and path in current}
    return kept | large | {path: file for path, file in current.items() if is_eval_file(path)}


def keep_examination_files(tree: Tree, current: Tree) -> dict[str, TreeFile]:
    """Return new files of a skill, keeping its current tasks, and its other examination files unless they are
    replaced.
    """
    stay = {path: file for path, file in current.items() if is_eval_file(path)}
    # Tasks decide whether a change is good, so the change must not bring its own.
    return {**stay, **tree, **{path: file for path, file in stay.items() if path == TASKS_FILE}}


PLACEHOLDER_NAMES = ("BOT_NAME", "BOT_DIR", "SKILL_DIR", "USER")
# `${USER}` is a shell variable, hence the lookbehind.
_PLACEHOLDER = re.compile(r"(?<!\$)\{(" + "|".join(PLACEHOLDER_NAMES) + r")\}")
_TEXT_FIELDS = (*(field.name for field in EDITABLE_FIELDS if not field.is_list), "body")
AnySkill = TypeVar("AnySkill", bound=SkillSummary)


def fill_text_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace the known placeholders; shell variables (`${USER}`) and other braces stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def find_placeholder_texts(skill: SkillSummary) -> dict[str, str]:
    """Return the texts of a skill that contain placeholders, by field."""
    texts = {name: getattr(skill, name, "") for name in _TEXT_FIELDS}
    return {name: text for name, text in texts.items() if "{" in text and _PLACEHOLDER.search(text)}


def fill_placeholders(skill: AnySkill, values: Mapping[str, str]) -> AnySkill:
    """Return the skill with its placeholders replaced."""
    texts: dict[str, Any] = {
        name: fill_text_placeholders(text, values) for name, text in find_placeholder_texts(skill).items()
    }
    return replace(skill, **texts) if texts else skill


def enable_placeholders(name: str, tree: Tree) -> Tree:
    """Return a copy whose manifest asks for placeholders, for a skill that leaves the layer that filled them."""
    skill = parse_skill_tree(name, tree).skill
    if skill is None or not find_placeholder_texts(skill):
        return tree
    return update_main_file(tree, replace(skill, manifest=replace(skill.manifest, placeholders=True)))
