"""The pages by address: entries of the command palette, related pages, and the page for each command."""

from __future__ import annotations

import re
from urllib.parse import quote


def remove_cli_commands(reason: str) -> str:
    """Return a reason without its commands and options, which only help in a terminal."""
    return re.split(r"; (?:see 'habitus|--)", reason)[0]


_COMMAND_PAGES = {
    "chat": "Chat",
    "config": "Settings",
    "connect": "Connections",
    "doctor": "Doctor, under Settings",
    "evidence": "Insights",
    "jobs": "Automation",
    "lessons": "Lessons",
    "review": "the Inbox",
    "sessions": "Activity",
    "skills": "Skills",
    "tools": "Tools",
    "users": "Team",
}


def replace_commands_by_pages(text: str) -> str:
    """Replace each command in a sentence by the page that does the same, if there is one."""
    command = r"([Rr]un )?(?:(['`])habitus (\w+)[^'`]*\2|\bhabitus (\w+)[^'`.;\n]*)"
    return re.sub(command, _replace_match_by_page, text)


def _replace_match_by_page(found: re.Match[str]) -> str:
    name = _COMMAND_PAGES.get(found[3] or found[4])
    if name is None:
        return found[0]
    return f"{'Open' if found[1][0] == 'R' else 'open'} {name}" if found[1] else name


PALETTE_ENTRIES = {
    "/": "Home",
    "/chat": "Chat: talk to an agent",
    "/skills": "Skills",
    "/new": "New skill",
    "/import": "Import skills",
    "/try": "Try a request",
    "/tools": "Tools",
    "/archive": "Archive",
    "/lessons": "Lessons",
    "/lessons#l-text": "Add a lesson",
    "/inbox": "Inbox",
    "/activity": "Activity",
    "/insights": "Insights",
    "/connections": "Connections: connect an agent",
    "/team": "Team: invite a person",
    "/automation": "Automation: schedules and jobs",
    "/settings": "Settings",
    "/model": "Choose a model",
    "/secrets": "Secrets",
    "/doctor": "Doctor: problems and fixes",
    "#pause": "Pause or resume learning",
}


_ADMIN_ENTRIES = ("/new", "/import", "/lessons#l-text", "#pause")


def find_palette_entries(text: str, *, is_admin: bool = True) -> list[tuple[str, str]]:
    """Return the palette entries whose name contains all words, as address and name."""
    wanted = text.lower().split()
    return [
        (href, name)
        for href, name in PALETTE_ENTRIES.items()
        if all(word in name.lower() for word in wanted) and (is_admin or href not in _ADMIN_ENTRIES)
    ]


def list_related_pages(path: str) -> list[tuple[str, str]]:
    """Return related pages for an address that was not found, nearest first, as address and label."""
    kind, _, rest = path.strip("/").partition("/")
    name = rest.partition("/")[0]
    near = {
        "skills": [
            (f"/skills?q={quote(name)}", f"Search for “{name[:60]}”"),
            ("/skills", "All skills"),
            ("/archive", "Archive"),
        ],
        "lessons": [("/lessons", "All lessons")],
        "activity": [("/activity", "All conversations")],
        "chat": [("/chat", "New conversation"), ("/activity", "All conversations")],
        "inbox": [("/inbox", "Inbox")],
    }
    return [*near.get(kind, []), ("/", "Home")]
