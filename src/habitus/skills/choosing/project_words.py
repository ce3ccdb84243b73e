"""Words that describe a project, from its files and dependencies: a weak prior for requests that don't name a
language.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A project can be huge, so files, words and bytes are bounded.
_MOST_FILES, _MOST_WORDS, _LARGEST = 500, 60, 1 << 20
_WORDS_BY_FILE_NAME = {
    "pyproject.toml": "python", "requirements.txt": "python", "setup.py": "python", "package.json": "javascript node",
    "tsconfig.json": "typescript", "Cargo.toml": "rust", "go.mod": "golang", "pom.xml": "java", "build.gradle": "java",
    "build.gradle.kts": "kotlin", "Gemfile": "ruby", "composer.json": "php", "mix.exs": "elixir",
    "Package.swift": "swift", "pubspec.yaml": "flutter dart", "Dockerfile": "docker", "components.json": "shadcn",
}  # fmt: skip
_WORDS_BY_SUFFIX = {
    ".csproj": "dotnet csharp .NET", ".sln": "dotnet csharp .NET", ".slnx": "dotnet csharp .NET", ".tf": "terraform",
    ".bicep": "azure bicep", ".xcodeproj": "swift ios", ".vue": "vue", ".svelte": "svelte", ".R": "R", ".tex": "latex",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z][\w.-]*")


def list_project_words(root: Path) -> tuple[str, ...]:
    """Return each word once; unreadable files are ignored."""
    names = itertools.islice(_list_file_names_two_levels_deep(root), _MOST_FILES)
    signs = [_WORDS_BY_FILE_NAME.get(name, "") or _WORDS_BY_SUFFIX.get(name[name.rfind(".") :], "") for name in names]
    words = dict.fromkeys(word for sign in signs for word in sign.split())
    return tuple(dict.fromkeys([*words, *_list_dependencies(root)]))[:_MOST_WORDS]


def _list_file_names_two_levels_deep(root: Path) -> Iterator[str]:
    """Yield the names of the files of the project's folder and of its direct subfolders, without hidden ones."""
    names = _list_visible_names_in_folder(str(root))
    yield from names
    for name in names:
        yield from _list_visible_names_in_folder(f"{root}{os.sep}{name}")


def _list_visible_names_in_folder(folder: str) -> list[str]:
    try:
        # Texts, because hundreds of Path objects would take longer than everything else here.
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    except OSError:
        return []


def _list_dependencies(root: Path) -> list[str]:
    package, project = (
        _read_project_manifest_file(root / "package.json"),
        _read_project_manifest_file(root / "pyproject.toml").get("project"),
    )
    parts = [package.get("dependencies"), package.get("devDependencies")]
    parts.append(project.get("dependencies") if isinstance(project, dict) else None)
    found = [str(name) for part in parts if isinstance(part, (dict, list)) for name in part]
    # The last part of a scoped name such as @angular/core says most.
    return [name[0] for text in found if (name := _NAME.search(text.rsplit("/", 1)[-1]))]


def _read_project_manifest_file(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST:
            return {}
        text = file.read_text(encoding="utf-8")
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
