"""What a solver program may reach: its box, and the refusal where there is none."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from habitus.errors import NotFound, Refused
from habitus.llm.agents.program import AgentProgramPrompt
from habitus.llm.agents.solvers import SolverProgram
from habitus.sandbox.machine import probe_machine
from habitus.sandbox.program_box import ProgramBox
from habitus.skills.library import Library


def is_solver_box_available() -> bool:
    """Return whether this machine has a box for solver programs."""
    return probe_machine().bubblewrap is not None


def describe_what_solver_can_reach(solver: SolverProgram, question: AgentProgramPrompt) -> str:
    """Describe what the solver can reach on this machine."""
    if not is_solver_box_available():
        return (
            "There is no bubblewrap here to hold it: it can read your files, reach the network and start programs, so "
            "it solves only with skills of your own"
        )
    hosts = ", ".join(solver.find_hosts(question)) or "the address that you have configured"
    return (
        "It runs in a box: it sees the system's programs, that folder and a copy of its sign-in, no other file of "
        f"yours, no task and no other process, and reaches only {hosts}"
    )


def open_solver_box(solver: SolverProgram, question: AgentProgramPrompt, work: Path) -> ProgramBox | None:
    """Return the box for one run, with the provider that the person has configured; None if there is none here."""
    if not question.is_boxed:
        return None
    room = question.workspace
    own = solver.list_provider_addresses_from_environment(question)
    for path in (*room.rglob("*.json"), *room.rglob("*.toml")):
        # What a skill or a task brings along must not name a host.
        if path.is_file() and not path.is_relative_to(room / solver.skills) and not path.is_relative_to(work):
            own += _ADDRESS.findall(path.read_text("utf-8", "replace"))
    configured = filter(None, (urlsplit(address).netloc.rpartition("@")[2] for address in own))
    if not (hosts := (*solver.find_hosts(question), *configured)):
        what = f"The address of '{solver.find_provider(question)}' is not known here."
        raise Refused(what, hint=f"Set its base URL in your settings of {solver.program.title}.")
    return ProgramBox(machine=probe_machine(), home=room, work=work, hosts=hosts)


_ADDRESS = re.compile(r"""base_?url"?\s*[:=]\s*"(https?://[^"]+)""", re.IGNORECASE)


def refuse_foreign_skill_without_box(library: Library, skill: str, solver: SolverProgram) -> None:
    """Raise `Refused` if the solver would run without a box on the text of somebody else."""
    if is_solver_box_available():
        return
    with suppress(NotFound):
        if origin := library.describe_unreviewed_origin(library.find(skill)):
            raise Refused(
                f"{solver.program.title} can't be held on this machine, and '{skill}' is not yours: {origin}.",
                hint="Install bubblewrap, or review the skill first.",
            )
