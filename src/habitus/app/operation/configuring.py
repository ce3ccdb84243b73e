"""Settings by hand: each value with where it comes from, and changing one in habitus.toml, whose comments stay."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from habitus import settings as settings_module
from habitus.app import home_directory
from habitus.app.operation import better_encoder
from habitus.errors import Invalid, NotFound, Refused, did_you_mean
from habitus.files import write_whole
from habitus.hosts.editing import Before, Entry, Format, apply_entries, taken_out
from habitus.llm.agents import program_of
from habitus.llm.providers.naming import split_name
from habitus.llm.scripted import PREFIX
from habitus.sandbox.credentials.vault import open_redactor
from habitus.settings import FILE, Encoder, Settings


class Origin(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A setting as a person may see it: what looks secret is taken out."""

    key: str
    value: Any
    origin: Origin
    shown: str
    what: str = ""
    choices: tuple[str, ...] = ()  # all it may be, where they are few


@dataclass(frozen=True, kw_only=True, slots=True)
class Configured:
    """A setting after it was changed in the file; `is_overruled` where the environment still wins."""

    now: Value
    is_changed: bool
    is_overruled: bool
    undo: tuple[str, ...]


# What the page and REST may set. The rest names commands, addresses and places, which whoever owns the machine decides.
_MODELS = ("model", "cheap_model")
FROM_AFAR = (
    *("model", "cheap_model", "memory", "acc_mode", "learning_tokens", "evidence.withhold"),
    *("review.auto", "review.somebody_else"),
    *("layers", "disabled_skills", "reliable", "search.encoder", "bot_name"),
    *(f"schedule.{kind}" for kind in ("curate", "learn", "mine", "verify", "dream", "improve")),
    *("retention.turn_days", "retention.lessons", "retention.degraded_tool_days"),
)


SOMEBODY_ELSE = "review.somebody_else"  # a setting that takes a team


def put_from_afar(
    settings: Settings, environ: Mapping[str, str], key: str, text: str | None, *, is_team: Callable[[], bool]
) -> Configured:
    """The same as `put` for whoever is not at the machine."""
    if _known_key(key) not in FROM_AFAR:
        raise Refused(f"'{key}' is not set from afar.", mend=f"Use 'habitus config set {key} …', or edit {FILE}.")
    return put(settings, environ, key, text, is_team=is_team)


def values(settings: Settings, environ: Mapping[str, str]) -> tuple[Value, ...]:
    return tuple(get(settings, environ, key) for key in settings_module.known_keys())


def get(settings: Settings, environ: Mapping[str, str], key: str) -> Value:
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
    """Write a setting into the file, or take it out of it with None; `is_team` says whether there is anybody else."""
    key = _known_key(key)
    if not home_directory.can_write(settings.home):
        home_directory.refuse_to_write(settings.home)
    if text and key in _MODELS and program_of(text) is None and not text.startswith(PREFIX):
        split_name(text.strip())
    if key == "search.encoder" and text == Encoder.MINILM:
        better_encoder.refuse_without_weights(settings)
    value = None if text is None else settings_module.check_value(key, text)
    if key == SOMEBODY_ELSE and value and not is_team():
        mend = "Invite a reviewer or an admin first: 'habitus users add NAME --role reviewer'."
        raise Refused("Nobody else is here who could approve.", mend=mend)
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
    """The settings of the same home as the file has them now."""
    return settings_module.load(environ, settings.cwd, settings.home)


def _undo(settings: Settings, environ: Mapping[str, str], key: str, before: Any) -> tuple[str, ...]:
    if before is None:
        return ("config", "unset", key)
    text = ", ".join(map(str, before)) if isinstance(before, list) else _plain(before)
    is_secret = _clean(settings, environ, key, text) != text
    return () if is_secret else ("config", "set", key, text)


def _clean(settings: Settings, environ: Mapping[str, str], key: str, text: str) -> str:
    """Without secrets; whoever knows the whole of an address that is told things can tell it things."""
    if key == "notify_url" and text:
        address = urlsplit(text)
        text = f"{address.scheme}://{address.hostname}/…"
    return open_redactor(settings.home, environ).redact(text).text


def _known_key(key: str) -> str:
    wanted, known = key.strip().lower().replace("-", "_"), settings_module.known_keys()
    if wanted in known:
        return wanted
    raise NotFound(f"There is no setting '{key}'.", mend=did_you_mean(wanted, known) or "See 'habitus config list'.")


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
    """The text with this value for the key, or without the key for None; every other line as it was."""
    entry = Entry(path=tuple(key.split(".")), value=list(value) if isinstance(value, tuple) else value)
    try:
        if value is None:
            return taken_out(text, Format.TOML, [entry], Before(replaced={}, missing=()))
        return apply_entries(text, Format.TOML, [entry])
    except Invalid:
        what = f"'{key}' stands in {FILE} in a way that only a person can change."
        raise Invalid(what, mend="Edit the file itself.") from None
