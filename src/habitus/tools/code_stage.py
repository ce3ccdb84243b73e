"""Converts between code stages as files (`tool.json`, `scripts/tool.py`) and as programs. Pure functions."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from habitus.errors import Invalid, ToolFailed
from habitus.files import Tree, TreeFile, build_tree_file, compute_tree_hash
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.model import Permissions
from habitus.skills import names, trees
from habitus.skills.formats import skill_md, tool_json
from habitus.skills.formats.base import UnreadableEntryError
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillSource
from habitus.tasks.checks import ReplyEqualsCheck, ReplyShapeCheck
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind, compute_task_id
from habitus.tasks.schema import Json, validate_parameters_schema
from habitus.tools.model import ToolProgram

_BLOCK = re.compile(r"(?m)^# /// script[ \t]*\n((?:^#(?:| .*)\n)+?)^# ///[ \t]*\n?")
_FIRST = re.compile(r"\A(#!.*\n)")
_CODING = re.compile(r"\A((?:#.*\n)?)[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+.*\n")


def parse_dependencies(code: str) -> tuple[str, ...]:
    """Return the dependencies in the script header; empty without one."""
    found = _BLOCK.search(code)
    if found is None:
        return ()
    text = "".join(line.removeprefix("#").removeprefix(" ") for line in found[1].splitlines(keepends=True))
    try:
        wanted = tomllib.loads(text).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise ToolFailed(f"The script header of the code is not valid TOML: {error}.") from None
    if not isinstance(wanted, list) or not all(isinstance(item, str) for item in wanted):
        raise ToolFailed("The dependencies in the script header of the code are not a list of strings.")
    return tuple(wanted)


def replace_script_header(code: str, dependencies: Iterable[str]) -> str:
    """Return the code with our own script header, replacing any other. The file is UTF-8, whatever it declared."""
    # A coding line would contradict the encoding in which the file is written.
    code = _CODING.sub(r"\1", _BLOCK.sub("", code.removeprefix("\ufeff"), count=1))
    first = _FIRST.match(code)
    shebang = first[1] if first else ""
    listed = "".join(f"#     {_quote_toml(item)},\n" for item in dependencies)
    block = f"# dependencies = [\n{listed}# ]\n" if listed else "# dependencies = []\n"
    python = f'# requires-python = ">={sys.version_info[0]}.{sys.version_info[1]}"\n'
    rest = code.removeprefix(shebang)
    return f"{shebang}# /// script\n{python}{block}# ///\n{rest}" + ("" if rest.endswith("\n") else "\n")


def _quote_toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_PERMISSIONS = {"network", "read", "write", "env"}
# False if no recorded result supports the code.
_COMPARED = "compared"


def parse_tool_program_from_files(name: str, tree: Tree) -> ToolProgram:
    """Parse the tool from these files; `Invalid` or `ToolFailed` says why they form none."""
    manifest, code = tree.get(trees.TOOL_FILE), tree.get(trees.TOOL_CODE)
    if manifest is None or code is None or manifest.content is None or code.content is None:
        raise Invalid(f"'{name}' has no tool.json with a scripts/tool.py.", hint="")
    try:
        tool = tool_json.parse_tool_json(manifest.content)
        text = code.content.decode("utf-8-sig")
    except UnreadableEntryError as problem:
        raise Invalid(str(problem), hint="") from None
    except UnicodeDecodeError:
        raise Invalid("scripts/tool.py is not UTF-8 text.", hint="") from None
    return ToolProgram(
        name=names.canonicalize_name(name),
        description=tool.description,
        parameters=validate_parameters_schema(dict(tool.parameters)),
        code=text,
        permissions=parse_permissions(tool.permissions),
        dependencies=parse_dependencies(text),
        cases=tuple(_parse_test_case(case) for case in tool.cases if "payload" in case),
        is_compared=tool.extra.get(_COMPARED) is not False,
    )


def build_case_from_call(
    payload: Json, shape: Mapping[str, Json], expected: ReplyEqualsCheck | None = None, *, conversation: str = ""
) -> Task:
    """Build a test case from a successful call: the shape of its result, and the result itself if it is stable."""
    return Task(
        id=compute_task_id("", payload, {}, ""),
        payload=payload,
        checks=(ReplyShapeCheck(schema=shape), *([expected] if expected is not None else [])),
        origin=TaskOrigin(kind=TaskOriginKind.TOOL, conversation=conversation),
    )


def _parse_test_case(written: Mapping[str, Any]) -> Task:
    """Parse a case from tool.json; cases of earlier releases have no expected result."""
    shape, expected = written.get("shape"), written.get("expected")
    apart = expected.get("apart") if isinstance(expected, dict) else ()
    return build_case_from_call(
        written["payload"],
        shape if isinstance(shape, dict) else {},
        ReplyEqualsCheck(value=expected["value"], apart=tuple(map(str, apart or ())))
        if isinstance(expected, dict) and "value" in expected
        else None,
        conversation=str(written.get("conversation", "")),
    )


def _serialize_test_case(task: Task) -> dict[str, Any]:
    written: dict[str, Any] = {"payload": task.payload, "shape": task.result_schema}
    if task.expected_result is not None:
        written["expected"] = {"value": task.expected_result.value, "apart": list(task.expected_result.apart)}
    return {**written, "conversation": task.origin.conversation} if task.origin.conversation else written


def parse_permissions(asked: Mapping[str, Any]) -> Permissions:
    """Parse the permissions in tool.json strictly; anything unexpected is refused, never guessed."""
    unknown = sorted(set(asked) - _PERMISSIONS)
    network = asked.get("network", False)
    lists = {key: asked.get(key) or [] for key in ("read", "write", "env")}
    are_lists = all(isinstance(v, list) and all(isinstance(i, str) and i for i in v) for v in lists.values())
    if unknown or not isinstance(network, bool) or not are_lists:
        raise Invalid(
            f"The permissions can't be read{f': there is no {unknown[0]!r}' if unknown else ''}.",
            hint='Write {"network": false, "read": ["/path"], "write": [], "env": ["NAME"]}.',
        )
    return Permissions(
        network=network,
        read=tuple(Path(path) for path in lists["read"]),
        write=tuple(Path(path) for path in lists["write"]),
        env=tuple(lists["env"]),
    )


def build_skill_files_with_code_stage(tree: Tree, program: ToolProgram, *, is_automatic: bool) -> dict[str, TreeFile]:
    """Return the skill's files with this code stage; a new skill gets steps that say how to call it."""
    code = program.code.encode("utf-8", "surrogatepass")
    manifest = tool_json.ToolContract(
        name=names.to_tool_name(program.name),
        description=program.description,
        parameters=program.parameters,
        permissions={
            "network": program.permissions.network,
            "read": [str(path) for path in program.permissions.read],
            "write": [str(path) for path in program.permissions.write],
            "env": list(program.permissions.env),
        },
        cases=tuple(map(_serialize_test_case, program.cases)),
        hash=tool_json.hash_code(code),
        extra={} if program.is_compared else {_COMPARED: False},
    )
    files = {
        **tree,
        trees.TOOL_FILE: build_tree_file(tool_json.render_tool_json(manifest)),
        trees.TOOL_CODE: build_tree_file(code),
    }
    if trees.find_main_file(tree) is None:
        files["SKILL.md"] = build_tree_file(skill_md.render_skill_md(_build_skill_for_tool(program, is_automatic)))
    return files


def build_skill_files_without_code_stage(tree: Tree) -> dict[str, TreeFile]:
    """Return the skill's files without its code stage."""
    return {path: file for path, file in tree.items() if path not in (trees.TOOL_FILE, trees.TOOL_CODE)}


def is_unedited_skill_of_tool(name: str, tree: Tree) -> bool:
    """Whether a skill was created for its tool and has not been edited since."""
    skill = trees.parse_skill_tree(name, tree).skill
    return (
        skill is not None
        and trees.CHUNKS_FILE not in tree
        and skill.body.strip() == _render_tool_call_steps(name).strip()
    )


def _build_skill_for_tool(program: ToolProgram, is_automatic: bool) -> Skill:
    source = SkillSource.AGENT if is_automatic else SkillSource.USER
    return Skill(
        name=program.name,
        description=program.description,
        source=source,
        body=skill_md.normalize_body(_render_tool_call_steps(program.name)),
    )


def _render_tool_call_steps(name: str) -> str:
    return f"Call the tool `{names.to_tool_name(name)}` by its name, with the parameters it asks for.\n"


class ReadableFolderProvider:
    """Provides the folder of files that a tool's call may read."""

    def __init__(self, library: Library, open_given_folder: Callable[[str], GivenFolder]) -> None:
        """`open_given_folder` returns the folder for files with this hash, for calls outside a session."""
        self._library = library
        self._given = open_given_folder

    def provide_readable_folder(self, item: ListedSkill, session: GivenFolder | None = None) -> Path | None:
        """Return the folder that a call may read: the session's files and those of its own skill; None if empty."""
        files = self._library.read_files(item)
        if not files.supporting_files:
            return session.folder if session is not None and session.has_ever_held_files else None
        tree = files.trusted_tree
        given = session or self._given(compute_tree_hash(tree))
        if session is not None or not given.has_skill_files(item.name):
            given.replace_skill_files(item.name, tree, folders=files.folders)
        return given.folder
