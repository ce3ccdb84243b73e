"""Scans a skill's directory for what would harm whoever trusts it. Pure: bytes in, findings out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from habitus.files import File, Tree
from habitus.screening import learned
from habitus.screening.findings import Category, Finding, Risk, excerpt_of, lowered, worse_first
from habitus.screening.patterns import Lines, Match, Neighbourhood, Work, addresses, found_commands, neighbourhood
from habitus.screening.policy import Policy, held_texts
from habitus.screening.python_code import look_at
from habitus.screening.python_code import together as seen_together
from habitus.screening.readable import Hidden, doubtful, encoded, invisible, is_strange, plain
from habitus.screening.rules import intents_in
from habitus.screening.slots import Sentence, Slots, sentences, slots_of, words_of

_PER_RULE = 8  # places of one rule in one file that are reported; the first says enough
_PROSE = (".md", ".markdown", ".txt", ".rst", ".mdx", ".html", ".htm", ".adoc")
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")
_COMPILED = (".pyc", ".pyo", ".class", ".so", ".dll", ".exe", ".jar")
_MEDIA = re.compile(r"\.(?:png|jpe?g|gif|webp|ico|pdf|ttf|otf|woff2?|mp[34]|wav|docx|xlsx|pptx)$")
_PYTHON_CUES = re.compile(r"\b(?:eval|exec|__import__|b64decode|fromhex|marshal|dup2)\b|range\(\d{3,9}")
_CLAIMS_SAFETY = re.compile(r"\b(?:safe|safely|secure|securely|parameteri[sz]ed|validated|validation|sanitized)\b")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_UNSEEN = re.compile(
    r"<\w+\b[^>\n]{0,200}(?:display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0|opacity\s?:\s?0(?![.\d])|"
    r"color\s?:\s?(?:white|#fff(?:fff)?|transparent)\b|\bhidden\b)[^>\n]{0,200}>[^<]{0,2000}|\[(?://|comment)\]:\s?#[^\n]*"
)
_FRONT = re.compile(r"\A(---\n.{0,1200}?\n---|.{0,120}).*", re.DOTALL)  # what a skill says it is
_DOWNLOADS = frozenset({"pipe_to_shell", "shell_of_download", "download_then_run"})
_ENCRYPTED = re.compile(r"https://")
_FOREIGN = frozenset({"foreign_host", "rented_host", "numeric_host"})
_WORSE_IF_CLAIMED_SAFE = frozenset({"sql_injection", "path_traversal"})
_WORSE_THAN_AN_EXAMPLE = frozenset({"floods", "reverse_shell"})
_QUOTING = re.compile(r"[\"'`“”|>❌✗✘🚫⛔]")


def scan(tree: Tree, policy: Policy = Policy()) -> tuple[Finding, ...]:  # noqa: B008 - a frozen value
    """Everything suspicious in the files of a skill, worst first."""
    return scan_counting(tree, Work(), policy)


def scan_counting(tree: Tree, work: Work, policy: Policy = Policy()) -> tuple[Finding, ...]:  # noqa: B008
    """The same, with the work it took added to `work`."""
    findings = [found for path, file in sorted(tree.items()) for found in _scan_opaque(path, file)]
    for page in pages(tree, work, policy):
        findings += page.findings()
        findings += _scan_hidden(page)
    findings += _scan_scripts(tree)
    spoken = (finding for finding in set(findings) if finding.rule not in policy.silence)
    return _first_of_each(sorted(spoken, key=worse_first))


def pages(tree: Tree, work: Work, policy: Policy = Policy()) -> list[ScannedFile]:  # noqa: B008
    """The readable files of a skill."""
    texts = {path: text for path, file in sorted(tree.items()) if (text := _text_of(file)) is not None}
    seen = {path: plain(text, strange=is_strange(text)) for path, text in texts.items()}
    hosts = neighbourhood((text.lower() for text in seen.values()), _FRONT.sub(r"\1", _head(seen)))
    return [
        ScannedFile(path=path, raw=texts[path], text=text, hosts=hosts, work=work, policy=policy)
        for path, text in seen.items()
    ]


def _head(texts: Mapping[str, str]) -> str:
    return next((text[:1600] for path, text in texts.items() if path.lower().endswith("skill.md")), "")


def _first_of_each(findings: Iterable[Finding]) -> tuple[Finding, ...]:
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
    if _text_of(file) is not None:
        return
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


@dataclass(frozen=True, kw_only=True)
class ScannedFile:
    """One readable file, or a text that was hidden in one, with what is found in it."""

    path: str
    raw: str
    text: str  # as a reader sees it
    hosts: Neighbourhood
    work: Work
    policy: Policy
    is_hidden: bool = False

    @cached_property
    def lines(self) -> Lines:
        return Lines(lower=self.text.lower())

    @cached_property
    def is_prose(self) -> bool:
        return self.is_hidden or self.path.lower().endswith(_PROSE)

    @cached_property
    def is_about_attacks(self) -> bool:
        return self.is_prose and "warns" in slots_of(self.text[:800])

    @cached_property
    def concealed(self) -> list[tuple[int, int]]:
        """Spans that a page has but does not show."""
        lower = self.lines.lower
        comments = _COMMENT.finditer(lower) if "<!--" in lower else ()
        unseen = _UNSEEN.finditer(lower) if "<" in lower or "]:" in lower else ()
        return sorted(found.span() for found in (*comments, *unseen))

    @cached_property
    def commands(self) -> tuple[list[Match], list[str]]:
        return found_commands(self.lines.lower, self.work)

    @cached_property
    def sentences(self) -> list[Sentence]:
        return sentences(self.text, self.signs) if self.is_prose else []

    def findings(self) -> Iterator[Finding]:
        matches, flooded = self.commands
        if flooded:
            why = "The openings of an attack are repeated so often that not all of them were looked at."
            yield self._at(1, "flooded", Category.OBFUSCATION, Risk.HIGH, why, ", ".join(flooded))
        for place, text, why in held_texts(self.lines.lower, self.policy):
            yield self._at(self.lines.number(place), "hold", Category.EXCESSIVE_PERMISSION, Risk.HIGH, why, text)
        yield from self._rented()
        around: dict[int, list[Sentence]] = {}
        for sentence in self.sentences:
            around.setdefault(sentence.line, []).append(sentence)
        for match in matches:
            if severity := self._judged(match, around):
                rule = match.rule
                excerpt = self.lines.lower[match.start : match.end]
                yield self._at(self.lines.number(match.start), rule.name, rule.category, severity, rule.why, excerpt)
        yield from self._meant()
        if self.is_prose and not self.is_hidden and "```py" in self.lines.lower:
            yield from _scan_fenced_python(self.path, self.text)

    def _rented(self) -> Iterator[Finding]:
        """Addresses of hosts that anyone can have for a minute."""
        for place, host in addresses(self.lines.lower):
            if self.hosts.kind(host) == "rented_host":
                risk = Risk.MEDIUM if self.is_about_attacks else Risk.HIGH
                why = "Leads to a host that anyone can have for a minute."
                yield self._at(self.lines.number(place), "rented_host", Category.EXFILTRATION, risk, why, host)

    @cached_property
    def signs(self) -> dict[int, Slots]:
        """What patterns and addresses say of each line."""
        signs: dict[int, set[str]] = {}
        for match in self.commands[0]:
            signs.setdefault(self.lines.number(match.start), set()).add(match.rule.name)
        for place, host in addresses(self.lines.lower):
            if kind := self.hosts.kind(host):
                signs.setdefault(self.lines.number(place), set()).add("foreign_host" if kind in _FOREIGN else kind)
        return {line: frozenset(names) for line, names in signs.items()}

    def _judged(self, match: Match, around: Mapping[int, Sequence[Sentence]]) -> Risk | None:
        """How bad this match is where it stands."""
        rule = match.rule
        severity = rule.risk if self.is_prose else rule.in_code or rule.risk
        if severity is None:
            return None
        if rule.name in _DOWNLOADS:
            severity = self._download(match, severity)
        if self._is_concealed(match.start):
            return Risk.HIGH if severity is Risk.MEDIUM else severity
        if self.is_prose and self._is_warned(around.get(self.lines.number(match.start), ())):
            return lowered(severity)
        return severity

    def _download(self, match: Match, severity: Risk) -> Risk:
        """Where everybody downloads from is no news; where the skill is at home, worth a look."""
        lower = self.lines.lower
        command = lower[match.start : max(match.end, lower.find("\n", match.end), match.start + 1)][:600]
        kinds = {self.hosts.kind(host) for _, host in addresses(command)}
        if kinds <= {"known_host", ""}:
            return Risk.LOW if kinds else lowered(severity)
        return Risk.MEDIUM if kinds <= {"known_host", "own_host", ""} and _ENCRYPTED.search(command) else Risk.HIGH

    def _is_concealed(self, place: int) -> bool:
        before = bisect_right(self.concealed, (place, len(self.text))) - 1
        return self.is_hidden or (before >= 0 and place < self.concealed[before][1])

    def _is_warned(self, read: Sequence[Sentence]) -> bool:
        """Is it said to warn of it, by its own line, its heading, or the page?"""
        return self.is_about_attacks or any(
            "warns" in one.own | one.around or "-run" in one.own | one.around for one in read
        )

    def _meant(self) -> Iterator[Finding]:
        """What the sentences want: by the intents, else by the learned look."""
        weights = learned.weights()
        for sentence in self.sentences:
            slots = sentence.slots
            found = intents_in(slots)
            words = words_of(sentence.text) if found else []
            unplaced = slots - frozenset().union(*words)
            met = [intent for intent in found if intent.is_met(words, unplaced)]
            for intent in met:
                is_shown = sentence.is_code or self.is_mentioned(sentence)
                severity = lowered(intent.risk) if is_shown else intent.risk
                yield self._at(sentence.line, intent.name, intent.category, severity, intent.why, sentence.text)
            if not met and not sentence.is_code and learned.score(sentence, weights) >= weights.skill_floor:
                is_said = "warns" not in sentence.own and not self.is_mentioned(sentence)
                severity = Risk.HIGH if is_said else Risk.MEDIUM
                why = f"Reads like an attack: {', '.join(_told(sentence))}."
                yield self._at(sentence.line, "reads_like_an_attack", _category(sentence), severity, why, sentence.text)

    def is_mentioned(self, sentence: Sentence) -> bool:
        """Quoted or listed where attacks are spoken of, rather than said."""
        if self.is_hidden:
            return False
        is_listed = (
            sentence.text[:1] in "-*+|>❌" or sentence.text[:1].isdigit() or _QUOTING.search(sentence.text) is not None
        )
        return is_listed and ("warns" in sentence.around or self.is_about_attacks)

    def _at(self, line: int, rule: str, category: Category, severity: Risk, why: str, excerpt: str) -> Finding:
        return _at(self.path, line, rule, category, severity, why, excerpt)


_TELLING = {
    "secret": "secrets",
    "hard_secret": "secrets",
    "secret_path": "secrets",
    "spy": "private data",
    "data": "private data",
    "send": "sending",
    "posts": "sending",
    "foreign_host": "an unrelated host",
    "remote": "a server",
    "standing": "with every task",
    "run": "running",
    "script_path": "a script",
    "delete": "deleting",
    "lock": "locking",
    "approval": "approval",
    "hide": "secrecy",
    "money": "money",
    "slant": "taking sides",
    "plant": "a planted access",
    "steering": "agents' own files",
    "weaken": "protections",
    "told": "instructions",
    "identity": "identity",
}


def _told(sentence: Sentence) -> list[str]:
    """What a sentence speaks of, in words for people."""
    every = sentence.own | sentence.around
    return list(dict.fromkeys(word for slot, word in _TELLING.items() if slot in every))[:4] or ["an order"]


def _category(sentence: Sentence) -> Category:
    every = sentence.own | sentence.around
    if every & {"posts", "foreign_host"} or {"send", "spy"} <= every:
        return Category.EXFILTRATION
    if every & {"hard_secret", "secret_path"}:
        return Category.CREDENTIAL_ACCESS
    return Category.DANGEROUS_CODE if every & {"delete", "script_path", "lock"} else Category.PROMPT_INJECTION


def _scan_hidden(page: ScannedFile) -> Iterator[Finding]:
    """What was hidden is scanned like the rest, and being hidden makes it worse."""
    text, strange = page.raw, is_strange(page.raw)
    for hidden in (*((*invisible(text), *doubtful(text)) if strange else ()), *encoded(page.text)):
        is_encoded = hidden.rule == "encoded_text"
        if not is_encoded:
            yield _at(
                page.path, hidden.line, hidden.rule, Category.HIDDEN_TEXT, hidden.severity, hidden.why, hidden.says
            )
        if hidden.says:
            yield from _scan_found(page, hidden)
        for seen in look_at(hidden.says) if is_encoded else ():
            if seen.severity in (Risk.HIGH, Risk.MEDIUM):
                why = f"Hidden code: {seen.why}"
                yield _at(page.path, hidden.line, seen.rule, Category.OBFUSCATION, Risk.HIGH, why, hidden.says)
    if page.concealed:
        yield from replace(page, text=_only(page.text, page.concealed), is_hidden=True).findings()


def _only(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text of the spans on their lines; the rest of it is left out."""
    parts, end = [], 0
    for start, stop in spans:
        parts += ["\n" * text.count("\n", end, start), text[max(start, end) : stop]]
        end = max(end, stop)
    return "".join(parts)


def _scan_found(page: ScannedFile, hidden: Hidden) -> Iterator[Finding]:
    inner = replace(page, text=plain(hidden.says), is_hidden=True)
    for finding in inner.findings():
        if finding.severity is not Risk.LOW:
            yield replace(finding, line=hidden.line, severity=Risk.HIGH, why=f"Hidden text: {finding.why}")


def _scan_fenced_python(path: str, text: str) -> Iterator[Finding]:
    """An example is not run by itself, so it weighs less than a script."""
    line, end = 1, 0
    while (start := text.find("```py", end)) >= 0:
        start = text.find("\n", start) + 1 or len(text)
        line += text.count("\n", end, start)
        end = text.find("```", start)
        end = end if end >= 0 else len(text)
        code = text[start:end]
        for seen in look_at(code) if _PYTHON_CUES.search(code) else ():
            if seen.severity is not None and seen.rule != "path_traversal":
                severity = seen.severity if seen.rule in _WORSE_THAN_AN_EXAMPLE else lowered(seen.severity)
                excerpt = code.split("\n")[seen.line - 1]
                yield _at(path, line + seen.line - 1, seen.rule, seen.category, severity, seen.why, excerpt)
        line += text.count("\n", start, end)


def _scan_scripts(tree: Tree) -> Iterator[Finding]:
    """A weakness in a skill that calls itself safe is worse than one in a skill that does not."""
    texts = {path: text for path, file in sorted(tree.items()) if (text := _text_of(file)) is not None}
    scripts = {path: text for path, text in texts.items() if _is_python(path, text)}
    claims_safety = _CLAIMS_SAFETY.search(_head(texts)[:600].lower()) is not None
    seen_by_path = {path: look_at(text) for path, text in scripts.items()}
    everything = [(path, seen) for path, all_seen in seen_by_path.items() for seen in all_seen]
    for path, seen in [*everything, *seen_together(seen_by_path)]:
        if seen.severity is not None:
            severity = Risk.HIGH if claims_safety and seen.rule in _WORSE_IF_CLAIMED_SAFE else seen.severity
            excerpt = "".join(scripts[path].split("\n")[seen.line - 1 : seen.line])
            yield _at(path, seen.line, seen.rule, seen.category, severity, seen.why, excerpt)


def _at(path: str, line: int, rule: str, category: Category, severity: Risk, why: str, excerpt: str) -> Finding:
    return Finding(
        rule=rule, category=category, severity=severity, path=path, line=line, excerpt=excerpt_of(excerpt), why=why
    )
