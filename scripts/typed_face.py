"""Write src/habitus/__init__.pyi from the code: the public names for type checkers, without what lies behind them.

A checker that reads the modules themselves reads all of Habitus and the libraries it uses, which takes a minute. Here
a public class is what its source says of it; a type that is not public is Any.

`typed_face.py` writes the file; `typed_face.py --check` only says whether it is out of date, and exits 1 when it is.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import habitus

FACE = Path(habitus.__file__).with_suffix(".pyi")
HEAD = '"""Written by scripts/typed_face.py; change the code, then run `make docs`."""\n'
DUNDERS = ("__init__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__len__", "__call__")
HOMES = {name: home for home, names in habitus._HOMES.items() for name in names}


class Module:
    """The source of a module: its definitions, and where its other names come from."""

    def __init__(self, name: str) -> None:
        file = importlib.import_module(name).__file__
        assert file is not None
        self.defined: dict[str, ast.stmt] = {}
        self.imported: dict[str, tuple[str, str]] = {}  # name → module and name there; a module has no name there
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imported |= {one.asname or one.name: (node.module, one.name) for one in node.names}
            elif isinstance(node, ast.Import):
                self.imported |= {one.asname or one.name: (one.name, "") for one in node.names}
        for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.defined[node.targets[0].id] = node


class Face:
    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}
        self.imports: set[tuple[str, str]] = {("typing", "Any")}

    def text(self) -> str:
        parts = [self._definition(name) for name in sorted(HOMES, key=self._order)]
        whole = [f"import {module}" for module, name in sorted(self.imports) if not name]
        modules = sorted({module for module, name in self.imports if name})
        taken = [(one, sorted(name for module, name in self.imports if module == one)) for one in modules]
        imports = [*whole, *(f"from {module} import {', '.join(names)}" for module, names in taken)]
        names = ", ".join(f'"{name}"' for name in sorted(HOMES))
        return _formatted(
            "\n".join([HEAD, *imports, "", f"__all__ = [{names}]", "_HOMES: dict[str, tuple[str, ...]]", *parts])
        )

    def _order(self, name: str) -> tuple[int, str]:
        """Bases before what is made of them."""
        found, _ = self.find(HOMES[name], name)
        bases = found.bases if isinstance(found, ast.ClassDef) else []
        public = [base.id for base in bases if isinstance(base, ast.Name) and base.id in HOMES]
        return (1 + max(self._order(base)[0] for base in public) if public else 0, name)

    def module(self, name: str) -> Module:
        if name not in self.modules:
            self.modules[name] = Module(name)
        return self.modules[name]

    def find(self, module: str, name: str) -> tuple[ast.stmt | None, str]:
        """The definition of a name and the module that has it, wherever it is imported from."""
        here = self.module(module)
        if name in here.defined:
            return here.defined[name], module
        home, original = here.imported.get(name, ("", ""))
        return self.find(home, original) if home.startswith("habitus") and original else (None, home)

    def _definition(self, name: str) -> str:
        node, module = self.find(HOMES[name], name)
        if isinstance(node, ast.ClassDef):
            return self._class(node, module)
        assert isinstance(node, ast.FunctionDef), name
        return ast.unparse(self._function(node, module))

    def _class(self, node: ast.ClassDef, module: str) -> str:
        body: dict[str, ast.stmt] = {}
        bases = [ast.unparse(base) for base in self._bases(node, module)]
        is_model = any(
            base.name == "BaseModel" for base, _ in self._family(node, module) if isinstance(base, ast.alias)
        )
        for owner, home in self._family(node, module):
            if isinstance(owner, ast.ClassDef) and (owner is node or owner.name not in HOMES):
                is_enum = any("Enum" in ast.unparse(base) for base in owner.bases)
                for name, member in self._members(owner, home, is_enum=is_enum):
                    body.setdefault(name, member)
        if is_model:
            body = {"__init__": _parsed("def __init__(self, **values: Any) -> None: ..."), **body}
            body["model_copy"] = _parsed("def model_copy(self, *, update: Any = ..., deep: bool = ...) -> Self: ...")
            self.imports.add(("typing", "Self"))
        decorators = [self._expression(one, module) for one in node.decorator_list]
        made = ast.ClassDef(
            name=node.name,
            bases=[ast.parse(base, mode="eval").body for base in bases],
            keywords=[],
            body=list(body.values()) or [ast.Expr(ast.Constant(...))],
            decorator_list=decorators,
        )
        return ast.unparse(ast.fix_missing_locations(made)) + "\n"

    def _family(self, node: ast.ClassDef, module: str) -> Iterator[tuple[ast.ClassDef | ast.alias, str]]:
        """A class and those it is made of; one of a library stands there by its name."""
        yield node, module
        for base in node.bases:
            root = base.value if isinstance(base, ast.Subscript) else base
            name = root.id if isinstance(root, ast.Name) else ""
            found, home = self.find(module, name) if name else (None, "")
            if isinstance(found, ast.ClassDef):
                yield from self._family(found, home)
            elif name:
                yield ast.alias(name=name), home

    def _bases(self, node: ast.ClassDef, module: str) -> list[ast.expr]:
        bases = [self._expression(base, module) for base in node.bases]
        return [base for base in bases if ast.unparse(base) not in ("Any", "object")]

    def _members(self, owner: ast.ClassDef, module: str, *, is_enum: bool) -> Iterator[tuple[str, ast.stmt]]:
        for one in owner.body:
            match one:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if name in DUNDERS or not name.startswith("_"):
                        yield name, self._function(one, module)
                    if name == "__init__":
                        yield from self._attributes(one, module)
                case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                    default = ast.Constant(...) if _has_default(one.value) else None
                    yield (
                        name,
                        ast.AnnAssign(
                            target=one.target,
                            annotation=self._expression(one.annotation, module),
                            value=default,
                            simple=1,
                        ),
                    )
                case ast.Assign(targets=[ast.Name(id=name)]) if is_enum:
                    yield name, one

    def _attributes(self, init: ast.FunctionDef | ast.AsyncFunctionDef, module: str) -> Iterator[tuple[str, ast.stmt]]:
        """Public attributes that a constructor sets, with the type where its source says it."""
        given = {one.arg: one.annotation for one in (*init.args.args, *init.args.kwonlyargs)}
        for node in ast.walk(init):
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.AnnAssign):
                pairs = [(node.target, node.annotation)]
            elif isinstance(node, ast.Assign):
                target = node.targets[0]
                several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                targets = target.elts if several and isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value]
                pairs = [(one, self._type_of(value, given)) for one, value in zip(targets, values, strict=False)]
            for one, kind in pairs:
                is_own = isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"
                if is_own and isinstance(one, ast.Attribute) and not one.attr.startswith("_"):
                    kind = self._expression(kind, module) if kind is not None else ast.Name("Any")
                    yield one.attr, ast.AnnAssign(target=ast.Name(one.attr), annotation=kind, value=None, simple=1)

    @staticmethod
    def _type_of(value: ast.expr, given: dict[str, ast.expr | None]) -> ast.expr | None:
        if isinstance(value, ast.Name):
            return given.get(value.id)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[0].isupper():
            return value.func
        return None

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, module: str
    ) -> ast.FunctionDef | ast.AsyncFunctionDef:
        given = node.args
        every = [
            *given.posonlyargs,
            *given.args,
            *given.kwonlyargs,
            *(one for one in (given.vararg, given.kwarg) if one),
        ]
        annotated = {one.arg: self._expression(one.annotation, module) for one in every if one.annotation is not None}

        def plain(one: ast.arg) -> ast.arg:
            return ast.arg(arg=one.arg, annotation=annotated.get(one.arg))

        arguments = ast.arguments(
            posonlyargs=[plain(one) for one in given.posonlyargs],
            args=[plain(one) for one in given.args],
            vararg=plain(given.vararg) if given.vararg else None,
            kwonlyargs=[plain(one) for one in given.kwonlyargs],
            kw_defaults=[ast.Constant(...) if one is not None else None for one in given.kw_defaults],
            kwarg=plain(given.kwarg) if given.kwarg else None,
            defaults=[ast.Constant(...) for _ in given.defaults],
        )
        kept = ("property", "classmethod", "staticmethod", "contextmanager", "asynccontextmanager")
        decorators: list[ast.expr] = []
        for one in node.decorator_list:
            name = ast.unparse(one).removeprefix("functools.")
            if name == "cached_property" or name in kept:
                decorators.append(ast.Name("property") if name == "cached_property" else self._expression(one, module))
        kind = ast.FunctionDef if _is_generator(node) else type(node)
        made = kind(
            name=node.name,
            args=arguments,
            body=[ast.Expr(ast.Constant(...))],
            decorator_list=decorators,
            returns=self._expression(node.returns, module) if node.returns is not None else ast.Name("None"),
        )
        return ast.fix_missing_locations(made)

    def _expression(self, node: ast.expr, module: str) -> ast.expr:
        return _Public(self, module).visit(ast.parse(ast.unparse(node), mode="eval").body)  # type: ignore[no-any-return] # as ast has it


class _Public(ast.NodeTransformer):
    """An annotation with public names and those of the standard library; aliases are written out, the rest is Any."""

    def __init__(self, face: Face, module: str) -> None:
        self._face, self._module = face, module

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        root = ast.unparse(node).partition(".")[0]
        home, name = self._face.module(self._module).imported.get(root, ("", ""))
        if home and not name and home.partition(".")[0] in sys.stdlib_module_names:
            self._face.imports.add((home, ""))
            return node
        is_public = HOMES.get(node.attr, "") == f"{home}.{name}"
        return ast.Name(node.attr if is_public else "Any")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[0])  # type: ignore[no-any-return] # as ast has it
        value = self.visit(node.value)
        if ast.unparse(value) == "Any":
            return ast.Name("Any")
        inner = node.slice if ast.unparse(value).endswith("Literal") else self.visit(node.slice)
        return ast.Subscript(value=value, slice=inner)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if "Any" in (ast.unparse(left), ast.unparse(right)):
            return ast.Name("Any")
        return ast.BinOp(left=left, op=node.op, right=right)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = node.id
        if name in vars(builtins) or name == "Any":
            return node
        found, home = self._face.find(self._module, name)
        if isinstance(found, ast.Assign) and name not in HOMES:
            return self._face._expression(found.value, home)
        if isinstance(found, ast.ClassDef):
            return node if HOMES.get(name) and self._face.find(HOMES[name], name)[0] is found else ast.Name("Any")
        if home.partition(".")[0] in sys.stdlib_module_names:
            self._face.imports.add(self._face.module(self._module).imported[name])
            return node
        return ast.Name("Any")


def _is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A stub of an asynchronous generator is a plain function: only its body makes it one."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def _has_default(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call) and ast.unparse(value.func).lower().endswith("field"):
        return bool(value.args) or any(one.arg in ("default", "default_factory") for one in value.keywords)
    return value is not None


def _formatted(text: str) -> str:
    command = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(FACE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _parsed(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def main() -> int:
    text = Face().text()
    if FACE.exists() and FACE.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        print("src/habitus/__init__.pyi is out of date. Run 'make docs'.")
        return 1
    FACE.write_text(text, encoding="utf-8")
    print("wrote src/habitus/__init__.pyi")
    return 0


if __name__ == "__main__":
    sys.exit(main())
