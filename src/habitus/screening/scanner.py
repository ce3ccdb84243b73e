"""Scans a skill's directory for what would harm whoever trusts it. Pure: bytes in, findings out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from habitus.files import File, Tree
from habitus.screening import concealment, harm, languages, leaking, obedience, running, settling, taking, together
from habitus.screening.context import Context
from habitus.screening.findings import Category, Finding, Risk, excerpt_of, lowered, worse_first
from habitus.screening.hosts import is_known_installer
from habitus.screening.python_code import look_at
from habitus.screening.python_code import together as seen_together
from habitus.screening.rules import Index, Place, Rule, Work, matches
from habitus.screening.unhide import Hidden, doubtful, encoded, invisible, is_strange, plain

_TABLES = (obedience, concealment, taking, harm, running, settling, leaking)
_RULES = {rule.name: rule for table in _TABLES for rule in table.RULES}
_INDEX = Index((*(rule for rule in _RULES.values() if not rule.is_common), *languages.SPACED))

_PER_RULE = 8  # places of one rule in one file that are reported; the first says enough
_MOST_TRIES = 5_000  # of one rule in one file; nobody writes that many openings of one attack by accident

_PROSE = (".md", ".markdown", ".txt", ".rst", ".mdx", ".html", ".htm", ".adoc")
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")
_COMPILED = (".pyc", ".pyo", ".class", ".so", ".dll", ".exe", ".jar")
_MEDIA = re.compile(r"\.(?:png|jpe?g|gif|webp|ico|pdf|ttf|otf|woff2?|mp[34]|wav|docx|xlsx|pptx)$")
_PYTHON_CUES = re.compile(r"\b(?:eval|exec|__import__|b64decode|fromhex|marshal|dup2)\b|range\(\d{3,}")
_PYTHON_CUE_WORDS = ("eval", "exec", "__import__", "b64decode", "fromhex", "marshal", "dup2", "range(")
_CLAIMS_SAFETY = re.compile(r"\b(?:safe|safely|secure|securely|parameteri[sz]ed|validated|validation|sanitized)\b")

# An example in a guide may name these; a script that does has no excuse.
_WORSE_IN_CODE = frozenset(
    [
        *("telling_host", "rented_host", "numeric_host", "raw_socket", "model_redirect", "registry_redirect"),
        *("scheduled", "git_hook", "sudoers", "hosts_file", "typosquat_install", "credential_dumper"),
    ]
)
_INSTALLS = frozenset({"pipe_to_shell", "shell_of_download", "powershell_download", "download_then_run"})
_UNENCRYPTED = re.compile("http://(?!localhost|127)")
_WORSE_IF_CLAIMED_SAFE = frozenset({"sql_injection", "path_traversal"})
_WORSE_THAN_AN_EXAMPLE = frozenset({"floods", "reverse_shell"})


def scan(tree: Tree) -> tuple[Finding, ...]:
    """Everything suspicious in the files of a skill, worst first."""
    return scan_counting(tree, Work())


def scan_counting(tree: Tree, work: Work) -> tuple[Finding, ...]:
    """The same, with the work it took added to `work`."""
    findings: list[Finding] = []
    scripts: dict[str, str] = {}
    for path, file in sorted(tree.items()):
        text = _text_of(file)
        if text is None:
            findings += _scan_opaque(path, file)
            continue
        findings += _scan_text(path, text, work)
        if _is_python(path, text):
            scripts[path] = text
    if scripts:
        findings += _scan_scripts(scripts, claims_safety=_claims_safety(tree))
    return _first_of_each(sorted(set(findings), key=worse_first)) if findings else ()


def _claims_safety(tree: Tree) -> bool:
    heads = ((_text_of(file) or "")[:600].lower() for path, file in tree.items() if path.lower().endswith("skill.md"))
    return any(_CLAIMS_SAFETY.search(head) for head in heads)


def _first_of_each(findings: list[Finding]) -> tuple[Finding, ...]:
    """A few places of one rule in one file say enough."""
    count: Counter[tuple[str, str, Risk]] = Counter()
    kept = []
    for finding in findings:
        count[finding.path, finding.rule, finding.severity] += 1
        if count[finding.path, finding.rule, finding.severity] <= _PER_RULE:
            kept.append(finding)
    return tuple(kept)


def _text_of(file: File) -> str | None:
    content = file.content
    if content is None:
        return None
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    elif b"\0" in content[:8192]:
        return None
    else:
        text = content.decode("utf-8", "replace")
    return text.replace("\r\n", "\n")


def _is_python(path: str, text: str) -> bool:
    return path.endswith((".py", ".pyw", ".pyi")) or (
        text.startswith("#!") and "python" in text[:80].partition("\n")[0]
    )


def _scan_opaque(path: str, file: File) -> Iterator[Finding]:
    content = file.content
    if content is None:
        why = f"{file.size:,} bytes were not looked at."
        yield _at(path, 1, "too_large", Category.OBFUSCATION, Risk.MEDIUM, why, path)
    elif content.startswith(_PROGRAMS):
        yield _at(path, 1, "program", Category.DANGEROUS_CODE, Risk.HIGH, "A program can't be looked into.", path)
    elif path.lower().endswith(_COMPILED) or file.executable:
        yield _at(path, 1, "compiled", Category.OBFUSCATION, Risk.HIGH, "Compiled code can't be looked into.", path)
    elif not _MEDIA.search(path.lower()):
        yield _at(path, 1, "opaque_file", Category.OBFUSCATION, Risk.LOW, "A binary file can't be looked into.", path)


def _scan_text(path: str, text: str, work: Work) -> Iterator[Finding]:
    strange = is_strange(text)
    visible = plain(text, strange=strange)
    lower = visible.lower()
    yield from _scan_visible(path, lower, work, strange=strange)
    for hidden in (*invisible(text), *doubtful(text)) if strange else ():
        yield from _scan_hidden(path, hidden, work)
    for hidden in encoded(visible):
        yield from _scan_hidden(path, hidden, work)
    if "```py" in lower and path.lower().endswith(_PROSE):
        yield from _scan_fenced_python(path, visible)


def _scan_visible(path: str, lower: str, work: Work, *, strange: bool) -> Iterator[Finding]:
    """The rules over what can be read, each match judged by what stands around it."""
    context = Context(lower=lower, is_prose=path.lower().endswith(_PROSE))
    lines: dict[str, list[int]] = {}
    tries: dict[str, int] = {}
    for rule, place in _places(lower, strange=strange):
        tried = tries.get(rule.name, 0)
        if tried >= _MOST_TRIES or len(lines.get(rule.name, ())) >= _PER_RULE:
            continue
        before = work.tries
        for found in matches(rule, place, work, most=_MOST_TRIES - tried):
            line = context.line_of(found.start())
            is_quoted = context.is_only_quoted(*found.span(), is_command=rule.is_command)
            if not is_quoted:
                lines.setdefault(rule.name, []).append(line)
            if severity := _judge(rule, found, context):
                risk = lowered(severity) if is_quoted else severity
                yield _at(path, line, rule.name, rule.category, risk, rule.why, found.group())
        tries[rule.name] = tried + work.tries - before
    if flooded := [name for name, count in tries.items() if count >= _MOST_TRIES]:
        why = "The openings of an attack are repeated so often that not all of them were looked at."
        yield _at(path, 1, "flooded", Category.OBFUSCATION, Risk.HIGH, why, ", ".join(flooded))
    for pair, line in together.found(lines, partial(_is_near, context, lines, work)):
        yield _at(path, line, pair.name, pair.category, pair.severity, pair.why, context.line(line))


def _places(lower: str, *, strange: bool) -> Iterator[tuple[Rule, Place]]:
    """Which rules to try where."""
    yield from _INDEX.worth_trying(lower, strange=strange)
    if strange and languages.UNSPACED_LETTERS.search(lower):
        yield from ((rule, Place(lower, 0, len(lower))) for rule in languages.UNSPACED)


def _judge(rule: Rule, found: re.Match[str], context: Context) -> Risk | None:
    """How bad this match is where it stands."""
    severity = rule.severity
    is_code = not context.is_prose
    if rule.name in _INSTALLS:
        command = context.lower[found.start() : found.end() + 120].partition("\n")[0]
        if is_known_installer(command):
            severity = Risk.LOW
        elif is_code or _UNENCRYPTED.search(command):
            severity = Risk.HIGH
    if is_code and rule.name in _WORSE_IN_CODE:
        severity = Risk.HIGH
    if severity is Risk.MEDIUM and context.is_concealed(found.start()):
        return Risk.HIGH
    return severity


def _is_near(context: Context, lines: Mapping[str, list[int]], work: Work, name: str, line: int, within: int) -> bool:
    """Does a rule match within some lines of a place?"""
    rule = _RULES[name]
    if not rule.is_common:
        return any(abs(other - line) <= within for other in lines.get(name, ()))
    first, last = context.span_of(line - within, line + within)
    place = Place(context.lower, first, last)
    around = islice(matches(rule, place, work, most=_MOST_TRIES), _PER_RULE)
    return any(not context.is_only_quoted(*found.span(), is_command=rule.is_command) for found in around)


def _scan_hidden(path: str, hidden: Hidden, work: Work) -> Iterator[Finding]:
    """What was hidden is scanned like the rest, and being hidden makes it worse."""
    is_encoded = hidden.rule == "encoded_text"
    if not is_encoded:
        yield _at(path, hidden.line, hidden.rule, Category.HIDDEN_TEXT, hidden.severity, hidden.why, hidden.says)
    lower = plain(hidden.says).lower()
    for finding in _scan_visible(path, lower, work, strange=True) if lower else ():
        if finding.severity is not Risk.LOW:
            yield replace(finding, line=hidden.line, severity=Risk.HIGH, why=f"Hidden text: {finding.why}")
    for seen in look_at(hidden.says) if is_encoded else ():
        if seen.severity in (Risk.HIGH, Risk.MEDIUM):
            why = f"Hidden code: {seen.why}"
            yield _at(path, hidden.line, seen.rule, Category.OBFUSCATION, Risk.HIGH, why, hidden.says)


def _scan_fenced_python(path: str, text: str) -> Iterator[Finding]:
    """An example is not run by itself, so it weighs less than a script."""
    line, end = 1, 0
    while (start := text.find("```py", end)) >= 0:
        start = text.find("\n", start) + 1 or len(text)
        line += text.count("\n", end, start)
        end = text.find("```", start)
        end = end if end >= 0 else len(text)
        code = text[start:end]
        is_worth_it = any(word in code for word in _PYTHON_CUE_WORDS) and _PYTHON_CUES.search(code)
        for seen in look_at(code) if is_worth_it else ():
            if seen.severity is not None and seen.rule != "path_traversal":
                severity = seen.severity if seen.rule in _WORSE_THAN_AN_EXAMPLE else lowered(seen.severity)
                excerpt = code.split("\n")[seen.line - 1]
                yield _at(path, line + seen.line - 1, seen.rule, seen.category, severity, seen.why, excerpt)
        line += text.count("\n", start, end)


def _scan_scripts(scripts: Mapping[str, str], *, claims_safety: bool) -> Iterator[Finding]:
    """A weakness in a skill that calls itself safe is worse than one in a skill that does not."""
    seen_by_path = {path: look_at(text) for path, text in scripts.items()}
    lines = {path: text.split("\n") for path, text in scripts.items()}
    everything = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen]
    for path, seen in [*everything, *seen_together(seen_by_path)]:
        if seen.severity is not None:
            severity = Risk.HIGH if claims_safety and seen.rule in _WORSE_IF_CLAIMED_SAFE else seen.severity
            excerpt = lines[path][seen.line - 1] if seen.line <= len(lines[path]) else ""
            yield _at(path, seen.line, seen.rule, seen.category, severity, seen.why, excerpt)


def _at(path: str, line: int, rule: str, category: Category, severity: Risk, why: str, excerpt: str) -> Finding:
    return Finding(
        rule=rule, category=category, severity=severity, path=path, line=line, excerpt=excerpt_of(excerpt), why=why
    )
