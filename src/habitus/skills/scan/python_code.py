"""Looks at Python through its syntax tree: where data comes from, and what is done with it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from habitus.skills.scan.findings import Category, Risk

_HIGH, _MEDIUM, _LOW = Risk.HIGH, Risk.MEDIUM, Risk.LOW


class Origin(StrEnum):
    """Where a value comes from, as far as matters."""

    FETCHED = "fetched"
    DECODED = "decoded"
    SECRET = "secret"
    GIVEN = "given"  # a parameter, an argument, typed input


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One thing the code does. `severity` None says nothing alone."""

    rule: str
    category: Category
    severity: Risk | None
    line: int
    why: str


_FETCHES = re.compile(
    r"(?:requests|httpx|session|client|aiohttp)\.(?:get|post|put|request|stream)|urllib\.request\.(?:urlopen|urlretrieve)|urllib2\.urlopen|"
    r"urlopen|http\.client\.\w+|.*\.(?:recv|recvfrom)|ftplib\..*|wget\.download|urllib3\..*"
)
_SENDS = re.compile(
    r"(?:requests|httpx|session|client|aiohttp|http|self\.session|self\.client)\.(?:post|put|patch|request)|urllib\.request\.(?:urlopen|Request)|urlopen|"
    r".*\.(?:sendall|sendto|sendmail|send_message|storbinary)|smtplib\.\w+|boto3\..*put_object|.*\.upload_file(?:obj)?|socket\..*\.send|s\.send|sock\.send"
)
_GETS = re.compile(r"(?:requests|httpx)\.get|urllib\.request\.(?:urlopen|Request)")
_DECODES = re.compile(
    r"base64\.(?:b64|b32|b16|a85|b85|urlsafe_b64|standard_b64)decode|bytes\.fromhex|binascii\.(?:unhexlify|a2b_\w+)|codecs\.decode|"
    r"zlib\.decompress|gzip\.decompress|bz2\.decompress|lzma\.decompress|marshal\.loads|b64decode|unhexlify|(?:str\.)?.*\.decrypt"
)
_RUNS_SHELL = re.compile(r"os\.(?:system|popen)|commands\.getoutput|subprocess\.(?:getoutput|getstatusoutput)|asyncio\.create_subprocess_shell|pty\.spawn")
_RUNS = re.compile(r"subprocess\.(?:run|call|check_call|check_output|Popen)|asyncio\.create_subprocess_exec|os\.(?:exec\w+|spawn\w+|posix_spawn)")
_UNPICKLES = re.compile(r"(?:pickle|cPickle|dill|cloudpickle|joblib|marshal|shelve|jsonpickle)\.(?:loads?|open|decode)|yaml\.(?:load|unsafe_load|full_load)|torch\.load|pandas\.read_pickle")
_SPIES = re.compile(r"(?:pyperclip|clipboard)\.paste|(?:PIL\.)?ImageGrab\.grab|pyautogui\.screenshot|mss\.mss|pynput\..*|keyboard\.(?:on_press|hook|record)|cv2\.VideoCapture|sounddevice\.rec|pyaudio\..*|browser_cookie3\..*|keyring\.get_password")
_KEYLOGS = re.compile(r"pynput\.keyboard\.Listener|keyboard\.(?:on_press|hook|record)")
_SECRET_PATH = re.compile(
    r"\.ssh(?:/|\\|$)|id_rsa|id_ed25519|\.aws(?:/|\\|$)|\.netrc|\.pgpass|\.git-credentials|\.gnupg|\.kube(?:/|\\|$)|\.docker/config|gcloud|"
    r"\.npmrc|\.pypirc|/etc/(?:passwd|shadow)|/proc/self/environ|Login Data|Cookies$|key4\.db|logins\.json|wallet\.dat|\.bash_history|\.zsh_history|"
    r"(?:Google/Chrome|google-chrome|BraveSoftware|Firefox/Profiles|\.mozilla)|Keychains|\.azure(?:/|\\|$)|\.config/gh/hosts"
)
_DOTENV = re.compile(r"(?:^|/)\.env(?:\.\w+)?$")
_SETTLES_IN = re.compile(
    r"\.(?:bashrc|bash_profile|zshrc|zprofile|zshenv|profile)$|authorized_keys|/etc/cron|crontab|\.git/hooks|LaunchAgents|LaunchDaemons|"
    r"\.config/autostart|/etc/systemd|\.config/systemd|/etc/rc\.local|/etc/sudoers|/etc/ld\.so\.preload|Startup|sitecustomize|usercustomize|"
    r"\.claude/(?:settings|CLAUDE|hooks|skills)|CLAUDE\.md$|AGENTS\.md$|\.cursorrules$|MEMORY\.md$|SOUL\.md$"
)
_KEY_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|AUTH|PRIVATE", re.IGNORECASE)
_SQL = re.compile(r"\s*(?:SELECT\s.{0,200}\sFROM|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|DROP\s+TABLE)\b", re.IGNORECASE | re.DOTALL)
_FETCH_COMMAND = re.compile(r"\b(?:curl|wget|nc|ncat|bash\s+-i|/dev/tcp|iwr|Invoke-WebRequest|scp)\b|/dev/tcp/")
_CONFINES = re.compile(r"resolve|realpath|abspath|basename|is_relative_to|relative_to|commonpath|commonprefix|startswith|secure_filename|normpath|'\.\.'|\"\.\.\"|fullmatch|isalnum|allow", re.IGNORECASE)
_BLOCKS = re.compile(r".*(?:sleep|recv|accept|input|readline|read|get|poll|select|wait|join|next|pop|popleft|fetch\w*|recvfrom|listen|run|post|request|execute|query|write|send\w*)")
_EVALS = frozenset({"eval", "exec", "builtins.eval", "builtins.exec", "__builtins__.eval", "__builtins__.exec", "compile", "builtins.compile"})
_MOST_DEPTH = 60
_MOST_FOLD = 4096


def look_at(source: str) -> tuple[Seen, ...]:
    """What the code does that a person should know of; nothing if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    look = _Look(source=source)
    try:
        look.learn(tree)
        look.visit(tree)
    except RecursionError:
        look.saw("deep_nesting", Category.OBFUSCATION, _MEDIUM, tree, "The code is nested too deeply to be looked at.")
    return tuple(look.seen)


@dataclass
class _Look(ast.NodeVisitor):
    source: str
    seen: list[Seen] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # what an imported name stands for
    origins: dict[str, frozenset[Origin]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    secret_paths: set[str] = field(default_factory=set)
    sql: set[str] = field(default_factory=set)
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    loops: int = 0

    def saw(self, rule: str, category: Category, severity: Risk | None, node: ast.AST, why: str) -> None:
        self.seen.append(Seen(rule=rule, category=category, severity=severity, line=getattr(node, "lineno", 1), why=why))

    # What names stand for

    def learn(self, tree: ast.AST) -> None:
        """Imports and assignments first, so that order and functions do not matter."""
        assignments = []
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    for name in names:
                        self.names[name.asname or name.name.partition(".")[0]] = name.name if name.asname else name.name.partition(".")[0]
                case ast.ImportFrom(module=str(module), names=names):
                    for name in names:
                        self.names[name.asname or name.name] = f"{module}.{name.name}"
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.withitem() | ast.comprehension():
                    assignments.append(node)
                case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                    for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
                        if arg.arg not in ("self", "cls"):
                            self.origins[arg.arg] = self.origins.get(arg.arg, frozenset()) | {Origin.GIVEN}
        for _ in range(2):  # once more for what is assigned above from what is assigned below
            for node in assignments:
                self._assign(node)

    def _assign(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                targets = [target]
            case _:
                return
        origins = self.origins_of(value)
        text = self.text_of(value)
        for target in targets:
            for name in _bound(target):
                self.origins[name] = self.origins.get(name, frozenset()) | origins
                if text:
                    self.constants[name] = text
                if self._is_secret_path(value):
                    self.secret_paths.add(name)
                if self._is_built_sql(value):
                    self.sql.add(name)

    def name_of(self, node: ast.AST) -> str:
        """The dotted name that is called, with imports resolved: `sp.run` is `subprocess.run`."""
        parts: list[str] = []
        for _ in range(_MOST_DEPTH):
            match node:
                case ast.Attribute(value=inner, attr=attr):
                    parts.append(attr)
                    node = inner
                case ast.Name(id=name):
                    parts.append(self.names.get(name, name))
                    return ".".join(reversed(parts))
                case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module)), *_]):
                    parts.append(module)
                    return ".".join(reversed(parts))
                case ast.Call(func=inner):
                    node = inner
                case _:
                    break
        return ".".join(reversed(parts))

    def text_of(self, node: ast.AST, depth: int = 0) -> str:
        """The constant text that an expression gives, with pieces joined; unknown pieces are left out."""
        if depth > _MOST_DEPTH:
            return ""
        match node:
            case ast.Constant(value=str(value)):
                return value[:_MOST_FOLD]
            case ast.Constant(value=bytes(data)):
                return data[:_MOST_FOLD].decode("latin-1")
            case ast.BinOp(left=left, op=ast.Add() | ast.Div(), right=right):
                mark = "/" if isinstance(node.op, ast.Div) else ""
                return (self.text_of(left, depth + 1) + mark + self.text_of(right, depth + 1))[:_MOST_FOLD]
            case ast.BinOp(left=left, op=ast.Mod()):
                return self.text_of(left, depth + 1)
            case ast.JoinedStr(values=values):
                return "".join(self.text_of(value, depth + 1) for value in values[:100])[:_MOST_FOLD]
            case ast.Name(id=name):
                return self.constants.get(name, "")
            case ast.Attribute(attr=name):
                return self.constants.get(name, "")
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return " ".join(self.text_of(item, depth + 1) for item in items[:50])[:_MOST_FOLD]
            case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int(code))]) if 0 < code < 0x110000:
                return chr(code)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(mark)), attr="join"), args=[ast.List(elts=items) | ast.Tuple(elts=items)]):
                return mark.join(self.text_of(item, depth + 1) for item in items[:200])[:_MOST_FOLD]
            case ast.Call(func=ast.Attribute(value=inner, attr="expanduser" | "joinpath" | "format" | "resolve" | "encode" | "strip" | "lower"), args=args):
                pieces = [self.text_of(inner, depth + 1), *(self.text_of(arg, depth + 1) for arg in args[:20])]
                return "/".join(piece for piece in pieces if piece)[:_MOST_FOLD]
            case ast.Call(args=args):
                if self.name_of(node.func).rpartition(".")[2] in ("Path", "join", "expanduser", "expandvars", "home", "PurePath", "str"):
                    start = "~" if self.name_of(node.func).endswith("home") else ""
                    return (start + "/".join(filter(None, (self.text_of(arg, depth + 1) for arg in args[:20]))))[:_MOST_FOLD]
                return ""
            case ast.Subscript(value=inner, slice=ast.Slice(step=ast.UnaryOp(op=ast.USub()))):
                return self.text_of(inner, depth + 1)[::-1]
        return ""

    def origins_of(self, node: ast.AST | None, depth: int = 0) -> frozenset[Origin]:
        """Where the parts of an expression come from."""
        if node is None or depth > _MOST_DEPTH:
            return frozenset()
        found: frozenset[Origin] = frozenset()
        match node:
            case ast.Name(id=name):
                return self.origins.get(name, frozenset())
            case ast.Call(func=func, args=args, keywords=keywords):
                found = self._origin_of_call(self.name_of(func), node)
                for part in [func, *args, *(keyword.value for keyword in keywords)]:
                    found |= self.origins_of(part, depth + 1)
                return found
            case ast.Attribute(value=inner, attr=attr):
                if self.name_of(node) in ("os.environ", "sys.argv"):
                    return frozenset({Origin.SECRET if attr == "environ" else Origin.GIVEN})
                return self.origins_of(inner, depth + 1) | self.origins.get(attr, frozenset())
            case ast.Subscript(value=ast.Attribute() as inner, slice=key) if self.name_of(inner) == "os.environ":
                return frozenset({Origin.SECRET}) if _KEY_NAME.search(self.text_of(key)) else frozenset()
            case ast.Lambda() | ast.Constant():
                return frozenset()
        for part in ast.iter_child_nodes(node):
            found |= self.origins_of(part, depth + 1)
        return found

    def _origin_of_call(self, name: str, node: ast.Call) -> frozenset[Origin]:
        if name in ("os.getenv", "os.environ.get"):
            return frozenset({Origin.SECRET}) if node.args and _KEY_NAME.search(self.text_of(node.args[0])) else frozenset()
        if _FETCHES.fullmatch(name):
            return frozenset({Origin.FETCHED})
        if _DECODES.fullmatch(name):
            return frozenset({Origin.DECODED})
        if _SPIES.fullmatch(name) or (self._opens(name) and self._is_secret_path(node)):
            return frozenset({Origin.SECRET})
        return frozenset({Origin.GIVEN}) if name == "input" else frozenset()

    @staticmethod
    def _opens(name: str) -> bool:
        return name in ("open", "io.open", "codecs.open", "aiofiles.open") or name.endswith((".read_text", ".read_bytes", ".open", ".copy", ".copyfile", ".copytree"))

    def _is_secret_path(self, node: ast.AST) -> bool:
        text = self.text_of(node) if not isinstance(node, ast.Call) else " ".join([self.text_of(node), self.text_of(node.func.value) if isinstance(node.func, ast.Attribute) else "", *map(self.text_of, node.args[:3])])
        return bool(_SECRET_PATH.search(text) or _DOTENV.search(text.strip()))

    def _is_built_sql(self, node: ast.AST) -> bool:
        is_built = isinstance(node, ast.JoinedStr) and any(isinstance(value, ast.FormattedValue) for value in node.values)
        is_built = is_built or (isinstance(node, ast.BinOp) and not isinstance(node.right, ast.Constant))
        is_built = is_built or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format")
        return is_built and _SQL.match(self.text_of(node)) is not None

    # What is done

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self.function = self.function, node
        self.generic_visit(node)
        self.function = outer

    def visit_While(self, node: ast.While) -> None:
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if is_endless and not _has_way_out(node, self):
            self.saw("endless_loop", Category.DANGEROUS_CODE, _HIGH, node, "A loop that never ends and never waits.")
        self._loop(node)

    def visit_For(self, node: ast.For) -> None:
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=[*_, ast.Constant(value=int(count))]) if count >= 500:
                if any(isinstance(part, ast.Call) and (_FETCHES.fullmatch(self.name_of(part.func)) or _SENDS.fullmatch(self.name_of(part.func))) for part in ast.walk(node)):
                    self.saw("floods", Category.DANGEROUS_CODE, _HIGH, node, "Floods a server with requests.")
        self._loop(node)

    def _loop(self, node: ast.While | ast.For) -> None:
        self.loops += 1
        self.generic_visit(node)
        self.loops -= 1

    def visit_BinOp(self, node: ast.BinOp) -> None:
        match node:
            case ast.BinOp(left=ast.List(), op=ast.Mult(), right=ast.Constant(value=int(count))) if count >= 10_000_000:
                self.saw("memory_bomb", Category.DANGEROUS_CODE, _MEDIUM, node, "Builds a list of ten million or more.")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and self.name_of(target.value) in ("os.environ", "__builtins__", "builtins", "sys.modules"):
                rule = self.text_of(target.slice)
                if rule in ("LD_PRELOAD", "PYTHONSTARTUP", "BASH_ENV") or self.name_of(target.value) != "os.environ":
                    self.saw("replaces_builtin", Category.OBFUSCATION, _MEDIUM, node, "Replaces a part of Python or of every child process.")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self.name_of(node.func)
        self._evaluation(name, node)
        self._shell(name, node)
        self._network(name, node)
        self._files(name, node)
        self._tricks(name, node)
        self.generic_visit(node)

    def _evaluation(self, name: str, node: ast.Call) -> None:
        if name in _EVALS and node.args:
            origins = self.origins_of(node.args[0])
            text = self.text_of(node.args[0])
            if origins & {Origin.FETCHED, Origin.DECODED}:
                self.saw("runs_fetched_code", Category.OBFUSCATION if Origin.DECODED in origins else Category.DANGEROUS_CODE, _HIGH, node, f"{name}() of data that was fetched or decoded.")
            elif name.endswith("compile") or _has_no_builtins(node):
                return
            elif Origin.GIVEN in origins:
                self.saw("runs_given_code", Category.DANGEROUS_CODE, _HIGH, node, f"{name}() runs whatever it is given.")
            else:
                constant = isinstance(node.args[0], ast.Constant) or bool(text)
                self.saw("evaluates", Category.DANGEROUS_CODE, _LOW if constant else _MEDIUM, node, f"{name}() of text.")
        elif _UNPICKLES.fullmatch(name) and node.args and not any(k.arg in ("Loader", "weights_only") for k in node.keywords):
            origins = self.origins_of(node.args[0])
            severity = _HIGH if origins & {Origin.FETCHED, Origin.DECODED} else _MEDIUM
            self.saw("unpickles", Category.DANGEROUS_CODE, severity, node, f"{name}() can run code that is hidden in the data.")

    def _shell(self, name: str, node: ast.Call) -> None:
        is_shell = _RUNS_SHELL.fullmatch(name) is not None
        is_shell = is_shell or any(k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords)
        if not node.args or not (is_shell or _RUNS.fullmatch(name)):
            return
        command, text, origins = node.args[0], self.text_of(node.args[0]), self.origins_of(node.args[0])
        if origins & {Origin.FETCHED, Origin.DECODED}:
            self.saw("runs_fetched_command", Category.DANGEROUS_CODE, _HIGH, node, "Runs a command that was fetched or decoded.")
        elif is_shell and _FETCH_COMMAND.search(text):
            self.saw("shell_with_network", Category.DANGEROUS_CODE, _MEDIUM, node, "Runs a shell command that talks to the network.")
        elif is_shell and Origin.GIVEN in origins:
            self.saw("shell_injection", Category.DANGEROUS_CODE, _HIGH, node, "A shell command is put together from what it is given.")
        elif is_shell and not isinstance(command, ast.Constant):
            self.saw("shell", Category.DANGEROUS_CODE, _LOW, node, "Runs a shell command.")
        if re.search(r"pbpaste|xclip|screencapture|security find-|osascript", text):
            self.saw("spies", Category.EXFILTRATION, _MEDIUM, node, "Reads the clipboard, the screen or the keychain.")

    def _network(self, name: str, node: ast.Call) -> None:
        is_sending = _SENDS.fullmatch(name) is not None
        if is_sending or _GETS.fullmatch(name):
            bodies = [k.value for k in node.keywords if k.arg in ("data", "json", "params", "files", "content")]
            bodies += node.args[1:] if "requests" in name or "httpx" in name else node.args if is_sending else []
            origins = frozenset[Origin]().union(*map(self.origins_of, bodies))
            if is_sending or bodies:
                self.saw("sends", Category.EXFILTRATION, None, node, "Sends data to a server.")
            if Origin.SECRET in origins:
                dumps = "os.environ" in "".join(map(ast.unparse, bodies)) or Origin.GIVEN in origins or self._dumps_environment()
                self.saw("sends_secrets", Category.EXFILTRATION, _HIGH if dumps else _MEDIUM, node, "Sends credentials or private data to a server.")
        if name.endswith((".connect", ".connect_ex")) and "socket" in self.source:
            self.saw("socket", Category.EXFILTRATION, _LOW, node, "Opens a network connection.")
        if name in ("os.dup2", "pty.spawn") and "socket" in self.source:
            self.saw("reverse_shell", Category.DANGEROUS_CODE, _HIGH, node, "Opens a shell for someone else.")
        if _KEYLOGS.fullmatch(name):
            self.saw("keylogger", Category.CREDENTIAL_ACCESS, _HIGH, node, "Listens to the keyboard.")
        elif _SPIES.fullmatch(name):
            self.saw("spies", Category.CREDENTIAL_ACCESS, _MEDIUM, node, "Reads the clipboard, the screen, the camera or stored passwords.")
        if name in ("os.environ.items", "os.environ.copy", "dict", "json.dumps", "str") and (name.startswith("os.") or any(self.name_of(arg) == "os.environ" for arg in node.args)):
            is_for_child = name == "os.environ.copy"
            self.saw("environment_dump", Category.CREDENTIAL_ACCESS, None if is_for_child else _LOW, node, "Reads all environment variables.")

    def _dumps_environment(self) -> bool:
        return any(seen.rule == "environment_dump" and seen.severity is not None for seen in self.seen)

    def _files(self, name: str, node: ast.Call) -> None:
        text = " ".join(filter(None, [self.text_of(node.func.value) if isinstance(node.func, ast.Attribute) else "", *map(self.text_of, node.args[:2])]))
        writes = name.endswith((".write_text", ".write_bytes", ".symlink_to")) or (
            self._opens(name) and any(re.fullmatch(r"[rb]*[wax+][rwabx+t]*", self.text_of(arg)) for arg in [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")])
        ) or name in ("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.move", "os.symlink")
        if self._opens(name) or writes:
            target = text if not name.startswith("shutil") else self.text_of(node.args[1]) if len(node.args) > 1 else ""
            if writes and any(_SETTLES_IN.search(piece) for piece in target.split(" ")):
                self.saw("settles_in", Category.EXCESSIVE_PERMISSION, _HIGH, node, "Writes to a file that is run or obeyed later.")
            elif not writes and (self._is_secret_path(node) or any(isinstance(arg, ast.Name) and arg.id in self.secret_paths for arg in node.args)):
                severity = _LOW if _DOTENV.search(text.strip()) else _MEDIUM
                self.saw("reads_secrets", Category.CREDENTIAL_ACCESS, severity, node, "Reads a file that holds credentials.")
            elif self.function is not None and Origin.GIVEN in self.origins_of(node.args[0] if node.args else None) and self._is_unconfined(node):
                self.saw("path_traversal", Category.DANGEROUS_CODE, _LOW, node, "Opens a path made from what it is given, without a check that it stays inside.")
        if name in ("shutil.rmtree", "os.removedirs") and node.args and (text.strip() in ("/", "~", "~/", "/home", "/etc") or re.search(r"expanduser\(['\"]~/?['\"]\)|Path\.home\(\)\s*\)", ast.unparse(node))):
            self.saw("deletes_home", Category.DANGEROUS_CODE, _HIGH, node, "Deletes the whole home or system.")
        if name.endswith((".execute", ".executemany", ".executescript", ".raw", ".read_sql")) and node.args:
            query = node.args[0]
            if self._is_built_sql(query) or (isinstance(query, ast.Name) and query.id in self.sql):
                self.saw("sql_injection", Category.DANGEROUS_CODE, _MEDIUM, node, "A database query is put together from text.")

    def _is_unconfined(self, node: ast.Call) -> bool:
        """The path is built from a directory and a given name, and the function checks nothing."""
        path = node.args[0]
        built = self._built_path(path) or (isinstance(path, ast.Name) and self.function is not None and any(
            isinstance(part, ast.Assign) and path.id in [name for target in part.targets for name in _bound(target)] and self._built_path(part.value)
            for part in ast.walk(self.function)
        ))
        return built and self.function is not None and not _CONFINES.search(ast.unparse(self.function))

    def _built_path(self, node: ast.AST) -> bool:
        is_built = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and self.name_of(node.func) in ("os.path.join", "posixpath.join"))
        is_built = is_built or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div))
        return is_built and Origin.GIVEN in self.origins_of(node) and bool(self.text_of(node).strip("/"))

    def _tricks(self, name: str, node: ast.Call) -> None:
        hidden = {"eval", "exec", "system", "popen", "__import__", "compile", "Popen"}
        match node:
            case ast.Call(func=ast.Name(id="__import__"), args=[argument, *_]) if not isinstance(argument, ast.Constant):
                self.saw("hidden_import", Category.OBFUSCATION, _HIGH if self.text_of(argument) else _MEDIUM, node, "Imports a module whose name is hidden.")
            case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(module)), *_]) if module in ("os", "subprocess", "socket", "pty", "ctypes", "base64"):
                self.saw("hidden_import", Category.OBFUSCATION, _MEDIUM, node, f"Imports {module} in passing.")
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, attribute, *_]) if self.text_of(attribute) in hidden and (not isinstance(attribute, ast.Constant) or self.name_of(owner) in ("os", "builtins", "__builtins__", "subprocess")):
                self.saw("hidden_call", Category.OBFUSCATION, _HIGH, node, "Hides which function it calls.")
            case ast.Call(func=ast.Subscript(value=owner, slice=key)) if self.text_of(key) in hidden and re.search(r"globals|locals|vars|__builtins__|__dict__", ast.unparse(owner)[:200]):
                self.saw("hidden_call", Category.OBFUSCATION, _HIGH, node, "Hides which function it calls.")
        if name.startswith("ctypes.") and name.rpartition(".")[2] in ("VirtualAlloc", "CFUNCTYPE", "CreateThread", "mmap", "RtlMoveMemory"):
            self.saw("machine_code", Category.DANGEROUS_CODE, _HIGH, node, "Runs raw machine code.")
        if name == "importlib.import_module" and node.args and Origin.FETCHED in self.origins_of(node.args[0]):
            self.saw("hidden_import", Category.OBFUSCATION, _HIGH, node, "Imports a module whose name was fetched.")
        if name.endswith("setup") and any(k.arg == "cmdclass" for k in node.keywords):
            self.saw("setup_hook", Category.DANGEROUS_CODE, _MEDIUM, node, "Runs its own code when it is installed.")


def _bound(target: ast.AST) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(attr=name):
            yield name
        case ast.Subscript(value=inner) | ast.Starred(value=inner):
            yield from _bound(inner)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _bound(item)


def _has_way_out(loop: ast.While, look: _Look) -> bool:
    for part in ast.walk(loop):
        match part:
            case ast.Break() | ast.Return() | ast.Raise() | ast.Yield() | ast.YieldFrom() | ast.Await() | ast.Try():
                return True
            case ast.Call(func=func) if _BLOCKS.fullmatch(look.name_of(func)) or look.name_of(func) in ("sys.exit", "exit", "quit", "os._exit"):
                return True
            case ast.Call(func=ast.Attribute()):
                return True  # a method may wait or stop
    return False


def _has_no_builtins(node: ast.Call) -> bool:
    return len(node.args) > 1 and "__builtins__" in ast.unparse(node.args[1])[:2000]


def together(seen_by_path: Mapping[str, tuple[Seen, ...]]) -> Iterator[tuple[str, Seen]]:
    """Reading credentials in one file and sending data in another is one deed."""
    reads = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen if seen.rule in ("reads_secrets", "environment_dump", "spies") and seen.severity is not None]
    sends = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen if seen.rule == "sends"]
    if reads and sends:
        source, reader = reads[0]
        path, sender = sends[0]
        why = f"Sends data to a server, and {source}:{reader.line} reads credentials or private data."
        yield path, Seen(rule="reads_and_sends", category=Category.EXFILTRATION, severity=_HIGH, line=sender.line, why=why)
