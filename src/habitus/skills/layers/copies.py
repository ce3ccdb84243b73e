"""Copies of one skill in several layers: which of them take effect, and the text and files they make together."""

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
    """The copy of a skill in one layer."""

    layer: Layer
    skill: Skill


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillFiles:
    """All current files of a skill, without its tasks and cases."""

    tree: Tree
    untrusted: frozenset[str]  # code from outside that no person trusts as it is
    folders: Mapping[str, Path]  # the skill directory that each path belongs to, if it is on disk

    @property
    def others(self) -> tuple[str, ...]:
        """The files that the skill's text may refer to: all but its main file and its code stage."""
        own = {trees.main_file(self.tree), trees.TOML_FILE}
        own |= {trees.TOOL_FILE, trees.TOOL_CODE} if Stage.CODE in trees.stages(self.tree) else set()
        return tuple(sorted(path for path in self.tree if path not in own))

    @property
    def trusted_tree(self) -> Tree:
        """The files without untrusted code."""
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
    """Load the copies that take effect, lowest layer first; an untrusted copy above a trusted one is left out.
    `own_files` are the files of the highest copy, if already read.
    """
    copies: list[Copy] = []
    has_trusted = False
    for name in () if only_layer else item.hidden:
        layer = layer_of(name)
        # No check of the directory here: the listing was composed from this state, and the hashes must match it.
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
    """Merge the copies into one skill, or None if there are none; without `fill` its placeholders stay."""
    skill: Skill | None = None
    fills = False
    for copy in copies:
        base = skill if copy.skill.manifest.extends else None
        fills = copy.layer.fills_placeholders or copy.skill.manifest.placeholders or (base is not None and fills)
        shown = fill_copy(copy.layer, copy.skill, fill) if fills and fill is not None else copy.skill
        skill = shown if base is None else records.with_body(merge_summaries(base, shown), merged_body(base, shown))
    return skill


def one_folder(copies: Sequence[Copy], outside: OutsideContent) -> SkillFiles:
    """Merge the files of the copies; a copy that extends a lower one adds its files over the others."""
    tree: dict[str, File] = {}
    untrusted: set[str] = set()
    folders: dict[str, Path] = {}
    for copy in copies:
        name, store = copy.skill.name, copy.layer.store
        # A copy that doesn't extend replaces everything below it.
        if not copy.skill.manifest.extends:
            tree, untrusted, folders = {}, set(), {}
        own = store.tree(name, look=False) or {}
        # Trust is checked on the files just read, which may be newer than the listing.
        is_trusted = outside.is_trusted(copy.layer, name, tree_hash(own))
        own = without_examination(own)
        tree |= own
        untrusted = (untrusted - own.keys()) | {p for p, file in own.items() if not is_trusted and is_code(p, file)}
        if (folder := store.directory(name, look=False)) is not None:
            folders |= dict.fromkeys(own, folder)
    return SkillFiles(tree=tree, untrusted=frozenset(untrusted), folders=folders)
