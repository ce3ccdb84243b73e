"""Builds commands from use case declarations: input as arguments and options, the result as text or JSON.

Also opens the person's editor on a text without ever losing what they wrote.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_origin

import typer

from habitus.app import Habitus, read_settings
from habitus.app.use_cases.declaration import InputField, UseCase, call_with_known_keywords
from habitus.cli import completion, inputs, output
from habitus.cli.opening import open_habitus, share_open_habitus_with_commands
from habitus.errors import Invalid, InvalidOptions, StorageFailed, UserError
from habitus.plain_data import convert_to_plain_json
from habitus.settings import Settings

# Returns the question to ask before the command runs, or nothing if there is none.
ConfirmationBuilder = Callable[..., str]
# Takes context and result; further parameters are inputs, or display options of the command.
ResultRenderer = Callable[..., None]
_YES = inspect.Parameter("yes", inspect.Parameter.KEYWORD_ONLY, annotation=completion.YesOption, default=False)
_COMPLETES = {"skills": completion.complete_skill_names, "lessons": completion.complete_lesson_ids}


def build_typer_function_for_use_case(group: str, module: ModuleType, name: str) -> tuple[Callable[..., None], str]:
    """Return the function that typer runs for a command, and an example of its use.

    The module's `print_result_of_NAME` prints the result. Optional functions beside it: `perform_NAME` does the work
    instead of the use case and returns its result, for example to start an editor. `get_question_before_NAME` adds
    `--yes` and returns the question to ask; it can show a preview with `print_line`. `check_before_NAME` gets the raw
    input and can reject it before any file is read. Each of them gets the inputs that it has parameters for, by name.
    Further parameters of `perform_NAME` and of the renderer become options of the command, except `as_json`, which
    every command has.
    """
    case: UseCase[..., Any] = getattr(importlib.import_module(f"habitus.app.use_cases.{group}"), name)
    render: ResultRenderer = getattr(module, f"print_result_of_{name}")
    perform: Callable[..., Any] = getattr(module, f"perform_{name}", case)
    confirm: ConfirmationBuilder | None = getattr(module, f"get_question_before_{name}", None)
    check: Callable[..., object] = getattr(module, f"check_before_{name}", lambda home: None)
    of_perform = {} if perform is case else _list_options_that_are_no_inputs(case, perform, 1)
    of_render = _list_options_that_are_no_inputs(case, render, 2)

    def run(context: typer.Context, as_json: bool = False, **given: Any) -> None:
        # The home is opened before files are read: a wrong name fails without waiting for standard input.
        with _open_home_or_read_settings(context, case) as home:
            call_with_known_keywords(check, home, **given)
            values = {one.name: _convert_command_line_value(one, given[one.name]) for one in case.input_fields}
            inputs = case.bind_arguments(values)
            known = {**given, **values, **inputs, "as_json": as_json}
            print_line = _print_nothing if as_json else output.print_line
            question = (
                "" if confirm is None else call_with_known_keywords(confirm, home, **known, print_line=print_line)
            )
            if question and not given["yes"]:
                confirm_or_abort(question, as_json=as_json)
            done = case(home, **inputs) if perform is case else call_with_known_keywords(perform, home, **known)
            print_use_case_result(context, done, partial(call_with_known_keywords, render, **known), as_json=as_json)

    own = {**of_perform, **of_render, **({} if confirm is None else {"yes": _YES})}
    parameters = [
        *map(_build_typer_parameter, case.input_fields),
        *(one for one in own.values() if one.name != "as_json"),
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    as_json = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, annotation=completion.JsonOption, default=False
    )
    # Typer builds the options from the signature.
    run.__signature__ = inspect.Signature([context, *parameters, as_json])  # type: ignore[attr-defined]  # as above
    run.__annotations__ = {one.name: one.annotation for one in (context, *parameters, as_json)}
    run.__doc__ = case.help
    return run, f"habitus {shlex.join(build_command_line_for_inputs(case, case.example))}"


def _list_options_that_are_no_inputs(
    case: UseCase[..., Any], function: Callable[..., Any], after: int
) -> dict[str, inspect.Parameter]:
    """Return the parameters after the first `after`, which every such function has, that are no inputs of the case."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[after:]
    return {
        one.name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own if one.name not in case.input_names
    }


@contextmanager
def _open_home_or_read_settings(context: typer.Context, case: UseCase[..., Any]) -> Iterator[Habitus | Settings]:
    """Yield the settings if the use case needs only them, else the open home, shared with the renderer."""
    if case.takes_settings:
        yield read_settings(context.find_root().obj)
    else:
        with open_habitus(context) as habitus, share_open_habitus_with_commands(habitus):
            yield habitus


def _print_nothing(text: str = "", style: str = "") -> None:
    """Print nothing; with `--json` the result is the only output."""


def confirm_or_abort(question: str, *, as_json: bool) -> None:
    """Ask for confirmation and abort unless the answer is yes; refuse if there is no terminal to ask at."""
    if as_json or not sys.stdin.isatty():
        # The lines above the question are a preview; the error needs only the question.
        *_, asked = question.splitlines()
        raise InvalidOptions(asked, hint="There is no terminal to ask at: review first, then add --yes.")
    if not typer.confirm(question):
        raise typer.Abort


def with_use_case_options(case: UseCase[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn the second parameter of a hand-written command into the options of a use case's input."""

    def with_options(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters.values()

        @functools.wraps(function)
        def run(context: typer.Context, **given: Any) -> None:
            inputs = case.bind_arguments(
                {one.name: _convert_command_line_value(one, given.pop(one.name)) for one in case.input_fields}
            )
            function(context, *inputs.values(), **given)

        context, _, *looks = (one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)
        parameters = [
            context.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *map(_build_typer_parameter, case.input_fields),
            *looks,
        ]
        # Typer builds the options from the signature.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return with_options


def print_use_case_result(context: typer.Context, result: Any, render: ResultRenderer, *, as_json: bool) -> None:
    """Print the result as JSON or as text with its undo command; exit with 1 if the result says `is_failed`."""
    undo = getattr(result, "undo", ())
    if undo:
        output.undo_listener.get()(tuple(undo))
    if as_json:
        output.print_json(convert_to_plain_json(result, shaped=True))
    else:
        render(context, result)
        if undo:
            output.print_line(f"Undo: {output.format_command(context, *undo)}", style="dim")
    if getattr(result, "is_failed", False):
        raise typer.Exit(1)


def build_command_line_for_inputs(case: UseCase[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Return the command line that gives these inputs."""
    words, options = case.command.split(), []
    for one in case.input_fields:
        value = given.get(one.name, one.default)
        if one.is_argument:
            words += [
                _format_value_for_command_line(one, each)
                for each in (value if one.is_list else (value,))
                if each is not None
            ]
        # Defaults are left out, so the command stays as short as a person would type it.
        elif value != one.default:
            flag, _, opposite = one.flags[0].partition("/")
            values = value if one.is_list else [value]
            if one.type_without_none is bool:
                options.append(flag if value else opposite)
            else:
                options += [part for each in values for part in (flag, _format_value_for_command_line(one, each))]
    return [*words, *options]


def _format_value_for_command_line(one: InputField, value: object) -> str:
    """Return a value as it is typed; a text read from a file is shown as FILE."""
    if one.read_as:
        return json.dumps(value) if one.read_as == "json" else "FILE"
    return str(value.value if isinstance(value, Enum) else value)


def _convert_command_line_value(one: InputField, value: Any) -> Any:
    """Convert a typed value to the field's type, reading the file it names if the field is read from one."""
    if one.read_as and value is not None:
        return inputs.read_text_of_file_or_stdin(value) if one.read_as == "text" else _read_json_field(one, value)
    if one.is_list:
        return one.default if value is None and not one.is_required else tuple(value or ())
    return value


def _read_json_field(one: InputField, given: str) -> Any:
    """Read JSON for a field; raise `Invalid` if the field is an object and the JSON is not."""
    value = inputs.read_json_argument_file_or_stdin(given, one.name)
    if get_origin(one.type_without_none) is dict and not isinstance(value, dict):
        raise Invalid(f"{one.name} must be a JSON object.", hint='Write {"name": value, …}.')
    return value


def _build_typer_parameter(one: InputField) -> inspect.Parameter:
    """Return the typer parameter for an input field."""
    is_flag = one.type_without_none is bool
    each: Any = str if one.read_as else list[one.item_type] if one.is_list else one.type_without_none  # type: ignore[name-defined]  # made at run time
    annotation = each if one.is_required or is_flag else each | None
    limits: dict[str, Any] = (
        {"min": one.limits.get("ge"), "max": one.limits.get("le")} if one.type_without_none in (int, float) else {}
    )
    if one.is_argument:
        complete = _COMPLETES.get(one.completes)
        info: Any = typer.Argument(help=one.help, metavar=one.metavar, autocompletion=complete, **limits)
    else:
        info = typer.Option(*one.flags, help=one.help, **limits)
    # Typer can't use a tuple as default; None becomes the field's default in the conversion.
    default = inspect.Parameter.empty if one.is_required else (None if one.is_list else one.default)
    if one.read_as == "json":
        default = json.dumps(one.default)
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[annotation, info], default=default
    )


@contextmanager
def edit_in_editor(command: str, before: bytes, name: str, *, instead: str) -> Iterator[bytes]:
    """Yield the text as the person saved it in their editor.

    If the block raises, the text stays in a file that the error names. `instead` tells a person without a terminal
    what to do.
    """
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"No terminal for an editor; {instead}.")
    folder = Path(tempfile.mkdtemp(prefix="habitus-edit-"))
    copy = folder / name
    copy.write_bytes(before)
    try:
        subprocess.run([*shlex.split(command), str(copy)], check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise StorageFailed(f"The editor '{command}' failed: {error}.", hint=f"Your text is in {copy}.") from None
    try:
        yield copy.read_bytes()
    except UserError as error:
        raise type(error)(error.message, hint=f"{error.hint} Your text was saved in {copy}.".strip()) from None
    # Removed only after the block succeeded: until then the file is the only copy of the person's text.
    copy.unlink()
    folder.rmdir()
