"""Trust in content from outside: a person trusts what a skill says and can do now, and no more.

The powers of a skill are what it can do beyond being read: its scripts, and the permissions and claims it asks
for. Untrusted text may be read, but its claims have no effect.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql
from habitus.files import Tree, TreeFile, compute_tree_hash
from habitus.skills import names, trees
from habitus.skills.layers.layer import Layer
from habitus.skills.model import Skill, SkillSource
from habitus.skills.stores.layer_database import increment_sequence
from habitus.skills.stores.tables import imports, sequences, trusted_skills
from habitus.skills.trees import AnySkill

IMPORTED_ROOT = "imported"  # root for imported skills, trusted one by one
APPROVED_ROOT = "approved"  # root for the code of the user's own skills, approved one by one
PACKAGES_ROOT_PREFIX = "packages for "  # prefix of the roots for a project's packages, allowed one by one
TASKS_ROOT_PREFIX = "tasks of "  # prefix of the roots for a skill's tasks from others, reviewed one by one
_PER_SKILL_ROOTS = (IMPORTED_ROOT, APPROVED_ROOT, PACKAGES_ROOT_PREFIX, TASKS_ROOT_PREFIX)
_REVISION_QUERY = sa.select(sa.func.count(), sa.func.max(trusted_skills.c.trusted_on))
TreeScanner = Callable[[Tree], Sequence[str]]  # returns the texts that a person must see before trusting


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedRootSummary:
    """Everything trusted under one root."""

    root: str
    names: tuple[str, ...]
    trusted_on: datetime
    trusted_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _TrustedSkillState:
    tree_hash: str
    powers: frozenset[str]  # as text


class TrustStore:
    """The store of trust decisions, with a cache per root."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], scan: TreeScanner) -> None:
        self._engine = engine
        self._clock = clock
        self._scan = scan
        self._lock = threading.RLock()
        self._known: dict[str, dict[str, _TrustedSkillState]] = {}
        self._seen: tuple[int, str] = (-1, "")
        self._followed: dict[tuple[str, str, str], str] = {}

    def trust(self, root: str, skills: Mapping[str, Tree], by: str, *, keep_existing: bool = False) -> None:
        """Trust these skills of a root as they are now; with `keep_existing`, earlier trust in the root stays."""
        now = self._clock()
        values = [
            {
                "root": root,
                "name": name,
                "tree_hash": compute_tree_hash(tree),
                "powers": json.dumps(sorted(map(str, list_skill_powers(name, tree))), ensure_ascii=False),
                "trusted_on": now,
                "trusted_by": by,
            }
            for name, tree in skills.items()
        ]
        # The row with an empty name says that the root is trusted even if it has no skills.
        whole = {"root": root, "name": "", "tree_hash": "", "powers": "[]", "trusted_on": now, "trusted_by": by}
        with sql.write_transaction(self._engine, durable=True, lock="trust") as conn:
            # Trust in a project covers its present skills; trusting it again forgets those that are gone.
            gone = trusted_skills.delete().where(trusted_skills.c.root == root)
            if keep_existing or root.startswith(_PER_SKILL_ROOTS):
                gone = gone.where(trusted_skills.c.name.in_([*skills, ""]))
            conn.execute(gone)
            conn.execute(trusted_skills.insert(), [whole, *values])

    def revoke(self, root: str, name: str | None = None) -> bool:
        """Revoke trust in a root or in one skill; False if it was not trusted."""
        query = trusted_skills.delete().where(trusted_skills.c.root == root)
        if name is not None:
            query = query.where(trusted_skills.c.name == name)
        with sql.write_transaction(self._engine, durable=True, lock="trust") as conn:
            return conn.execute(query).rowcount > 0

    def list_trusted_names(self, root: str) -> tuple[str, ...]:
        """Return the trusted names of a root, including those trusted by other processes."""
        return tuple(sorted(name for name in self._read_trusted_skill_states(root) if name))

    def list_trusted_roots(self) -> list[TrustedRootSummary]:
        """Return the trusted roots."""
        query = sa.select(trusted_skills).order_by(trusted_skills.c.root, trusted_skills.c.name)
        found: dict[str, list[sa.RowMapping]] = {}
        with sql.read_transaction(self._engine) as conn:
            for row in conn.execute(query).mappings():
                found.setdefault(row["root"], []).append(row)
        return [
            TrustedRootSummary(
                root=root,
                names=tuple(row["name"] for row in rows if row["name"]),
                trusted_on=max(row["trusted_on"] for row in rows),
                trusted_by=rows[0]["trusted_by"],
            )
            for root, rows in found.items()
            if not root.startswith(_PER_SKILL_ROOTS) or len(rows) > 1
        ]

    def read_revision(self) -> tuple[int, str]:
        """Return a value that changes whenever trust is given or revoked."""
        with sql.read_transaction(self._engine) as conn:
            count, newest = conn.execute(_REVISION_QUERY).one()
        seen = (int(count), str(newest or ""))
        with self._lock:
            if seen != self._seen:
                # Another process may have changed the table, so cached answers are void.
                self._known.clear()
                self._followed.clear()
                self._seen = seen
        return seen

    def explain_distrust(self, root: str, name: str, digest: str, read: Callable[[], Tree]) -> str:
        """Explain why a skill of this root is not trusted as it is now; empty if it is."""
        known = self._get_cached_skill_states(root)
        record = known.get(name)
        if root == APPROVED_ROOT and record is None:
            return f"its code needs review; see 'habitus review trust {name}'"
        if not known:
            return "the project it belongs to is not trusted; see 'habitus review trust'"
        if record is not None and record.tree_hash == digest:
            return ""
        # Judging a change parses and scans the files, so the answer is cached by hash.
        key = (root, name, digest)
        with self._lock:
            if (answer := self._followed.get(key)) is None:
                # Reading the files may find newer trust and clear the cache, so it is not read back from there.
                answer = self._followed[key] = self._explain_distrusted_change(root, name, record, read())
            return answer

    def is_trusted_exactly(self, root: str, name: str, digest: str) -> bool:
        """Whether exactly these files were trusted."""
        record = self._get_cached_skill_states(root).get(name)
        return record is not None and record.tree_hash == digest

    def _explain_distrusted_change(self, root: str, name: str, record: _TrustedSkillState | None, tree: Tree) -> str:
        known = record.powers if record is not None else frozenset()
        new = sorted(text for power in list_skill_powers(name, tree) if (text := str(power)) not in known)
        what = "changed" if record is not None else "new"
        since, hint = "the project was trusted", "habitus review trust"
        if root == APPROVED_ROOT:
            since, hint = "its code was approved", f"habitus review trust {name}"
        if new:
            return f"{what} since {since}, and it {new[0]}; see '{hint}'"
        # New text without new powers keeps its trust, unless a scan finds something.
        findings = self._scan(tree)
        return f"{what} since {since}: {findings[0]}; see '{hint}'" if findings else ""

    def _get_cached_skill_states(self, root: str) -> dict[str, _TrustedSkillState]:
        with self._lock:
            if root not in self._known:
                self._known[root] = self._read_trusted_skill_states(root)
            return self._known[root]

    def _read_trusted_skill_states(self, root: str) -> dict[str, _TrustedSkillState]:
        query = sa.select(trusted_skills).where(trusted_skills.c.root == root)
        with sql.read_transaction(self._engine) as conn:
            return {
                row["name"]: _TrustedSkillState(tree_hash=row["tree_hash"], powers=frozenset(json.loads(row["powers"])))
                for row in conn.execute(query).mappings()
            }


_CODE_ENDINGS = (".py", ".sh", ".bash", ".zsh", ".js", ".ts", ".rb", ".pl", ".ps1", ".exe", ".so", ".bin")


class SkillPowerKind(StrEnum):
    """The kinds of powers, with their texts. Stored trust contains these texts, so they must not change."""

    RUNS = "runs {}"
    USES_TOOL = "may use the tool {}"
    ASKS_VARIABLE = "asks for the variable {}"
    JOINS_SOURCE = "is put into every prompt of source {}"
    JOINS_ALL = "is put into every prompt"
    PUSHES_OUT = "pushes out the skill {}"
    CLAIMS = "claims {}"
    HOOKS = "installs hooks {}"
    NETWORK = "uses the network"
    READS = "reads files in {}"
    WRITES = "writes files in {}"
    UNREADABLE_TOOL = "has a tool.json that can't be read"
    UNREADABLE_PERMISSIONS = "has permissions that can't be read"


@dataclass(frozen=True, slots=True)
class SkillPower:
    """One power of a skill; a script's `detail` holds its hash, so a changed script is a new power."""

    kind: SkillPowerKind
    detail: str = ""

    def __str__(self) -> str:
        return self.kind.value.format(self.detail)


def list_skill_powers(folder: str, tree: Tree) -> frozenset[SkillPower]:
    """Return everything the skill can do beyond being read."""
    skill = trees.parse_skill_tree(folder, tree).skill
    return frozenset(
        [
            *_list_runnable_file_powers(tree),
            *(_list_claimed_powers(skill) if skill is not None else ()),
            *_list_tool_permission_powers(tree),
        ]
    )


def has_callable_code(tree: Tree) -> bool:
    """Whether it contains anything callable: a tool, a command line, or a recipe that runs code."""
    return trees.TOOL_CODE in tree or trees.CLI_CODE in tree or _has_code_running_recipe(tree)


def _has_code_running_recipe(tree: Tree) -> bool:
    file = tree.get(trees.CHUNKS_FILE)
    if file is None or not file.content:
        return False
    from habitus.skills.formats import recipes_md  # the YAML parser is imported only for recipes
    from habitus.skills.formats.foreign_values import DiagnosticCollector

    recipes = recipes_md.parse_recipes(file.content, DiagnosticCollector(trees.CHUNKS_FILE))
    steps = (step for recipe in recipes for steps in (recipe.steps, *recipe.branches.values()) for step in steps)
    return any(step.get("tool") in names.CODE_RUNNERS for step in steps)


def is_code_file(path: str, file: TreeFile) -> bool:
    """Whether a file is executable code, by its mode, folder or extension."""
    return file.executable or path.startswith("scripts/") or path.endswith(_CODE_ENDINGS)


def _list_runnable_file_powers(tree: Tree) -> Iterator[SkillPower]:
    for path, file in tree.items():
        if is_code_file(path, file):
            # With its hash, an edited script is a new power and needs trust again.
            yield SkillPower(SkillPowerKind.RUNS, f"{path} ({file.sha256[:16]})")
    if _has_code_running_recipe(tree):
        yield SkillPower(SkillPowerKind.RUNS, f"{trees.CHUNKS_FILE} ({tree[trees.CHUNKS_FILE].sha256[:16]})")


def _list_claimed_powers(skill: Skill) -> Iterator[SkillPower]:
    manifest = skill.manifest
    for tool in skill.allowed_tools.replace(",", " ").split():
        yield SkillPower(SkillPowerKind.USES_TOOL, tool)
    for spec in manifest.env:
        yield SkillPower(SkillPowerKind.ASKS_VARIABLE, str(spec.get("var", "?")))
    for source in manifest.source_types:
        yield SkillPower(SkillPowerKind.JOINS_SOURCE, source)
    for name in manifest.exclude_skills:
        yield SkillPower(SkillPowerKind.PUSHES_OUT, name)
    if manifest.always_include:
        yield SkillPower(SkillPowerKind.JOINS_ALL)
    for name, value in manifest.claims.items():
        if name not in _SEPARATE_CLAIMS:
            parts = value if isinstance(value, tuple) else [value]
            yield from (SkillPower(SkillPowerKind.CLAIMS, name if part is True else f"{name} {part}") for part in parts)
    if "hooks" in skill.extra:
        yield SkillPower(SkillPowerKind.HOOKS, json.dumps(skill.extra["hooks"], sort_keys=True, default=str)[:80])


_SEPARATE_CLAIMS = ("env", "source_types", "exclude_skills", "always_include")  # these have power kinds of their own
_PERMISSION_KINDS = {"read": SkillPowerKind.READS, "write": SkillPowerKind.WRITES, "env": SkillPowerKind.ASKS_VARIABLE}


def _list_tool_permission_powers(tree: Tree) -> Iterator[SkillPower]:
    file = tree.get(trees.TOOL_FILE)
    if file is None or file.content is None:
        return
    try:
        asked = json.loads(file.content).get("permissions", {})
    except (ValueError, AttributeError, RecursionError):
        yield SkillPower(SkillPowerKind.UNREADABLE_TOOL)
        return
    if not isinstance(asked, dict):
        yield SkillPower(SkillPowerKind.UNREADABLE_PERMISSIONS)
        return
    if asked.get("network"):
        yield SkillPower(SkillPowerKind.NETWORK)
    for key, kind in _PERMISSION_KINDS.items():
        values = asked.get(key)
        for value in values if isinstance(values, list) else ():
            yield SkillPower(kind, str(value))


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOrigin:
    """Where a skill was imported from, with the hashes of its files as fetched and as saved."""

    origin: str  # as text
    source_hash: str
    written_hash: str
    imported_on: datetime
    is_finished: bool  # whether counters and switches were taken over
    location: str = ""  # exact location; empty for old imports


def read_import_origins(engine: sa.Engine, layer: str, names: Collection[str] | None = None) -> dict[str, ImportOrigin]:
    """Return the origins of a layer's imported skills by name, of all or only some names."""
    query = sa.select(imports).where(imports.c.layer == layer)
    if names is not None:
        query = query.where(imports.c.name.in_(list(names)))
    with sql.read_transaction(engine) as conn:
        return {
            row["name"]: ImportOrigin(**{name: row[name] for name in _ORIGIN_COLUMNS}, location=row["place"])
            for row in conn.execute(query).mappings()
        }


_ORIGIN_COLUMNS = ("origin", "source_hash", "written_hash", "imported_on", "is_finished")


class OutsideContentPolicy:
    """Decides whether content from outside is trusted and which claims it may make; `engine` records the imports."""

    def __init__(self, trust: TrustStore, engine: sa.Engine) -> None:
        self._trust = trust
        self._engine = engine
        self._layers: dict[str, frozenset[str]] | None = None  # the layers that each name was imported to
        self._mark: int | None = None

    def refresh_import_records(self, names: Collection[str] | None) -> frozenset[str]:
        """Read the import records again, of these names or all; return the names whose imports changed."""
        with sql.read_transaction(self._engine) as conn:
            # The sequence changes with every import, so an equal mark means that only `names` need reading.
            mark = conn.execute(_IMPORTS_MARK_QUERY).scalar() or 0
            is_same = mark == self._mark and self._layers is not None
            wanted = names if is_same else None
            now = _read_layers_by_imported_name(conn, wanted)
        known, self._mark = self._layers or {}, mark
        before = known if wanted is None else {name: known[name] for name in wanted if name in known}
        changed = frozenset(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed or self._layers is None:
            self._layers = {name: layers for name, layers in known.items() if name not in changed} | now
        return changed

    def explain_distrust(self, layer: Layer, name: str, digest: str) -> str:
        """Explain why a project's skill may not be used at all; empty if it may."""
        if not layer.trust_root:
            return ""
        return self._trust.explain_distrust(layer.trust_root, name, digest, lambda: layer.store.read_tree(name) or {})

    def drop_untrusted_claims(self, layer: Layer, summary: AnySkill, tree_hash: str) -> AnySkill:
        """Return the summary that takes effect: without claims unless a person trusts the skill as it is."""
        if self._is_imported(layer, summary.name):
            summary = replace(summary, source=SkillSource.IMPORTED)
        if not summary.manifest.claims or self.is_trusted(layer, summary.name, tree_hash):
            return summary
        return replace(summary, manifest=summary.manifest.without_claims())

    def is_trusted(self, layer: Layer, name: str, tree_hash: str) -> bool:
        """Whether it is the user's own skill, or trusted as it is."""
        if not layer.claims_root and self._is_imported(layer, name):
            return self._trust.is_trusted_exactly(IMPORTED_ROOT, name, tree_hash)
        root = layer.trust_root or layer.claims_root
        if not root:
            return True
        return not self._trust.explain_distrust(root, name, tree_hash, lambda: layer.store.read_tree(name) or {})

    def find_untrusted_origin(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Return the origin of an imported skill that is not trusted as it is; empty for the others."""
        if not self._is_imported(layer, name) or self.is_trusted(layer, name, tree_hash):
            return ""
        # Another process may have deleted the record since; then the skill was written here.
        known = read_import_origins(self._engine, layer.name, [name]).get(name)
        return "" if known is None else known.origin

    def delete_import_record(self, layer: Layer, name: str) -> None:
        """Delete the import record of a name that now belongs to a skill written here."""
        with sql.write_transaction(self._engine) as conn:
            mine = imports.delete().where(imports.c.layer == layer.name, imports.c.name == name)
            if conn.execute(mine).rowcount:
                mark_imports_changed(conn)

    def _is_imported(self, layer: Layer, name: str) -> bool:
        if self._layers is None:
            with sql.read_transaction(self._engine) as conn:
                self._layers = _read_layers_by_imported_name(conn, None)
        return layer.name in self._layers.get(name, ())


_IMPORTS_SEQUENCE = "skill_imports"
_IMPORTS_MARK_QUERY = sa.select(sequences.c.value).where(sequences.c.name == _IMPORTS_SEQUENCE)


def mark_imports_changed(conn: sa.Connection) -> None:
    """Mark the import records as changed; without the mark every reader would reload all of them each time."""
    increment_sequence(conn, _IMPORTS_SEQUENCE)


def _read_layers_by_imported_name(conn: sa.Connection, names: Collection[str] | None) -> dict[str, frozenset[str]]:
    """Return the layers that each name was imported to."""
    query = sa.select(imports.c.name, imports.c.layer)
    found = defaultdict[str, set[str]](set)
    for name, layer in conn.execute(query if names is None else query.where(imports.c.name.in_(list(names)))):
        found[name].add(layer)
    return {name: frozenset(layers) for name, layers in found.items()}
