"""A model that reads its lines from a file, `script:PATH`: to try and test a conversation without a provider.

The file is a JSON list of steps, or `{"pause": SECONDS, "steps": […]}` with the time between two words.
A step is one answer of the model:

    {"say": "Words."}
    {"call": "scratchpad", "arguments": {"action": "exec", "code": "print(1)"}, "say": "Let me see."}
    {"answer": {"label": "csv_summary"}}     the JSON of an answer whose shape was asked for
    {"fail": "out of order", "say": "First"}  the provider fails
    {"hang": true, "say": "Well,"}            nothing more comes until the turn is cancelled
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from habitus.errors import Invalid, NotFound
from habitus.llm.model import Ask, ProviderFault
from habitus.llm.scripted import ScriptedModel, Step, breaks, call, hangs, says

PREFIX = "script:"


class FileStep(BaseModel):
    model_config = ConfigDict(extra="forbid")

    say: str = ""
    call: str = ""
    arguments: dict[str, Any] = {}
    answer: Any = None
    fail: str = ""
    hang: bool = False

    def step(self) -> Step:
        if self.fail:
            return breaks(ProviderFault(self.fail), after=self.say)
        if self.hang:
            return hangs(after=self.say)
        if self.call:
            return says(self.say, call(self.call, self.arguments))
        return says(self.say if self.answer is None else json.dumps(self.answer, ensure_ascii=False))


class FileScript(BaseModel):
    model_config = ConfigDict(extra="forbid")

    steps: list[FileStep]
    pause: float = Field(default=0.0, ge=0, le=60)


def script_model(name: str) -> ScriptedModel:
    """The model that `script:PATH` names; it starts at the first step."""
    path = Path(name.removeprefix(PREFIX)).expanduser()
    script = _read(path)
    return ScriptedModel(_play(script, path), name=name, pause=script.pause)


def _play(script: FileScript, path: Path) -> Iterator[Any]:
    def over(ask: Ask) -> Step:
        return ProviderFault(f"The script {path.name} is over after {len(script.steps)} steps.")

    return itertools.chain((step.step() for step in script.steps), itertools.repeat(over))


def _read(path: Path) -> FileScript:
    try:
        read = json.loads(path.read_bytes())
        return FileScript.model_validate({"steps": read} if isinstance(read, list) else read)
    except FileNotFoundError:
        raise NotFound(f"There is no script {path}.", mend="Give the path of a JSON file: script:PATH.") from None
    except OSError as error:
        raise Invalid(f"Can't read the script {path}: {error.strerror}.", mend="Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{path} is no script: {_problem(error)}.", mend='Write a list like [{"say": "Hello."}].'
        ) from None


def _problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error) or type(error).__name__
    problem = error.errors()[0]
    return ": ".join([*filter(None, [".".join(map(str, problem["loc"]))]), problem["msg"]])
