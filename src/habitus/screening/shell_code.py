"""Follows data through shell commands: what is read, where it goes, what is run, deleted or left behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import TYPE_CHECKING

from habitus.screening.code_context import (
    NOTHING,
    READS_SECRETS,
    SENDS_FAR,
    CodeFinding,
    SkillCodeContext,
    Taint,
    get_command_names,
    get_command_pattern,
    merge_taints,
    replace_taint_text,
)
from habitus.screening.findings import RiskLevel, ThreatKind
from habitus.screening.hosts import find_hosts, is_throwaway_host
from habitus.screening.shell_parsing import (
    get_node_text,
    is_decoder_command,
    load_command_rules,
    make_filter_of_taints_without_code,
    parse_file_named_by_argument,
    parse_shell_script_in_parts,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_DEPTH = 80
_MOST_TEXT = 2_000
_MOST_CALLS = 50  # of functions of the script
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def find_shell_threats_and_output(source: str, context: SkillCodeContext) -> tuple[tuple[CodeFinding, ...], Taint]:
    """Return what commands do that a person should know of, and what they print."""
    tracer = _ShellTaintAnalyzer(context=context)
    try:
        printed = tracer.trace_script_output(source)
    except RecursionError:
        why = "The commands are nested too deeply to be looked at."
        return (CodeFinding(rule="deep_nesting", severity=RiskLevel.HIGH, line=1, why=why),), NOTHING
    return tuple(dict.fromkeys(tracer.found)), printed


@dataclass
class _ShellTaintAnalyzer:
    context: SkillCodeContext
    found: list[CodeFinding] = field(default_factory=list)
    variables: dict[str, Taint] = field(default_factory=dict)
    files: dict[str, Taint] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)  # whose contents were downloaded, by host
    socket: str = ""  # that a descriptor was opened on
    remotes: dict[str, str] = field(default_factory=dict)  # of git, by name
    functions: dict[str, Node] = field(default_factory=dict)
    calls: int = 0
    line: int = 0
    lines_before: int = 0  # the part of the script that is traced

    def trace_script_output(self, source: str) -> Taint:
        """Trace a script part by part and return what it prints."""
        printed = NOTHING
        for self.lines_before, root in parse_shell_script_in_parts(source):
            printed = printed | self.trace_node_output(root, NOTHING, 0)
        return printed

    def trace_node_output(self, node: Node, stdin: Taint, depth: int) -> Taint:
        """Return what the node writes to its output."""
        if depth > _MOST_DEPTH:
            raise RecursionError
        match node.type:
            case "command":
                return self._trace_command(node, stdin, depth)
            case "pipeline":
                for stage in node.named_children:
                    stdin = self.trace_node_output(stage, stdin, depth + 1)
                return stdin
            case "redirected_statement":
                return self._trace_redirect(node, stdin, depth)
            case "variable_assignment":
                self._trace_assignment(node, depth)
                return NOTHING
            case "for_statement" | "c_style_for_statement":
                self._trace_loop(node, depth)
            case "declaration_command" if node.named_child_count == 0 or get_node_text(node) in (
                "export -p",
                "declare -x",
            ):
                return Taint(secret="all environment variables")
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    self.functions[get_node_text(name)] = body
            case "comment" | "heredoc_body":
                return NOTHING
        flow = NOTHING
        for child in node.named_children:
            flow = flow | self.trace_node_output(child, stdin, depth + 1)
        return flow

    def _trace_assignment(self, node: Node, depth: int) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and value is not None:
            self.variables[get_node_text(name)] = self._evaluate_argument(value, depth)

    def _trace_loop(self, node: Node, depth: int) -> None:
        values = [self._evaluate_argument(value, depth) for value in node.children_by_field_name("value")]
        if (name := node.child_by_field_name("variable")) is not None:
            self.variables[get_node_text(name)] = merge_taints(
                self._mark_globbed_personal_files(value) for value in values
            )

    def _mark_globbed_personal_files(self, flow: Taint) -> Taint:
        """Files that a glob names one by one are the person's where it covers a folder of theirs."""
        if flow.personal or not flow.text.rstrip().endswith("*"):
            return flow
        return flow | Taint(personal=self._match_personal_folder(flow.text.rstrip("*/") or "/"))

    def _evaluate_argument(self, node: Node, depth: int) -> Taint:
        """Return what an argument or a value holds, with its text as far as it is known."""
        if depth > _MOST_DEPTH:
            raise RecursionError
        match node.type:
            case "word" | "number" | "string_content" | "variable_name" | "regex" | "special_variable_name":
                return Taint(
                    text=get_command_pattern("home").sub("~", get_node_text(node).replace("\\ ", " ").replace("\\", ""))
                )
            case "raw_string":
                return Taint(text=get_node_text(node)[1:-1])
            case "ansi_c_string":
                return Taint(text=get_node_text(node)[2:-1])
            case "simple_expansion" | "expansion":
                return self._expand_variable_into_taint(get_node_text(node))
            case "command_substitution" | "process_substitution":
                return merge_taints(self.trace_node_output(child, NOTHING, depth + 1) for child in node.named_children)
        parts = [self._evaluate_argument(child, depth + 1) for child in node.children if child.type not in ('"', "$")]
        text = "".join(part.text for part in parts)[:_MOST_TEXT]
        return (
            Taint(text=get_command_pattern("home").sub("~", text))
            if not parts
            else replace_taint_text(merge_taints(parts), get_command_pattern("home").sub("~", text))
        )

    def _expand_variable_into_taint(self, text: str) -> Taint:
        name = _VARIABLE.search(text)
        if name is None or (name[1] not in self.variables and not get_command_pattern("key_name").search(name[1])):
            return Taint(text="~" if name is not None and name[1] == "HOME" else text)
        return self.variables.get(name[1], Taint(keys=frozenset({name[1]}), text=text))

    def _trace_redirect(self, node: Node, stdin: Taint, depth: int) -> Taint:
        written: list[str] = []
        for part in node.children_by_field_name("redirect"):
            operator = next(
                (child.type for child in part.children if child.type in (">", ">>", "&>", ">&", ">|", "<", "&>>")), ""
            )
            if part.type == "herestring_redirect":
                stdin = stdin | merge_taints(self._evaluate_argument(child, depth + 1) for child in part.named_children)
            elif part.type == "heredoc_redirect":
                body = next((child for child in part.named_children if child.type == "heredoc_body"), None)
                stdin = stdin | Taint(text=get_node_text(body)[:_MOST_TEXT] if body is not None else "")
                for child in part.named_children:  # `cat <<EOF | sh` and `cat <<EOF > file` hang below the mark
                    if child.type == "file_redirect":
                        written += [
                            self._evaluate_argument(target, depth + 1).text
                            for target in child.children_by_field_name("destination")
                        ]
            else:
                targets = [
                    self._evaluate_argument(target, depth + 1).text
                    for target in part.children_by_field_name("destination")
                ]
                if operator == "<":
                    stdin = stdin | merge_taints(self._get_taint_of_file(target) for target in targets)
                else:
                    written += targets
        body = node.child_by_field_name("body")
        self.line = self.lines_before + node.start_point[0] + 1
        if any(get_command_pattern("remote").search(target) for target in written) and get_command_pattern(
            "interactive"
        ).search(get_node_text(node)):
            self._report(ThreatKind.OPENS_ACCESS, "Opens a shell on this machine for someone else.")
        flow = self.trace_node_output(body, stdin, depth + 1) if body is not None else stdin
        self.socket = next((target for target in written if target.startswith("/dev/tcp/")), self.socket)
        for target in written:
            self._record_and_report_file_write(self.socket or target if target.isdigit() else target, flow)
        return flow

    def _get_taint_of_file(self, path: str) -> Taint:
        """Return what reading a file gives."""
        path = path.lstrip("@<")
        if path in self.files:
            return self.files[path]
        if path.startswith("/dev/tcp/"):
            return Taint(fetched=path.split("/")[3])
        is_secret = get_command_pattern("path").fullmatch(path) and get_command_pattern("secret_path").search(path)
        return Taint(secret=path if is_secret else "")

    def _get_download_taint(self, word: str) -> Taint:
        """What a file that was downloaded, or lies in a folder that was, would run."""
        folder = next((host for folder, host in self.folders.items() if word.startswith(f"{folder}/")), "")
        return self.files.get(word, NOTHING) | Taint(fetched=folder)

    def _record_and_report_file_write(self, path: str, flow: Taint) -> None:
        self.files[path] = self.files.get(path, NOTHING) | flow
        content = flow.text
        if "authorized_keys" in path and (get_command_pattern("public_key").search(content) or flow.fetched):
            self._report(ThreatKind.OPENS_ACCESS, f"Lets whoever has a foreign key log in ({path}).")
        elif path.startswith("/dev/tcp/") and flow.secret:
            self._report(ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(flow.secret, path.split("/")[3]))
        elif "sudoers" in path and "nopasswd" in content.lower():
            self._report(ThreatKind.OPENS_ACCESS, f"Gives an account all rights without a password ({path}).")
        elif "bypassPermissions" in content and "settings" in path:
            self._report(ThreatKind.WEAKENS, f"Has the agent act without asking the person ({path}).")
        elif get_command_pattern("startup_path").search(path) or (
            path.endswith("package.json") and re.search(r"\"(?:pre|post)install\"", content)
        ):
            self._report_threats_of_autostart(path, flow)
        elif get_command_pattern("package_settings").search(path) and (
            host := self.context.hosts.find_first_foreign_host(content)
        ):
            self._report(ThreatKind.RUNS_DOWNLOADS, f"Has all packages installed from {host} ({path}).")

    def _report_threats_of_autostart(self, path: str, flow: Taint) -> None:
        """What is written where it is run by itself is judged by what it would do then."""
        lines = [get_command_pattern("cron").sub(r"\1", line) for line in flow.text.split("\n")[:50]]
        inner = self.context.find_inner_code_threats("\n".join(lines), "sh")
        host = flow.fetched or self.context.hosts.find_first_foreign_host(flow.text)
        does = next((one.why for one in inner if one.severity is RiskLevel.HIGH), "")
        for file, content in self.files.items():
            host = host or (content.fetched if file in flow.text.split() else "")
        if does or host or get_command_pattern("hidden_program").search(flow.text):
            unexplained = f"leads to {host}" if host else "a hidden program"
            what = f"{does[:1].lower()}{does[1:].rstrip('.')}" if does else unexplained
            self._report(ThreatKind.STARTS_ITSELF, f"Makes something start by itself ({path}): {what}.")

    def _trace_command(self, node: Node, stdin: Taint, depth: int) -> Taint:
        self.line = self.lines_before + node.start_point[0] + 1
        named = node.child_by_field_name("name")
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._trace_assignment(child, depth)
        first = self._evaluate_argument(named, depth + 1) if named is not None else NOTHING
        given = node.children_by_field_name("argument")
        arguments = [first, *(self._evaluate_argument(one, depth + 1) for one in given)]
        here = [
            self._evaluate_argument(child, depth + 1)
            for part in node.children_by_field_name("redirect")
            for child in part.named_children
        ]
        stdin = merge_taints([stdin, *here])
        self.line = self.lines_before + node.start_point[0] + 1
        while len(arguments) > 1 and arguments[0].text.lower() in get_command_names("wrappers"):
            arguments = arguments[1:]
            while len(arguments) > 1 and (
                arguments[0].text.startswith("-") or "=" in arguments[0].text or arguments[0].text.isdigit()
            ):
                arguments = arguments[1:]
        return self._trace_and_report_command(arguments, stdin)

    def _trace_and_report_command(self, arguments: Sequence[Taint], stdin: Taint) -> Taint:
        words = [one.text for one in arguments]
        name = words[0].rpartition("/")[2].lower().removesuffix(".exe")
        given = merge_taints(arguments[1:])
        line = " ".join([name, *words[1:]])[:_MOST_TEXT]
        for threat, why, pattern in load_command_rules():
            if found := pattern.match(line):
                self._report(threat, why.format(*(found.groups(default="") or ("",))))
        if name == "find" and (places := [at for at, word in enumerate(words) if word in ("-exec", "-execdir")]):
            root = next((root for word in words[1:] if (root := self._match_personal_folder(word))), "")
            is_rubbish = get_command_pattern("rubbish").search(line) is not None
            each = Taint(personal="" if is_rubbish else root, secret=self._find_key_file_in_words(words))
            inner = [each if "{}" in one.text else one for one in arguments[places[0] + 1 :] if one.text not in "+;"]
            if inner and inner[0].text:
                self._trace_and_report_command(inner, each)
        shell = next((at for at, word in enumerate(words[1:], 1) if word in get_command_names("shells")), 0)
        if name in get_command_names("carriers") and words[shell + 1 : shell + 2] == ["-c"]:
            return self._trace_and_report_command(arguments[shell:], stdin)
        if name == "git":
            self._report_threats_of_git_push(words)
        if name == "xargs":
            inner = list(dropwhile(lambda one: re.fullmatch(r"-\S*|\{\}|\d+", one.text), arguments[1:]))
            return self._trace_and_report_command([*inner, stdin], stdin) if inner else stdin
        self._report_threats_of_deletion(name, words, given | Taint(personal=stdin.personal))
        if name == "crontab":
            self._report_threats_of_autostart("crontab", stdin | merge_taints(map(self._get_taint_of_file, words[1:])))
        if name == "tee":
            for word in words[1:]:
                if not word.startswith("-"):
                    self._record_and_report_file_write(word, stdin)
        self._report_threats_of_installation(name, words)
        is_run = name in get_command_names("runners") or self._get_download_taint(words[0]).fetched
        printed = self._trace_and_report_execution(name, arguments, stdin) if is_run else NOTHING
        if name in self.functions and self.calls < _MOST_CALLS:
            self.calls += 1
            self.variables |= {str(place): one for place, one in enumerate(arguments[1:], 1)}
            return self.trace_node_output(self.functions[name], stdin, 0)
        return printed | self._trace_output_of_command(name, arguments, stdin)

    def _trace_output_of_command(self, name: str, arguments: Sequence[Taint], stdin: Taint) -> Taint:
        """Return what a command hands on of what it reads; data that leads away is told."""
        words = [one.text for one in arguments]
        given = merge_taints(arguments[1:])
        if name in ("env", "printenv", "set", "export") and len(words) == 1:
            return Taint(secret="all environment variables")
        line = " ".join([name, *("_".join(word.split()) for word in words[1:])])
        if found := get_command_pattern("secret_command").match(line):
            self._report(READS_SECRETS, f"Reads the output of '{found[0]}'.", RiskLevel.NOTE)
            return Taint(secret=f"the output of '{found[0]}'")
        if found := get_command_pattern("token_command").match(line):
            return Taint(token=f"the output of '{found[0]}'")
        read = (
            NOTHING
            if name in get_command_names("no_readers")
            else merge_taints(self._get_taint_of_file(parse_file_named_by_argument(word)) for word in words[1:])
        )
        if read.secret and not get_command_pattern("settings_file").search(read.secret):
            self._report(READS_SECRETS, f"Reads {read.secret}.", RiskLevel.NOTE)
        if name in get_command_names("copiers"):
            read = read | Taint(personal=next(filter(None, map(self._match_personal_folder, words[1:])), ""))
        through = replace_taint_text(
            stdin | given | read, given.text if name in ("echo", "printf") else stdin.text or given.text
        )
        if name in ("cat", "head", "tail") and not read.secret:
            through = replace_taint_text(through, merge_taints([stdin, read]).text)
        if name in ("tar", "unzip", "git") and (through.fetched or (name == "git" and "clone" in words)):
            host = through.fetched or self.context.hosts.find_first_foreign_host(" ".join(words))
            self.folders |= dict.fromkeys((word.rstrip("/") for word in words[2:] if not word.startswith("-")), host)
        if is_decoder_command(name, words):
            return Taint(secret=through.secret, fetched=through.fetched, decoded=True, text="")
        if name in get_command_names("senders"):
            return self._judge_network_use(name, arguments, stdin | read)
        if name in get_command_names("enumerate"):
            root = next((root for word in words[1:] if (root := self._match_personal_folder(word))), "")
            secret = (through.secret if name in ("grep", "rg") else "") or self._find_key_file_in_words(words)
            if secret and root:
                self._report(READS_SECRETS, f"Looks for {secret} below {root}.", RiskLevel.NOTE)
            return Taint(personal=root, secret=secret, text=" ".join(words[1:]))
        if name in get_command_names("shells") and len(words) <= 2:
            return replace(through, shell=True)
        if (through.secret or through.fetched or read.personal) and name not in get_command_names("runners"):
            if name in ("mv", "cp", "install") and len(words) > 2:
                self.files |= {words[-1]: through, f"./{words[-1]}": through}
            for word in words[1:]:
                if re.search(r"[/.]", word) and not self._get_taint_of_file(word).secret and word not in self.files:
                    self.files[word] = through
        return through

    def _judge_network_use(self, name: str, arguments: Sequence[Taint], stdin: Taint) -> Taint:
        words = [one.text for one in arguments]
        hosts = [host for word in words[1:] for host in find_hosts(word)]
        if name in ("nc", "ncat", "netcat", "telnet", "scp", "rsync", "ssh", "sftp"):
            hosts += [
                found[1] for word in words[1:] if (found := re.match(r"(?:\w[\w.-]*@)?((?:[\w-]+\.)+\w+)(?::|$)", word))
            ]
        if name in ("curl", "wget", "iwr", "irm") and not hosts:
            hosts += [found[1] for word in words[1:] if (found := re.match(r"((?:[\w-]+\.)+[a-z]{2,})(?:/|$)", word))]
        target = next(filter(self.context.is_foreign_host, hosts), hosts[0] if hosts else "")
        body, keys = stdin, stdin.keys
        for before, one in zip(["", *words], arguments, strict=False):
            is_login = get_command_pattern("authenticates").search(f"{before} {one.text}")
            body = body if is_login and not one.secret else body | one
            keys = keys | one.keys
        if stdin.shell and target:
            self._report(ThreatKind.OPENS_ACCESS, f"Opens a shell on this machine for {target}.")
        if stdin.token and self.context.is_foreign_host(target):
            self._report(ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(stdin.token, target))
        if stdin.secret if name in ("ssh", "openssl") else body.secret:
            self._report(ThreatKind.SENDS_SECRETS, *self.context.judge_secret_sending(body.secret, target))
        elif is_throwaway_host(target) and get_command_pattern("uploads").search(" ".join(words)):
            self._report(
                ThreatKind.SENDS_PRIVATE_DATA, f"Uploads a file to {target}, a host that anyone can have for a minute."
            )
        elif body.personal and self.context.is_foreign_host(target):
            self._report(ThreatKind.SENDS_PRIVATE_DATA, f"Sends the files below {body.personal} to {target}.")
        elif self.context.is_foreign_host(target) and (
            name not in get_command_names("fetchers") or get_command_pattern("uploads").search(" ".join(words))
        ):
            self._report(SENDS_FAR, f"Sends data to {target}.", RiskLevel.NOTE)
        for key in self.context.find_keys_of_other_services(keys, target):
            self._report(ThreatKind.SENDS_SECRETS, f"Sends {key} to {target}, which is not where it belongs.")
        if body.secret or keys:
            return NOTHING
        # An address that is decoded first is as unread as decoded code.
        is_hidden = not target and any(one.decoded for one in arguments)
        fetched = Taint(fetched=target if self.context.is_foreign_host(target) else "", decoded=is_hidden)
        for word, after in zip(words[1:], [*words[2:], ""], strict=False):
            if re.fullmatch(r"-\w*[oO]|--output(?:-document)?|-OutFile", word) and "://" not in after:
                self._record_and_report_file_write(after, fetched)
                self.files |= {after: fetched, after.rpartition("/")[2]: fetched}
            elif "://" in word:
                end = word.rpartition("/")[2].split("?")[0] or "index.html"
                self.files = {end: fetched, f"./{end}": fetched} | self.files
        return fetched if name in get_command_names("fetchers") | get_command_names("listeners") else NOTHING

    def _trace_and_report_execution(self, name: str, arguments: Sequence[Taint], stdin: Taint) -> Taint:
        words = [one.text for one in arguments]
        is_shell = name in get_command_names("shells") | {"iex", "invoke-expression"}
        takes_stdin = is_shell or all(word.startswith("-") for word in words[1:])
        code = stdin if takes_stdin and not {"-c", "-m", "-e", "-ne", "-pe"} & set(words) else NOTHING
        code = code | merge_taints(arguments[1:]) | merge_taints(map(self._get_download_taint, words))
        if code.fetched:
            self._report(ThreatKind.RUNS_DOWNLOADS, f"Runs whatever {code.fetched} sends.")
        elif code.decoded:
            self._report(ThreatKind.RUNS_DOWNLOADS, "Runs text that it decodes first, so that nobody reads it.")
        inner = code.text if name in ("eval", "iex") else ""
        for place, word in enumerate(words[1:], 1):
            is_code_next = re.fullmatch(r"-\w*[cer]", word) and place + 1 < len(words)
            if is_code_next and name in get_command_names("interpreters"):
                inner = words[place + 1]
        if not inner and takes_stdin and name in get_command_names("interpreters"):
            inner = stdin.text
        if name in get_command_names("shells") and inner and self.calls < _MOST_CALLS:
            self.calls += 1
            self.variables |= {
                str(place): one
                for place, one in enumerate(dropwhile(make_filter_of_taints_without_code(inner), arguments), -1)
            }
            here = self.line, self.lines_before
            printed = self.trace_script_output(inner)
            self.line, self.lines_before = here
            return printed
        for one in self.context.find_inner_code_threats(inner, name):
            self._report(one.rule, one.why, one.severity)
        return NOTHING

    def _report_threats_of_installation(self, name: str, words: Sequence[str]) -> None:
        line = " ".join(words)
        if found := get_command_pattern("installs_from").search(line):
            host = next(find_hosts(found[0]), "")
            is_bare = host.replace(".", "").isdigit() and not host.startswith("127.")
            if host and (is_bare or self.context.is_foreign_host(host)):
                self._report(ThreatKind.RUNS_DOWNLOADS, f"Installs packages from {host}.")

    def _report_threats_of_deletion(self, name: str, words: Sequence[str], given: Taint) -> None:
        flags = "".join(word for word in words[1:] if word.startswith("-"))
        roots, line = [root for word in words[1:] if (root := self._match_personal_folder(word))], " ".join(words)
        if name in ("rm", "srm", "shred", "unlink", "remove-item", "del", "rd", "rmdir") and (roots or given.personal):
            is_whole = re.search(r"(?i)r|--no-preserve|-z|-u", flags) or name in ("shred", "remove-item", "rd")
            if given.personal or is_whole:
                self._report(
                    ThreatKind.DESTROYS, f"Deletes {roots[0] if roots else 'the files below ' + given.personal}."
                )
        elif name == "find" and roots and re.search(r"-delete|-exec(?:dir)? (?:rm|shred|unlink|openssl|gpg)\b", line):
            if not get_command_pattern("rubbish").search(line):
                self._report(ThreatKind.DESTROYS, f"Deletes or overwrites files below {roots[0]}.")
        elif name in get_command_names("encrypters") and given.personal and not re.search(r"-d\b|--decrypt", line):
            self._report(ThreatKind.DESTROYS, f"Encrypts the files below {given.personal}.")

    def _find_key_file_in_words(self, words: Sequence[str]) -> str:
        return next((word for word in words[1:] if get_command_pattern("key_file").fullmatch(word)), "")

    def _report_threats_of_git_push(self, words: Sequence[str]) -> None:
        host = next((host for word in words for host in find_hosts(word) if self.context.is_foreign_host(host)), "")
        if words[1:2] == ["remote"] and host:
            self.remotes |= dict.fromkeys(words[3:-1], host)
        host = host or next((self.remotes[word] for word in words if word in self.remotes), "")
        if "push" in words[1:4] and host:
            self._report(ThreatKind.SENDS_PRIVATE_DATA, f"Pushes the repository to {host}.")

    def _match_personal_folder(self, word: str) -> str:
        return word if get_command_pattern("personal_root").fullmatch(word.strip("\"'")) else ""

    def _report(self, rule: str, why: str, severity: RiskLevel = RiskLevel.HIGH) -> None:
        self.found.append(CodeFinding(rule=rule, severity=severity, line=self.line, why=why))
