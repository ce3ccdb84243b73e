"""Commands that import their module only when they are called or their own help is requested.

Start-up time is a feature: a command's module may import everything it needs at its top, and no other command pays
for it.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from habitus import optional_packages
from habitus.cli import output


class _NoFlagMetavarMixin:
    """Leaves the value placeholder out of the help of on/off switches."""

    def get_params(self, ctx: Any) -> list[Any]:
        # The mixin has no such base method; the command class it is mixed into has.
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # as above
        for param in found:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return found


class CommandGroupWithDefault(_NoFlagMetavarMixin, TyperGroup):
    """A group of commands; if the first word names none of them, its default command runs, if there is one."""

    default: LazyCommand | None = None
    # The words that follow the group's name in the example of its help.
    example = ""
    _help: str | None = None

    @property
    def help(self) -> str | None:
        """The text that it was given, else that of the default command."""
        return self._help or (self.default.help if self.default else None)

    @help.setter
    def help(self, given: str | None) -> None:
        self._help = given

    def has_commands(self) -> bool:
        """Whether it holds a command yet."""
        return bool(self.commands or self.default)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse with the default command unless the first word names another."""
        is_tab = extra.get("resilient_parsing") and not args
        if self.default is None or is_tab or (args and args[0] in self.commands):
            return super().make_context(info_name, args, parent, **extra)
        return self.default.make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the commands, and the default command's first argument or its options."""
        found = super().shell_complete(ctx, incomplete)
        if self.default is None:
            return found
        command = self.default.load()
        if incomplete.startswith("-"):
            own = command.make_context(self.name, [], ctx.parent, resilient_parsing=True)
            return [*found, *command.shell_complete(own, incomplete)]
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        return [*found, *(one for param in arguments for one in param.shell_complete(ctx, incomplete))]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the whole first sentence of its help."""
        shown = [command for command in self.commands.values() if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(command.name or "", extract_first_sentence(command.help or "")) for command in shown])


class _LoadedCommand(_NoFlagMetavarMixin, TyperCommand):
    """A command whose module is imported; as the default of a group it also lists the group's commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options, and the commands of the group whose default it is."""
        super().format_options(ctx, formatter)
        group = ctx.parent.command.get_command(ctx.parent, ctx.info_name) if ctx.parent else None
        if isinstance(group, CommandGroupWithDefault):
            group.format_commands(ctx, formatter)


class LazyCommand(TyperCommand):
    """A command that imports `target`, a `folder.module:function` below `habitus.cli`, when it is first used.

    `example` is what follows the command in the example of its help.
    """

    def __init__(self, name: str, target: str, example: str = "", *, hidden: bool = False) -> None:
        self._module, _, self._function = target.partition(":")
        self.example = example
        super().__init__(name, hidden=hidden)

    @property
    def help(self) -> str | None:
        """The function's docstring, read from the source file without importing it."""
        return _read_function_docstrings_from_source(self._find_docstring_file())[self._function]

    @help.setter
    def help(self, given: str | None) -> None:
        """The base class has none to give."""

    def _find_docstring_file(self) -> Path:
        """Return the source file that holds the function's docstring."""
        return Path(__file__).parent / f"{self._module.replace('.', '/')}.py"

    @functools.cache  # noqa: B019  # the commands live as long as the process
    def load(self) -> TyperCommand:
        """Import the module and return its command; raise `NotInstalled` if an optional package is missing."""
        try:
            module = importlib.import_module(f"habitus.cli.{self._module}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name not in optional_packages.EXTRA_BY_MODULE:
                raise
            raise optional_packages.build_missing_error(f"'habitus {self.name}'", error.name) from None
        command = _build_typer_command(self.name or "", self._get_command_function(module))
        command.epilog = self.epilog
        return command

    def _get_command_function(self, module: ModuleType) -> Callable[..., None]:
        found: Callable[..., None] = getattr(module, self._function)
        return found

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse with the loaded command, which also completes what is typed."""
        return self.load().make_context(info_name, args, parent, **extra)


class LazyUseCaseCommand(LazyCommand):
    """A command built from a use case declaration.

    The function named in `target` does the work: it is in `app/use_cases`, in the module called `group` or else like
    the one in `target`, where `print_result_of_` with its name prints the result.
    """

    def __init__(self, name: str, target: str, *, group: str = "", **options: Any) -> None:
        super().__init__(name, target, **options)
        self._group = group or self._module.rpartition(".")[2]

    def _find_docstring_file(self) -> Path:
        return Path(__file__).parents[1] / "app" / "use_cases" / f"{self._group}.py"

    def _get_command_function(self, module: ModuleType) -> Callable[..., None]:
        # Imported here because it pulls in the declarations, which a command written by hand doesn't need.
        declared = importlib.import_module("habitus.cli.use_case_commands")
        function, example = declared.build_typer_function_for_use_case(self._group, module, self._function)
        self.epilog = f"Example: {example}"
        made: Callable[..., None] = function
        return made


def build_command_group(help: str | None = None, *, example: str = "") -> CommandGroupWithDefault:
    """Return a group for commands; called alone, it prints its help or runs its default command."""
    made = typer.Typer(
        help=help, cls=CommandGroupWithDefault, invoke_without_command=True, add_completion=False, rich_markup_mode=None
    )
    made.callback()(_print_help_without_subcommand)
    whole = typer.main.get_group(made)
    assert isinstance(whole, CommandGroupWithDefault)
    whole.example = example
    return whole


def extract_first_sentence(text: str) -> str:
    """Return the first sentence of a text without its final period."""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0].removesuffix(".")


def _print_help_without_subcommand(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        output.print_help(context)


@functools.cache
def _read_function_docstrings_from_source(file: Path) -> Mapping[str, str | None]:
    """Map each top-level function of a source file to its docstring."""
    # Parsing the source takes a thousandth of the time of importing the module.
    source = file.read_text(encoding="utf-8")
    return {one.name: ast.get_docstring(one) for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}


def _build_typer_command(name: str, function: Callable[..., None]) -> TyperCommand:
    # No markup mode: square brackets in a help text are meant literally.
    made = typer.Typer(add_completion=False, rich_markup_mode=None)
    made.command(name, cls=_LoadedCommand)(function)
    command = typer.main.get_command(made)
    assert isinstance(command, TyperCommand)
    return command
