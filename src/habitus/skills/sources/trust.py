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
from habitus.files import File, Tree, tree_hash
from habitus.skills import names, trees
from habitus.skills.layers.layer import Layer
from habitus.skills.model import Skill, Source
from habitus.skills.stores.ledger import count_up
from habitus.skills.stores.tables import imports, sequences, trusted
from habitus.skills.trees import AnySkill

IMPORTED = "imported"  # root for imported skills, trusted one by one
APPROVED = "approved"  # root for the code of the user's own skills, approved one by one
PACKAGES = "packages for "  # prefix of the roots for a project's packages, allowed one by one
_ONE_BY_ONE = (IMPORTED, APPROVED, PACKAGES)
_REVISION = sa.select(sa.func.count(), sa.func.max(trusted.c.trusted_on))
Scan = Callable[[Tree], Sequence[str]]  # returns the texts that a person must see before trusting


@dataclass(frozen=True, kw_only=True, slots=True)
class Trusted:
    """Everything trusted under one root."""

    root: str
    names: tuple[str, ...]
    trusted_on: datetime
    trusted_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Record:
    tree_hash: str
    powers: frozenset[str]  # as text


class Trust:
    """The store of trust decisions, with a cache per root."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], scan: Scan) -> None:
        self._engine = engine
        self._clock = clock
        self._scan = scan
        self._lock = threading.RLock()
        self._known: dict[str, dict[str, _Record]] = {}
        self._seen: tuple[int, str] = (-1, "")
        self._followed: dict[tuple[str, str, str], str] = {}

    def trust(self, root: str, skills: Mapping[str, Tree], by: str, *, adds: bool = False) -> None:
        """Trust these skills of a root as they are now; with `keep_existing`, earlier trust in the root stays."""
        now = self._clock()
        values = [
            {
                "root": root,
                "name": name,
                "tree_hash": tree_hash(tree),
                "powers": json.dumps(sorted(map(str, powers(name, tree))), ensure_ascii=False),
                "trusted_on": now,
                "trusted_by": by,
            }
            for name, tree in skills.items()
        ]
        # The row with an empty name says that the root is trusted even if it has no skills.
        whole = {"root": root, "name": "", "tree_hash": "", "powers": "[]", "trusted_on": now, "trusted_by": by}
        with sql.writing(self._engine, durable=True, lock="trust") as connection:
            # Trust in a project covers its present skills; trusting it again forgets those that are gone.
            if adds or root.startswith(_ONE_BY_ONE):
                gone = trusted.delete().where(trusted.c.root == root, trusted.c.name.in_([*skills, ""]))
            else:
                gone = trusted.delete().where(trusted.c.root == root)
            connection.execute(gone)
            connection.execute(trusted.insert(), [whole, *values])

    def revoke(self, root: str, name: str | None = None) -> bool:
        """Revoke trust in a root or in one skill; False if it was not trusted."""
        query = trusted.delete().where(trusted.c.root == root)
        if name is not None:
            query = query.where(trusted.c.name == name)
        with sql.writing(self._engine, durable=True, lock="trust") as connection:
            return connection.execute(query).rowcount > 0

    def names(self, root: str) -> tuple[str, ...]:
        """Return the trusted names of a root, including those trusted by other processes."""
        return tuple(sorted(name for name in self._read(root) if name))

    def list(self) -> list[Trusted]:
        """Return the trusted roots."""
        query = sa.select(trusted).order_by(trusted.c.root, trusted.c.name)
        found: dict[str, list[sa.RowMapping]] = {}
        with sql.reading(self._engine) as connection:
            for row in connection.execute(query).mappings():
                found.setdefault(row["root"], []).append(row)
        return [
            Trusted(
                root=root,
                names=tuple(row["name"] for row in rows if row["name"]),
                trusted_on=max(row["trusted_on"] for row in rows),
                trusted_by=rows[0]["trusted_by"],
            )
            for root, rows in found.items()
            if not root.startswith(_ONE_BY_ONE) or len(rows) > 1
        ]

    def revision(self) -> tuple[int, str]:
        """Return a value that changes whenever trust is given or revoked."""
        with sql.reading(self._engine) as connection:
            count, newest = connection.execute(_REVISION).one()
        seen = (int(count), str(newest or ""))
        with self._lock:
            if seen != self._seen:
                # Another process may have changed the table, so cached answers are void.
                self._known.clear()
                self._followed.clear()
                self._seen = seen
        return seen

    def objection(self, root: str, name: str, digest: str, read: Callable[[], Tree]) -> str:
        """Explain why a skill of this root is not trusted as it is now; empty if it is."""
        known = self._records(root)
        record = known.get(name)
        if root == APPROVED and record is None:
            return f"nobody has approved its code; see 'habitus trust {name}'"
        if not known:
            return "the project it belongs to is not trusted; see 'habitus trust'"
        if record is not None and record.tree_hash == digest:
            return ""
        # Judging a change parses and scans the files, so the answer is cached by hash.
        key = (root, name, digest)
        with self._lock:
            if key not in self._followed:
                self._followed[key] = self._objection_to_change(root, name, record, read())
            return self._followed[key]

    def is_trusted_as_it_is(self, root: str, name: str, digest: str) -> bool:
        """Whether exactly these files were trusted."""
        record = self._records(root).get(name)
        return record is not None and record.tree_hash == digest

    def _objection_to_change(self, root: str, name: str, record: _Record | None, tree: Tree) -> str:
        known = record.powers if record is not None else frozenset()
        new = sorted(text for power in powers(name, tree) if (text := str(power)) not in known)
        what = "changed" if record is not None else "new"
        since, hint = "the project was trusted", "habitus trust"
        if root == APPROVED:
            since, hint = "its code was approved", f"habitus trust {name}"
        if new:
            return f"{what} since {since}, and it {new[0]}; see '{hint}'"
        # New text without new powers keeps its trust, unless a scan finds something.
        findings = self._scan(tree)
        return f"{what} since {since}: {findings[0]}; see '{hint}'" if findings else ""

    def _records(self, root: str) -> dict[str, _Record]:
        with self._lock:
            if root not in self._known:
                self._known[root] = self._read(root)
            return self._known[root]

    def _read(self, root: str) -> dict[str, _Record]:
        query = sa.select(trusted).where(trusted.c.root == root)
        with sql.reading(self._engine) as connection:
            return {
                row["name"]: _Record(tree_hash=row["tree_hash"], powers=frozenset(json.loads(row["powers"])))
                for row in connection.execute(query).mappings()
            }


_CODE_ENDINGS = (".py", ".sh", ".bash", ".zsh", ".js", ".ts", ".rb", ".pl", ".ps1", ".exe", ".so", ".bin")


class PowerKind(StrEnum):
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
class Power:
    """One power of a skill; a script's `detail` holds its hash, so a changed script is a new power."""

    kind: PowerKind
    what: str = ""

    def __str__(self) -> str:
        return self.kind.value.format(self.what)


def powers(folder: str, tree: Tree) -> frozenset[Power]:
    """Return everything the skill can do beyond being read."""
    skill = trees.parse(folder, tree).skill
    return frozenset([*_code(tree), *(_rights(skill) if skill is not None else ()), *_permissions(tree)])


def brings_code(tree: Tree) -> bool:
    """Whether it contains anything callable: a tool, a command line, or a recipe that runs code."""
    return trees.TOOL_CODE in tree or trees.CLI_CODE in tree or _has_running_recipe(tree)


def _has_running_recipe(tree: Tree) -> bool:
    file = tree.get(trees.CHUNKS_FILE)
    if file is None or not file.content:
        return False
    from habitus.skills.formats import recipes_md  # the YAML parser is imported only for recipes
    from habitus.skills.formats.foreign_values import Notes

    recipes = recipes_md.parse(file.content, Notes(trees.CHUNKS_FILE))
    steps = (step for recipe in recipes for steps in (recipe.steps, *recipe.branches.values()) for step in steps)
    return any(step.get("tool") in names.CODE_RUNNERS for step in steps)


def is_code(path: str, file: File) -> bool:
    """Whether a file is executable code, by its mode, folder or extension."""
    return file.executable or path.startswith("scripts/") or path.endswith(_CODE_ENDINGS)


def _code(tree: Tree) -> Iterator[Power]:
    for path, file in tree.items():
        if is_code(path, file):
            # With its hash, an edited script is a new power and needs trust again.
            yield Power(PowerKind.RUNS, f"{path} ({file.sha256[:16]})")
    if _has_running_recipe(tree):
        yield Power(PowerKind.RUNS, f"{trees.CHUNKS_FILE} ({tree[trees.CHUNKS_FILE].sha256[:16]})")


def _rights(skill: Skill) -> Iterator[Power]:
    manifest = skill.manifest
    for tool in skill.allowed_tools.replace(",", " ").split():
        yield Power(PowerKind.USES_TOOL, tool)
    for spec in manifest.env:
        yield Power(PowerKind.ASKS_VARIABLE, str(spec.get("var", "?")))
    for source in manifest.source_types:
        yield Power(PowerKind.JOINS_SOURCE, source)
    for name in manifest.exclude_skills:
        yield Power(PowerKind.PUSHES_OUT, name)
    if manifest.always_include:
        yield Power(PowerKind.JOINS_ALL)
    for name, value in manifest.claims.items():
        if name not in _NAMED:
            parts = value if isinstance(value, tuple) else [value]
            yield from (Power(PowerKind.CLAIMS, name if part is True else f"{name} {part}") for part in parts)
    if "hooks" in skill.extra:
        yield Power(PowerKind.HOOKS, json.dumps(skill.extra["hooks"], sort_keys=True, default=str)[:80])


_NAMED = ("env", "source_types", "exclude_skills", "always_include")  # these have power kinds of their own
_ASKED = {"read": PowerKind.READS, "write": PowerKind.WRITES, "env": PowerKind.ASKS_VARIABLE}


def _permissions(tree: Tree) -> Iterator[Power]:
    file = tree.get(trees.TOOL_FILE)
    if file is None or file.content is None:
        return
    try:
        asked = json.loads(file.content).get("permissions", {})
    except (ValueError, AttributeError, RecursionError):
        yield Power(PowerKind.UNREADABLE_TOOL)
        return
    if not isinstance(asked, dict):
        yield Power(PowerKind.UNREADABLE_PERMISSIONS)
        return
    if asked.get("network"):
        yield Power(PowerKind.NETWORK)
    for key, kind in _ASKED.items():
        values = asked.get(key)
        for value in values if isinstance(values, list) else ():
            yield Power(kind, str(value))


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a skill was imported from, with the hashes of its files as fetched and as saved."""

    origin: str  # as text
    source_hash: str
    written_hash: str
    imported_on: datetime
    is_finished: bool  # whether counters and switches were taken over
    place: str = ""  # exact location; empty for old imports


def origins(engine: sa.Engine, layer: str, names: Collection[str] | None = None) -> dict[str, Origin]:
    """Return the origins of a layer's imported skills by name, of all or only some names."""
    query = sa.select(imports).where(imports.c.layer == layer)
    if names is not None:
        query = query.where(imports.c.name.in_(list(names)))
    with sql.reading(engine) as connection:
        return {
            row["name"]: Origin(
                origin=row["origin"],
                source_hash=row["source_hash"],
                written_hash=row["written_hash"],
                imported_on=row["imported_on"],
                is_finished=row["is_finished"],
                place=row["place"],
            )
            for row in connection.execute(query).mappings()
        }


class OutsideContent:
    """Decides whether content from outside is trusted and which claims it may make; `engine` records the imports."""

    def __init__(self, trust: Trust, engine: sa.Engine) -> None:
        self._trust = trust
        self._engine = engine
        self._layers: dict[str, frozenset[str]] | None = None  # the layers that each name was imported to
        self._mark: int | None = None

    def look(self, names: Collection[str] | None) -> frozenset[str]:
        """Read the import records again, of these names or all; return the names whose imports changed."""
        with sql.reading(self._engine) as connection:
            # The sequence changes with every import, so an equal mark means that only `names` need reading.
            mark = connection.execute(_MARK).scalar() or 0
            is_same = mark == self._mark and self._layers is not None
            wanted = names if is_same else None
            now = _layers_of(connection, wanted)
        known, self._mark = self._layers or {}, mark
        before = known if wanted is None else {name: known[name] for name in wanted if name in known}
        changed = frozenset(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if changed or self._layers is None:
            self._layers = {name: layers for name, layers in known.items() if name not in changed} | now
        return changed

    def objection(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Explain why a project's skill may not be used at all; empty if it may."""
        if not layer.trust_root:
            return ""
        return self._trust.objection(layer.trust_root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def apply_trust(self, layer: Layer, summary: AnySkill, tree_hash: str) -> AnySkill:
        """Return the summary that takes effect: without claims unless a person trusts the skill as it is."""
        if self._is_imported(layer, summary.name):
            summary = replace(summary, source=Source.IMPORTED)
        if not summary.manifest.claims or self.is_trusted(layer, summary.name, tree_hash):
            return summary
        return replace(summary, manifest=summary.manifest.without_force())

    def is_trusted(self, layer: Layer, name: str, tree_hash: str) -> bool:
        """Whether it is the user's own skill, or trusted as it is."""
        if not layer.claims_root and self._is_imported(layer, name):
            return self._trust.is_trusted_as_it_is(IMPORTED, name, tree_hash)
        root = layer.trust_root or layer.claims_root
        if not root:
            return True
        return not self._trust.objection(root, name, tree_hash, lambda: layer.store.tree(name) or {})

    def origin(self, layer: Layer, name: str, tree_hash: str) -> str:
        """Return the origin of an imported skill that is not trusted as it is; empty for the others."""
        if not self._is_imported(layer, name) or self.is_trusted(layer, name, tree_hash):
            return ""
        return origins(self._engine, layer.name, [name])[name].origin

    def forget(self, layer: Layer, name: str) -> None:
        """Delete the import record of a name that now belongs to a skill written here."""
        with sql.writing(self._engine) as connection:
            mine = imports.delete().where(imports.c.layer == layer.name, imports.c.name == name)
            if connection.execute(mine).rowcount:
                imports_changed(connection)

    def _is_imported(self, layer: Layer, name: str) -> bool:
        if self._layers is None:
            with sql.reading(self._engine) as connection:
                self._layers = _layers_of(connection, None)
        return layer.name in self._layers.get(name, ())


_IMPORTS = "skill_imports"
_MARK = sa.select(sequences.c.value).where(sequences.c.name == _IMPORTS)


def imports_changed(connection: sa.Connection) -> None:
    """Mark the import records as changed; without the mark every reader would reload all of them each time."""
    count_up(connection, _IMPORTS)


def _layers_of(connection: sa.Connection, names: Collection[str] | None) -> dict[str, frozenset[str]]:
    """Return the layers that each name was imported to."""
    query = sa.select(imports.c.name, imports.c.layer)
    found = defaultdict[str, set[str]](set)
    for name, layer in connection.execute(query if names is None else query.where(imports.c.name.in_(list(names)))):
        found[name].add(layer)
    return {name: frozenset(layers) for name, layers in found.items()}
