"""`habitus secrets …` and `habitus skills run`: stores secrets, grants them, and runs a skill's command line.

A command line started from the shell runs in the same sandbox and with the same grants as one called by an agent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from habitus.app import Habitus
from habitus.app.conversations import command_lines, secrets
from habitus.app.use_cases.secrets import (
    GrantSecretsRequest,
    GrantSecretsResult,
    ListSecretCallsResult,
    RemoveSecretResult,
    RevokeSecretsResult,
)
from habitus.cli import inputs, output
from habitus.cli.completion import JsonOption, SkillNameArgument
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid
from habitus.sandbox.credentials.grants import Grant, GrantTargetKind

# A shorter value may be an everyday word, which redaction would then remove from every text.
_MIN_SAFE_LENGTH = 8


def set_secret(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="NAME", help="Name of the secret; the value is asked for.")],
    as_json: JsonOption = False,
) -> None:
    """Store a secret, typed or read from standard input; it is never shown again."""
    # `NAME VALUE` and `NAME=VALUE` are accepted by the parser only to be refused with a reason.
    name, *more = words
    if more or "=" in name:
        raise Invalid(
            "A value is never an argument: it would stay in the shell's history.",
            hint="Remove it from the history, then enter it when asked: "
            + output.format_command(context, "secrets", "set", "NAME"),
        )
    # The vault asks only if the keyring can't open it.
    with open_habitus(context) as habitus, habitus.vault.allow_password_prompt(prompt_vault_password):
        value = _prompt_for_hidden_value(f"Value of {name}") if sys.stdin.isatty() else sys.stdin.read().rstrip("\r\n")
        secrets.refuse_unless_user_may_change_secrets(habitus, "change the vault")
        is_new = habitus.vault.set(name, value)
        replaced = "" if is_new else " and replaces the old value"
        said = f"'{name}' was stored{replaced}. No skill gets it until you grant it."
        short = (
            ["The value is short, so it may be redacted from unrelated texts."] if len(value) < _MIN_SAFE_LENGTH else []
        )
        output.print_command_result(context, as_json, {"name": name, "is_new": is_new}, said, *short)


def print_result_of_list_secrets(context: typer.Context, result: secrets.SecretsOverview) -> None:
    rows = [(one.name, ", ".join(one.granted_to)) for one in result.secrets]
    empty = f"No secrets yet. Store one: {output.format_command(context, 'secrets', 'set', 'NAME')}"
    output.print_table_or_message(empty, ("secret", "granted to"), rows, wide="granted to")
    for request in result.requests:
        if request.hint:
            output.print_line(f"{request.skill} asks for {request.secret} ({request.status.value}): {request.hint}")
    for problem in result.problems:
        output.print_line(problem, style="yellow")


def get_question_before_remove_secret(habitus: Habitus, name: str, print_line: Callable[..., None]) -> str:
    return f"Delete '{name}'? This can't be undone."


def print_result_of_remove_secret(context: typer.Context, result: RemoveSecretResult) -> None:
    output.print_line(f"'{result.removed}' was deleted.")


def get_question_before_grant_secrets(
    habitus: Habitus, request: GrantSecretsRequest, print_line: Callable[..., None]
) -> str:
    if not request.all:
        return ""
    asked = secrets.find_skill_and_read_declared_secrets(habitus.skills, request.skill)
    found = ", ".join(secrets.list_grantable_secrets(habitus.vault, asked)) or "nothing"
    return f"'{request.skill}' asks for {found}. Grant it?"


def print_result_of_grant_secrets(
    context: typer.Context, result: GrantSecretsResult, request: GrantSecretsRequest
) -> None:
    made = result.granted
    granted = f"{made[0].skill} may use {_describe_grants(made)}, as it is now." if made else ""
    output.print_line(granted or f"'{request.skill}' asks for no secret; nothing was granted.")


def print_result_of_revoke_secrets(context: typer.Context, result: RevokeSecretsResult) -> None:
    gone = result.revoked
    revoked = f"{gone[0].skill} may no longer use {_describe_grants(gone)}." if gone else ""
    output.print_line(revoked or "It was not granted.")


def print_result_of_list_secret_calls(context: typer.Context, result: ListSecretCallsResult) -> None:
    rows = [
        (
            inputs.format_timestamp(call.timestamp),
            call.caller,
            " ".join([call.skill, *call.arguments]),
            ", ".join(call.secrets),
            "refused" if call.is_refused else call.outcome.kind.value,
            call.outcome.reason,
        )
        for call in result.calls
    ]
    columns = ("when", "who", "call", "secrets", "outcome", "why")
    output.print_table_or_message("No calls yet.", columns, rows, wide="call")


def _describe_grants(grants: Sequence[Grant]) -> str:
    """Return grants in words: `smtp.password and reach smtp.example.org`."""
    names = ", ".join(grant.what for grant in grants if grant.kind is GrantTargetKind.SECRET)
    hosts = ", ".join(grant.what for grant in grants if grant.kind is GrantTargetKind.HOST)
    return " and ".join(part for part in (names, hosts and f"reach {hosts}") if part)


def _prompt_for_hidden_value(prompt: str) -> str:
    return str(typer.prompt(prompt, hide_input=True, err=True))


def prompt_vault_password(is_new: bool) -> str | None:
    """Ask for the vault's password, used where no keyring exists; None without a terminal or on an empty answer."""
    if not sys.stdin.isatty():
        return None
    if is_new:
        output.print_line_to_stderr(
            "No system keyring was found, so a password protects the vault. It can't be recovered."
        )
    prompt = "Password of the vault" if is_new else "Password of the vault (Enter to continue without)"
    asked = typer.prompt(prompt, default="", show_default=False, hide_input=True, confirmation_prompt=is_new, err=True)
    return str(asked) or None


def unlock_vault(habitus: Habitus) -> None:
    """Unlock a password-protected vault while a person is at the terminal."""
    if (
        sys.stdin.isatty()
        and habitus.vault.is_typed_password_needed()
        and (typed := prompt_vault_password(is_new=False)) is not None
    ):
        with habitus.vault.allow_password_prompt(lambda is_new: typed):
            habitus.vault.unlock()


def run_skill_command_line(
    context: typer.Context,
    name: SkillNameArgument,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- [ARGUMENT]...", help="Arguments of its command line.")
    ] = None,
    file: Annotated[str, typer.Option("--input", help="A file for its standard input ('-' passes ours on).")] = "",
    as_json: JsonOption = False,
) -> None:
    """Run a skill's command line with the secrets you granted it. Exits with its exit code; 126 if it may not run, 1 if
    it exits with 0 but reports an error.
    """
    stdin = inputs.read_bytes_of_file_or_stdin(file) if file else b""
    with open_habitus(context) as habitus, habitus.vault.allow_password_prompt(prompt_vault_password):
        answer = asyncio.run(command_lines.run_command_line(habitus, name, arguments or [], stdin))
    if as_json:
        output.print_json(answer)
    else:
        output.write_stdout(output.strip_control_characters(answer.stdout))
        sys.stderr.write(output.strip_control_characters(answer.stderr))
    if answer.code:
        raise typer.Exit(answer.code)
