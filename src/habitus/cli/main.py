"""The `habitus` program: root options, logging, error messages and exit codes."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from habitus import tracing
from habitus.cli import output
from habitus.cli.commands import HELP_SECTIONS, build_commands
from habitus.cli.lazy_commands import CommandGroupWithDefault, extract_first_sentence
from habitus.errors import InvalidOptions, NoModelSet, StorageFailed, ToolFailed, UserError, did_you_mean
from habitus.redact import Redactor
from habitus.sandbox.credentials.vault import build_redactor_with_vault_secrets


class RootCommandGroup(CommandGroupWithDefault):
    """The root group with every command of `habitus`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for command in build_commands():
            self.add_command(command)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first word; for one that a group has, the error names the group."""
        name, groups = args[0], [one for one in self.commands.values() if isinstance(one, CommandGroupWithDefault)]
        places = [f"'{group.name} {name}'" for group in groups if name in group.commands]
        # Of 'list' and the like there are too many to say which is meant.
        if name not in self.commands and 0 < len(places) < 3 and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{name}'. Did you mean {' or '.join(places)}?")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print one screen: the main commands by what they are for, a line each, and the names of the rest."""
        formatter.write(f"{self.help}\n\n")
        width = max(len(name) for _, shown, _ in HELP_SECTIONS for name in shown)
        for title, shown, others in HELP_SECTIONS:
            formatter.write(title + (f" (also: {', '.join(others)})" if others else "") + "\n")
            with formatter.indentation():
                formatter.write_dl(
                    [(name.ljust(width), extract_first_sentence(self.commands[name].help or "")) for name in shown]
                )
        formatter.write(f"\n{self.epilog}\n")


app = typer.Typer(
    name="habitus",
    cls=RootCommandGroup,
    help="Procedural memory for AI agents: skills that an agent learns, proves and keeps.",
    invoke_without_command=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'habitus COMMAND -h' explains a command. Options come before it: --home PATH\n"
    "uses another home, -v shows log messages, --version prints the version.",
)


@app.callback()
def apply_root_options(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", help="Use this home instead of HABITUS_HOME or ~/.habitus.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show log messages; like HABITUS_LOG=info.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Apply the root options: choose the home, start logging and tracing, or print the version."""
    if version:
        # Slow to import, and nothing else needs it.
        from importlib.metadata import version as installed_version

        output.print_line(f"habitus {installed_version('habitus')}")
        raise typer.Exit
    context.obj = home
    # A Tab press parses too, and must neither log nor trace.
    if not context.resilient_parsing:
        context.with_resource(configure_logging(home, is_verbose=verbose))
        context.with_resource(tracing.export_telemetry_during_block(os.environ))
    if context.invoked_subcommand is None:
        output.print_help(context)


def run() -> None:
    """Run the command line; exit with 0 on success, 1 on failure and 2 on wrong usage."""
    # The products of a search are too small to share: waiting for each other, threads double the time it takes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins reads the metadata of every installed package, which takes longer than reading the settings.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # Looking for cycles among objects that a short command keeps anyway takes a tenth of its time.
    gc.set_threshold(100_000, 50, 100)
    code = _run_command_and_return_exit_code()
    # Otherwise Python looks for cycles in everything that is left on exit, which takes as long again.
    gc.freeze()
    sys.exit(code)


def _run_command_and_return_exit_code() -> int:
    """Run the command, print its error if it fails, and return the exit code."""
    output.make_standard_streams_accept_any_text()
    try:
        code = _run_command_or_offer_installed_agent()
    except output.OutputWriteError as error:
        output.print_line_to_stderr(f"habitus: {error}")
        return 1
    except UserError as error:
        _print_error_with_hint(error.message, error.hint)
        # 2 is the usual exit code for wrong usage, as in argparse and click.
        return 2 if isinstance(error, InvalidOptions) else 1
    except ToolFailed as error:
        return _print_error_with_hint(str(error), "")
    except typer.TyperException as error:
        message = error.format_message().replace(": Value error, ", ": ")
        _print_error_with_hint(message if message.endswith((".", "?")) else f"{message}.", _build_usage_hint(error))
        return 2
    except (typer.Abort, KeyboardInterrupt):
        output.print_line_to_stderr("Stopped.")
        return 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe, so no message would arrive.
        output.redirect_stdout_to_null_device()
        return 1
    except Exception as error:
        # A traceback helps a developer and frightens everybody else.
        if os.environ.get("HABITUS_DEBUG"):
            raise
        _print_error_with_hint(f"Internal error: {type(error).__name__}: {error}", "")
        output.print_line_to_stderr("This is a bug in Habitus; set HABITUS_DEBUG=1 for a traceback.")
        return 1
    return code if isinstance(code, int) else 0


def _run_command_or_offer_installed_agent() -> object:
    """Run the command; without a model, offer to run it again with an agent installed on this machine."""
    try:
        return build_root_command()(standalone_mode=False)
    except NoModelSet as error:
        # A question in a pipe would hang, and one in JSON output would corrupt it.
        can_ask = sys.stdin.isatty() and sys.stderr.isatty() and "--json" not in sys.argv
        question = f"No model is set. Use {error.title}, which is installed?"
        if not (error.agent and can_ask and typer.confirm(question, err=True)):
            raise
        output.print_line_to_stderr(f"To make it permanent: habitus config set model {error.agent}")
        os.environ["HABITUS_MODEL"] = error.agent
        return build_root_command()(standalone_mode=False)


@functools.cache
def build_root_command() -> Callable[..., Any]:
    """Return the root command with every command below it, built once per process."""
    return typer.main.get_command(app)


def _print_error_with_hint(message: str, hint: str) -> int:
    """Print an error with its hint, as JSON if the command line asks for it, and return exit code 1."""
    # The options may not have been parsed when the error occurred, so the arguments decide.
    if "--json" in sys.argv:
        output.print_json({"error": message, "hint": hint})
    else:
        # A hint with several options has one per line.
        first, *more = hint.split("\n")
        # The message becomes one line; further lines of a hint are commands to copy, so they stay as they are.
        for line in (f"habitus: {message} {first}", *(f"  {line}" for line in more)):
            output.print_line_to_stderr(" ".join(line.split()) if line.startswith("habitus") else line)
    return 1


def _build_usage_hint(error: typer.TyperException) -> str:
    """Return a "Did you mean" for a misspelt option, or where the command's help is."""
    context, message = getattr(error, "ctx", None), error.format_message()
    if context is None or "Possible options" in message or "Did you mean" in message:
        return ""
    options = [name for parameter in context.command.params for name in parameter.opts]
    similar = did_you_mean(wanted, options) if (wanted := getattr(error, "option_name", None)) else ""
    return similar or f"See '{context.command_path} --help'."


_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


@contextmanager
def configure_logging(home: Path | None, *, is_verbose: bool) -> Iterator[None]:
    """Log to standard error or to the file in HABITUS_LOG while the block runs; without either, log nothing."""
    wanted = os.environ.get("HABITUS_LOG", "") or ("info" if is_verbose else "")
    if not wanted:
        yield
        return
    root = logging.getLogger()
    # Slow to import, and most commands log nothing.
    settings = importlib.import_module("habitus.settings")
    redactor = build_redactor_with_vault_secrets(settings.resolve_home(os.environ, Path.cwd(), home), os.environ)
    before, handlers = root.level, _build_log_handlers(wanted, redactor)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(_LEVELS.get(wanted.lower(), logging.INFO))
    try:
        yield
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


def _build_log_handlers(request: str, redactor: Redactor) -> list[logging.Handler]:
    shown = logging.StreamHandler()
    kind, _, place = request.partition(":")
    is_json = kind.lower() == "json"
    if request.lower() in _LEVELS or (is_json and not place):
        shown.setFormatter(
            _JsonLogFormatter(redactor)
            if is_json
            else _RedactingFormatter("%(levelname)s %(name)s: %(message)s", redactor)
        )
        return [shown]
    file = Path(place if is_json else request).expanduser()
    try:
        # Logs may quote requests, so only the owner may read the file.
        file.touch(mode=0o600)
        written = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        said = f"HABITUS_LOG: can't write {file}: {error.strerror}."
        raise StorageFailed(said, hint="Use info, debug, json or a writable file.") from None
    written.setFormatter(
        _JsonLogFormatter(redactor)
        if is_json
        else _RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", redactor)
    )
    # Warnings still reach the person, as they would without a log file.
    shown.setFormatter(output.OneLineLogFormatter())
    shown.setLevel(logging.WARNING)
    return [written, shown]


class _RedactingFormatter(logging.Formatter):
    """A log formatter that removes secrets and control characters."""

    def __init__(self, pattern: str, redactor: Redactor) -> None:
        super().__init__(pattern)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(output.strip_control_characters(super().format(record))).text


class _JsonLogFormatter(_RedactingFormatter):
    """A log formatter that writes one JSON object per line, with the turn, session or job it belongs to."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(message)s", redactor)

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": super().format(record),
            **tracing.get_log_context(),
        }
        return json.dumps(told, ensure_ascii=False)
