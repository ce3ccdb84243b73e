"""The types of agent programs (request, call and output), and readers for the formats they write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from habitus.llm.model import TokenUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentProgramPrompt:
    """One request to a program, and the folder in which it runs."""

    system: str
    prompt: str
    # Empty for the program's own choice.
    model: str
    # A folder for this request alone.
    workspace: Path
    # The user's environment.
    environ: Mapping[str, str]
    # It runs in a box of ours, in which no second sandbox starts.
    is_boxed: bool = False

    @property
    def user_home(self) -> Path:
        """The user's home directory."""
        return Path(self.environ.get("HOME") or Path.home())

    @property
    def path_of_written_system_prompt(self) -> str:
        """The path of a file with the system prompt, hidden from other users of the machine."""
        # Programs reject an empty file.
        return str(write_text_file(self.workspace / "system.md", self.system or "Answer the request."))

    @property
    def prompt_with_system_prompt(self) -> str:
        return f"{self.system}\n\n{self.prompt}".strip()

    def build_model_arguments(self, option: str = "--model") -> tuple[str, ...]:
        return (option, self.model) if self.model else ()

    def get_user_settings_folder(self, variable: str, default: str) -> Path:
        """Return the folder where the program keeps the user's settings."""
        return Path(self.environ.get(variable) or self.user_home / default)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentProgramCommand:
    """The command line of one program run, with its input and extra environment."""

    arguments: Sequence[str]
    stdin: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramOutput:
    """The parsed output of a program; `usage` is None if the program did not report it."""

    text: str = ""
    usage: TokenUsage | None = None
    # The model that answered, if known.
    model: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentProgram:
    """A coding agent that can answer requests: how to call it and how to parse its output."""

    name: str
    title: str
    command: str
    install: str
    sign_in: str
    # Environment variables to pass on; a name that ends in `_` stands for a prefix.
    variables: tuple[str, ...]
    build_call: Callable[[AgentProgramPrompt], AgentProgramCommand]
    parse_output: Callable[[str, AgentProgramPrompt], ProgramOutput]
    # The provider whose price list applies, if the program does not report its cost.
    price_provider: str = ""
    # It reports the cost with every answer.
    reports_cost: bool = False
    # Known from its source code only.
    is_experimental: bool = False


def parse_json_objects(written: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of a text, or those on its lines; other output is skipped."""
    for text in (written, *written.splitlines()):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
            if text is written:
                return


def dict_or_empty(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def get_token_count(used: Mapping[str, Any], key: str) -> int:
    value = used.get(key)
    return value if isinstance(value, int) else 0


def parse_token_usage(used: Mapping[str, Any], *, read: Sequence[str], wrote: Sequence[str], cached: str) -> TokenUsage:
    """Build the usage from the keys under which a program reports its tokens."""
    return TokenUsage(
        input_tokens=sum(get_token_count(used, key) for key in read),
        output_tokens=sum(get_token_count(used, key) for key in wrote),
        cached_tokens=get_token_count(used, cached),
    )


def parse_dollars(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def write_text_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def link_user_files(source: Path, own: Path, *names: str) -> None:
    """Link files of the user's folder into our own, if that folder exists."""
    own.mkdir(parents=True, exist_ok=True)
    for name in names:
        if source.is_dir():
            (own / name).symlink_to(source / name)


def read_json_file(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if it is missing or invalid."""
    try:
        return dict_or_empty(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def read_toml_file(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; empty if it is missing or invalid."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def format_toml_value(value: object) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)} = {format_toml_value(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(format_toml_value, value))}]"
        case _:
            return json.dumps(value, default=str)
