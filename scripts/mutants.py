"""`make mutants`: whether the tests of a module notice when it does something else.

A mutant is the module with one thing changed: a comparison, an `and` or `or`, a `not`, a number or a returned value. It
lives in a forked process, where an import hook compiles the changed source; no file is written. A mutant survives when
all tests of its module pass. Prints the survivors and exits with 1 where more than 15 % of a module's survive.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.machinery
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src/habitus"
SEED = "habitus"
PER_MODULE = 60
MOST_SURVIVORS = 0.15

TESTS: dict[str, tuple[str, ...]] = {
    "learning/remedies/alignment.py": ("tests/learning/test_alignment.py", "tests/learning/test_remedies.py"),
    "learning/remedies/replacements.py": ("tests/learning/test_alignment.py", "tests/learning/test_remedies.py"),
    "improve/gate.py": ("tests/improve/test_gate.py",),
    "improve/exam.py": ("tests/improve/test_gate.py",),
    "skills/lifecycle.py": ("tests/skills/test_lifecycle.py", "tests/skills/test_gates.py"),
    "skills/choosing/selection.py": ("tests/skills/test_selection.py",),
    "sandbox/credentials/grants.py": ("tests/sandbox/credentials/test_grants.py",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Equivalent:
    """Mutants that no test can tell from the original."""

    module: str
    source: str  # the line without its indentation
    after: tuple[str, ...]  # what the changed expression became
    reason: str


_LIFECYCLE, _GRANTS, _GATE = "skills/lifecycle.py", "sandbox/credentials/grants.py", "improve/gate.py"
EQUIVALENT = (
    Equivalent(
        module=_LIFECYCLE,
        source="low, high = 0.0, 1.0",
        after=("-1.0", "2.0"),
        reason="bisection finds the same number in a wider interval",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="for _ in range(50):",
        after=("49", "51"),
        reason="another halving changes the sixteenth digit",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="if _compute_beta_cdf(a, b, middle) < _LOWER_BOUND:",
        after=("_compute_beta_cdf(a, b, middle) <= _LOWER_BOUND",),
        reason="no number lies exactly on the bound",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="for m in range(1, 300):",
        after=("299", "301"),
        reason="it has converged long before",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="d = 1.0 / (d if abs(d) > tiny else tiny)",
        after=("abs(d) >= tiny",),
        reason="no number is exactly as tiny",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="c = c if abs(c) > tiny else tiny",
        after=("abs(c) >= tiny",),
        reason="no number is exactly as tiny",
    ),
    Equivalent(
        module=_LIFECYCLE,
        source="if abs(d * c - 1.0) < 1e-12:",
        after=("2.0", "0.0"),
        reason="it only stops later, with the same number",
    ),
    Equivalent(
        module=_GRANTS,
        source='sa.Column("kind", sa.String(16), primary_key=True),',
        after=("15", "17"),
        reason="a migration makes the table",
    ),
    Equivalent(
        module=_GRANTS,
        source='sa.Column("content_hash", sa.String(64), nullable=False),',
        after=("63", "65"),
        reason="a migration makes the table",
    ),
    Equivalent(
        module=_GATE,
        source=(
            "return bool(np.log1p(_MAX_STAKE * (tally.means + MARGIN)).sum() >= "
            "_compute_log_evidence_threshold(self.error))"
        ),
        after=("np.log1p(_MAX_STAKE * (tally.means + MARGIN)).sum() > _compute_log_evidence_threshold(self.error)",),
        reason="no sum of logarithms lies exactly on the threshold",
    ),
    Equivalent(
        module=_GATE,
        source="return self.compute_log_evidence(tally) >= _compute_log_evidence_threshold(self.error)",
        after=("self.compute_log_evidence(tally) > _compute_log_evidence_threshold(self.error)",),
        reason="no sum of logarithms lies exactly on the threshold",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One change of a module."""

    module: str
    line: int
    column: int
    source: str  # the line as it stands
    operator: str
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"src/habitus/{self.module}:{self.line}:{self.column} {self.operator}: {self.before} -> {self.after}"

    @property
    def is_equivalent(self) -> bool:
        return any(
            (one.module, one.source) == (self.module, self.source) and self.after in one.after for one in EQUIVALENT
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="parts of module paths, e.g. gate.py; all of them by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants are tested at a time")
    options = parser.parse_args(arguments)
    modules = [one for one in TESTS if not options.modules or any(part in one for part in options.modules)]
    _import_what_no_mutant_changes()
    shares = [survival_share(module, options.jobs) for module in modules]
    return int(any(share > MOST_SURVIVORS for share in shares))


def _import_what_no_mutant_changes() -> None:
    """Import before forking what the tests need, unless it imports a module that is mutated: most of their time."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "modules"
        script = f"import sys, pytest; pytest.main(['--collect-only', '-qq', *{sum(TESTS.values(), ())}]);"
        script += f"open({str(listing)!r}, 'w').write(' '.join(sys.modules))"
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        needed = listing.read_text().split()
    blocked = dict.fromkeys(map(_dotted, TESTS))
    sys.modules.update(blocked)  # type: ignore[arg-type]  # None makes an import fail
    for name in needed:
        if name.partition(".")[0] not in ("tests", "__main__"):
            with contextlib.suppress(ImportError, AttributeError):
                importlib.import_module(name)
    for name in blocked:
        del sys.modules[name]


def _dotted(module: str) -> str:
    return "habitus." + module.removesuffix(".py").replace("/", ".")


def survival_share(module: str, jobs: int) -> float:
    """Test the sampled mutants of a module and print the survivors. Returns their share."""
    started = time.monotonic()
    if not passes_tests(module, None, timeout=900):
        sys.exit(f"The tests of {module} fail without any mutant: {' '.join(TESTS[module])}")
    timeout = 30 + 5 * (time.monotonic() - started)  # a mutant may loop for ever
    mutants = sample(module)
    with ThreadPoolExecutor(jobs) as pool:
        survived = list(pool.map(lambda mutant: passes_tests(module, mutant, timeout), mutants))
    survivors = [mutant for mutant, alive in zip(mutants, survived, strict=True) if alive]
    share = len(survivors) / max(len(mutants), 1)
    print(f"{module}: {len(survivors)} of {len(mutants)} survive ({share:.0%})")
    for mutant in sorted(survivors, key=lambda mutant: (mutant.line, mutant.column)):
        print(f"  {mutant}")
    sys.stdout.flush()
    return share


def sample(module: str) -> list[Mutant]:
    """The mutants with the smallest hashes: the same ones every time, and mostly the same after an edit elsewhere."""
    mutants = [mutant for mutant in all_mutants(module) if not mutant.is_equivalent]
    return sorted(mutants, key=lambda one: _hash(f"{SEED} {one.source} {one.before} {one.after}"))[:PER_MODULE]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def all_mutants(module: str) -> Iterator[Mutant]:
    text = (SOURCES / module).read_text()
    lines = text.splitlines()
    for index, _ in enumerate(_changes(ast.parse(text))):
        tree = ast.parse(text)  # a tree of its own, changed in place
        change = next(change for number, change in enumerate(_changes(tree)) if number == index)
        before = ast.unparse(change.old)
        change.apply()
        yield Mutant(
            module=module,
            line=change.old.lineno,
            column=change.old.col_offset + 1,
            source=lines[change.old.lineno - 1].strip(),
            operator=change.operator,
            before=before,
            after=ast.unparse(change.new),
            tree=ast.fix_missing_locations(tree),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """An expression of a tree and what is to stand in its place."""

    operator: str
    parent: ast.AST
    field: str
    old: ast.expr
    new: ast.expr

    def apply(self) -> None:
        ast.copy_location(self.new, self.old)
        held = getattr(self.parent, self.field)
        if isinstance(held, list):
            held[held.index(self.old)] = self.new
        else:
            setattr(self.parent, self.field, self.new)


def _changes(tree: ast.AST) -> Iterator[_Change]:
    """Every change of a tree, in the order of its source."""
    for name, held in ast.iter_fields(tree):
        if name in ("annotation", "returns") or _is_for_types_only(tree):
            continue  # never evaluated
        for node in held if isinstance(held, list) else [held]:
            if isinstance(node, ast.expr):
                for operator, new in _replacements(tree, name, node):
                    yield _Change(operator=operator, parent=tree, field=name, old=node, new=new)
            if isinstance(node, ast.AST):
                yield from _changes(node)


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _replacements(parent: ast.AST, field: str, node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in _OTHER_COMPARISONS:
            yield "comparison", ast.Compare(left=left, ops=[_OTHER_COMPARISONS[type(op)]()], comparators=comparators)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.BoolOp(op=ast.Or() if isinstance(op, ast.And) else ast.And(), values=values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            yield "constant", ast.Constant(value=number + 1)
            yield "constant", ast.Constant(value=number - 1)
    is_condition = field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs")
    if is_condition and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield "not", ast.UnaryOp(op=ast.Not(), operand=node)
    if isinstance(parent, ast.Return):
        yield "return value", _other_value(node)


_OTHER_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def _other_value(node: ast.expr) -> ast.expr:
    match node:
        case ast.Constant(value=None):
            return ast.Constant(value=True)
        case ast.Constant(value=bool() as flag):
            return ast.Constant(value=not flag)
        case ast.Constant(value=str() as text):
            return ast.Constant(value=f"{text}?")
    return ast.Constant(value=None)


_PYTEST_BROKEN = 3  # or more: pytest itself failed, or found no tests


def passes_tests(module: str, mutant: Mutant | None, timeout: float) -> bool:
    """Run the module's tests in a forked process, with the mutant in its place. One that takes too long fails."""
    child = os.fork()
    if child == 0:
        try:
            code = _run_tests(module, mutant)
        except BaseException:
            code = _PYTEST_BROKEN
        os._exit(code)
    code = _wait(child, time.monotonic() + timeout)
    if code >= _PYTEST_BROKEN:
        sys.exit(f"pytest ended with {code} for {mutant or module}")
    return code == 0


def _wait(child: int, deadline: float) -> int:
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_tests(module: str, mutant: Mutant | None) -> int:
    import pytest

    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(ROOT)
    if mutant is not None:
        sys.meta_path.insert(0, _MutantFinder(mutant))
    options = ["-x", "-q", "-m", "not full", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # about what was imported before
    return int(pytest.main([*options, *TESTS[module]]))


class _MutantFinder(importlib.machinery.PathFinder):
    """Finds the mutated module, and nothing else."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = _dotted(mutant.module)

    def find_spec(  # type: ignore[override]  # PathFinder's is a class method, and this one has a mutant
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        file = str(SOURCES / self._mutant.module)
        return importlib.machinery.ModuleSpec(fullname, _MutantLoader(fullname, file, self._mutant), origin=file)


class _MutantLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compiled from the changed tree, past the cache of bytecode."""
        return compile(self._mutant.tree, self.path, "exec", dont_inherit=True)


if __name__ == "__main__":
    sys.exit(main())
