"""Scans a skill's directory for what it would do to the person who trusts it. Pure: bytes in, findings out."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from habitus.files import Tree, TreeFile
from habitus.screening import file_kinds
from habitus.screening.code import find_code_threats
from habitus.screening.code_context import CodeFinding, get_command_pattern
from habitus.screening.findings import (
    Finding,
    RiskLevel,
    ScreeningPolicy,
    ThreatKind,
    find_texts_held_by_policy,
    get_finding_sort_key,
    make_safe_quote,
)
from habitus.screening.hosts import HostClassifier
from habitus.screening.prose import find_prose_threats, is_command_excused
from habitus.screening.python_code import combine_secret_reads_with_sends
from habitus.screening.readable import (
    HiddenText,
    find_encoded_text,
    find_invisible_text,
    has_unusual_characters,
    normalize_lookalikes,
)
from habitus.screening.statements import (
    SHELL_FENCES,
    CodeBlock,
    ParagraphOrListItem,
    ProsePage,
    parse_page,
    split_sentences,
)

_PER_RULE = 8  # places of one rule in one file that are reported; the first says enough
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")
_COMPILED = (".pyc", ".pyo", ".class", ".so", ".dll", ".exe", ".jar")
_FRONT = re.compile(r"\A(---\n.{0,1200}?\n---|.{0,120}).*", re.DOTALL)  # what a skill says it is
_SPAN = re.compile(r"`([^`\n]{3,2000})`")
_LONGEST_WRITTEN = 2_000
_INLINE = re.compile(r"`([^`\s]{1,200}[ \t][^`\n]{3,2000})`")


def scan_skill(tree: Tree, policy: ScreeningPolicy = ScreeningPolicy()) -> tuple[Finding, ...]:  # noqa: B008 - a frozen value
    """Return everything that a skill's files would do, worst first."""
    texts = {
        path: text
        for path, file in sorted(tree.items())
        if (text := _extract_readable_text_of_file(path, file)) is not None
    }
    seen = {path: normalize_lookalikes(text, strange=has_unusual_characters(text)) for path, text in texts.items()}
    references = file_kinds.FileReferences.from_texts((text.lower() for text in seen.values()), tree)
    findings = [found for path, file in sorted(tree.items()) for found in _scan_unreadable_file(path, file, references)]
    head = next((text[:1600] for path, text in seen.items() if path.lower().endswith("skill.md")), "")
    pages = [text for path, text in seen.items() if file_kinds.is_prose(path)]
    scripts = [text for path, text in seen.items() if not file_kinds.is_prose(path)]
    hosts = HostClassifier.from_texts(pages, _FRONT.sub(r"\1", head), scripts=scripts)
    in_code: dict[str, tuple[CodeFinding, ...]] = {}
    for path, text in seen.items():
        for kind in file_kinds.classify_file_kinds(
            path, text, is_executable=tree[path].executable, references=references
        ):
            page = ScannedFile(
                path=path,
                raw=texts[path],
                text=text,
                hosts=hosts,
                policy=policy,
                kind=kind,
                is_instruction=file_kinds.is_instruction_file(path, tree),
                is_run_as_python=references.is_run_as_python(path),
            )
            findings += page.find_threats()
            if kind is file_kinds.FileKind.CODE:
                in_code[path] = page.code_findings
    for path, found in combine_secret_reads_with_sends(in_code):
        findings.append(
            _make_finding(path, found.line, found.rule, found.severity, found.why, _get_line(seen[path], found.line))
        )
    spoken = (finding for finding in dict.fromkeys(findings) if finding.rule not in policy.silence)
    return _limit_findings_per_rule(sorted(spoken, key=get_finding_sort_key))


def scan_prompt_text_for_threats(text: str, policy: ScreeningPolicy = ScreeningPolicy()) -> tuple[Finding, ...]:  # noqa: B008 - a frozen value
    """Return what a text would do that a model reads unasked, as a lesson is."""
    hosts = HostClassifier(named={}, about="")
    page = ScannedFile(
        path="",
        raw=text,
        text=normalize_lookalikes(text),
        hosts=hosts,
        policy=policy,
        kind=file_kinds.FileKind.PROSE,
        is_prompt=True,
        is_lesson=True,
    )
    return tuple(
        sorted((found for found in page.find_threats() if found.rule not in policy.silence), key=get_finding_sort_key)
    )


def _limit_findings_per_rule(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """A few places of one rule in one file say enough."""
    count = Counter[tuple[str, str]]()
    kept = []
    for finding in findings:
        count[finding.path, finding.rule] += 1
        kept += [finding] if count[finding.path, finding.rule] <= _PER_RULE else []
    return tuple(kept)


def _extract_readable_text_of_file(path: str, file: TreeFile) -> str | None:
    """Return what a reader of the file would see, or None for what is no text."""
    content = file.content
    if content is None:
        return None
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    elif b"\0" in content[:8192] and not (file_kinds.is_prose(path) or file_kinds.is_script(path, content)):
        return None
    else:
        text = content.replace(b"\0", b"").decode("utf-8", "replace")  # a shell, too, passes over these
    return text.replace("\r\n", "\n")


def _scan_unreadable_file(path: str, file: TreeFile, references: file_kinds.FileReferences) -> Iterator[Finding]:
    content = file.content
    if content is None:
        is_run = file.executable or file_kinds.is_script(path, b"") or references.is_run(path)
        why = f"{file.size:,} bytes were not looked at{', and it is code' if is_run else ''}."
        yield _make_finding(path, 1, "too_large", RiskLevel.HIGH if is_run else RiskLevel.NOTE, why, path)
    elif b"\0" not in content or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    elif content.startswith(_PROGRAMS):
        yield _make_finding(path, 1, "program", RiskLevel.HIGH, "A program can't be looked into.", path)
    elif path.lower().endswith(_COMPILED) or file.executable:
        yield _make_finding(path, 1, "compiled", RiskLevel.HIGH, "Compiled code can't be looked into.", path)
    elif file_kinds.is_script(path, content) or references.is_run(path):
        yield _make_finding(
            path, 1, "bytes_in_script", RiskLevel.HIGH, "A script with bytes that are no text hides what it does.", path
        )
    elif _extract_readable_text_of_file(path, file) is None and not get_command_pattern("media").search(path.lower()):
        yield _make_finding(path, 1, "opaque_file", RiskLevel.NOTE, "A binary file can't be looked into.", path)


@dataclass(frozen=True, kw_only=True)
class ScannedFile:
    """One readable file, or a text that was hidden in one, with what is found in it."""

    path: str
    raw: str
    text: str  # as a reader sees it
    hosts: HostClassifier
    policy: ScreeningPolicy
    kind: file_kinds.FileKind
    is_instruction: bool = True  # a model follows it, rather than opening it as a reference
    is_run_as_python: bool = False
    is_prompt: bool = False  # a model reads it unasked
    is_lesson: bool = False

    def find_threats(self) -> Iterator[Finding]:
        lower = self.text.lower()
        for place, _, why in find_texts_held_by_policy(lower, self.policy):
            line = bisect_right(self._line_starts, place)
            yield _make_finding(self.path, line, "hold", RiskLevel.HIGH, why, _get_line(self.text, line))
        match self.kind:
            case file_kinds.FileKind.PROSE:
                yield from self._scan_prose()
            case file_kinds.FileKind.CODE:
                for found in self.code_findings:
                    yield _make_finding(
                        self.path, found.line, found.rule, found.severity, found.why, _get_line(self.text, found.line)
                    )
            case file_kinds.FileKind.DATA:
                return
        yield from self._find_and_scan_hidden_texts()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    @cached_property
    def code_findings(self) -> tuple[CodeFinding, ...]:
        first = self.text[:80].partition("\n")[0]
        ending = self.path.lower().rpartition(".")[2]
        language = "python" if self.is_run_as_python or (first.startswith("#!") and "python" in first) else ending
        if first.startswith("#!") and "node" in first:
            language = "js"
        if "/" in language or self.path.lower() == language:  # no ending
            language = "sh" if first.startswith("#!") else ""
        return find_code_threats(self.text, language, self.hosts)

    @cached_property
    def _page(self) -> ProsePage:
        return parse_page(self.text)

    def _scan_prose(self) -> Iterator[Finding]:
        for one in find_prose_threats(
            self._page.statements, self.hosts, is_prompt=self.is_prompt, is_lesson=self.is_lesson
        ):
            is_held = one.severity is RiskLevel.HIGH and (self.is_instruction or one.statement.is_description)
            yield self._make_finding_at_line(
                one.statement.line,
                one.threat,
                RiskLevel.HIGH if is_held else RiskLevel.NOTE,
                one.why,
                one.statement.text if self.is_lesson else "",
            )
        for block in self._page.blocks:
            yield from self._scan_code_block(block)
        for unit, after in itertools.zip_longest(self._page.units, self._page.units[1:]):
            yield from self._scan_commands_in_sentence(unit)
            yield from self._scan_lines_to_add_to_files(unit, after.text if after else "")

    def _scan_code_block(self, block: CodeBlock) -> Iterator[Finding]:
        """A block that can be run counts as a script, wherever it stands."""
        language = "sh" if SHELL_FENCES.fullmatch(block.language) else block.language
        is_worth_reading = get_command_pattern("marks_of_code").search(block.text) is not None
        for found in find_code_threats(block.text, language, self.hosts) if is_worth_reading else ():
            is_held = found.severity is RiskLevel.HIGH and (
                block.is_runnable or self._can_finding_be_high_risk_in_file(found)
            )
            yield self._make_finding_at_line(
                block.line + found.line - 1, found.rule, RiskLevel.HIGH if is_held else RiskLevel.NOTE, found.why
            )

    def _scan_commands_in_sentence(self, unit: ParagraphOrListItem) -> Iterator[Finding]:
        """Commands in a sentence, marked as such or not; the sentence may excuse them."""
        text = unit.text
        if not get_command_pattern("command_marks").search(text) and not (
            "`" in text and self.hosts.find_first_foreign_host(text)
        ):
            return
        starts = [(found.start(1), found[1]) for found in _INLINE.finditer(text)]
        starts += [
            (found.start(), text[found.start() : found.start() + 2_000])
            for found in get_command_pattern("command").finditer(text)
        ][:20]
        for start, command in starts:
            sentence = _get_sentence_at(text, start)
            before = text[max(0, start - 160) : start]
            for found in (
                find_code_threats(command.split("`")[0], "sh", self.hosts)
                if get_command_pattern("command_marks").search(command) or self.hosts.find_first_foreign_host(command)
                else ()
            ):
                is_excused = found.rule != ThreatKind.SENDS_SECRETS and is_command_excused(sentence, before)
                is_held = (
                    found.severity is RiskLevel.HIGH
                    and self._can_finding_be_high_risk_in_file(found)
                    and not is_excused
                )
                yield self._make_finding_at_line(
                    unit.get_line_at(start), found.rule, RiskLevel.HIGH if is_held else RiskLevel.NOTE, found.why
                )

    def _scan_lines_to_add_to_files(self, unit: ParagraphOrListItem, after: str) -> Iterator[Finding]:
        """A line that is to be added to a file is the command that writes it."""
        paths = [*get_command_pattern("written_path").finditer(unit.text)]
        if not paths or is_command_excused(unit.text, unit.text[: paths[0].start()]):
            return
        path = (
            paths[0][0]
            if "/" in paths[0][0] or "." in paths[0][0]
            else "crontab"
            if "cron" in paths[0][0]
            else "~/.profile"
        )
        lines = [code for code in _SPAN.findall(unit.text) if code != paths[0][0]]
        text = "\n".join(lines or [after])[:_LONGEST_WRITTEN]
        for found in find_code_threats(f"cat >> '{path}' <<'HABITUS_END'\n{text}\nHABITUS_END\n", "sh", self.hosts):
            is_held = found.severity is RiskLevel.HIGH and self._can_finding_be_high_risk_in_file(found)
            yield self._make_finding_at_line(
                unit.get_line_at(paths[0].start()), found.rule, RiskLevel.HIGH if is_held else RiskLevel.NOTE, found.why
            )

    def _can_finding_be_high_risk_in_file(self, found: CodeFinding) -> bool:
        """In a file for reference, prose counts if it has a command, a foreign host and a secret."""
        return self.is_instruction or found.rule == ThreatKind.SENDS_SECRETS

    def _find_and_scan_hidden_texts(self) -> Iterator[Finding]:
        """What was hidden is scanned like the rest, and being hidden makes it worse."""
        for hidden in (
            *(find_invisible_text(self.raw) if has_unusual_characters(self.raw) else ()),
            *find_encoded_text(self.text),
        ):
            if hidden.rule != "encoded_text":
                yield self._make_finding_at_line(hidden.line, hidden.rule, hidden.severity, hidden.why, hidden.says)
            if hidden.says and not self.is_prompt:
                yield from self._scan_hidden(hidden)

    def _scan_hidden(self, hidden: HiddenText) -> Iterator[Finding]:
        inner = replace(
            self,
            raw="",
            text=normalize_lookalikes(hidden.says),
            kind=file_kinds.FileKind.PROSE,
            is_prompt=True,
            is_instruction=True,
        )
        threats = {found.rule: found.why for found in inner.find_threats() if found.severity is RiskLevel.HIGH}
        for found in find_code_threats(hidden.says, "py", self.hosts) if hidden.rule == "encoded_text" else ():
            threats |= {found.rule: found.why} if found.severity is RiskLevel.HIGH else {}
        for rule, why in threats.items():
            yield self._make_finding_at_line(hidden.line, rule, RiskLevel.HIGH, f"Hidden text: {why}", hidden.says)

    def _make_finding_at_line(self, line: int, rule: str, severity: RiskLevel, why: str, said: str = "") -> Finding:
        return _make_finding(self.path, line, rule, severity, why, said or _get_line(self.text, line))


def _get_sentence_at(text: str, place: int) -> str:
    end = 0
    for sentence in split_sentences(text):
        end = text.find(sentence, end) + len(sentence)
        if end > place:
            return sentence
    return text[-400:]


def _get_line(text: str, number: int) -> str:
    return text.split("\n", number)[number - 1] if 0 < number <= text.count("\n") + 1 else ""


def _make_finding(path: str, line: int, rule: str, severity: RiskLevel, why: str, said: str) -> Finding:
    return Finding(rule=str(rule), severity=severity, path=path, line=line, quote=make_safe_quote(said), why=why)
