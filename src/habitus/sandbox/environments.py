"""Virtual environments by their set of packages and interpreter: made once, then lent to tools and linked into pads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from habitus.files import write_whole
from habitus.sandbox.inside import folders
from habitus.sandbox.venvs import Venvs, checked, packages_of

_WANTED = "packages.json"  # beside an environment of a pad's own: what was asked to be in it


class Environments:
    """Keeps them below a cache folder by hash; what lies there can be deleted and is made again."""

    def __init__(self, folder: Path, venvs: Venvs) -> None:
        self._folder = folder
        self._venvs = venvs
        self._turn = asyncio.Lock()

    async def folder_for(self, dependencies: Sequence[str]) -> Path | None:
        """The environment with these packages; none is needed where there are none."""
        if not dependencies:
            return None
        folder = self._folder / environment_hash(dependencies)
        async with self._turn:
            if (folder / "pyvenv.cfg").exists():
                os.utime(folder)  # it is in use
            else:
                await self._make(folder, dependencies)
        return folder

    async def make_own(self, venv: Path) -> None:
        """An environment that is changed later, empty at first."""
        await self._venvs.make(venv)

    async def install(self, venv: Path, requirements: Sequence[str]) -> str:
        """Have an environment of its own hold these packages besides those it has; what came, a line each.

        It is given links to the files of the cached one with all of them. Code sees both read-only.
        """
        await self._venvs.make(venv)
        before = await asyncio.to_thread(_wanted, venv)
        wanted = together(before, requirements)
        if set(wanted) == set(before):
            return f"Already there: {', '.join(sorted(requirements))}." if requirements else ""
        cached = await self.folder_for(wanted)
        assert cached is not None
        added = await asyncio.to_thread(_fill, venv, cached, wanted)
        return f"Installed {', '.join(added)}." if added else "Everything was there already."

    async def _make(self, folder: Path, dependencies: Sequence[str]) -> None:
        """Aside, then renamed: another process may make the same one, and the first to finish wins."""
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        try:
            await self._venvs.make(aside)
            await self._venvs.install(aside, dependencies)
            try:
                aside.rename(folder)
            except OSError:
                if not (folder / "pyvenv.cfg").exists():
                    raise
        finally:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)


def together(before: Iterable[str], added: Iterable[str]) -> list[str]:
    """One requirement for each package, however its name is spelled; what is asked later of the same one counts."""
    found = {}
    for text in map(checked, [*before, *added]):
        requirement = Requirement(text)
        requirement.name = canonicalize_name(requirement.name)
        found[requirement.name] = str(requirement)
    return sorted(found.values())


def let_go(folder: Path, *, unused_since: float) -> None:
    """Delete cached environments that nobody has asked for since then."""
    for cached in folder.glob("*"):
        try:
            if cached.stat().st_mtime < unused_since:
                folders.remove(str(cached))
        except OSError:
            continue  # another process is at it


def interpreter() -> str:
    return f"{platform.python_implementation()} {platform.python_version()} {platform.system()} {platform.machine()}"


def environment_hash(dependencies: Sequence[str]) -> str:
    wanted = sorted({checked(requirement) for requirement in dependencies})
    return hashlib.sha256(json.dumps([wanted, interpreter()]).encode()).hexdigest()[:32]


def _wanted(venv: Path) -> list[str]:
    """What was asked to be in an environment; of one that has no list, what it holds."""
    listed = venv.with_name(_WANTED)
    if not listed.exists():
        return [f"{name}=={version}" for name, version in _found(venv)]
    return [str(text) for text in json.loads(listed.read_text())]


def _found(venv: Path) -> list[tuple[str, str]]:
    """The packages that an environment holds, with their versions."""
    named = (folder.name.removesuffix(".dist-info").rpartition("-") for folder in packages_of(venv).glob("*.dist-info"))
    return sorted((name, version) for name, _, version in named)


def _fill(venv: Path, cached: Path, wanted: Sequence[str]) -> list[str]:
    """Give an environment the packages of a cached one; which are new. Code that runs sees them at once."""
    packages, had = packages_of(venv), _found(venv)
    new, old = packages.with_name("new"), packages.with_name("old")
    for rest in (new, old):
        shutil.rmtree(rest, ignore_errors=True)
    shutil.copytree(packages_of(cached), new, symlinks=True, copy_function=_link)
    packages.rename(old)
    new.rename(packages)
    shutil.rmtree(old, ignore_errors=True)
    write_whole(venv.with_name(_WANTED), json.dumps(sorted(wanted)).encode(), durable=False)
    return [f"{name} {version}" for name, version in _found(venv) if (name, version) not in had]


def _link(source: str, target: str) -> None:
    """The same file under another name; where the disk has no second names, a copy."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
