"""Follows data through JavaScript: what is read, where it goes, what is run, deleted or left behind."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from habitus.screening.code_context import (
    NOTHING,
    SENDS_FAR,
    CodeFinding,
    SkillCodeContext,
    Taint,
    get_command_pattern,
    merge_taints,
    replace_taint_text,
)
from habitus.screening.findings import RiskLevel, ThreatKind
from habitus.screening.hosts import find_hosts, is_throwaway_host
from habitus.screening.shell_code import find_shell_threats_and_output

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MOST_DEPTH = 150
_ADDS = ("push", "add", "append", "set", "unshift")  # what is given to them stays with their object
_MOST_CALLS = 200
_FUNCTIONS = ("arrow_function", "function_expression", "function")


@functools.cache
def _create_parser() -> Parser:
    import tree_sitter_javascript  # the grammars are needed only where there is a script
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_javascript.language()))


def find_javascript_threats(source: str, context: SkillCodeContext) -> tuple[CodeFinding, ...]:
    """Return what a script does that a person should know of."""
    root = _create_parser().parse(source.encode("utf-8", "replace")).root_node
    foreign = context.hosts.find_first_foreign_host(source)
    is_made = re.search(r"chmod(?:Sync)?\(", source) is not None
    script = _JavaScriptTaintAnalyzer(context=context, foreign=foreign, makes_executable=is_made)
    try:
        for script.is_judging in (False, True):  # once more for what is bound above from what is bound below
            script.evaluate_taint_of_node(root, 0)
    except RecursionError:
        why = "The code is nested too deeply to be looked at."
        return (CodeFinding(rule="deep_nesting", severity=RiskLevel.NOTE, line=1, why=why),)
    return tuple(dict.fromkeys(script.found))


@dataclass
class _JavaScriptTaintAnalyzer:
    context: SkillCodeContext
    foreign: str  # the first host in the script that nobody knows
    names: dict[str, Taint] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    found: list[CodeFinding] = field(default_factory=list)
    is_judging: bool = False
    line: int = 1
    has_shell: bool = False
    makes_executable: bool = False
    functions: dict[str, Node] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    calls: int = 0

    def evaluate_taint_of_node(self, node: Node, depth: int) -> Taint:
        """Return what an expression holds; statements are gone through on the way."""
        if depth > _MOST_DEPTH:
            raise RecursionError
        match node.type:
            case "string" | "template_string":
                parts = [self.evaluate_taint_of_node(part, depth + 1) for part in node.named_children]
                return replace_taint_text(merge_taints(parts), "".join(part.text for part in parts))
            case "escape_sequence":
                return Taint(text={"\\n": "\n", "\\t": "\t"}.get(_node_text(node), _node_text(node)[1:]))
            case "string_fragment" | "number":
                return Taint(text=_node_text(node)[:2_000])
            case "identifier" | "shorthand_property_identifier":
                return self.names.get(_node_text(node), NOTHING)
            case "member_expression" | "subscript_expression":
                return self._evaluate_taint_of_member(node, depth)
            case "variable_declarator" | "assignment_expression" | "augmented_assignment_expression":
                return self._bind_assigned_names_to_taint(node, depth)
            case "import_statement":
                self._record_import(node)
                return NOTHING
            case "call_expression" | "new_expression":
                return self._evaluate_taint_of_call(node, depth)
            case "binary_expression":
                parts = [self.evaluate_taint_of_node(part, depth + 1) for part in node.named_children]
                return replace_taint_text(merge_taints(parts), "".join(part.text for part in parts)[:2_000])
            case "for_in_statement":
                self._assign_taint_to_pattern_names(
                    node.child_by_field_name("left"), self._evaluate_taint_of_field(node, "right", depth)
                )
            case "pair" if get_command_pattern("holds").search(_node_text(node.child_by_field_name("key"))):
                return replace(self._evaluate_taint_of_field(node, "value", depth), secret="")
            case "pair":
                return self._evaluate_taint_of_field(node, "value", depth)
            case "function_declaration":
                self.functions[_node_text(node.child_by_field_name("name"))] = node
            case "comment":
                return NOTHING
        return merge_taints(self.evaluate_taint_of_node(child, depth + 1) for child in node.named_children)

    def _evaluate_taint_of_field(self, node: Node, name: str, depth: int) -> Taint:
        child = node.child_by_field_name(name)
        return self.evaluate_taint_of_node(child, depth + 1) if child is not None else NOTHING

    def _evaluate_taint_of_member(self, node: Node, depth: int) -> Taint:
        dotted = self._resolve_name(node)
        if dotted == "process.env":
            return Taint(secret="all environment variables")
        if get_command_pattern("browser_stores").fullmatch(dotted):
            return Taint(secret=f"the page's {dotted.partition('.')[2]}")
        if found := re.fullmatch(r"process\.env\.(\w+)", dotted):
            home = found[1].upper() in ("HOME", "USERPROFILE")
            return (
                Taint(text="~")
                if home
                else Taint(
                    keys=frozenset({found[1]}) if get_command_pattern("key_name").search(found[1]) else frozenset()
                )
            )
        return replace_taint_text(self._evaluate_taint_of_field(node, "object", depth), "")

    def _bind_assigned_names_to_taint(self, node: Node, depth: int) -> Taint:
        target = node.child_by_field_name("name") or node.child_by_field_name("left")
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if target is None or value is None:
            return NOTHING
        flow = self.evaluate_taint_of_node(value, depth + 1)
        if module := re.match(r"(?:await )?(?:require|import)\(['\"](?:node:)?([\w/-]+)['\"]\)", _node_text(value)):
            self._record_import_names(target, module[1])
        elif self._resolve_name(value) == "process.env" and target.type == "object_pattern":
            keys = re.findall(r"\w+", _node_text(target))
            flow = Taint(keys=frozenset(filter(get_command_pattern("key_name").search, keys)))
        self._assign_taint_to_pattern_names(target, flow)
        return flow

    def _assign_taint_to_pattern_names(self, target: Node | None, flow: Taint) -> None:
        """Every name in a pattern stands for the value."""
        if target is None:
            return
        if target.type in ("identifier", "shorthand_property_identifier_pattern", "property_identifier"):
            old = self.names.get(_node_text(target), NOTHING)
            self.names[_node_text(target)] = replace_taint_text(old | flow, flow.text or old.text)
        for child in target.named_children if target.type != "member_expression" else ():
            self._assign_taint_to_pattern_names(child, flow)

    def _record_import(self, node: Node) -> None:
        source = _node_text(node.child_by_field_name("source")).strip("'\"").removeprefix("node:")
        for child in node.named_children:
            if child.type == "import_clause":
                self._record_import_names(child, source)

    def _record_import_names(self, target: Node, module: str) -> None:
        module = module.removesuffix("/promises")
        if target.type in ("identifier", "namespace_import"):
            self.modules[_node_text(target).split()[-1]] = module
        elif target.type == "import_clause" and target.named_children[0].type in ("identifier", "namespace_import"):
            self.modules[_node_text(target.named_children[0]).split()[-1]] = module
        for pair in re.findall(r"(\w+)(?:\s*(?::|\bas\b)\s*(\w+))?", _node_text(target).partition("{")[2]):
            self.modules[pair[1] or pair[0]] = f"{module}.{pair[0]}"

    def _resolve_name(self, node: Node | None) -> str:
        """The name that is called, with imports resolved and in small letters after the first: `cp.exec`."""
        parts: list[str] = []
        for _ in range(20):
            if node is None:
                break
            if node.type in ("member_expression", "subscript_expression"):
                key = node.child_by_field_name("property") or node.child_by_field_name("index")
                parts.append(_node_text(key).strip("'\"`"))
                node = node.child_by_field_name("object")
            elif node.type == "call_expression":
                inner = re.match(r"require\(['\"](?:node:)?([\w/-]+)['\"]\)$", _node_text(node)[:80])
                if inner:
                    parts.append(inner[1])
                    break
                node = node.child_by_field_name("function")
            elif node.type in ("await_expression", "parenthesized_expression") and node.named_children:
                node = node.named_children[0]
            else:
                parts.append(self.modules.get(_node_text(node)[:60], _node_text(node)[:60]))
                break
        return ".".join(reversed(parts))

    def _evaluate_taint_of_call(self, node: Node, depth: int) -> Taint:
        called = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        name = ("new " if node.type == "new_expression" else "") + self._resolve_name(called).lower()
        listed = node.child_by_field_name("arguments")
        given = [child for child in listed.named_children if child.type != "comment"] if listed is not None else []
        if called is None or called.type == "identifier":
            owner = NOTHING
        else:
            is_method = called.type == "member_expression"
            owner = (
                self._evaluate_taint_of_field(called, "object", depth)
                if is_method
                else self.evaluate_taint_of_node(called, depth + 1)
            )
        plain = [one for one in given if one.type not in _FUNCTIONS]
        flows = [self.evaluate_taint_of_node(one, depth + 1) for one in plain]
        self.line = node.start_point[0] + 1
        result = self._trace_and_report_call(name, owner, flows, plain) | self._evaluate_taint_returned_by_function(
            _node_text(called), flows, depth
        )
        if called is not None and name.rpartition(".")[2] in _ADDS:
            self._assign_taint_to_pattern_names(called.child_by_field_name("object"), merge_taints(flows))
        for one in given:
            if one.type in _FUNCTIONS:  # what a callback is given comes from what is called
                self._assign_taint_to_pattern_names(
                    one.child_by_field_name("parameters") or one.child_by_field_name("parameter"), owner | result
                )
                result = result | self.evaluate_taint_of_node(one, depth + 1)
        return result

    def _evaluate_taint_returned_by_function(self, name: str, flows: Sequence[Taint], depth: int) -> Taint:
        """What a function of the script returns for what it is given."""
        function = self.functions.get(name)
        if function is None or name in self.entered or self.calls > _MOST_CALLS:
            return NOTHING
        self.calls += 1
        self.entered.add(name)
        parameters = function.child_by_field_name("parameters")
        for parameter, flow in zip(parameters.named_children if parameters is not None else (), flows, strict=False):
            self._assign_taint_to_pattern_names(parameter, flow)
        returned = self._evaluate_taint_of_field(function, "body", depth)
        self.entered.discard(name)
        return returned

    def _trace_and_report_call(self, name: str, owner: Taint, flows: Sequence[Taint], plain: Sequence[Node]) -> Taint:
        first = flows[0] if flows else NOTHING
        everything = merge_taints([owner, *flows])
        if name == "os.homedir":
            return Taint(text="~")
        if get_command_pattern("joins").fullmatch(name):
            mark = "/" if name.startswith("path") else ""
            return replace_taint_text(
                everything, mark.join(one.text for one in flows if one.text) if mark else everything.text
            )
        if get_command_pattern("reads").fullmatch(name) and get_command_pattern("secret_path").search(first.text):
            return Taint(secret=first.text)
        if get_command_pattern("reads").fullmatch(name) and (
            first.personal or get_command_pattern("home_file").match(first.text)
        ):
            return Taint(personal=first.personal or first.text)
        if get_command_pattern("browser_reads").fullmatch(f"{name} {first.text}"):
            return Taint(secret="what is typed or stored in the browser")
        if get_command_pattern("lists").fullmatch(name):
            return Taint(
                personal=first.text.rstrip("/*")
                if get_command_pattern("personal_root").fullmatch(first.text)
                else owner.personal
            )
        if get_command_pattern("decodes").fullmatch(name) or (
            name == "buffer.from" and flows[1:] and flows[1].text in ("base64", "hex")
        ):
            return replace(everything, decoded=True, text="")
        if get_command_pattern("sends").fullmatch(name):
            return self._judge_network_use(name, flows, plain)
        if get_command_pattern("hands_on").fullmatch(name) and merge_taints(flows).secret and self.foreign:
            self._report(
                ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(merge_taints(flows).secret, self.foreign)
            )
        if (
            get_command_pattern("evaluates").fullmatch(name)
            and (everything.fetched or everything.decoded)
            and "=>" not in _node_text(plain[0] if plain else None)[:80]
        ):
            source = f"whatever {everything.fetched} sends" if everything.fetched else "text that it decodes first"
            self._report(ThreatKind.RUNS_DOWNLOADS, f"Runs {source}.")
        if get_command_pattern("runs").fullmatch(name) and not name.startswith(("regexp", "/")):
            printed = self._trace_and_report_command(name, flows, plain)
            return Taint(shell=self.has_shell, secret=printed.secret or printed.token)
        if get_command_pattern("writes").fullmatch(name) and len(flows) > 1:
            self._report_threats_of_file_write(first, flows[1])
        if get_command_pattern("deletes").fullmatch(name):
            self._report_threats_of_inner_code(f"rm -rf {first.text or 'x'}")
            if first.personal:
                self._report(ThreatKind.DESTROYS, f"Deletes the files below {first.personal}.")
        return everything

    def _judge_network_use(self, name: str, flows: Sequence[Taint], plain: Sequence[Node]) -> Taint:
        texts = [*(flow.text for flow in flows), *(_node_text(one)[:2_000] for one in plain)]
        named = re.search(r"host(?:name)?\s*:\s*['\"`]([\w.-]+)", " ".join(texts))
        hosts = [*([named[1]] if named else []), *(host for text in texts for host in find_hosts(text))]
        target = next(filter(self.context.is_foreign_host, hosts), hosts[0] if hosts else "")
        handed = merge_taints(flows)
        if handed.secret and (target or self.foreign):
            self._report(
                ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(handed.secret, target or self.foreign)
            )
        elif handed.personal and self.context.is_foreign_host(target or self.foreign):
            why = f"Sends the files below {handed.personal} to {target or self.foreign}."
            self._report(ThreatKind.SENDS_PRIVATE_DATA, why)
        elif is_throwaway_host(target) and (handed.keys or (len(plain) > 1 and "body" in _node_text(plain[1]))):
            self._report(
                ThreatKind.SENDS_PRIVATE_DATA, f"Sends data to {target}, a host that anyone can have for a minute."
            )
        elif self.context.is_foreign_host(target) and (len(plain) > 1 or name.endswith(("post", "put"))):
            self._report(SENDS_FAR, f"Sends data to {target}.", RiskLevel.NOTE)
        for key in self.context.find_keys_of_other_services(handed.keys, target):
            self._report(ThreatKind.SENDS_SECRETS, f"Sends {key} to {target}, which is not where it belongs.")
        if self.has_shell and "connect" in name and target:
            self._report(ThreatKind.OPENS_ACCESS, f"Opens a shell on this machine for {target}.")
        return Taint(fetched=target if target and self.context.is_foreign_host(target) else "")

    def _trace_and_report_command(self, name: str, flows: Sequence[Taint], plain: Sequence[Node]) -> Taint:
        """Return what the command prints."""
        listed = plain[1].named_children if plain[1:] and plain[1].type == "array" else []
        words = [self.evaluate_taint_of_node(one, 0).text for one in listed]
        command = " ".join([*(flow.text for flow in flows[:1]), *map(shlex.quote, words)])
        if self.makes_executable and self.foreign:
            self._report(ThreatKind.RUNS_DOWNLOADS, f"Runs a program that it downloads from {self.foreign}.")
        if any(flow.fetched or flow.decoded for flow in flows):
            self._report(ThreatKind.RUNS_DOWNLOADS, "Runs a command that was downloaded or decoded.")
        self.has_shell |= re.fullmatch(r"(?:/\w+)*/?(?:ba|z)?sh|cmd(?:\.exe)?|powershell", command.strip()) is not None
        self._report_threats_of_inner_code(command)
        secret, host = merge_taints(flows).secret, self.context.hosts.find_first_foreign_host(command)
        if secret and host:
            self._report(ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(secret, host))
        return find_shell_threats_and_output(command, self.context)[1]

    def _report_threats_of_file_write(self, path: Taint, content: Taint) -> None:
        if path.personal:
            self._report(ThreatKind.DESTROYS, f"Overwrites the files below {path.personal}.")
        if path.text and content.text:
            self._report_threats_of_inner_code(f"cat >> '{path.text}' <<'HABITUS_END'\n{content.text}\nHABITUS_END\n")

    def _report_threats_of_inner_code(self, command: str) -> None:
        for one in self.context.find_inner_code_threats(command, "sh") if self.is_judging else ():
            self._report(one.rule, one.why, one.severity)

    def _report(self, rule: str, why: str, severity: RiskLevel = RiskLevel.HIGH) -> None:
        if self.is_judging:
            self.found.append(CodeFinding(rule=rule, severity=severity, line=self.line, why=why))


def _node_text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
