"""Looks at Python through its syntax tree: what a script does with the data it gets hold of."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from habitus.screening import rules
from habitus.screening.findings import Category, Risk
from habitus.screening.values import FETCHES, NONE, SPIES, ValueOrigin, ValueOrigins, Values, bound_names, opens

_HIGH, _NOTE = Risk.HIGH, Risk.NOTE
_CODE, _SECRETS, _AWAY = Category.DANGEROUS_CODE, Category.CREDENTIAL_ACCESS, Category.EXFILTRATION
_PER_RULE = 8

_SENDS = re.compile(
    r"(?:requests|httpx|session|client|aiohttp|http|self\.session|self\.client)\.(?:post|put|patch|request)|"
    r"urllib\.request\.(?:urlopen|Request)|urlopen|.*\.(?:sendall|sendto|sendmail|send_message|storbinary|put_object|upload_file\w*)|"
    r"smtplib\.\w+|(?:s|sock|socket\..*)\.send"
)
_GETS = re.compile(r"(?:requests|httpx)\.get|urllib\.request\.(?:urlopen|Request)")
_RUNS_SHELL = re.compile(
    r"os\.(?:system|popen)|commands\.getoutput|subprocess\.(?:getoutput|getstatusoutput)|asyncio\.create_subprocess_shell|pty\.spawn"
)
_RUNS = re.compile(
    r"subprocess\.(?:run|call|check_call|check_output|Popen)|asyncio\.create_subprocess_exec|os\.(?:exec\w+|spawn\w+|posix_spawn)"
)
_UNPICKLES = re.compile(
    r"(?:pickle|cPickle|dill|cloudpickle|joblib|marshal|shelve|jsonpickle)\.(?:loads?|open|decode)|"
    r"yaml\.(?:load|unsafe_load|full_load)|torch\.load|pandas\.read_pickle"
)
_KEYLOGS = re.compile(r"pynput\.keyboard\.Listener|keyboard\.(?:on_press|hook|record)")
_SETTLES_IN = re.compile(
    r"\.(?:bashrc|bash_profile|zshrc|zprofile|zshenv|profile)$|authorized_keys|/etc/(?:cron|systemd|rc\.local|sudoers|ld\.so\.preload)|"
    r"crontab|\.git/hooks|LaunchAgents|LaunchDaemons|\.config/(?:autostart|systemd)|sitecustomize|usercustomize|"
    r"\.claude/(?:settings|CLAUDE|hooks|skills)|(?:CLAUDE|AGENTS|GEMINI|MEMORY|SOUL)\.md$|\.cursorrules$|mcp\.json$|\.codex/"
)
_FETCH_COMMAND = re.compile(r"\b(?:curl|wget|nc|ncat|bash\s+-i|iwr|Invoke-WebRequest|scp)\b|/dev/tcp/")
_SPY_COMMAND = re.compile(r"pbpaste|xclip|screencapture|security find-|osascript")
_CONFINES = re.compile(
    r"resolve|realpath|abspath|basename|relative_to|commonpath|commonprefix|startswith|secure_filename|normpath|"
    r"'\.\.'|fullmatch|isalnum|allow",
    re.IGNORECASE,
)
_MACHINE_CODE = re.compile(r"ctypes\..*(?:VirtualAlloc|CFUNCTYPE|CreateThread|mmap|RtlMoveMemory)")
_WAITS = re.compile(r"sleep|input|exit|quit|sys\.exit|os\._exit|(?:time|asyncio|gevent)\.sleep")
_WRITE_MODE = re.compile(r"[rb]*[wax+][rwabx+t]*")
_EVALUATES = re.compile(r"(?:(?:__)?builtins(?:__)?\.)?(?:eval|exec|compile)")
_BODIES = ("data", "json", "params", "files", "content")
_OWNERS = ("os", "builtins", "__builtins__", "subprocess")
_HIDDEN_NAMES = frozenset({"eval", "exec", "system", "popen", "__import__", "compile", "Popen"})
_QUERIES = (".execute", ".executemany", ".executescript", ".raw", ".read_sql")
_WRITERS = ("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.move", "os.symlink")
_EVERYTHING = frozenset({"/", "~", "~/", "/home", "/etc"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One thing the code does. `severity` None says nothing alone."""

    rule: str
    category: Category
    severity: Risk
    line: int
    why: str


def look_at(source: str, *, is_foreign: bool = True) -> tuple[Seen, ...]:
    """What the code does that a person should know of; `is_foreign` says that it names a host nobody knows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        look = _Look(values=Values(), has_sockets="socket" in source, is_foreign=is_foreign)
        look.values.learn(tree)
        look.visit(tree)
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        why = "The code is nested too deeply to be looked at."
        return (Seen(rule="deep_nesting", category=Category.OBFUSCATION, severity=_HIGH, line=1, why=why),)
    return tuple(look.seen)


def together(seen_by_path: Mapping[str, tuple[Seen, ...]]) -> Iterator[tuple[str, Seen]]:
    """Reading credentials in one file and sending data in another is one deed."""
    everything = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen]
    reads = [one for one in everything if one[1].rule in ("reads_secrets", "environment_dump", "spies")]
    sends = [one for one in everything if one[1].rule == "sends"]
    if reads and sends:
        (source, reader), (path, sender) = reads[0], sends[0]
        why = f"Sends data to a server, and {source}:{reader.line} reads credentials or private data."
        yield path, Seen(rule="reads_and_sends", category=_AWAY, severity=_HIGH, line=sender.line, why=why)


@dataclass
class _Look(ast.NodeVisitor):
    values: Values
    has_sockets: bool
    is_foreign: bool  # names a host that the skill has nothing else to do with
    seen: list[Seen] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    function: _Function | None = None
    unconfined: dict[_Function, frozenset[str]] = field(default_factory=dict)  # the paths each function makes unchecked
    dumps_environment: bool = False

    def saw(self, rule: str, category: Category, severity: Risk, node: ast.expr | ast.stmt, why: str) -> None:
        self.count[rule] += 1
        if self.count[rule] <= _PER_RULE:
            self.seen.append(Seen(rule=rule, category=category, severity=severity, line=node.lineno, why=why))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def _enter(self, node: _Function) -> None:
        outer, self.function = self.function, node
        self.generic_visit(node)
        self.function = outer

    def visit_While(self, node: ast.While) -> None:
        if isinstance(node.test, ast.Constant) and node.test.value and self._only_asks(node):
            self.saw("floods", _CODE, _HIGH, node, "Floods a server with requests.")
        elif isinstance(node.test, ast.Constant) and node.test.value and not self._has_way_out(node):
            self.saw("endless_loop", _CODE, _HIGH, node, "A loop that never ends and never waits.")
        self.generic_visit(node)

    def _only_asks(self, loop: ast.While) -> bool:
        """Is every statement of it a request whose answer nobody takes?"""
        calls = [part.value for part in loop.body if isinstance(part, ast.Expr)]
        names = [self.values.name_of(call.func) for call in calls if isinstance(call, ast.Call)]
        return len(names) == len(loop.body) and all(FETCHES.fullmatch(name) for name in names)

    def _has_way_out(self, loop: ast.While) -> bool:
        for part in ast.walk(loop):
            match part:
                case ast.Break() | ast.Return() | ast.Raise() | ast.Yield() | ast.YieldFrom() | ast.Await() | ast.Try():
                    return True
                case ast.Call(func=ast.Attribute()):
                    return True  # a method may wait or stop
                case ast.Call(func=func) if _WAITS.fullmatch(self.values.name_of(func)):
                    return True
        return False

    def visit_For(self, node: ast.For) -> None:
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=[*_, ast.Constant(value=int(count))]) if count >= 500:
                names = (self.values.name_of(part.func) for part in ast.walk(node) if isinstance(part, ast.Call))
                if any(FETCHES.fullmatch(name) or _SENDS.fullmatch(name) for name in names):
                    self.saw("floods", _CODE, _HIGH, node, "Floods a server with requests.")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self.values.name_of(node.func)
        self._evaluation(name, node)
        self._commands(name, node)
        self._environment(name, node)
        self._network(name, node)
        self._files(name, node)
        self._queries(name, node)
        self._tricks(name, node)
        self.generic_visit(node)

    def _evaluation(self, name: str, node: ast.Call) -> None:
        if not node.args:
            return
        origins = self.values.origins_of(node.args[0])
        is_foreign = bool(origins & {ValueOrigin.FETCHED, ValueOrigin.DECODED})
        if _EVALUATES.fullmatch(name):
            if is_foreign:
                category = Category.OBFUSCATION if ValueOrigin.DECODED in origins else _CODE
                self.saw("runs_fetched_code", category, _HIGH, node, f"{name}() of data that was fetched or decoded.")
            elif name.endswith("compile") or _has_no_builtins(node):
                return
            elif ValueOrigin.GIVEN in origins:
                self.saw("runs_given_code", _CODE, _NOTE, node, f"{name}() runs whatever it is given.")
            else:
                self.saw("evaluates", _CODE, _NOTE, node, f"{name}() of text.")
        elif _UNPICKLES.fullmatch(name) and not any(word.arg in ("Loader", "weights_only") for word in node.keywords):
            why = f"{name}() can run code that is hidden in the data."
            self.saw("unpickles", _CODE, _HIGH if is_foreign else _NOTE, node, why)

    def _commands(self, name: str, node: ast.Call) -> None:
        is_shell = _RUNS_SHELL.fullmatch(name) is not None or any(
            word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in node.keywords
        )
        if not node.args or not (is_shell or _RUNS.fullmatch(name)):
            return
        text, origins = self.values.text_of(node.args[0]), self.values.origins_of(node.args[0])
        if origins & {ValueOrigin.FETCHED, ValueOrigin.DECODED}:
            self.saw("runs_fetched_command", _CODE, _HIGH, node, "Runs a command that was fetched or decoded.")
        elif is_shell and _FETCH_COMMAND.search(text):
            self.saw("shell_with_network", _CODE, _NOTE, node, "Runs a shell command that talks to the network.")
        elif is_shell and ValueOrigin.GIVEN in origins:
            self.saw("shell_injection", _CODE, _NOTE, node, "Puts a shell command together from what it is given.")
        elif is_shell:
            self.saw("shell", _CODE, _NOTE, node, "Runs a shell command.")
        if _SPY_COMMAND.search(text):
            self.saw("spies", _SECRETS, _NOTE, node, "Reads the clipboard, the screen or the keychain.")

    def _environment(self, name: str, node: ast.Call) -> None:
        takes_all = name in ("dict", "json.dumps", "str") and any(
            self.values.name_of(arg) == "os.environ" for arg in node.args
        )
        if name == "os.environ.items" or takes_all:
            self.dumps_environment = True
            self.saw("environment_dump", _SECRETS, _NOTE, node, "Reads all environment variables.")
        if _KEYLOGS.fullmatch(name):
            self.saw("keylogger", _SECRETS, _HIGH, node, "Listens to the keyboard.")
        elif SPIES.fullmatch(name):
            self.saw("spies", _SECRETS, _NOTE, node, "Reads the clipboard, the screen, the camera or passwords.")

    def _network(self, name: str, node: ast.Call) -> None:
        is_sending = _SENDS.fullmatch(name) is not None
        if is_sending or _GETS.fullmatch(name):
            bodies = [word.value for word in node.keywords if word.arg in _BODIES]
            bodies += node.args[1:] if name.startswith(("requests", "httpx")) else node.args if is_sending else []
            if is_sending or bodies:
                self.saw("sends", _AWAY, _NOTE, node, "Sends data to a server.")
            origins: ValueOrigins = NONE.union(*map(self.values.origins_of, bodies))
            if self.is_foreign and self._hands_to_another(node):
                self.saw("sends_others_key", _AWAY, _HIGH, node, "Hands a key of one service to a host of another.")
            if ValueOrigin.SECRET in origins:
                severity = _HIGH if self.dumps_environment or self.is_foreign else _NOTE
                self.saw("sends_secrets", _AWAY, severity, node, "Sends credentials or private data to a server.")
        if self.has_sockets and name.endswith((".connect", ".connect_ex")):
            self.saw("socket", _AWAY, _NOTE, node, "Opens a network connection.")
        if self.has_sockets and name in ("os.dup2", "pty.spawn"):
            self.saw("reverse_shell", _CODE, _HIGH, node, "Opens a shell for someone else.")

    def _hands_to_another(self, node: ast.Call) -> bool:
        host = rules.host_of(self.values.text_of(node.args[0]).lower()) if node.args else ""
        handed = self.values.services_in(node) if host else ()
        return any(rules.is_of_another(service, host) for service in handed)

    def _files(self, name: str, node: ast.Call) -> None:
        path = node.func.value if isinstance(node.func, ast.Attribute) and "." in name else None
        operands = [*node.args[:2], *([path] if path is not None else [])]
        if self._writes(name, node):
            targets = node.args[1:2] if name in _WRITERS else operands
            if any(_SETTLES_IN.search(self.values.text_of(target)) for target in targets):
                why = "Writes to a file that is run or obeyed later."
                self.saw("settles_in", Category.EXCESSIVE_PERMISSION, _HIGH, node, why)
        elif opens(name) and any(map(self.values.is_secret_path, [*operands, node])):
            self.saw("reads_secrets", _SECRETS, _NOTE, node, "Reads a file that holds credentials.")
        if opens(name) and node.args and self._is_unconfined(node.args[0]):
            why = "Opens a path made from what it is given, without a check that it stays inside."
            self.saw("path_traversal", _CODE, _NOTE, node, why)
        if name in ("shutil.rmtree", "os.removedirs") and any(
            self.values.text_of(arg) in _EVERYTHING for arg in node.args
        ):
            self.saw("deletes_home", _CODE, _HIGH, node, "Deletes the whole home or system.")

    def _writes(self, name: str, node: ast.Call) -> bool:
        if name.endswith((".write_text", ".write_bytes", ".symlink_to")) or name in _WRITERS:
            return True
        place = 1 if name.endswith("open") and "." not in name else 0 if name.endswith(".open") else 1
        modes = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "mode")]
        return opens(name) and any(_WRITE_MODE.fullmatch(self.values.text_of(mode)) for mode in modes)

    def _is_unconfined(self, path: ast.expr) -> bool:
        if self.function is None:
            return False
        if self.function not in self.unconfined:
            self.unconfined[self.function] = self._unchecked_paths(self.function)
        unchecked = self.unconfined[self.function]
        return (
            path.id in unchecked if isinstance(path, ast.Name) else bool(unchecked) and self.values.is_built_path(path)
        )

    def _unchecked_paths(self, function: _Function) -> frozenset[str]:
        """The names of paths that a function makes from what it is given; empty if it checks anything."""
        if _CONFINES.search(ast.unparse(function)):
            return frozenset()
        made = [
            part
            for part in ast.walk(function)
            if isinstance(part, ast.Assign) and self.values.is_built_path(part.value)
        ]
        names = (name for part in made for target in part.targets for name in bound_names(target))
        return frozenset(names) | {""}

    def _queries(self, name: str, node: ast.Call) -> None:
        if name.endswith(_QUERIES) and node.args and self.values.is_built_query(node.args[0]):
            self.saw("sql_injection", _CODE, _NOTE, node, "A database query is put together from text.")

    def _tricks(self, name: str, node: ast.Call) -> None:
        text_of, name_of = self.values.text_of, self.values.name_of
        match node:
            case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module)), *_]):
                if module in ("os", "subprocess", "socket", "pty", "ctypes", "base64"):
                    self.saw("hidden_import", Category.OBFUSCATION, _NOTE, node, f"Imports {module} in passing.")
            case ast.Call(func=ast.Name(id="__import__"), args=[argument, *_]):
                risk = _HIGH if text_of(argument) else _NOTE
                self.saw("hidden_import", Category.OBFUSCATION, risk, node, "Imports a module whose name is hidden.")
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, attribute, *_]) if (
                text_of(attribute) in _HIDDEN_NAMES
            ):
                if not isinstance(attribute, ast.Constant) or name_of(owner) in _OWNERS:
                    self.saw("hidden_call", Category.OBFUSCATION, _HIGH, node, "Hides which function it calls.")
            case ast.Call(func=ast.Subscript(value=owner, slice=key)) if text_of(key) in _HIDDEN_NAMES:
                if re.search(r"globals|locals|vars|__builtins__|__dict__", ast.unparse(owner)[:200]):
                    self.saw("hidden_call", Category.OBFUSCATION, _HIGH, node, "Hides which function it calls.")
        if _MACHINE_CODE.fullmatch(name):
            self.saw("machine_code", _CODE, _HIGH, node, "Runs raw machine code.")
        if name.endswith("setup") and any(word.arg == "cmdclass" for word in node.keywords):
            self.saw("setup_hook", _CODE, _NOTE, node, "Runs its own code when it is installed.")


def _has_no_builtins(node: ast.Call) -> bool:
    return len(node.args) > 1 and "__builtins__" in ast.unparse(node.args[1])[:2000]
