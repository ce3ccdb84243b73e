"""`habitus tour`: a short guided run on a temporary home; everything but the model is real."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from habitus import operating_system
from habitus.agent import stream
from habitus.agent.session import Session
from habitus.app import Habitus, read_settings
from habitus.app.library import explaining
from habitus.cli import output
from habitus.cli.completion import JsonOption
from habitus.cli.operating.up import ServerAddress, serve_web_and_mcp
from habitus.llm.model import AssistantMessage
from habitus.llm.providers.known_providers import list_provider_key_variables
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.sandbox.machine import list_protection_statuses, probe_machine
from habitus.settings import DetectorActivityMode
from habitus.web.home_pool import HomePool

_STEP_MARKER = "▸ "
# The most lines of a tool's result that are shown.
_MAX_RESULT_LINES = 8


def show_tour(
    context: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", help="Play the tour in this home and keep the results.")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="At a terminal, show the results on the web page.")] = False,
    as_json: JsonOption = False,
) -> None:
    """See Habitus at work in a few seconds: no key, no network."""
    home = home or context.find_root().obj
    if not as_json:
        _play_tour_and_print_next_steps(home, serve=serve)
        return
    with redirect_stdout(io.StringIO()) as said:
        _play_tour_and_print_next_steps(home)
    steps = [step.partition("\n") for step in said.getvalue().split(f"\n{_STEP_MARKER}")[1:]]
    output.print_json({"steps": [{"title": title, "output": shown.strip("\n")} for title, _, shown in steps]})


def _play_tour_and_print_next_steps(home: Path | None, *, serve: bool = False) -> None:
    with play_tour_and_yield_habitus(home) as habitus:
        if serve and sys.stdin.isatty() and sys.stdout.isatty():
            output.print_line()
            output.print_line("The results are on a web page; press 'q' to stop.", style="bold")
            asyncio.run(_serve_tour_page_until_key(habitus))
    print_next_steps()


@contextmanager
def play_tour_and_yield_habitus(home: Path | None) -> Iterator[Habitus]:
    """Play the tour from start to end, then yield its home, which is deleted afterwards unless it was given."""
    with tempfile.TemporaryDirectory(prefix="habitus-tour-") as scratch:
        settings = read_settings(home or Path(scratch) / "home")
        # Isolated from the person's own agents and projects; changes on disk are noticed at once.
        settings = settings.model_copy(
            update={
                "user_home": Path(scratch),
                "cwd": Path(scratch),
                "look_every": 0.0,
                "acc_mode": DetectorActivityMode.ACTIVE,
            }
        )
        output.print_line("Habitus: skills that an agent learns, proves and keeps.", style="bold")
        output.print_line(f"This tour works in {settings.home}" + ("" if home else ", which is removed at the end."))
        output.print_line("The model is scripted; its tool calls and their results are real.")
        with Habitus.open(settings) as habitus:
            output.print_line(_describe_isolation(habitus))
            _remove_skill_and_tool_of_earlier_tour(habitus)
            asyncio.run(_play_all_scenes(habitus))
            yield habitus


def print_next_steps() -> None:
    """Print how to continue with a model of your own."""
    output.print_line()
    output.print_line("Everything but the model was real. To use your own:", style="bold")
    first, *others = list_provider_key_variables()
    output.print_line(f"  export {first}=…   (or {', '.join(others)}, or HABITUS_MODEL=ollama:…)")
    output.print_line("  habitus chat")
    output.print_line("Your own home is ~/.habitus; see 'habitus --help' for more.")


def _describe_isolation(habitus: Habitus) -> str:
    """Return a sentence on how code is isolated on this machine."""
    protections = list_protection_statuses(probe_machine())
    missing = [protection.name for protection in protections if not protection.is_on]
    if not missing:
        return f"Code runs isolated: {', '.join(protection.name for protection in protections)}."
    return f"Code runs isolated, but this machine lacks: {', '.join(missing)}. 'habitus doctor' shows how to fix it."


def _remove_skill_and_tool_of_earlier_tour(habitus: Habitus) -> None:
    """Remove the skill and the tool of an earlier tour in the same home."""
    for name in (SKILL, TOOL):
        if habitus.skills.is_name_taken(name):
            habitus.skills.remove(name, habitus.build_author("makes room for the tour"))


async def _play_all_scenes(habitus: Habitus) -> None:
    """Play all scenes in order: work, save, find again, fail, learn, make a tool."""
    session, model = _open_scripted_session(habitus)
    async with session:
        _print_step_title("A user asks. One cell fails, the next succeeds, and the task is done.")
        await _play_scene(session, model, WORKED_OUT)
        _print_step_title(
            "The procedure is saved as a standard SKILL.md folder. You are asked first; the tour answers yes."
        )
        await _play_scene(session, model, SKILL_SAVED)
        output.print_line(
            (habitus.skills.find_directory(SKILL) or Path()).joinpath("SKILL.md").read_text("utf-8"), style="dim"
        )
    session, model = _open_scripted_session(habitus)
    async with session:
        _print_step_title("Another day, another session, other words. The skill is found, loaded and followed.")
        await _play_scene(session, model, FOUND_AGAIN)
        _print_step_title("Why that skill? Search suggested it; every selection is recorded with its reason.")
        for section in session.sections():
            if section.name == "fitting skills":
                output.print_line(section.text, style="dim")
        _print_skill_explanation(habitus, FOUND_AGAIN.request, SKILL)
        output.print_line(f"  In that turn it was {_describe_skill_placement_in_last_turn(habitus, session, SKILL)}.")
        _print_step_title(
            "Something fails the same way three times. The agent is nudged at once, and a lesson is saved."
        )
        await _play_scene(session, model, FAILED)
        await session.wait_for_learning()
    session, model = _open_scripted_session(habitus)
    async with session:
        _print_step_title("From now on the lesson is in every prompt. Read and edit it with: habitus lessons.")
        for lesson in habitus.memory.list_lessons("all"):
            output.print_line(f"  {lesson.kind.value}: {lesson.text}  ({lesson.id}, {lesson.evidence.detector})")
        await _play_scene(session, model, LESSON_FOLLOWED)
        _print_step_title("Recurring work becomes a tool: tested in the sandbox before it is saved.")
        await _play_scene(session, model, TOOL_CREATED)
    _print_step_title("The result. Every version is kept with its author, so no mistake loses anything.")
    for name in (SKILL, TOOL):
        for version in habitus.skills.list_versions(name):
            output.print_line(f"  {name} v{version.number}  {version.author.actor.value}: {version.author.reason}")


def _open_scripted_session(habitus: Habitus) -> tuple[Session, ScriptedModel]:
    model = ScriptedModel([], name="scripted:tour")
    return habitus.session(model, ask=_print_and_approve_question), model


async def _print_and_approve_question(question: stream.ConsentQuestion) -> stream.Consent:
    """Print the question and approve it: the tour never waits for an answer."""
    output.print_line(f"  ? {question.text} yes", style="yellow")
    return stream.Consent.YES


async def _play_scene(session: Session, model: ScriptedModel, scene: TourScene) -> None:
    """Play one scene: the scripted model answers, everything it calls is real."""
    output.print_line(f"you: {scene.request.splitlines()[0]}", style="bold")
    model.follow_script(scene.steps)
    speaking = ""
    async for seen in session.turn_stream(scene.request):
        speaking = _print_event_and_return_unprinted_text(seen, speaking)


def _print_event_and_return_unprinted_text(seen: stream.TurnEvent, speaking: str) -> str:
    """Print an event of the turn; return the model's text that is not printed yet."""
    match seen:
        case stream.ReplyDelta(text=text):
            return speaking + text
        case stream.ToolStarted(tool=tool):
            if speaking.strip():
                output.print_line(f"agent: {speaking.strip()}")
            output.print_line(f"  → {tool}", style="cyan")
        case stream.ToolFinished(outcome=outcome, content=content, seconds=seconds):
            mark, style = ("ok", "green") if outcome.is_ok else ("failed", "red")
            for line in _shorten_tool_output_to_lines(content):
                output.print_line(f"    {line}", style="dim")
            output.print_line(f"    {mark}, {seconds * 1000:.0f} ms", style=style)
        case stream.NudgeEvent(text=text) | stream.NoticeEvent(text=text):
            output.print_line(f"  ! {text}", style="yellow")
        case stream.TurnResult(reply=reply):
            output.print_line(f"agent: {reply}")
        case _:
            return speaking
    return ""


def _shorten_tool_output_to_lines(content: str) -> list[str]:
    lines = [line for line in content.splitlines() if line.strip()]
    return lines if len(lines) <= _MAX_RESULT_LINES else [*lines[: _MAX_RESULT_LINES - 2], "…", lines[-1]]


def _print_skill_explanation(habitus: Habitus, request: str, name: str) -> None:
    for sentence in explaining.explain_skill_selection(
        habitus, name, explaining.build_request_of_user(habitus, request)
    ).sentences:
        output.print_line(f"  {sentence}")


def _describe_skill_placement_in_last_turn(habitus: Habitus, session: Session, name: str) -> str:
    """Return where the last turn placed a skill, with the reasons."""
    turn = habitus.journal.list_session_turns(session.id)[-1]
    found = explaining.explain_skill_selection_in_past_turn(
        habitus.skills, habitus.journal, name, turn.id, user=turn.user
    ).selected
    return ", then ".join(f"{entry.place.value} ({entry.reason})" for entry in found)


def _print_step_title(text: str) -> None:
    output.print_line()
    output.print_line(f"{_STEP_MARKER}{text}", style="bold cyan")


SKILL = "revenue-by-region"
TOOL = "read-amount"

EXPORT = """region;amount
north;1.200,50
south;830,00
north;99,50
west;-120,00
"""

_READ = '''import csv, io
from collections import defaultdict

export = """{export}"""
totals = defaultdict(float)
for row in csv.DictReader(io.StringIO(export), delimiter=";"):
    totals[row["region"]] += {amount}
for region, total in sorted(totals.items()):
    print(f"{{region}}: {{total:,.2f}}")
'''
_NAIVE = 'float(row["amount"])'
_RIGHT = 'float(row["amount"].replace(".", "").replace(",", "."))'

_PROCEDURE = """1. Look at the first lines of the export: which separator, and which marks in the amounts?
2. Read it with `csv.DictReader` and that separator.
3. Amounts like `1.200,50` have a point for thousands and a comma for decimals: remove the points, then make the comma a
   point, and only then call `float`.
4. Sum per region, sort by name, print with two decimals.
5. Say the totals; name a negative one, it is usually a refund."""

_AMOUNT = """import json, sys

written = json.loads(sys.argv[1])["written"]
print(json.dumps({{"amount": float({fixed})}}))
"""
# The first version has a typo, so the tour shows a tool failing its test.
_BROKEN_EXPRESSION, _FIXED_EXPRESSION = "writen", 'written.replace(".", "").replace(",", ".")'


def _build_scratchpad_call_arguments(amount: str, description: str) -> dict[str, object]:
    code = _READ.format(export=EXPORT, amount=amount)
    return {"action": "exec", "name": "main", "code": code, "one_line_description": description}


def _build_create_tool_call_arguments(expression: str) -> dict[str, object]:
    return {
        "name": TOOL,
        "description": "Reads an amount written like 1.200,50 and gives it as a number",
        "parameters_schema": {
            "type": "object",
            "properties": {"written": {"type": "string", "description": "The amount as it is written."}},
            "required": ["written"],
        },
        "python_code": _AMOUNT.format(fixed=expression),
        "test_payload": {"written": "1.200,50"},
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class TourScene:
    """One request to the session with the model's scripted answers."""

    request: str
    steps: tuple[AssistantMessage, ...]


WORKED_OUT = TourScene(
    request=f"What is the revenue per region in this export?\n{EXPORT}",
    steps=(
        calls(
            "scratchpad", _build_scratchpad_call_arguments(_NAIVE, "sum the amounts per region"), text="I add them up. "
        ),
        calls(
            "scratchpad",
            _build_scratchpad_call_arguments(_RIGHT, "sum, with amounts read as 1.200,50"),
            text="These use a comma. ",
        ),
        says("north 1,300.00, south 830.00, west -120.00 (a refund)."),
    ),
)
SKILL_SAVED = TourScene(
    request="Good. Remember how to do this.",
    steps=(
        calls(
            "create_skill",
            {
                "name": SKILL,
                "title": "Revenue by region",
                "description": "Sums the revenue per region of a semicolon export with amounts like 1.200,50. "
                "Use when somebody asks what each region sold or earned.",
                "content": _PROCEDURE,
                "tags": ["reports", "csv"],
            },
        ),
        says("Saved. Next time I begin with step 1."),
    ),
)
FOUND_AGAIN = TourScene(
    request=f"How much did each area of the country sell?\n{EXPORT}",
    steps=(
        calls("recall_skill", {"name": SKILL}, text="There is a skill for that. "),
        calls("scratchpad", _build_scratchpad_call_arguments(_RIGHT, "steps 1 to 4 of the skill")),
        says("north 1,300.00, south 830.00, west -120.00, which is a refund."),
    ),
)
FAILED = TourScene(
    request="Compare it with the figures of last year.",
    steps=(
        *(
            calls(
                "scratchpad",
                {
                    "action": "exec",
                    "name": "main",
                    "code": f"print(open('{name}').read())",
                    "one_line_description": "read",
                },
            )
            for name in ("last-year.csv", "lastyear.csv", "2025.csv")
        ),
        says("I have no file of last year. Could you attach it?"),
    ),
)
LESSON_FOLLOWED = TourScene(
    request="And what about the year before?",
    steps=(says("I don't have that file either, so I ask first: could you attach it?"),),
)
TOOL_CREATED = TourScene(
    request="I need such amounts read all the time. Make a tool of it, and read 12.345,60.",
    steps=(
        calls(
            "create_tool", _build_create_tool_call_arguments(_BROKEN_EXPRESSION), text="I write it down as a program. "
        ),
        calls("create_tool", _build_create_tool_call_arguments(_FIXED_EXPRESSION), text="A slip of mine; once more. "),
        calls(TOOL.replace("-", "_"), {"written": "12.345,60"}),
        says("The tool works: 12.345,60 is 12345.6."),
    ),
)


_CTRL_C = "\x03"


async def _serve_tour_page_until_key(habitus: Habitus) -> None:
    """Serve the web page of the tour's home until a key ends it."""
    keys = operating_system.pass_typed_keys_to_function(asyncio.get_running_loop(), _stop_on_quit_key)
    address = ServerAddress(host="127.0.0.1", port=0)
    with keys, closing(HomePool(habitus)) as homes:
        await serve_web_and_mcp(homes, habitus.settings.home, address, output.print_line)


def _stop_on_quit_key(key: str) -> None:
    if key in ("q", "Q", _CTRL_C, ""):
        signal.raise_signal(signal.SIGINT)
