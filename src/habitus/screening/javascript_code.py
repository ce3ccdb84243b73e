"""Follows data through JavaScript: what is read, where it goes, what is run, deleted or left behind."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from habitus.screening.code_context import NOTHING, CodeContext, CodeFinding, Flow, patterns, union, with_text
from habitus.screening.findings import Deed, Risk
from habitus.screening.hosts import find_hosts, is_throwaway

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_MOST_DEPTH = 150
_MOST_CALLS = 200
_FUNCTIONS = ("arrow_function", "function_expression", "function")


@functools.cache
def _parser() -> Parser:
    import tree_sitter_javascript  # the grammars are needed only where there is a script
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_javascript.language()))


def find_javascript_deeds(source: str, context: CodeContext) -> tuple[CodeFinding, ...]:
    """Return what a script does that a person should know of."""
    root = _parser().parse(source.encode("utf-8", "replace")).root_node
    foreign = context.hosts.foreign_host(source)
    is_made = re.search(r"chmod(?:Sync)?\(", source) is not None
    script = _Script(context=context, foreign=foreign, makes_executable=is_made)
    try:
        for script.is_judging in (False, True):  # once more for what is bound above from what is bound below
            script.value(root, 0)
    except RecursionError:
        why = "The code is nested too deeply to be looked at."
        return (CodeFinding(rule="deep_nesting", severity=Risk.NOTE, line=1, why=why),)
    return tuple(dict.fromkeys(script.found))


@dataclass
class _Script:
    context: CodeContext
    foreign: str  # the first host in the script that nobody knows
    names: dict[str, Flow] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    found: list[CodeFinding] = field(default_factory=list)
    is_judging: bool = False
    line: int = 1
    has_shell: bool = False
    makes_executable: bool = False
    functions: dict[str, Node] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    calls: int = 0

    def value(self, node: Node, depth: int) -> Flow:
        """Return what an expression holds; statements are gone through on the way."""
        if depth > _MOST_DEPTH:
            raise RecursionError
        match node.type:
            case "string" | "template_string":
                parts = [self.value(part, depth + 1) for part in node.named_children]
                return with_text(union(parts), "".join(part.text for part in parts))
            case "escape_sequence":
                return Flow(text={"\\n": "\n", "\\t": "\t"}.get(_text(node), _text(node)[1:]))
            case "string_fragment" | "number":
                return Flow(text=_text(node)[:2_000])
            case "identifier" | "shorthand_property_identifier":
                return self.names.get(_text(node), NOTHING)
            case "member_expression" | "subscript_expression":
                return self._member(node, depth)
            case "variable_declarator" | "assignment_expression" | "augmented_assignment_expression":
                return self._bind(node, depth)
            case "import_statement":
                self._import(node)
                return NOTHING
            case "call_expression" | "new_expression":
                return self._call(node, depth)
            case "binary_expression":
                parts = [self.value(part, depth + 1) for part in node.named_children]
                return with_text(union(parts), "".join(part.text for part in parts)[:2_000])
            case "for_in_statement":
                self._name(node.child_by_field_name("left"), self._of(node, "right", depth))
            case "pair" if patterns()["holds"].search(_text(node.child_by_field_name("key"))):
                return replace(self._of(node, "value", depth), secret="")
            case "pair":
                return self._of(node, "value", depth)
            case "function_declaration":
                self.functions[_text(node.child_by_field_name("name"))] = node
            case "comment":
                return NOTHING
        return union(self.value(child, depth + 1) for child in node.named_children)

    def _of(self, node: Node, name: str, depth: int) -> Flow:
        child = node.child_by_field_name(name)
        return self.value(child, depth + 1) if child is not None else NOTHING

    def _member(self, node: Node, depth: int) -> Flow:
        dotted = self._dotted(node)
        if dotted == "process.env":
            return Flow(secret="all environment variables")
        if found := re.fullmatch(r"process\.env\.(\w+)", dotted):
            home = found[1].upper() in ("HOME", "USERPROFILE")
            return (
                Flow(text="~")
                if home
                else Flow(keys=frozenset({found[1]}) if patterns()["key_name"].search(found[1]) else frozenset())
            )
        return with_text(self._of(node, "object", depth), "")

    def _bind(self, node: Node, depth: int) -> Flow:
        target = node.child_by_field_name("name") or node.child_by_field_name("left")
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        if target is None or value is None:
            return NOTHING
        flow = self.value(value, depth + 1)
        if module := re.match(r"(?:await )?(?:require|import)\(['\"](?:node:)?([\w/-]+)['\"]\)", _text(value)):
            self._import_names(target, module[1])
        elif self._dotted(value) == "process.env" and target.type == "object_pattern":
            keys = re.findall(r"\w+", _text(target))
            flow = Flow(keys=frozenset(filter(patterns()["key_name"].search, keys)))
        self._name(target, flow)
        return flow

    def _name(self, target: Node | None, flow: Flow) -> None:
        """Every name in a pattern stands for the value."""
        if target is None:
            return
        if target.type in ("identifier", "shorthand_property_identifier_pattern", "property_identifier"):
            old = self.names.get(_text(target), NOTHING)
            self.names[_text(target)] = with_text(old | flow, flow.text or old.text)
        for child in target.named_children if target.type != "member_expression" else ():
            self._name(child, flow)

    def _import(self, node: Node) -> None:
        source = _text(node.child_by_field_name("source")).strip("'\"").removeprefix("node:")
        for child in node.named_children:
            if child.type == "import_clause":
                self._import_names(child, source)

    def _import_names(self, target: Node, module: str) -> None:
        module = module.removesuffix("/promises")
        if target.type in ("identifier", "namespace_import"):
            self.modules[_text(target).split()[-1]] = module
        elif target.type == "import_clause" and target.named_children[0].type in ("identifier", "namespace_import"):
            self.modules[_text(target.named_children[0]).split()[-1]] = module
        for pair in re.findall(r"(\w+)(?:\s*(?::|\bas\b)\s*(\w+))?", _text(target).partition("{")[2]):
            self.modules[pair[1] or pair[0]] = f"{module}.{pair[0]}"

    def _dotted(self, node: Node | None) -> str:
        """The name that is called, with imports resolved and in small letters after the first: `cp.exec`."""
        parts: list[str] = []
        for _ in range(20):
            if node is None:
                break
            if node.type in ("member_expression", "subscript_expression"):
                key = node.child_by_field_name("property") or node.child_by_field_name("index")
                parts.append(_text(key).strip("'\"`"))
                node = node.child_by_field_name("object")
            elif node.type == "call_expression":
                inner = re.match(r"require\(['\"](?:node:)?([\w/-]+)['\"]\)$", _text(node)[:80])
                if inner:
                    parts.append(inner[1])
                    break
                node = node.child_by_field_name("function")
            elif node.type in ("await_expression", "parenthesized_expression") and node.named_children:
                node = node.named_children[0]
            else:
                parts.append(self.modules.get(_text(node)[:60], _text(node)[:60]))
                break
        return ".".join(reversed(parts))

    def _call(self, node: Node, depth: int) -> Flow:
        called = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        name = ("new " if node.type == "new_expression" else "") + self._dotted(called).lower()
        listed = node.child_by_field_name("arguments")
        given = [child for child in listed.named_children if child.type != "comment"] if listed is not None else []
        if called is None or called.type == "identifier":
            owner = NOTHING
        else:
            is_method = called.type == "member_expression"
            owner = self._of(called, "object", depth) if is_method else self.value(called, depth + 1)
        plain = [one for one in given if one.type not in _FUNCTIONS]
        flows = [self.value(one, depth + 1) for one in plain]
        self.line = node.start_point[0] + 1
        result = self._act(name, owner, flows, plain) | self._enter(_text(called), flows, depth)
        for one in given:
            if one.type in _FUNCTIONS:  # what a callback is given comes from what is called
                self._name(
                    one.child_by_field_name("parameters") or one.child_by_field_name("parameter"), owner | result
                )
                result = result | self.value(one, depth + 1)
        return result

    def _enter(self, name: str, flows: Sequence[Flow], depth: int) -> Flow:
        """What a function of the script returns for what it is given."""
        function = self.functions.get(name)
        if function is None or name in self.entered or self.calls > _MOST_CALLS:
            return NOTHING
        self.calls += 1
        self.entered.add(name)
        parameters = function.child_by_field_name("parameters")
        for parameter, flow in zip(parameters.named_children if parameters is not None else (), flows, strict=False):
            self._name(parameter, flow)
        returned = self._of(function, "body", depth)
        self.entered.discard(name)
        return returned

    def _act(self, name: str, owner: Flow, flows: Sequence[Flow], plain: Sequence[Node]) -> Flow:
        first = flows[0] if flows else NOTHING
        everything = union([owner, *flows])
        if name == "os.homedir":
            return Flow(text="~")
        if patterns()["joins"].fullmatch(name):
            mark = "/" if name.startswith("path") else ""
            return with_text(everything, mark.join(one.text for one in flows if one.text) if mark else everything.text)
        if patterns()["reads"].fullmatch(name) and patterns()["secret_path"].search(first.text):
            return Flow(secret=first.text)
        if patterns()["lists"].fullmatch(name):
            return Flow(
                personal=first.text.rstrip("/*")
                if patterns()["personal_root"].fullmatch(first.text)
                else owner.personal
            )
        if patterns()["decodes"].fullmatch(name) or (
            name == "buffer.from" and flows[1:] and flows[1].text in ("base64", "hex")
        ):
            return replace(everything, decoded=True, text="")
        if patterns()["sends"].fullmatch(name):
            return self._network(name, flows, plain)
        if patterns()["hands_on"].fullmatch(name) and union(flows).secret and self.foreign:
            self._saw(Deed.SENDS_SECRETS, *self.context.judge_sending(union(flows).secret, self.foreign))
        if (
            patterns()["evaluates"].fullmatch(name)
            and (everything.fetched or everything.decoded)
            and "=>" not in _text(plain[0] if plain else None)[:80]
        ):
            source = f"whatever {everything.fetched} sends" if everything.fetched else "text that it decodes first"
            self._saw(Deed.RUNS_DOWNLOADS, f"Runs {source}.")
        if patterns()["runs"].fullmatch(name) and not name.startswith(("regexp", "/")):
            self._run_command(name, flows, plain)
            return Flow(shell=self.has_shell)
        if patterns()["writes"].fullmatch(name) and len(flows) > 1:
            self._write(first, flows[1])
        if patterns()["deletes"].fullmatch(name):
            self._inner(f"rm -rf {first.text or 'x'}")
            if first.personal:
                self._saw(Deed.DESTROYS, f"Deletes the files below {first.personal}.")
        return everything

    def _network(self, name: str, flows: Sequence[Flow], plain: Sequence[Node]) -> Flow:
        texts = [*(flow.text for flow in flows), *(_text(one)[:2_000] for one in plain)]
        named = re.search(r"host(?:name)?\s*:\s*['\"`]([\w.-]+)", " ".join(texts))
        hosts = [*([named[1]] if named else []), *(host for text in texts for host in find_hosts(text))]
        target = next(filter(self.context.is_foreign, hosts), hosts[0] if hosts else "")
        handed = union(flows)
        if handed.secret and (target or self.foreign):
            self._saw(Deed.SENDS_SECRETS, *self.context.judge_sending(handed.secret, target or self.foreign))
        elif is_throwaway(target) and (handed.keys or (len(plain) > 1 and "body" in _text(plain[1]))):
            self._saw(Deed.SENDS_PRIVATE_DATA, f"Sends data to {target}, a host that anyone can have for a minute.")
        for key in self.context.misplaced_keys(handed.keys, target):
            self._saw(Deed.SENDS_SECRETS, f"Sends {key} to {target}, which is not where it belongs.")
        if self.has_shell and "connect" in name and target:
            self._saw(Deed.OPENS_ACCESS, f"Opens a shell on this machine for {target}.")
        return Flow(fetched=target if target and self.context.is_foreign(target) else "")

    def _run_command(self, name: str, flows: Sequence[Flow], plain: Sequence[Node]) -> None:
        listed = re.findall(r"['\"`]([^'\"`]+)['\"`]", _text(plain[1])) if plain[1:] else []
        command = " ".join([*(flow.text for flow in flows[:1]), *map(shlex.quote, listed)])
        if self.makes_executable and self.foreign:
            self._saw(Deed.RUNS_DOWNLOADS, f"Runs a program that it downloads from {self.foreign}.")
        if any(flow.fetched or flow.decoded for flow in flows):
            self._saw(Deed.RUNS_DOWNLOADS, "Runs a command that was downloaded or decoded.")
        self.has_shell |= re.fullmatch(r"(?:/\w+)*/?(?:ba|z)?sh|cmd(?:\.exe)?|powershell", command.strip()) is not None
        self._inner(command)

    def _write(self, path: Flow, content: Flow) -> None:
        if path.personal:
            self._saw(Deed.DESTROYS, f"Overwrites the files below {path.personal}.")
        if path.text and content.text:
            self._inner(f"cat >> '{path.text}' <<'HABITUS_END'\n{content.text}\nHABITUS_END\n")

    def _inner(self, command: str) -> None:
        for one in self.context.read_inner(command, "sh") if self.is_judging else ():
            self._saw(one.rule, one.why, one.severity)

    def _saw(self, rule: str, why: str, severity: Risk = Risk.HIGH) -> None:
        if self.is_judging:
            self.found.append(CodeFinding(rule=rule, severity=severity, line=self.line, why=why))


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
