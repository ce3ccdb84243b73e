"""Scans a skill's directory for what it would do to whoever trusts it. Pure: bytes in, findings out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from habitus.files import Tree, TreeFile
from habitus.screening import rules
from habitus.screening.file_kinds import Kind, Orders, is_prose, is_script, kinds_of
from habitus.screening.findings import Category, Finding, Policy, Risk, excerpt_of, held_texts, worse_first
from habitus.screening.python_code import Seen, look_at
from habitus.screening.python_code import together as seen_together
from habitus.screening.readable import Hidden, doubtful, find_encoded, invisible, is_strange, plain
from habitus.screening.sentences import NOTHING, Sentence, sentences

_NEAR = 6  # lines in which reading credentials and sending something are one deed
_PER_RULE = 8  # places of one rule in one file that are reported; the first says enough
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")
_COMPILED = (".pyc", ".pyo", ".class", ".so", ".dll", ".exe", ".jar")
_MEDIA = re.compile(r"\.(?:png|jpe?g|gif|webp|ico|pdf|ttf|otf|woff2?|mp[34]|wav|docx|xlsx|pptx|potx|dotx)$")
_PYTHON_CUES = re.compile(
    r"\b(?:eval|exec|__import__|b64decode|fromhex|marshal|dup2|environ)\b|range\(\d{3,9}|while (?:True|1):"
)
_PYTHON_WITHIN = re.compile(  # in a fence, after `-c`, or up to the mark of a here-document
    r"```py[^\n]*\n(?P<fence>.*?)(?:```|\Z)"
    r"|python[\d.]{0,4}\s{1,3}(?:-c\s{1,3}(?:\"(?P<quoted>(?:[^\"\\\n]|\\.){1,1500})\"|'(?P<plain>[^'\n]{1,1500})')"
    r"|-?\s{0,3}<<-?\s{0,3}['\"]?(?P<mark>\w{1,20})['\"]?\n(?P<here>.{1,3000}?)\n(?P=mark)\b)",
    re.DOTALL,
)
_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_UNSEEN = re.compile(
    r"<\w+\b[^>\n]{0,200}(?:display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0|opacity\s?:\s?0(?![.\d])|"
    r"color\s?:\s?(?:white|#fff(?:fff)?|transparent)\b|\bhidden\b)[^>\n]{0,200}>[^<]{0,2000}|\[(?://|comment)\]:\s?#[^\n]*"
)
_LINE_END = re.compile(r"(?<!\\)\n")
_FRONT = re.compile(r"\A(---\n.{0,1200}?\n---|.{0,120}).*", re.DOTALL)  # what a skill says it is
_LABEL = re.compile(r"#{1,6} [^.!?,;]{1,60}$|[^.!?,;]{1,60}:[*_]{0,2}$")  # a title, or what introduces an example
_LABELLED = ("unasked", "weakens", "passes_on_secrets")
_SUBJECTS = ("orders_harm", "locks_up")
_QUOTED = re.compile(r"[\"“`][^\"”`\n]{6,200}[\"”`]")
_FILE_NAME = re.compile(r"[\w-]{1,60}\.(?:sh|py|ps1|bat|js|mjs|rb|pl|command)\b")
_FETCHED = re.compile(  # by name without a scheme, or "…", which is talk about commands
    r"\w{3,5}\s{1,3}(?:-\S{1,20}\s{1,3}){0,4}(?:(?P<host>[\w-]{1,60}(?:\.[\w-]{1,60}){1,3})/|(?:\.\.\.|…)\s{0,3}\|)"
)
_RUN_LINE = re.compile(
    r"(?m)^[ \t]{0,9}(?:(?:ba|z)?sh |source |\. |python3? |node )?[~$\w./{}-]{0,80}/([\w-]{1,60}\.(?:sh|py|js|rb|pl))\b"
)
_RUN_VERBS = re.compile(r"\b(?:run|runs|running|execut\w{1,5}|launch\w{0,4}|invok\w{1,4}|start|started|source)\b")
_WORSE_THAN_AN_EXAMPLE = (
    "floods",
    "reverse_shell",
    "runs_fetched_code",
    "sends_secrets",
    "sends_others_key",
    "environment_dump",
)
_TOGETHER = {  # what a script does that its own sentence makes a deed
    "sends": "sends something to a host that the skill has nothing else to do with",
    "socket": "opens a network connection",
    "deletes": "deletes files",
    "deletes_where_it_stands": "deletes files",
    "reads_private": "reads what is private",
    "reads_secrets": "reads credentials",
    "spies": "reads what is private",
    "environment_dump": "reads all environment variables",
    "reads_secret_file": "reads credentials",
    "shell_with_network": "talks to the network",
    "evaluates": "runs text as code",
    "runs_given_code": "runs whatever it is given",
    "shell_injection": "puts shell commands together from what it is given",
    "sql_injection": "puts database queries together from text",
    "path_traversal": "opens paths outside of its folder",
    "unpickles": "can run code that is hidden in data",
}


def scan(tree: Tree, policy: Policy = Policy()) -> tuple[Finding, ...]:  # noqa: B008 - a frozen value
    """Everything that a skill's files would do, worst first."""
    seen, orders = _read(tree)
    findings = [found for path, file in sorted(tree.items()) for found in _scan_opaque(path, file, orders)]
    pages = _pages(tree, seen, orders, policy)
    for page in pages:
        findings += page.findings()
        findings += _scan_hidden(page)
    findings += _scan_python(pages)
    findings += _scan_orders_to_run(tree, pages, findings)
    spoken = (finding for finding in dict.fromkeys(findings) if finding.rule not in policy.silence)
    return _first_of_each(sorted(spoken, key=worse_first))


def _read(tree: Tree) -> tuple[Mapping[str, _Text], Orders]:
    """The readable files of a skill, and which of its files they have run or read."""
    texts = {path: text for path, file in sorted(tree.items()) if (text := _text_of(path, file)) is not None}
    seen = {path: _Text(raw=text, plain=plain(text, strange=is_strange(text))) for path, text in texts.items()}
    return seen, Orders.of((text.plain.lower() for text in seen.values()), tree)


def _pages(tree: Tree, seen: Mapping[str, _Text], orders: Orders, policy: Policy) -> list[Page]:
    head = next((text.plain[:1600] for path, text in seen.items() if path.lower().endswith("skill.md")), "")
    hosts = rules.neighbourhood((text.plain.lower() for text in seen.values()), _FRONT.sub(r"\1", head))
    return [
        Page(
            path=path,
            raw=text.raw,
            text=text.plain,
            hosts=hosts,
            policy=policy,
            file_kind=kind,
            is_run_as_python=orders.has_run_as_python(path),
        )
        for path, text in seen.items()
        for kind in kinds_of(path, text.plain, is_executable=tree[path].executable, orders=orders)
    ]


def _first_of_each(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """A few places of one rule in one file say enough."""
    kinds: dict[tuple[str, str, Risk], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.path, finding.rule, finding.severity), []).append(finding)
    return tuple(sorted((one for found in kinds.values() for one in found[:_PER_RULE]), key=worse_first))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Text:
    raw: str
    plain: str  # as a reader sees it


def _text_of(path: str, file: TreeFile) -> str | None:
    content = file.content
    if content is None:
        return None
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    elif b"\0" in content[:8192] and not (is_prose(path) or is_script(path, content)):
        return None
    else:
        text = content.replace(b"\0", b"").decode("utf-8", "replace")  # a shell, too, passes over these
    return text.replace("\r\n", "\n")


def _scan_opaque(path: str, file: TreeFile, orders: Orders) -> Iterator[Finding]:
    content = file.content
    if content is None:
        is_run = file.executable or is_script(path, b"") or orders.has_run(path)
        why = f"{file.size:,} bytes were not looked at{', and it is code' if is_run else ''}."
        yield _at(path, 1, "too_large", Category.OBFUSCATION, Risk.HIGH if is_run else Risk.NOTE, why, path)
    elif b"\0" not in content or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    elif content.startswith(_PROGRAMS):
        yield _at(path, 1, "program", Category.DANGEROUS_CODE, Risk.HIGH, "A program can't be looked into.", path)
    elif path.lower().endswith(_COMPILED) or file.executable:
        yield _at(path, 1, "compiled", Category.OBFUSCATION, Risk.HIGH, "Compiled code can't be looked into.", path)
    elif is_script(path, content) or orders.has_run(path):
        why = "A script with bytes that are no text hides what it does."
        yield _at(path, 1, "bytes_in_script", Category.OBFUSCATION, Risk.HIGH, why, path)
    elif _text_of(path, file) is None and not _MEDIA.search(path.lower()):
        yield _at(path, 1, "opaque_file", Category.OBFUSCATION, Risk.NOTE, "A binary file can't be looked into.", path)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One readable file, or a text that was hidden in one, with what is found in it."""

    path: str
    raw: str
    text: str  # as a reader sees it
    hosts: rules.Neighbourhood
    policy: Policy
    file_kind: Kind
    is_run_as_python: bool = False
    is_hidden: bool = False

    @property
    def kind(self) -> Kind:
        return Kind.PROSE if self.is_hidden else self.file_kind

    @property
    def is_python(self) -> bool:
        first = self.text[:80].partition("\n")[0]
        is_named_so = self.path.lower().endswith((".py", ".pyw", ".pyi"))
        return is_named_so or self.is_run_as_python or (first.startswith("#!") and "python" in first)

    @cached_property
    def lower(self) -> str:
        return self.text.lower()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.lower))]

    def line_of(self, place: int) -> int:
        return bisect_right(self._line_starts, place)

    @cached_property
    def concealed_spans(self) -> list[tuple[int, int]]:
        """Spans that a page has but does not show."""
        if self.kind is not Kind.PROSE or self.is_hidden:
            return []
        comments = _COMMENT.finditer(self.lower) if "<!--" in self.lower else ()
        unseen = _UNSEEN.finditer(self.lower) if "<" in self.lower or "]:" in self.lower else ()
        return sorted(found.span() for found in (*comments, *unseen))

    @cached_property
    def sentences(self) -> list[Sentence]:
        return list(sentences(self.text, self.hosts.kind)) if self.kind is Kind.PROSE else []

    @cached_property
    def is_about_attacks(self) -> bool:
        return self.kind is Kind.PROSE and any("attack" in one.own for one in self.sentences[:6])

    def findings(self) -> Iterator[Finding]:
        for place, text, why in held_texts(self.lower, self.policy):
            yield self._at(self.line_of(place), "hold", Category.EXCESSIVE_PERMISSION, Risk.HIGH, why, text)
        if self.kind is Kind.DATA:
            return
        spoken = {one.line: one for one in self.sentences}
        read = -_NEAR  # the last line that reads credentials
        for match in sorted(rules.found_commands(self.lower), key=lambda match: match.start):
            line, rule = self.line_of(match.start), match.rule
            if severity := self._judge_command(match, spoken.get(line)):
                excerpt = self.lower[match.start : match.end]
                read = line if rule.name == "reads_secret_file" else read
                if rule.name == "sends" and 0 <= line - read < _NEAR and not self.is_about_attacks:
                    severity = Risk.HIGH
                yield self._at(line, rule.name, rule.category, severity, rule.why, excerpt)
        yield from self._find_rented_hosts()
        yield from self._find_intents()
        if "python" in self.lower or "```py" in self.lower:
            yield from self._find_python_within()

    def _find_python_within(self) -> Iterator[Finding]:
        """Python in a page or a shell's command; an example is not run by itself, so it weighs less than a script."""
        for found in _PYTHON_WITHIN.finditer(self.text) if not (self.is_hidden or self.is_python) else ():
            kind = found.lastgroup or ""
            code = found[kind].replace('\\"', '"') if kind == "quoted" else found[kind]
            lower = code.lower()
            named = (host for _, host in rules.addresses(lower) if not rules.is_own_key(lower, host))
            is_foreign = any(self.hosts.kind(host) == "foreign_host" for host in named)
            first = self.line_of(found.start(kind))
            for seen in look_at(code, is_foreign=is_foreign) if _PYTHON_CUES.search(code) else ():
                severity = seen.severity if seen.rule in _WORSE_THAN_AN_EXAMPLE else Risk.NOTE
                excerpt = code.split("\n")[seen.line - 1]
                yield self._at(first + seen.line - 1, seen.rule, seen.category, severity, seen.why, excerpt)

    def _find_rented_hosts(self) -> Iterator[Finding]:
        """Addresses of hosts that anyone can have for a minute."""
        for place, host in rules.addresses(self.lower):
            if rules.is_rented(host):
                is_said = self.kind is Kind.PROSE and (self.is_about_attacks or not self.is_hidden)
                why = "Leads to a host that anyone can have for a minute."
                risk = Risk.NOTE if is_said else Risk.HIGH
                yield self._at(self.line_of(place), "rented_host", Category.EXFILTRATION, risk, why, host)

    def _judge_command(self, match: rules.Match, said: Sentence | None) -> Risk | None:
        """How bad a command is where it stands."""
        rule = match.rule
        if rule.needs and not self._leads_away(match):
            return None
        if self.kind is Kind.CODE:
            return rule.in_code
        if self._is_concealed(match.start):
            return Risk.HIGH
        is_shown = said is not None and (self._is_mentioned(said) or not said.own.isdisjoint(("attack", "warns")))
        return Risk.NOTE if is_shown else rule.in_prose

    @property
    def names_foreign_host(self) -> bool:
        return any(self.hosts.kind(host) == "foreign_host" for _, host in rules.addresses(self.lower))

    def _leads_away(self, match: rules.Match) -> bool:
        """Does the command name a host that is neither known nor the skill's own?"""
        end = _LINE_END.search(self.lower, match.end)
        command = self.lower[match.start : end.start() if end else len(self.lower)][:800]
        if match.rule.needs == "other_service":
            return self._hands_to_another(rules.services_of(command), command)
        if self.is_python and "://" not in command:
            command = self.lower
        kinds = {self.hosts.kind(host) for _, host in rules.addresses(command) if not rules.is_own_key(command, host)}
        if match.rule.needs == "unknown_host":
            if not kinds and (named := _FETCHED.match(command)):
                return named["host"] is not None and self.hosts.kind(named["host"]) == "foreign_host"
            return not kinds or "foreign_host" in kinds or "http://" in command
        return "foreign_host" in kinds

    def _hands_to_another(self, services: Iterable[str], command: str) -> bool:
        """Is one of its hosts plainly not of the service whose key it is given?"""
        named = {
            host for _, host in rules.addresses(command) if self.hosts.kind(host) in ("foreign_host", "known_host")
        }
        return any(all(rules.is_of_another(service, host) for host in named) for service in services if named)

    def _is_concealed(self, place: int) -> bool:
        before = bisect_right(self.concealed_spans, (place, len(self.text))) - 1
        return self.is_hidden or (before >= 0 and place < self.concealed_spans[before][1])

    def _find_intents(self) -> Iterator[Finding]:
        """What the sentences want."""
        ways = rules.ways_by_slot()
        for one in self.sentences:
            meeting = one.own & ways.keys()
            around = one.around if meeting else NOTHING
            for slot in sorted(meeting):
                for intent, way in ways[slot]:
                    if intent.is_said(way, one.words, one.own, around):
                        risk = Risk.NOTE if self._is_mentioned(one) or self._is_subject(intent, one) else intent.risk
                        yield self._at(one.line, intent.name, intent.category, risk, intent.why, one.text)

    def _is_subject(self, intent: rules.Intent, said: Sentence) -> bool:
        """Is it what a skill about attacks speaks of, or the label of an example that ordinary skills have too?"""
        if self.is_about_attacks and intent.name in _SUBJECTS:
            return True
        return intent.name in _LABELLED and _LABEL.match(said.text) is not None

    def _is_mentioned(self, said: Sentence) -> bool:
        """Listed or quoted where attacks or don'ts are spoken of, or in a table, rather than said."""
        if self.is_hidden:
            return False
        first = said.text[:1]
        is_quoted = _QUOTED.search(said.text) is not None
        is_listed = is_quoted or first in "-*+>❌✗" or first.isdigit()
        warned = said.above | (said.own if is_quoted else frozenset())
        return said.is_row or (is_listed and (self.is_about_attacks or not warned.isdisjoint(("attack", "forbids"))))

    def _at(self, line: int, rule: str, category: Category, severity: Risk, why: str, excerpt: str) -> Finding:
        return _at(self.path, line, rule, category, severity, why, excerpt)


def _scan_orders_to_run(tree: Tree, pages: Sequence[Page], findings: Sequence[Finding]) -> Iterator[Finding]:
    """A script is judged with the sentence that has it run: what it does alone is a note, what is ordered is a deed."""
    deeds: dict[str, list[Finding]] = {}
    for found in findings:
        if found.rule in _TOGETHER:
            deeds.setdefault(found.path.rpartition("/")[2].lower(), []).append(found)
    there = {path.rpartition("/")[2].lower() for path in tree}
    runs = {page.path.rpartition("/")[2].lower(): _runs(page) for page in pages}
    for page in pages:
        for one in page.sentences:
            if one.is_code or not ("script_path" in one.own and _RUN_VERBS.search(one.text.lower())):
                continue
            is_standing = "standing" in one.own or "standing" in one.around
            for name in dict.fromkeys(_FILE_NAME.findall(one.text.lower())):
                absent = next((each for each in (name, *runs.get(name, ())) if each not in there), "")
                if absent and is_standing and _is_own_script(name, one):
                    why = f"{absent} is to be run with every task, and is not among the files."
                    yield page._at(one.line, "absent_script", Category.DANGEROUS_CODE, Risk.HIGH, why, one.text)
                for deed in deeds.get(name, [])[:1]:
                    why = f"Has {name} run, which {_TOGETHER[deed.rule]} ({deed.path}:{deed.line})."
                    risk = Risk.HIGH if is_standing or deed.rule == "sends" else Risk.NOTE
                    yield page._at(one.line, "orders_script", deed.category, risk, why, one.text)


def _runs(page: Page) -> Sequence[str]:
    """The files that a shell script runs."""
    return _RUN_LINE.findall(page.lower) if page.path.lower().endswith("sh") else ()


def _is_own_script(name: str, said: Sentence) -> bool:
    """Is it a script of the skill that an order names, rather than a library, a file to be written, or a warning?"""
    is_on_condition = said.text.lstrip("-*+0123456789. ").startswith(("When ", "If ", "For "))
    return not (name.endswith("js") or (is_on_condition and "any" not in said.text)) and said.own.isdisjoint(
        ("attack", "warns", "doc")
    )


def _scan_hidden(page: Page) -> Iterator[Finding]:
    """What was hidden is scanned like the rest, and being hidden makes it worse."""
    if page.kind is Kind.DATA:
        return
    text, strange = page.raw, is_strange(page.raw)
    for hidden in (*((*invisible(text), *doubtful(text)) if strange else ()), *find_encoded(page.text)):
        is_encoded = hidden.rule == "encoded_text"
        if not is_encoded:
            yield page._at(hidden.line, hidden.rule, Category.HIDDEN_TEXT, hidden.severity, hidden.why, hidden.says)
        if hidden.says:
            yield from _scan_found(page, hidden)
        for seen in look_at(hidden.says) if is_encoded else ():
            if seen.severity is Risk.HIGH:
                why = f"Hidden code: {seen.why}"
                yield page._at(hidden.line, seen.rule, Category.OBFUSCATION, Risk.HIGH, why, hidden.says)
    if page.concealed_spans:
        yield from replace(page, text=_only(page.text, page.concealed_spans), is_hidden=True).findings()


def _only(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text of the spans on their lines; the rest of it is left out."""
    parts, end = [], 0
    for start, stop in spans:
        parts += ["\n" * text.count("\n", end, start), text[max(start, end) : stop]]
        end = max(end, stop)
    return "".join(parts)


def _scan_found(page: Page, hidden: Hidden) -> Iterator[Finding]:
    for finding in replace(page, text=plain(hidden.says), is_hidden=True).findings():
        if finding.severity is Risk.HIGH:
            yield replace(finding, line=hidden.line, why=f"Hidden text: {finding.why}")


def _scan_python(pages: Sequence[Page]) -> Iterator[Finding]:
    scripts = {page.path: page.text for page in pages if page.is_python}
    seen_by_path: Mapping[str, tuple[Seen, ...]] = {
        page.path: look_at(page.text, is_foreign=page.names_foreign_host) for page in pages if page.is_python
    }
    everything = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen]
    for path, seen in [*everything, *seen_together(seen_by_path)]:
        excerpt = "".join(scripts[path].split("\n")[seen.line - 1 : seen.line])
        yield _at(path, seen.line, seen.rule, seen.category, seen.severity, seen.why, excerpt)


def _at(path: str, line: int, rule: str, category: Category, risk: Risk, why: str, said: str) -> Finding:
    excerpt = excerpt_of(said)
    return Finding(rule=rule, category=category, severity=risk, path=path, line=line, excerpt=excerpt, why=why)
