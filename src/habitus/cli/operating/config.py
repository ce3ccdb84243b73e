"""`habitus config …` and `habitus users …`: renders settings with their origin, and the people who may sign in."""

from __future__ import annotations

import sys

import typer

from habitus.app.operating import configuring
from habitus.app.use_cases import settings as use_case
from habitus.app.use_cases.users import AddUserResult, ListUsersResult, RemoveUserResult
from habitus.cli import output
from habitus.settings import Settings


def print_result_of_list_settings(context: typer.Context, result: use_case.ListSettingsResult) -> None:
    output.print_table(
        ("key", "value", "from"), [(one.key, one.text, one.origin.value) for one in result.settings], wide="value"
    )


def print_result_of_get_setting(context: typer.Context, result: configuring.SettingDetails) -> None:
    output.print_line(result.text)


def perform_set_setting(
    settings: Settings, key: str, value: str, copy: str | None, yes: bool
) -> configuring.SettingChangeResult:
    """Change a setting; ask before downloading model weights for it."""
    # Without a terminal the download needs an explicit --yes.
    is_asked = use_case.is_switch_to_minilm(key, value) and copy is None and not yes and sys.stdin.isatty()
    if is_asked and not configuring.has_encoder_weights(settings):
        asked = f"Fetch {configuring.WEIGHTS_MB} MB of weights into {settings.home}?"
        yes = typer.confirm(asked, default=True, abort=True)
    return use_case.set_setting(settings, key, value, copy, yes)


def print_result_of_set_setting(context: typer.Context, result: configuring.SettingChangeResult) -> None:
    _print_setting_change(result, f"{result.setting.key} is set to {result.setting.text}.")


def print_result_of_unset_setting(context: typer.Context, result: configuring.SettingChangeResult) -> None:
    _print_setting_change(
        result, f"{result.setting.key} is {result.setting.text or 'empty'} again, from {result.setting.origin.value}."
    )


def _print_setting_change(result: configuring.SettingChangeResult, said: str) -> None:
    """Print what was set, unless an environment variable overrides it."""
    if result.is_overruled:
        said = f"{result.setting.key} was saved, but an environment variable overrides it."
    output.print_line(said if result.is_changed or result.is_overruled else "Nothing was changed.")
    if result.note:
        output.print_line(result.note)


def print_result_of_add_user(context: typer.Context, result: AddUserResult) -> None:
    output.print_line(
        f"{result.name} can sign in as {result.role.value} with this link, which works once: {result.link}"
    )
    output.print_line(f"Their programs send 'Authorization: Bearer {result.token}'. Neither is shown again.")


def print_result_of_list_users(context: typer.Context, result: ListUsersResult) -> None:
    rows = [(one.name, one.role.value, f"{one.seen_on:%Y-%m-%d %H:%M}" if one.seen_on else "") for one in result.users]
    empty = "No other users. Invite one: habitus users add NAME --role viewer"
    output.print_table_or_message(empty, ("name", "role", "last seen"), rows)


def print_result_of_remove_user(context: typer.Context, result: RemoveUserResult) -> None:
    output.print_line(f"{result.removed} can no longer sign in.")
