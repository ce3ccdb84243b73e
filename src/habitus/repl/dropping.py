"""Files that a line names: pasted, or dropped on a terminal that writes them quoted, escaped or as an address."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from habitus.errors import Invalid, NotFound
from habitus.files import given_path


def dropped_files(line: str, cwd: Path) -> list[Path]:
    """The files that a line consists of; none where it has any other word, because then it is for the model."""
    said = line.strip()
    if not said or "\n" in said:
        return []
    for words in ([said], _words(said)):
        if words and all(_looks_like_a_path(word) for word in words):
            files = [_file(word, cwd) for word in words]
            if all(files):
                return [file for file in files if file]
    return []


def named_files(given: str, cwd: Path) -> list[Path]:
    """The files that a command was given; an error where there is none."""
    for words in ([given], _words(given)):
        files = [_file(word, cwd) for word in words]
        if words and all(files):
            return [file for file in files if file]
    raise NotFound(f"There is no file {cwd / given_path(_plain(given))}.", mend="Check the path.")


def _words(said: str) -> list[str]:
    try:
        return shlex.split(said)
    except ValueError:  # an apostrophe is no quote
        return []


def _looks_like_a_path(word: str) -> bool:
    """`notes` may be a word and a file; `notes.txt` and `./notes` are files."""
    return "/" in word or "." in word.strip(".")


def _file(word: str, cwd: Path) -> Path | None:
    try:
        path = cwd / given_path(_plain(word))
        return path if path.is_file() else None
    except (Invalid, OSError):
        return None


def _plain(word: str) -> str:
    """The path in an address of this machine; any other word as it is."""
    address = urlsplit(word) if word.startswith("file://") else None
    return unquote(address.path) if address and address.netloc in ("", "localhost") else word
