"""`habitus secrets …` and `habitus skill run`: stores secrets, grants them, and runs a skill's command line.

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
from habitus.app.conversations.secrets import SecretsOverview
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.secrets import (
    CallFilter,
    CommandLineCalls,
    GrantedSecrets,
    GrantRequest,
    OneSecret,
    RemovedSecret,
    RevokedSecrets,
    RevokeRequest,
)
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson, SkillName
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid
from habitus.sandbox.credentials.grants import Grant, GrantKind

# A shorter value may be an everyday word, which redaction would then remove from every text.
_SHORT = 8


def set_secret(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="NAME", help="What the secret is called. No value.")],
    as_json: AsJson = False,
) -> None:
    """Store a secret, typed or read from standard input; it is never shown again."""
    # `NAME VALUE` and `NAME=VALUE` are accepted by the parser only to be refused with a reason.
    name, *more = words
    if more or "=" in name:
        raise Invalid(
            "A value is never an argument: it would stay in the shell's history.",
            hint=f"Take it out there, then type it when asked: {output.command(context, 'secrets', 'set', 'NAME')}",
        )
    # The vault asks only if the keyring can't open it.
    with open_habitus(context) as habitus, habitus.vault.asking(password):
        value = _ask_hidden(f"Value of {name}") if sys.stdin.isatty() else sys.stdin.read().rstrip("\r\n")
        secrets.refuse_unless_admin(habitus, "change the vault")
        is_new = habitus.vault.set(name, value)
        said = (
            f"'{name}' is kept{'' if is_new else ', in place of the value before'}. No skill has it until you grant it."
        )
        short = ["It is short: wherever a text happens to hold it, it is taken out."] if len(value) < _SHORT else []
        output.say_done(context, as_json, {"name": name, "is_new": is_new}, said, *short)


def list_secrets(context: typer.Context, wanted: Nothing, done: SecretsOverview) -> None:
    rows = [(one.name, ", ".join(one.granted_to)) for one in done.secrets]
    empty = f"No secrets are kept. Keep one: {output.command(context, 'secrets', 'set', 'NAME')}"
    output.rows_or(empty, ("secret", "granted to"), rows, wide="granted to")
    for request in done.requests:
        if request.hint:
            output.say(f"{request.skill} asks for {request.secret} ({request.standing.value}): {request.hint}")
    for problem in done.problems:
        output.say(problem, style="yellow")


def confirm_remove(habitus: Habitus, wanted: OneSecret, say: Callable[..., None]) -> str:
    return f"Forget '{wanted.name}'? Its value can't come back."


def remove(context: typer.Context, wanted: OneSecret, done: RemovedSecret) -> None:
    output.say(f"'{done.removed}' is forgotten.")


def confirm_grant(habitus: Habitus, wanted: GrantRequest, say: Callable[..., None]) -> str:
    if not wanted.all:
        return ""
    asked = secrets.asking_skill(habitus.skills, wanted.skill)
    found = ", ".join(secrets.secrets_to_grant(habitus.vault, asked)) or "nothing"
    return f"'{wanted.skill}' asks for {found}. Let it have that?"


def grant(context: typer.Context, wanted: GrantRequest, done: GrantedSecrets) -> None:
    made = done.granted
    granted = f"{made[0].skill} may have {_describe_grants(made)}, as it is now." if made else ""
    output.say(granted or f"'{wanted.skill}' asks for no secret; nothing was granted.")


def revoke(context: typer.Context, wanted: RevokeRequest, done: RevokedSecrets) -> None:
    gone = done.revoked
    revoked = f"{gone[0].skill} may no longer have {_describe_grants(gone)}." if gone else ""
    output.say(revoked or "It was not granted.")


def log(context: typer.Context, wanted: CallFilter, done: CommandLineCalls) -> None:
    rows = [
        (
            inputs.format_timestamp(call.when),
            call.who,
            " ".join([call.skill, *call.arguments]),
            ", ".join(call.secrets),
            "refused" if call.is_refused else call.outcome.kind.value,
            call.outcome.reason,
        )
        for call in done.calls
    ]
    columns = ("when", "who", "call", "secrets", "outcome", "why")
    output.rows_or("No command line has been called.", columns, rows, wide="call")


def _describe_grants(grants: Sequence[Grant]) -> str:
    """Return grants in words: `smtp.password and reach smtp.example.org`."""
    names = ", ".join(grant.what for grant in grants if grant.kind is GrantKind.SECRET)
    hosts = ", ".join(grant.what for grant in grants if grant.kind is GrantKind.HOST)
    return " and ".join(part for part in (names, hosts and f"reach {hosts}") if part)


def _ask_hidden(prompt: str) -> str:
    return str(typer.prompt(prompt, hide_input=True, err=True))


def password(is_new: bool) -> str | None:
    """Ask for the vault's password, used where no keyring exists; None without a terminal or on an empty answer."""
    if not sys.stdin.isatty():
        return None
    if is_new:
        output.complain(
            "There is no keyring here, so a password locks the vault. Without it nothing in it can be read."
        )
    prompt = "Password of the vault" if is_new else "Password of the vault (Enter goes on without)"
    asked = typer.prompt(prompt, default="", show_default=False, hide_input=True, confirmation_prompt=is_new, err=True)
    return str(asked) or None


def unlock(habitus: Habitus) -> None:
    """Unlock a password-protected vault while a person is at the terminal."""
    if sys.stdin.isatty() and habitus.vault.is_locked() and (typed := password(is_new=False)) is not None:
        with habitus.vault.asking(lambda is_new: typed):
            habitus.vault.unlock()


def run(
    context: typer.Context,
    name: SkillName,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- [ARGUMENT]...", help="What its command line takes.")
    ] = None,
    file: Annotated[str, typer.Option("--input", help="A file for its standard input ('-' passes ours on).")] = "",
    as_json: AsJson = False,
) -> None:
    """Run a skill's command line with the secrets you granted it. Exits with its exit code; 126 if it may not run, 1 if
    it exits with 0 but reports an error.
    """
    stdin = inputs.read_bytes(file) if file else b""
    with open_habitus(context) as habitus, habitus.vault.asking(password):
        answer = asyncio.run(command_lines.run(habitus, name, arguments or [], stdin))
    if as_json:
        output.print_json(answer)
    else:
        output.write(output.clean(answer.stdout))
        sys.stderr.write(output.clean(answer.stderr))
    if answer.code:
        raise typer.Exit(answer.code)
