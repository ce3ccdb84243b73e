"""The kind of a file: prose that a model reads, code that is run, or data that tells nobody anything.

A name alone hides nothing: a file that begins with `#!`, that may be executed or that the skill has run is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

_PROSE = (".md", ".markdown", ".txt", ".rst", ".mdx", ".html", ".htm", ".adoc")
_SCRIPT = re.compile(r"\.(?:(?:ba|z|k|c|fi)?sh|command|py[wi]?|ps1|psm1|bat|cmd|[mc]?js|rb|pl|php|lua|r)$")
_CONFIGURATION = re.compile(
    r"\.(?:ya?ml|toml|ini|cfg|conf|env)$|(?:^|/)(?:package|hooks|plugin|manifest|[\w.-]*(?:settings|config|mcp)[\w.-]*)\.json$"
)
_DATA = re.compile(r"\.(?:jsonl?|xsd|xml|csv|tsv|svg|lock|sum|map|dtd|rng|vcf|ics|geojson|ipynb|css|sha\d+|sig|asc)$")
_LEGAL_WORDS = r"(?:licen[sc]es?|notices?|copying|patents|ofl|third[-_]party[-_](?:notices?|licen[sc]es?))"
_LEGAL = re.compile(
    rf"(?:[\w.-]{{1,60}}[-_.])?{_LEGAL_WORDS}"
    r"(?:[-_][\w-]{1,40}|[-_.]?\d(?:\.\d)?)?(?:\.(?:txt|mit|apache|bsd|[al]?gpl|mpl|lesser))?"
)
_LEGAL_PAGE = re.compile(rf"{_LEGAL_WORDS}\.md")

_INSTRUCTS = re.compile(r"(?:^|/)(?:skill|claude|agents|gemini)\.md$|\.cursorrules$|copilot-instructions\.md$")

_FILE = r"[\"'`]?(?:[\w.~${}@-]{0,60}/){0,8}([\w.-]{1,80})"
_BY_NAME = r"(?:ba|da|z|k)?sh|python[\d.]{0,4}|node|deno|bun|perl|ruby|php|pwsh|powershell|chmod(?=\s[+\w,=]{0,8}x)"
_RUN = re.compile(
    rf"(?:\b({_BY_NAME})|(?m:^)[ \t]{{0,9}}(?:source|exec|\.)|[`;&|(]\s?(?:source|exec|\.)|\bexec\(open\()"
    rf"(?:\s{{1,3}}(?:[-+][\w=.+-]{{0,20}}|<|run)){{0,4}}[\"'`,\s]{{0,6}}{_FILE}"
)
_PIPED = re.compile(r"\|\s{0,3}(?:sudo )?(?:ba|da|z|k)?sh\b")
_LAST_NAME = re.compile(r"([\w.-]{1,80})[\"'`]?\s{0,3}\Z")
_SAID_TO_RUN = re.compile(rf"\b(?:run|execute|launch|invoke)\s(?:the (?:file|script)\s)?(?=[\"'`]){_FILE}")
_SAID_TO_READ = re.compile(rf"\b(?:read|follow|obey|load|apply)\s(?:[a-z]{{1,12}}\s){{0,4}}\[?{_FILE}")
_MANY = 50  # names that are not looked for one by one


class FileKind(Enum):
    PROSE = "prose"
    CODE = "code"
    DATA = "data"  # schemas, licences, locks: nobody is told anything there


@dataclass(frozen=True, kw_only=True, slots=True)
class FileReferences:
    """The names of files that a skill has run, by what runs them, those it says to run, and those it says to read."""

    run: Mapping[str, str]
    said_to_run: frozenset[str]
    read: frozenset[str]

    @classmethod
    def from_texts(cls, texts: Iterable[str], paths: Iterable[str]) -> FileReferences:
        """What the texts of a skill, in small letters, order about the files that are no scripts by their names."""
        names = {_get_file_name(path) for path in paths if _is_non_script_name(path)}
        run: dict[str, str] = {}
        said: set[str] = set()
        read: set[str] = set()
        for text in texts if names else ():
            if len(names) > _MANY or any(name in text for name in names):
                run |= {_strip_full_stop(found[2]): found[1] or "sh" for found in _RUN.finditer(text)}
                run |= dict.fromkeys(_find_piped_files(text), "sh")
                said |= {_strip_full_stop(name) for name in _SAID_TO_RUN.findall(text)}
                read |= {_strip_full_stop(name) for name in _SAID_TO_READ.findall(text)}
        return cls(run=run, said_to_run=frozenset(said), read=frozenset(read))

    def is_run(self, path: str) -> bool:
        return _get_file_name(path) in self.run

    def is_run_as_python(self, path: str) -> bool:
        return self.run.get(_get_file_name(path), "").startswith("python")


def classify_file_kinds(
    path: str, text: str, *, is_executable: bool, references: FileReferences
) -> tuple[FileKind, ...]:
    """The ways in which a file is to be read; a page that is run is both prose and code."""
    kind, is_run = _classify_by_name(path), text.startswith("#!") or references.is_run(path)
    match kind:
        case FileKind.PROSE:
            return (FileKind.PROSE, FileKind.CODE) if is_run else (FileKind.PROSE,)
        case FileKind.DATA if is_run or is_executable or _get_file_name(path) in references.said_to_run:
            return (FileKind.CODE,)
        case FileKind.DATA if _is_license_file(path) and _get_file_name(path) in references.read:
            return (FileKind.PROSE,)
        case _:
            return (kind,)


def is_instruction_file(path: str, tree: Iterable[str]) -> bool:
    """Whether a model follows the page when the skill is used, rather than opening it for reference."""
    return _INSTRUCTS.search(path.lower()) is not None or not any(_INSTRUCTS.search(other.lower()) for other in tree)


def is_script(path: str, content: bytes) -> bool:
    return _SCRIPT.search(path.lower()) is not None or content.startswith(b"#!")


def is_prose(path: str) -> bool:
    return path.lower().endswith(_PROSE)


def _classify_by_name(path: str) -> FileKind:
    lower = path.lower()
    if _CONFIGURATION.search(lower):
        return FileKind.CODE
    if _DATA.search(lower) or _is_license_file(path):
        return FileKind.DATA
    return FileKind.PROSE if is_prose(path) else FileKind.CODE


def _is_non_script_name(path: str) -> bool:
    """Whether a file is no script by its name; the main file is read whole anyhow."""
    return _SCRIPT.search(path.lower()) is None and path.lower() != "skill.md"


def _find_piped_files(text: str) -> Iterator[str]:
    """The names of files that are handed to a shell through a pipe."""
    for pipe in _PIPED.finditer(text):
        if found := _LAST_NAME.search(text, max(0, pipe.start() - 90), pipe.start()):
            yield found[1]


def _is_license_file(path: str) -> bool:
    """A licence or notice by its whole name; as a page in a folder only in capitals, as nobody names a chapter."""
    name = path.rpartition("/")[2]
    is_page = _LEGAL_PAGE.fullmatch(name.lower()) is not None and ("/" not in path or name[:-3].isupper())
    return is_page or _LEGAL.fullmatch(name.lower()) is not None


def _get_file_name(path: str) -> str:
    return path.rpartition("/")[2].lower()


def _strip_full_stop(name: str) -> str:
    """A name without the full stop of its sentence."""
    return name.rstrip(".")
