"""Other agents on this machine: where each keeps its transcripts and its skills, and what its listing has room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """Folders are relative to the user's home, or to a project. Patterns find transcripts below a folder."""

    name: str
    label: str
    marks: tuple[str, ...]  # one of these is there where the agent is used
    transcript_folder: str
    patterns: tuple[str, ...] = ("**/*.jsonl",)
    user_skills: tuple[str, ...] = ()  # the first wins
    project_skills: tuple[str, ...] = ()
    listing_chars: int | None = None  # of all descriptions together; none where no limit is known
    description_chars: int | None = None

    def is_used(self, home: Path) -> bool:
        return any((home / mark).is_dir() for mark in self.marks)

    def transcripts(self, home: Path) -> Iterator[Path]:
        folder = home / self.transcript_folder
        for pattern in self.patterns if folder.is_dir() else ():
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())


AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            label="Claude Code",
            marks=(".claude",),
            transcript_folder=".claude/projects",
            user_skills=(".claude/skills",),
            project_skills=(".claude/skills",),
            listing_chars=8_000,
            description_chars=1_536,
        ),
        Agent(
            name="codex",
            label="Codex",
            marks=(".codex",),
            transcript_folder=".codex/sessions",
            patterns=("**/rollout-*.jsonl",),
            user_skills=(".agents/skills", ".codex/skills"),
            project_skills=(".agents/skills", ".codex/skills"),
            listing_chars=8_000,
            description_chars=1_024,
        ),
        Agent(
            name="gemini-cli",
            label="Gemini CLI",
            marks=(".gemini",),
            transcript_folder=".gemini/tmp",
            patterns=("*/chats/session-*.jsonl", "*/chats/session-*.json"),
            user_skills=(".agents/skills", ".gemini/skills"),
            project_skills=(".agents/skills", ".gemini/skills"),
        ),
        Agent(
            name="opencode",
            label="opencode",
            marks=(".config/opencode", ".local/share/opencode"),
            transcript_folder=".local/share/opencode",
            patterns=("opencode.db",),
            user_skills=(".config/opencode/skills", ".claude/skills", ".agents/skills"),
            project_skills=(".opencode/skills", ".claude/skills", ".agents/skills"),
            description_chars=1_024,
        ),
    )
}
