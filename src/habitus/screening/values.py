"""What the names and expressions of a Python file stand for: imports, constant texts, and where data comes from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from habitus.screening.code_context import SkillCodeContext, get_command_pattern
from habitus.screening.hosts import find_services_of_named_keys
from habitus.screening.shell_code import find_shell_threats_and_output


class ValueOrigin(StrEnum):
    """Where a value comes from, as far as it matters."""

    FETCHED = "fetched"
    DECODED = "decoded"
    SECRET = "secret"
    KEY = "key"  # one key from the environment, as every client of an API needs
    GIVEN = "given"  # a parameter, an argument, typed input
    PERSONAL = "personal"  # the names of the person's files, one by one
    HOME_FILE = "home_file"  # the content of a file below the person's home


ValueOrigins = frozenset[ValueOrigin]
NONE: ValueOrigins = frozenset()

_FILE = re.compile(r"[\w./~\\ -]*[./\\][\w.-]+")
_GLOB = re.compile(r"(?<=/)[*?\[].*")
_KEY_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|AUTH|PRIVATE", re.IGNORECASE)
_PATH_MAKERS = frozenset({"dedent", "Path", "PurePath", "join", "expanduser", "expandvars", "str"})
_TEXT_METHODS = frozenset({"expanduser", "joinpath", "format", "resolve", "encode", "strip", "lower"})
_OPENERS = (
    *(".read_text", ".read_bytes", ".open", ".copy", ".copyfile", ".copytree", ".add", ".make_archive"),
    *("sqlite3.connect", ".glob", ".iglob"),
)
_MOST_DEPTH = 60
_LONGEST_KEY_NAME = 60
_MOST_TEXT = 4096
_MOST_WRITTEN = 20
_MOST_CALLS = 400

_Binding = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For | ast.withitem | ast.comprehension


@dataclass
class PythonValueTable:
    """One table for the whole file: a name is taken to mean the same in every function."""

    context: SkillCodeContext | None = None
    printed: dict[str, ValueOrigins] = field(default_factory=dict)  # by commands that the file runs
    names: dict[str, str] = field(default_factory=dict)  # what an imported name stands for
    origins: dict[str, ValueOrigins] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    secret_paths: set[str] = field(default_factory=set)
    services: dict[str, frozenset[str]] = field(default_factory=dict)  # whose keys a name holds
    returned: dict[str, ValueOrigins] = field(default_factory=dict)  # by the functions of the file
    copies: set[str] = field(default_factory=set)  # of secret files
    written_by: dict[str, list[str]] = field(default_factory=dict)  # the buffers into which an archive writes
    called: ValueOrigins = NONE  # of the calls whose values nobody takes
    downloaded: set[str] = field(default_factory=set)  # the files into which fetched data may be written
    written: list[str] = field(default_factory=list)  # the texts that are handed to `write`

    def record_values_of_module(self, tree: ast.AST) -> None:
        bindings: list[_Binding] = []
        added: list[tuple[str, ast.expr]] = []
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    for name in names:
                        top = name.name.partition(".")[0]
                        self.names[name.asname or top] = name.name if name.asname else top
                case ast.ImportFrom(module=str(module), names=names):
                    self.names |= {name.asname or name.name: f"{module}.{name.name}" for name in names}
                case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                    for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                        if arg.arg not in ("self", "cls"):
                            self.origins[arg.arg] = frozenset({ValueOrigin.GIVEN})
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as owner), args=[*_, last])):
                    added.append((owner.id, last))
                case _ if isinstance(node, _Binding):
                    bindings.append(node)
        for _ in range(3):  # again for what is bound above from what is bound below, and through functions
            for binding in bindings:
                self._record_values_of_bound_names(binding)
            for owner_name, value in added:  # `message.set_content(secret)`, `archive.add("~/Mail")`
                taken = self.find_origins(value) & {ValueOrigin.SECRET, ValueOrigin.PERSONAL}
                taken |= _get_origins_if(
                    ValueOrigin.HOME_FILE,
                    get_command_pattern("home_file").match(self.evaluate_constant_text(value)) is not None,
                )
                for name in (owner_name, *self.written_by.get(owner_name, ())):
                    self.origins[name] = self.origins.get(name, NONE) | taken
            self._record_values_passed_in_calls(tree)
        self.called = NONE.union(
            *(self.find_origins(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr))
        )
        for node in ast.walk(tree) if ValueOrigin.FETCHED in self.all_value_origins_in_file else ():
            if isinstance(node, ast.Call) and get_command_pattern("python_writes").fullmatch(
                self.resolve_dotted_call_name(node.func)
            ):
                texts = map(self.evaluate_constant_text, [*node.args[:2], *_list_object_of_method_call(node)])
                self.downloaded |= {text for text in texts if _FILE.fullmatch(text)}
        self.written = [
            text[:_MOST_TEXT]
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("write", "writelines")
            for text in map(self.evaluate_constant_text, node.args[:1])
            if text
        ][:_MOST_WRITTEN] + ["bypassPermissions"] * any(
            isinstance(node, ast.Constant) and node.value == "bypassPermissions" for node in ast.walk(tree)
        )

    def _record_values_passed_in_calls(self, tree: ast.AST) -> None:
        """What a function of the file is given, its parameters hold; what it returns, its calls do."""
        made = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and self.resolve_dotted_call_name(node.func) in made
        ]
        for call in calls[:_MOST_CALLS]:
            for parameter, given in zip(
                made[self.resolve_dotted_call_name(call.func)].args.args, call.args, strict=False
            ):
                self._record_values_of_bound_names(ast.Assign(targets=[ast.Name(id=parameter.arg)], value=given))
        for name, function in made.items():
            returned = [part.value for part in ast.walk(function) if isinstance(part, ast.Return)]
            self.returned[name] = NONE.union(*map(self.find_origins, returned))
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=func, args=[source, copy, *_]) if self.resolve_dotted_call_name(func).startswith(
                    "shutil."
                ):
                    self.copies |= (
                        {self.evaluate_constant_text(copy)} if self.has_secret_path_in_expression(source) else set()
                    )

    def _record_values_of_bound_names(self, node: _Binding) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
                targets = [target]
            case ast.NamedExpr(target=target, value=value):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
            case ast.withitem(optional_vars=target, context_expr=value):
                targets = [target] if target is not None else []
        if value is None:
            return
        origins, text = self.find_origins(value), self.evaluate_constant_text(value)
        buffers = [word.value.id for word in getattr(value, "keywords", ()) if isinstance(word.value, ast.Name)]
        services = self.find_services_of_keys_in_expression(value)
        is_secret = self.has_secret_path_in_expression(value)
        for name in (name for target in targets for name in iterate_bound_names(target)):
            self.origins[name] = self.origins.get(name, NONE) | origins
            self.written_by[name] = buffers
            if services:
                self.services[name] = self.services.get(name, frozenset()) | services
            if text:
                self.texts[name] = text
            if is_secret:
                self.secret_paths.add(name)

    @property
    def all_value_origins_in_file(self) -> ValueOrigins:
        return NONE.union(self.called, *self.origins.values())

    def resolve_dotted_call_name(self, node: ast.AST) -> str:
        """The dotted name that is called, with imports resolved: `sp.run` is `subprocess.run`."""
        parts: list[str] = []
        for _ in range(_MOST_DEPTH):
            match node:
                case ast.Attribute(value=inner, attr=attr):
                    parts.append(attr)
                    node = inner
                case ast.Name(id=name):
                    parts.append(self.names.get(name, name))
                    break
                case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module)), *_]):
                    parts.append(module)
                    break
                case ast.Call(func=inner):
                    node = inner
                case _:
                    parts.append("")  # a method of something without a name
                    break
        return ".".join(reversed(parts))

    def evaluate_constant_text(self, node: ast.AST, depth: int = 0) -> str:
        """The constant text that an expression gives, with its pieces joined; unknown pieces are left out."""
        if depth > _MOST_DEPTH:
            return ""
        match node:
            case ast.Constant(value=str(text)):
                return text[:_MOST_TEXT]
            case ast.Constant(value=bytes(data)):
                return data[:_MOST_TEXT].decode("latin-1")
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self.texts.get(name, "")
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._join_texts("", [left, right], depth)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._join_texts("/", [left, right], depth)
            case ast.BinOp(left=left, op=ast.Mod()):
                return self.evaluate_constant_text(left, depth + 1)
            case ast.FormattedValue(value=inner):
                return self.evaluate_constant_text(inner, depth + 1)
            case ast.JoinedStr(values=values):
                return self._join_texts("", values, depth)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._join_texts(" ", items, depth)
            case ast.Subscript(value=inner, slice=ast.Slice(step=ast.UnaryOp(op=ast.USub()))):
                return self.evaluate_constant_text(inner, depth + 1)[::-1]
            case ast.Call():
                return self._evaluate_call_text(node, depth)
        return ""

    def _evaluate_call_text(self, node: ast.Call, depth: int) -> str:
        match node:
            case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int(code))]) if 0 < code < 0x110000:
                return chr(code)
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=str(mark)), attr="join"), args=[ast.List(elts=items)]
            ):
                return self._join_texts(mark, items, depth)
            case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if attr in _TEXT_METHODS:
                return self._join_texts("/", [inner, *args], depth)
        name = self.resolve_dotted_call_name(node.func)
        if name.endswith("Path.home"):
            return "~"
        return self._join_texts("/", node.args, depth) if name.rpartition(".")[2] in _PATH_MAKERS else ""

    def _join_texts(self, mark: str, nodes: list[ast.expr], depth: int) -> str:
        pieces = (self.evaluate_constant_text(node, depth + 1) for node in nodes[:200])
        return mark.join(piece for piece in pieces if piece)[:_MOST_TEXT]

    def find_origins(self, node: ast.AST | None, depth: int = 0) -> ValueOrigins:
        """Where the parts of an expression come from."""
        match node:
            case None | ast.Lambda() | ast.Constant():
                return NONE
            case ast.Name(id=name):
                return self.origins.get(name, NONE)
            case ast.Subscript(value=ast.Attribute() as inner, slice=key) if (
                self.resolve_dotted_call_name(inner) == "os.environ"
            ):
                return _get_origins_if(ValueOrigin.KEY, _KEY_NAME.search(self.evaluate_constant_text(key)) is not None)
            case ast.Attribute(attr="environ") if self.resolve_dotted_call_name(node) == "os.environ":
                return frozenset({ValueOrigin.SECRET})
            case ast.Attribute(attr="argv") if self.resolve_dotted_call_name(node) == "sys.argv":
                return frozenset({ValueOrigin.GIVEN})
        found = self.origins.get(node.attr, NONE) if isinstance(node, ast.Attribute) else NONE
        if isinstance(node, ast.Call):
            found |= self._find_call_origins(self.resolve_dotted_call_name(node.func), node)
            if self.resolve_dotted_call_name(node.func) in ("os.getenv", "os.environ.get"):
                return found
        if depth < _MOST_DEPTH:
            for part in ast.iter_child_nodes(node):
                found |= self.find_origins(part, depth + 1)
        return found

    def _find_call_origins(self, name: str, node: ast.Call) -> ValueOrigins:
        if name in ("os.getenv", "os.environ.get"):
            return _get_origins_if(
                ValueOrigin.KEY,
                bool(node.args) and _KEY_NAME.search(self.evaluate_constant_text(node.args[0])) is not None,
            )
        if get_command_pattern("python_fetches").fullmatch(name):
            return frozenset({ValueOrigin.FETCHED})
        if get_command_pattern("python_decodes").fullmatch(name):
            return frozenset({ValueOrigin.DECODED})
        if get_command_pattern("python_lists").fullmatch(name):
            roots = [self.evaluate_constant_text(part) for part in [*_list_object_of_method_call(node), *node.args]]
            is_theirs = any(
                get_command_pattern("personal_root").fullmatch(_GLOB.sub("", root)) for root in roots if root
            )
            return _get_origins_if(ValueOrigin.PERSONAL, is_theirs and "cache" not in "".join(roots))
        if name in self.returned:
            return self.returned[name]
        if get_command_pattern("python_runs").fullmatch(name) or get_command_pattern("python_runs_shell").fullmatch(
            name
        ):
            return self._find_origins_of_command_output(self.evaluate_constant_text(node.args[0]) if node.args else "")
        if name == "input":
            return frozenset({ValueOrigin.GIVEN})
        if is_open_function(name) and self._is_path_below_home(node):
            return frozenset({ValueOrigin.HOME_FILE}) | _get_origins_if(
                ValueOrigin.SECRET, self.has_secret_path_in_expression(node)
            )
        return _get_origins_if(
            ValueOrigin.SECRET,
            get_command_pattern("python_spies").fullmatch(name) is not None
            or (is_open_function(name) and self.has_secret_path_in_expression(node)),
        )

    def _is_path_below_home(self, opened: ast.Call) -> bool:
        paths = [*opened.args[:1], *_list_object_of_method_call(opened)]
        return any(get_command_pattern("home_file").match(self.evaluate_constant_text(path)) for path in paths)

    def _find_origins_of_command_output(self, command: str) -> ValueOrigins:
        if self.context is None or not command:
            return NONE
        if command not in self.printed:
            printed = find_shell_threats_and_output(command, self.context)[1]
            origins = {ValueOrigin.SECRET: printed.secret or printed.token, ValueOrigin.FETCHED: printed.fetched}
            self.printed[command] = frozenset(origin for origin, source in origins.items() if source)
        return self.printed[command]

    def find_services_of_keys_in_expression(self, node: ast.AST) -> frozenset[str]:
        """The services whose keys an expression holds, by the names of the keys."""
        found: set[str] = set()
        for part in ast.walk(node):
            match part:
                case ast.Constant(value=str(text)) if len(text) < _LONGEST_KEY_NAME:
                    found |= find_services_of_named_keys(text)
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    found |= self.services.get(name) or find_services_of_named_keys(self.resolve_dotted_call_name(part))
        return frozenset(found)

    def has_secret_path_in_expression(self, node: ast.AST) -> bool:
        texts = [self.evaluate_constant_text(node)]
        if isinstance(node, ast.Call):
            texts += map(self.evaluate_constant_text, node.args[:3])
            texts += [self.evaluate_constant_text(node.func.value)] if isinstance(node.func, ast.Attribute) else []
        owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
        named = [owner, *node.args[:3]] if isinstance(node, ast.Call) else [owner]
        if any(isinstance(one, ast.Name) and one.id in self.secret_paths for one in named):
            return True
        return any(get_command_pattern("secret_path").search(text) or text in self.copies for text in texts if text)


def _list_object_of_method_call(call: ast.Call) -> list[ast.expr]:
    return [call.func.value] if isinstance(call.func, ast.Attribute) else []


def is_open_function(name: str) -> bool:
    return name in ("open", "io.open", "codecs.open", "aiofiles.open") or name.endswith(_OPENERS)


def iterate_bound_names(target: ast.AST) -> Iterator[str]:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            yield from iterate_bound_names(inner)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from iterate_bound_names(item)


def _get_origins_if(origin: ValueOrigin, is_it: bool) -> ValueOrigins:
    return frozenset({origin}) if is_it else NONE
