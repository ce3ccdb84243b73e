"""Copies of one skill in several layers: which of them take effect, and the text and files they make together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.files import Tree, TreeFile, compute_tree_hash, drop_eval_files
from habitus.skills import trees
from habitus.skills.layers.layer import Layer, choose_effective_body, merge_layered_summaries
from habitus.skills.layers.listing import ListedSkill, apply_layer_source, fill_copy_placeholders
from habitus.skills.model import Skill, Stage
from habitus.skills.sources.trust import OutsideContentPolicy, is_code_file
from habitus.skills.stores import records


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSkillCopy:
    """The copy of a skill in one layer."""

    layer: Layer
    skill: Skill
    version: int | None = None  # whose files it has, if not the current one's


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillFiles:
    """All current files of a skill, without its tasks and cases."""

    tree: Tree
    untrusted: frozenset[str]  # code from outside that no person trusts as it is
    folders: Mapping[str, Path]  # the skill directory that each path belongs to, if it is on disk

    @property
    def supporting_files(self) -> tuple[str, ...]:
        """The files that the skill's text may refer to: all but its main file and its code stage."""
        own = {trees.find_main_file(self.tree), trees.TOML_FILE}
        own |= {trees.TOOL_FILE, trees.TOOL_CODE} if Stage.CODE in trees.detect_stages(self.tree) else set()
        return tuple(sorted(path for path in self.tree if path not in own))

    @property
    def trusted_tree(self) -> Tree:
        """The files without untrusted code."""
        return {path: file for path, file in self.tree.items() if path not in self.untrusted}


def load_effective_copies(
    item: ListedSkill,
    get_layer: Callable[[str], Layer],
    policy: OutsideContentPolicy,
    *,
    only_layer: bool = False,
    check_disk: bool = False,
    own_files: Tree | None = None,
) -> list[LayerSkillCopy]:
    """Load the copies that take effect, lowest layer first; an untrusted copy above a trusted one is left out.
    `own_files` are the files of the highest copy, if already read.
    """
    made: list[LayerSkillCopy] = []
    has_trusted = False
    for name in () if only_layer else item.hidden:
        layer = get_layer(name)
        # No check of the directory here: the listing was composed from this state, and the hashes must match it.
        digest = layer.store.read_contents(check_disk=False).hashes.get(item.name, "")
        is_trusted = policy.is_trusted(layer, item.name, digest)
        skill = layer.store.load(item.name, check_disk=check_disk) if is_trusted or not has_trusted else None
        if skill is not None:
            made.append(
                LayerSkillCopy(
                    layer=layer, skill=policy.drop_untrusted_claims(layer, apply_layer_source(skill, layer), digest)
                )
            )
            has_trusted = has_trusted or is_trusted
    layer = get_layer(item.layer)
    if item.pinned_version is not None:
        own_files = layer.store.read_tree(item.name, item.pinned_version, check_disk=False)
    skill = layer.store.load(item.name, check_disk=check_disk, tree=own_files)
    if skill is not None:
        trusted = policy.drop_untrusted_claims(layer, apply_layer_source(skill, layer), item.tree_hash)
        made.append(LayerSkillCopy(layer=layer, skill=trusted, version=item.pinned_version))
    return made


def merge_skill_copies(copies: Sequence[LayerSkillCopy], fill: Mapping[str, str] | None = None) -> Skill | None:
    """Merge the copies into one skill, or None if there are none; without `fill` its placeholders stay."""
    skill: Skill | None = None
    fills = False
    for copy in copies:
        base = skill if copy.skill.manifest.extends else None
        fills = copy.layer.fills_placeholders or copy.skill.manifest.placeholders or (base is not None and fills)
        shown = fill_copy_placeholders(copy.layer, copy.skill, fill) if fills and fill is not None else copy.skill
        skill = (
            shown
            if base is None
            else records.build_skill_from_summary(
                merge_layered_summaries(base, shown), choose_effective_body(base, shown)
            )
        )
    return skill


def merge_files_of_copies(copies: Sequence[LayerSkillCopy], outside: OutsideContentPolicy) -> SkillFiles:
    """Merge the files of the copies; a copy that extends a lower one adds its files over the others."""
    tree: dict[str, TreeFile] = {}
    untrusted: set[str] = set()
    folders: dict[str, Path] = {}
    for copy in copies:
        name, store = copy.skill.name, copy.layer.store
        # A copy that doesn't extend replaces everything below it.
        if not copy.skill.manifest.extends:
            tree, untrusted, folders = {}, set(), {}
        own = store.read_tree(name, copy.version, check_disk=False) or {}
        # Trust is checked on the files just read, which may be newer than the listing.
        is_trusted = outside.is_trusted(copy.layer, name, compute_tree_hash(own))
        own = drop_eval_files(own)
        tree |= own
        untrusted = (untrusted - own.keys()) | {p for p, f in own.items() if not is_trusted and is_code_file(p, f)}
        folder = store.find_directory(name, check_disk=False) if copy.version is None else None
        if folder is not None:
            folders |= dict.fromkeys(own, folder)
    return SkillFiles(tree=tree, untrusted=frozenset(untrusted), folders=folders)
