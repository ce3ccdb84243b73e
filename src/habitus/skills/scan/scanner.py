"""Scans a skill's directory for what would harm whoever trusts it. Pure: bytes in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from habitus.skills.scan import commands, languages, prose, python_code, together
from habitus.skills.scan.context import Context
from habitus.skills.scan.findings import Category, Finding, Risk, excerpt_of, lowered, worse_first
from habitus.skills.scan.hosts import is_known_installer
from habitus.skills.scan.rules import MOST_TRIES, Index, Place, Rule, Work, matches
from habitus.skills.scan.unhide import Hidden, encoded, invisible, is_strange, look_alikes, plain
from habitus.skills.trees import File, Tree

_ALL_RULES = (*prose.RULES, *commands.RULES)
_BY_NAME = {rule.name: rule for rule in _ALL_RULES}
_RULES = tuple(rule for rule in _ALL_RULES if not rule.is_common)
_INDEX = Index((*_RULES, *languages.SPACED))
_PER_RULE = 8  # places of one rule in one file that are looked at; the first says enough

_PROSE = (".md", ".markdown", ".txt", ".rst", ".mdx", ".html", ".htm", ".adoc")
_CONFIG = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".env", ".xml", ".properties")
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".ttf", ".otf", ".woff", ".woff2", ".mp3", ".mp4", ".wav", ".docx", ".xlsx", ".pptx")
_FENCED_PYTHON = re.compile(r"^[ \t]*```(?:python3?|py)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_PYTHON_CUES = re.compile(r"\b(?:eval|exec|__import__|b64decode|fromhex|marshal|dup2|environ)\b|range\(\d{3,}")
_CLAIMS_SAFETY = re.compile(r"\b(?:safe|safely|secure|securely|parameteri[sz]ed|validated|validation|sanitized)\b")
_WORSE_IN_CODE = frozenset(
    {"telling_host", "scheduled", "git_hook", "sudoers", "typosquat_install", "raw_socket", "credential_dumper", "numeric_host"}
)
_RISKY_IF_CLAIMED = frozenset({"sql_injection", "path_traversal"})


def scan(tree: Tree) -> tuple[Finding, ...]:
    """Everything suspicious in the files of a skill, worst first."""
    return scan_counting(tree, Work())


def scan_counting(tree: Tree, work: Work) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    python: dict[str, tuple[python_code.Seen, ...]] = {}
    claims_safety = False
    for path, file in sorted(tree.items()):
        content = file.content
        if content is None:
            findings.append(_at(path, 1, "too_large", Category.OBFUSCATION, Risk.MEDIUM, f"{file.size:,} bytes were not looked at.", ""))
        elif text := _text_of(content):
            findings += _scan_text(path, text, work)
            if _is_python(path, text):
                python[path] = python_code.look_at(text)
            elif path.lower().endswith("skill.md"):
                claims_safety = _CLAIMS_SAFETY.search(text[:600].lower()) is not None
        else:
            findings += _scan_binary(path, file, content)
    findings += _judge_python(python, claims_safety, tree)
    return tuple(sorted(set(findings), key=worse_first))


def _text_of(content: bytes) -> str:
    """The text of a file; nothing if it is not text."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    if b"\0" in content[:8192]:
        return ""
    return content.decode("utf-8", "replace")


def _is_python(path: str, text: str) -> bool:
    return path.endswith((".py", ".pyw", ".pyi")) or (text.startswith("#!") and "python" in text[:80].partition("\n")[0])


def _scan_text(path: str, text: str, work: Work) -> Iterator[Finding]:
    strange = is_strange(text)
    visible = plain(text, strange=strange)
    lower = visible.lower()
    yield from _scan_visible(path, lower, work, strange=strange)
    for hidden in (*invisible(text), *look_alikes(text)) if strange else ():
        yield from _scan_hidden(path, hidden, work)
    for hidden in encoded(visible):
        yield from _scan_hidden(path, hidden, work)
    if "```py" in lower and path.endswith(_PROSE):
        yield from _scan_fenced_python(path, visible)


def _scan_visible(path: str, lower: str, work: Work, *, strange: bool = True) -> Iterator[Finding]:
    """The rules over what can be read, each match judged by what stands around it."""
    context = Context(lower=lower, is_prose=path.lower().endswith(_PROSE))
    lines: dict[str, list[int]] = {}
    tries: dict[str, int] = {}
    for rule, place in _places(lower, strange=strange):
        here = lines.setdefault(rule.name, [])
        before = work.tries
        for match in matches(rule, place, work):
            if len(here) >= _PER_RULE:
                break
            line = lower.count("\n", 0, match.start()) + 1
            quoted = context.is_only_quoted(*match.span(), is_command=rule.is_command)
            if not quoted:
                here.append(line)
            severity = _judge(rule, match, context, path)
            if severity is not None:
                yield _at(path, line, rule.name, rule.category, lowered(severity) if quoted else severity, rule.why, match.group())
        tries[rule.name] = tries.get(rule.name, 0) + work.tries - before
    if flooded := [name for name, count in tries.items() if count >= MOST_TRIES]:
        why = "The openings of an attack are repeated so often that not all of them were looked at."
        yield _at(path, 1, "flooded", Category.OBFUSCATION, Risk.HIGH, why, ", ".join(flooded))
    for pair, line in together.found(lines, partial(_is_near, lower, context, lines, work)):
        yield _at(path, line, pair.name, pair.category, pair.severity, pair.why, _line(lower, line))


def _is_near(lower: str, context: Context, lines: dict[str, list[int]], work: Work, name: str, line: int, within: int) -> bool:
    """Does a rule match within some lines of a place?"""
    rule = _BY_NAME[name]
    if not rule.is_common:
        return any(abs(other - line) <= within for other in lines.get(name, ()))
    start, end = _lines_around(lower, line, within)
    place = Place(lower=lower, first=start, last=end)
    return any(not context.is_only_quoted(*match.span(), is_command=rule.is_command) for match in islice(matches(rule, place, work), _PER_RULE))


def _places(lower: str, *, strange: bool) -> Iterator[tuple[Rule, Place]]:
    """Which rules to try where."""
    yield from _INDEX.worth_trying(lower)
    if strange and languages.UNSPACED_LETTERS.search(lower):
        yield from ((rule, Place(lower=lower, first=0, last=len(lower))) for rule in languages.UNSPACED)


def _judge(rule: Rule, match: re.Match[str], context: Context, path: str) -> Risk | None:
    """How bad this match is where it stands."""
    severity = rule.severity
    place = match.start()
    is_code = not context.is_prose
    match rule.name:
        case "download_then_run" if is_known_installer(match.group()):
            severity = Risk.LOW
        case "pipe_to_shell" | "shell_of_download" | "powershell_download":
            known = is_known_installer(match.group()) or is_known_installer(context.lower[match.start() : match.end() + 120])
            is_plain = "http://" in match.group() and "http://localhost" not in match.group() and "http://127." not in match.group()
            severity = Risk.LOW if known else Risk.HIGH if is_code or is_plain else Risk.MEDIUM
        case name if is_code and name in _WORSE_IN_CODE:
            severity = Risk.HIGH
        case "rented_host" if path.endswith(_CONFIG) or is_code:
            severity = Risk.HIGH
    if severity is Risk.MEDIUM and context.is_concealed(place):
        return Risk.HIGH
    return severity


def _scan_hidden(path: str, hidden: Hidden, work: Work) -> Iterator[Finding]:
    """What was hidden is scanned like the rest, and being hidden makes it worse."""
    category = Category.OBFUSCATION if hidden.rule == "encoded_text" else Category.HIDDEN_TEXT
    if hidden.severity is not Risk.LOW:
        yield _at(path, hidden.line, hidden.rule, category, hidden.severity, hidden.why, hidden.says)
    if hidden.says:
        lower = plain(hidden.says).lower()
        for finding in _scan_visible(path, lower, work):
            if finding.severity is not Risk.LOW:
                yield replace(finding, line=hidden.line, severity=Risk.HIGH, why=f"Hidden text: {finding.why}")
        for seen in python_code.look_at(hidden.says) if hidden.rule == "encoded_text" else ():
            if seen.severity in (Risk.HIGH, Risk.MEDIUM):
                yield _at(path, hidden.line, seen.rule, Category.OBFUSCATION, Risk.HIGH, f"Hidden code: {seen.why}", hidden.says)


def _scan_fenced_python(path: str, text: str) -> Iterator[Finding]:
    """An example is not run by itself, so it weighs less than a script."""
    for match in _FENCED_PYTHON.finditer(text):
        if not _PYTHON_CUES.search(match.group(1)):
            continue
        first = text.count("\n", 0, match.start(1))
        for seen in python_code.look_at(match.group(1)):
            if seen.severity is not None and seen.rule not in ("path_traversal", "socket"):
                severity = seen.severity if seen.rule in ("floods", "reverse_shell") else lowered(seen.severity)
                yield _at(path, first + seen.line, seen.rule, seen.category, severity, seen.why, _line(text, first + seen.line))


def _judge_python(python: dict[str, tuple[python_code.Seen, ...]], claims_safety: bool, tree: Tree) -> Iterator[Finding]:
    together_seen = list(python_code.together(python))
    for path, seen in [(path, seen) for path, all_seen in python.items() for seen in all_seen] + together_seen:
        if seen.severity is None:
            continue
        severity = Risk.HIGH if claims_safety and seen.rule in _RISKY_IF_CLAIMED else seen.severity
        text = _text_of(tree[path].content or b"")
        yield _at(path, seen.line, seen.rule, seen.category, severity, seen.why, _line(text, seen.line))


def _scan_binary(path: str, file: File, content: bytes) -> Iterator[Finding]:
    if content.startswith(_PROGRAMS):
        yield _at(path, 1, "program", Category.DANGEROUS_CODE, Risk.HIGH, "A compiled program can't be looked into.", path)
    elif path.lower().endswith((".pyc", ".pyo", ".class", ".so", ".dll", ".exe", ".jar")) or file.executable:
        yield _at(path, 1, "compiled", Category.OBFUSCATION, Risk.HIGH, "Compiled code can't be looked into.", path)
    elif content and not path.lower().endswith(_PICTURES):
        yield _at(path, 1, "opaque_file", Category.OBFUSCATION, Risk.LOW, "A binary file can't be looked into.", path)


def _lines_around(text: str, number: int, within: int) -> tuple[int, int]:
    start = _start_of_line(text, max(1, number - within))
    end = start
    for _ in range(2 * within + 1):
        end = text.find("\n", end) + 1
        if end == 0:
            return start, len(text)
    return start, end


def _line(text: str, number: int) -> str:
    """One line of a text, by its number, without splitting all of it."""
    start = _start_of_line(text, number)
    end = text.find("\n", start)
    return text[start : min(end if end >= 0 else len(text), start + 1000)]


def _start_of_line(text: str, number: int) -> int:
    start = 0
    for _ in range(number - 1):
        start = text.find("\n", start) + 1
        if start == 0:
            return len(text)
    return start


def _at(path: str, line: int, rule: str, category: Category, severity: Risk, why: str, excerpt: str) -> Finding:
    return Finding(rule=rule, category=category, severity=severity, path=path, line=line, excerpt=excerpt_of(excerpt), why=why)
