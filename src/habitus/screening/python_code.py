"""Looks at Python through its syntax tree: what a script does with the data it gets hold of."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from habitus.screening.code_context import READS_SECRETS, SENDS_FAR, CodeFinding, SkillCodeContext, get_command_pattern
from habitus.screening.findings import RiskLevel, ThreatKind
from habitus.screening.hosts import HostKind, find_hosts, is_host_of_other_service, is_throwaway_host
from habitus.screening.values import NONE, PythonValueTable, ValueOrigin, ValueOrigins, is_open_function

_HIGH, _NOTE = RiskLevel.HIGH, RiskLevel.NOTE
_PER_RULE = 8
_MOST_PAIRS = 64
_EXECUTABLE = re.compile(r"chmod\([^)\n]{0,80}(?:0o?[57][0-7]{2}|S_IX|S_IEXEC|stat\.)")

_CONNECTS = re.compile(r"(?:FTP|FTP_TLS|SMTP|SMTP_SSL|connect|Connection|Telnet|gethostbyname|Transport)$")
_HOST_NAME = re.compile(r"(?:[\w-]+\.)+[a-z]{2,24}")
_WRITE_MODE = re.compile(r"[rb]*[wax+][rwabx+t]*")
_BODIES = ("data", "json", "params", "files", "content", "body")
_OWNERS = ("os", "builtins", "__builtins__", "subprocess")
_HIDDEN_NAMES = frozenset({"eval", "exec", "system", "popen", "__import__", "compile", "Popen"})
_WRITERS = ("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.move", "os.symlink")


def find_python_threats(source: str, context: SkillCodeContext) -> tuple[CodeFinding, ...]:
    """Return what the code does that a person should know of; nothing if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        look = _PythonThreatFinder(
            values=PythonValueTable(),
            has_sockets="socket" in source,
            has_run_key="CurrentVersion" in source and "Run" in source,
            context=context,
            makes_executable=_EXECUTABLE.search(source) is not None,
            foreign=context.hosts.find_first_foreign_host(source),
        )
        look.values.context = context
        look.values.record_values_of_module(tree)
        look.visit(tree)
    except (SyntaxError, ValueError):
        return ()
    except (RecursionError, MemoryError):
        return (
            CodeFinding(
                rule="deep_nesting", severity=_HIGH, line=1, why="The code is nested too deeply to be looked at."
            ),
        )
    return tuple(look.seen)


def combine_secret_reads_with_sends(
    found_by_path: Mapping[str, tuple[CodeFinding, ...]],
) -> Iterator[tuple[str, CodeFinding]]:
    """Reading credentials and sending data to a stranger are one threat, in whatever files they stand."""
    everything = [(path, found) for path, all_found in found_by_path.items() for found in all_found]
    reads = [one for one in everything if one[1].rule in (READS_SECRETS, "environment_dump", "spies")]
    sends = [one for one in everything if one[1].rule == SENDS_FAR]
    for (source, reader), (path, sender) in [*itertools.product(reads, sends)][:_MOST_PAIRS]:
        if source == path and (
            reader.rule == "environment_dump"
            or any(one.rule == ThreatKind.SENDS_SECRETS for one in found_by_path[path])
        ):
            continue
        why = f"{sender.why.rstrip('.')}, and {source}:{reader.line} reads credentials or private data."
        yield path, CodeFinding(rule=ThreatKind.SENDS_SECRETS, severity=_HIGH, line=sender.line, why=why)
        return


@dataclass
class _PythonThreatFinder(ast.NodeVisitor):
    values: PythonValueTable
    has_sockets: bool
    has_run_key: bool
    context: SkillCodeContext
    makes_executable: bool
    foreign: str  # the first host in the file that the skill has nothing else to do with
    seen: list[CodeFinding] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)

    def report(self, rule: str, severity: RiskLevel, node: ast.expr | ast.stmt, why: str) -> None:
        self.count[rule] += 1
        if self.count[rule] <= _PER_RULE:
            self.seen.append(CodeFinding(rule=rule, severity=severity, line=node.lineno, why=why))

    def visit_Call(self, node: ast.Call) -> None:
        name = self.values.resolve_dotted_call_name(node.func)
        self._report_threats_of_evaluation(name, node)
        self._report_threats_of_command(name, node)
        self._report_threats_of_environment_reads(name, node)
        self._report_threats_of_network_use(name, node)
        self._report_threats_of_file_access(name, node)
        self._report_threats_of_obfuscation(name, node)
        self.generic_visit(node)

    def _report_threats_of_evaluation(self, name: str, node: ast.Call) -> None:
        if not node.args:
            return
        origins = self.values.find_origins(node.args[0])
        is_foreign = bool(origins & {ValueOrigin.FETCHED, ValueOrigin.DECODED})
        text = " ".join(map(self.values.evaluate_constant_text, node.args))
        if (
            self.foreign
            and get_command_pattern("python_imports").fullmatch(name)
            and any(path in text for path in self.values.downloaded)
        ):
            self.report(ThreatKind.RUNS_DOWNLOADS, _HIGH, node, f"Imports what it downloads from {self.foreign}.")
        if get_command_pattern("python_evaluates").fullmatch(name):
            if is_foreign:
                self.report(
                    ThreatKind.RUNS_DOWNLOADS, _HIGH, node, f"Runs code that was downloaded or decoded: {name}()."
                )
            elif not (name.endswith("compile") or _is_evaluated_without_builtins(node)):
                self.report("evaluates", _NOTE, node, f"{name}() runs text as code.")
        elif get_command_pattern("python_unpickles").fullmatch(name) and not any(
            word.arg in ("Loader", "weights_only") for word in node.keywords
        ):
            why = f"{name}() can run code that is hidden in the data."
            self.report(
                ThreatKind.RUNS_DOWNLOADS if is_foreign else "unpickles", _HIGH if is_foreign else _NOTE, node, why
            )

    def _report_threats_of_command(self, name: str, node: ast.Call) -> None:
        if not node.args or not (
            get_command_pattern("python_runs_shell").fullmatch(name)
            or get_command_pattern("python_runs").fullmatch(name)
        ):
            return
        first = node.args[0]
        parts = (
            [self.values.evaluate_constant_text(part) or "x" for part in first.elts]
            if isinstance(first, ast.List)
            else []
        )
        text, origins = shlex.join(parts) or self.values.evaluate_constant_text(first), self.values.find_origins(first)
        if self.makes_executable and self.foreign and ValueOrigin.FETCHED in self.values.all_value_origins_in_file:
            self.report(
                ThreatKind.RUNS_DOWNLOADS, _HIGH, node, f"Runs a program that it downloads from {self.foreign}."
            )
        elif self.foreign and any(path in text for path in self.values.downloaded):
            self.report(ThreatKind.RUNS_DOWNLOADS, _HIGH, node, f"Runs what it downloads from {self.foreign}.")
        if origins & {ValueOrigin.FETCHED, ValueOrigin.DECODED}:
            self.report(ThreatKind.RUNS_DOWNLOADS, _HIGH, node, "Runs a command that was downloaded or decoded.")
        if ValueOrigin.SECRET in origins and (host := self.context.hosts.find_first_foreign_host(text)):
            self.report(ThreatKind.SENDS_SECRETS, _HIGH, node, f"Sends credentials to {host}.")
        if ValueOrigin.PERSONAL in origins and re.match(r"(?:rm|shred|gpg|openssl|del)\b", text):
            self.report(ThreatKind.DESTROYS, _HIGH, node, "Deletes the person's files one by one.")
        if get_command_pattern("python_spy_command").search(text):
            self.report("spies", _NOTE, node, "Reads the clipboard, the screen or the keychain.")
        self._report_threats_of_inner_code(text, node)

    def _report_threats_of_inner_code(self, command: str, node: ast.Call) -> None:
        for one in self.context.find_inner_code_threats(command, "sh"):
            self.report(one.rule, one.severity, node, one.why)

    def _report_threats_of_environment_reads(self, name: str, node: ast.Call) -> None:
        takes_all = name in ("dict", "json.dumps", "str") and any(
            self.values.resolve_dotted_call_name(arg) == "os.environ" for arg in node.args
        )
        if name == "os.environ.items" or takes_all:
            self.report("environment_dump", _NOTE, node, "Reads all environment variables.")
        if get_command_pattern("python_spies").fullmatch(name):
            self.report("spies", _NOTE, node, "Reads the clipboard, the screen, the keyboard, the camera or passwords.")

    def _report_threats_of_network_use(self, name: str, node: ast.Call) -> None:
        first = self.values.evaluate_constant_text(node.args[0]).strip(" .\n") if node.args else ""
        target = next(find_hosts(first), first if _CONNECTS.search(name) and _HOST_NAME.fullmatch(first) else "")
        is_far = self.context.is_foreign_host(target) and "://" in first[:8]
        is_sending = get_command_pattern("python_sends").fullmatch(name) is not None
        self.foreign = self.foreign or (
            target if self.context.is_foreign_host(target) and (is_far or is_sending) else ""
        )
        # Whatever the library, a call with a stranger's address and more to say sends that there.
        if is_sending or is_far or get_command_pattern("python_gets").fullmatch(name):
            bodies = [word.value for word in node.keywords if word.arg in _BODIES]
            bodies += node.args if is_sending and not target else node.args[1:]
            bodies += node.args[:1] if is_far or is_sending else []
            host = target or self.foreign
            is_far = bool(host) and self.context.hosts.classify(host) in (HostKind.FOREIGN, HostKind.PLACEHOLDER)
            if is_sending and is_far:
                self.report(SENDS_FAR, _NOTE, node, f"Sends data to {host}.")
            origins: ValueOrigins = NONE.union(*map(self.values.find_origins, bodies))
            if (
                is_far
                and target
                and any(
                    is_host_of_other_service(service, target)
                    for service in self.values.find_services_of_keys_in_expression(node)
                )
            ):
                self.report(ThreatKind.SENDS_SECRETS, _HIGH, node, f"Sends a key of another service to {target}.")
            elif is_sending and bodies and is_throwaway_host(target):
                self.report(ThreatKind.SENDS_PRIVATE_DATA, _HIGH, node, f"Sends data to {target}, a throwaway host.")
            elif origins & {ValueOrigin.PERSONAL, ValueOrigin.HOME_FILE} and is_far and is_sending:
                self.report(ThreatKind.SENDS_PRIVATE_DATA, _HIGH, node, f"Sends the person's files to {host}.")
            elif ValueOrigin.SECRET in origins:
                severity = _HIGH if is_far or not host else _NOTE
                self.report(ThreatKind.SENDS_SECRETS, severity, node, f"Sends credentials to {host or 'a server'}.")
        if name.endswith((".create_remote", ".push")) and (
            host := self.context.hosts.find_first_foreign_host(
                " ".join(map(self.values.evaluate_constant_text, node.args))
            )
        ):
            self.report(ThreatKind.SENDS_PRIVATE_DATA, _HIGH, node, f"Pushes the repository to {host}.")
        if self.has_sockets and name in ("os.dup2", "pty.spawn"):
            self.report(ThreatKind.OPENS_ACCESS, _HIGH, node, "Opens a shell on this machine for someone else.")

    def _report_threats_of_file_access(self, name: str, node: ast.Call) -> None:
        path = node.func.value if isinstance(node.func, ast.Attribute) and "." in name else None
        operands = [*node.args[:2], *([path] if path is not None else [])]
        is_theirs = any(ValueOrigin.PERSONAL in self.values.find_origins(one) for one in operands)
        if self._is_write_call(name, node):
            targets = node.args[1:2] if name in _WRITERS else operands
            for target in targets if not is_theirs else ():
                self._report_threats_of_file_write(self.values.evaluate_constant_text(target), node)
            if is_theirs:
                self.report(ThreatKind.DESTROYS, _HIGH, node, "Overwrites the person's files one by one.")
        elif is_open_function(name) and any(map(self.values.has_secret_path_in_expression, [*operands, node])):
            is_settings = get_command_pattern("settings_file").search(
                " ".join(map(self.values.evaluate_constant_text, operands))
            )
            rule = "reads_settings" if is_settings else READS_SECRETS
            self.report(rule, _NOTE, node, "Reads a file that holds credentials.")
        if name.endswith("SetValueEx") and self.has_run_key:
            self.report(ThreatKind.STARTS_ITSELF, _HIGH, node, "Makes itself start with Windows.")
        if get_command_pattern("python_deletes").fullmatch(name):
            self._report_threats_of_inner_code(
                "rm -rf " + " ".join(filter(None, map(self.values.evaluate_constant_text, operands))), node
            )
            if is_theirs:
                self.report(ThreatKind.DESTROYS, _HIGH, node, "Deletes the person's files one by one.")

    def _report_threats_of_file_write(self, path: str, node: ast.Call) -> None:
        """What is written to a file that is run later is judged by all the texts that the file may write."""
        if path and len(path) < 200 and "\n" not in path:
            written = (
                self.values.evaluate_constant_text(node.args[0])
                if node.args and "write" in self.values.resolve_dotted_call_name(node.func)
                else ""
            )
            content = written or "\n".join(text for text in self.values.written if text != path)
            self._report_threats_of_inner_code(f"cat >> '{path}' <<'HABITUS_END'\n{content}\nHABITUS_END\n", node)

    def _is_write_call(self, name: str, node: ast.Call) -> bool:
        if name.endswith((".write_text", ".write_bytes", ".symlink_to")) or name in _WRITERS:
            return True
        place = 1 if name.endswith("open") and "." not in name else 0 if name.endswith(".open") else 1
        modes = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "mode")]
        return is_open_function(name) and any(
            _WRITE_MODE.fullmatch(self.values.evaluate_constant_text(mode)) for mode in modes
        )

    def _report_threats_of_obfuscation(self, name: str, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, attribute, *_]):
                is_hidden = (
                    not isinstance(attribute, ast.Constant) or self.values.resolve_dotted_call_name(owner) in _OWNERS
                )
            case ast.Call(func=ast.Subscript(value=owner, slice=attribute)):
                is_hidden = (
                    re.search(r"globals|locals|vars|__builtins__|__dict__", ast.unparse(owner)[:200]) is not None
                )
            case _:
                return
        if is_hidden and self.values.evaluate_constant_text(attribute) in _HIDDEN_NAMES:
            self.report("hidden_call", _HIGH, node, "Hides which function it calls.")


def _is_evaluated_without_builtins(node: ast.Call) -> bool:
    return len(node.args) > 1 and "__builtins__" in ast.unparse(node.args[1])[:2000]
