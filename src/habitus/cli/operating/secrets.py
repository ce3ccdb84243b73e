"""`habitus secrets …` and `habitus skill run`: values that skills' command lines need, kept where no model sees
them, who may have them, and a command line from a person's shell, in the same sandbox and with the same grants.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from habitus.app import Habitus, json_shapes
from habitus.app.conversations import command_lines, secrets
from habitus.cli import completion, inputs, output
from habitus.cli.completion import AsJson, SkillName, Yes
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid
from habitus.moments import parse_moment
from habitus.sandbox.credentials.grants import EVERYBODY, Grant, GrantKind

_SHORT = 8  # characters: a word of everyday texts may be as long
Name = Annotated[str, typer.Argument(help="What the secret is called, such as smtp.password.")]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="[SECRET]... SKILL", help="Secrets, and last the skill.", autocompletion=completion.skill_names
    ),
]
Hosts = Annotated[list[str] | None, typer.Option("--host", help="A host that it may reach; may be repeated.")]
Everybody = Annotated[bool, typer.Option("--everybody", help="In everybody's sessions, not only in yours.")]


def set_secret(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="NAME", help="What the secret is called. No value.")],
    as_json: AsJson = False,
) -> None:
    """Keep a secret: it is typed, or read from standard input, and never shown again."""
    name, *more = words
    if more or "=" in name:
        raise Invalid(
            "A value is never an argument: it would stay in the shell's history.",
            mend=f"Take it out there, then type it when asked: {output.command(context, 'secrets', 'set', 'NAME')}",
        )
    with open_habitus(context) as habitus, habitus.vault.asking(password):
        value = _ask_hidden(f"Value of {name}") if sys.stdin.isatty() else sys.stdin.read().rstrip("\r\n")
        is_new = secrets.set_secret(habitus, name, value)
        said = (
            f"'{name}' is kept{'' if is_new else ', in place of the value before'}. No skill has it until you grant it."
        )
        short = ["It is short: wherever a text happens to hold it, it is taken out."] if len(value) < _SHORT else []
        output.say_done(context, as_json, {"name": name, "is_new": is_new}, said, *short)


def list_secrets(context: typer.Context, as_json: AsJson = False) -> None:
    """Secrets by name, the skills that may have them, and what skills ask for."""
    with open_habitus(context) as habitus:
        found = secrets.overview(habitus)
        if as_json:
            output.print_json(json_shapes.secrets(found, secrets.calls(habitus)))
            return
        rows = [(one.name, ", ".join(one.granted_to)) for one in found.secrets]
        empty = f"No secrets are kept. Keep one: {output.command(context, 'secrets', 'set', 'NAME')}"
        output.say_list(False, found, ("secret", "granted to"), rows, wide="granted to", empty=empty)
        for request in found.requests:
            if request.mend:
                output.say(f"{request.skill} asks for {request.secret} ({request.standing.value}): {request.mend}")
        for problem in found.problems:
            output.say(problem, style="yellow")


def remove(context: typer.Context, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Forget a secret for good; what was granted stays, for a new value."""
    with open_habitus(context) as habitus:
        if not yes:
            _ask(f"Forget '{name}'? Its value can't come back.", as_json)
        secrets.remove_secret(habitus, name)
        output.say_done(context, as_json, {"removed": name}, f"'{name}' is forgotten.")


def grant(
    context: typer.Context,
    names: Names,
    host: Hosts = None,
    everything: Annotated[bool, typer.Option("--all", help="Every secret that it asks for.")] = False,
    again: Annotated[bool, typer.Option("--again", help="What it was granted before it changed.")] = False,
    everybody: Everybody = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let a skill's command line have secrets and reach hosts, as long as the skill stays what it is now."""
    *wanted, skill = names
    if not (wanted or host or everything or again):
        raise typer.BadParameter("Name a secret before the skill, or say --all, --again or --host.")
    with open_habitus(context) as habitus:
        if everything and not yes:
            found = ", ".join(secrets.requested_secrets(habitus.skills, habitus.vault, skill)) or "nothing"
            _ask(f"'{skill}' asks for {found}. Let it have that?", as_json)
        made = secrets.grant(
            habitus, skill, wanted, hosts=host or (), all_requested=everything, again=again, everybody=everybody
        )
        if not made:
            said = f"'{skill}' asks for no secret; nothing was granted."
            output.say_done(context, as_json, {"granted": made}, said, undo=())
            return
        said = f"{made[0].skill} may have {_words(made)}, as it is now."
        output.say_done(context, as_json, {"granted": made}, said, undo=_words_of("revoke", made))


def revoke(
    context: typer.Context, names: Names, host: Hosts = None, everybody: Everybody = False, as_json: AsJson = False
) -> None:
    """Take back what a skill was granted: what is named, or all of it."""
    *wanted, skill = names
    with open_habitus(context) as habitus:
        gone = secrets.revoke(habitus, skill, wanted, hosts=host or (), everybody=everybody)
        if not gone:
            output.say_done(context, as_json, {"revoked": gone}, "It was not granted.", undo=())
            return
        said = f"{gone[0].skill} may no longer have {_words(gone)}."
        output.say_done(context, as_json, {"revoked": gone}, said, undo=_words_of("grant", gone))


def log(
    context: typer.Context,
    since: Annotated[str | None, typer.Option("--since", help="A moment, such as 2h, yesterday or 2026-05-01.")] = None,
    as_json: AsJson = False,
) -> None:
    """Command lines of skills that were called or refused: who, what, when, with which secrets."""
    with open_habitus(context) as habitus:
        moment = parse_moment(since, habitus.clock()) if since else None
        found = secrets.calls(habitus, since=moment)
        rows = [
            (
                inputs.show_moment(call.when),
                call.who,
                " ".join([call.skill, *call.arguments]),
                ", ".join(call.secrets),
                "refused" if call.is_refused else call.outcome.kind.value,
                call.outcome.reason,
            )
            for call in found
        ]
        columns, empty = ("when", "who", "call", "secrets", "outcome", "why"), "No command line has been called."
        output.say_list(as_json, {"calls": found}, columns, rows, wide="call", empty=empty)


def _words(grants: tuple[Grant, ...]) -> str:
    """`smtp.password and reach smtp.example.org`."""
    names = ", ".join(grant.what for grant in grants if grant.kind is GrantKind.SECRET)
    hosts = ", ".join(grant.what for grant in grants if grant.kind is GrantKind.HOST)
    return " and ".join(part for part in (names, hosts and f"reach {hosts}") if part)


def _words_of(command: str, grants: tuple[Grant, ...]) -> tuple[str, ...]:
    """The command about these grants."""
    names = [grant.what for grant in grants if grant.kind is GrantKind.SECRET]
    hosts = [word for grant in grants if grant.kind is GrantKind.HOST for word in ("--host", grant.what)]
    everybody = ["--everybody"] if grants[0].user == EVERYBODY else []
    return ("secrets", command, *everybody, *hosts, *names, grants[0].skill)


def _ask(question: str, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} There is nobody to ask; say --yes.")
    if not typer.confirm(question):
        raise typer.Abort


def _ask_hidden(prompt: str) -> str:
    return str(typer.prompt(prompt, hide_input=True, err=True))


def password(is_new: bool) -> str | None:
    """The password of a vault that no keyring opens."""
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
    """Have a vault open that only a password opens, while somebody is there to type it."""
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
    """Call a skill's command line with what you granted it. Its exit code is ours: 126 when it may not run, 1 when it
    ends with 0 and reports an error."""
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
