"""Copies of one skill in several layers: which of them count, and what they make together, one text and one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.files import File, Tree, tree_hash, without_examination
from habitus.skills import trees
from habitus.skills.layers.layer import Layer, merge_summaries, merged_body
from habitus.skills.layers.listing import Listed, fill_copy, with_source
from habitus.skills.model import Skill, Stage
from habitus.skills.sources.trust import OutsideContent, is_code
from habitus.skills.stores import records


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    layer: Layer
    skill: Skill


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillFiles:
    """All files of a skill as they are now, without those that examine whoever uses it."""

    tree: Tree
    untrusted: frozenset[str]  # those with code from outside that no person trusts as it is
    folders: Mapping[str, Path]  # path → where the skill lies that it is a file of, where it has a place on disk

    @property
    def others(self) -> tuple[str, ...]:
        """The files that the skill's text may speak of: all but its main file and those of its code stage."""
        own = {trees.main_file(self.tree), trees.TOML_FILE}
        own |= {trees.TOOL_FILE, trees.TOOL_CODE} if Stage.CODE in trees.stages(self.tree) else set()
        return tuple(sorted(path for path in self.tree if path not in own))

    @property
    def trusted_tree(self) -> Tree:
        return {path: file for path, file in self.tree.items() if path not in self.untrusted}


def counting(
    item: Listed,
    layer_of: Callable[[str], Layer],
    outside: OutsideContent,
    *,
    only_layer: bool = False,
    look: bool = False,
    own: Tree | None = None,
) -> list[Copy]:
    """Those that count, lowest first; what waits for trust above a copy that has it does not. `own` are the files of
    the highest, where they were read already."""
    copies: list[Copy] = []
    has_trusted = False
    for name in () if only_layer else item.hidden:
        layer = layer_of(name)
        digest = layer.store.contents(look=False).hashes.get(item.name, "")
        is_trusted = outside.is_trusted(layer, item.name, digest)
        skill = layer.store.load(item.name, look=look) if is_trusted or not has_trusted else None
        if skill is not None:
            copies.append(Copy(layer=layer, skill=outside.apply_trust(layer, with_source(skill, layer), digest)))
            has_trusted = has_trusted or is_trusted
    layer = layer_of(item.layer)
    skill = layer.store.load(item.name, look=look, tree=own)
    if skill is not None:
        copies.append(Copy(layer=layer, skill=outside.apply_trust(layer, with_source(skill, layer), item.tree_hash)))
    return copies


def one_skill(copies: Sequence[Copy], fill: Mapping[str, str] | None = None) -> Skill | None:
    """The skill that its copies make together; without `fill` its placeholders stay open."""
    skill: Skill | None = None
    fills = False
    for copy in copies:
        base = skill if copy.skill.manifest.extends else None
        fills = copy.layer.fills_placeholders or copy.skill.manifest.placeholders or (base is not None and fills)
        shown = fill_copy(copy.layer, copy.skill, fill) if fills and fill is not None else copy.skill
        skill = shown if base is None else records.with_body(merge_summaries(base, shown), merged_body(base, shown))
    return skill


def one_folder(copies: Sequence[Copy], outside: OutsideContent) -> SkillFiles:
    """The files that they make together: one that extends a lower copy brings its own over that one's."""
    tree: dict[str, File] = {}
    untrusted: set[str] = set()
    folders: dict[str, Path] = {}
    for copy in copies:
        name, store = copy.skill.name, copy.layer.store
        if not copy.skill.manifest.extends:
            tree, untrusted, folders = {}, set(), {}
        own = store.tree(name, look=False) or {}
        is_trusted = outside.is_trusted(copy.layer, name, tree_hash(own))  # of what is read now, whatever was listed
        own = without_examination(own)
        tree |= own
        untrusted = (untrusted - own.keys()) | {p for p, file in own.items() if not is_trusted and is_code(p, file)}
        if (folder := store.directory(name, look=False)) is not None:
            folders |= dict.fromkeys(own, folder)
    return SkillFiles(tree=tree, untrusted=frozenset(untrusted), folders=folders)
