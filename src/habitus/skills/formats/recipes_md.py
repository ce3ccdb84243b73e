"""chunks.md, the recipes of a skill: one `## name` section each, with prose and one fenced YAML block.

The block has {params, steps, branches}; a bare list of steps is accepted and rewritten in this form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from habitus.skills.formats.foreign_values import DiagnosticCollector, make_json_storable, to_text

RecipeStep = Mapping[str, Any]  # tool, description, params, save_as, when, on_fail, optional; other keys are kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A named sequence of tool calls."""

    name: str
    prose: str = ""
    steps: tuple[RecipeStep, ...] = ()
    branches: Mapping[str, tuple[RecipeStep, ...]] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)  # its parameters, each with its meaning or JSON Schema
    mode: str = ""  # "parallel" in some sources: kept as a hint
    line: int = field(default=0, compare=False)  # the line of its heading
    lines: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict, compare=False
    )  # the lines of its steps; by branch


# `$name`, `${name.part}`, or `$$` for a dollar sign.
REFERENCE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<path>[A-Za-z_]\w*(?:\.\w+)*)\}|(?P<dollar>\$))", re.ASCII)
_HEADING = re.compile(r"^##[ \t]+(?P<name>.+?)[ \t]*$")
_FENCE = re.compile(r"^(?P<fence>`{3,})[ \t]*(?P<language>\w*)[ \t]*$")
_SIMPLE_NAME = re.compile(r"[^\s#`\x00-\x1f\x7f-\xa0\u2028\u2029](?:[^\n\r\t\x00-\x1f\x7f-\xa0\u2028\u2029]*\S)?")


def list_referenced_variable_names(value: Any) -> set[str]:
    """Return the names that a value refers to."""
    if isinstance(value, Mapping):
        return {name for item in value.values() for name in list_referenced_variable_names(item)}
    if isinstance(value, list | tuple):
        return {name for item in value for name in list_referenced_variable_names(item)}
    if not isinstance(value, str):
        return set()
    found = (match["plain"] or match["path"] or "" for match in REFERENCE.finditer(value))
    return {name.partition(".")[0] for name in found if name}


def render_recipes(recipes: Sequence[Recipe], *, title: str = "Recipes") -> bytes:
    """Render recipes as chunks.md."""
    parts = [f"# {' '.join(title.split()) or 'Recipes'}\n"]
    parts += [_render_recipe_section(recipe) for recipe in recipes]
    return "\n".join(parts).encode()


def append_recipe(content: bytes, recipe: Recipe) -> bytes:
    """Return the file with one more recipe at its end; the rest stays unchanged."""
    if not content.strip():
        return render_recipes([recipe])
    return content.rstrip() + b"\n\n" + _render_recipe_section(recipe).encode()


def _render_recipe_section(recipe: Recipe) -> str:
    heading = recipe.name if _SIMPLE_NAME.fullmatch(recipe.name) else " ".join(ascii(recipe.name).split())
    more: dict[str, Any] = {}
    if heading != recipe.name:
        more["name"] = recipe.name
    prose = recipe.prose
    if not _is_prose_round_trip_safe(prose):
        more["description"], prose = prose, ""
    if recipe.mode:
        more["mode"] = recipe.mode
    steps = [dict(step) for step in recipe.steps]
    if recipe.params:
        more["params"] = dict(recipe.params)
    more["steps"] = steps
    if recipe.branches:
        more["branches"] = {name: [dict(step) for step in branch] for name, branch in recipe.branches.items()}
    block = yaml.dump(more, Dumper=_RecipeYamlDumper, **_STYLE)
    # A fence longer than any run of backticks inside can't be closed by the content.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", block)), default=0))
    return f"## {heading}\n\n" + (f"{prose}\n\n" if prose else "") + f"{fence}yaml\n{block}{fence}\n"


def _is_prose_round_trip_safe(prose: str) -> bool:
    """Whether the prose survives a round trip and can't be mistaken for a heading or fence."""
    lines = prose.split("\n")
    return (
        prose == prose.strip()
        and prose.splitlines() == (lines if prose else [])
        and not any(line.lstrip().startswith(("#", "`", "~")) for line in lines)
    )


def parse_recipes(content: bytes, notes: DiagnosticCollector) -> list[Recipe]:
    """Return the recipes of a file; an unreadable section is skipped with a diagnostic."""
    recipes = []
    for name, start, lines in _split_sections(content.decode("utf-8", "replace").removeprefix("\ufeff")):
        prose, block, opening = _split_prose_and_block(lines)
        if block is None:
            notes.add(f"The recipe '{name[:80]}' has no yaml block.", "Put its steps between ```yaml and ```.")
            continue
        try:
            recipe = _build_recipe(name, prose, _load_yaml_block(block))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            mark = getattr(error, "problem_mark", None)
            where = start + opening + 2 + (mark.line if mark is not None else 0)
            notes.add(f"The recipe '{name[:80]}' can't be read, line {where}: {first}.", "Correct its yaml block.")
            continue
        recipes.append(replace(recipe, line=start, lines=_find_step_line_numbers(block, start + opening + 2)))
    return recipes


def _find_step_line_numbers(block: str, first: int) -> dict[str, tuple[int, ...]]:
    """Return the line of the file on which each step begins: "" for the recipe itself, or the name of a branch."""

    def of(node: yaml.Node) -> tuple[int, ...]:
        steps = node.value if isinstance(node, yaml.SequenceNode) else []
        return tuple(first + step.start_mark.line for step in steps)

    node = yaml.compose(block, Loader=_RecipeYamlLoader)
    if not isinstance(node, yaml.MappingNode):
        return {"": of(node)}
    fields = {key.value: value for key, value in node.value}
    branches = fields.get("branches")
    named = branches.value if isinstance(branches, yaml.MappingNode) else []
    return {"": of(fields["steps"]) if "steps" in fields else (), **{key.value: of(value) for key, value in named}}


def _split_sections(document: str) -> list[tuple[str, int, list[str]]]:
    """Return (name, line of the heading, lines below it) of each section."""
    sections: list[tuple[str, int, list[str]]] = []
    fence = ""
    for number, line in enumerate(document.replace("\r\n", "\n").split("\n"), 1):
        found = _FENCE.match(line)
        heading = None if fence else _HEADING.match(line)
        if heading is not None:
            sections.append((heading["name"], number, []))
            continue
        if found is not None and not fence:
            fence = found["fence"]
        elif found is not None and found["fence"] == fence and not found["language"]:
            fence = ""
        if sections:
            sections[-1][2].append(line)
    return sections


def _split_prose_and_block(lines: Sequence[str]) -> tuple[str, str | None, int]:
    """Return (prose, block, line of the fence): the text above the first fence, and the text in it."""
    for opening, line in enumerate(lines):
        found = _FENCE.match(line)
        if found is not None:
            rest = lines[opening + 1 :]
            closing = next((at for at, line in enumerate(rest) if line.rstrip() == found["fence"]), len(rest))
            return "\n".join(lines[:opening]).strip(), "\n".join(rest[:closing]) + "\n", opening
    return "\n".join(lines).strip(), None, 0


def _build_recipe(name: str, prose: str, value: Any) -> Recipe:
    if isinstance(value, list):
        return Recipe(name=name, prose=prose, steps=_parse_recipe_steps(value))
    if not isinstance(value, dict):
        raise ValueError("the block is neither a list of steps nor fields")
    branches = value.get("branches") or {}
    if not isinstance(branches, dict):
        raise ValueError("'branches' is not a block of named lists")
    params = value.get("params") or {}
    if not isinstance(params, dict):
        raise ValueError("'params' is not a block of names")
    return Recipe(
        name=to_text(value.get("name", name)),
        prose=to_text(value.get("description", prose)),
        steps=_parse_recipe_steps(value.get("steps") or []),
        branches={branch: _parse_recipe_steps(steps) for branch, steps in branches.items()},
        params=params,
        mode=to_text(value.get("mode", "")),
    )


def _parse_recipe_steps(value: Any) -> tuple[RecipeStep, ...]:
    if not isinstance(value, list) or not all(isinstance(step, dict) for step in value):
        raise ValueError("a step is not a block of fields")
    return tuple(value)


class _RecipeYamlDumper(yaml.SafeDumper):
    """Writes YAML without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_yaml_text(dumper: _RecipeYamlDumper, value: str) -> yaml.Node:
    # Quoting and escaping preserves invisible characters.
    style = None if value.replace("\n", "").isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_RecipeYamlDumper.add_representer(str, _represent_yaml_text)


class _RecipeYamlLoader(yaml.SafeLoader):
    """Loads values as JSON has them. Aliases are refused, because a short file could expand to a huge one, and so is
    deep nesting, which takes ever longer to parse.
    """

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*name) are not allowed here")
        if self._depth == _MAX_DEPTH:
            raise yaml.YAMLError(f"it goes more than {_MAX_DEPTH} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_MAX_DEPTH = 50


# Without these resolvers, dates, `<<` and `=` stay text.
_RecipeYamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":merge", ":value"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_STYLE: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": False}


# Parsing a longer block would delay every command.
_MAX_BLOCK_CHARACTERS = 256 * 1024


def _load_yaml_block(block: str) -> Any:
    if len(block) > _MAX_BLOCK_CHARACTERS:
        raise ValueError(f"it has {len(block):,} characters; at most {_MAX_BLOCK_CHARACTERS:,} are read")
    value = yaml.load(block, Loader=_RecipeYamlLoader)  # derived from SafeLoader
    return make_json_storable(value)
