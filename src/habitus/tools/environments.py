"""Virtual environments for tools with dependencies: one per set of them and interpreter, made when first needed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from habitus.sandbox.venvs import Venvs, checked


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
            if not (folder / "pyvenv.cfg").exists():
                await self._make(folder, dependencies)
        return folder

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


def interpreter() -> str:
    return f"{platform.python_implementation()} {platform.python_version()} {platform.system()} {platform.machine()}"


def environment_hash(dependencies: Sequence[str]) -> str:
    wanted = sorted({checked(requirement) for requirement in dependencies})
    return hashlib.sha256(json.dumps([wanted, interpreter()]).encode()).hexdigest()[:32]
